"""Dual-agent assessment: good tools pass, broken ones are found by execution or by the check agent, hostile agents accept nothing."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from simia.errors import Code
from simia.jobs import Run
from simia.llm.types import LLMFault
from simia.synthesis import session
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.recipes import RECIPES, RecipeKind
from simia.synthesis.settings import SynthesisConfig
from simia.synthesis.stage import StageContext, StageInput, StageOutputs
from simia.synthesis.stages.assessment import Assessment, AssessmentSettings, list_uncalled_tools, plan_rounds
from tests.synthesis.assessment_agents import (
    FIXTURES,
    AgentBackend,
    check_carefully,
    check_nothing,
    write_hostile_call,
    write_test_call,
)
from tests.synthesis.build_fixtures import load_library

BROKEN: dict[str, dict[str, str]] = json.loads((FIXTURES / "broken_tools.json").read_text())


def break_tool(name: str) -> BuiltEnvironment:
    built = load_library()
    tool = BROKEN[name]["tool"]
    built.tools[tool] = built.tools[tool].model_copy(update={"source": BROKEN[name]["source"]})
    return built


class AssessmentConfig(SynthesisConfig):
    recipe: str = "assess"
    assessment: AssessmentSettings = AssessmentSettings()
    """Settings under test."""


class Environments:
    name = "environments"

    def __init__(self, built: BuiltEnvironment) -> None:
        self._built = built

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        return [StageInput("library", 0)]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        return self._built.model_dump(mode="json")


class AssessRecipe:
    name = "assess"

    def __init__(self, built: BuiltEnvironment, config: AssessmentConfig) -> None:
        self._stages = [Environments(built), Assessment(config.assessment, config.seed)]

    def list_stages(self) -> Sequence[Any]:
        return self._stages

    def write(self, outputs: StageOutputs, out: Path) -> list[Path]:
        out.mkdir()
        (out / "outputs.txt").write_text(repr(outputs))
        return [out]


class Assessed:
    """One session with its agents."""

    def __init__(self, done: session.Synthesized, tester: AgentBackend, checker: AgentBackend) -> None:
        self.outputs, self.stop, self.tester, self.checker = done.outputs, done.stop, tester, checker
        self.notes: dict[str, Any] = done.outputs.notes.get("assessment", {}).get("library", {})
        refused = done.outputs.refused.get("assessment", {}).get("library")
        self.reason, self.detail = (refused.reason, refused.detail) if refused else (None, "")
        made = done.outputs.of("assessment").get("library")
        self.built = BuiltEnvironment.model_validate(made) if made else None


@pytest.fixture
def assess(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Assessed]:
    def run(
        built: BuiltEnvironment,
        write: Any = write_test_call,
        check: Any = check_carefully,
        *,
        name: str = "run",
        resume: bool = False,
        delay: Callable[[str], float] = lambda _: 0.0,
        **settings: Any,
    ) -> Assessed:
        agents = {"tester": AgentBackend("tester", write, delay), "checker": AgentBackend("checker", check, delay)}
        writer = AgentBackend("writer", write_hostile_call)
        config = AssessmentConfig.model_validate(
            {
                "roles": {role: {"kind": "openai", "model": role} for role in agents},
                "assessment": {"rounds": 28, "chains": 4, **settings},
            }
        )
        kind = RecipeKind(AssessmentConfig, lambda config: AssessRecipe(built, config))
        monkeypatch.setitem(RECIPES, "assess", kind)
        monkeypatch.setattr(session, "open_backend", lambda given, **_: agents.get(getattr(given, "model", ""), writer))
        quiet: dict[str, Any] = {"runs": tmp_path / "runs", "say": lambda _: None}
        if resume:
            done = asyncio.run(session.resume_synthesis(name, **quiet))
        else:
            done = asyncio.run(session.start_synthesis(config, tmp_path / f"{name}-out", name=name, **quiet))
        return Assessed(done, agents["tester"], agents["checker"])

    return run


def test_a_good_environment_is_kept_with_its_figures(assess: Any) -> None:
    found = assess(load_library())
    assert (found.stop.kind, found.reason) == ("complete", None)
    assert found.built == load_library()
    notes = found.notes
    assert (notes["rounds"], notes["failed"], notes["unreadable"]) == (28, 0, 0)
    assert notes["passed"] + notes["invalid"] == 28
    assert notes["score"] == 1.0
    assert 0.8 < notes["interval"][0] < notes["interval"][1] == pytest.approx(1)
    assert set(notes["by_tool"]) == set(load_library().tools)
    assert notes["controls"] == notes["controls_caught"] == 4
    assert all(draw.startswith("assessment/library.call") for draw in found.tester.asked)
    asked_of_tester = "\n".join(found.tester.prompts)
    assert "def lend_book" not in asked_of_tester, "the test agent sees no code"
    assert any("def lend_book" in prompt for prompt in found.checker.prompts)


def test_the_result_does_not_depend_on_timing(assess: Any) -> None:
    plain = assess(load_library(), name="plain")
    shuffled = assess(load_library(), name="shuffled", delay=lambda draw: zlib.crc32(draw.encode()) % 20 / 1000)
    assert shuffled.tester.asked != plain.tester.asked
    assert shuffled.outputs == plain.outputs


def test_the_state_evolves_within_a_chain(assess: Any) -> None:
    found = assess(load_library(), chains=1, rounds=14)
    states = [
        prompt.partition("The present records:")[2].partition("Earlier calls:")[0] for prompt in found.tester.prompts
    ]
    assert len(set(states)) > 2
    assert "none" in found.tester.prompts[0].partition("Earlier calls:")[2]
    assert ": success" in found.tester.prompts[-1].partition("Earlier calls:")[2]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("pay_fine changes another table", "it changes tables that its design does not name: books.BK-001.copies"),
        ("get_member writes", "it is a reading tool, and changes members"),
        ("lend_book leaves a dangling key", "afterwards the state breaks its schema: loans.book_id"),
        ("renew_loan fails", "unexpected failure: KeyError"),
        ("list_loans ends the process", "unexpected failure"),
    ],
)
def test_execution_finds_a_fault_without_the_check_agent(assess: Any, fault: str, words: str) -> None:
    found = assess(break_tool(fault), check=check_nothing, check_agent=False, tool_threshold=0)
    assert found.checker.asked == []
    failures = [each for each in found.notes["failures"] if each["call"].startswith(BROKEN[fault]["tool"])]
    assert failures
    assert len(failures) == found.notes["failed"]
    assert any(words in each["reason"] for each in failures)


@pytest.mark.all
def test_an_endless_loop_fails_its_rounds_only(assess: Any) -> None:
    found = assess(break_tool("search_books loops"), chains=1, rounds=7, tool_threshold=0)
    assert found.notes["by_tool"]["search_books"] == {"failed": 1}
    assert found.notes["failed"] == 1
    assert found.notes["failures"][0]["reason"] == "unexpected failure: no answer within 10 s"


def test_only_the_check_agent_finds_a_tool_that_changes_nothing(assess: Any) -> None:
    built = break_tool("return_book changes nothing")
    without = assess(built, name="without", check_agent=False)
    assert (without.reason, without.notes["failed"]) == (None, 0)
    found = assess(built, name="with", tool_threshold=0, threshold=0.98)
    assert found.reason == "assessment_failed"
    assert "return_book" in found.detail
    assert {each["reason"] for each in found.notes["failures"]} == {"Nothing changed."}


def test_a_weak_tool_is_dropped_and_the_rest_assessed_once_more(assess: Any) -> None:
    found = assess(break_tool("renew_loan fails"), rounds=42)
    assert found.reason is None
    assert found.notes["dropped_tools"] == ["renew_loan"]
    assert found.notes["first_assessment"]["by_tool"]["renew_loan"].get("passed", 0) == 0
    assert found.built is not None
    assert "renew_loan" not in found.built.tools
    assert found.built.dropped["renew_loan"].reason == "assessment_failed"
    assert found.built.tests
    assert all(test.call.name != "renew_loan" for test in found.built.tests)
    assert found.notes["score"] == 1.0
    assert any(draw.startswith("assessment/library.callb") for draw in found.tester.asked)


def test_a_check_agent_that_always_passes_keeps_nothing(assess: Any) -> None:
    found = assess(break_tool("return_book changes nothing"), check=check_nothing)
    assert found.reason == "checker_blind"
    assert (found.notes["controls"], found.notes["controls_caught"]) == (4, 0)


def test_a_test_agent_that_reaches_no_tool_keeps_nothing(assess: Any) -> None:
    found = assess(load_library(), write=write_hostile_call)
    assert found.reason == "assessment_untested"
    assert (found.notes["passed"], found.notes["failed"], found.notes["invalid"]) == (0, 0, 28)
    assert {"__init__", "_secret", "finish", "new_id", "state"} <= found.notes["by_tool"].keys()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I would rather not.", "it holds no JSON"),
        (json.dumps({"tool": "search_books", "arguments": {"word": "x" * 50_000}}), "50,012 characters"),
        (json.dumps({"tool": "search_books", "arguments": "word=x"}), "arguments"),
    ],
)
def test_unreadable_replies_are_counted_apart(assess: Any, text: str, words: str) -> None:
    found = assess(load_library(), write=lambda prompt, draw: text, name="all")
    assert (found.reason, found.notes["unreadable"]) == ("assessment_unreadable", 28)
    assert words in found.detail
    few = assess(
        load_library(),
        write=lambda prompt, draw: text if ".call0-1" in draw else write_test_call(prompt, draw),
        name="few",
    )
    assert (few.reason, few.notes["unreadable"], few.notes["failed"]) == (None, 1, 0)
    assert sum(".call0-1" in draw for draw in few.tester.asked) == 3


def test_an_unreadable_check_agent_is_counted_apart(assess: Any) -> None:
    found = assess(load_library(), check=lambda prompt, draw: "Yes, that is fine!")
    assert (found.reason, found.notes["passed"], found.notes["failed"]) == ("assessment_unreadable", 0, 0)
    assert "check agent" in found.detail


def test_texts_that_cannot_be_stored_cost_a_round_at_most(assess: Any) -> None:
    call = '{"tool": "search_books", "arguments": {"word": "\\ud800", "NaN": NaN}, "expect": "\\udfff"}'
    found = assess(load_library(), write=lambda prompt, draw: call if "-2" in draw else write_test_call(prompt, draw))
    assert found.reason is None
    assert found.notes["invalid"] + found.notes["unreadable"] >= 4


def test_a_resume_asks_no_question_twice(assess: Any, tmp_path: Path) -> None:
    whole = assess(load_library(), name="whole")
    answered: list[str] = []

    def refuse_the_tenth(prompt: str, draw: str) -> str:
        if len(answered) == 9:
            raise LLMFault(Code.AUTH, "the key was withdrawn", retry=False)
        answered.append(draw)
        return write_test_call(prompt, draw)

    first = assess(load_library(), name="cut", write=refuse_the_tenth)
    assert first.stop.kind == "endpoint"
    second = assess(load_library(), name="cut", resume=True)
    assert second.outputs == whole.outputs
    assert not {*answered, *first.checker.asked} & {*second.tester.asked, *second.checker.asked}
    run = Run.read_only(tmp_path / "runs", "cut")
    count = run.ledger.answered_count()
    run.close()
    assert count == len(whole.tester.asked) + len(whole.checker.asked)


def test_the_plan_is_half_negative_and_covers_the_tools() -> None:
    plan = plan_rounds("0/library/", 100, ["a", "b", "c"])
    assert sum(each.intent == "negative" for each in plan) == 50
    assert {tool: sum(each.tool == tool for each in plan) for tool in "abc"} in (
        {"a": 34, "b": 33, "c": 33}, {"a": 33, "b": 34, "c": 33}, {"a": 33, "b": 33, "c": 34},
    )  # fmt: skip
    assert plan == plan_rounds("0/library/", 100, ["a", "b", "c"])
    assert plan != plan_rounds("1/library/", 100, ["a", "b", "c"])


def test_a_tool_that_a_kept_tool_needs_is_kept() -> None:
    sources = {"book": "self.price(room)", "price": "self.rate(day)", "rate": "return 3", "list_rooms": "return []"}
    assert list_uncalled_tools(["price", "rate", "list_rooms"], sources) == ["list_rooms"]
    assert list_uncalled_tools(["book", "price", "rate"], sources) == ["book", "price", "rate"]
