"""A pack served to the official MCP client: over stdio and HTTP, to the end, to nothing, and to a client that is killed midway."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

pytest.importorskip("mcp")

from mcp import Client, ClientSession, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from simia.authoring.scaffold import scaffold_pack
from simia.envs.episode import Episode
from simia.envs.opening import open_environment
from simia.errors import Aborted, Code, UserError
from simia.pack import Pack
from simia.serve.mcp import Service
from simia.serve.served_episode import TrajectoryFile, explain_end, summarize_end
from simia.task import Task
from simia.trajectory import End, Message, ToolCall, Trajectory
from tests.command import run_simia

TASK = "cs-003"
SERVE = ["-m", "simia", "serve", "customer_service", "--mcp"]
PATIENCE = 240


def server(out: Path, *more: str, task: str = TASK) -> StdioServerParameters:
    return StdioServerParameters(command=sys.executable, args=[*SERVE, "--task", task, "--out", str(out), *more])


@asynccontextmanager
async def session(parameters: StdioServerParameters) -> AsyncIterator[ClientSession]:
    async with (
        stdio_client(parameters) as (read, write),
        ClientSession(read, write, read_timeout_seconds=PATIENCE) as client,
    ):
        await client.initialize()
        yield client


@asynccontextmanager
async def at(url: str) -> AsyncIterator[ClientSession]:
    async with (
        streamable_http_client(url) as (read, write),
        ClientSession(read, write, read_timeout_seconds=PATIENCE) as client,
    ):
        await client.initialize()
        yield client


def text(result: Any) -> str:
    return "".join(part.text for part in result.content)


def read_lines(out: Path) -> list[bytes]:
    """The lines of a server's file, which it makes with its first trajectory."""
    return out.read_bytes().splitlines() if out.exists() else []


def rows(out: Path) -> list[Trajectory]:
    return [Trajectory.from_row(json.loads(line)) for line in read_lines(out)]


async def solve(client: ClientSession, task: str = TASK) -> dict[str, Any]:
    """The reference's calls, and its last words."""
    found = Pack.load("customer_service").task(task)
    for action in found.actions:
        done = await client.call_tool(action.name, action.arguments)
        assert not done.is_error, text(done)
    words = [turn.agent for turn in found.script if turn.agent]
    ended = await client.call_tool("finish_episode", {"answer": " ".join(words)})
    assert not ended.is_error
    verdict: dict[str, Any] = json.loads(text(ended))
    return verdict


