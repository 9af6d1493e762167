"""From a built environment and its graph to gated tasks, with hand-written replies, good, wrong and hostile ones."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from simia.envs.play.baseline_agents import NothingAgent, ReferenceAgent
from simia.envs.play.player import play
from simia.synthesis.building.pack_writing import open_built, write_environment
from simia.synthesis.stage import StageOutputs
from simia.task import Task
from tests.synthesis.build_fixtures import load_library
from tests.synthesis.chain_fixtures import (
    BAD_CHAINS,
    WORDS,
    list_case_stages,
    list_chain_replies,
    list_chain_stages,
)
from tests.synthesis.scenario_fixtures import LIBRARY, ServingBackend, run_stages


def run_chains(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    chains: list[str],
    replies: dict[str, str],
    slow: bool = False,
    **settings: Any,
) -> tuple[StageOutputs, ServingBackend]:
    backend = ServingBackend(replies, slow=slow)
    return run_stages(monkeypatch, folder, backend, list_chain_stages(chains, **settings)), backend


def list_replies(chains: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, name in enumerate(chains):
        found |= list_chain_replies(f"library/{number}", name)
    return found


def test_chains_become_gated_tasks_in_three_modes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chains = ["lend", "return", "renew"]
    outputs, backend = run_chains(monkeypatch, tmp_path / "one", chains, list_replies(chains))
    assert not any(outputs.refused.values()), outputs.refused
    assert len(backend.asked) == 9
    tasks = [Task.model_validate(row) for row in outputs.of("gated").values()]
    assert [(task.id, task.tags) for task in tasks] == [
        ("chain-0", ["conversation"]), ("chain-1", ["goals"]), ("chain-2", ["non_conversation"]),
    ]  # fmt: skip
    assert [call.name for call in tasks[0].actions] == ["search_books", "lend_book"]
    assert [[call.name for call in goal.calls] for goal in tasks[1].goals] == [
        ["list_loans", "return_book"],
        ["pay_fine"],
    ]
    assert tasks[1].goals[1].calls[0].arguments == {"member_id": "MB-04", "amount": 1.0}
    assert [each.asked for each in tasks[0].withheld] == ["member|card"]
    assert not tasks[2].conversation
    notes = outputs.notes["chains"]
    for number, task in enumerate(tasks):
        state = task.initial["state"]
        added = sum(len(state[name]) - len(rows) for name, rows in LIBRARY["example"].items())
        assert added == notes[f"library/{number}"]["distractors"] > 0
        assert load_library().design.state.find_violations(state) == []
    rewards = asyncio.run(play_all(tmp_path / "pack", tasks))
    assert rewards == [(1.0, 0.0)] * 3

    again, _ = run_chains(monkeypatch, tmp_path / "two", chains, list_replies(chains), slow=True)
    assert orjson.dumps(again.made) == orjson.dumps(outputs.made)
    assert again.notes == outputs.notes


async def play_all(folder: Path, tasks: list[Task]) -> list[tuple[float | None, float | None]]:
    """Rewards of the reference and of doing nothing in a written pack with these tasks."""
    write_environment(folder, load_library(), tasks=tasks, user="scripted")
    environment = await open_built(folder)
    found = []
    try:
        for task in environment.pack.tasks:
            played = [
                await play(await environment.reset(task), agent) for agent in (ReferenceAgent(task), NothingAgent(task))
            ]
            rewards = [each.reward.value if each.reward else None for each in played]
            found.append((rewards[0], rewards[1]))
    finally:
        await environment.close()
    return found


def test_distractors_that_would_be_chosen_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs, _ = run_chains(monkeypatch, tmp_path, ["last"], list_replies(["last"]), distractors=10)
    (state,) = (row["initial"]["state"] for row in outputs.of("gated").values())
    added = {name: len(state[name]) - len(rows) for name, rows in LIBRARY["example"].items()}
    assert added["books"] == 0 < added["members"]
    assert outputs.of("chains")["library/0"]["calls"][2]["arguments"] == {"member_id": "MB-01", "book_id": "BK-003"}


def test_without_execution_a_chain_that_fails_reaches_the_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replies = list_chain_replies("library/0", "lend", BAD_CHAINS["state_refuses_a_call"]["replies"])
    outputs, backend = run_chains(monkeypatch, tmp_path, ["lend"], replies, execution=False)
    assert [draw.rpartition(".")[2] for draw in backend.asked] == ["code", "state", "talk"]
    assert [call["name"] for call in outputs.of("chains")["library/0"]["calls"]] == ["search_books"]
    assert outputs.refused["gated"]["library/0"].reason == "nothing_to_verify"


@pytest.mark.parametrize("chain", [pytest.param("lend", marks=pytest.mark.all), "return", "renew"])
def test_wrong_and_hostile_replies_are_shown_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chain: str
) -> None:
    cases = {name: case for name, case in BAD_CHAINS.items() if case["chain"] == chain}
    replies: dict[str, str] = {}
    for name, case in cases.items():
        replies |= list_chain_replies(f"{name}/0", chain, case["replies"])
    backend = ServingBackend(replies)
    outputs = run_stages(monkeypatch, tmp_path, backend, list_case_stages(chain, list(cases)))
    refused = {key[:-2]: refusal for each in outputs.refused.values() for key, refusal in each.items()}
    assert {name: (each.reason, cases[name]["detail"] in each.detail) for name, each in refused.items()} == {
        name: (case["reason"], True) for name, case in cases.items() if "reason" in case
    }, refused
    for name, case in cases.items():
        if "shown" in case:
            stage = "instructions" if case["shown"].split(".")[0] in WORDS.values() else "chains"
            assert case["detail"] in backend.prompts[f"{stage}/{name}/0.{case['shown']}"]
            assert f"{name}/0" in outputs.of("instructions")
