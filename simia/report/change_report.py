"""Report the state changes that simulators return: tables by knowledge, |Δ|, outcome and number of arguments, and their plot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from simia.errors import UserError
from simia.evaluation.change_fidelity import AXES, DEFINITION, compare_rewards, split_rows
from simia.evaluation.fidelity import Fidelity, Row, measure_fidelity
from simia.jobs import Run
from simia.pack import Pack
from simia.quality.judging.agreement import Agreement
from simia.report.plots import PlotDot, PlotLine, PlotPanel
from simia.report.rollout_report import list_compared_calls
from simia.search_path import searching_from
from simia.statistics import Estimate, compute_wilson_interval
from simia.terminal import write_count
from simia.tool import ToolSpec
from simia.trajectory import Trajectory

FEW = 5
BINS = ("0", "1 to 2", "3 to 6", "7 or more")
Named = Mapping[str, Sequence[Row]]
"""Name of a measure, such as a kind of knowledge → its rows."""


def describe_shown_results(named: Named, specs: Mapping[str, ToolSpec]) -> list[str]:
    """Return a line for each measure in which prompts showed a call's own result as an example, with the figures of the other calls."""
    lines = []
    for name, rows in named.items():
        others = [row for row in rows if not row.get("shown")]
        if len(others) == len(rows):
            continue
        total = measure_fidelity(others, specs).total
        figures = [
            f"{what} {value:.2f}"
            for what, value in (("F1", total.value_f1), ("exact", total.exact_share))
            if value is not None
        ]
        lines.append(
            f"{name}: the example of {len(rows) - len(others)} of {len(rows)} calls' prompts is the call's own result"
            f"{'; without these calls ' if figures else ''}{', '.join(figures)}"
        )
    return lines


def print_changes(named: Named, specs: Mapping[str, ToolSpec], to: Console) -> None:
    """Print how many results the prompts showed, then, if any row has changes, the definition of |Δ| and the figures of these rows."""
    for line in describe_shown_results(named, specs):
        to.print(line, soft_wrap=True)
    found = {name: measure_fidelity(rows, specs) for name, rows in named.items()}
    found = {name: each for name, each in found.items() if each.total.steps}
    if not found:
        return
    to.print(DEFINITION, soft_wrap=True)
    table = Table("knows", "calls", "lost", "exact", "as rewarded", title="changes of the state")
    for name, each in found.items():
        estimates = [format_estimate(each.interval(what)) for what in ("exact_share", "rewarded_share")]
        table.add_row(name, str(each.total.calls), str(each.total.lost), *estimates)
    to.print(table)
    for name, each in found.items():
        if each.total.lost:
            lost = f"{each.total.lost} of {write_count(each.total.calls, 'call')}"
            to.print(f"{name}: {lost} had no readable answer; all other figures leave them out", soft_wrap=True)
    columns = "knows", "outcome", "F1", "entities", "forgotten", "invented"
    table = Table(*columns, title="observations, and entities of the true answers")
    for name, each in found.items():
        total = each.total
        agreement = "" if total.agreement is None else f"{total.agreement:.2f}"
        counts = [str(count) for count in (total.entities, total.forgotten, total.invented)]
        table.add_row(name, agreement, format_estimate(each.interval("value_f1"), total.calls), *counts)
    to.print(table)
    for axis in AXES:
        table = Table(axis, "knows", "calls", "exact", "F1", title=f"by {axis}")
        split = {name: split_rows(named[name], axis, specs) for name in found}
        for group in sorted({group for groups in split.values() for group in groups}):
            for name, groups in split.items():
                if (part := groups.get(group)) is not None:
                    calls = part.total.calls
                    exact, f1 = (
                        format_estimate(part.interval("exact_share")),
                        format_estimate(part.interval("value_f1"), calls),
                    )
                    table.add_row(group, name, str(calls), exact, f1)
        to.print(table)
    print_drift(found, to)


def print_drift(found: Mapping[str, Fidelity], to: Console) -> None:
    """Print how far the held states differ from the true states; nothing if no state was held."""
    drifting = {name: each.drift for name, each in found.items() if each.drift}
    if not drifting:
        return
    table = Table("call", *drifting, title="leaf fields of the held state that differ from the true one, mean")
    for step in sorted({step for drift in drifting.values() for step in drift}):
        table.add_row(str(step), *[format_drift(drift.get(step)) for drift in drifting.values()])
    to.print(table)


def format_estimate(estimate: Estimate | None, calls: int | None = None) -> str:
    """Format a figure with its interval; without it for fewer than `FEW` calls, where a bootstrap interval is too narrow."""
    if estimate is None:
        return ""
    certain = calls is not None and calls < FEW
    return f"{estimate.value:.2f}" if certain else f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


def format_drift(estimate: Estimate | None) -> str:
    if estimate is None:
        return ""
    interval = "" if math.isnan(estimate.low) else f" [{estimate.low:.1f}, {estimate.high:.1f}]"
    return f"{estimate.value:.1f}{interval}"


