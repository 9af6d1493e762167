"""Make an item's request, and a checked trajectory from the stored reply.

Both are pure: a planned item determines its request, and the reply determines the result. A resume therefore finds its own
replies, and `simia runs recheck` derives every result again after a parser or a check has changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import orjson

from simia.amplification.fresh_values import render_fresh_values
from simia.amplification.model_mix import PLACE, Writer, choose_writer, get_writer
from simia.amplification.plan_source import PlanSource, render_plan
from simia.amplification.prompt import Form, Prompt, PromptRenderer
from simia.amplification.reply_schema import build_trajectory_schema
from simia.amplification.request_plan import RequestPlan, render_scenario
from simia.amplification.seeds import Seeds, group_by_pack
from simia.amplification.settings import AmplifyConfig
from simia.amplification.tool_counts import ToolCounts
from simia.amplification.value_shapes import learn_shapes
from simia.errors import Code, Issue
from simia.formats.reply import continuation
from simia.formats.reply.reply_parser import parse_reply
from simia.jobs import HEAD, Item
from simia.llm.types import LLMFault, Reply, Request
from simia.quality import suites
from simia.quality.acceptance import Outcome
from simia.quality.check import check_trajectory
from simia.quality.exact_duplicates import hash_content
from simia.quality.goals import find_unaddressed_goals
from simia.quality.selection.contamination import BenchmarkIndex
from simia.quality.selection.near_duplicates import compute_signature
from simia.quality.trajectory_view import TrajectoryView
from simia.trajectory import VERSION, End, Provenance, Trajectory, digest
from simia.version import __version__

MOST_SCHEMAS = 1000
STAGES = ["prefilter", "simulate", "repair", "check", "select"]
NO_COUNTS = ToolCounts()
LARGEST = 1 << 63  # a request's seed has 64 bits, with a sign


@dataclass(slots=True)
class SimulationResult:
    """The result of one reply. Whether it is accepted is decided later, in plan order."""

    trajectory: Trajectory | None
    issues: list[Issue] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    content_hash: str | None = None
    head: str | None = None
    rows: list[dict[str, Any]] | None = None
    signature: bytes | None = None
    verdict: dict[str, Any] | None = None
    """The verdict of the judging model, if one was asked."""

    @property
    def tools(self) -> list[str]:
        return [call.name for _, _, call in self.trajectory.calls()] if self.trajectory else []

    def outcome(self) -> Outcome:
        if self.issues:
            return Outcome(reason=str(self.issues[0].code))
        return Outcome(self.content_hash, None, self.signature, self.tools)

    def body(self) -> bytes:
        """Return the stored form as JSON. It names the trajectory's head (system text and tools), which is stored once (`Ledger.head`)."""
        rest: dict[str, Any] = {
            "issues": [issue.model_dump(mode="json") for issue in self.issues],
            "repairs": self.repairs,
        }
        if self.verdict is not None:
            rest["verdict"] = self.verdict
        if self.trajectory is None:
            return orjson.dumps({"trajectory": None} | rest)
        t = self.trajectory
        without = HEAD | {"messages"} if self.rows is not None else HEAD
        row = {"version": VERSION, **t.model_dump(mode="json", exclude_defaults=True, exclude=without)}
        if self.rows is not None:
            row["messages"] = self.rows
        return orjson.dumps({"trajectory": row, **rest, "head": self.head})


def trajectory_head(t: Trajectory) -> dict[str, Any]:
    """Return the part that all trajectories of one seed share, which would take up most of each row."""
    return t.model_dump(mode="json", exclude_defaults=True, include=HEAD)


def read_plan(item: Item) -> RequestPlan | None:
    """Return the plan that an item's spec holds; None: it has none."""
    spec = item.spec.get("plan")
    return RequestPlan.from_spec(spec) if spec is not None else None


Ask = Callable[[Item, Request, str], Awaitable[tuple[Reply, str]]]
"""(item, request, sample name) → (reply, its key)."""


def choose_suite(config: AmplifyConfig, seed: Trajectory) -> suites.Suite:
    return suites.detect_suite(seed) if config.suite == "auto" else suites.get_suite(config.suite)


