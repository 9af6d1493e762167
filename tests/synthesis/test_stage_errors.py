"""What goes wrong in a stage's code or at its endpoint: one item, one session, or nothing at all is lost."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simia.errors import Code, UserError
from simia.report.live_panel import render_panel
from simia.synthesis import session
from simia.synthesis.pack_output import refuse_unusable
from simia.synthesis.recipes import RECIPES, RecipeKind
from simia.synthesis.session import Synthesized, resume_synthesis, start_synthesis
from simia.synthesis.settings import SynthesisConfig
from simia.synthesis.stage import StageContext, StageInput, StageOutputs
from simia.synthesis.stage_progress import SynthesisProgress
from tests.synthesis.chain_recipe import PROMPTS, ask_word, respond
from tests.synthesis.word_backend import WordBackend

Make = Callable[[StageInput, StageContext], Any]


class OneStage:
    """A stage, a recipe and its kind in one, whose parts a test replaces."""

    name = "only"

    def __init__(self, make: Make, keys: list[str]) -> None:
        self.make_one, self.keys = make, keys
        self.listing: Exception | None = None
        self.writing: Exception | None = None

    def list_stages(self) -> list[Any]:
        return [self]

    def list_inputs(self, outputs: StageOutputs) -> list[StageInput]:
        if self.listing:
            raise self.listing
        return [StageInput(key, {"key": key}) for key in self.keys]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        return await self.make_one(given, context)

    def write(self, outputs: StageOutputs, out: Path) -> list[Path]:
        out.mkdir(parents=True)
        (out / "half").write_text("half")
        if self.writing:
            raise self.writing
        (out / "pack").mkdir()
        (out / "pack" / "made").write_text(repr(outputs.of("only")))
        return [out / "pack"]


class OnlyConfig(SynthesisConfig):
    recipe: str = "only"


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Synthesized]:
    monkeypatch.setenv("SIMIA_PATH", str(PROMPTS))

    def run(stage: OneStage, backend: WordBackend | None = None, *, resume: bool = False, **more: Any) -> Synthesized:
        used = backend or WordBackend(respond)
        monkeypatch.setattr(session, "open_backend", lambda *_, **__: used)
        monkeypatch.setitem(RECIPES, "only", RecipeKind(OnlyConfig, lambda _: stage))
        if resume:
            return asyncio.run(resume_synthesis("r", runs=tmp_path, say=lambda _: None, **more))
        config = OnlyConfig.model_validate({"stop": {"item_tries": 1}})
        return asyncio.run(
            start_synthesis(config, tmp_path / "out", runs=tmp_path, name="r", say=lambda _: None, **more)
        )

    return run


async def fail_variously(given: StageInput, context: StageContext) -> Any:
    word = await ask_word(context, given.key, "draft")
    if given.key == "bug":
        async with context.execution() as folder:
            raise ValueError(f"odd file {folder}/x at 0x7f0123456789")
    if given.key == "group":
        async with asyncio.TaskGroup() as group:
            group.create_task(ask_word(context, "more", "more"))
            group.create_task(divide(0))
    if given.key == "set":
        return {word}
    if given.key == "note":
        context.note(odd={1, 2})
    if given.key == "user":
        raise UserError("the pack cannot be loaded")
    if given.key == "mutating":
        given.value["key"] = "changed"
    if given.key == "twice":
        await ask_word(context, given.key, "draft")
    if given.key == "deep":
        nested: list[Any] = []
        for _ in range(3000):
            nested = [nested]
        return nested
    return {"word": word, 1: (1 << 70, 2)}


async def divide(by: int) -> float:
    return 1 / by


def test_an_unexpected_exception_refuses_its_item_alone(play: Callable[..., Synthesized], tmp_path: Path) -> None:
    keys = ["good", "bug", "group", "set", "note", "user", "mutating", "twice", "deep", "last"]
    done = play(OneStage(fail_variously, keys))
    assert done.stop.kind == "complete"
    assert list(done.outputs.of("only")) == ["good", "mutating", "last"]
    refused = done.outputs.refused["only"]
    assert {each.reason for each in refused.values()} == {"internal"}
    assert refused["bug"].detail.startswith("ValueError: odd file TEMPORARY/x at 0x… (test_stage_errors.py:")
    assert "ZeroDivisionError" in refused["group"].detail
    assert "the pack cannot be loaded" in refused["user"].detail
    assert "two questions are labelled 'draft'" in refused["twice"].detail
    made = done.outputs.of("only")["good"]
    assert made["1"] == [1 << 70, 2], "as a resume reads it"
    before = (tmp_path / "out" / "pack" / "made").read_bytes()
    again = play(OneStage(fail_variously, keys), resume=True)
    assert again.outputs == done.outputs
    assert again.figures == done.figures
    assert (tmp_path / "out" / "pack" / "made").read_bytes() == before


def test_a_stage_that_cannot_list_or_a_recipe_that_cannot_write_loses_nothing(
    play: Callable[..., Synthesized], tmp_path: Path
) -> None:
    stage, backend = OneStage(fail_variously, ["good"]), WordBackend(respond)
    stage.listing = KeyError("no such table")
    with pytest.raises(UserError, match=r"stage only cannot list its inputs: KeyError: 'no such table' .*try again"):
        play(stage, backend)
    stage.listing = None
    stage.writing = TypeError("no text")
    with pytest.raises(
        UserError, match=r"recipe only cannot write its packs: TypeError: no text .*simia runs resume r"
    ):
        play(stage, backend)
    assert not (tmp_path / "out").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["r"], "no draft is left"
    stage.writing = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(
        UserError, match=r"out cannot be written: No space left on device; no reply is lost.* --out FOLDER"
    ):
        play(stage, backend, resume=True)
    stage.writing = None
    assert play(stage, backend, resume=True).packs == [tmp_path / "out" / "pack"]
    assert backend.asked == ["only/good.draft"]
    stage.keys = ["good", "good"]
    with pytest.raises(UserError, match="stage only has two inputs named 'good'"):
        play(stage, backend, resume=True)


async def run_out_of_files(given: StageInput, context: StageContext) -> Any:
    word = await ask_word(context, given.key, "draft")
    if given.key == "b" and os.environ.get("FULL"):
        raise OSError(errno.EMFILE, "Too many open files")
    return word


def test_a_failure_of_the_machine_is_no_verdict(
    play: Callable[..., Synthesized], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, backend = OneStage(run_out_of_files, ["a", "b"]), WordBackend(respond)
    monkeypatch.setenv("FULL", "1")
    done = play(stage, backend)
    assert done.stop.kind == "endpoint"
    assert "no answer for 1 item only/b: worker_lost: OSError" in done.stop.detail
    monkeypatch.delenv("FULL")
    done = play(stage, backend, resume=True)
    assert done.stop.kind == "complete"
    assert sorted(backend.asked) == ["only/a.draft", "only/b.draft"]


async def ask_plainly(given: StageInput, context: StageContext) -> Any:
    return await ask_word(context, given.key, "draft")


def test_a_question_that_the_endpoint_refuses_is_a_verdict_if_others_are_answered(
    play: Callable[..., Synthesized],
) -> None:
    faults = {"only/b.draft": [Code.BAD_REQUEST] * 3, "only/c.draft": [Code.CONTENT_FILTER] * 3}
    done = play(OneStage(ask_plainly, ["a", "b", "c"]), WordBackend(respond, faults))
    if done.stop.kind != "complete":  # b was refused before a was answered
        done = play(OneStage(ask_plainly, ["a", "b", "c"]), WordBackend(respond, faults), resume=True)
    assert {key: each.reason for key, each in done.outputs.refused["only"].items()} == {
        "b": "refused_question", "c": "refused_question",
    }  # fmt: skip


def test_a_model_that_refuses_everything_ends_the_session(play: Callable[..., Synthesized]) -> None:
    faults = {f"only/{key}.draft": [Code.BAD_REQUEST] for key in "ab"}
    backend = WordBackend(respond, faults)
    done = play(OneStage(ask_plainly, ["a", "b"]), backend)
    assert done.stop.kind == "endpoint"
    assert play(OneStage(ask_plainly, ["a", "b"]), backend, resume=True).stop.kind == "complete"


async def gather_plainly(given: StageInput, context: StageContext) -> Any:
    return await asyncio.gather(*(ask_word(context, f"{given.key}{n}", f"sample{n}") for n in range(4)))


def test_parallel_questions_are_all_sent_before_their_item_ends(play: Callable[..., Synthesized]) -> None:
    faults = {"only/a.sample0": [Code.SERVER_ERROR]}
    backend = WordBackend(respond, faults)
    done = play(OneStage(gather_plainly, ["a"]), backend)
    assert done.stop.kind == "endpoint"
    first = list(backend.asked)
    assert sorted(first) == [f"only/a.sample{n}" for n in range(4)]
    assert play(OneStage(gather_plainly, ["a"]), backend, resume=True).stop.kind == "complete"
    assert backend.asked[4:] == ["only/a.sample0"]


def test_code_that_lists_other_inputs_goes_on_with_them(play: Callable[..., Synthesized]) -> None:
    backend = WordBackend(respond)
    play(OneStage(ask_plainly, ["a", "b", "c"]), backend)
    with pytest.raises(UserError, match="contains other files than those of run r"):
        play(OneStage(ask_plainly, ["b", "d", "c"]), backend, resume=True)
    assert backend.asked[3:] == ["only/d.draft"]


def test_the_panel_shows_the_present_stage(play: Callable[..., Synthesized]) -> None:
    seen: list[dict[str, Any]] = []
    play(OneStage(fail_variously, ["good", "bug"]), on_progress=lambda progress: seen.append(progress.snapshot()))
    assert seen[-1]["stage"] == {
        "name": "only", "number": 1, "of": 1, "inputs": 2, "made": 1, "refused": {"internal": 1}, "open": 0,
    }  # fmt: skip
    progress = SynthesisProgress("r", 0, stages=4)
    progress.enter_stage("tools", 2, 9)
    progress.made, progress.waiting = 3, 2
    progress.refused["unverified"] += 1
    from rich.console import Console

    console = Console(width=90, file=open(os.devnull, "w"), record=True)  # noqa: SIM115
    console.print(render_panel(progress))
    text = console.export_text()
    assert "tools, 2 of 4" in text
    assert "3 made, 1 refused, 5 open of 9  2 made, waiting" in text
    assert tempfile.gettempdir() not in text


def test_a_place_that_cannot_be_written_is_refused_before_a_question() -> None:
    with pytest.raises(UserError, match=r"/proc/gyms cannot be made: .*; choose another --out"):
        refuse_unusable(Path("/proc/gyms"))
