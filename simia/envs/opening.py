"""A stage: a pack opened with its back end, its models and its judge, ready for whoever brings the agent.

    environment = await open_stage({"pack": "customer_service", "backend": "simulated", "llm": {...}}, store=Path("replies"))

A rollout adds an agent and a run; a trainer adds its policy. Both open the same thing by the same settings.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simia import terminal
from simia.config import parse
from simia.envs.config import StageConfig
from simia.envs.environment import USERS, Environment, open_environment
from simia.envs.role_models import Cast, user_of
from simia.errors import UserError
from simia.jobs import Store
from simia.llm.budget import Till
from simia.llm.engine import Journal, PassingJournal
from simia.pack import Pack
from simia.task import Task

log = logging.getLogger(__name__)


async def open_stage(
    config: StageConfig | dict[str, Any], *, store: Path | None = None, say: Callable[[str], None] = terminal.say
) -> Environment:
    """An environment whose `tasks` are the chosen ones, and whose `close` closes the models too.

    `store`: a folder where every reply is kept before it is used, as in a run, and found again by the next process that asks
    the same; several processes may name one folder, and a cap in `limits` then holds for all of them together, over restarts too.
    Without it replies pass, and the cap is this process's. Raises `UserError` for what must be changed first.
    """
    config = parse(StageConfig, config, where="the environment's settings") if isinstance(config, dict) else config
    pack = Pack.load(config.pack)
    tasks = chosen(pack, config)
    async with contextlib.AsyncExitStack() as stack:
        environment = await entered(config, pack, stack)
        environment.tasks = tasks
        cast = Cast(config, pack)
        await cast.open(say, stack)
        journal: Journal = PassingJournal()
        till: Till | None = None
        if store is not None and cast.asks:  # else there is nothing to keep
            journal = kept = Store.open(store)
            stack.callback(kept.close)
            till = kept.till() if cast.capped else None
        elif cast.capped:
            log.warning(
                "the cap in limits holds for this process alone, and anew each time it is started: name a store"
            )
        cast.begin(environment, journal, till=till)
        stack.callback(cast.close)
        environment.closing = stack.pop_all()
    return environment


async def entered(config: StageConfig, pack: Pack, stack: contextlib.AsyncExitStack) -> Environment:
    """The environment, its sandbox started: what is wrong with either is said before there is a run."""
    user = user_of(config, pack)
    if user not in (*USERS, "llm"):
        raise UserError(f"no user named {user!r}; there are: {', '.join(USERS)}, llm")
    environment = await open_environment(
        pack,
        backend=config.backend,
        user="none" if user == "llm" else user,
        limits=config.episode,
        **config.backend_settings,
    )
    stack.push_async_callback(environment.backend.close)
    if config.backend != "simulated":  # whose model is opened with the others, and has nothing else to start
        await environment.backend.start()
    return environment


def chosen(pack: Pack, config: StageConfig) -> list[Task]:
    """The tasks that the settings name, at least one."""
    tasks = [pack.task(name) for name in config.tasks] if config.tasks else pack.tasks
    if config.split is not None:
        splits = sorted({task.split for task in pack.tasks})
        tasks = [task for task in tasks if task.split == config.split]
        if not tasks:
            raise UserError(
                f"pack {pack.name} has no task of split {config.split!r}; its splits: {', '.join(splits) or 'none'}"
            )
    if not tasks:
        raise UserError(f"pack {pack.name} has no tasks: rollouts need a tasks.jsonl")
    return tasks[: config.limit]
