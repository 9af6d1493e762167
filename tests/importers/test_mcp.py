"""Servers of the Model Context Protocol as packs: well-behaved and hostile ones of ours, and two from package indexes."""

import asyncio
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from simia.cli.imports import parse_pairs, parse_reset
from simia.envs.environment import Environment, Episode
from simia.envs.opening import open_environment
from simia.envs.worlds.pack_requests import list_requested_paths
from simia.errors import Code, UserError
from simia.importers.mcp import import_server
from simia.importers.mcp_packages import find_program, parse_runner
from simia.jobs import Run
from simia.pack import Pack
from simia.task import Task
from simia.trajectory import Message, ToolCall, Trajectory
from tests.command import run_simia

HERE = Path(__file__).parent
PYTHON = shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin") or sys.executable
NPM = pytest.mark.skipif(shutil.which("npm") is None, reason="there is no npm")


@pytest.fixture(scope="session")
def script(environments: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server, where whoever runs the sandbox may read it."""
    folder = tmp_path_factory.mktemp("server")
    for parent in [folder, *folder.parents]:
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    path = folder / "mcp_server.py"
    path.write_bytes((HERE / "mcp_server.py").read_bytes())
    path.chmod(0o644)
    return path


@pytest.fixture(scope="session")
def notes(script: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The well-behaved server as a pack."""
    out = tmp_path_factory.mktemp("packs") / "notes"
    environment = {"GREETING": "hello from ${ROOT}", "OURS": str(HERE)}
    return import_server([PYTHON, str(script), "good"], out=out, environment=environment, variables=[])


def asked(pack: Path) -> list[str]:
    """What the pack asks to read: the server's folder."""
    how = Pack.load(pack).executable
    assert how is not None
    return list(list_requested_paths(how))


def granted(pack: Path) -> list[str]:
    return [word for path in asked(pack) for word in ("--grant-read", path)]


async def use(episode: Episode, name: str, /, **arguments: Any) -> Message:
    step = await episode.step(Message(role="assistant", calls=[ToolCall(id="1", name=name, arguments=arguments)]))
    return step.messages[0]


async def begun(environment: Environment, **task: Any) -> Episode:
    return await environment.reset(Task(id="t", instruction="Go on.", **task))


# -- the pack -----------------------------------------------------------------------------------------------------


def test_what_the_importer_writes(notes: Path, script: Path) -> None:
    pack = Pack.load(notes)
    assert [tool.name for tool in pack.tools] == [  # of three pages
        "note", "notes", "refuse", "error", "parts", "structure", "exit", "sleep", "look",
    ]  # fmt: skip
    by_name = {tool.name: tool for tool in pack.tools}
    assert by_name["note"].parameters["required"] == ["text"]
    assert by_name["structure"].extra["outputSchema"] == {"type": "object"}
    assert pack.policy == "Keep notes short."
    assert "notes 1.2" in pack.description
    assert "Resources that no tool reaches: memo." in pack.description
    assert "Prompts that no tool reaches: greet." in pack.description
    assert pack.executable is not None
    assert (pack.executable.isolation, pack.executable.repeatable) == ("sandbox", True)
    assert [(task.id, task.actions[0].name) for task in pack.tasks] == [("example-notes", "notes")]
    assert pack.executable.needs == [str(script.parent)]
    how = json.loads((notes / "mcp.json").read_bytes())
    assert how["resources"][0]["uri"] == "memo://1"
    assert how["tools"]["notes"] is False
    assert how["tools"]["note"] is True


def test_the_examples_pass_the_gate_and_become_seeds_by_one_command(notes: Path, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    shutil.copytree(notes, folder)
    assert simia("pack", "validate", str(folder), *granted(folder)).returncode == 0
    gated = simia("pack", "gate", str(folder), *granted(folder))
    assert gated.returncode == 0, gated.stdout
    assert simia("pack", "record", str(folder), *granted(folder)).returncode == 0
    [seed] = Pack.load(folder).seeds
    assert [message.text for message in seed.messages if message.role == "tool"] == ["none"]


def test_a_server_of_this_machine_is_opened_with_a_grant(script: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    out = import_server([PYTHON, str(script), "good"], out=tmp_path / "out", variables=["HOME"], say=lines.append)
    assert f"readable for the server: {script.parent}" in lines
    options = f"--variable HOME --grant-read {script.parent}"
    assert f"open it with {options}: a pack grants itself nothing" in lines
    shown = simia("pack", "show", str(out)).stdout
    assert f"asks for read: {script.parent}: granted with --grant-read {script.parent}\n" in shown
    assert "asks for variable: HOME: granted with --variable HOME\n" in shown
    for words in (["pack", "gate", str(out)], ["rollout", str(out), "--runs", str(tmp_path / "runs")]):
        refused = simia(*words)
        assert refused.returncode == 2
        assert refused.stderr.count("\n") == 1
        assert f"open it with --grant-read {script.parent}" in refused.stderr


async def test_results_are_the_servers_to_the_letter(notes: Path) -> None:
    async with await open_environment(str(notes), read=asked(notes)) as environment:
        episode = await begun(environment)
        assert (await use(episode, "note", text="milk")).text == "noted"
        parts = await use(episode, "parts")
        assert parts.text == "one\n[image image/png, 3 bytes]\ntwo\n[resource memo://2 three]"
        assert json.loads((await use(episode, "structure")).text) == {"a": [1, 2]}
        refused = await use(episode, "refuse")
        assert (refused.text, refused.error) == ("No:  not\ttoday.", Code.TOOL_ERROR)
        wrong = await use(episode, "error")
        assert (wrong.text, wrong.error) == ("MCP error -32601: no error", Code.TOOL_ERROR)
        assert (await use(episode, "notes")).text == "milk\n"  # a refusal costs nothing of what was there
        await episode.close()


async def test_files_are_the_state_and_an_episode_has_its_own(notes: Path) -> None:
    async with await open_environment(str(notes), read=asked(notes)) as environment:
        one, other = (
            await begun(environment),
            await begun(environment, initial={"files": {"notes.txt": {"text": "old\n"}}}),
        )
        await use(one, "note", text="milk")
        assert (await use(other, "notes")).text == "old\n"
        await use(other, "note", text="bread")
        assert (await use(one, "notes")).text == "milk\n"
        await one.step(Message(role="assistant", content="Done."))
        await other.step(Message(role="assistant", content="Done."))
        assert one.evidence is not None
        assert one.evidence["changes"] == [{"path": ["files", "notes.txt"], "new": {"text": "milk\n"}}]
        assert other.evidence is not None
        assert other.evidence["changes"] == [
            {"path": ["files", "notes.txt", "text"], "old": "old\n", "new": "old\nbread\n"}
        ]


async def test_a_server_sees_its_folder_and_nothing_of_ours(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "of-ours")
    async with await open_environment(str(notes), read=asked(notes)) as environment:
        episode = await begun(environment)
        seen = json.loads((await use(episode, "look")).text)
        await episode.close()
    assert seen == {
        "home": "/scratch", "cwd": "/scratch", "key": None, "greeting": "hello from /scratch", "passwd": False, "ours": False,
        "network": False, "files": [],
    }  # fmt: skip


async def test_a_variable_is_granted_by_name_and_its_value_hidden(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "s3cr3t-value")
    out = await asyncio.to_thread(
        import_server, [PYTHON, str(script), "good"], out=tmp_path / "keyed", variables=["API_KEY"]
    )
    assert not [path for path in out.rglob("*") if path.is_file() and b"s3cr3t-value" in path.read_bytes()]
    async with await open_environment(str(out), read=asked(out)) as environment:
        episode = await begun(environment)
        assert json.loads((await use(episode, "look")).text)["key"] is None
        await episode.close()
    async with await open_environment(str(out), variables=["API_KEY"], read=asked(out)) as environment:
        episode = await begun(environment)
        # The server has the value; results show it masked.
        assert json.loads((await use(episode, "look")).text)["key"] == "***"
        ended = await use(episode, "exit")
        assert (ended.text, ended.error) == ("the server has ended: goodbye with ***", Code.TOOL_ERROR)
        again = await use(episode, "notes")
        assert again.text == "the server has ended: goodbye with ***"
        await episode.close()


async def test_a_server_that_hangs_costs_a_call_and_not_the_episode(notes: Path, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    shutil.copytree(notes, folder)
    how = json.loads((folder / "mcp.json").read_bytes())
    (folder / "mcp.json").write_text(json.dumps({**how, "call": 1.0}))
    async with await open_environment(str(folder), read=asked(folder)) as environment:
        episode = await begun(environment)
        hung = await use(episode, "sleep")
        assert (hung.text, hung.error) == ("the server did not answer within 1 s", Code.TOOL_ERROR)
        assert episode.end is None
        await episode.close()


async def test_an_episode_that_lost_its_worker_is_built_again(notes: Path) -> None:
    async with await open_environment(str(notes), read=asked(notes)) as environment:
        episode = await begun(environment)
        await use(episode, "note", text="milk")
        copy = await episode.fork()
        await use(copy, "note", text="bread")
        assert (await use(copy, "notes")).text == "milk\nbread\n"
        assert (await use(episode, "notes")).text == "milk\n"
        await copy.close()
        await episode.close()


def test_files_to_start_from(script: Path, tmp_path: Path) -> None:
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "notes.txt").write_text("given\n")
    out = import_server([PYTHON, str(script), "good"], out=tmp_path / "given", folder=tmp_path / "start")
    done = simia(
        "rollout", str(out), "--agent", "reference", "--name", "given", "--runs", str(tmp_path / "runs"), *granted(out)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [trajectory] = accepted(tmp_path / "runs", "given")
    assert [message.text for message in trajectory.messages if message.role == "tool"] == ["given\n"]


def test_without_a_sandbox_by_word_only(script: Path, tmp_path: Path) -> None:
    out = import_server([PYTHON, str(script), "good"], out=tmp_path / "out", unsafe=True)
    done = simia(
        "rollout", str(out), "--agent", "reference", "--unsafe", "--name", "u", "--runs", str(tmp_path / "runs")
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row.reward.value for row in accepted(tmp_path / "runs", "u") if row.reward] == [1.0]


async def test_an_imported_server_is_served_on(notes: Path, tmp_path: Path) -> None:
    """Both ways at once: a client of the protocol, our episode, the server in the sandbox."""
    from mcp import ClientSession, StdioServerParameters, stdio_client

    words = ["-m", "simia", "serve", str(notes), "--mcp", "--out", str(tmp_path / "played.jsonl"), *granted(notes)]
    server = StdioServerParameters(command=sys.executable, args=words)
    for refusal, reward in ((True, 0.0), (False, 1.0)):  # the tool that refuses has written a file before
        async with stdio_client(server) as streams, ClientSession(*streams, read_timeout_seconds=120) as client:
            await client.initialize()
            if refusal:
                refused = await client.call_tool("refuse", {})
                assert (refused.is_error, refused.content[0].text) == (True, "No:  not\ttoday.")
            await client.call_tool("notes", {})
            verdict = json.loads((await client.call_tool("finish_episode", {})).content[0].text)
        assert verdict["reward"] == reward
    rows = (tmp_path / "played.jsonl").read_bytes().splitlines()
    assert [Trajectory.from_row(json.loads(row)).task_id for row in rows] == ["example-notes"] * 2


# -- what goes wrong, in a line -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("dies", r"^the server ended at its start: RuntimeError: the licence has run out$"),
        (
            "junk",
            r"^the server did not answer within 5 s; it printed 'Welcome to the notes server!' where messages should be$",
        ),
        ("silent", r"^the server did not answer within 5 s$"),
        ("nothing", r"^the server has no tools: there is nothing to import$"),
    ],
)
def test_a_server_that_cannot_be_used_is_one_line(script: Path, tmp_path: Path, kind: str, said: str) -> None:
    start = 5.0 if kind in ("junk", "silent") else None
    with pytest.raises(UserError, match=said):
        import_server([PYTHON, str(script), kind], out=tmp_path / "out", start=start)
    assert list(tmp_path.iterdir()) == []


def test_hostile_tools_are_left_out_with_a_line_each(script: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    out = import_server([PYTHON, str(script), "hostile"], out=tmp_path / "out", say=lines.append)
    assert [(tool.name, tool.description) for tool in Pack.load(out).tools] == [
        ("list", ""),
        ("fine", "red  [31m text"),
    ]
    left = [line for line in lines if line.startswith("left out")]
    assert len(left) == 7
    assert 'repaired: the tool list: a: pattern: "(" removed' in lines
    assert "left out: the tool remote: the schema refers to 'http://example.com/s.json'" in left[0]
    assert "left out: the tool 'fine' is listed twice" in left
    assert not [line for line in lines if "\x1b" in line]


def test_mistakes_are_one_line(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = [PYTHON, str(script), "good"]
    out = tmp_path / "out"
    home = tmp_path / "home"
    (at_home := home / "server.py").parent.mkdir()
    at_home.write_bytes(script.read_bytes())
    with pytest.raises(UserError, match=r"^no server is given, or two are: give either --url"):
        import_server(out=out)
    with pytest.raises(UserError, match=r"^there is no program 'no-such-program': give its path, or install"):
        import_server(["no-such-program"], out=out)
    with pytest.raises(UserError, match=r"^a server at a URL needs the network: add --network$"):
        import_server(url="http://127.0.0.1:9/mcp", out=out)
    with pytest.raises(UserError, match=r"^the server has no tool 'reset' to reset it with; it has: note, "):
        import_server(good, out=out, reset=("reset", {}))
    with pytest.raises(UserError, match=r"^the environment has no variable NO_SUCH_VARIABLE"):
        import_server(good, out=out, variables=["NO_SUCH_VARIABLE"])
    with pytest.raises(UserError, match=r"there is no such folder$"):
        import_server(good, out=out, folder=tmp_path / "none")
    for secret in ({"environment": {"API_KEY": "s3"}}, {"headers": {"Authorization": "Bearer s3"}}):
        where = {"url": "http://127.0.0.1:9/mcp", "network": True} if "headers" in secret else {"command": good}
        with pytest.raises(
            UserError, match=r"a secret must not be written into a pack; export it, and write \$\{NAME\} in its place$"
        ):
            import_server(out=out, **where, **secret)
    with pytest.raises(UserError, match=r"^--url contains a password"):
        import_server(url="https://a:b@example.com/mcp", network=True, out=out)
    with monkeypatch.context() as here:
        here.setenv("HOME", str(home))
        with pytest.raises(UserError, match=r"would get all of .* to read: move its files to a folder of their own$"):
            import_server([PYTHON, str(at_home)], out=out)
    with pytest.raises(UserError, match=r"^--env takes NAME=VALUE, not 'X'$"):
        parse_pairs(["X"], "=", "--env")
    with pytest.raises(UserError, match=r"^--reset clear must be a JSON object"):
        parse_reset("clear [1]")
    (out / "mine").mkdir(parents=True)
    with pytest.raises(UserError, match=r"exists and is not empty: remove it or choose another folder$"):
        import_server(good, out=out)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match=r"^a server from npm needs Node.js and npm"):
        import_server(npm="@modelcontextprotocol/server-memory", out=tmp_path / "memory")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "out"]


def test_commands_as_readmes_give_them() -> None:
    assert parse_runner(["npx", "-y", "@scope/server", "/data"]) == ("@scope/server", [], ["/data"])
    assert parse_runner(["npx", "-p", "@scope/pack", "tool", "x"]) == ("@scope/pack", ["tool"], ["x"])
    assert parse_runner(["uvx", "mcp-server-git", "--repository", "x"]) == (
        "mcp-server-git", ["mcp-server-git"], ["--repository", "x"],
    )  # fmt: skip
    assert parse_runner(["uvx", "--from=pack", "tool"]) == ("pack", ["tool"], [])
    with pytest.raises(UserError, match=r"^npx --call is not supported: install the server with --pip or --npm$"):
        parse_runner(["npx", "--call", "x"])
    with pytest.raises(UserError, match=r"^no server is given"):
        find_program([], [], None, print)


# -- elsewhere ----------------------------------------------------------------------------------------------------


@pytest.fixture
def counter(environments: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server over HTTP on the loopback, which wants a key."""
    pytest.importorskip("mcp")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("COUNTER_KEY", "k-123456")
    process = subprocess.Popen([sys.executable, str(HERE / "mcp_http_server.py"), str(port), "k-123456"])
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


async def test_a_server_elsewhere_needs_grants_and_a_tool_that_sets_it_back(counter: str, tmp_path: Path) -> None:
    def refused() -> Path:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COUNTER_KEY", "k-wrong")
            return import_server(
                url=counter, out=tmp_path / "no", headers={"Authorization": "Bearer ${COUNTER_KEY}"}, network=True
            )

    with pytest.raises(UserError, match=r"^http://127.0.0.1:\d+/mcp cannot be used: .* \(HTTP 401\)$"):
        await asyncio.to_thread(refused)

    def imported() -> Path:
        return import_server(
            url=counter, out=tmp_path / "counter", headers={"Authorization": "Bearer ${COUNTER_KEY}"},
            reset=("clear", {"start": 5}), network=True,
        )  # fmt: skip

    out = await asyncio.to_thread(imported)
    pack = Pack.load(out)
    assert pack.executable is not None
    assert not pack.executable.repeatable
    assert not [path for path in out.rglob("*") if path.is_file() and b"k-123456" in path.read_bytes()]
    async with await open_environment(pack, network=True, variables=["COUNTER_KEY"]) as environment:
        for _ in range(2):
            episode = await begun(environment, reward={"parts": [{"kind": "answer", "expect": ["7"]}]})
            assert (await use(episode, "add", number=2)).text == "7"
            step = await episode.step(Message(role="assistant", content="It is 7."))
            assert step.reward is not None
            assert step.reward.value == 1.0
    async with await open_environment(pack, network=True) as environment:
        with pytest.raises(
            UserError, match=r"the variable COUNTER_KEY is not granted: --set 'backend_settings.variables="
        ):
            await begun(environment)
    async with await open_environment(pack, variables=["COUNTER_KEY"]) as environment:
        with pytest.raises(
            UserError, match=r"cannot be used: .*\(a sandbox has no network unless network is granted\)$"
        ):
            await begun(environment)


# -- from package indexes, driven by simia rollout ----------------------------------------------------------------


SHOP = [
    {"name": "create_table", "arguments": {"query": "CREATE TABLE pets (name TEXT, kind TEXT)"}},
    {"name": "write_query", "arguments": {"query": "INSERT INTO pets VALUES ('Rex', 'dog')"}},
]
ADA = {"name": "Ada", "entityType": "person", "observations": ["likes tea"]}
MEMORY = [
    {"name": "create_entities", "arguments": {"entities": [ADA]}},
    {"name": "add_observations", "arguments": {"observations": [{"entityName": "Ada", "contents": ["has a cat"]}]}},
    {"name": "read_graph", "arguments": {}},
]


@pytest.mark.usefixtures("environments")
def test_a_server_of_the_python_index(tmp_path: Path) -> None:
    """It wants the first SDK, and gets it: its environment is its own."""
    command = "mcp-server-sqlite --db-path ${ROOT}/shop.db"
    out = tmp_path / "shop"
    done = simia("import", "mcp", command, "--pip", "mcp-server-sqlite==2025.4.25", "--pip", "mcp<2", "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    packages = json.loads((out / "mcp.json").read_bytes())["packages"]
    assert "mcp_server_sqlite==2025.4.25" in packages
    assert [each for each in packages if each.startswith("mcp==1.")]
    with_task(out, SHOP)
    assert play(out, "reference", tmp_path / "runs") == [1.0, 1.0]
    for trajectory in accepted(tmp_path / "runs", "reference"):
        assert trajectory.evidence is not None
        changes = {tuple(each["path"]): each.get("new") for each in trajectory.evidence["changes"]}
        [tables] = [new for path, new in changes.items() if path[-1] == "content"]
        assert tables == {"pets": {"1": {"name": "Rex", "kind": "dog"}}}
    assert play(out, "nothing", tmp_path / "runs") == [0.0, 0.0]


@NPM
@pytest.mark.usefixtures("environments")
def test_a_server_of_the_npm_registry(tmp_path: Path) -> None:
    out = tmp_path / "memory"
    command = "npx -y @modelcontextprotocol/server-memory@2026.8.31"
    where = "MEMORY_FILE_PATH=${ROOT}/memory.jsonl"
    done = simia("import", "mcp", command, "--env", where, "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "@modelcontextprotocol/server-memory@2026.8.31" in json.loads((out / "mcp.json").read_bytes())["packages"]
    with_task(out, MEMORY)
    assert play(out, "reference", tmp_path / "runs") == [1.0, 1.0]
    for trajectory in accepted(tmp_path / "runs", "reference"):
        graph = json.loads([m.text for m in trajectory.messages if m.role == "tool"][-1])
        assert graph["entities"] == [
            {**ADA, "observations": ["likes tea", "has a cat"]}
        ]  # and not those of the other episode
        assert trajectory.evidence is not None
        [change] = trajectory.evidence["changes"]
        assert change["path"] == ["files", "memory.jsonl"]
        assert "has a cat" in change["new"]["text"]
    assert play(out, "random", tmp_path / "runs") == [0.0, 0.0]


@NPM
@pytest.mark.usefixtures("environments")
def test_the_page_in_docs_to_the_letter(tmp_path: Path) -> None:
    """Its commands in their order, but for servers that are none, and its Python."""
    page = (HERE.parents[1] / "docs" / "mcp.md").read_text(encoding="utf-8")
    lines = [shlex.split(line)[1:] for line in re.findall(r"^simia .*$", page, re.M)]
    played = [
        words
        for words in lines
        if words[0] != "serve" and not any(word.startswith("some") for word in words) and "--url" not in words
    ]
    assert [words[0] for words in played] == ["import", "import", "import", "rollout", "pack", "pack"]
    for words in played:
        done = simia(*words, cwd=tmp_path)
        assert done.returncode == 0, f"{words}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"
    assert [seed.task_id for seed in Pack.load(tmp_path / "memory").seeds] == ["example-read_graph"]
    [code] = re.findall(r"```python\n(.*?)```", page, re.S)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "0.0"
    assert len((tmp_path / "trajectories.jsonl").read_bytes().splitlines()) == 1


def with_task(pack: Path, reference: list[dict[str, Any]]) -> None:
    task = {"id": "t", "instruction": "Do it.", "reference": reference, "reward": {"parts": [{"kind": "state"}]}}
    (pack / "tasks.jsonl").write_text(json.dumps(task) + "\n")


def play(pack: Path, agent: str, runs: Path) -> list[float | None]:
    """Two episodes at once by `simia rollout`: their rewards."""
    done = simia("rollout", str(pack), "--agent", agent, "--group", "2", "--name", agent, "--runs", str(runs))
    assert done.returncode == 0, done.stdout + done.stderr
    run = Run.read_only(runs, agent)
    try:
        bodies = [run.ledger.result(item.id) for item in run.ledger.items()]
    finally:
        run.close()
    return [body["trajectory"]["reward"].get("value") for body in bodies if body]


def accepted(runs: Path, name: str) -> list[Trajectory]:
    run = Run.read_only(runs, name)
    try:
        bodies = [run.ledger.result(item.id) for item in run.ledger.items()]
        return [Trajectory.from_row({**body["trajectory"]}) for body in bodies if body]
    finally:
        run.close()


def simia(*words: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    return run_simia(*words, cwd=cwd)


def test_the_importer_is_lazy() -> None:
    code = "import sys, simia.importers.mcp; print([m for m in sys.modules if m.split('.')[0] in ('mcp', 'mcp_types')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
