"""vLLM for real, on a CPU with a tiny model: a server by the documented line, in this process, and `run-batch`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from simia.amplification.session import resume_amplification, start_amplification
from simia.amplification.settings import AmplifyConfig
from simia.config import load_config
from simia.errors import UserError
from simia.jobs import Run
from simia.llm.batch_files import BatchBackend, BatchSettings
from simia.llm.vllm import VLLMBackend, VLLMSettings

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "vllm.md").read_text()
CPU = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_NUM_OF_RESERVED_CPU": "0"}

IN_PROCESS = """
import asyncio, json, sys
import psutil
from simia.llm.engine import Engine, EngineLimits
from simia.llm.types import LLMFault, Request
from simia.llm.vllm import VLLMBackend, VLLMSettings

SHAPE = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"], "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"name": "reply", "schema": SHAPE}}

async def main():
    settings = VLLMSettings(model=sys.argv[1], dtype="float32", max_model_len=1024, engine={"enforce_eager": True})
    async with Engine(VLLMBackend(settings), limits=EngineLimits(concurrency=4)) as engine:
        def request(i, **more):
            return Request(messages=[{"role": "user", "content": f"hello {i}"}], max_tokens=24, seed=i, **more)
        shaped = {"response_format": FORMAT}
        asks = [engine.ask(request(i % 2, **(shaped if i > 1 else {})), item=f"i{i}", draw=f"{i}") for i in range(4)]
        replies = await asyncio.gather(*asks)
        free = Request(messages=[{"role": "user", "content": "on and on"}])
        endless = await engine.ask(free, item="endless", draw="0")

        left = asyncio.create_task(engine.ask(request(9), item="left", draw="0"))
        await asyncio.sleep(0.05)
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
        vllm = engine.backend._engine
        for _ in range(100):
            if not vllm.output_processor.has_unfinished_requests():
                break
            await asyncio.sleep(0.1)

        async def fault(request, item):
            try:
                await engine.ask(request, item=item, draw="0")
            except LLMFault as error:
                return str(error.code)

        told = {
            "replies": [reply.model_dump() for reply in replies],
            "endless": endless.model_dump(),
            "unfinished": vllm.output_processor.has_unfinished_requests(),
            "too_long": await fault(Request(messages=[{"role": "user", "content": "word " * 4000}]), "long"),
        }
        for child in psutil.Process().children(recursive=True):
            child.kill()
        told["killed"] = await fault(request(10), "after")
        print("REPLIES", json.dumps(told), flush=True)

if __name__ == "__main__":
    asyncio.run(main())
"""


async def test_without_vllm_it_is_one_line() -> None:
    with pytest.raises(UserError, match=r"pip install 'simia\[vllm\]'"):
        await VLLMBackend(VLLMSettings(model="x")).start()


@pytest.fixture(scope="module")
def python(environments: Callable[[str], Path]) -> Path:
    return environments("vllm")


@pytest.fixture(scope="module")
def model(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models") / "tiny-qwen"
    texts = [ROOT / "README.md", ROOT / "seeds" / "office" / "seeds.jsonl"]
    subprocess.run(
        [python, ROOT / "tests" / "trainers" / "tiny_model.py", out, *texts], check=True, capture_output=True
    )
    return out


def environment(python: Path) -> dict[str, str]:
    return os.environ | CPU | {"PYTHONPATH": str(ROOT), "PATH": f"{python.parent}:{os.environ['PATH']}"}


def documented(beginning: str, model: Path) -> list[str]:
    """A command of docs/vllm.md, with this model in MODEL's place."""
    (line,) = re.findall(rf"^(?:[A-Z_]+=\S+ )*({re.escape(beginning)}.*MODEL.*)$", DOCS, re.M)
    return [str(model) if word == "MODEL" else word for word in shlex.split(line)]


