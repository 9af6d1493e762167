"""Processes that share a store: a question that several have at the same time is asked once, and a killed asker keeps nobody waiting."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ASKER = """
import asyncio, json, os, sys, time
from pathlib import Path
from simia.llm.engine import Engine
from simia.llm.types import Reply, Request
from simia.jobs import Store
from simia.trajectory import Usage

root, who, dies = Path(sys.argv[1]), sys.argv[2], sys.argv[3:] == ["dies"]


class Model:
    alias, model, structured = "a", "m", False

    async def start(self): ...
    async def close(self): ...

    async def complete(self, request, *, draw):
        with (root / "asked").open("a") as file:
            file.write(draw + chr(10))
        if dies:
            os.kill(os.getpid(), 9)
        await asyncio.sleep(0.2)
        return Reply(text=f"{who} on {draw}", finish="stop", usage=Usage(), model="m")


async def main():
    store = Store.open(root / "store")
    print("ready", flush=True)
    sys.stdin.readline()
    engine = Engine(Model(), store)
    ask = [engine.ask(Request(messages=[{"role": "user", "content": "?"}]), item="i", draw=d) for d in "abc"]
    print(json.dumps([reply.text for reply in await asyncio.gather(*ask)]), flush=True)
    store.close()

asyncio.run(main())
"""


def askers(root: Path, *each: tuple[str, ...]) -> list[str]:
    """Starts them, lets all go at once and returns what each printed last."""
    made = [
        subprocess.Popen(
            [sys.executable, "-c", ASKER, str(root), *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for arguments in each
    ]  # fmt: skip
    for process in made:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process, arguments in zip(made, each, strict=True):
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        while "dies" in arguments and process.poll() is None:  # it has asked before the others begin
            time.sleep(0.01)
    return [process.communicate(timeout=240)[0].strip() for process in made]


def test_what_several_ask_at_once_is_asked_once(tmp_path: Path) -> None:
    told = [json.loads(said) for said in askers(tmp_path, ("0",), ("1",), ("2",))]
    assert sorted((tmp_path / "asked").read_text().split()) == ["a", "b", "c"]
    assert told[0] == told[1] == told[2]
    assert [text[-1] for text in told[0]] == ["a", "b", "c"]


def test_who_is_killed_while_asking_keeps_nobody_waiting(tmp_path: Path) -> None:
    died, lived = askers(tmp_path, ("0", "dies"), ("1",))
    assert not died
    assert [text[-1] for text in json.loads(lived)] == ["a", "b", "c"]
    asked = Counter((tmp_path / "asked").read_text().split())
    assert set(asked) == {"a", "b", "c"}
    assert asked.total() in (3, 4), "at most what the dead one had sent is asked again"
