"""The models of an environment by role: agent, simulator of the tools, user and judge.

Roles with the same settings share one back end, one engine and its rate limits; all engines share one budget. `connect` makes the engines
when the journal for their replies exists.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, Protocol

from simia.envs.config import EnvironmentConfig
from simia.envs.users import USERS
from simia.envs.worlds.executable import raise_descriptor_limit
from simia.errors import MissingKeyError, UserError
from simia.llm.backends import LLMSettings, find_price, open_backend
from simia.llm.budget import share_budget
from simia.llm.embedded import EmbeddedSettings
from simia.llm.engine import Engine
from simia.llm.journals import ReplyJournal
from simia.llm.types import ModelBackend
from simia.pack import Pack
from simia.trajectory import digest

Role = Literal["agent", "simulator", "player", "judge"]
ROLE_WORDS: dict[Role, str] = {
    "agent": "the agent",
    "simulator": "the simulator of the tools",
    "player": "the user simulator",
    "judge": "the judge",
}


class ModelOpener(Protocol):
    """Opens models in another place, such as on the nodes of a cluster."""

    async def open_models(self, models: Mapping[str, LLMSettings]) -> dict[str, ModelBackend]: ...


class RoleModels:
    """The models of an environment. `engine(role)` is None for a role without a model."""

    def __init__(
        self,
        config: EnvironmentConfig,
        pack: Pack,
        *,
        engine: Engine | None = None,
        engines: Mapping[str, Engine] | None = None,
        without: Collection[Role] = (),
    ) -> None:
        """`engine`: serves every role, so that no model is opened; its owner closes it. `engines`: engines of a node, by
        the names of `list_models`; no models are opened then. `without`: roles that the caller fills."""
        simulator = config.simulator or config.llm
        wanted: dict[Role, tuple[bool, LLMSettings]] = {
            "agent": (config.agent_kind == "llm", config.llm),
            "simulator": (simulates_tools(config), simulator),
            "player": ("player" not in without and user_kind(config, pack) == "llm", config.player or simulator),
            "judge": (judges_by_model(config), config.judge or simulator),
        }
        self.config = config
        self._roles = {
            role: inherit_threads(each, config.llm)
            for role, (needed, each) in wanted.items()
            if needed and role not in without
        }
        self._shared_engine = engine
        self._engines = dict(engines or {})
        self._models = {name: each.backend for name, each in self._engines.items()}
        self._opens = engine is None and engines is None

    def refuse_default_llm(self) -> None:
        """Raise `UserError` if a role would start the default local model, which is large, without a setting that asks for it."""
        roles = [role for role, settings in self._roles.items() if settings is self.config.llm]
        if roles and self._shared_engine is None:
            raise UserError(
                f"{', '.join(roles)}: no model is chosen: pass llm=, such as {{'kind': 'openai', 'model': 'gpt-5-mini'}}; "
                "llm='embedded' starts a small local one (491 MB)"
            )

    def list_models(self) -> dict[str, LLMSettings]:
        """The models of all roles by name, each once."""
        return {settings_key(settings): settings for settings in self._roles.values()}

    async def open(
        self, say: Callable[[str], None], stack: contextlib.AsyncExitStack, *, elsewhere: ModelOpener | None = None
    ) -> None:
        """Start each model once, or let `elsewhere` do it. Raises `UserError` for what the user must change first."""
        if not self._opens:
            return
        if elsewhere is not None:
            self._models = await elsewhere.open_models(self.list_models())
            return
        raise_descriptor_limit()  # each request in flight needs a connection
        for settings in self._roles.values():
            if (name := settings_key(settings)) not in self._models:
                if settings.kind == "embedded":
                    roles = ", ".join(role for role, each in self._roles.items() if each == settings)
                    say(f"{roles}: local model {settings.model}; for another: --set llm.base_url=URL, in Python llm=…")
                model = open_backend(settings, say=say)
                try:
                    await model.start()
                except MissingKeyError as error:
                    if self._roles.get("agent") == settings:
                        raise
                    role = next(role for role, each in self._roles.items() if each == settings)
                    raise MissingKeyError(
                        f"{ROLE_WORDS[role]} needs a model: {error}; or choose another, as --set {role}.base_url=URL, or the local one: "
                        f"--set {role}.kind=embedded --set {role}.model=smollm2-135m"
                    ) from None
                stack.push_async_callback(model.close)
                self._models[name] = model

    def connect(self, journal: ReplyJournal, **spent: Any) -> None:
        """Make the engines, which write to `journal` and share one budget. `spent`: what `share_budget` takes besides the engines."""
        if not self._opens:
            return
        for settings in self._roles.values():
            if (name := settings_key(settings)) not in self._engines:
                self._engines[name] = Engine(self._models[name], journal, self.config.limits, find_price(settings))
        share_budget(self.engines, **spent)

    @property
    def opens_models(self) -> bool:
        """Whether models are opened here for any role."""
        return bool(self._roles) and self._opens

    def limit_episodes(self, most: int) -> int:
        """Return how many episodes may be played at once, at most `most`, so that the slots of a local model hold their conversations. With
        more, each turn would find its slot taken by another episode and read its conversation again."""
        talking = [settings for role, settings in self._roles.items() if role != "judge" and self._opens]
        rooms = {
            settings_key(each): max(each.slots, each.parallel) // talking.count(each)
            for each in talking
            if each.kind == "embedded"
        }
        return min([most, *(max(1, room) for room in rooms.values())])

    @property
    def has_budget(self) -> bool:
        """Whether models are opened here and have a cap."""
        return self.opens_models and self.config.limits.capped

    def model(self, role: Role) -> ModelBackend | None:
        """The back end of a role's model."""
        settings = self._roles.get(role)
        if settings is None:
            return None
        return self._shared_engine.backend if self._shared_engine else self._models[settings_key(settings)]

    def engine(self, role: Role) -> Engine | None:
        """The engine of a role's model, once there is a journal."""
        settings = self._roles.get(role)
        if settings is None:
            return None
        return self._shared_engine or self._engines[settings_key(settings)]

    @property
    def engines(self) -> list[Engine]:
        """The engines that were made here."""
        return list(self._engines.values())

    @property
    def engines_by_name(self) -> dict[str, Engine]:
        """The engines by the names of `list_models`."""
        return dict(self._engines)

    @property
    def facts(self) -> dict[str, str]:
        """Role → name of its model, for the run's identity; the agent's model is recorded elsewhere in it."""
        return {
            role: model.model for role in self._roles if role != "agent" and (model := self.model(role)) is not None
        }

    def close(self) -> None:
        """Close the gates of the engines."""
        for engine in self._engines.values():
            engine.gate.close()


