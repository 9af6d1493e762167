"""Packs that ask for files of the host, and what they reach with a grant: what was granted, for reading, and no socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from simia.envs.worlds.executable import ExecutableBackend
from simia.errors import UserError
from simia.pack import Pack
from simia.sandbox import grants
from tests.redteam.conftest import SECRET, Listeners
from tests.sandbox.making import HEAD, TASK, ask, make_pack, opened

ISOLATIONS = ("shared", "process", "sandbox")
CODE = (
    HEAD
    + '''
import os, pathlib, socket
try:
    socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    datagrams = "can be sent to any address while loading"
except OSError as error:
    datagrams = error.strerror
a, b = socket.socketpair()  # what an event loop needs
a.send(b"x")

class State(BaseModel): pass
class World(Tools[State]):
    State = State

    @read
    def attempt(self, code: str) -> Any:
        """Code in the worker's own process; what raises is named."""
        found = {"datagrams": datagrams}
        try:
            exec(code, {"found": found, "os": os, "pathlib": pathlib, "socket": socket})
        except OSError as error:
            found["error"] = error.strerror
        return found
'''
)
CONNECT = """
sock = socket.socket(socket.AF_UNIX, socket.{kind})
sock.settimeout(5)
sock.connect({path!r})
sock.send(b"here")
found["reached"] = True
"""


@pytest.fixture(params=ISOLATIONS)
def isolation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A folder of the host with a file that anybody may read, and one that only its owner may."""
    folder = tmp_path / "host"
    folder.mkdir(mode=0o755)
    for parent in (tmp_path, *tmp_path.parents):  # as root the worker is nobody, who must get here
        if parent.stat().st_uid == os.getuid() and parent.name.startswith("pytest-"):
            parent.chmod(0o755)
    (folder / "data.txt").write_text(SECRET)
    (folder / "id_rsa").write_text(SECRET)
    (folder / "id_rsa").chmod(0o600)
    return folder


def asking(folder: Path, isolation: str, **executable: Any) -> Pack:
    """A pack whose pack.yaml asks for something of the host."""
    make_pack(folder, CODE, {"attempt": {"type": "object"}}, isolation=isolation)
    head = yaml.safe_load((folder / "pack.yaml").read_text())
    head["executable"] |= executable
    (folder / "pack.yaml").write_text(yaml.safe_dump(head))
    return Pack.load(folder)


async def attempt(backend: ExecutableBackend, code: str) -> dict[str, Any]:
    world = await backend.open(TASK)
    try:
        result = await ask(world, "attempt", code=code)
        assert result.error is None, result
        assert isinstance(result.data, dict)
        return result.data
    finally:
        await world.close()


class Waiting:
    """A Unix socket of the host that anybody may connect to."""

    def __init__(self, path: Path, kind: socket.SocketKind) -> None:
        self.sock = socket.socket(socket.AF_UNIX, kind)
        here = os.open(path.parent, os.O_RDONLY)  # the path may be too long for an address
        self.sock.bind(f"/proc/self/fd/{here}/{path.name}")
        os.close(here)
        path.chmod(0o777)
        if kind is socket.SOCK_STREAM:
            self.sock.listen()
        self.sock.setblocking(False)

    def reached(self) -> bool:
        try:
            self.sock.accept() if self.sock.type is socket.SOCK_STREAM else self.sock.recv(10)
        except BlockingIOError:
            return False
        return True


@pytest.fixture
def short(tmp_path: Path) -> Iterator[Path]:
    """A folder whose sockets have addresses that fit."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="s") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.attack("ask in pack.yaml for files of the host")
@pytest.mark.parametrize("unasked", ["needs", "python"])
def test_a_pack_cannot_grant_itself_files(tmp_path: Path, host: Path, isolation: str, unasked: str) -> None:
    executable: dict[str, Any] = {"needs": [str(host)]}
    if unasked == "python":
        (host / "bin").mkdir()
        (host / "bin" / "python").symlink_to("/bin/true")
        (host / "pyvenv.cfg").write_text("home = /usr/bin")
        executable = {"python": str(host / "bin" / "python")}
    pack = asking(tmp_path / "pack", isolation, **executable)
    with pytest.raises(UserError) as caught:
        ExecutableBackend(pack)
    assert str(caught.value).startswith(f"pack pack asks to read {host}: ")
    assert f"--grant-read {host}" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="--grant-read"):  # another folder's grant is none for this
        ExecutableBackend(pack, read=[str(tmp_path / "pack")])
    (tmp_path / "hos").mkdir()
    with pytest.raises(UserError, match="--grant-read"):  # nor is that of a folder whose name begins alike
        ExecutableBackend(pack, read=[str(tmp_path / "hos")])


@pytest.mark.attack("hide what is asked for behind a link in the pack", where="outside")
async def test_a_request_by_a_link_names_what_it_leads_to(tmp_path: Path, host: Path) -> None:
    pack = asking(tmp_path / "pack", "process", needs=[f"{tmp_path}/pack/maps"])
    (tmp_path / "pack" / "maps").symlink_to(host)
    with pytest.raises(UserError) as caught:
        ExecutableBackend(pack)
    assert f"{tmp_path}/pack/maps (a link to {host}): " in str(caught.value)
    assert f"--grant-read {host} " in str(caught.value)
    with pytest.raises(UserError):  # its own folder's grant is none for what lies elsewhere
        ExecutableBackend(pack, read=[str(tmp_path / "pack")])
    async with opened(pack, read=[str(host)]) as backend:
        found = await attempt(backend, f"found['text'] = open('{tmp_path}/pack/maps/data.txt').read()")
        assert found["text"] == SECRET


async def test_what_is_granted_is_read_and_not_written(tmp_path: Path, host: Path, isolation: str) -> None:
    pack = asking(tmp_path / "pack", isolation, needs=[str(host)])
    async with opened(pack, read=[str(host)]) as backend:
        found = await attempt(backend, f"found['text'] = open('{host}/data.txt').read()")
        assert found["text"] == SECRET
        found = await attempt(backend, f"open('{host}/data.txt', 'a')")
        assert found["error"] in ("Read-only file system", "Permission denied")
        found = await attempt(backend, f"found['there'] = os.path.exists('{tmp_path}/pack')")
        assert found["there"] is False
    assert (host / "data.txt").read_text() == SECRET


@pytest.mark.attack("leave the granted folder by a link")
async def test_links_of_a_granted_folder_lead_nowhere(tmp_path: Path, host: Path, isolation: str) -> None:
    (tmp_path / "secret").write_text(SECRET)
    (host / "link").symlink_to(tmp_path / "secret")
    (host / "up").symlink_to("..")
    pack = asking(tmp_path / "pack", isolation)
    async with opened(pack, read=[str(host)]) as backend:
        for path in ("link", "up/secret", "../secret"):
            found = await attempt(backend, f"found['text'] = open('{host}/{path}').read()")
            assert found.get("error") == "No such file or directory", found


@pytest.mark.attack("connect to a Unix socket in a granted folder")
@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM"])
async def test_no_socket_of_a_granted_folder_is_reached(tmp_path: Path, short: Path, isolation: str, kind: str) -> None:
    """One that is there before refuses the grant; one that is made later is seen and cannot be connected to, also by a link."""
    pack = asking(tmp_path / "pack", isolation, needs=[str(short)])
    early = Waiting(short / "early", socket.SocketKind[kind])
    with pytest.raises(UserError, match=r"it holds a socket, .*early; remove that or grant a narrower folder"):
        ExecutableBackend(pack, read=[str(short)])
    with pytest.raises(UserError, match="it is a socket"):
        ExecutableBackend(pack, read=[str(short / "early")])
    early.sock.close()
    (short / "early").unlink()
    async with opened(pack, read=[str(short)]) as backend:
        await backend.start()
        late = Waiting(short / "late", socket.SocketKind[kind])
        (short / "link").symlink_to("late")
        for name in ("late", "link"):
            found = await attempt(
                backend,
                f"found['seen'] = os.path.exists('{short}/{name}')\n{CONNECT.format(kind=kind, path=f'{short}/{name}')}",
            )
            assert found == {"datagrams": "Operation not permitted", "seen": True, "error": "Operation not permitted"}
        assert not late.reached()
        late.sock.close()


@pytest.mark.attack("connect to a Unix socket in the pack's folder")
async def test_no_socket_of_the_packs_folder_is_reached(tmp_path: Path, short: Path, isolation: str) -> None:
    pack = asking(short / "pack", isolation)
    early = Waiting(short / "pack" / "early", socket.SOCK_STREAM)
    os.mkfifo(short / "pack" / "pipe", 0o666)
    async with opened(pack) as backend:
        await backend.start()
        late = Waiting(short / "pack" / "late", socket.SOCK_STREAM)
        for name in ("early", "late"):
            found = await attempt(backend, CONNECT.format(kind="SOCK_STREAM", path=f"/pack/{name}"))
            assert "reached" not in found
        assert [early.reached(), late.reached()] == [False, False]
        assert "pipe" not in (await attempt(backend, "found['names'] = os.listdir('/pack')"))["names"]
    early.sock.close()
    late.sock.close()


@pytest.mark.attack("connect to an abstract Unix socket over the granted network", where="sandbox")
async def test_the_hosts_abstract_sockets_are_not_reached(tmp_path: Path, listeners: Listeners) -> None:
    pack = asking(tmp_path / "pack", "sandbox")
    path = listeners.abstract.getsockname().decode()
    async with opened(pack, network=True) as backend:
        found = await attempt(backend, CONNECT.format(kind="SOCK_STREAM", path=path))
        assert found == {"datagrams": "Operation not permitted", "error": "Operation not permitted"}
        port = listeners.tcp.getsockname()[1]
        found = await attempt(backend, f"found['tcp'] = socket.create_connection(('127.0.0.1', {port})) is not None")
        assert found["tcp"] is True, "the network that was granted"
    assert listeners.reached() == ["tcp"]


async def test_without_a_grant_a_sandbox_has_unix_sockets_of_its_own(tmp_path: Path) -> None:
    pack = asking(tmp_path / "pack", "sandbox")
    code = "s = socket.socket(socket.AF_UNIX); s.bind('/tmp/s'); s.listen(); c = socket.socket(socket.AF_UNIX); c.connect('/tmp/s')"
    async with opened(pack) as backend:
        assert "error" not in await attempt(backend, code)


HOME = os.path.expanduser("~")
NEVER = [
    "/", "/home", "/root", HOME, f"{HOME}/", f"{HOME}/../{Path(HOME).name}", "/etc", "/var", "/var/lib", "/tmp", "/proc", "/proc/self",
    "/proc/self/root", "/proc/self/root/etc", "/run", "/var/run", "/sys", "/dev", "/dev/shm", "/dev/null", "/boot",
]  # fmt: skip


@pytest.mark.attack("ask for a home, its parents or the system's own folders", where="outside")
@pytest.mark.parametrize("path", NEVER)
def test_some_folders_are_never_granted(tmp_path: Path, path: str) -> None:
    if not os.path.exists(path):
        pytest.skip(f"there is no {path}")
    with pytest.raises(UserError, match=r"cannot be granted: "):
        ExecutableBackend(asking(tmp_path / "plain", "process"), read=[path])
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(UserError, match=r"cannot be granted: "):
        ExecutableBackend(asking(tmp_path / "plain", "process"), read=[str(tmp_path / "link")])
    with pytest.raises(UserError) as caught:  # nobody is told to grant that
        ExecutableBackend(asking(tmp_path / "pack", "process", needs=[path]))
    assert "cannot be granted" in str(caught.value)
    assert "--grant-read" not in str(caught.value)


@pytest.mark.attack("ask for credentials in a home", where="outside")
def test_credentials_are_never_granted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    for name in (".ssh/keys", ".config/gcloud", ".config/other", "data"):
        (home / name).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    for name in (".ssh", ".ssh/keys", ".config", ".config/gcloud", "", ".."):
        with pytest.raises(UserError, match=r"holds credentials|contains the home"):
            grants.check_grant(home / name)
    for name in ("data", ".config/other"):
        assert grants.check_grant(home / name) == (str(home / name), str(home / name))


@pytest.mark.attack("ask for a folder with a pipe, a device or another file system in it", where="outside")
def test_special_files_refuse_the_grant(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (host / "deep" / "er").mkdir(parents=True)
    os.mkfifo(host / "deep" / "er" / "pipe")
    with pytest.raises(UserError, match=r"it holds a named pipe, .*deep/er/pipe"):
        grants.check_grant(host)
    (host / "deep" / "er" / "pipe").unlink()
    assert grants.check_grant(host)[1] == str(host)
    points = [("/", "ext4"), (str(host / "deep"), "proc")]
    monkeypatch.setattr(grants, "list_mounts", lambda: points)
    with pytest.raises(UserError, match=r"another file system is mounted in it at .*deep"):
        grants.check_grant(host)
    with pytest.raises(UserError, match=r"file system of the kernel \(proc\)"):
        grants.check_grant(host / "deep" / "er")


def test_the_mounts_of_this_machine_are_read() -> None:
    assert {("/", "proc")} & {(os.path.dirname(point), kind) for point, kind in grants.list_mounts()}
    if os.path.ismount("/dev/shm"):
        assert grants.explain_mount_below("/dev")


@pytest.mark.attack("name a cached environment that lies elsewhere", where="outside")
@pytest.mark.parametrize("name", ["../../host", "..", ".", "a/b", "./a", "linked", "gone", ".hidden"])
def test_environments_are_named_plainly_and_lie_in_the_cache(
    tmp_path: Path, host: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("SIMIA_CACHE", str(tmp_path / "cache"))
    envs = tmp_path / "cache" / "envs"
    (envs / "a" / "b").mkdir(parents=True)
    (envs / ".hidden").mkdir()
    (envs / "linked").symlink_to(host)
    backend = ExecutableBackend(asking(tmp_path / "pack", "process", needs=[name]))
    with pytest.raises(UserError) as caught:
        backend._make()
    assert "\n" not in str(caught.value)
    ExecutableBackend(asking(tmp_path / "pack", "process", needs=["a"]))._make()


@pytest.mark.attack("write control characters into a request", where="outside")
@pytest.mark.parametrize("executable", [{"needs": ["/srv/\x1b[2J"]}, {"python": "/x\ny"}, {"variables": ["A B"]}])
def test_requests_hold_nothing_that_a_terminal_obeys(tmp_path: Path, executable: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"pack.yaml: executable"):
        asking(tmp_path / "pack", "process", **executable)


@pytest.mark.attack("be opened from a home, so that all of it is the pack")
async def test_a_home_is_no_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: str) -> None:
    pack = asking(tmp_path / "home" / "pack", isolation)
    monkeypatch.setenv("HOME", str(tmp_path / "home" / "pack"))
    async with opened(pack) as backend:
        with pytest.raises(UserError, match=r"the sandbox needs .* it is or contains the home"):
            await backend.open(TASK)
