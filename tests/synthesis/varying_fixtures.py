"""A writer that serves hand-written variants, and an agent that plays the script of a task in as many attempts as it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from simia.config import parse_config
from simia.llm.types import Reply, Request
from simia.pack import Pack
from simia.synthesis import session
from simia.synthesis.recipes.vary import VaryConfig
from simia.synthesis.reply_reading import read_json
from simia.synthesis.varying.task_drafts import VariantDraft
from simia.task import ScriptTurn

FIXTURES = Path(__file__).parent / "fixtures" / "varying"
REPLIES: dict[str, Any] = yaml.safe_load((FIXTURES / "replies.yaml").read_text(encoding="utf-8"))
GOOD: dict[str, str] = REPLIES["good"]
BAD: dict[str, dict[str, Any]] = REPLIES["bad"]
KNOWN = {"$1.customer_id": "CUS-1293", "$2.orders.0.order_id": "ORD-20464"}
GIVES_UP = "I cannot help with that."


def read_bad(case: str) -> tuple[str, str, str]:
    """Task, change and reply of a case."""
    given = BAD[case]
    start = given.get("from") or f"cs-010/{given['change']}"
    text = given.get("reply") or GOOD[start]
    for old, new in given.get("replace", {}).items():
        assert old in text, f"{case}: {old}"
        text = text.replace(old, new)
    return given.get("task", start.partition("/")[0]), given["change"], text


class VaryBackend:
    """`drafts`: draw of a draft → reply. `solved`: item of an episode, such as `measured/cs-010/easier` → attempts that succeed; others do not."""

    alias, model, structured = "hand-written", "hand-written", False

    def __init__(
        self, drafts: Mapping[str, str], solved: Mapping[str, int], scripts: Mapping[str, list[ScriptTurn]]
    ) -> None:
        self.drafts, self.solved, self.scripts = dict(drafts), dict(solved), dict(scripts)
        self.asked: list[str] = []
        self.prompts: dict[str, str] = {}

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def complete(self, request: Request, *, draw: str) -> Reply:
        self.asked.append(draw)
        await asyncio.sleep(0.001 * (len(self.asked) * 7 % 5))  # in another order
        if draw.startswith("variations/"):
            self.prompts[draw] = str(request.messages[0]["content"])
            if draw not in self.drafts:
                raise AssertionError(f"no reply for {draw}:\n{request.messages[-1]['content']}")
            return Reply(text=self.drafts[draw])
        item, _, attempt = draw.partition(".try")
        if int(attempt.partition("/")[0]) > self.solved.get(item, 0):
            return Reply(text=GIVES_UP)
        steps = [turn for turn in self.scripts[item.partition("/")[2]] if turn.user is None]
        return Reply(text=write_step(steps[sum(m["role"] == "assistant" for m in request.messages)]))


def write_step(turn: ScriptTurn) -> str:
    """A turn of the agent in Hermes text."""
    if turn.calls is None:
        return turn.agent or ""
    calls = [
        f"<tool_call>\n{orjson.dumps(call.model_dump(include={'name', 'arguments'})).decode()}\n</tool_call>"
        for call in turn.calls
    ]
    text = "\n".join(calls)
    for reference, value in KNOWN.items():
        text = text.replace(reference, value)
    return text


def list_scripts(pack: Pack, drafts: Mapping[str, str]) -> dict[str, list[ScriptTurn]]:
    """Task or `task/change` → the turns that solve it."""
    found = {task.id: task.make_script() for task in pack.tasks}
    for draw, text in drafts.items():
        try:
            script = read_json(text, VariantDraft).script
        except ValueError:
            continue
        found[draw.removeprefix("variations/").partition(".draft")[0]] = script
    return found


def run_vary(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    pack: str | Path,
    drafts: Mapping[str, str],
    solved: Mapping[str, int],
    **settings: Any,
) -> tuple[session.Synthesized, VaryBackend]:
    """One run with hand-written drafts; `drafts` by `task/change`, or by a whole draw."""
    named = {key if ".draft" in key else f"variations/{key}.draft1": text for key, text in drafts.items()}
    backend = VaryBackend(named, solved, list_scripts(Pack.load(pack), named))
    monkeypatch.setattr(session, "open_backend", lambda *_, **__: backend)
    agent = {"tries": 4, "name": "strong", "sampling": {"calls": "hermes"}, **settings.pop("agent", {})}
    data = {"recipe": "vary", "source": str(pack), "agent": agent, "sampling": {"tries": 1}, **settings}
    config = parse_config(VaryConfig, data, where="the test")
    made = asyncio.run(
        session.start_synthesis(config, folder / "varied", runs=folder / "runs", name="run", say=lambda _: None)
    )
    return made, backend