def inherit_threads(settings: LLMSettings, llm: LLMSettings) -> LLMSettings:
    """Return the settings of a local model; if they set no threads, those of `llm` apply, since all models share one machine."""
    if not (isinstance(settings, EmbeddedSettings) and isinstance(llm, EmbeddedSettings)) or settings is llm:
        return settings
    return settings if settings.threads is not None else settings.model_copy(update={"threads": llm.threads})


def settings_key(settings: LLMSettings) -> str:
    """A digest that is the same for the same settings."""
    return digest(settings.model_dump(mode="json"))


def user_kind(config: EnvironmentConfig, pack: Pack, where: str = "") -> str:
    """Return the kind of the user: none, scripted or llm. Raises `UserError` for another name, and if the pack's user is a model, an agent
    plays and the settings choose no user model. `where`: the section of the settings, for the message, as `stage.`."""
    if config.user is not None:
        if config.user not in (*USERS, "llm"):
            raise UserError(f"no user named {config.user!r}; there are: {', '.join(USERS)}, llm")
        return config.user
    if config.agent_kind == "reference":
        return "scripted"
    others = (
        config.agent_kind is None and "llm" in config.model_fields_set
    )  # without an agent here, `llm` is meant for the other roles
    if pack.user == "llm" and config.player is None and not others and not simulates_tools(config):
        if config.agent_kind in (None, "llm"):
            if pack.executable is None and config.backend == "executable" and config.packs is None:
                raise UserError(
                    f"pack {pack.name} has no executable world, so a model plays its tools and its user: --set {where}backend=simulated"
                )
            raise UserError(
                f"pack {pack.name}: a model plays its user, but none is chosen: set {where}player, such as {where}player.kind=openai with "
                f"{where}player.model=NAME; or set {where}user=llm, and llm plays the user; or set {where}user=none, and the task's text is the "
                "only message"
            )
        return "none"
    return pack.user


def simulates_tools(config: EnvironmentConfig) -> bool:
    """Whether a model plays any tool."""
    return config.backend in ("simulated", "shadow") or not isinstance(config.backend, str)


def judges_by_model(config: EnvironmentConfig) -> bool:
    """Whether a model judges single turns or the outcome, also if it does so besides the rules."""
    by_turn = config.step_rewards is not None and config.step_rewards.by == "judge"
    return by_turn or config.reward == "both" or judges_outcome_by_model(config)


def judges_outcome_by_model(config: EnvironmentConfig) -> bool:
    """Whether a model judges the outcome; the default if no complete state can be compared."""
    return config.reward == "oracle" or (
        config.reward == "auto" and simulates_tools(config) and config.backend != "shadow"
    )
