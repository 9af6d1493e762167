"""A domain becomes a tested environment, through the job; environments are assembled, and what fails there is repaired or dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from simia.llm.types import Reply, Request
from simia.synthesis import session
from simia.synthesis.building.pack_writing import write_environment
from simia.synthesis.context import ItemContext
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.reasons import Reason
from simia.synthesis.recipes import RECIPES, RecipeKind
from simia.synthesis.reply_reading import dump
from simia.synthesis.settings import SamplingSettings, SynthesisConfig
from simia.synthesis.stage import Stage, StageOutputs
from simia.synthesis.stages.design import DesignStage
from simia.synthesis.stages.environments import EnvironmentStage, check_environment
from simia.synthesis.stages.examples import ExampleStage
from tests.synthesis.build_fixtures import (
    LIBRARY,
    SETTINGS,
    FixtureEngine,
    list_building_stages,
    list_library_replies,
    load_library,
    read_reply,
    run_stages,
)


class LibraryRecipe:
    """The building stages alone."""

    name = "library"

    def list_stages(self) -> Sequence[Stage]:
        return list_building_stages(SETTINGS, [LIBRARY])

    def write(self, outputs: StageOutputs, out: Path) -> list[Path]:
        for name, value in outputs.of("environments").items():
            write_environment(out / name, BuiltEnvironment.model_validate(value))
        return [out / name for name in outputs.of("environments")]


class LibraryBackend:
    """Serves the replies by sample; later questions of a stage are answered first."""

    alias, model, structured = "library", "library", False

    def __init__(self) -> None:
        self.replies = list_library_replies()

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def complete(self, request: Request, *, draw: str) -> Reply:
        await asyncio.sleep(0.01 * (len(self.replies) - list(self.replies).index(draw)))
        return Reply(text=self.replies[draw])


def test_a_domain_becomes_a_tested_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = LibraryBackend()
    monkeypatch.setitem(RECIPES, "library", RecipeKind(SynthesisConfig, lambda _: LibraryRecipe()))
    monkeypatch.setattr(session, "open_backend", lambda *_, **__: backend)
    config = SynthesisConfig(recipe="library")
    start = session.start_synthesis(config, tmp_path / "out", runs=tmp_path / "runs", name="a", say=lambda _: None)
    done = asyncio.run(start)
    assert done.stop.kind == "complete"
    assert not done.outputs.refused
    assert BuiltEnvironment.model_validate(done.outputs.of("environments")["library"]) == load_library()
    outcomes = [done.outputs.notes["tools"][f"library/{name}"]["outcomes"] for name in load_library().tools]
    assert sum(each.get("success", 0) for each in outcomes) == 14
    assert sum(each.get("refusal", 0) for each in outcomes) == 12
    assert not any("failure" in each for each in outcomes)
    figures = done.outputs.notes["environments"]["library"]
    assert figures["random_calls"] == 200
    assert figures["random_successes"] > 20
    write_environment(tmp_path / "expected", load_library())
    for path in sorted((tmp_path / "expected").iterdir()):
        assert (tmp_path / "out" / "library" / path.name).read_bytes() == path.read_bytes()


def assemble_library(changed: dict[str, str], replies: dict[str, str] | None = None, **settings: Any) -> StageOutputs:
    """Run the last stage over the library, in which some tools have another source."""
    built = load_library()
    tools = {}
    for name, tool in built.tools.items():
        tests = [dump(test) for test in built.tests if test.call.name == name]
        new = tool.model_copy(update={"source": changed.get(name, tool.source)})
        tools[f"library/{name}"] = {"tool": dump(new), "tests": tests}
    outputs = StageOutputs(
        made={"design": {"library": dump(built.design)}, "examples": {"library": built.example}, "tools": tools}
    )
    stage = EnvironmentStage(SETTINGS.model_copy(update=settings))
    return run_stages(FixtureEngine(replies or {}), [stage], outputs)


def read_method(name: str) -> str:
    return read_reply(name).removeprefix("```python\n").rpartition("```")[0]


def test_a_dangling_key_drops_the_tool_or_is_repaired() -> None:
    changed = {"lend_book": read_method("wrong/lends_unknown_books")}
    label = "environments/library.repair-lend_book"
    repaired = assemble_library(changed, {label: read_reply("library/tool-lend_book")})
    built = BuiltEnvironment.model_validate(repaired.of("environments")["library"])
    assert built.tools["lend_book"].repairs == 1
    assert repaired.notes["environments"]["library"]["repaired"] == ["lend_book"]
    useless = assemble_library(changed, {label: read_reply("library/tool-pay_fine")})
    built = BuiltEnvironment.model_validate(useless.of("environments")["library"])
    assert "lend_book" not in built.tools
    assert built.dropped["lend_book"].reason == Reason.DANGLING_KEY
    assert "which is not in books" in built.dropped["lend_book"].detail
    assert not any(test.call.name == "lend_book" for test in built.tests)
    assert useless.notes["environments"]["library"]["dropped"] == {"lend_book": "dangling_key"}
    assert "dropped" not in repaired.notes["environments"]["library"]


def test_too_few_tools_are_refused() -> None:
    wrong = {"get_member": read_method("wrong/no_refusal")}
    label = "environments/library.repair-get_member"
    outputs = assemble_library(wrong, {label: read_reply("wrong/counts_all_loans")}, kept=7, random_calls=0)
    refusal = outputs.refused["environments"]["library"]
    assert refusal.reason == Reason.TOO_FEW_TOOLS
    assert refusal.detail == "6 of 7 tools, 7 are needed"


def test_what_is_accepted_without_execution_fails_when_executed() -> None:
    wrong = {"get_member": read_method("wrong/no_refusal"), "lend_book": read_method("wrong/lends_unknown_books")}
    outputs = assemble_library(wrong, execution=False)
    built = BuiltEnvironment.model_validate(outputs.of("environments")["library"])
    assert len(built.tools) == 7
    context = ItemContext("check", {}, SamplingSettings(), asyncio.Semaphore(1))
    faults, _ = asyncio.run(check_environment(built, context, 0))
    assert {name: reason for name, (reason, _) in faults.items()} == {"get_member": Reason.UNEXPECTED_FAILURE}


@pytest.mark.parametrize(
    ("sample", "reply", "reason", "words"),
    [
        ("design/library.tables", "tables_unknown_reference", Reason.INVALID_DESIGN, "which is no table"),
        ("design/library.operations", "operations_unknown_table", Reason.INVALID_DESIGN, "no table 'ledgers'"),
        ("examples/library.state", "state_dangles", Reason.INVALID_STATE, "'BK-777', which is not in books"),
    ],
)
def test_designs_and_states_that_contradict_themselves(sample: str, reply: str, reason: Reason, words: str) -> None:
    stage, _, label = sample.partition("/")
    stages: list[Stage] = [DesignStage(SETTINGS, [LIBRARY]), ExampleStage()]
    replies = list_library_replies() | {sample: read_reply(f"wrong/{reply}")}
    refusal = run_stages(FixtureEngine(replies), stages).refused[stage]["library"]
    assert refusal.reason == reason
    assert words in refusal.detail
    again = replies | {f"{sample}.again1": list_library_replies()[sample]}
    engine = FixtureEngine(again)
    outputs = run_stages(engine, stages)
    assert not outputs.refused
    assert words in engine.asked[f"{sample}.again1"].messages[-1]["content"]
    assert label.startswith("library.")


def test_domains_get_names_of_their_own() -> None:
    words = [{"domain": "Hotel front desk"}, {"domain": "hotel  front-desk"}, {"domain": "3D printing"}]
    stage = DesignStage(SETTINGS, words, source="themes")
    theme = {"name": "clinic", "domain": "health", "title": "Clinic desk", "description": "Visits.", "usefulness": 8}
    outputs = StageOutputs(made={"themes": {"clinic": theme}})
    inputs = stage.list_inputs(outputs)
    assert inputs[-1].value == {"domain": "Clinic desk (health)", "description": "Visits."}
    assert [given.key for given in inputs] == [
        "hotel_front_desk",
        "hotel_front_desk_2",
        "environment_3d_printing",
        "clinic",
    ]
