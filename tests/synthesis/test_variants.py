"""Stage `variants` on the built library, with hand-written replies: what is made by rule, what is asked for, and what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from simia.authoring.gate_agents import play_task
from simia.authoring.task_variants import MISSING_FUNCTION, MISSING_PARAMETER, VARIANT_KINDS, VariantFault, VariantKind
from simia.authoring.variant_checks import GuessingAgent, HastyAgent
from simia.envs.play.agent import Agent
from simia.envs.play.baseline_agents import NothingAgent, ReferenceAgent
from simia.envs.users import ScriptedUser
from simia.synthesis.building.pack_writing import open_built, write_environment
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.measured_difficulty import TaskDifficultySettings
from simia.synthesis.reasons import Reason
from simia.synthesis.recipes.envscaler import EnvScalerConfig, EnvScalerRecipe
from simia.synthesis.scenarios.scenario import Mode
from simia.synthesis.stage import StageOutputs
from simia.synthesis.stages.gated import Gated, ScenarioTasks, Verdicts
from simia.synthesis.stages.scenarios import Scenarios, ScenarioSettings
from simia.synthesis.stages.states import States
from simia.synthesis.stages.variants import Variants, name_variant_fault
from simia.task import Task
from tests.synthesis.scenario_fixtures import FIXTURES, GOOD, LIBRARY, ServingBackend, list_good_replies, run_stages

CASES: dict[str, dict[str, str]] = yaml.safe_load((FIXTURES / "variants" / "replies.yaml").read_text())
MODES: tuple[Mode, ...] = ("conversation", "non_conversation")
KEY = "library/0/0"


def make_variants(
    case: str, folder: Path, monkeypatch: pytest.MonkeyPatch, kinds: tuple[VariantKind, ...] = VARIANT_KINDS
) -> tuple[StageOutputs, ServingBackend]:
    """Run the stages on one scenario, with the replies of a case in place of the good ones."""
    replies = list_good_replies() | {
        f"scenarios/{KEY}.{label}": text for label, text in GOOD[f"scenarios/{KEY}"].items()
    }
    for label, text in CASES.get(case, {}).items():
        item = f"variants/{KEY}/{MISSING_PARAMETER}" if label.startswith("withhold") else f"scenarios/{KEY}"
        replies[f"{item}.{label}"] = text
    backend = ServingBackend(replies)
    stages: list[Any] = [
        States(1, 5),
        Scenarios(ScenarioSettings(number=1), 0),
        Verdicts(ScenarioTasks(MODES)),
        Gated(ScenarioTasks(MODES), TaskDifficultySettings()),
        Variants(kinds),
    ]
    return run_stages(monkeypatch, folder, backend, stages), backend


def play(folder: Path, task: Task, agents: list[Agent]) -> list[float]:
    """The rewards of agents in a task of the library."""

    async def go() -> list[float]:
        write_environment(folder, BuiltEnvironment.model_validate(LIBRARY), tasks=[task], user="scripted")
        environment = await open_built(folder)
        try:
            played = [await play_task(environment, task, agent, ScriptedUser(task)) for agent in agents]
        finally:
            await environment.close()
        return [each.reward.value or 0.0 for each in played if each.reward]

    return asyncio.run(go())


def test_agents_that_do_not_ask_or_wait_do_not_solve_variants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs, backend = make_variants("", tmp_path, monkeypatch)
    assert not any(outputs.refused.values()), outputs.refused
    assert not [draw for draw in backend.asked if draw.startswith("variants/")], "a rule words these"
    made = {key.rpartition("/")[2]: Task.model_validate(row) for key, row in outputs.of("variants").items()}
    ask, wait = made[MISSING_PARAMETER], made[MISSING_FUNCTION]
    original = Task.model_validate(outputs.of("gated")[f"{KEY}/non_conversation"])
    for task in (ask, wait):
        assert task.tags[0] == "conversation"
        assert task.conversation
        assert task.extra["variant_of"] == original.id
        assert task.profile == "A teacher who borrows for his class and writes in full sentences."
    assert "MB-02" not in f"{ask.opening}{ask.instruction}{ask.profile}"
    assert [each.tools for each in wait.reveals] == [["lend_book"]]
    for name, task, fault in (("ask", ask, "MB-01"), ("wait", wait, "MB-02")):
        calls = [call.model_copy(update={"arguments": {**call.arguments, "member_id": fault}}) for call in task.actions]
        unasked = original.model_copy(update={"reference": calls})
        agents: list[Agent] = [ReferenceAgent(task), GuessingAgent(unasked), HastyAgent(calls), NothingAgent(task)]
        solved, *others = play(tmp_path / name, task, agents)
        assert solved == 1
        assert max(others) < 1, name
    assert outputs.notes["variants"][f"{KEY}/{MISSING_PARAMETER}"]["by"] == "rule"


def test_a_model_words_what_no_rule_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs, backend = make_variants("named_twice", tmp_path, monkeypatch, (MISSING_PARAMETER,))
    item = f"variants/{KEY}/{MISSING_PARAMETER}"
    assert [draw for draw in backend.asked if draw.startswith("variants/")] == [
        f"{item}.withhold.MB-02", f"{item}.withhold.MB-02.again1",
    ]  # fmt: skip
    assert "the opening names MB-02" in backend.prompts[f"{item}.withhold.MB-02.again1"]
    variant = Task.model_validate(outputs.of("variants")[f"{KEY}/{MISSING_PARAMETER}"])
    assert [turn.user for turn in variant.script if turn.user] == [
        "I am Tomas Weber. Please take my payment for everything that I owe. Then lend me 'Tides and Moons'.",
        "My member number is MB-02.",
    ]
    assert outputs.notes["variants"][f"{KEY}/{MISSING_PARAMETER}"]["by"] == "question"


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("matches_any_text", Reason.UNREADABLE_REPLY),
        ("value_not_needed", Reason.SOLVED_WITHOUT_ASKING),
        ("no_value_named", Reason.NO_VALUE),
    ],
)
def test_variants_are_refused_with_a_reason(
    case: str, reason: Reason, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs, _ = make_variants(case, tmp_path, monkeypatch, (MISSING_PARAMETER,))
    assert {key: refusal.reason for key, refusal in outputs.refused["variants"].items()} == {
        f"{KEY}/{MISSING_PARAMETER}": reason
    }
    assert len(outputs.of("gated")) == 2, "the tasks themselves are kept"


def test_without_kinds_or_conversations_there_are_no_variants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs, _ = make_variants("", tmp_path, monkeypatch, ())
    assert "variants" not in outputs.made
    given = {"source": "library", "scenarios": {"modes": ["non_conversation"]}}
    stage = EnvScalerRecipe(EnvScalerConfig.model_validate(given)).list_stages()[-1]
    assert stage.name == "variants"
    assert not stage.list_inputs(outputs)


def test_every_fault_of_a_variant_is_a_reason() -> None:
    assert {name_variant_fault(fault) for fault in VariantFault if fault is not VariantFault.GATE} <= set(Reason)
