"""Running sums over a run's results: what is kept of a trajectory is a count, so that any number of them can be read."""

from __future__ import annotations

from collections import Counter
from typing import Any

from simia.amplify.check import estimate_tokens
from simia.report.figures import Fate, RunFacts, SeedFacts, Spread, ToolFacts
from simia.report.overlap import SeedIndex
from simia.trajectory import Trajectory

MOST_INVENTED = 1_000  # a model can invent names without end


class Tally:
    """Fills the figures that are sums over items. `finish` once after the last one."""

    def __init__(self, facts: RunFacts, seeds: dict[str, Trajectory]) -> None:
        self.facts = facts
        self._index = SeedIndex(seeds)
        self._rejected: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._repairs: Counter[str] = Counter()
        self._invented: Counter[str] = Counter()
        self._tools: dict[tuple[str, str], ToolFacts] = {}
        self._messages: Counter[int] = Counter()
        self._calls: Counter[int] = Counter()
        self._tokens: Counter[int] = Counter()
        self._seeds: dict[str, SeedFacts] = {}
        for seed_id, seed in seeds.items():
            self._seeds[seed_id] = SeedFacts(name=seed.task_id or seed_id, pack=seed.pack or "")
            facts.packs.setdefault(seed.pack or "", Fate())
            for tool in self._listed(seed):
                tool.seeds += sum(call.name == tool.name for _, _, call in seed.calls())

    def item(self, spec: dict[str, Any], verdict: str, reason: str | None) -> None:
        """One planned item. `verdict`: accepted, surplus, rejected, failed or open."""
        facts = self.facts
        facts.planned += 1
        match verdict:
            case "accepted":
                facts.accepted += 1
            case "surplus":
                facts.surplus += 1
            case "rejected":
                self._rejected[str(reason)] += 1
            case "failed":
                self._failed[str(reason)] += 1
            case _:
                facts.open += 1
        pack, seed_id = str(spec.get("pack") or ""), str(spec.get("seed"))
        facts.packs.setdefault(pack, Fate()).count(verdict, reason)
        name = str(spec.get("task") or seed_id)
        self._seeds.setdefault(seed_id, SeedFacts(name=name, pack=pack)).count(verdict, reason)

    def result(self, seed_id: str, verdict: str, body: dict[str, Any]) -> None:
        """What was derived from one reply."""
        self._repairs.update(set(body["repairs"]))
        row = body["trajectory"]
        if row is None or verdict == "surplus":
            return
        t = Trajectory.from_row(row)
        listed = {tool.name: tool for tool in self._listed(t)}
        for _, _, call in t.calls():
            tool = listed.get(call.name)
            if tool is None:
                if call.name in self._invented or len(self._invented) < MOST_INVENTED:
                    self._invented[call.name] += 1
            elif verdict == "accepted":
                tool.accepted += 1
            else:
                tool.rejected += 1
        if verdict == "accepted":
            self.facts.repaired += bool(body["repairs"])
            self._accepted(t, seed_id)

    def _accepted(self, t: Trajectory, seed_id: str) -> None:
        facts = self.facts
        self._messages[len(t.messages)] += 1
        self._calls[sum(len(message.calls) for message in t.messages)] += 1
        self._tokens[estimate_tokens(t)] += 1
        turns = sum(len(message.calls) > 1 for message in t.messages)
        facts.parallel += turns > 0
        facts.parallel_turns += turns
        failed, recovered = errors(t)
        facts.with_errors += failed
        facts.recovered += recovered
        self._index.add(t, seed_id, facts.overlap)

    def _listed(self, t: Trajectory) -> list[ToolFacts]:
        """The figures of the tools that a trajectory has to choose from; each tool once, whatever the list repeats."""
        pack = t.pack or ""
        for name in {tool.name for tool in t.tools} - {name for owner, name in self._tools if owner == pack}:
            self._tools[pack, name] = ToolFacts(pack=pack, name=name)
        return [self._tools[pack, name] for name in {tool.name for tool in t.tools}]

    def finish(self) -> None:
        facts = self.facts
        facts.rejected = dict(self._rejected.most_common())
        facts.failed = dict(self._failed.most_common())
        facts.repairs = dict(self._repairs.most_common())
        facts.invented = dict(self._invented.most_common())
        facts.tools = sorted(self._tools.values(), key=lambda tool: (tool.pack, -tool.accepted, tool.name))
        facts.per_seed = sorted(self._seeds.values(), key=lambda seed: (seed.pack, seed.name))
        facts.messages, facts.calls, facts.tokens = map(Spread.of, (self._messages, self._calls, self._tokens))


def errors(t: Trajectory) -> tuple[bool, bool]:
    """Whether a tool answered with an error, and whether a call of a later turn then succeeded."""
    turn, failed_in = 0, None
    for message in t.messages:
        turn += bool(message.calls)
        if message.role == "tool" and message.error is not None:
            failed_in = turn if failed_in is None else failed_in
        elif message.role == "tool" and failed_in is not None and turn > failed_in:
            return True, True
    return failed_in is not None, False
