"""Count the episodes of a RAGEN run from its configuration, and check that it uses one machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simia.envs.opening import load_tasks
from simia.errors import UserError
from simia.trainers.episode_plan import EpisodePlan, count_validations
from simia.trainers.launch import look_up, look_up_number, select_split
from simia.trainers.ragen.settings import parse_env_config, read_context_length


def check_one_node(config: Mapping[str, Any]) -> None:
    """Raise `UserError` for several nodes: RAGEN starts Ray on its own machine."""
    nodes = look_up(config, "trainer.nnodes", 1)
    if nodes != 1:
        raise UserError(
            f"trainer.nnodes is {nodes}: RAGEN starts Ray on one machine; set it to 1, or train on several by simia train verl"
        )


def plan_episodes(config: Mapping[str, Any]) -> list[EpisodePlan]:
    """Return the episodes of each tag, of training and of validation."""
    steps = look_up_number(config, "trainer.total_training_steps", 200)
    before = bool(look_up(config, "trainer.val_before_train", True))
    times = count_validations(steps, look_up_number(config, "trainer.test_freq", 10), before=before)
    rollouts = {"train": steps, "val": times * look_up_number(config, "trainer.validation_steps", 1)}
    room = read_context_length(config) - look_up_number(config, "actor_rollout_ref.rollout.response_length")
    plans = []
    for part, what in (("train", "training"), ("val", "validation")):
        section = look_up(config, f"es_manager.{part}")
        tags = section["env_configs"]["tags"]
        for tag, groups in zip(tags, section["env_configs"]["n_groups"], strict=True):
            env = parse_env_config(tag, **(look_up(config, f"custom_envs.{tag}.env_config") or {}))
            stage = (env if part == "train" else env.for_validation()).stage
            pack, tasks = load_tasks(stage)
            played = select_split(pack, tasks, env.train if part == "train" else env.val, f" for {part}")
            episodes = rollouts[part] * groups * look_up_number(section, "group_size")
            name = f"{what} ({tag})" if len(tags) > 1 else what
            limit = "actor_rollout_ref.rollout.max_model_len", room
            place = f"custom_envs.{tag}.env_config.{'stage' if part == 'train' else env.validation_place}"
            plans.append(EpisodePlan(name, stage, pack, played, episodes, limit, place=place))
    return plans
