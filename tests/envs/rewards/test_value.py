"""A number of the final state as a part of the reward."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from simia.envs.rewards import score_trajectory
from simia.envs.rewards.environment_value import list_value_paths, pick_values
from simia.errors import Code
from simia.reward_spec import AnswerSpec, RewardSpec, StateSpec, ValueSpec
from simia.trajectory import End, Message, Trajectory

STATE = {"total_reward": -3.5, "game": {"scores": [1, 7], "name": "x", "won": True, "none": None}, "points": 0}


def judged(state: Any, **spec: Any) -> tuple[float | None, str]:
    part = ValueSpec(**spec)
    evidence = {"changes": [], "values": pick_values(state, list_value_paths([part]))}
    reward = score_trajectory(Trajectory(evidence=evidence), RewardSpec(parts=[part]))
    assert (reward.value is None) == (reward.error is Code.UNSCORED)
    return reward.value, reward.rationale


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        ({"path": "points"}, 0.0),
        ({"path": "points", "low": -10, "high": 10}, 0.5),
        ({"path": "total_reward"}, 0.0),
        ({"path": "total_reward", "low": -7, "high": 0}, 0.5),
        ({"path": "total_reward", "low": -100, "high": -10}, 1.0),
        ({"path": "game.scores.1", "high": 14}, 0.5),
        ({"path": "game.scores.1", "high": 1e-300}, 1.0),
    ],
)
def test_the_number_is_scaled_and_clipped(spec: dict[str, Any], value: float) -> None:
    assert judged(STATE, **spec)[0] == value


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("score", "the final state has no score"),
        ("game.scores.2", "has no game.scores.2"),
        ("game.scores.-1", "has no game.scores.-1"),
        ("game.name.first", "has no game.name.first"),
        ("game.name", "game.name is no number in the final state, but a str"),
        ("game.won", "but a bool"),
        ("game.none", "but a NoneType"),
        ("game", "but a dict"),
    ],
)
def test_what_is_missing_or_no_number_is_not_judged(path: str, words: str) -> None:
    value, reason = judged(STATE, path=path)
    assert value is None
    assert words in reason


@pytest.mark.parametrize("evidence", [None, {"changes": []}, {"values": [1]}])
def test_without_evidence_nothing_is_judged(evidence: dict[str, Any] | None) -> None:
    reward = score_trajectory(Trajectory(evidence=evidence), RewardSpec(parts=[ValueSpec(path="points")]))
    assert reward.value is None
    assert reward.error is Code.UNSCORED


def test_it_is_one_part_among_others_and_knows_the_ends_of_episodes() -> None:
    spec = RewardSpec(parts=[ValueSpec(path="points", high=4), AnswerSpec(expect=["done"])], combine="mean")
    said = [Message(role="assistant", content="Done.")]
    played = Trajectory(evidence={"values": {"points": 2}}, messages=said)
    assert score_trajectory(played, spec).parts == {"value": 0.5, "answer": 1.0}
    assert score_trajectory(played, spec).value == 0.75
    cut = played.model_copy(update={"end": End(kind="truncated", code=Code.MAX_TURNS)})
    assert score_trajectory(cut, spec).value == 0.75
    aborted = played.model_copy(update={"end": End(kind="aborted", code=Code.WORKER_LOST)})
    assert score_trajectory(aborted, spec).value is None


def test_numbers_beyond_all_sense_are_not_judged_and_raise_nothing() -> None:
    assert judged({"n": 10**400}, path="n")[0] is None
    assert judged({"n": 10**60}, path="n") == (1.0, "value: n is 1e+60, of 0 to 1")


def test_each_path_is_asked_for_once() -> None:
    parts = [ValueSpec(path="a"), StateSpec(), ValueSpec(path="b.c"), ValueSpec(path="a", high=2)]
    assert list_value_paths(parts) == ["a", "b.c"]


@pytest.mark.parametrize("wrong", [{"path": ""}, {"path": "a", "low": 1}, {"path": "a", "high": float("nan")}, {}])
def test_a_part_that_cannot_be_meant_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ValueSpec(**wrong)