def choose_form(config: AmplifyConfig, writer: Writer) -> Form:
    """Return the form of a model's replies: JSON where its endpoint obeys a schema, unless the config says otherwise."""
    asked = config.reply.form
    return "tagged" if asked == "tagged" or (asked == "auto" and not writer.structured) else "json"


class Simulator:
    """Makes requests and results from the run's config, seeds and benchmarks; holds no state that changes a result."""

    def __init__(self, config: AmplifyConfig, seeds: Seeds, *, writers: Sequence[Writer], run_id: str = "") -> None:
        self.config, self.seeds, self.run_id, self.writers = config, seeds, run_id, writers
        self.forms: list[Form] = [choose_form(config, writer) for writer in writers]
        renderers = {form: PromptRenderer(config.prompt, form) for form in self.forms}
        self.renderers = [renderers[form] for form in self.forms]
        self._schemas: dict[Hashable, dict[str, Any]] = {}
        self.hash_head = cache(lambda seed_id: digest(trajectory_head(self.by_id[seed_id])))
        self.ids = [seed.id for seed in seeds.order]  # a hash of all it holds: made once
        self.by_id = dict(zip(self.ids, seeds.order, strict=True))
        self.suites = {id_: choose_suite(config, seed) for id_, seed in self.by_id.items()}
        self.benchmarks = [
            BenchmarkIndex.load(name, paths, n=config.select.ngram) for name, paths in config.select.benchmarks.items()
        ]
        self.shapes = learn_shapes(seeds.order)
        self.plans = PlanSource(
            self.by_id,
            self.suites,
            config.plan,
            shapes=self.shapes if config.prompt.hints else None,
            shaped=config.reply.shape == "seed",
        )
        # Use the shortest seeds as further shots: they cost least and show the form most clearly.
        self.fixed = {
            name: sorted(group, key=lambda seed: len(self.renderers[0].exemplar(seed)))[: config.prompt.shots]
            for name, group in group_by_pack(seeds.order).items()
        }

    def item(self, ord_: int, counts: ToolCounts = NO_COUNTS) -> Item:
        """Plan the item of one place in the run: seeds in turn, pass after pass (paper §2.2, multiple generation passes).

        `counts`: how often accepted trajectories and plans before it use each tool, taken at a fixed place (`tool_counts`).
        """
        round_, at = divmod(ord_, len(self.ids))
        seed = self.seeds.order[at]
        spec: dict[str, Any] = {"seed": self.ids[at], "task": seed.task_id, "pack": seed.pack, "pass": round_}
        if self.config.prompt.scenarios:
            spec["plan"] = self.plans.plan(self.ids[at], ord_, self.number(ord_), counts).to_spec()
        if len(self.writers) > 1:
            spec[PLACE] = choose_writer(self.writers, self.number(ord_))
        return Item(id=f"i{ord_:06d}", ord=ord_, spec=spec)

    def prompt(self, item: Item) -> Prompt:
        seed_id = item.spec["seed"]
        seed, suite = self.by_id[seed_id], self.suites[seed_id]
        plan = read_plan(item)
        planned: int | None = None
        target = plan.target if plan else suite.hint(seed, item.ord)
        explained = "\n".join(filter(None, (target, suite.explain(target)))) if target else ""
        if plan is not None:
            planned = plan.messages if plan.goals else None
            hint = render_plan(plan, explained)
        else:
            hints = [render_fresh_values(seed, self.number(item.ord), self.shapes)] if self.config.prompt.hints else []
            if target:
                hints.append(explained)
            elif known := item.spec.get("scenario"):  # of a run before plans
                hints.append(render_scenario(known))
            hint = " ".join(filter(None, hints))
        return self.renderers[get_writer(item)].render(
            seed,
            fixed=self.fixed.get(seed.pack or "", ()),
            hint=hint,
            rules="" if suite is suites.GENERIC else suite.rules_text,
            targeted=bool(target),
            planned=planned,
        )

    def request(self, item: Item, rendered: Prompt | None = None) -> Request:
        """Return the first request of an item."""
        sampling = self.config.sampling
        return Request(
            **sampling.model_dump(exclude={"seeded", "extra"}),
            messages=(rendered or self.prompt(item)).messages,
            seed=self.number(item.ord) if sampling.seeded else None,
            response_format=self._schema(item.spec["seed"]) if self.is_constrained(item) else None,
            extra_body=sampling.extra,
        )

    def is_constrained(self, item: Item) -> bool:
        """Check whether the endpoint of an item's model holds the reply to a schema."""
        place = get_writer(item)
        return self.forms[place] == "json" and self.writers[place].structured

    def _schema(self, seed_id: str) -> dict[str, Any]:
        seed, reply = self.by_id[seed_id], self.config.reply
        required = reply.reasoning and self.suites[seed_id].reasoned
        # The schema of a free trajectory depends on the tools alone. It is large, so it is made once.
        key = seed_id if reply.shape == "seed" else (required, *(id(tool) for tool in seed.tools))
        if key not in self._schemas:
            if len(self._schemas) >= MOST_SCHEMAS:
                self._schemas.clear()
            body = build_trajectory_schema(
                seed.tools, seed, reply.shape, reasoning="required" if required else reply.reasoning
            )
            self._schemas[key] = {"type": "json_schema", "json_schema": {"name": "trajectory", "schema": body}}
        return self._schemas[key]

    def number(self, ord_: int) -> int:
        """Return an item's random number, which depends on the run's seed and the item's ord alone."""
        number = self.config.seed * 1_000_003 + ord_
        return number if abs(number) < LARGEST else number % LARGEST

    async def produce(self, item: Item, ask: Ask) -> SimulationResult:
        """Make one item's trajectory: render the prompt, ask, parse, repair, check. `ask` may be answered by an endpoint or by stored
        replies; the same replies give the same result, which `recheck` and a resume rely on."""
        rendered = self.prompt(item)
        request = self.request(item, rendered)
        reply, key = await ask(item, request, f"{item.id}.0")
        keys = [key]
        if self.config.reply.continue_cut and continuation.can_continue(reply):
            try:
                rest, key = await ask(item, continuation.build_continuation(request, reply), f"{item.id}.1")
            except LLMFault as fault:
                if not fault.exceeds_context:  # else the first reply is judged as it is: cut
                    raise
            else:
                reply = continuation.join_replies(reply, rest)
                keys.append(key)
        try:
            return self.judge(item, reply, keys=keys, files=rendered.files)
        except Exception as error:  # a bug of simia fails this item, not the run
            detail = f"{type(error).__name__}: {error}"
            return SimulationResult(None, [Issue(code=Code.INTERNAL, where=item.id, detail=detail[:300])])

    def judge(self, item: Item, reply: Reply, *, keys: list[str], files: dict[str, str]) -> SimulationResult:
        """Parse, repair and check one reply."""
        if reply.finish == "content_filter":
            return SimulationResult(None, [Issue(code=Code.CONTENT_FILTER)])
        parsed = parse_reply(reply.text, reply.reasoning, form="auto")
        seed_id = item.spec["seed"]
        seed = self.by_id[seed_id]
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
            end=End(kind="truncated", code=Code.TRUNCATED) if reply.truncated else End(),
            usage=reply.usage,
            provenance=Provenance(
                run=self.run_id or None,
                item=item.id,
                seed_ids=[seed.task_id or seed.id],
                model=self.writers[get_writer(item)].model,
                prompts=files,
                reply_keys=keys,
                stages=STAGES,
                simia=__version__,
                licence=seed.provenance.licence,
                source="simulated",
            ),
        )
        ids = self.seeds.identifiers.get(seed.pack or "")
        view = TrajectoryView(trajectory)
        issues = cut + check_trajectory(trajectory, self.config.checks, ids=ids, seed=seed, view=view)
        plan = read_plan(item) if self.config.checks.goals else None
        if plan is not None and not issues:
            issues += find_unaddressed_goals(trajectory, plan.goals)
        if not issues:  # these cost more, and a trajectory that is refused already needs no further reason
            issues += self.suites[seed_id].check(trajectory, seed, reasoning=self.config.reply.reasoning)
            issues += [issue for benchmark in self.benchmarks for issue in benchmark.findings(trajectory)]
        trajectory.issues = issues
        sketch = compute_signature(trajectory) if self.config.select.near is not None and not issues else None
        hashed = hash_content(trajectory, view)
        return SimulationResult(
            trajectory, issues, parsed.repairs, hashed, self.hash_head(seed_id), parsed.rows, sketch
        )