@pytest.fixture
def http(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[str, Path, "subprocess.Popen[str]"]]:
    out = tmp_path / "http.jsonl"
    command = [
        sys.executable,
        *SERVE,
        "--http",
        "--port",
        "0",
        "--task",
        TASK,
        "--out",
        str(out),
        *getattr(request, "param", ["--idle", "600"]),
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith("serving at http://127.0.0.1:"), line + process.stderr.read()
    try:
        yield line.split()[2].rstrip(";"), out, process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        said, complained = process.communicate(timeout=PATIENCE)
        refusal = "Refusing to open a new session" if "--sessions" in command else "\0"
        lines = [line for line in complained.splitlines() if not line.startswith(refusal)]
        assert (process.returncode, said, lines) == (0, "", [])


async def test_the_reference_over_stdio_earns_one_and_the_trajectory_is_in_the_file(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    async with session(server(out)) as client:
        verdict = await solve(client)
        assert verdict["reward"] == 1.0
        assert verdict["end"] == "terminated"
        [row] = rows(out)  # before the client is gone
        again = await client.call_tool("finish_episode", {})
        assert json.loads(text(again)) == verdict
        late = await client.call_tool("get_order", {"order_id": "ORD-1"})
        assert late.is_error
        assert "the episode has ended" in text(late)
    assert rows(out) == [row]
    assert row.task_id == TASK
    assert row.reward is not None
    assert row.reward.value == 1.0
    calls = [(call.name, call.arguments) for _, _, call in row.calls()]
    assert calls == [(a.name, a.arguments) for a in Pack.load("customer_service").task(TASK).actions]


async def test_nothing_earns_nothing(tmp_path: Path) -> None:
    async with session(server(tmp_path / "out.jsonl")) as client:
        verdict = json.loads(text(await client.call_tool("finish_episode", {"answer": "I cannot."})))
    assert verdict["reward"] == 0.0


@pytest.mark.attack("finish_episode over MCP tells the agent what was expected", where="outside")
async def test_the_agent_gets_its_score_and_the_file_of_the_owner_the_details(tmp_path: Path) -> None:
    out, task = tmp_path / "out.jsonl", "cs-006"  # its answer parts expect an amount and a day
    async with session(server(out, task=task)) as client:
        first = text(await client.call_tool("finish_episode", {"answer": "It is 50667."}))
        again = text(await client.call_tool("finish_episode", {"answer": "41.95"}))
        late = text(await client.call_tool("get_order", {"order_id": "ORD-1"}))
    assert json.loads(first) == {"reward": 0.0, "end": "terminated", "code": "answered"}
    assert again == first
    assert not any(expected in told for told in (first, again, late) for expected in ("41.95", "May", "2025-05-12"))
    [row] = rows(out)
    assert row.reward is not None
    assert "41.95" in row.reward.rationale
    assert set(row.reward.parts) == {"state", "answer", "answer.2"}
    assert out.stat().st_mode & 0o077 == 0


@pytest.mark.attack("the end of an aborted episode over MCP quotes a check's words to the agent", where="outside")
async def test_the_agent_gets_the_code_of_an_abort_and_not_its_detail() -> None:
    async with await open_environment("customer_service", user="none") as environment:
        lost = Aborted(Code.UNSCORED, "the check says: expected 50678")
        episode = Episode.aborted(environment, environment.tasks[0], 0, lost)
    assert explain_end(episode) == f"the episode was aborted ({Code.UNSCORED.meaning})"
    assert summarize_end(episode) == {"reward": None, "end": "aborted", "code": Code.UNSCORED}


async def test_what_a_client_is_shown(tmp_path: Path) -> None:
    pack = Pack.load("customer_service")
    async with session(server(tmp_path / "out.jsonl", "--state")) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(listed) == {tool.name for tool in pack.tools} | {"finish_episode"}
        spec = pack.tools[0]
        assert listed[spec.name].input_schema == spec.parameters
        assert listed["get_order"].annotations is not None
        assert listed["get_order"].annotations.read_only_hint is True
        found = [resource.uri for resource in (await client.list_resources()).resources]
        assert found == ["simia://task", "simia://policy", "simia://state"]
        task = (await client.read_resource("simia://task")).contents[0].text
        assert task == pack.task(TASK).instruction
        state = json.loads((await client.read_resource("simia://state")).contents[0].text)
        assert set(state) == set(json.loads((pack.path_of("state") or Path()).read_text()))
        prompt = (await client.get_prompt("task")).messages[0].content.text
        assert prompt == f"{pack.policy}\n\n{task}"
        with pytest.raises(MCPError, match="there is no resource 'simia://secret'"):
            await client.read_resource("simia://secret")


async def test_several_packs_and_tasks_with_a_user_are_refused(tmp_path: Path) -> None:
    shares = [{"pack": name, "limit": 1} for name in ("customer_service", "office")]
    async with await open_environment({"packs": shares, "user": "none"}) as environment:
        with pytest.raises(
            UserError, match=r"MCP serves the tools of one pack, but these are several: serve one of them$"
        ):
            Service(environment, TrajectoryFile(tmp_path / "t.jsonl"), environment.tasks[0])
    async with await open_environment("customer_service", user="none") as environment:
        task = Task.model_validate(
            {"id": "new", "instruction": "Go.", "withheld": [{"fact": "One.", "asked": "which"}]}
        )
        with pytest.raises(UserError, match="task new needs a user who answers, but MCP has none"):
            Service(environment, TrajectoryFile(tmp_path / "t.jsonl"), task)


async def test_tools_that_a_task_hides_are_not_listed(tmp_path: Path) -> None:
    scaffold_pack(tmp_path / "todo")
    add = {"name": "add_todo", "arguments": {"text": "Buy milk."}}
    row = {"id": "few", "instruction": "Buy milk.", "tools": ["add_todo"], "reference": [add]}
    (tmp_path / "todo" / "tasks.jsonl").write_text(json.dumps(row) + "\n")
    command = ["-m", "simia", "serve", str(tmp_path / "todo"), "--mcp", "--out", str(tmp_path / "t.jsonl")]
    async with session(StdioServerParameters(command=sys.executable, args=command)) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["add_todo", "finish_episode"]


async def test_the_state_is_not_shown_unless_asked_for(tmp_path: Path) -> None:
    async with session(server(tmp_path / "out.jsonl")) as client:
        assert "simia://state" not in [r.uri for r in (await client.list_resources()).resources]
        with pytest.raises(MCPError, match="there is no resource"):
            await client.read_resource("simia://state")


async def test_errors_are_results(tmp_path: Path) -> None:
    async with session(server(tmp_path / "out.jsonl")) as client:
        unknown = await client.call_tool("get_ordr", {"order_id": "ORD-1"})
        wrong = await client.call_tool("get_order", {"order": 3})
        refused = await client.call_tool("get_order", {"order_id": "ORD-0000", "email": "nobody@example.com"})
    assert unknown.is_error
    assert "did you mean get_order?" in text(unknown)
    assert wrong.is_error
    assert "wrong arguments for get_order" in text(wrong)
    assert refused.is_error


async def test_a_client_that_only_looks_leaves_no_episode(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    async with session(server(out)) as client:
        await client.list_tools()
        await client.list_resources()
    assert rows(out) == []


async def test_a_client_that_leaves_midway_leaves_a_scored_trajectory(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    first = Pack.load("customer_service").task(TASK).actions[0]
    async with session(server(out)) as client:
        await client.call_tool(first.name, first.arguments)
    [row] = rows(out)
    assert row.end.kind == "truncated"
    assert row.reward is not None
    assert row.reward.value == 0.0
    assert row.messages[-1].role == "tool"


async def test_the_new_era_of_the_protocol_over_stdio(tmp_path: Path) -> None:
    """A client that needs no handshake is served too: its process is its session."""
    async with Client(server(tmp_path / "out.jsonl")) as client:
        assert client.protocol_version == "2026-07-28"
        assert (await solve(client.session))["reward"] == 1.0


def test_a_killed_client_leaves_the_trajectory_and_no_process(tmp_path: Path) -> None:
    out, pids = tmp_path / "out.jsonl", tmp_path / "pids"
    script = tmp_path / "client.py"
    script.write_text(
        "import asyncio, json, os, sys\n"
        "from mcp import ClientSession, StdioServerParameters, stdio_client\n"
        "async def main():\n"
        "    async with stdio_client(StdioServerParameters(**json.loads(sys.argv[1]))) as (r, w), ClientSession(r, w) as c:\n"
        "        await c.initialize()\n"
        "        await c.call_tool(*json.loads(sys.argv[2]))\n"
        "        print('called', flush=True)\n"
        "        await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    first = Pack.load("customer_service").task(TASK).actions[0]
    call = json.dumps([first.name, first.arguments])
    mark = {"SIMIA_TEST_MARK": str(pids)}
    parameters = server(out)
    parameters.env = mark
    process = subprocess.Popen(
        [sys.executable, str(script), parameters.model_dump_json(), call], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "called\n"
        marked = [pid for pid in processes() if str(pids) in environment(pid)]
        tree = marked + [pid for pid in processes() if ancestors(pid) & set(marked)]
        assert len(tree) > len(marked) >= 1  # the server, and its sandbox
    finally:
        process.kill()
        process.wait()
    assert wait_for(lambda: len(read_lines(out)) == 1)
    [row] = rows(out)
    assert row.end.kind == "truncated"
    assert row.reward is not None
    assert row.reward.value == 0.0
    assert wait_for(lambda: not [pid for pid in tree if alive(pid)])


async def test_the_reference_over_http_and_sessions_that_do_not_see_each_other(http: Any) -> None:
    url, out, _ = http
    async with at(url) as one, at(url) as other:
        verdict, nothing = await asyncio.gather(solve(one), other.call_tool("finish_episode", {"answer": "No."}))
        assert verdict["reward"] == 1.0
        assert json.loads(text(nothing))["reward"] == 0.0
    assert sorted(row.reward.value for row in rows(out) if row.reward) == [0.0, 1.0]


async def test_a_session_may_choose_its_task(http: Any) -> None:
    url, out, _ = http
    async with at(f"{url}?task=cs-001") as client:
        assert (await solve(client, "cs-001"))["reward"] == 1.0
    async with at(f"{url}?task=cs-0001") as client:
        wrong = await client.call_tool("finish_episode", {})
        assert wrong.is_error
        assert "has no task 'cs-0001': did you mean" in text(wrong)
    assert [row.task_id for row in rows(out)] == ["cs-001"]


@pytest.mark.parametrize("http", [["--idle", "1"]], indirect=True, ids=["idle"])
async def test_an_http_session_ends_with_goodbye_and_with_silence(http: Any) -> None:
    url, out, _ = http
    first = Pack.load("customer_service").task(TASK).actions[0]
    async with at(url) as client:  # it says goodbye when it leaves
        await client.call_tool(first.name, first.arguments)
        await asyncio.sleep(1.5)  # longer than --idle: an open stream is a sign of life
        assert rows(out) == []
    assert await asyncio.to_thread(wait_for, lambda: len(rows(out)) == 1)
    code = (
        "import asyncio, os, sys\n"
        "from tests.serve.test_mcp import at\n"
        "async def main():\n"
        f"    async with at({url!r}) as client:\n"
        f"        await client.call_tool({first.name!r}, {first.arguments!r})\n"
        "        os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], check=False)
    assert await asyncio.to_thread(wait_for, lambda: len(rows(out)) == 2)
    assert {(row.end.kind, row.reward.value) for row in rows(out) if row.reward} == {("truncated", 0.0)}


@pytest.mark.parametrize("http", [["--sessions", "1"]], indirect=True, ids=["one"])
async def test_a_session_beyond_the_limit_is_refused_until_one_ends(http: Any) -> None:
    url, out, _ = http
    async with at(url) as client:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        headers = {"Accept": "application/json, text/event-stream"}
        async with aiohttp.ClientSession() as other, other.post(url, json=request, headers=headers) as refused:
            assert refused.status == 503
        assert (await solve(client))["reward"] == 1.0
    async with at(url) as client:
        assert (await solve(client))["reward"] == 1.0
    assert len(rows(out)) == 2


async def test_over_http_the_era_without_sessions_is_refused_so_that_a_client_shakes_hands(http: Any) -> None:
    url, _, _ = http
    async with Client(url) as client:
        assert client.protocol_version == "2025-11-25"
        assert (await solve(client.session))["reward"] == 1.0


async def test_ctrl_c_writes_what_is_under_way(http: Any) -> None:
    url, out, process = http
    first = Pack.load("customer_service").task(TASK).actions[0]
    async with at(url) as client:
        await client.call_tool(first.name, first.arguments)
        process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(wait_for, lambda: process.poll() is not None)
    assert [row.end.kind for row in rows(out)] == ["truncated"]


def test_ctrl_c_over_stdio_ends_cleanly(tmp_path: Path) -> None:
    command = [sys.executable, *SERVE, "--out", str(tmp_path / "out.jsonl")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).encode() + b"\n"
    )
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    assert answer["result"]["serverInfo"]["name"] == "simia-customer_service"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=PATIENCE) == 0
    assert (process.stdout.read(), process.stderr.read() if process.stderr else b"") == (b"", b"")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["customer_service"], "simia serve customer_service --mcp"),
        (["customer_service", "--mcp", "--task", "cs-1"], "has no task 'cs-1'"),
        (["customer_service", "--mcp", "--out", "/proc/none/t.jsonl"], "give another file with --out"),
        (["no_such_pack", "--mcp"], "no_such_pack"),
        (["customer_service", "--mcp", "--set", "packs=[office]"], "--set is for --openenv: MCP serves one pack"),
    ],
)
def test_mistakes_are_one_line(words: list[str], said: str) -> None:
    done = run_simia("serve", *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr


def test_a_port_that_is_taken_is_one_line_and_leaves_no_file(http: Any, tmp_path: Path) -> None:
    port = http[0].split(":")[2].split("/")[0]
    command = [sys.executable, *SERVE, "--http", "--port", port, "--out", str(tmp_path / "t.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"simia: port {port} is not available")
    assert not list(tmp_path.iterdir())


def test_simia_itself_does_without_the_sdk() -> None:
    code = "import sys, simia, simia.cli; simia.cli.build_app(); print([m for m in sys.modules if m.split('.')[0] == 'mcp'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- processes ----------------------------------------------------------------------------------------------------


def wait_for(what: Any, seconds: float = 240) -> bool:
    import time

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.05)
    return bool(what())


def processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def environment(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace")
    except OSError:
        return ""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ancestors(pid: int) -> set[int]:
    found: set[int] = set()
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
        found.add(pid)
    return found


async def test_the_file_holds_what_orjson_cannot_write(tmp_path: Path) -> None:
    call = ToolCall(id="1", name="get_order", arguments={"number": 10**30, "text": "\ud800"})
    kept = Trajectory(messages=[Message(role="assistant", calls=[call])], end=End(kind="truncated"))
    await TrajectoryFile(tmp_path / "t.jsonl").add(kept)
    [row] = rows(tmp_path / "t.jsonl")
    assert row.messages[0].calls == [call]