def print_shadow_changes(run: Run, to: Console) -> None:
    """Print the changes that the simulator of a shadow rollout returned, and how often rules on its state agree with the rewards."""
    saved = run.saved_config()
    rows = [row for item in run.ledger.items() for row in list_compared_calls(run, item.id)]
    name = str(saved.get("backend_settings", {}).get("knowledge", "reference"))
    print_changes({name: rows}, {}, to)
    print_rewards({name: compare_run_rewards(run)}, to)


def compare_run_rewards(run: Run) -> Agreement | None:
    """Compare rewards on held and on true states over the episodes of a shadow rollout of one pack; None if none can be compared."""
    saved = run.saved_config()
    bodies = [run.ledger.result(item.id) for item in run.ledger.items()]
    rows = [body["trajectory"] for body in bodies if body and body["trajectory"]]
    held = [row for row in rows if "held" in (row.get("evidence") or {})]
    if not held or saved.get("packs"):
        return None
    try:
        with searching_from(run.start_folder):
            pack = Pack.load(saved["pack"])
        return compare_rewards([Trajectory.from_row(row) for row in held], {pack.name: pack})
    except UserError:  # the pack has changed or is gone
        return None


def print_rewards(found: Mapping[str, Agreement | None], to: Console) -> None:
    """Print how often the rules give the same reward on the held state and on the true state; nothing if that is not known."""
    for name, each in collect_reward_figures(found).items():
        share = f"{each['share']:.2f} [{each['low']:.2f}, {each['high']:.2f}]"
        to.print(
            f"{name}: rules on the held state agree with the reward in {each['agreed']} of {each['episodes']}: {share}"
        )


def collect_reward_figures(found: Mapping[str, Agreement | None]) -> dict[str, dict[str, Any]]:
    """The agreement of the rules on the held state with the reward, as JSON: by name, with Wilson's interval; without names for which it is
    not known."""
    body = {}
    for name, each in found.items():
        if each is not None:
            low, high = compute_wilson_interval(each.agreed, each.both)
            share = {"share": each.agreed / each.both, "low": low, "high": high}
            body[name] = {"episodes": each.both, "agreed": each.agreed, **share, "kappa": each.kappa}
    return body


def collect_change_figures(named: Named, specs: Mapping[str, ToolSpec]) -> dict[str, Any]:
    """The printed figures as JSON: by name, in all and by each axis."""
    body: dict[str, Any] = {"definition": DEFINITION}
    for name, rows in named.items():
        found = measure_fidelity(rows, specs)
        split = {
            axis: {group: list_figures(each) for group, each in split_rows(rows, axis, specs).items()} for axis in AXES
        }
        drift = {str(step): asdict(each) for step, each in found.drift.items()}
        body[name] = {"all": list_figures(found), "by": split, **({"drift": drift} if drift else {})}
        if shown := sum(bool(row.get("shown")) for row in rows):
            body[name]["shown"] = shown
    return body


def list_figures(found: Fidelity) -> dict[str, Any]:
    measures = {what: found.interval(what) for what in ("exact_share", "rewarded_share", "value_f1")}
    return {**asdict(found.total), **{what: asdict(each) for what, each in measures.items() if each is not None}}


def make_change_panels(named: Named, specs: Mapping[str, ToolSpec], model: str = "") -> list[PlotPanel]:
    """Make the panels: exact changes by |Δ|, F1 of the observations by |Δ|, and drift. `model`: named in their titles."""
    panels = []
    found = {name: measure_fidelity(rows, specs) for name, rows in named.items()}
    split = {name: split_rows(rows, "|Δ|", specs) for name, rows in named.items()}
    for what, title in (("exact_share", "Exact changes, by |Δ|"), ("value_f1", "F1 of the observations, by |Δ|")):
        dots = []
        for number, (name, groups) in enumerate(split.items()):
            for group in BINS:
                estimate = groups[group].interval(what) if group in groups else None
                if estimate is not None:
                    dots.append(PlotDot(f"{name}, {group}", estimate.value, estimate.low, estimate.high, number))
        panels.append(PlotPanel(f"{title} ({model})" if model else title, dots=dots))
    lines = [
        PlotLine(
            name,
            [(step, each.value) for step, each in one.drift.items()],
            number,
            [(each.low, each.high) for each in one.drift.values()],
        )
        for number, (name, one) in enumerate(found.items())
        if one.drift
    ]
    ends = (end for one in found.values() for each in one.drift.values() for end in (each.value, each.high))
    top = max((end for end in ends if not math.isnan(end)), default=1.0)
    panels.append(PlotPanel("Leaf fields in which the held state differs", lines=lines, x="call", top=max(top, 1.0)))
    return [panel for panel in panels if panel.dots or panel.lines]
