"""The simulated back end: one engine, one set of prompts and one table of shared answers for all episodes of a pack."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import orjson
import zstandard

from simia.config import parse_config
from simia.envs.worlds.simulated.feedback import FORM, Feedback
from simia.envs.worlds.simulated.settings import SimulatedSettings
from simia.envs.worlds.simulated.world import SharedAnswers, SimulatedWorld
from simia.errors import UserError
from simia.llm.engine import Engine
from simia.llm.types import Request
from simia.pack import Pack
from simia.prompt_quoting import escape_unprintable, quote_label
from simia.quality.entity_ledger import EntityLedger
from simia.state import merge_patch
from simia.task import By, Task
from simia.tool import SchemaError, ToolSpec, compile_schema
from simia.trajectory import digest

log = logging.getLogger(__name__)
KEPT = 65_536  # answers that a group may share, the latest


class SimulatedBackend:
    """Opens simulated worlds of one pack."""

    def __init__(self, pack: Pack, *, engine: Engine | None = None, **settings: Any) -> None:
        """`engine`: asks the model that simulates; its owner closes it. It may come later, by `use`. `settings`: `SimulatedSettings`."""
        if not pack.tools:
            raise UserError(f"pack {pack.name} has no tools to simulate: name their file in pack.yaml")
        self.pack = pack
        self.settings = parse_config(SimulatedSettings, settings, where="the simulated back end")
        self.feedback = Feedback(pack, self.settings)
        self.specs: dict[By, dict[str, ToolSpec]] = {
            "agent": {tool.name: tool for tool in pack.tools},
            "user": {tool.name: tool for tool in pack.user_tools},
        }
        self.numbers: Iterator[int] = itertools.count()
        self._returns = {tool.name: compile_result_schema(tool) for tool in (*pack.tools, *pack.user_tools)}
        self._tables: Any = None
        if self.settings.knowledge == "state":
            self._tables = read_state(pack)
            describe_initial_state(
                pack, Task(id="-"), self._tables, self.settings
            )  # raises where the tables do not fit a prompt
        self.identity = digest(
            # The observations that are shown are part of a world's digest, so that replies to prompts without them are found.
            [
                self.settings.model_dump(exclude={"observations", "replay"}),
                self.feedback.system,
                self.feedback.hashes,
                self._tables,
            ]
        )
        self._shared: OrderedDict[str, asyncio.Future[SharedAnswers]] = OrderedDict()
        self._engine = engine

    def use(self, engine: Engine) -> None:
        """Ask this engine from now on; its owner closes it."""
        self._engine = engine

    def check_references(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` where the prompts are to show the tasks' references and none of these tasks has one."""
        if self.settings.knowledge != "reference" or not tasks:
            return
        without = [task for task in tasks if not task.solved and task.id not in self.pack.references]
        if len(without) == len(tasks):
            raise UserError(
                f"pack {self.pack.name}: knowledge=reference, and none of {len(tasks)} tasks has a reference: set "
                "backend_settings.knowledge=schema, or give the tasks a script or a reference"
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
        """Do nothing: `open_environment` starts the model."""

    async def open(
        self, task: Task, *, seed: int = 0, group: str | None = None, snapshot: bytes | None = None
    ) -> SimulatedWorld:
        """Open an episode's world; with `snapshot` one that goes on from there."""
        told, ledger = "", EntityLedger()
        if self._tables is not None:
            told, ledger = describe_initial_state(self.pack, task, self._tables, self.settings)
        if snapshot is None:
            return SimulatedWorld(self, task, ledger, seed=seed, group=group, state=told)
        body = json.loads(zstandard.decompress(snapshot))
        if body.get("kind") != "simulated" or body.get("version") != 1:
            raise UserError("this snapshot is of another world: restart the episode")
        world = SimulatedWorld(
            self, task, EntityLedger.load(body["first"]), seed=body["seed"], group=body["group"], state=told
        )
        world.replay(body["history"])
        return world

    def request(self, messages: list[dict[str, Any]], most: int | None) -> Request:
        settings, form = self.settings, None
        if self.engine.backend.structured:
            form = {"type": "json_schema", "json_schema": {"name": "answers", "schema": FORM}}
        return Request(
            messages=messages, temperature=settings.temperature, max_tokens=most, response_format=form,
            extra_body=dict(settings.extra),
        )  # fmt: skip

    async def shared(self, place: str, make: Callable[[], Awaitable[SharedAnswers]]) -> SharedAnswers:
        """Asked once for a group, a world and its calls, also when a whole group asks at the same time."""
        found = self._shared.get(place)
        if found is None:
            while len(self._shared) >= KEPT:
                self._shared.popitem(last=False)
            found = self._shared[place] = asyncio.ensure_future(make())
        try:
            return await asyncio.shield(found)
        except BaseException:
            if found.done() and self._shared.get(place) is found:
                del self._shared[place]
            raise

    def find_misfits(self, name: str, content: Any) -> list[str]:
        """Where a result breaks the schema that its tool declares for results."""
        schema = self._returns.get(name)
        if schema is None:
            return []
        return [
            f"the result of {name} breaks its schema: {where or 'it'}: {what}"[:300]
            for where, what in schema.errors(content)[:3]
        ]

    async def close(self) -> None:
        """Do nothing: the engine is its owner's."""


def compile_result_schema(tool: ToolSpec) -> Any:
    """Compile the schema of what the tool returns; None where none is declared, or one that cannot be used."""
    try:
        return compile_schema(tool.result_schema) if isinstance(tool.result_schema, dict) else None
    except SchemaError:  # a foreign one that cannot be used says nothing
        return None


def read_state(pack: Pack) -> Any:
    """The pack's tables. Raises `UserError` where there are none."""
    path = pack.path_of("state")
    if path is None or not path.is_file() or path.suffix != ".json":
        raise UserError(f"pack {pack.name} has no state.json to be known: use knowledge=reference or knowledge=schema")
    return orjson.loads(path.read_bytes())


def describe_initial_state(
    pack: Pack, task: Task, tables: Any, settings: SimulatedSettings
) -> tuple[str, EntityLedger]:
    """Where the task begins: its own patch over the pack's tables, in words and for the ledger. Raises `UserError` where that does
    not fit a prompt."""
    state: Any = task.initial.get("state") or merge_patch(tables, task.initial.get("patch", {}))
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


def make_simulated_backend(pack: Pack, **settings: Any) -> SimulatedBackend:
    """Make the back end `simulated`, not started. Raises `UserError` for unknown settings."""
    return SimulatedBackend(pack, **settings)
