"""The simulated back end: one engine, one set of prompts and one table of shared answers for all episodes of a pack."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import orjson
import zstandard

from simia.config import parse_config
from simia.envs.worlds.executable import ExecutableBackend, make_executable_backend
from simia.envs.worlds.executable_settings import ExecutableSettings
from simia.envs.worlds.simulated.agentworld import AgentWorldFeedback, TerminalFeedback
from simia.envs.worlds.simulated.brief import BriefFeedback
from simia.envs.worlds.simulated.feedback import AnsweredCall, Feedback
from simia.envs.worlds.simulated.held_state import HeldState, share_tables
from simia.envs.worlds.simulated.settings import SimulatedSettings
from simia.envs.worlds.simulated.state_view import StateRenderer
from simia.envs.worlds.simulated.stateful_world import StatefulWorld
from simia.envs.worlds.simulated.tool_sources import ToolSources
from simia.envs.worlds.simulated.world import SharedAnswers, SimulatedWorld
from simia.errors import UserError
from simia.event_loop import start_shared
from simia.keyed_changes import list_table_names
from simia.kit import SECONDS_A_CALL
from simia.llm.engine import Engine
from simia.llm.types import Request
from simia.pack import Pack
from simia.pack_files import read_state
from simia.prompt_quoting import escape_unprintable, quote_label
from simia.quality.entity_ledger import EntityLedger
from simia.state import merge_patch
from simia.task import By, Task
from simia.terminal import write_count
from simia.tool import SchemaError, ToolSpec, compile_schema
from simia.trajectory import ToolCall, digest

log = logging.getLogger(__name__)
DIALECTS: dict[str, type[Feedback]] = {
    "simia": Feedback,
    "brief": BriefFeedback,
    "agentworld-mcp": AgentWorldFeedback,
    "agentworld-terminal": TerminalFeedback,
}
"""How a model can be asked: each writes the prompts of a pack and reads the replies."""
STATE_SETTINGS = ("stateful", "compute", "state_tokens")  # left out of the digest of a world without a state
ROW_CHARS_A_TOKEN = 2.4  # characters per token of rows, which are full of keys, dates and punctuation
SOURCE_CHARACTERS = 24_000  # characters of the source of a called tool with its helpers
STATES = 256  # initial states that are kept
KEPT = 65_536  # latest answers kept for sharing within a group


class SimulatedBackend:
    """Opens simulated worlds of one pack."""

    def __init__(
        self, pack: Pack, *, engine: Engine | None = None, code: ExecutableBackend | None = None, **settings: Any
    ) -> None:
        """
        Arguments:
            engine: the engine of the simulating model; its owner closes it. `use` can set it later.
            code: the pack's code for a world that holds a state; its owner closes it. Unset, it is made if the pack has code.
            settings: `SimulatedSettings`, and `ExecutableSettings` for the code.
        """
        if not pack.tools:
            raise UserError(f"pack {pack.name} has no tools to simulate: name their file in pack.yaml")
        self.pack = pack
        own = {name: settings.pop(name) for name in ExecutableSettings.model_fields.keys() & settings.keys()}
        self.settings = parse_config(SimulatedSettings, settings, where="the simulated back end")
        self.feedback = DIALECTS[self.settings.dialect](pack, self.settings)
        self.specs: dict[By, dict[str, ToolSpec]] = {
            "agent": {tool.name: tool for tool in pack.tools},
            "user": {tool.name: tool for tool in pack.user_tools},
        }
        self.numbers: Iterator[int] = itertools.count()
        self._returns = {tool.name: compile_result_schema(tool) for tool in (*pack.tools, *pack.user_tools)}
        self._tables: Any = None
        self.code: ExecutableBackend | None = None
        self._owns_code = False
        self.sources: ToolSources | None = None
        self.renderer = StateRenderer(pack.state_schema, int(self.settings.state_tokens * ROW_CHARS_A_TOKEN))
        self._initial: OrderedDict[tuple[str, int, str], dict[str, Any]] = OrderedDict()
        if self.settings.holds_state:
            self._prepare_state(code, own)
        elif own:
            raise UserError(
                f"the simulated back end runs no code, so it has no setting {', '.join(sorted(own))}: leave it out"
            )
        elif self.settings.knowledge == "state":
            self._tables = load_tables(pack)
            describe_initial_state(
                pack, Task(id="-"), self._tables, self.settings
            )  # raises where the tables do not fit a prompt
        hidden = {"observations", "replay"}
        if self.settings.dialect == "simia":  # keeps the keys of replies that were stored before other dialects existed
            hidden |= {"dialect", "shell_prompt", "duration"}
        if not self.settings.holds_state:
            hidden |= {*STATE_SETTINGS}
        self.identity = digest(
            # Shown observations are in each world's digest instead, so that stored replies to prompts without them are still found.
            [
                self.settings.model_dump(exclude=hidden),
                self.feedback.system,
                self.feedback.hashes,
                self._tables,
            ]
        )
        self._shared: OrderedDict[str, asyncio.Future[SharedAnswers]] = OrderedDict()
        self._engine = engine

    def _prepare_state(self, code: ExecutableBackend | None, own: dict[str, Any]) -> None:
        """Prepare the pack's code and tables. Raises `UserError` where the pack lacks what the settings need."""
        pack, settings = self.pack, self.settings
        if pack.executable is not None and pack.executable.isolation != "sandbox":
            self.code, self._owns_code = code or make_executable_backend(pack, **own), code is None
            self.sources = ToolSources(pack, SOURCE_CHARACTERS)
        else:  # its state is files, or it has no code
            self._tables = load_tables(pack)
        names = [tool.name for tool in (*pack.tools, *pack.user_tools)]
        if settings.knowledge == "code" and not (self.sources and any(map(self.sources.find_source, names))):
            raise UserError(f"pack {pack.name} has no source code of its tools in its folder: use knowledge=state")
        if settings.compute == "reads" and self.code is None:
            raise UserError(f"pack {pack.name} has no code that answers look-ups: leave out compute=reads")

    def is_executed(self, name: str, by: By) -> bool:
        """Whether the pack's code answers this tool: only with `compute: reads`, and only if the tool does not write."""
        if self.settings.compute != "reads" or self.code is None:
            return False
        writes = self.code.writes.get(by, {}).get(name)
        return writes is False or (
            writes is not None and not self.code.by_convention and self.specs[by][name].writes == []
        )

    def write_request(
        self,
        task: Task,
        history: Sequence[AnsweredCall],
        by: By,
        call: ToolCall,
        state: dict[str, Any],
        calls: int,
    ) -> list[dict[str, Any]]:
        """The messages of the request for one call on a held state. `calls`: number of earlier calls, which sets the clock."""
        view = self.renderer.render(state, self.find_tables(call.name, by, state), call.arguments or {})
        source = self.sources.find_source(call.name) if self.sources and self.settings.knowledge == "code" else ""
        how = self.pack.executable
        time = (how.clock + timedelta(seconds=SECONDS_A_CALL * calls)).isoformat() if how and how.clock else ""
        return self.feedback.state_messages(task, history, (by, call), state=view.text, source=source, time=time)

    def find_tables(self, name: str, by: By, state: dict[str, Any]) -> set[str] | None:
        """Return the tables that a tool can read or write: the declared ones, else those that its source names and those that it
        declares to write; None: unknown."""
        spec, writes = self.specs[by][name], {*(self.specs[by][name].writes or [])}
        if spec.reads is not None:
            return {*spec.reads} | writes
        named = self.sources.find_attributes(name) if self.sources else frozenset[str]()
        found = {*list_table_names(state, self.pack.state_schema)} & named
        return found | writes if found else None

    def use(self, engine: Engine) -> None:
        """Ask this engine from now on; its owner closes it."""
        self._engine = engine

    def list_unsolved(self, tasks: Sequence[Task]) -> list[Task]:
        """Return the tasks without a solution, if the settings show solutions in the prompts; else none."""
        if self.settings.knowledge != "reference":
            return []
        return [task for task in tasks if not task.solved and task.id not in self.pack.references]

    def check_references(self, tasks: Sequence[Task], where: str = "") -> None:
        """Raise `UserError` if the settings show the tasks' references in the prompts and none of these tasks has one.

        `where`: the section of the settings, for the message, as `stage.`.
        """
        without = self.list_unsolved(tasks)
        if tasks and len(without) == len(tasks):
            raise UserError(
                f"pack {self.pack.name}: knowledge=reference, and none of {write_count(len(tasks), 'task')} has a reference: set "
                f"{where}backend_settings.knowledge=schema, or give the tasks a script or a reference"
            )
        if without:
            log.warning(
                "pack %s: %d of %d tasks have no reference: their simulator is shown the task without a solution",
                self.pack.name,
                len(without),
                len(tasks),
            )

    @property
    def engine(self) -> Engine:
        """The engine of the model that simulates."""
        if self._engine is None:
            raise UserError("the simulated back end has no model: open it with `open_environment`, or give an `engine`")
        return self._engine

    async def start(self) -> None:
        """Start the pack's code, if a held state needs it; `open_environment` starts the model."""
        if self.code is not None and self._owns_code:
            await self.code.start()

    async def open(
        self, task: Task, *, seed: int = 0, group: str | None = None, snapshot: bytes | None = None
    ) -> SimulatedWorld:
        """Open an episode's world; with `snapshot`, continue from there."""
        if self.settings.holds_state:
            return await self._open_stateful(task, seed, group, snapshot)
        told, ledger = "", EntityLedger()
        if self._tables is not None:
            told, ledger = describe_initial_state(self.pack, task, self._tables, self.settings)
        if snapshot is None:
            return SimulatedWorld(self, task, ledger, seed=seed, group=group, known=told)
        body = json.loads(zstandard.decompress(snapshot))
        if body.get("kind") != "simulated" or body.get("version") != 1:
            raise UserError("this snapshot is of another world: restart the episode")
        world = SimulatedWorld(
            self, task, EntityLedger.load(body["first"]), seed=body["seed"], group=body["group"], known=told
        )
        world.replay(body["history"])
        return world

    async def _open_stateful(self, task: Task, seed: int, group: str | None, snapshot: bytes | None) -> StatefulWorld:
        """Open a world that holds the tables. Raises `UserError` if the task's state is not an object of tables."""
        body: dict[str, Any] = {}
        if snapshot is not None:
            body = json.loads(zstandard.decompress(snapshot))
            if body.get("kind") != "stateful" or body.get("version") != 1:
                raise UserError("this snapshot is of another world: restart the episode")
            seed, group = body["seed"], body["group"]
        initial = await self._find_initial_state(task, seed)
        held = HeldState(
            self.pack, task, seed, initial, share_tables(body["state"], initial) if body else initial, self.code
        )
        found = StatefulWorld(self, task, held, seed=seed, group=group, calls=body.get("calls", 0))
        if body:
            found.restore(body)
        return found

    async def _find_initial_state(self, task: Task, seed: int) -> dict[str, Any]:
        """Return the task's initial state, loaded by the pack's code if there is any. The latest states are cached. Raises `UserError`."""
        place = (task.id, seed, digest(task.initial))
        if place in self._initial:
            self._initial.move_to_end(place)
            return self._initial[place]
        if self.code is not None:
            world = await self.code.open(task, seed=seed)
            try:
                found = await world.initial()
            finally:
                await world.close()
        else:
            found = make_initial_state(task, self._tables)
        if not isinstance(found, dict):
            raise UserError(
                f"pack {self.pack.name}: its state is not an object of tables: use knowledge=reference or knowledge=schema"
            )
        found = self._initial[place] = share_tables(found, next(iter(self._initial.values()), {}))
        if len(self._initial) > STATES:
            self._initial.popitem(last=False)
        return found

    def request(self, messages: list[dict[str, Any]], most: int | None) -> Request:
        settings, form = self.settings, None
        if self.engine.backend.structured and self.feedback.form is not None:
            form = {"type": "json_schema", "json_schema": {"name": "answers", "schema": self.feedback.form}}
        return Request(
            messages=messages, temperature=settings.temperature, max_tokens=most, response_format=form,
            extra_body=dict(settings.extra),
        )  # fmt: skip

    async def shared(self, place: str, make: Callable[[], Awaitable[SharedAnswers]]) -> SharedAnswers:
        """Make the answers once per group, world and calls, even if all episodes of a group ask at the same time."""
        found = self._shared.get(place)
        if found is None:
            while len(self._shared) >= KEPT:
                self._shared.popitem(last=False)
            found = self._shared[place] = start_shared(make())
        try:
            return await asyncio.shield(found)
        except BaseException:
            if found.done() and self._shared.get(place) is found:
                del self._shared[place]
            raise

    def find_misfits(self, name: str, content: Any) -> list[str]:
        """Return where a result breaks the result schema that its tool declares."""
        schema = self._returns.get(name)
        if schema is None:
            return []
        return [
            f"the result of {name} breaks its schema: {where or 'it'}: {what}"[:300]
            for where, what in schema.errors(content)[:3]
        ]

    async def close(self) -> None:
        """Close the pack's code; the engine is its owner's."""
        if self.code is not None and self._owns_code:
            await self.code.close()


