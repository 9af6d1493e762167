"""From an item to a request, and from a stored reply to a judged trajectory.

Both are pure: an item's request follows from the run's config and its ord, a result from the reply. That is what lets a
resume find its own replies and `simia runs recheck` derive every result again after a parser or a check has changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import orjson

from simia.amplification import fresh_values as hint
from simia.amplification import prompt, scenario
from simia.amplification.reply_schema import build_trajectory_schema
from simia.amplification.scenario import CallGraph, ToolCounts
from simia.amplification.seeds import Seeds
from simia.amplification.settings import AmplifyConfig
from simia.errors import Code, Issue
from simia.formats.reply import continuation
from simia.formats.reply.reply_parser import parse_reply
from simia.jobs import HEAD, Item
from simia.llm.types import Reply, Request
from simia.quality import suites
from simia.quality.acceptance import Outcome
from simia.quality.check import check_trajectory
from simia.quality.exact_duplicates import hash_content
from simia.quality.selection import near_duplicates
from simia.quality.selection.contamination import BenchmarkIndex
from simia.quality.trajectory_view import TrajectoryView
from simia.trajectory import VERSION, End, Provenance, Trajectory, digest
from simia.version import __version__

MOST_SCHEMAS = 1000
STAGES = ["prefilter", "simulate", "repair", "check", "select"]
NO_COUNTS = ToolCounts()


@dataclass(slots=True)
class SimulationResult:
    """What one reply gave. Whether it is accepted is decided later, in plan order."""

    trajectory: Trajectory | None
    issues: list[Issue] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    content_hash: str | None = None
    head: str | None = None
    rows: list[dict[str, Any]] | None = None
    signature: bytes | None = None

    @property
    def tools(self) -> list[str]:
        return [call.name for _, _, call in self.trajectory.calls()] if self.trajectory else []

    def outcome(self) -> Outcome:
        if self.issues:
            return Outcome(reason=str(self.issues[0].code))
        return Outcome(self.content_hash, None, self.signature, self.tools)

    def body(self) -> bytes:
        """As it is stored: JSON. The trajectory's head (system text and tools) is named, not written (`Ledger.head`)."""
        rest = {"issues": [issue.model_dump(mode="json") for issue in self.issues], "repairs": self.repairs}
        if self.trajectory is None:
            return orjson.dumps({"trajectory": None} | rest)
        t = self.trajectory
        without = HEAD | {"messages"} if self.rows is not None else HEAD
        row = {"version": VERSION, **t.model_dump(mode="json", exclude_defaults=True, exclude=without)}
        if self.rows is not None:
            row["messages"] = self.rows
        return orjson.dumps({"trajectory": row, **rest, "head": self.head})


def trajectory_head(t: Trajectory) -> dict[str, Any]:
    """What all trajectories of one seed share, and what would be most of each row."""
    return t.model_dump(mode="json", exclude_defaults=True, include=HEAD)


Ask = Callable[[Request, str], Awaitable[tuple[Reply, str]]]
"""(request, draw) → (reply, its key)."""


class ItemAsker:
    """Asks for one item and counts its draws: i000007.0, i000007.1, …"""

    def __init__(self, ask: Ask, item: str) -> None:
        self.keys: list[str] = []
        self._ask, self._item = ask, item

    async def __call__(self, request: Request) -> Reply:
        reply, key = await self._ask(request, f"{self._item}.{len(self.keys)}")
        self.keys.append(key)
        return reply


