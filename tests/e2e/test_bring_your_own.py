"""docs/bring-your-own.md to the letter: its files are written, its commands run in their order, against servers of this machine."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

from simia.pack import Pack
from simia.sandbox.capabilities import probe_isolation
from tests.command import run_simia
from tests.fake_endpoint import FakeEndpoint

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "bring-your-own.md"
DATA = ROOT.parent / "shared" / "data" / "glaive_toolcall_en_demo.json"
KEY = "a-key-for-the-library"
BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.S)
FILE = re.compile(r"`((?:\w+/)?\w+\.\w+)`:\s*$")


def sections() -> dict[str, list[tuple[str, str]]]:
    """Heading → its steps in their order: (a file's name, its content), or ("", a command)."""
    found: dict[str, list[tuple[str, str]]] = {}
    for part in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        title, _, body = part.partition("\n")
        steps = found[title] = []
        end = 0
        for block in BLOCK.finditer(body):
            name = FILE.search(body[end : block.start()])
            end = block.end()
            if block[1]:
                assert name, f"{title}: a block of {block[1]} that no file's name comes before"
                steps.append((name[1], block[2]))
            else:
                steps += [("", line) for line in block[2].splitlines() if line.strip()]
    return found


@pytest.fixture(scope="module")
def library() -> Iterator[int]:
    """A library with one book, for those who have the key; its port."""

    async def book(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return web.json_response({"error": "who are you?"}, status=401)
        return web.json_response({"title": f"Volume {request.match_info['id']}", "lent": True})

    loop = asyncio.new_event_loop()
    app = web.Application()
    app.router.add_get("/books/{id}", book)
    runner = web.AppRunner(app)

    async def begin() -> int:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        return int(site._server.sockets[0].getsockname()[1])  # type: ignore[attr-defined]

    port = loop.run_until_complete(begin())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield port
    asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)


def played(title: str, folder: Path, *, port: int = 0, endpoint: str | None = None) -> dict[str, str]:
    """Do what a section says; command → what it printed."""
    env = {"LIBRARY_KEY": KEY, "COLUMNS": "200"} | ({"OPENAI_API_KEY": "not-a-key"} if endpoint else {})
    printed: dict[str, str] = {}
    for name, text in sections()[title]:
        if name:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
            continue
        words = shlex.split(text.replace("127.0.0.1:8080", f"127.0.0.1:{port}"))
        assert words[0] == "simia"
        if words[1] == "amplify" and endpoint:
            words += ["--set", f"llm.base_url={endpoint}", "--set", "llm.structured=true"]
        done = run_simia(*words[1:], cwd=folder, env=env)
        assert done.returncode == 0, f"{text}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        assert KEY not in done.stdout + done.stderr
        printed[text] = done.stdout
    return printed


walls = pytest.mark.skipif(probe_isolation().bwrap is None, reason="this machine has no sandbox: see simia doctor")


def test_every_section_is_played_here() -> None:
    assert list(sections()) == [
        "A list of tools", "Conversations", "An OpenAPI document", "A Gymnasium environment", "An MCP server",
        "Tasks for a shell", "Python of your own",
    ]  # fmt: skip
    assert all(steps for steps in sections().values())
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", PAGE.read_text(encoding="utf-8")):
        assert (PAGE.parent / target).exists(), target


def test_a_list_of_tools(tmp_path: Path) -> None:
    said = played("A list of tools", tmp_path)
    new = said["simia pack new weather --from tools.json"]
    for lack in ("no policy", "no seeds", "no tasks", "no state", "no executable"):
        assert f"missing  {lack} (" in new
    assert Pack.load(tmp_path / "weather").tools[0].name == "get_forecast"


def test_conversations(tmp_path: Path) -> None:
    endpoint = FakeEndpoint("--respond", "tests.replies:trajectory")
    try:
        said = played("Conversations", tmp_path, endpoint=endpoint.url)
        assert all("get_order" in str(request["body"]) for request in endpoint.requests)
        assert len(endpoint.requests) >= 4
    finally:
        endpoint.stop()
    assert "missing  inferred schemas of get_order" in said["simia pack new desk --from seen.jsonl"]
    assert "missing  no use of" not in said["simia pack new desk --from seen.jsonl"]
    pack = Pack.load(tmp_path / "desk")
    assert pack.tools[0].parameters["required"] == ["order_id", "email"]
    events = [json.loads(line) for line in said["simia amplify --seeds desk --n 4"].splitlines() if line[:2] == '{"']
    assert events[-1]["accepted"] == 4


@walls
def test_an_openapi_document(tmp_path: Path, library: int) -> None:
    said = played("An OpenAPI document", tmp_path, port=library)
    assert "to play it against" not in said["simia import openapi library.yaml --out library"]
    rolled = next(text for line, text in said.items() if line.startswith("simia rollout"))
    assert "1 scored" in rolled
    assert "1.000" in rolled
    rows = [path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert rows
    assert not any(KEY.encode() in row for row in rows)
    assert not any(KEY in path.read_text() for path in (tmp_path / "library_live").rglob("*") if path.is_file())


@walls
@pytest.mark.usefixtures("environments")
def test_a_gymnasium_environment(tmp_path: Path) -> None:
    said = played("A Gymnasium environment", tmp_path)
    assert "5 episodes of 5 tasks, 5 scored" in said["simia rollout lake --agent random"]
    assert "scored, 0 not" in said["simia rollout guess --agent random"]
    assert "guess: 5 tasks of Guess-v0, isolation: process" in next(t for line, t in said.items() if "guess.py" in line)


@walls
@pytest.mark.usefixtures("environments")
def test_an_mcp_server(tmp_path: Path) -> None:
    played("An MCP server", tmp_path)
    assert {tool.name for tool in Pack.load(tmp_path / "clock").tools} == {"get_current_time", "convert_time"}


@walls
def test_tasks_for_a_shell(tmp_path: Path) -> None:
    said = played("Tasks for a shell", tmp_path)
    assert "1 of 1 task passed" in said["simia pack gate shell"]


@walls
def test_python_of_your_own(tmp_path: Path) -> None:
    said = played("Python of your own", tmp_path)
    assert "1 of 1 task passed" in said["simia pack gate notebook"]
    assert "1.000" in said["simia rollout notebook --agent reference"]


@pytest.mark.usefixtures("local_model")
def test_conversations_of_others_are_amplified_by_the_local_model(tmp_path: Path) -> None:
    """Glaive's public sample, from a file to trajectories, with the model that comes with simia."""
    if not DATA.is_file():
        pytest.skip("the sample of Glaive's conversations is not here")
    env = dict.fromkeys(("OPENAI_API_KEY", "SIMIA_PATH", "SIMIA_RUNS"))
    for words in (["pack", "new", "others", "--from", str(DATA)], ["amplify", "--seeds", "others", "--n", "1"]):
        done = run_simia(*words, cwd=tmp_path, env=env, patience=1800)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    pack = Pack.load(tmp_path / "others")
    assert len(pack.tools) == 64
    assert len(pack.seeds) == 191
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"')]
    assert events[-1]["accepted"] == 1
