"""Time limits of a trainer's episodes: limit the wait for an answer of the environment, so that no rank waits too long for another.

A rank that has played its episodes waits in a collective operation for the other ranks, and torch ends all of them after
`ddp_timeout`. So the limit of an answer, and the total time of a model's attempts at a reply, must stay below that. A late
answer counts as an infrastructure failure: the episode is aborted and has no reward.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from simia.envs.config import EnvironmentConfig
from simia.envs.environment import Environment, Episode
from simia.errors import Aborted, Code, UserError
from simia.llm.endpoint_pool import PoolSettings
from simia.llm.openai_settings import OpenAISettings
from simia.reward import Reward
from simia.task import Task

T = TypeVar("T")
WORLD_SECONDS = 1800.0  # limit of one answer, if no rank waits for another
SHARE = 0.8  # share of the collective timeout for the environment; the rest is for the policy


async def open_in_time(
    environment: Environment, task: Task, seconds: float | None, *, seed: int, group: str, name: str
) -> Episode:
    """Reset the environment; an episode that does not begin in `seconds` is aborted."""
    try:
        async with asyncio.timeout(seconds):
            return await environment.reset(task, seed=seed, group=group, name=name)
    except TimeoutError:
        return environment.abort(task, seed, Aborted(Code.TIMEOUT, explain_late(seconds)))


async def run_in_time(episode: Episode, work: Coroutine[Any, Any, T], seconds: float | None) -> T | None:
    """Run a step of the episode and return its result. After `seconds` it is cancelled: the episode is aborted or, if only the verdict
    is late, has no reward."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        await abort_late(episode, explain_late(seconds), seconds)
        return None


async def abort_late(episode: Episode, why: str, seconds: float | None) -> None:
    """Abort a running episode; give one that ended without a reward the error TIMEOUT. Its world gets `seconds` to close."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            if episode.end is None:
                await episode.stop(Code.TIMEOUT, aborted=True, detail=why)
            else:
                episode.reward = episode.reward or Reward(error=Code.TIMEOUT, rationale=why)
                await episode.close()


def explain_late(seconds: float | None) -> str:
    return f"the environment took over {seconds:g} s"


def settle_time_limits(stage: EnvironmentConfig, world_seconds: float | None, collective: float | None) -> float:
    """Return the limit of one answer of the environment, in seconds, and fit the models' attempts into it.

    `world_seconds`: as configured. `collective`: the seconds after which waiting ranks give up; None with one rank. Lowers a model's
    `timeout` and the stage's `limits.retries` if the config does not set them. Raises `UserError` if the configured limits are too high.
    """
    if collective is None:
        return world_seconds or WORLD_SECONDS
    most = SHARE * collective
    if world_seconds is not None and world_seconds > most:
        raise UserError(
            f"world_seconds is {world_seconds:g} and grpo.ddp_timeout {collective:g}: the other ranks would give up first; set "
            f"world_seconds to at most {most:g}, or grpo.ddp_timeout to {world_seconds / SHARE:.0f} or more"
        )
    within, limits = world_seconds or most, stage.limits
    endpoints = list(list_endpoints(stage))
    longest = max((each.timeout for _, each in endpoints if "timeout" in each.model_fields_set), default=0.0)
    if "retries" not in limits.model_fields_set and longest:
        limits.retries = max(0, min(limits.retries, int(within // longest) - 1))
    attempts = limits.retries + 1
    for name, each in endpoints:
        if "timeout" not in each.model_fields_set:
            each.timeout = min(each.timeout, float(within // attempts))
        if each.timeout * attempts > within or each.timeout <= 0:
            raise UserError(
                f"stage.{name}.timeout is {each.timeout:g} s and stage.limits.retries {limits.retries}, {each.timeout * attempts:g} s "
                f"in all, and an answer may take {within:g} s: lower them, or raise world_seconds and grpo.ddp_timeout ({collective:g})"
            )
    return within


def list_endpoints(stage: EnvironmentConfig) -> Iterator[tuple[str, OpenAISettings]]:
    """Yield the stage's endpoints over the network, each with the name of its section."""
    for role in ("llm", "simulator", "player", "judge"):
        settings = getattr(stage, role)
        if isinstance(settings, OpenAISettings):
            yield role, settings
        elif isinstance(settings, PoolSettings):
            for number, each in enumerate(settings.endpoints):
                yield f"{role}.endpoints[{number}]", each
