"""Open an environment: a pack with its back end, its models and its judge. The caller brings the agent.

    environment = await open_environment("customer_service", backend="simulated", llm={"kind": "openai", "model": "gpt-5-mini"})

A rollout adds an agent and a run; a trainer adds its policy. Both open environments with the same settings.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from simia import event_loop, terminal
from simia.config import parse_config
from simia.envs.config import EnvironmentConfig
from simia.envs.environment import Environment
from simia.envs.perturbation.possible_events import check_tool_names, list_obstacles
from simia.envs.remote.environment import RemoteBackend, RemoteEnvironment
from simia.envs.remote.remote_pack import RemotePack, list_addresses, load_remote_packs, refuse_server_settings
from simia.envs.role_models import ModelOpener, Role, RoleModels, user_kind
from simia.envs.scoring import check_reward_settings, make_scorer
from simia.envs.several_packs import (
    CombinedPack,
    MultiPackEnvironment,
    PackTasks,
    combine_packs,
    member_config,
    mix_tasks,
    split_task_id,
)
from simia.envs.task_selection import select_tasks
from simia.envs.users import USERS, LLMUser, NoUser, UserMaker
from simia.envs.worlds import executable, simulated
from simia.envs.worlds.executable_settings import ExecutableSettings
from simia.envs.worlds.mixed_and_shadow import PairBackend, make_mixed_backend, make_shadow_backend
from simia.envs.worlds.world import Backend
from simia.errors import UserError, require_type
from simia.jobs import Store
from simia.llm.backends import LLMSettings, attach_client, read_llm
from simia.llm.budget import SharedBudget
from simia.llm.engine import Engine
from simia.llm.journals import PassingJournal, ReplyJournal
from simia.pack import Pack
from simia.scorer import Scorer
from simia.task import Task

if TYPE_CHECKING:
    from openai import AsyncOpenAI

log = logging.getLogger(__name__)
BackendMaker = Callable[..., Backend]
BACKENDS: dict[str, BackendMaker] = {
    "executable": executable.make_executable_backend,
    "simulated": simulated.make_simulated_backend,
    "shadow": make_shadow_backend,
}
BACKEND_FIELDS = {
    "executable": ExecutableSettings.model_fields,
    "simulated": simulated.SimulatedSettings.model_fields,
}
BACKEND_SETTINGS = {"forced", "split_state", *(name for fields in BACKEND_FIELDS.values() for name in fields)}


async def open_environment(
    source: EnvironmentConfig | Mapping[str, Any] | Pack | str | Path,
    *,
    llm: LLMSettings | Mapping[str, Any] | str | AsyncOpenAI | None = None,
    store: Path | None = None,
    scorer: Scorer | None = None,
    user: UserMaker | str | None = None,
    engine: Engine | None = None,
    say: Callable[[str], None] = terminal.say,
    **settings: Any,
) -> Environment:
    """Open an environment; closing it closes its sandbox and its models too.

    Arguments:
        source: a pack, its name or its path; the address of an environment on a server (`simia serve --openenv`), as
            `"https://HOST/PACK"`; or a config, whose `pack` names one and which must leave at least one task to play. A server
            decides the back end, the models, the user and the rewards, and keeps its models' replies; `token_env` names the variable
            with its token.
        llm: the model of every role that has none of its own: settings, the name of a model of an OpenAI-compatible endpoint, an
            `openai.AsyncOpenAI`, with the model's name in `llm.model` of the config, or `"embedded"`, a small local model (491 MB).
            Required where a model plays the tools or the user, unless `source` is an `EnvironmentConfig`.
        store: folder in which every reply of a model is stored before it is used, as in a run. A later process that makes the same
            request gets the stored reply. Several processes may share a folder; a cap in `limits` then holds for all of them together,
            also after a restart. Without a folder replies are not kept, and a cap holds for this process alone.
        scorer: judges episodes, in place of the tasks' rules and of a judge model.
        user: `none`, `scripted`, `llm`, or a function that makes the user of a task; None: as the pack says.
        engine: an open engine that serves every role, in place of `llm` and `store`; its owner closes it.
        say: receives what a user should see while models start.
        settings: fields of `EnvironmentConfig`, such as `backend="simulated"` or `episode={"turns": 10}`, and settings of the back
            end, such as `isolation`, `unsafe` or `knowledge`.

    Raises `UserError` for what must be changed first, such as an unknown setting or code that does not load.
    """
    require_type("source", source, EnvironmentConfig, Mapping, Pack, str, Path)
    if llm is not None:
        settings["llm"] = read_llm(llm)
    if isinstance(user, str):
        settings["user"], user = user, None
    without: list[Role] = []
    if user is not None:
        without.append("player")
    if scorer is not None:
        without.append("judge")
    config = read_config(source, settings)
    given = {"scorer": scorer, "user": user, "engine": engine}
    refuse_server_settings(config, [name for name, value in given.items() if value is not None])
    names_llm = (
        isinstance(source, EnvironmentConfig) or "llm" in settings or (isinstance(source, Mapping) and "llm" in source)
    )
    attach_client(config.llm, llm)
    stack = contextlib.AsyncExitStack()
    try:
        prepared = await prepare_environment(
            config,
            stack,
            pack=source if isinstance(source, Pack) else None,
            needs_tasks=isinstance(source, EnvironmentConfig | Mapping),
            engine=engine,
            without=without,
            may_use_default_llm=names_llm,
            say=say,
        )
        models = prepared.models
        journal: ReplyJournal = PassingJournal()
        shared: SharedBudget | None = None
        if store is not None and models.opens_models:  # otherwise there is nothing to keep
            journal = kept = Store.open(store)
            stack.callback(kept.close)
            shared = kept.open_shared_budget() if models.has_budget else None
        elif models.has_budget:
            log.warning(
                "the cap in limits counts only what this process spends, from zero at each start: set a store to keep the count"
            )
        stack.callback(models.close)
        return prepared.connect(journal, scorer=scorer, user=user, close=stack.aclose, shared=shared)
    except BaseException:
        await stack.aclose()
        raise


def read_config(
    source: EnvironmentConfig | Mapping[str, Any] | Pack | str | Path, settings: Mapping[str, Any]
) -> EnvironmentConfig:
    """Merge settings into the config of `source`. Raises `UserError` for an unknown setting."""
    if isinstance(source, EnvironmentConfig) and not settings:
        return source
    cls = type(source) if isinstance(source, EnvironmentConfig) else EnvironmentConfig
    if isinstance(source, EnvironmentConfig):
        data = source.model_dump(mode="json")
    elif isinstance(source, Mapping):
        data = dict(source)
    else:
        data = {"pack": str((source.root or source.name) if isinstance(source, Pack) else source)}
    fields = cls.model_fields
    for_backend = {name: value for name, value in settings.items() if name not in fields}
    data |= {name: plain_value(value) for name, value in settings.items() if name in fields}
    backend = data.get("backend")
    if not isinstance(backend, str) or backend in BACKENDS:
        for name in for_backend.keys() - BACKEND_SETTINGS:
            if near := difflib.get_close_matches(name, fields, n=1, cutoff=0.8):
                raise UserError(f"unknown setting {name!r}: did you mean {near[0]!r}?")
    if for_backend:
        data["backend_settings"] = {**data.get("backend_settings", {}), **for_backend}
    return parse_config(cls, data, where="the environment's settings")


def plain_value(value: Any) -> Any:
    """Convert a value to the plain form that it has in a config file."""
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


@dataclass(slots=True)
class PreparedPack:
    """One pack of an environment with its back end and its settings."""

    config: EnvironmentConfig
    pack: Pack
    backend: Backend

    def check_references(self, tasks: list[Task]) -> None:
        """Raise `UserError` if the settings show the tasks' references to the simulator and no task has one."""
        if (simulator := find_simulator(self.backend)) is not None:
            simulator.check_references(tasks)


