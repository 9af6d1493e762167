"""A recipe of two stages runs on the job coordinator: resumed, at any concurrency, with refusals and repeated questions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from simia.jobs import Run
from simia.llm.types import Reply, Request
from simia.synthesis import session
from simia.synthesis.reasons import Unreadable
from simia.synthesis.recipes import RECIPES, RecipeKind
from simia.synthesis.settings import SynthesisConfig
from simia.synthesis.stage import StageContext, StageInput, StageOutputs


def read_number(text: str) -> int:
    if not text.isdigit():
        raise Unreadable(f"{text!r} is no number")
    return int(text)


class NumberConfig(SynthesisConfig):
    recipe: str = "numbers"


class Draft:
    name = "draft"

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        return [StageInput(str(n), n) for n in range(6)]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        return await context.ask("test/number.j2", {"n": given.value}, read_number, label="draft")


class Double:
    name = "double"

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        return [StageInput(key, value) for key, value in outputs.of("draft").items()]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        context.note(was=given.value)
        return await context.ask("test/number.j2", {"n": given.value * 2}, read_number, label="double")


class NumberRecipe:
    name = "numbers"

    def list_stages(self) -> Sequence[Any]:
        return [Draft(), Double()]

    def write(self, outputs: StageOutputs, out: Path) -> list[Path]:
        out.mkdir(parents=True)
        (out / "numbers.txt").write_text(repr(outputs))
        return [out]


class NumberBackend:
    """Answers with the number in the prompt; 3 is refused for ever, 4 is unreadable once, and `until` requests are answered."""

    alias, model, structured = "numbers", "numbers", False

    def __init__(self, until: int | None = None) -> None:
        self.asked: list[str] = []
        self.answered: list[str] = []
        self.until = until
        self.stop: Callable[[], None] = lambda: None

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def complete(self, request: Request, *, draw: str) -> Reply:
        self.asked.append(draw)
        number = int(request.messages[0]["content"].removeprefix("n="))
        await asyncio.sleep(0.001 * (7 - number % 7))
        if self.until is not None and len(self.answered) >= self.until:
            await asyncio.sleep(3600)
        self.answered.append(draw)
        if number == 3 or (number == 4 and len(request.messages) == 1):
            return Reply(text="three")
        return Reply(text=str(number))


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., session.Synthesized]:
    (tmp_path / "prompts" / "test").mkdir(parents=True)
    (tmp_path / "prompts" / "test" / "number.j2").write_text("n={{ n }}")
    monkeypatch.setenv("SIMIA_PATH", str(tmp_path))
    monkeypatch.setitem(RECIPES, "numbers", RecipeKind(NumberConfig, lambda _: NumberRecipe()))

    def run(name: str, backend: NumberBackend, *, resume: bool = False, stop_after: float | None = None) -> Any:
        monkeypatch.setattr(session, "open_backend", lambda *_, **__: backend)
        config = NumberConfig()
        runs = tmp_path / "runs"

        async def go() -> session.Synthesized:
            if resume:
                return await session.resume_synthesis(name, runs=runs, say=lambda _: None)
            return await session.start_synthesis(
                config, tmp_path / f"{name}-out", runs=runs, name=name, say=lambda _: None
            )

        async def go_for_a_while() -> Any:
            try:
                return await asyncio.wait_for(go(), stop_after)
            except TimeoutError:
                return None

        return asyncio.run(go_for_a_while())

    return run


def test_two_stages_with_a_refusal_and_a_repeated_question(tmp_path: Path, work: Any) -> None:
    backend = NumberBackend()
    done = work("a", backend)
    assert done.stop.kind == "complete"
    assert done.outputs.of("draft") == {"0": 0, "1": 1, "2": 2, "4": 4, "5": 5}
    assert done.outputs.of("double") == {"0": 0, "1": 2, "2": 4, "4": 8, "5": 10}
    assert done.outputs.notes["double"]["5"] == {"was": 5}
    refusal = done.outputs.refused["draft"]["3"]
    assert (refusal.reason, refusal.detail) == ("unreadable_reply", "draft: 'three' is no number")
    assert [draw for draw in backend.asked if draw.startswith("draft/3")] == [
        "draft/3.draft", "draft/3.draft.again1", "draft/3.draft.again2",
    ]  # fmt: skip
    assert done.packs == [tmp_path / "a-out"]


def test_a_resumed_run_asks_nothing_twice_and_writes_the_same(tmp_path: Path, work: Any) -> None:
    whole = NumberBackend()
    work("whole", whole)
    first = NumberBackend(until=4)
    assert work("cut", first, stop_after=1.0) is None
    second = NumberBackend()
    done = work("cut", second, resume=True)
    assert done.stop.kind == "complete"
    assert (tmp_path / "cut-out" / "numbers.txt").read_bytes() == (tmp_path / "whole-out" / "numbers.txt").read_bytes()
    assert len(first.answered) == 4
    assert not set(first.answered) & set(second.asked)
    with_replies = Run.read_only(tmp_path / "runs", "cut")
    assert with_replies.ledger.answered_count() == len(whole.asked)
    with_replies.close()
