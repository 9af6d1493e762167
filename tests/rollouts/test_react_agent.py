"""An agent with `calls: react` plays an episode: thoughts and actions as text, observations in return, and an answer that the user reads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simia.config import load_config
from simia.jobs import Run
from simia.rollouts.session import start_rollout
from simia.rollouts.settings import RolloutConfig
from simia.trajectory import Trajectory
from tests.fake_endpoint import FakeEndpoint
from tests.packs.small import small

TURNS = (
    'Thought: I look it up.\nAction: {"name": "list_todos", "arguments": {"open_only": true}}',
    "Thought: It is T-1001.\nAction: finish_todo(T-1001)",
    'Thought: As JSON, then.\nAction: {"name": "finish_todo", "arguments": {"todo_id": "T-1001"}}\nObservation: {"done": false}\nAnswer: No.',
    "Thought: It is done.\nAnswer: I have marked 'Water the plants' as done.",
)


def respond(body: dict[str, Any]) -> str:
    """The turn after those that the prompt shows."""
    return TURNS[sum(message["role"] == "assistant" for message in body["messages"])]


@pytest.fixture
def model() -> Iterator[FakeEndpoint]:
    endpoint = FakeEndpoint("--respond", "tests.rollouts.test_react_agent:respond")
    yield endpoint
    endpoint.stop()


async def test_thoughts_actions_and_an_answer_solve_a_task(model: FakeEndpoint, tmp_path: Path) -> None:
    small(tmp_path / "todos")
    words = ["agent=llm", "sampling.calls=react", "llm.kind=openai", "llm.model=m", f"llm.base_url={model.url}"]
    config = load_config(RolloutConfig, "rollout/default", words, pack=str(tmp_path / "todos"), limit=1)
    done = await start_rollout(config, runs=tmp_path, name="r", say=lambda _: None)
    assert done.complete, done.why
    with contextlib.closing(Run.read_only(tmp_path, "r")) as run:
        (item,) = run.ledger.items()
        body = run.ledger.result(item.id)
    assert body is not None
    played = Trajectory.from_row(body["trajectory"])
    assert played.reward is not None
    assert played.reward.value == 1.0
    agent = [message for message in played.messages if message.role == "assistant"]
    assert [[call.name for call in message.calls] for message in agent][0::2] == [["list_todos"], ["finish_todo"]]
    assert agent[0].text == "I look it up.", "the thought before an action stays in the conversation"
    assert (agent[3].text, agent[3].reasoning) == ("I have marked 'Water the plants' as done.", "It is done.")
    results = [message for message in played.messages if message.role == "tool"]
    assert [message.error is None for message in results] == [True, False, True], (
        "an unreadable action is a failed call"
    )

    asked = [request["body"] for request in model.requests]
    assert len(asked) == len(TURNS)
    assert all("tools" not in body and body["stop"] == ["\nObservation:"] for body in asked)
    system = asked[0]["messages"][0]["content"]
    assert '{"name":"finish_todo"' in system.replace('": "', '":"')
    assert "Action: {" in system
    shown = asked[-1]["messages"]
    assert [message["role"] for message in shown] == ["system", "user", *["assistant", "user"] * 3]
    assert [message["content"] for message in shown[3::2]] == [f"Observation: {message.text}" for message in results]
    assert shown[2]["content"].startswith("Thought: I look it up.\nAction: {")
    assert "Observation" not in shown[6]["content"], "what the model made up after its action is left out"