@dataclass(slots=True)
class PreparedEnvironment:
    """Back ends and started models; `connect` adds the journal for the models' replies and makes the environment."""

    config: EnvironmentConfig
    pack: Pack
    tasks: list[Task]
    members: list[PreparedPack]
    models: RoleModels

    def connect(
        self,
        journal: ReplyJournal,
        *,
        scorer: Scorer | None = None,
        user: UserMaker | None = None,
        close: Callable[[], Awaitable[object]] | None = None,
        **spent: Any,
    ) -> Environment:
        """Make the environment; its models write to `journal`. `spent`: what `share_budget` takes besides the engines."""
        self.models.connect(journal, **spent)
        if not isinstance(self.pack, CombinedPack):
            return self._connect_pack(self.members[0], scorer, user, close)

        async def close_members() -> None:
            for member in self.members:
                await member.backend.close()

        names = zip(self.pack.members, self.members, strict=True)
        members = {name: self._connect_pack(each, scorer, user, None, name) for name, each in names}
        name = self.config.backend if isinstance(self.config.backend, str) else "mixed"
        return MultiPackEnvironment(
            self.pack, members, tasks=self.tasks, backend_name=name, close=close or close_members
        )

    def _connect_pack(
        self,
        member: PreparedPack,
        scorer: Scorer | None,
        user: UserMaker | None,
        close: Callable[[], Awaitable[object]] | None,
        name: str | None = None,
    ) -> Environment:
        config, pack, models = member.config, member.pack, self.models
        tasks = self.tasks if pack is self.pack else []
        if isinstance(pack, RemotePack):
            return RemoteEnvironment(pack, name=name, tasks=tasks, close=close)
        simulator, judge, player = (models.engine(role) for role in ("simulator", "judge", "player"))
        if simulator is not None and isinstance(member.backend, simulated.SimulatedBackend | PairBackend):
            member.backend.use(simulator)
        if user is None:
            user = USERS.get(user_kind(config, pack))
        if user is None and player is not None:
            user = lambda task: (  # noqa: E731
                LLMUser(player, pack, task, config.user_settings) if task.conversation else NoUser(task)
            )
        return Environment(
            pack,
            member.backend,
            backend_name=config.backend if isinstance(config.backend, str) else "mixed",
            user=user or NoUser,
            limits=config.episode,
            scorer=make_scorer(config, pack, judge, scorer or getattr(member.backend, "scorer", None)),
            tasks=tasks,
            perturb=config.perturb,
            close=close,
        )


