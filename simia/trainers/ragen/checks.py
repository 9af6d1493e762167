"""Configurations that are refused, in one line each: above all those under which GRPO is not GRPO.

RAGEN normalises rewards itself and gives its trainer each row as a group of its own, so that `adv_estimator: grpo` alone means nothing:
with RAGEN's default (`identity`) the advantage is the bare reward, never negative, and nothing is compared with anything.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from simia.config import parse_config
from simia.envs.config import EnvironmentConfig
from simia.envs.text_episode import plain_mapping
from simia.errors import UserError
from simia.trainers.launch import look_up
from simia.trainers.ragen.settings import ENV_TYPE, SimiaEnvConfig

GRPO_METHODS = ("mean_std", "mean")
FIELDS = tuple(field.name for field in dataclasses.fields(SimiaEnvConfig))


def read_context_length(config: Any) -> int:
    """Tokens that a context may hold, response included, as verl reckons it."""
    rollout = look_up(config, "actor_rollout_ref.rollout", {})
    named = look_up(rollout, "max_model_len")
    return int(named or int(look_up(rollout, "prompt_length") or 1) + int(look_up(rollout, "response_length")))


def check_ragen_config(config: Any) -> None:
    """Raises `UserError` for the first thing that does not hold."""
    grouping = look_up(config, "agent_proxy.reward_normalization.grouping")
    method = look_up(config, "agent_proxy.reward_normalization.method")
    if look_up(config, "algorithm.adv_estimator") == "grpo":
        require(
            grouping == "state" and method in GRPO_METHODS,
            f"agent_proxy.reward_normalization is {grouping}/{method}, so advantages would not be relative to their group and "
            "GRPO would not be GRPO: set grouping=state and method=mean_std",
        )
        size = look_up(config, "es_manager.train.group_size", 0)
        require(
            int(size) > 1, f"es_manager.train.group_size is {size}: GRPO compares the episodes of a group, 2 or more"
        )
    else:
        require(
            method == "identity", f"reward_normalization.method is {method!r}: it is identity, or for grpo mean_std"
        )
    for name, value, wanted in (
        ("agent_proxy.use_turn_scores", False, "the reward comes with the end of an episode"),
        ("algorithm.bi_level_gae", False, "the reward comes with the end of an episode"),
        ("actor_rollout_ref.rollout.n", 1, "es_manager.train.group_size says how many episodes a group has"),
    ):
        found = look_up(config, name, value)
        require(found == value, f"{name} is {found}: set it to {value}, for {wanted}")
    window = look_up(config, "agent_proxy.max_context_window", -1)
    require(
        window is None or int(window) <= 0,
        f"agent_proxy.max_context_window is {window}: a policy is trained on the context that it saw, so it is never cut; set it to -1",
    )
    mode = look_up(config, "actor_rollout_ref.actor.loss_agg_mode", "token-mean")
    require(
        mode != "seq-mean-token-mean",
        f"actor.loss_agg_mode is {mode}: it divides by a row's trained tokens, and an aborted episode has none; set token-mean",
    )
    said = look_up(config, "actor_rollout_ref.rollout.response_length")
    require(
        isinstance(said, int), f"actor_rollout_ref.rollout.response_length is {said}: set the most tokens of a turn"
    )
    length, turn = read_context_length(config), int(said)
    require(
        length > turn,
        f"rollout.max_model_len is {length}: it must hold the whole episode, more than response_length ({turn})",
    )
    for part in ("train", "val"):
        tags, groups = (read_list(config, f"es_manager.{part}.env_configs.{name}") for name in ("tags", "n_groups"))
        require(
            len(tags) == len(groups),
            f"es_manager.{part}.env_configs has {len(tags)} tags and {len(groups)} n_groups: give each tag its number of groups",
        )
        for tag in tags:
            check_tag(config, str(tag))


def check_tag(config: Any, tag: str) -> None:
    """A tag that a step uses: it is ours, and its stage can be read."""
    entry = look_up(config, f"custom_envs.{tag}")
    require(entry is not None, f"es_manager names the tag {tag}, which custom_envs has not")
    kind = look_up(entry, "env_type")
    require(
        kind == ENV_TYPE,
        f"custom_envs.{tag}.env_type is {kind}: beside {ENV_TYPE} no other type can be trained in one run",
    )
    fields = look_up(entry, "env_config") or {}
    require(
        isinstance(fields, Mapping),
        f"custom_envs.{tag}.env_config is {fields}: it is a section with {', '.join(FIELDS)}",
    )
    unknown = sorted(set(fields) - set(FIELDS))
    require(
        not unknown, f"unknown key 'custom_envs.{tag}.env_config.{(unknown or [''])[0]}': {', '.join(FIELDS)} are known"
    )
    most, seconds = look_up(fields, "at_once"), look_up(fields, "world_seconds", 1)
    require(
        most is None or (is_number(most) and int(most) == most >= 1),
        f"custom_envs.{tag}.env_config.at_once is {most!r}: it is a number of episodes, 1 or more",
    )
    require(
        is_number(seconds) and seconds > 0,
        f"custom_envs.{tag}.env_config.world_seconds is {seconds!r}: it is a number of seconds, more than 0",
    )
    stage = look_up(fields, "stage") or {}
    require(
        isinstance(stage, Mapping),
        f"custom_envs.{tag}.env_config.stage is {stage}: it is a section with pack, backend, …",
    )
    capped = parse_config(
        EnvironmentConfig, plain_mapping(stage), where=f"custom_envs.{tag}.env_config.stage"
    ).limits.capped
    require(
        not capped or bool(look_up(fields, "store")),
        f"custom_envs.{tag}.env_config.stage.limits has a cap, which holds for one start alone: name a store beside stage",
    )


def read_list(config: Any, path: str) -> list[Any]:
    found = look_up(config, path)
    require(
        isinstance(found, Sequence) and not isinstance(found, str) and len(found) > 0,
        f"{path} is {found}: name one or more",
    )
    return list(found)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise UserError(otherwise)
