"""Plan the items of a run, and write plans into prompts. The traits that plans depend on are read once from the seeds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import cached_property, partial
from typing import Any

from simia.amplification.call_graph import CallGraph
from simia.amplification.fresh_values import choose_fresh_values
from simia.amplification.plan_lines import PERSONAS, WORDING, list_fitting
from simia.amplification.plan_settings import PlanSettings
from simia.amplification.request_plan import ChooseValues, RequestPlan, plan_request
from simia.amplification.seed_traits import SeedTraits, read_traits
from simia.amplification.tool_counts import ToolCounts
from simia.amplification.value_shapes import ValueShapes
from simia.prompts import load_template
from simia.quality.suites import Suite
from simia.trajectory import Trajectory


class PlanSource:
    """Makes the plans of a run's items. Graphs and traits are made when an item first needs them."""

    def __init__(
        self,
        by_id: Mapping[str, Trajectory],
        suites: Mapping[str, Suite],
        settings: PlanSettings,
        *,
        shapes: ValueShapes | None,
        shaped: bool,
    ) -> None:
        """`shapes`: of the identifiers in fresh values; None: plans hold no fresh values. `shaped`: whether replies must follow the seed's turns."""
        self._by_id, self._suites, self._settings = by_id, suites, settings
        self._shapes, self._shaped = shapes, shaped
        self._graphs: dict[tuple[str, ...], CallGraph] = {}
        self._traits: dict[str, SeedTraits] = {}

    @cached_property
    def _groups(self) -> dict[tuple[str, ...], list[Trajectory]]:
        """The seeds of a pack that have the same tools: a file may hold several domains."""
        groups: dict[tuple[str, ...], list[Trajectory]] = defaultdict(list)
        for seed in self._by_id.values():
            groups[key_of(seed)].append(seed)
        return groups

    def traits(self, seed_id: str) -> SeedTraits:
        if seed_id not in self._traits:
            seed = self._by_id[seed_id]
            key = key_of(seed)
            if key not in self._graphs:
                self._graphs[key] = CallGraph(self._groups[key])
            self._traits[seed_id] = read_traits(seed, self._graphs[key], self._suites[seed_id])
        return self._traits[seed_id]

    def plan(self, seed_id: str, ord_: int, number: int, counts: ToolCounts) -> RequestPlan:
        """Plan the item of one place. `number`: its random number."""
        seed, traits = self._by_id[seed_id], self.traits(seed_id)
        target = self._suites[seed_id].hint(seed, ord_)
        values = None
        if self._shapes is not None and not target:
            values = partial(choose_values, seed, number, self._shapes)
        if self._shaped and not target:
            return plan_shaped(seed, number, traits, values)
        return plan_request(seed, counts, number, traits, self._settings, target=target, choose_values=values)


def key_of(seed: Trajectory) -> tuple[str, ...]:
    return (seed.pack or "", *sorted(tool.name for tool in seed.tools))


def choose_values(
    seed: Trajectory, number: int, shapes: ValueShapes, tools: Collection[str], language: str
) -> dict[str, Any]:
    return choose_fresh_values(seed, number, tools, language, shapes)


def plan_shaped(seed: Trajectory, number: int, traits: SeedTraits, values: ChooseValues | None) -> RequestPlan:
    """Plan for a reply that must follow its seed's sequence of turns: only the values and the persona are free."""
    called = list(dict.fromkeys(call.name for _, _, call in seed.calls()))
    given = values(called, traits.language) if values else {}
    lines = list_fitting(PERSONAS, frozenset(traits.list_features() & {"cased"}))
    return RequestPlan(
        persona=lines[number * 7919 % len(lines)].text if lines else "", messages=len(seed.messages), values=given
    )


def render_plan(plan: RequestPlan, target: str = "") -> str:
    """Write a plan for the request. `target`: the plan's target with its suite's explanation."""
    values = ", ".join(f"{name} {value}" for name, value in plan.values.items())
    fields = {name: getattr(plan, name) for name in ("goals", "persona", "twist", "language")}
    return load_template(WORDING)[0].render(fields, values=values, target=target or plan.target).strip()
