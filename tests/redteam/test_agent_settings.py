"""An agent leaves links and settings of programs behind; the checks of an honest pack must not follow them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from simia.pack import Pack
from simia.reward_spec import RewardSpec
from simia.sandbox.inside.files import leads_to
from tests.sandbox.making import ANY, TASK, ask, make_pack, opened

SECRET = "7391"
CODE = f"""
import subprocess
from pathlib import Path
from simia.kit import FileTools, system_program, write

class Desk(FileTools):
    @write
    def program(self, code):
        done = subprocess.run(["/bin/bash", "-c", code], cwd=self.home, capture_output=True, text=True)
        return done.stdout + done.stderr

    @property
    def home(self):
        return Path("/root") if self.root == Path("/") else self.root

    def start(self, given):
        self.home.mkdir(exist_ok=True)

    def ran(self, *command):
        return subprocess.run(
            [system_program(command[0]), *command[1:]], env=self.system_environment(), capture_output=True, text=True, cwd=self.home
        )

    def check_answer(self, name):
        path = self.home / name
        return path.exists() and path.read_text() == Path("/pack/expected/answer.txt").read_text() == {SECRET!r}

    def check_kept(self, name):
        return (self.home / name).read_text() == {SECRET!r}

    def check_python(self):
        return self.ran("python3", "-I", "-c", "import hashlib; print(hashlib.sha256(b'x').hexdigest()[:4])").stdout == "2d71\\n"

    def check_home(self):
        return self.ran("bash", "-c", "cat ~/.sqliterc || cat ~/.config/jq || cat $XDG_CONFIG_HOME/jq").returncode == 0

    def check_home_can_be_written(self):
        return self.ran("bash", "-c", "touch ~/x").returncode == 0

    def check_signer(self):
        return self.ran("git", "-C", "r", "config", "gpg.program").stdout.strip() != "/bin/false"

    def check_new_program(self):
        try:
            return self.ran("zz-linter").returncode == 0
        except LookupError:
            return False
"""


def desk(folder: Path, root: str) -> Pack:
    make_pack(folder, CODE, {"program": ANY}, object="Desk", isolation="sandbox")
    (folder / "expected").mkdir()
    (folder / "expected" / "answer.txt").write_text(SECRET)
    head = yaml.safe_load((folder / "pack.yaml").read_text())
    head["executable"] |= {"hidden": ["expected"], "root": root}
    (folder / "pack.yaml").write_text(yaml.safe_dump(head))
    return Pack.load(folder)


async def judged(pack: Pack, code: str, calls: list[dict[str, object]]) -> dict[str, object]:
    spec = RewardSpec.model_validate({"parts": [{"kind": "checklist", "calls": calls}]})
    async with opened(pack) as backend:
        world = await backend.open(TASK.model_copy(update={"reward": spec}))
        result = await ask(world, "program", code=code)
        assert result.error is None, result
        found = (await world.evidence())["checks"]
        await world.close()
    return dict(found)


@pytest.mark.attack("leave links to what only checks can read", where="sandbox")
@pytest.mark.parametrize("root", ["/scratch", "/"])
async def test_a_check_does_not_follow_the_agents_links_to_hidden_files(tmp_path: Path, root: str) -> None:
    code = f"""
    ln -s /pack/expected/answer.txt plain; ln -s /proc/self/root/pack/expected/answer.txt proc
    ln -s /pack/expected folder; ln -s / whole; ln -s plain again
    ln -s ../../../../pack/expected/answer.txt relative
    mkdir closed; ln -s /pack/expected/answer.txt closed/link; chmod 555 closed
    printf {SECRET} > honest; ln -s honest link; ln -s $PWD/honest absolute
    """
    stolen = [
        "plain",
        "proc",
        "folder/answer.txt",
        "whole/pack/expected/answer.txt",
        "again",
        "relative",
        "closed/link",
    ]
    calls = [{"name": "answer", "arguments": {"name": name}} for name in [*stolen, "honest", "link", "absolute"]]
    found = await judged(desk(tmp_path / "p", root), code, calls)
    assert list(found.values()) == [False] * len(stolen) + [True] * 3


@pytest.mark.attack("steer programs of a check by settings in the home and /etc", where="sandbox")
async def test_programs_of_a_check_read_no_settings_of_the_agent(tmp_path: Path) -> None:
    code = """
    printf '.print 42' > .sqliterc; mkdir -p .config; touch .config/jq
    git init -q r; git -C r config gpg.program /root/g
    ln -s /usr/bin/true /usr/local/bin/zz-linter
    """
    names = ["home", "home_can_be_written", "new_program", *(["signer"] if shutil.which("git") else [])]
    found = await judged(desk(tmp_path / "p", "/"), code, [{"name": name} for name in names])
    assert list(found.values()) == [False] * len(names)


@pytest.mark.attack("load a library into Python by /etc/ssl/openssl.cnf", where="sandbox")
async def test_the_agent_writes_no_settings_of_openssl(tmp_path: Path) -> None:
    code = "mkdir -p /etc/ssl/certs; touch /etc/ssl/certs/mine && { rm -f /etc/ssl/openssl.cnf; echo x > /etc/ssl/openssl.cnf; } && exit 1; mv /etc/ssl /etc/tls; cat /etc/ssl/openssl.cnf"
    pack = desk(tmp_path / "p", "/")
    async with opened(pack) as backend:
        world = await backend.open(TASK)
        found = (await ask(world, "program", code=code)).content
        assert "Read-only file system" in found
        assert "x" not in found.splitlines()
        await world.close()
    assert (await judged(pack, "true", [{"name": "python"}])) == {"0.python": True}


def test_where_links_lead(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    for name, target in (("loop", "loop"), ("out", "hidden/x"), ("up", ".."), ("near", "hiddenly"), ("on", "out")):
        (tmp_path / name).symlink_to(target)
    found = {name for name in ("loop", "out", "up", "near", "on") if leads_to(tmp_path / name, [str(hidden)])}
    assert found == {"loop", "out", "up", "on"}