class Simulator:
    """Makes requests and results from the run's config, seeds and benchmarks; holds no state that changes a result."""

    def __init__(
        self,
        config: AmplifyConfig,
        seeds: Seeds,
        *,
        structured: bool,
        run_id: str = "",
    ) -> None:
        self.config = config
        self.seeds = seeds
        self.run_id = run_id
        asked = config.reply.form
        self.form: prompt.Form = "tagged" if asked == "tagged" or (asked == "auto" and not structured) else "json"
        self.constrained = self.form == "json" and structured
        self.renderer = prompt.PromptRenderer(config.prompt, self.form)
        self._heads: dict[str, str] = {}
        self._schemas: dict[Hashable, dict[str, Any]] = {}
        chosen = config.suite
        self.suites = {
            id(seed): suites.detect_suite(seed) if chosen == "auto" else suites.get_suite(chosen)
            for seed in seeds.order
        }
        self.benchmarks = [
            BenchmarkIndex.load(name, paths, n=config.select.ngram) for name, paths in config.select.benchmarks.items()
        ]
        self.graphs = (
            {name: CallGraph(group) for name, group in seeds.groups.items()} if config.prompt.scenarios else {}
        )
        self.ids = [seed.id for seed in seeds.order]  # a hash of all it holds: made once
        self.by_id = dict(zip(self.ids, seeds.order, strict=True))
        # The shortest seeds are the further shots: they cost least and show the form most clearly.
        self.fixed = {
            name: sorted(group, key=lambda seed: len(self.renderer.exemplar(seed)))[: config.prompt.shots]
            for name, group in seeds.groups.items()
        }

    def item(self, ord_: int, counts: ToolCounts | None = None) -> Item:
        """The plan for one place in the run: seeds in turn, pass after pass (paper §2.2, multiple generation passes).

        `counts`: what was accepted up to a fixed place before it, from which scenarios take what is rare.
        """
        round_, at = divmod(ord_, len(self.ids))
        seed = self.seeds.order[at]
        spec: dict[str, Any] = {"seed": self.ids[at], "task": seed.task_id, "pack": seed.pack, "pass": round_}
        if self.config.prompt.scenarios:
            graph = self.graphs.get(seed.pack or "")
            planned = scenario.plan_scenario(seed, counts or NO_COUNTS, self.config.seed * 1_000_003 + ord_, graph)
            spec["scenario"] = [planned.persona, list(planned.tools), planned.twist]
        return Item(id=f"i{ord_:06d}", ord=ord_, spec=spec)

    def hint(self, item: Item) -> str:
        """What makes this item differ from the others of its seed: fresh values, and a target or a scenario."""
        seed = self.by_id[item.spec["seed"]]
        hints = [hint.render_fresh_values(seed, self.number(item))] if self.config.prompt.hints else []
        if target := self.find_target(item):
            hints.append(target)
        elif planned := item.spec.get("scenario"):
            persona, names, twist = planned
            hints.append(scenario.render_scenario(scenario.Scenario(persona, tuple(names), twist)))
        return " ".join(filter(None, hints))

    def find_target(self, item: Item) -> str:
        """What the suite wants this item to be about; a suite with targets of its own takes no scenarios."""
        seed = self.by_id[item.spec["seed"]]
        return self.suites[id(seed)].hint(seed, item.ord)

    def prompt(self, item: Item) -> prompt.Prompt:
        seed = self.by_id[item.spec["seed"]]
        suite = self.suites[id(seed)]
        return self.renderer.render(
            seed,
            fixed=self.fixed.get(seed.pack or "", ()),
            hint=self.hint(item),
            rules="" if suite is suites.GENERIC else suite.rules_text,
            targeted=bool(self.find_target(item)),
        )

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
            body = build_trajectory_schema(seed.tools, seed, reply.shape, reasoning=reply.reasoning)
            known = {"type": "json_schema", "json_schema": {"name": "trajectory", "schema": body}}
            self._schemas[key] = known
        return known

    async def produce(self, item: Item, ask: Ask, *, model: str) -> SimulationResult:
        """Make one item's trajectory: render the prompt, ask, parse, repair, check. `ask` may be answered by an endpoint or by stored
        replies; the same replies give the same result, which `recheck` and a resume rely on."""
        asked = ItemAsker(ask, item.id)
        rendered = self.prompt(item)
        request = self._request(item, rendered.messages)
        reply = await asked(request)
        if self.config.reply.continue_cut and continuation.can_continue(reply):
            reply = continuation.join_replies(reply, await asked(continuation.build_continuation(request, reply)))
        return self.judge(item, reply, model=model, keys=asked.keys, files=rendered.files)

    def number(self, item: Item) -> int:
        """The item's random number: it depends on the run's seed and the item's ord alone."""
        return self.config.seed * 1_000_003 + item.ord

    def judge(
        self, item: Item, reply: Reply, *, model: str, keys: list[str], files: dict[str, str]
    ) -> SimulationResult:
        """Parse, repair and check one reply. A bug of simia becomes a finding on this item and does not end the run."""
        if reply.finish == "content_filter":
            return SimulationResult(None, [Issue(code=Code.CONTENT_FILTER)])
        try:
            return self._judge(item, reply, model=model, keys=keys, files=files)
        except Exception as error:
            detail = f"{type(error).__name__}: {error}"
            return SimulationResult(None, [Issue(code=Code.INTERNAL, where=item.id, detail=detail[:300])])

    def _judge(
        self, item: Item, reply: Reply, *, model: str, keys: list[str], files: dict[str, str]
    ) -> SimulationResult:
        parsed = parse_reply(reply.text, reply.reasoning, form="auto")
        seed = self.by_id[item.spec["seed"]]
        cut = [Issue(code=Code.TRUNCATED, detail="the reply reached its token limit")] if reply.truncated else []
        if parsed.issues or not parsed.messages:
            return SimulationResult(None, cut + parsed.issues, parsed.repairs)
        trajectory = Trajectory(
            pack=seed.pack,
            task_id=f"{self.run_id}/{item.id}" if self.run_id else item.id,
            system=seed.system,
            tools=seed.tools,
            user_tools=seed.user_tools,
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
        view = TrajectoryView(trajectory)
        issues = cut + check_trajectory(trajectory, self.config.checks, ids=ids, seed=seed, view=view)
        if not issues:  # these cost more, and what is unsound already needs no further reason
            issues += self.suites[id(seed)].check(trajectory, seed)
            issues += [issue for benchmark in self.benchmarks for issue in benchmark.findings(trajectory)]
        trajectory.issues = issues
        return SimulationResult(
            trajectory,
            issues,
            parsed.repairs,
            hash_content(trajectory, view),
            self.hash_head(item),
            parsed.rows,
            near_duplicates.compute_signature(trajectory)
            if self.config.select.near is not None and not issues
            else None,
        )

    def hash_head(self, item: Item) -> str:
        """The hash that the system text and tools of this item's seed are stored under."""
        name = item.spec["seed"]
        known = self._heads.get(name)
        if known is None:
            known = self._heads[name] = digest(trajectory_head(self.by_id[name]))
        return known
