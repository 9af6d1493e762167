"""Settings of a RAGEN run: a tag's `env_config`, the configurations that are refused, and the step at which a run resumes.

RAGEN normalises rewards itself and passes each row to its trainer as a separate group. With its default normalisation (`identity`) the
advantage is the raw reward and nothing is compared, so `adv_estimator: grpo` alone is not GRPO.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from simia.config import parse_config
from simia.envs.config import EnvironmentConfig
from simia.envs.text_episode import plain_mapping
from simia.errors import UserError
from simia.trainers.kept_episodes import KeptSettings
from simia.trainers.launch import look_up, look_up_number
from simia.trainers.val_environment import StageSettings

ENV_TYPE = "simia"
"""The name in RAGEN's registries: a tag's `env_type`."""
LATEST = "latest_checkpointed_iteration.txt"
REQUIRED = {
    "algorithm.bi_level_gae": (
        False,
        "RAGEN has it for rewards of whole episodes only; use_turn_scores goes with plain gae",
    ),
    "actor_rollout_ref.rollout.n": (1, "es_manager.train.group_size says how many episodes a group has"),
}
"""Setting → its only allowed value, and the reason."""


class SimiaEnvConfig(StageSettings):
    """`env_config` of a tag in RAGEN's `custom_envs`."""

    stage: EnvironmentConfig = Field(
        default_factory=EnvironmentConfig, description="The environment: pack, back end, models and judge."
    )
    train: str | None = Field("train", description="Split of the training seeds. null: all tasks of `stage`.")
    val: str | None = Field("test", description="Split of the validation seeds. null: all tasks of `stage`.")
    store: str | None = Field(
        None, description="Folder of stored replies, which a restarted run reuses. null: replies are not stored."
    )
    at_once: int | None = Field(
        None, ge=1, description="Maximum number of concurrent episodes of the tag. null: all episodes of a step."
    )
    allow_evaluation_tasks: bool = Field(
        False, description="Whether to allow training on tasks that are meant for evaluation only."
    )
    world_seconds: float = Field(
        1800.0,
        gt=0,
        description="Maximum duration of one answer of the environment or the judge, in seconds. After that, the episode is aborted "
        "or has no reward.",
    )
    episodes: KeptSettings | None = Field(
        default_factory=KeptSettings, description="The run that stores all episodes of the training. null: none."
    )


def parse_env_config(where: str = "env_config", /, **fields: Any) -> SimiaEnvConfig:
    """Parse a tag's `env_config` as RAGEN passes it. Raises `UserError`."""
    return parse_config(SimiaEnvConfig, plain_mapping(fields), where=where)


def read_context_length(config: Any) -> int:
    """Return the number of tokens that a context may hold, response included, as verl computes it."""
    place = "actor_rollout_ref.rollout"
    if look_up(config, f"{place}.max_model_len"):
        return look_up_number(config, f"{place}.max_model_len")
    prompt = look_up_number(config, f"{place}.prompt_length") if look_up(config, f"{place}.prompt_length") else 1
    return prompt + look_up_number(config, f"{place}.response_length")


