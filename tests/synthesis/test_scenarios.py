"""Stages `states`, `scenarios`, `verdicts` and `gated` on a built environment, with hand-written replies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from simia.envs.play.llm_agent import LLMAgentSettings
from simia.synthesis.measured_difficulty import TaskDifficultySettings
from simia.synthesis.scenarios.scenario_tasks import change_to_first_person
from simia.synthesis.stages.gated import Gated, ScenarioTasks, Verdicts
from simia.synthesis.stages.scenarios import Scenarios, ScenarioSettings
from simia.synthesis.stages.states import States
from simia.task import Task
from tests.synthesis.scenario_fixtures import BAD, GOOD, ServingBackend, list_good_replies, run_stages

MODES = ("conversation", "non_conversation")


def list_stages(number: int = 2, **settings: Any) -> list[Any]:
    scenarios = ScenarioSettings(number=number, **settings)
    gate = [Verdicts(ScenarioTasks(scenarios.modes)), Gated(ScenarioTasks(scenarios.modes), TaskDifficultySettings())]
    return [States(1, 5), Scenarios(scenarios, 0), *gate]


def test_good_scenarios_pass_the_gate_in_both_modes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = ServingBackend(list_good_replies())
    outputs = run_stages(monkeypatch, tmp_path, backend, list_stages())
    assert not any(outputs.refused.values()), outputs.refused
    second = outputs.of("scenarios")["library/0/1"]
    assert [call["name"] for call in second["solution"]] == [
        "list_loans", "return_book", "pay_fine", "search_books", "lend_book",
    ]  # fmt: skip
    assert second["solution"][2]["arguments"] == {"member_id": "MB-04", "amount": 1.0}
    assert [(each["item"], each["reason"]) for each in second["dropped"]] == [
        ("Member MB-04 is a standard member", "check_always_true")
    ]
    assert "owes 1.00" in backend.prompts["scenarios/library/0/1.solution2"]
    assert outputs.notes["scenarios"]["library/0/1"]["solution_repairs"] == 1
    assert list(outputs.of("gated")) == [
        f"library/0/{number}/{mode}" for number in (0, 1) for mode in ("conversation", "non_conversation")
    ]
    floors = outputs.notes["verdicts"]["library"]["floors"]
    assert floors == dict.fromkeys(("nothing", "canned", "echo", "policy"), 0.0) | {
        name: floors[name] for name in ("random", "all_calls")
    }
    assert floors["random"] < 1 > floors["all_calls"]


def test_bad_scenarios_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replies = list_good_replies()
    for number, case in enumerate(BAD.values()):
        item = f"scenarios/library/0/{number}"
        own = {**GOOD["scenarios/library/0/0"], **case["replies"]}
        replies |= {f"{item}.{label}": text for label, text in own.items()}
    outputs = run_stages(monkeypatch, tmp_path, ServingBackend(replies), list_stages(len(BAD)))
    refused = outputs.refused["scenarios"]
    assert {name: refused[f"library/0/{n}"].reason for n, name in enumerate(BAD)} == {
        name: case["reason"] for name, case in BAD.items()
    }
    for number, case in enumerate(BAD.values()):
        assert case.get("detail", "") in refused[f"library/0/{number}"].detail
    assert not outputs.of("gated")


def test_without_execution_bad_scenarios_fail_the_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["solution_fails", "solution_changes_nothing", "done_at_reset"]
    replies = list_good_replies()
    for number, name in enumerate(names):
        own = {**GOOD["scenarios/library/0/0"], **BAD[name]["replies"]}
        replies |= {f"scenarios/library/0/{number}.{label}": text for label, text in own.items()}
    backend = ServingBackend(replies)
    outputs = run_stages(monkeypatch, tmp_path, backend, list_stages(3, execution=False, modes=["non_conversation"]))
    assert list(outputs.of("scenarios")) == ["library/0/0", "library/0/1", "library/0/2"]
    refused = outputs.refused["gated"]
    assert {key: refusal.reason for key, refusal in refused.items()} == {
        "library/0/0/non_conversation": "reference_fails",
        "library/0/1/non_conversation": "duplicate_task",
        "library/0/2/non_conversation": "incomplete_scores",
    }
    assert "nothing_scores: 1.0" in refused["library/0/2/non_conversation"].detail


def test_conditions_that_fail_are_shown_to_the_writer_of_the_solution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = "scenarios/library/0/0"
    paid_only = '```json\n[{"name": "pay_fine", "arguments": {"member_id": "MB-02"}}]\n```'
    good = list_good_replies()
    replies = good | {f"{item}.solution": paid_only, f"{item}.solution2": good[f"{item}.solution"]}
    backend = ServingBackend(replies)
    outputs = run_stages(monkeypatch, tmp_path, backend, list_stages(1, modes=["non_conversation"]))
    shown = backend.prompts[f"{item}.solution2"]
    assert "- Member MB-02 has two open loans" in shown
    assert "- Member MB-02 owes no fines" not in shown
    scenario = outputs.of("scenarios")["library/0/0"]
    assert [each["item"] for each in scenario["checklist"]] == [
        "Member MB-02 owes no fines",
        "Member MB-02 has an open loan of BK-003 that did not exist before",
        "Member MB-02 has two open loans",
    ]
    assert list(outputs.of("gated")) == ["library/0/0/non_conversation"]


def test_equal_replies_in_another_order_give_equal_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for slow in (False, True):
        backend = ServingBackend(list_good_replies(), slow=slow)
        found.append(run_stages(monkeypatch, tmp_path / str(slow), backend, list_stages()))
    assert orjson.dumps(found[0].made) == orjson.dumps(found[1].made)
    assert found[0].notes == found[1].notes


def test_difficulty_is_measured_by_the_named_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "gated/library/0/0/non_conversation"
    calls = "".join(
        f"<tool_call>\n{text}\n</tool_call>\n"
        for text in (
            '{"name": "pay_fine", "arguments": {"member_id": "MB-02"}}',
            '{"name": "lend_book", "arguments": {"member_id": "MB-02", "book_id": "BK-003"}}',
        )
    )
    replies = list_good_replies() | {
        f"{key}.try1/0": calls,
        f"{key}.try1/1": "All done.",
        f"{key}.try2/0": "I cannot do that.",
    }
    stages = list_stages(1)
    settings = TaskDifficultySettings(agent="small", tries=2, sampling=LLMAgentSettings(calls="hermes"))
    stages[-1] = Gated(ScenarioTasks(["conversation", "non_conversation"]), settings)
    outputs = run_stages(monkeypatch, tmp_path, ServingBackend(replies), stages)
    assert outputs.of("gated")["library/0/0/non_conversation"]["measured"] == {"small": {"n": 2, "solved": 1}}
    assert "measured" not in outputs.of("gated")["library/0/0/conversation"]


def test_tasks_say_which_mode_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = run_stages(monkeypatch, tmp_path, ServingBackend(list_good_replies()), list_stages(1))
    talk, plain = (Task.model_validate(outputs.of("gated")[f"library/0/0/{mode}"]) for mode in MODES)
    assert (talk.tags, talk.conversation, plain.tags, plain.conversation) == (
        ["conversation"],
        True,
        ["non_conversation"],
        False,
    )
    assert plain.instruction.startswith("I am Tomas Weber")
    assert "Short History" not in f"{talk.opening}{talk.instruction}{talk.knows}"
    assert [each.asked for each in talk.withheld] == ["which (book|title)|what (book|title)"]
    assert [turn.agent for turn in talk.script if turn.agent] == [
        "Could you give me the details?", "Which book would you like to borrow?", "Done.",
    ]  # fmt: skip
    assert [turn.user for turn in talk.script if turn.user][1] == (
        "I want to pay everything that I owe. Then I want a book about bridges if a copy is free, otherwise another one. "
        "I am Tomas Weber, member MB-02."
    )
    assert talk.reward == plain.reward


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("You want your loan renewed. If you cannot, you pay.", "I want my loan renewed. If I cannot, I pay."),
        ("You're the owner; the clerk gives you a refund and sends it to you.", "I'm the owner; the clerk gives me a refund and sends it to me."),
        ("Tell the desk what you were told: the key is yours, you keep it yourself.", "Tell the desk what I was told: the key is mine, I keep it myself."),
    ],
)  # fmt: skip
def test_an_instruction_becomes_the_users_own_words(told: str, said: str) -> None:
    assert change_to_first_person(told) == said
