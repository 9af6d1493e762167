"""The simulated back end: one engine, one set of prompts and one book of shared answers for all episodes of a pack."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import orjson
import zstandard
from pydantic import TypeAdapter

from simia.config import parse
from simia.envs.rewards.judge import Oracle, OracleSettings
from simia.envs.worlds.simulated.feedback import FORM, Feedback
from simia.envs.worlds.simulated.settings import SimulatedSettings
from simia.envs.worlds.simulated.world import SharedAnswers, SimulatedWorld
from simia.errors import UserError
from simia.llm.backends import LLMSettings, price_for
from simia.llm.backends import open_backend as open_model
from simia.llm.engine import Engine, Limits, PassingJournal
from simia.llm.types import Request
from simia.pack import Pack
from simia.quality.entity_ledger import Ledger
from simia.quotation import escape_unprintable, quote_label
from simia.reward import Scorer
from simia.state import merge_patch
from simia.task import By, Task
from simia.tool import SchemaError, ToolSpec, compile_schema
from simia.trajectory import digest

KEPT = 65_536  # answers that a group may share, the latest


class SimulatedBackend:
    """`engine`: of the model that simulates; whoever opened it closes it. Without one, `llm` says which model, and it is ours.

    `scorer`: who judges its episodes. Unset: an oracle that asks the same model; `oracle` holds its settings.
    """

    def __init__(
        self,
        pack: Pack,
        *,
        engine: Engine | None = None,
        llm: dict[str, Any] | LLMSettings | None = None,
        limits: Limits | None = None,
        scorer: Scorer | None = None,
        oracle: dict[str, Any] | OracleSettings | None = None,
        **settings: Any,
    ) -> None:
        if not pack.tools:
            raise UserError(f"pack {pack.name} has no tools to simulate: name their file in pack.yaml")
        self.pack = pack
        self.settings = parse(SimulatedSettings, settings, where="the simulated back end")
        self.feedback = Feedback(pack, self.settings)
        self.specs: dict[By, dict[str, ToolSpec]] = {
            "agent": {tool.name: tool for tool in pack.tools},
            "user": {tool.name: tool for tool in pack.user_tools},
        }
        self.numbers: Iterator[int] = itertools.count()
        self._returns = {tool.name: schema_of(tool) for tool in (*pack.tools, *pack.user_tools)}
        self._tables: Any = None
        if self.settings.knowledge == "state":
            self._tables = state_of(pack)
            known(
                pack, Task(id="-"), self._tables, self.settings
            )  # too much for a prompt is said before there is a run
        self.identity = digest([self.settings.model_dump(), self.feedback.system, self.feedback.hashes, self._tables])
        self._shared: OrderedDict[str, asyncio.Future[SharedAnswers]] = OrderedDict()
        self._engine: Engine | None = None
        self._own = engine is None
        self._judging = (
            oracle if isinstance(oracle, OracleSettings) else parse(OracleSettings, oracle or {}, where="the oracle")
        )
        self.scorer = scorer
        self._llm = llm
        self._limits = limits or Limits()
        if engine is not None:
            self.use(engine)

    def use(self, engine: Engine) -> None:
        """The model that simulates from now on; closed by whoever opened it."""
        self._engine, self._own = engine, False
        self.scorer = self.scorer or Oracle(engine, self.pack, self._judging)

    @property
    def engine(self) -> Engine:
        assert self._engine is not None, "start the back end first"
        return self._engine

    async def start(self) -> None:
        """Open the model, where it is ours to open."""
        if self._engine is None:
            chosen: LLMSettings = TypeAdapter(LLMSettings).validate_python(self._llm or {"kind": "embedded"})
            model = open_model(chosen)
            await model.start()
            self.use(Engine(model, PassingJournal(), self._limits, price_for(chosen)))
            self._own = True

    async def open(
        self, task: Task, *, seed: int = 0, group: str | None = None, snapshot: bytes | None = None
    ) -> SimulatedWorld:
        """An episode's world; with `snapshot` one that goes on from there."""
        await self.start()
        told, ledger = "", Ledger()
        if self._tables is not None:
            told, ledger = known(self.pack, task, self._tables, self.settings)
        if snapshot is None:
            return SimulatedWorld(self, task, ledger, seed=seed, group=group, state=told)
        body = json.loads(zstandard.decompress(snapshot))
        if body.get("kind") != "simulated" or body.get("version") != 1:
            raise UserError("this snapshot is of another world: start the episode anew")
        world = SimulatedWorld(
            self, task, Ledger.load(body["first"]), seed=body["seed"], group=body["group"], state=told
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

    def misfits(self, name: str, content: Any) -> list[str]:
        """Where a result breaks the schema that its tool declares for results."""
        schema = self._returns.get(name)
        if schema is None:
            return []
        return [
            f"the result of {name} breaks its schema: {where or 'it'}: {what}"[:300]
            for where, what in schema.errors(content)[:3]
        ]

    async def close(self) -> None:
        if self._own and self._engine is not None:
            await self._engine.close()
            await self._engine.backend.close()
            self._engine = None


def schema_of(tool: ToolSpec) -> Any:
    """Compile the schema of what the tool returns; None where none is declared, or one that cannot be used."""
    try:
        return compile_schema(tool.returns) if isinstance(tool.returns, dict) else None
    except SchemaError:  # a foreign one that cannot be used says nothing
        return None


def state_of(pack: Pack) -> Any:
    """The pack's tables. Raises `UserError` where there are none."""
    path = pack.path_of("state")
    if path is None or not path.is_file() or path.suffix != ".json":
        raise UserError(f"pack {pack.name} has no state.json to be known: use knowledge=reference or knowledge=schema")
    return orjson.loads(path.read_bytes())


def known(pack: Pack, task: Task, tables: Any, settings: SimulatedSettings) -> tuple[str, Ledger]:
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
    return text, Ledger.of_state(state)


def open_backend(pack: Pack, **settings: Any) -> SimulatedBackend:
    """For the entry point `simia.backends`."""
    return SimulatedBackend(pack, **settings)
