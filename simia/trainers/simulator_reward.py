"""The reward for training a simulator by GRPO: exact changes and F1 of the observation, for every trainer that simia supports.

`simia train trl` and `verl` play the packs of prompts that `simia export --to simulator` writes, with `reward: function` and
`score_episode` (configs/simulator/grpo.yaml). `score_completions` is for TRL's own trainer on the rows themselves.
"""

from __future__ import annotations

from typing import Any

from simia.envs.rewards.reward_function import FinishedEpisode
from simia.evaluation.simulator_score import SimulatorTruth, score_reply


def score_episode(episode: FinishedEpisode) -> dict[str, Any]:
    """Score the answer to a task, which is a simulator's prompt. Raises `ValueError` for a task without a truth."""
    truth = episode.task.extra.get("truth")
    if truth is None:
        raise ValueError("the task has no truth: play the packs of prompts that simia export --to simulator writes")
    said = [message.text for message in episode.trajectory.messages if message.role == "assistant"]
    score = score_reply(said[0] if said else "", SimulatorTruth.model_validate(truth))
    parts = {"readable": score.readable, "outcome": score.outcome, "exact": score.exact, "f1": score.f1}
    return {"value": score.reward, "parts": {name: float(value) for name, value in parts.items()}}


def score_completions(completions: list[Any], truth: list[str], **_: Any) -> list[float]:
    """Score completions, which are texts or conversations. `truth`: the column `truth` of the exported rows."""
    found = []
    for completion, each in zip(completions, truth, strict=True):
        text = completion if isinstance(completion, str) else str(completion[-1]["content"])
        found.append(score_reply(text, SimulatorTruth.model_validate_json(each)).reward)
    return found
