"""Who plays what on a stage: the models behind the agent, the tools, the user and the judge, each opened once.

Roles that name the same model share one back end and one engine, so one pace; all share one budget. Engines are made when there is
a run, whose ledger keeps every reply.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Literal

from simia.envs.config import RolloutConfig, StageConfig
from simia.envs.environment import Environment
from simia.envs.rewards.judge import Oracle
from simia.envs.users import LLMUser
from simia.envs.worlds.pair import PairBackend
from simia.envs.worlds.simulated import SimulatedBackend
from simia.llm.backends import LLMSettings, open_backend, price_for
from simia.llm.budget import share_budget
from simia.llm.engine import Engine, Journal
from simia.llm.types import Backend
from simia.pack import Pack
from simia.trajectory import digest

Role = Literal["agent", "simulator", "player", "judge"]


class Cast:
    """The models of a stage. `engine(role)` is None for a role that nobody needs; a trainer's agent is none of ours."""

    def __init__(self, config: StageConfig, pack: Pack) -> None:
        simulator = config.simulator or config.llm
        wanted: dict[Role, tuple[bool, LLMSettings]] = {
            "agent": (agent_of(config) == "llm", config.llm),
            "simulator": (simulates(config), simulator),
            "player": (user_of(config, pack) == "llm", config.player or simulator),
            "judge": (judged(config), config.judge or simulator),
        }
        self.config, self.pack = config, pack
        self._settings: dict[Role, LLMSettings] = {role: each for role, (needed, each) in wanted.items() if needed}
        self._models: dict[str, Backend] = {}
        self._engines: dict[str, Engine] = {}

    async def open(self, say: Callable[[str], None], stack: contextlib.AsyncExitStack) -> None:
        """Start each model once. Raises `UserError` for what the user must change first."""
        for settings in self._settings.values():
            if (name := key(settings)) not in self._models:
                model = open_backend(settings, say=say)
                await model.start()
                stack.push_async_callback(model.close)
                self._models[name] = model

    def begin(self, environment: Environment, journal: Journal, **before: Any) -> None:
        """There is a journal: engines that write to it, and the environment gets its players. All of them share one budget;
        `before`: what is spent of it already, as `share_budget` takes it."""
        for settings in self._settings.values():
            if (name := key(settings)) not in self._engines:
                self._engines[name] = Engine(self._models[name], journal, self.config.limits, price_for(settings))
        share_budget(self.engines, **before)
        if (judge := self.engine("judge")) is not None:
            environment.scorer = Oracle(judge, self.pack, self.config.oracle)
        backend = environment.backend
        if (simulator := self.engine("simulator")) is not None and isinstance(backend, SimulatedBackend | PairBackend):
            backend.use(simulator)
            environment.rules_only = not judged(self.config)
        if (player := self.engine("player")) is not None:
            environment.user = lambda task: LLMUser(player, self.pack, task, self.config.user_settings)

    @property
    def capped(self) -> bool:
        """Whether somebody is paid, and with a cap."""
        return self.asks and self.config.limits.capped

    @property
    def asks(self) -> bool:
        """Whether any role is a model's."""
        return bool(self._settings)

    def model(self, role: Role) -> Backend | None:
        settings = self._settings.get(role)
        return self._models[key(settings)] if settings is not None else None

    def engine(self, role: Role) -> Engine | None:
        settings = self._settings.get(role)
        return self._engines[key(settings)] if settings is not None else None

    @property
    def engines(self) -> list[Engine]:
        return list(self._engines.values())

    @property
    def facts(self) -> dict[str, str]:
        """Which model plays which role, for the run's identity; the agent's is told elsewhere."""
        return {role: self._models[key(each)].model for role, each in self._settings.items() if role != "agent"}

    def close(self) -> None:
        for engine in self._engines.values():
            engine.gate.close()


def key(settings: LLMSettings) -> str:
    return digest(settings.model_dump(mode="json"))


def agent_of(config: StageConfig) -> str | None:
    return config.agent if isinstance(config, RolloutConfig) else None


def user_of(config: StageConfig, pack: Pack) -> str:
    """Who plays the user. A pack that wants a model gets one where one was named; else the task's words are the first message."""
    if config.user is not None:
        return config.user
    if agent_of(config) == "reference":
        return "scripted"
    if pack.user == "llm" and config.player is None and not simulates(config):
        return "none"
    return pack.user


def simulates(config: StageConfig) -> bool:
    """Whether a model plays tools."""
    return config.backend in ("simulated", "shadow") or not isinstance(config.backend, str)


def judged(config: StageConfig) -> bool:
    """Whether a model judges: by default where there is no whole state to compare."""
    return config.reward == "oracle" or (config.reward == "auto" and simulates(config) and config.backend != "shadow")
