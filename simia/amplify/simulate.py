"""From an item to a request, and from a stored reply to a judged trajectory.

Both are pure: an item's request follows from the run's config and its ord, a result from the reply. That is what lets a
resume find its own replies and `simia runs recheck` derive every result again after a parser or a check has changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import orjson

from simia import __version__
from simia.amplify import hint, prompt
from simia.amplify.check import check
from simia.amplify.dedupe import content_hash
from simia.amplify.parse import parse_reply
from simia.amplify.schema import trajectory_schema
from simia.amplify.seeds import Seeds
from simia.amplify.settings import AmplifyConfig
from simia.amplify.view import View
from simia.errors import Code, Issue
from simia.llm.types import Reply, Request
from simia.runs import Item
from simia.trajectory import VERSION, End, Provenance, Trajectory, digest

HEAD: set[str] = {"system", "tools", "user_tools"}
MOST_SCHEMAS = 1000
STAGES = ["prefilter", "simulate", "repair", "check", "dedupe"]


@dataclass(slots=True)
class Result:
    """What became of one reply. Accepted or not is decided later, in ord order."""

    trajectory: Trajectory | None
    issues: list[Issue] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    content_hash: str | None = None
    head: str | None = None
    rows: list[dict[str, Any]] | None = None

    def body(self) -> bytes:
        """As it is stored: JSON. The trajectory's head (system text and tools) is named, not written (`Ledger.head`)."""
        rest = {"issues": [issue.model_dump(mode="json") for issue in self.issues], "repairs": self.repairs}
        if self.trajectory is None:
            return orjson.dumps({"trajectory": None} | rest)
        without = HEAD | {"messages"} if self.rows is not None else HEAD
        row = {"version": VERSION, **self.trajectory.model_dump(mode="json", exclude_defaults=True, exclude=without)}
        if self.rows is not None:
            row["messages"] = self.rows
        return orjson.dumps({"trajectory": row, **rest, "head": self.head})


def head(t: Trajectory) -> dict[str, Any]:
    """What all trajectories of one seed share, and what would be most of each row."""
    return t.model_dump(mode="json", exclude_defaults=True, include=HEAD)


Ask = Callable[[Request, str], Awaitable[tuple[Reply, str]]]
"""(request, draw) → (reply, its key)."""


class Asked:
    """Asks for one item and counts its draws: i000007.0, i000007.1, …"""

    def __init__(self, ask: Ask, item: str) -> None:
        self.keys: list[str] = []
        self._ask, self._item = ask, item

    async def __call__(self, request: Request) -> Reply:
        reply, key = await self._ask(request, f"{self._item}.{len(self.keys)}")
        self.keys.append(key)
        return reply


