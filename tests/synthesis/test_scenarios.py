"""Stages `states`, `scenarios`, `verdicts` and `gated` on a built environment, with hand-written replies."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from simia.synthesis.measured_difficulty import DifficultySettings
from simia.synthesis.stages.gated import Gated, Verdicts
from simia.synthesis.stages.scenarios import Scenarios, ScenarioSettings
from simia.synthesis.stages.states import States
from tests.synthesis.scenario_fixtures import BAD, GOOD, ServingBackend, list_good_replies, run_stages


def list_stages(number: int = 2, **settings: Any) -> list[Any]:
    scenarios = ScenarioSettings(number=number, **settings)
    gate = [Verdicts(scenarios.modes), Gated(scenarios.modes, DifficultySettings())]
    return [States(1, 5), Scenarios(scenarios, 0), *gate]


def test_good_scenarios_pass_the_gate_in_both_modes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = ServingBackend(list_good_replies())
    outputs = run_stages(monkeypatch, tmp_path, backend, list_stages())
    assert not any(outputs.refused.values()), outputs.refused
    second = outputs.of("scenarios")["library/0/1"]
    assert [call["name"] for call in second["solution"]] == ["return_book", "pay_fine", "lend_book"]
    assert second["solution"][1]["arguments"] == {"member_id": "MB-04", "amount": 1.0}
    assert [(each["item"], each["reason"]) for each in second["dropped"]] == [
        ("Member MB-04 is a standard member", "check_always_true")
    ]
    assert "owes 1.00" in backend.prompts["scenarios/library/0/1.solution2"]
    assert outputs.notes["scenarios"]["library/0/1"]["solution_repairs"] == 1
    assert list(outputs.of("gated")) == [
        f"library/0/{number}/{mode}" for number in (0, 1) for mode in ("conversation", "non_conversation")
    ]
    floors = outputs.notes["verdicts"]["library"]["floors"]
    assert floors == {name: 0.0 for name in ("nothing", "canned", "echo", "policy")} | {
        name: floors[name] for name in ("random", "all_calls")
    }
    assert floors["random"] < 1 > floors["all_calls"]


@pytest.mark.parametrize("name", BAD)
def test_a_bad_scenario_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    item, case = "scenarios/library/0/0", BAD[name]
    replies = list_good_replies() | {f"{item}.{label}": text for label, text in case["replies"].items()}
    outputs = run_stages(monkeypatch, tmp_path, ServingBackend(replies), list_stages(1))
    refusal = outputs.refused["scenarios"]["library/0/0"]
    assert refusal.reason == case["reason"], refusal
    assert case.get("detail", "") in refusal.detail
    assert not outputs.of("gated")