async def prepare_environment(
    config: EnvironmentConfig,
    stack: contextlib.AsyncExitStack,
    *,
    pack: Pack | None = None,
    needs_tasks: bool = True,
    engine: Engine | None = None,
    engines: Mapping[str, Engine] | None = None,
    elsewhere: ModelOpener | None = None,
    without: Collection[Role] = (),
    may_use_default_llm: bool = True,
    say: Callable[[str], None] = terminal.say,
) -> PreparedEnvironment:
    """Start the back end and the models; `stack` closes them. A rollout starts its run before it calls `connect` on the result.

    `needs_tasks`: refuse a pack without tasks. `engine`, `engines` and `without`: see `RoleModels`. `elsewhere`: opens the models
    in another place, where the environment is played too, so no back end is started here. `may_use_default_llm`: start the local model for
    roles without a model of their own; otherwise they are refused. Raises `UserError`.
    """
    remote = await load_remote_packs(config)
    if remote:
        executable.raise_descriptor_limit()  # each episode on a server needs a connection
    if config.packs or needs_tasks:
        pack, tasks = load_tasks(config, pack, remote)
    else:
        pack = pack or remote.get(config.pack) or Pack.load(config.pack)
        filtered = bool(config.tasks) or config.split is not None
        tasks = select_tasks(pack, config) if pack.tasks or filtered else []
    check_reward_settings(config, tasks)
    if config.limit is not None and (left := list_unplayed(pack, tasks)):
        say(f"limit {config.limit}: no task of {', '.join(left)} is played")
    members = [
        PreparedPack(settings, each, make_backend(each, settings)) for settings, each in list_packs(config, pack)
    ]
    for member in members:
        member.check_references(tasks if member.pack is pack else member.pack.tasks)
    for line in check_perturbations(config, pack, tasks, members):
        say(line)
    models = RoleModels(config, pack, engine=engine, engines=engines, without=without)
    if not may_use_default_llm:
        models.refuse_default_llm()
    for member in members:
        stack.push_async_callback(member.backend.close)
    if not config.packs and elsewhere is None:
        await members[0].backend.start()  # with several packs, each one starts when its first task is played
    await models.open(say, stack, elsewhere=elsewhere)
    return PreparedEnvironment(config, pack, tasks, members, models)


