"""From an item to a request, and from a stored reply to a judged trajectory.

Both are pure: an item's request follows from the run's config and its ord, a result from the reply. That is what lets a
resume find its own replies and `simia runs recheck` derive every result again after a parser or a check has changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from simia import __version__
from simia.amplify import hint, prompt
from simia.amplify.check import check
from simia.amplify.dedupe import content_hash
from simia.amplify.parse import parse_reply
from simia.amplify.schema import trajectory_schema
from simia.amplify.seeds import Seeds
from simia.amplify.settings import AmplifyConfig
from simia.errors import Code, Issue
from simia.llm.types import Reply, Request
from simia.runs import Item
from simia.trajectory import End, Provenance, Trajectory

STAGES = ["prefilter", "simulate", "repair", "check", "dedupe"]


@dataclass(slots=True)
class Result:
    """What became of one reply. Accepted or not is decided later, in ord order."""

    trajectory: Trajectory | None
    issues: list[Issue] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    content_hash: str | None = None

    def body(self) -> dict[str, Any]:
        return {
            "trajectory": self.trajectory.to_row() if self.trajectory else None,
            "issues": [issue.model_dump(mode="json") for issue in self.issues],
            "repairs": self.repairs,
        }


class Simulator:
    """Knows the run's config and seeds; holds no state that changes."""

    def __init__(self, config: AmplifyConfig, seeds: Seeds, *, structured: bool, run_id: str = "") -> None:
        self.config = config
        self.seeds = seeds
        self.run_id = run_id
        asked = config.reply.form
        self.form: prompt.Form = "tagged" if asked == "tagged" or (asked == "auto" and not structured) else "json"
        self.constrained = self.form == "json" and structured
        self.by_id = {seed.id: seed for seed in seeds.order}
        # The shortest seeds are the further shots: they cost least and leave the form plain to see.
        self.fixed = {
            name: sorted(group, key=lambda seed: len(prompt.exemplar(seed, self.form)))[: config.prompt.shots]
            for name, group in seeds.groups.items()
        }

    def item(self, ord_: int) -> Item:
        """The plan for one place in the run: seeds in turn, pass after pass (paper §2.2, multiple generation passes)."""
        seed = self.seeds.order[ord_ % len(self.seeds.order)]
        spec = {"seed": seed.id, "task": seed.task_id, "pack": seed.pack, "pass": ord_ // len(self.seeds.order)}
        return Item(id=f"i{ord_:06d}", ord=ord_, spec=spec)

    def draw(self, item: Item) -> str:
        """Names the sample, so that passes over one seed are different replies (law 2)."""
        return f"{item.id}.0"

    def prompt(self, item: Item) -> prompt.Prompt:
        seed = self.by_id[item.spec["seed"]]
        said = hint.hint(seed, self.number(item)) if self.config.prompt.hints else ""
        return prompt.render(
            self.config.prompt, seed, form=self.form, fixed=self.fixed.get(seed.pack or "", ()), hint=said
        )

    def request(self, item: Item) -> Request:
        seed = self.by_id[item.spec["seed"]]
        sampling = self.config.sampling
        schema: dict[str, Any] | None = None
        if self.constrained:
            reply = self.config.reply
            body = trajectory_schema(seed.tools, seed, reply.shape, reasoning=reply.reasoning)
            schema = {"type": "json_schema", "json_schema": {"name": "trajectory", "schema": body}}
        return Request(
            messages=self.prompt(item).messages,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=sampling.max_tokens,
            reasoning_effort=sampling.reasoning_effort,
            seed=self.number(item) if sampling.seeded else None,
            response_format=schema,
            extra_body=sampling.extra,
        )

    def number(self, item: Item) -> int:
        """The item's own random number: from the run's seed and its ord, whatever ran before it."""
        return self.config.seed * 1_000_003 + item.ord

    def judge(self, item: Item, reply: Reply, *, model: str, key: str, files: dict[str, str]) -> Result:
        """Parse, repair and check one reply. A fault of ours becomes a finding on this record, never the end of the run."""
        try:
            return self._judge(item, reply, model=model, key=key, files=files)
        except Exception as error:
            detail = f"{type(error).__name__}: {error}"
            return Result(None, [Issue(code=Code.INTERNAL, where=item.id, detail=detail[:300])])

    def _judge(self, item: Item, reply: Reply, *, model: str, key: str, files: dict[str, str]) -> Result:
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
                reply_keys=[key],
                stages=STAGES,
                simia=__version__,
                licence=seed.provenance.licence,
                source="simulated",
            ),
        )
        ids = self.seeds.identifiers.get(seed.pack or "")
        issues = cut + check(trajectory, self.config.checks, ids=ids, seed=seed)
        trajectory.issues = issues
        return Result(trajectory, issues, parsed.repairs, content_hash(trajectory))