def compile_result_schema(tool: ToolSpec) -> Any:
    """Compile the schema of what the tool returns; None where none is declared, or one that cannot be used."""
    try:
        return compile_schema(tool.result_schema) if isinstance(tool.result_schema, dict) else None
    except SchemaError:  # an invalid schema is ignored
        return None


def load_tables(pack: Pack) -> Any:
    """The pack's tables. Raises `UserError` where there are none."""
    path = pack.path_of("state")
    if path is None or not path.is_file() or path.suffix != ".json":
        raise UserError(f"pack {pack.name} has no JSON file of its state: use knowledge=reference or knowledge=schema")
    return read_state(path)


def describe_initial_state(
    pack: Pack, task: Task, tables: Any, settings: SimulatedSettings
) -> tuple[str, EntityLedger]:
    """Describe the task's initial state, as text for the prompt and as a ledger. Raises `UserError` if the text does not fit a
    prompt."""
    state = make_initial_state(task, tables)
    text = "\n".join(
        f"{quote_label(table)} {quote_label(key)}: {escape_unprintable(orjson.dumps(row).decode())}"
        for table, rows in state.items()
        for key, row in (rows.items() if isinstance(rows, dict) else [("", rows)])
    )
    if len(text) > settings.context * 2:
        raise UserError(
            f"pack {pack.name}: its state of {len(text):,} characters does not fit a prompt of {settings.context:,} tokens: raise `context`"
        )
    return text, EntityLedger.from_state(state)


def make_initial_state(task: Task, tables: Any) -> Any:
    """Return the task's initial state: its patch applied to its own state, or to the pack's tables, as the pack's code loads it."""
    return merge_patch(task.initial.get("state", tables), task.initial.get("patch", {}))


def make_simulated_backend(pack: Pack, **settings: Any) -> SimulatedBackend:
    """Make the back end `simulated`, not started. Raises `UserError` for unknown settings."""
    return SimulatedBackend(pack, **settings)