class Simulator:
    """Knows the run's config and seeds; holds no state that changes."""

    def __init__(self, config: AmplifyConfig, seeds: Seeds, *, structured: bool, run_id: str = "") -> None:
        self.config = config
        self.seeds = seeds
        self.run_id = run_id
        asked = config.reply.form
        self.form: prompt.Form = "tagged" if asked == "tagged" or (asked == "auto" and not structured) else "json"
        self.constrained = self.form == "json" and structured
        self.renderer = prompt.Renderer(config.prompt, self.form)
        self._heads: dict[str, str] = {}
        self._schemas: dict[Hashable, dict[str, Any]] = {}
        self.ids = [seed.id for seed in seeds.order]  # a hash of all it holds: made once
        self.by_id = dict(zip(self.ids, seeds.order, strict=True))
        # The shortest seeds are the further shots: they cost least and leave the form plain to see.
        self.fixed = {
            name: sorted(group, key=lambda seed: len(self.renderer.exemplar(seed)))[: config.prompt.shots]
            for name, group in seeds.groups.items()
        }

    def item(self, ord_: int) -> Item:
        """The plan for one place in the run: seeds in turn, pass after pass (paper §2.2, multiple generation passes)."""
        round_, at = divmod(ord_, len(self.ids))
        seed = self.seeds.order[at]
        spec = {"seed": self.ids[at], "task": seed.task_id, "pack": seed.pack, "pass": round_}
        return Item(id=f"i{ord_:06d}", ord=ord_, spec=spec)

    def prompt(self, item: Item) -> prompt.Prompt:
        seed = self.by_id[item.spec["seed"]]
        said = hint.hint(seed, self.number(item)) if self.config.prompt.hints else ""
        return self.renderer.render(seed, fixed=self.fixed.get(seed.pack or "", ()), hint=said)

    def request(self, item: Item) -> Request:
        """The first request of an item."""
        return self._request(item, self.prompt(item).messages)

    def _request(self, item: Item, messages: list[dict[str, Any]]) -> Request:
        sampling = self.config.sampling
        return Request(
            messages=messages,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=sampling.max_tokens,
            reasoning_effort=sampling.reasoning_effort,
            seed=self.number(item) if sampling.seeded else None,
            response_format=self._schema(item),
            extra_body=sampling.extra,
        )

    def _schema(self, item: Item) -> dict[str, Any] | None:
        if not self.constrained:
            return None
        seed, reply = self.by_id[item.spec["seed"]], self.config.reply
        # A free trajectory's schema depends on the tools alone; large, and made once.
        key = item.spec["seed"] if reply.shape == "seed" else tuple(id(tool) for tool in seed.tools)
        known = self._schemas.get(key)
        if known is None:
            if len(self._schemas) >= MOST_SCHEMAS:
                self._schemas.clear()
            body = trajectory_schema(seed.tools, seed, reply.shape, reasoning=reply.reasoning)
            known = {"type": "json_schema", "json_schema": {"name": "trajectory", "schema": body}}
            self._schemas[key] = known
        return known

    async def produce(self, item: Item, ask: Ask, *, model: str) -> Result:
        """One item, from its prompt to its judged trajectory. `ask` may come from an endpoint or from the store: given the
        same replies the result is the same, which is what `recheck` and a resume stand on."""
        asked = Asked(ask, item.id)
        rendered = self.prompt(item)
        reply = await asked(self._request(item, rendered.messages))
        return self.judge(item, reply, model=model, keys=asked.keys, files=rendered.files)

    def number(self, item: Item) -> int:
        """The item's own random number: from the run's seed and its ord, whatever ran before it."""
        return self.config.seed * 1_000_003 + item.ord

    def judge(self, item: Item, reply: Reply, *, model: str, keys: list[str], files: dict[str, str]) -> Result:
        """Parse, repair and check one reply. A fault of ours becomes a finding on this record, never the end of the run."""
        try:
            return self._judge(item, reply, model=model, keys=keys, files=files)
        except Exception as error:
            detail = f"{type(error).__name__}: {error}"
            return Result(None, [Issue(code=Code.INTERNAL, where=item.id, detail=detail[:300])])

    def _judge(self, item: Item, reply: Reply, *, model: str, keys: list[str], files: dict[str, str]) -> Result:
        seed = self.by_id[item.spec["seed"]]
        if reply.finish == "content_filter":
            return Result(None, [Issue(code=Code.CONTENT_FILTER)])
        parsed = parse_reply(reply.text, reply.reasoning, form="auto")
        cut = [Issue(code=Code.TRUNCATED, detail="the reply reached its token limit")] if reply.truncated else []
        if parsed.issues or not parsed.messages:
            return Result(None, cut + parsed.issues, parsed.repairs)
        trajectory = Trajectory(
            pack=seed.pack,
            task_id=f"{self.run_id}/{item.id}" if self.run_id else item.id,
            system=seed.system,
            tools=seed.tools,
            messages=parsed.messages,
            end=End(
                kind="truncated" if reply.truncated else "terminated", code=Code.TRUNCATED if reply.truncated else None
            ),
            usage=reply.usage,
            provenance=Provenance(
                run=self.run_id or None,
                item=item.id,
                seed_ids=[seed.task_id or seed.id],
                model=model,
                prompts=files,
                reply_keys=list(keys),
                stages=STAGES,
                simia=__version__,
                licence=seed.provenance.licence,
                source="simulated",
            ),
        )
        ids = self.seeds.identifiers.get(seed.pack or "")
        view = View(trajectory)
        issues = cut + check(trajectory, self.config.checks, ids=ids, seed=seed, view=view)
        trajectory.issues = issues
        return Result(
            trajectory, issues, parsed.repairs, content_hash(trajectory, view), self.head_of(item), parsed.rows
        )

    def head_of(self, item: Item) -> str:
        """The hash that the system text and tools of this item's seed are stored under."""
        name = item.spec["seed"]
        known = self._heads.get(name)
        if known is None:
            known = self._heads[name] = digest(head(self.by_id[name]))
        return known