def count_done_steps(config: Any) -> int:
    """Return the number of steps in the checkpoint that the run resumes from, by the rules of verl's `_load_checkpoint`; 0 without one.

    RAGEN's trainer does not pass the step to its environments, so they would start again with the first step's seeds.
    """
    mode = look_up(config, "trainer.resume_mode", "auto")
    if mode == "disable":
        return 0
    if mode == "resume_path":
        named = re.search(r"global_step_(\d+)$", str(look_up(config, "trainer.resume_from_path")))
        return int(named[1]) if named else 0
    folder = Path(str(look_up(config, "trainer.default_local_dir")))
    try:
        step = int((folder / LATEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0
    return step if (folder / f"global_step_{step}").exists() else 0


def check_ragen_config(config: Any) -> None:
    """Raise `UserError` for the first setting with which the run would silently train something else."""
    problem = next(find_problems(config), None)
    if problem is not None:
        raise UserError(problem)


def find_problems(config: Any) -> Iterator[str]:
    """Yield each problem as a line. Read only the first: later checks assume that the earlier ones passed."""
    grouping = look_up(config, "agent_proxy.reward_normalization.grouping")
    method = look_up(config, "agent_proxy.reward_normalization.method")
    if look_up(config, "algorithm.adv_estimator") == "grpo":
        if grouping != "state" or method not in ("mean_std", "mean"):
            yield f"agent_proxy.reward_normalization is {grouping}/{method}, so advantages would not be relative to their group and GRPO would not be GRPO: set grouping=state and method=mean_std"
        size = look_up_number(config, "es_manager.train.group_size", 0)
        if size < 2:
            yield f"es_manager.train.group_size is {size}: GRPO compares the episodes of a group, 2 or more"
    elif method != "identity":
        yield f"reward_normalization.method is {method!r}: set it to identity, or for grpo to mean_std"
    if look_up(config, "agent_proxy.use_turn_scores") and look_up(config, "algorithm.adv_estimator") != "gae":
        yield f"agent_proxy.use_turn_scores is true, and {look_up(config, 'algorithm.adv_estimator')} has one advantage for a whole episode: set algorithm.adv_estimator=gae, or use_turn_scores=false, with which the turns' rewards are added to the episode's"
    for name, (wanted, why) in REQUIRED.items():
        found = look_up(config, name, wanted)
        if found != wanted:
            yield f"{name} is {found}: set it to {wanted}, because {why}"
    window = look_up(config, "agent_proxy.max_context_window")
    if window is not None and look_up_number(config, "agent_proxy.max_context_window") > 0:
        yield f"agent_proxy.max_context_window is {window}: a policy is trained on the context that it was sampled in, so it is never cut; set it to -1"
    mode = look_up(config, "actor_rollout_ref.actor.loss_agg_mode")
    if mode == "seq-mean-token-mean":
        yield f"actor.loss_agg_mode is {mode}: it divides by a row's trained tokens, and an aborted episode has none; set token-mean"
    turn = look_up(config, "actor_rollout_ref.rollout.response_length")
    if not isinstance(turn, int):
        yield f"actor_rollout_ref.rollout.response_length is {turn}: set the most tokens of a turn"
    length = read_context_length(config)
    if length <= turn:
        yield f"rollout.max_model_len is {length}: it must hold the whole episode, more than response_length ({turn})"
    for part in ("train", "val"):
        place = f"es_manager.{part}.env_configs"
        lists = {name: look_up(config, f"{place}.{name}") for name in ("tags", "n_groups")}
        for name, values in lists.items():
            if isinstance(values, str) or not isinstance(values, Sequence) or not values:
                yield f"{place}.{name} is {values}: name one or more"
        tags, groups = map(len, lists.values())
        if tags != groups:
            yield f"{place} has {tags} tags and {groups} n_groups: give each tag its number of groups"
        look_up_number(config, f"es_manager.{part}.group_size")
        wanted = look_up(config, f"es_manager.{part}.env_groups")
        whole = all(type(number) is int for number in lists["n_groups"])
        if wanted is not None and (
            not whole or sum(lists["n_groups"]) != look_up_number(config, f"es_manager.{part}.env_groups")
        ):
            yield f"{place}.n_groups is {list(lists['n_groups'])}, and es_manager.{part}.env_groups is {wanted}: groups of all tags together must be env_groups"
        if not whole:
            yield f"{place}.n_groups is {list(lists['n_groups'])}: give whole numbers"
        for tag in lists["tags"]:
            yield from find_tag_problems(config, f"custom_envs.{tag}")


def find_tag_problems(config: Any, tag: str) -> Iterator[str]:
    """Yield what is wrong with a tag that a step uses. Raises `UserError` for a bad `env_config`."""
    entry = look_up(config, tag)
    if entry is None:
        yield f"{tag} does not exist, but es_manager names it: add it, or remove it from env_configs.tags"
    kind, fields = look_up(entry, "env_type"), look_up(entry, "env_config") or {}
    if kind != ENV_TYPE:
        yield f"{tag}.env_type is {kind}: a run with {ENV_TYPE} environments cannot train other types"
    if not isinstance(fields, Mapping):
        yield f"{tag}.env_config is {fields}: write a section with {', '.join(SimiaEnvConfig.model_fields)}"
    env = parse_env_config(f"{tag}.env_config", **fields)
    if any(stage.limits.capped for stage in (env.stage, env.for_validation().stage)) and not env.store:
        yield f"{tag}.env_config.stage.limits has a cap, which starts from zero at each start: set store, next to stage, to keep the count"


def check_tag_names(values: Any, whole: Any) -> None:
    """Raise `UserError` for a section under `custom_envs` that is not a tag: no step uses it, and it has no type. `values`: the user's config."""
    used = [tag for part in ("train", "val") for tag in look_up(whole, f"es_manager.{part}.env_configs.tags")]
    for name in look_up(values, "custom_envs") or {}:
        if name not in used and look_up(whole, f"custom_envs.{name}.env_type") is None:
            near = difflib.get_close_matches(str(name).lower(), [tag.lower() for tag in used], n=1)
            meant = next((f"did you mean custom_envs.{tag}?" for tag in used if near == [tag.lower()]), None)
            raise UserError(
                f"custom_envs.{name} is not a tag in es_manager.*.env_configs.tags: {meant or 'name it there, or remove it'}"
            )


def list_turn_warnings(config: Any) -> list[str]:
    """Return a line for each environment whose own limit of turns is below RAGEN's `max_turn`, and so ends the episodes."""
    rounds, lines = look_up(config, "agent_proxy.max_turn"), dict[str, None]()
    if rounds is not None:
        rounds = look_up_number(config, "agent_proxy.max_turn")
    for part in ("train", "val"):
        for tag in look_up(config, f"es_manager.{part}.env_configs.tags"):
            place = f"custom_envs.{tag}.env_config"
            env = parse_env_config(place, **(look_up(config, place) or {}))
            turns = (env if part == "train" else env.for_validation()).stage.episode.turns
            name = "stage" if turns == env.stage.episode.turns else "val_environment"
            if rounds is not None and turns < rounds:
                lines[
                    f"{place}.{name}.episode.turns is {turns}, and agent_proxy.max_turn {rounds}: an episode ends after {turns} turns; set both to the same number"
                ] = None
    return list(lines)