@pytest.fixture(scope="module")
def server(python: Path, model: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    line = documented("python -m vllm.entrypoints.openai.api_server", model)
    line[line.index("--port") + 1] = str(port)
    child = subprocess.Popen(line, env=environment(python), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            assert child.poll() is None, "vllm serve ended"
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).read()
                break
            except OSError:
                time.sleep(1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        child.terminate()
        child.wait(60)


def settings(*more: str) -> list[str]:
    """A run whose prompts are short enough for a tiny context; what the tiny model says is nonsense, and is refused."""
    short = ["prompt.system=amplify/small_system.j2", "prompt.request=amplify/small_request.j2", "seeds.max_messages=4"]
    return [
        *short,
        "seeds.packs=[office]",
        "stop.attempts=3",
        "sampling.max_tokens=64",
        "reply.continue_cut=false",
        *more,
    ]


@pytest.mark.all
async def test_the_documented_server_line_serves_a_run(server: str, tmp_path: Path) -> None:
    conf = load_config(AmplifyConfig, "amplify/default", settings("llm.model=simulator", f"llm.base_url={server}"), n=1)
    await start_amplification(conf, runs=tmp_path, name="r", say=lambda _: None)
    run = Run.read_only(tmp_path, "r")
    usage, attempts = run.ledger.spent()
    texts = [row["reply"].get("text", "") for row in run.ledger.replies()]
    run.close()
    assert attempts["got"] >= 3
    assert usage.completion > 0
    assert all(text.startswith("{") for text in texts if text.strip()), "it is held to the schema"


@pytest.mark.all
def test_in_process(python: Path, model: Path) -> None:
    made = subprocess.run(
        [python, "-c", IN_PROCESS, model],
        env=environment(python),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    (line,) = [line for line in made.stdout.splitlines() if line.startswith("REPLIES ")] or [made.stderr[-2000:]]
    told: dict[str, Any] = json.loads(line.removeprefix("REPLIES "))
    replies = told["replies"]
    assert all(reply["usage"]["prompt"] > 0 and reply["usage"]["completion"] > 0 for reply in replies)
    assert all(reply["finish"] in ("stop", "length") for reply in replies)
    for reply in replies[2:]:
        if reply["finish"] == "stop":
            assert json.loads(reply["text"])["a"] in ("x", "y")
        else:
            assert reply["text"].lstrip().startswith("{")
    endless = told["endless"]
    assert endless["finish"] == "stop" or endless["usage"]["prompt"] + endless["usage"]["completion"] == 1024
    assert not told["unfinished"], "a cancelled question is dropped by the engine too"
    assert told["too_long"] == "bad_request", "a prompt beyond the context is a finding"
    assert told["killed"] == "connection", "an engine that died is an outage, and no exception of vLLM's"


@pytest.mark.all
async def test_run_batch_takes_our_file_and_we_take_its_answers(python: Path, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "batch"
    own = settings("llm.kind=batch", "llm.model=simulator", f"llm.folder={folder}", "stop.attempts=2")
    conf = load_config(AmplifyConfig, "amplify/default", own, n=2)
    made = await start_amplification(conf, runs=tmp_path, name="r", say=lambda _: None)
    assert made.stop.kind == "batch"
    assert "`python -m vllm.entrypoints.openai.run_batch`, with the same arguments" in DOCS
    line = ["python", "-m", "vllm.entrypoints.openai.run_batch", *documented("vllm run-batch", model)[2:]]
    extra = ["--enforce-eager", "--dtype", "float32", "--max-model-len", "4096"]
    await asyncio.to_thread(
        subprocess.run,
        [*line, *extra],
        env=environment(python),
        cwd=tmp_path,
        check=True,
        capture_output=True,
        timeout=300,
    )
    said: list[str] = []
    backend = BatchBackend(BatchSettings(model="simulator", folder=folder), say=said.append)
    await backend.start()
    await backend.close()
    assert said == [f"2 answers in 1 file of {folder / 'results'}"]
    more = await resume_amplification("r", runs=tmp_path, say=lambda _: None)
    run = Run.read_only(tmp_path, "r")
    statuses = [item.status for item in run.ledger.items()]
    run.close()
    assert more.progress.replies == 2
    assert "open" not in statuses