def list_unplayed(pack: Pack, tasks: Sequence[Task]) -> list[str]:
    """List the packs of several of which no task was chosen."""
    if not isinstance(pack, CombinedPack):
        return []
    played = {split_task_id(task.id, pack.members)[0] for task in tasks}
    return [name for name in pack.members if name not in played]


def check_perturbations(
    config: EnvironmentConfig, pack: Pack, tasks: list[Task], members: Sequence[PreparedPack]
) -> list[str]:
    """Return a line for each planned event that cannot be made. Raises `UserError` for a tool that no pack has."""
    if config.perturb is None:
        return []
    check_tool_names(config.perturb, [member.pack for member in members])
    own = {name: [task for task in tasks if task.id.startswith(f"{name}/")] for name in getattr(pack, "members", ())}
    found = [
        list_obstacles(config.perturb, member.pack, chosen, member.backend, config.episode)
        for member, chosen in zip(members, own.values() or [tasks], strict=True)
    ]
    return list(dict.fromkeys(line for lines in found for line in lines))


def load_tasks(
    config: EnvironmentConfig, pack: Pack | None = None, remote: Mapping[str, RemotePack] | None = None
) -> tuple[Pack, list[Task]]:
    """Load the pack of a config, or the combined one of several, and the tasks to play.

    Arguments:
        pack: the one pack, already loaded.
        remote: the packs at the config's addresses. None: this function asks the servers and blocks, so a coroutine must pass them.

    Raises `UserError`.
    """
    if remote is None:
        remote = event_loop.run(load_remote_packs(config)) if list_addresses(config) else {}
    if not config.packs:
        pack = pack or remote.get(config.pack) or Pack.load(config.pack)
        return pack, select_tasks(pack, config)
    if config.pack != EnvironmentConfig.model_fields["pack"].default:
        raise UserError("the settings name both pack and packs: remove one of them")
    if config.tasks:
        raise UserError(
            f"tasks: name them within packs, as --set 'packs=[{{pack: {config.packs[0].pack}, tasks: [{', '.join(config.tasks[:3])}]}}]'"
        )
    sources = []
    for number, share in enumerate(config.packs):
        loaded = remote.get(share.pack) or Pack.load(share.pack)
        chosen = select_tasks(loaded, member_config(config, number), share.tags or ())
        sources.append(PackTasks(loaded, chosen, share.weight, share.name))
    tasks = mix_tasks(sources, limit=config.limit)
    return combine_packs({source.name: source.pack for source in sources}), tasks


def list_packs(config: EnvironmentConfig, pack: Pack) -> list[tuple[EnvironmentConfig, Pack]]:
    """Return each pack with its own settings: the pack itself, or the members of a combined pack."""
    if not isinstance(pack, CombinedPack):
        return [(config, pack)]
    return [(member_config(config, number), each) for number, each in enumerate(pack.members.values())]


def make_backend(pack: Pack, config: EnvironmentConfig) -> Backend:
    """Make the back end that a config names, without starting it; for a pack on a server, the connections to it. Raises `UserError` for an
    unknown name or setting."""
    if isinstance(pack, RemotePack):
        return RemoteBackend(pack.server)
    if not isinstance(config.backend, str):
        return make_mixed_backend(pack, config.backend, **config.backend_settings)
    name = config.backend
    installed = {point.name: point for point in entry_points(group="simia.backends") if point.name not in BACKENDS}
    known = [*BACKENDS, *installed]
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(known))}"
        raise UserError(f"no back end named {name!r}; {hint}")
    make: BackendMaker = BACKENDS[name] if name in BACKENDS else installed[name].load()
    return make(pack, **config.backend_settings)


def find_simulator(backend: Backend) -> simulated.SimulatedBackend | None:
    """Return the simulated back end, or the simulated part of one; None if no model plays tools."""
    found = getattr(backend, "simulated", backend)
    return found if isinstance(found, simulated.SimulatedBackend) else None
