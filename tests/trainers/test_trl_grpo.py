"""TRL's own GRPOTrainer over an executable world: whole episodes with tool calls and a user, token in, token out."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from simia.envs.opening import open_environment
from simia.errors import UserError
from simia.formats.tagged_calls import read_tagged
from simia.trainers.trl import rollout_func, task_rows
from tests.trainers.conftest import Trainer

PROBE = Path(__file__).with_name("grpo_probe.py")


@pytest.fixture(scope="module")
def told(trl: Trainer, taught_model: Path, lamps: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What three steps of GRPO were made of."""
    out = tmp_path_factory.mktemp("grpo") / "out.json"
    trl.run(PROBE, taught_model, lamps, out)
    return dict(json.loads(out.read_text()))


def test_three_steps_move_the_policy_by_the_environments_rewards(told: dict[str, Any]) -> None:
    assert told["steps"] == 3 == len(told["batches"])
    assert all(math.isfinite(loss) for loss in told["losses"])
    assert told["finite"]
    assert told["changed"][0] == told["changed"][1]
    assert any(any(advantage != 0 for advantage in batch["advantages"]) for batch in told["batches"])
    for rows, episodes, mean in zip(told["rolled"], told["episodes"], told["logged"], strict=True):
        earned = [episode["reward"].get("value") for episode in episodes]
        assert rows["reward"] == earned
        known = [value for value in earned if value is not None]
        assert mean == pytest.approx(sum(known) / len(known), abs=1e-3)
        assert rows["task_id"] == [episode["task_id"] for episode in episodes]
        assert len(rows["task_id"]) == 8
        assert len(set(rows["task_id"])) == 2
    values = {value for rows in told["rolled"] for value in rows["reward"] if value is not None}
    assert len(values) > 1


def test_what_is_trained_is_what_was_sampled(told: dict[str, Any]) -> None:
    assert told["gap"] < 1e-3
    turns = 0
    for batch, rows, sampled, episodes in zip(
        told["batches"], told["rolled"], told["sampled"], told["episodes"], strict=True
    ):
        drawn = [(tuple(context), ids) for context, ids in sampled]
        for i, episode in enumerate(episodes):
            prompt, ids, mask = rows["prompt_ids"][i], rows["completion_ids"][i], rows["env_mask"][i]
            assert len(ids) == len(mask) == len(rows["logprobs"][i])
            if episode["end"]["kind"] == "aborted":
                continue
            assert batch["prompts"][i] == prompt
            assert batch["completions"][i] == ids
            assert batch["trained"][i] == [[at, ids[at]] for at, m in enumerate(mask) if m]
            for start, end in spans(mask):
                context, said = tuple(prompt + ids[:start]), ids[start:end]
                cut = end == len(ids) and episode["end"]["code"] == "max_tokens"
                assert any(c == context and (d[: len(said)] if cut else d) == said for c, d in drawn)
                turns += 1
            assert all(lp == 0.0 for lp, m in zip(rows["logprobs"][i], mask, strict=True) if not m)
            assert any(lp < 0.0 for lp in rows["logprobs"][i])
    assert turns > 3 * 8


def test_the_tokens_are_the_conversation(told: dict[str, Any]) -> None:
    """The policy's spans read as the episode's calls and words, what lies between holds its results and the user's words."""
    several = 0
    for episodes, policy, between in zip(told["episodes"], told["policy"], told["between"], strict=True):
        for episode, said, heard in zip(episodes, policy, between, strict=True):
            if episode["end"]["kind"] != "terminated":
                continue
            messages = episode["messages"]
            own = [m for m in messages if m["role"] == "assistant"]
            spoken = [read_tagged(text) for text in said]
            assert len(spoken) == len(own)
            for (content, calls), message in zip(spoken, own, strict=True):
                assert (content or "") == (message.get("content") or "")
                assert [(c.name, c.arguments) for c in calls] == [
                    (c["name"], c.get("arguments")) for c in message.get("calls", [])
                ]
            answered = [m["content"] for m in messages[1:] if m["role"] in ("tool", "user")]
            assert heard.count("<|im_start|>assistant\n") == len(own) - 1, "the policy's own words stand there once"
            at = 0
            for text in answered:
                at = heard.index(text, at) + len(text)
            several += len(answered) > 1
    assert several


def test_an_aborted_episode_trains_nothing(told: dict[str, Any]) -> None:
    found = []
    for batch, rows, episodes in zip(told["batches"], told["rolled"], told["episodes"], strict=True):
        for i, episode in enumerate(episodes):
            if episode["end"]["kind"] == "aborted":
                assert rows["reward"][i] is None
                assert set(rows["env_mask"][i]) == {0}
                assert batch["trained"][i] == []
                assert batch["advantages"][i] == 0
                found.append(len(rows["completion_ids"][i]))
    assert sorted(n > 1 for n in found) == [False, True], "one was lost before the policy spoke, one after"


async def test_a_users_mistakes_are_said_in_a_line(lamps: Path) -> None:
    opened = await open_environment(str(lamps), user="scripted")
    with pytest.raises(UserError, match="no task of split 'dev'; its splits: train"):
        task_rows(opened, "dev")
    rows = task_rows(opened)
    assert rows[0] == {"prompt": "lamps-0"}
    with pytest.raises(UserError, match=r"at_once must be .*, got 0"):
        rollout_func(opened, at_once=0)
    inside = SimpleNamespace(use_vllm=True, vllm_mode="colocate")
    with pytest.raises(UserError, match=r"grpo\.use_vllm=false"):
        rollout_func(opened)([rows[0]["prompt"]], SimpleNamespace(use_vllm=True, args=inside))


def spans(mask: list[int]) -> list[tuple[int, int]]:
    """Where runs of 1 begin and end. Two turns of the policy never touch: its header stands between."""
    edges = [at for at, (a, b) in enumerate(pairwise([0, *mask, 0])) if a != b]
    return list(zip(edges[::2], edges[1::2], strict=True))
