"""One reward function in every trainer: the same number everywhere, no number where it fails, and a start that finds its file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from simia import event_loop
from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.envs.text_episode import share_environment
from simia.errors import Code, UserError
from simia.pack import Pack
from simia.trainers.launch import check_stage
from simia.trainers.ragen.env import SimiaEnv
from simia.trainers.ragen.settings import SimiaEnvConfig
from simia.trainers.ranks import log_aborted
from simia.trainers.tokens import ChatText
from simia.trainers.trl.rollout import make_columns
from simia.trainers.verl.play import PlayedEpisode, PolicyPlayer
from simia.trainers.verl.settings import PlaySettings, VerlSettings
from simia.trainers.verl.start import launch
from simia.trajectory import Message
from tests.trainers.conftest import Trainer
from tests.trainers.ragen_standin import call
from tests.trainers.test_verl import END, RIGHT, TOKENIZER, Script, config

assert config  # a fixture

FUNCTIONS = """
def brief(episode):
    turns = sum(message.role == "assistant" for message in episode.trajectory.messages)
    return episode.reward.value - 0.125 * (turns - 2)

def broken(episode):
    raise KeyError("no such order")
"""
BRIEF = 1 - 0.125 * 2  # solved, in four turns


@pytest.fixture
def stage(lamps: Path, tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "my_rewards.py"
    path.write_text(FUNCTIONS, encoding="utf-8")
    return {"pack": str(lamps), "user": "scripted", "tasks": ["lamps-0"], "reward_function": f"{path}:brief"}


async def play(environment: Environment, **settings: Any) -> PlayedEpisode:
    player = PolicyPlayer(environment, TOKENIZER, ChatText(TOKENIZER), PlaySettings(**settings), 4000, 4000)
    return await player.play(Script(*RIGHT), "lamps-0", seed=0, group="g", name="n")


async def test_verl_and_trl_train_on_it(stage: dict[str, Any]) -> None:
    async with await open_environment(stage, say=lambda _: None) as environment:
        played = await play(environment)
        assert (played.reward, played.row.outcome) == (BRIEF, BRIEF)
        assert make_columns([played.row], END)["reward"] == [BRIEF]


def test_ragen_and_interfaces_of_text_get_it_too(stage: dict[str, Any]) -> None:
    env = SimiaEnv(SimiaEnvConfig(stage=stage, train=None))
    said = [call("kitchen"), "Done.", call("hall", on=False), "Done."]
    lease = share_environment(stage)
    session = lease.session()
    try:
        env.reset(seed=0)
        event_loop.run(session.reset("lamps-0"))
        for text in said:
            *_, reward, done, _ = env.step(text)
            heard = event_loop.run(session.act(text))
        assert (reward, done, heard.value) == (BRIEF, True, BRIEF)
    finally:
        env.close()
        event_loop.run(session.leave())
        lease.close()


async def test_where_it_fails_nothing_is_trained(stage: dict[str, Any]) -> None:
    stage["reward_function"] = stage["reward_function"].replace("brief", "broken")
    async with await open_environment(stage, say=lambda _: None) as environment:
        played = await play(environment, resample=0)
        assert (played.reward, played.end) == (None, "unscored")
        assert make_columns([played.row], END)["env_mask"] == [[0] * len(played.row.mask)]
        with pytest.raises(
            UserError, match=r"without a reward, mostly: reward_function .*:broken: KeyError: 'no such order'"
        ):
            log_aborted([played.row.episode], 1, learns=True)


def test_where_it_fails_ragen_gets_no_number(stage: dict[str, Any]) -> None:
    stage["reward_function"] = stage["reward_function"].replace("brief", "broken")
    env = SimiaEnv(SimiaEnvConfig(stage=stage, train=None))
    try:
        env.reset(seed=0)
        for text in (call("kitchen"), "Done.", call("hall", on=False), "Done."):
            *_, reward, done, info = env.step(text)
        assert done
        assert math.isnan(reward)
        assert (info["unscored"], info["success"]) == (1.0, 0.0)
    finally:
        env.close()


async def test_a_coroutine_that_is_given_up_leaves_no_verdict(stage: dict[str, Any], tmp_path: Path) -> None:
    slow = tmp_path / "slow.py"
    slow.write_text("import asyncio\n\nasync def slow(episode):\n    await asyncio.sleep(60)\n", encoding="utf-8")
    stage["reward_function"] = f"{slow}:slow"
    async with await open_environment(stage, say=lambda _: None) as environment:
        played = await play(environment, world_seconds=1.0, resample=0)
        assert played.reward is None


def test_a_start_writes_the_files_whole_path(config: Path, stage: dict[str, Any], tmp_path: Path) -> None:
    found = launch(config, {"simia.stage.reward_function": "my_rewards.py:brief"})
    assert found.prepare is not None
    found.prepare()
    written = next(tmp_path.glob("checkpoints/**/simia.yaml"))
    settings = VerlSettings.model_validate(yaml.safe_load(written.read_text()))
    assert settings.stage.reward_function == f"{tmp_path}/my_rewards.py:brief"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"reward_function": "mine.py:brief"}, "reward_function mine.py:brief: there is no file"),
        ({"reward_function": "my_rewards.py:bried"}, "has no function 'bried'"),
        ({"reward": "function"}, "reward is function, but reward_function is not set"),
        ({"step_rewards": {"by": "value"}}, "no task has a reward part of kind value"),
    ],
)
def test_a_start_refuses_what_could_not_score(
    config: Path, stage: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        launch(config, {f"simia.stage.{name}": value for name, value in changes.items()})


def test_a_check_does_not_run_it(stage: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "of_the_trainers.py"
    path.write_text("import torch_of_the_trainer\n\ndef mine(episode): ...\n", encoding="utf-8")
    checked = SimiaEnvConfig(stage={**stage, "reward_function": f"{path}:mine"}).stage
    check_stage(checked, Pack.load(stage["pack"]))
    with pytest.raises(UserError, match="No module named 'torch_of_the_trainer'"):
        event_loop.run(open_environment(checked))


async def test_a_stopped_episode_is_scored_by_it_and_an_aborted_one_is_not(stage: dict[str, Any]) -> None:
    async with await open_environment(stage, say=lambda _: None) as environment:
        episode = await environment.reset("lamps-0")
        await episode.step(Message(role="assistant", content="Done."))
        step = await episode.stop(Code.MAX_TOKENS)
        assert step.reward is not None
        assert step.reward.value == 0.125  # nothing is solved, in one turn
        aborted = await (await environment.reset("lamps-0")).stop(Code.AGENT_FAILED, aborted=True)
        assert aborted.reward is not None
        assert (aborted.reward.value, aborted.reward.error) == (None, Code.AGENT_FAILED)


def test_trls_own_trainer_trains_on_it(trl: Trainer, taught_model: Path, errands: Path, tmp_path: Path) -> None:
    """`simia train trl` for a step: what TRL logs is what the function gave, with the rewards of single turns."""
    seen = tmp_path / "seen.jsonl"
    path = tmp_path / "my_rewards.py"
    path.write_text(
        "import json\n\n\ndef noted(episode):\n"
        f"    value = 0.25 + 0.5 * episode.reward.value\n    with open({str(seen)!r}, 'a') as file:\n"
        "        file.write(json.dumps([value, episode.reward.steps, sorted(episode.state)]) + '\\n')\n    return value\n"
    )
    grpo = {
        "output_dir": str(tmp_path / "out"), "max_steps": 1, "per_device_train_batch_size": 8, "num_generations": 4,
        "max_completion_length": 200, "logging_steps": 1, "save_steps": 1, "bf16": False, "use_cpu": True, "report_to": "none",
    }  # fmt: skip
    stage = {"pack": str(errands), "step_rewards": {"by": "calls"}, "reward_function": "my_rewards.py:noted"}
    config = {"model": str(taught_model), "stage": stage, "max_turn_tokens": 64, "grpo": grpo}
    (tmp_path / "grpo.yaml").write_text(yaml.safe_dump(config))
    trl.run("-m", "simia.trainers.trl.train", tmp_path / "grpo.yaml", cwd=tmp_path)
    rows = [json.loads(line) for line in seen.read_text().splitlines()]
    assert len(rows) == 8
    assert all(state == ["lamps"] for _, _, state in rows)
    # an errand is one call: it is solved, and its turn rewarded, together
    assert {(value, sum(steps)) for value, steps, _ in rows} <= {(0.25, 0.0), (0.25, 0.5), (0.75, 0.5)}
    logged = json.loads((tmp_path / "out" / "checkpoint-1" / "trainer_state.json").read_text())["log_history"]
    means = [row["rewards/environment_reward/mean"] for row in logged if "loss" in row]
    assert means == [pytest.approx(sum(value + sum(steps) for value, steps, _ in rows) / 8, abs=1e-5)]
