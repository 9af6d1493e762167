"""The report of an evaluation: scores of each part with intervals, cost, and failures by party with examples, as text, JSON or a page."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson
from markupsafe import Markup
from rich.console import Console
from rich.text import Text

from simia.envs.opening import load_tasks
from simia.envs.remote.remote_pack import list_addresses
from simia.errors import UserError
from simia.evaluation.failures import FailureKind, classify_failures, count_parties, group_failures
from simia.evaluation.perturbations import PerturbationCount, count_perturbations
from simia.evaluation.scores import (
    AVERAGE,
    SIGNIFICANCE,
    EvaluationScores,
    PairedDifference,
    PlayedEpisode,
    collect_rewards,
    collect_scenarios,
    read_episodes,
    score_parts,
)
from simia.jobs import Run
from simia.jobs.run_session import read_run_config
from simia.jobs.tables import COST
from simia.report.console import make_plain_text, make_table, print_whole
from simia.report.html_page import dump_settings, make_page_environment, read_page_file, save_page
from simia.report.html_sample import format_arguments, format_result, sample_items
from simia.report.pack_scores import COSTS
from simia.report.perturbation_table import HEADS, LEGEND, list_perturbation_rows, print_perturbations
from simia.report.run_statistics import explain_reason
from simia.rollouts.settings import RolloutConfig
from simia.search_path import searching_from
from simia.statistics import FEWEST_TASKS, Estimate
from simia.task import Task
from simia.terminal import write_count

FEW_TASKS = f"from Wilson's for fewer than {FEWEST_TASKS} tasks, and where all tasks score alike"
MOST_COLUMNS = 4  # parts whose figures fit beside each other
EXAMPLE = 100  # characters of an example in the terminal
SAMPLE = 30  # random accepted episodes on the page at most, and as many rejected ones
SPENT = f"SELECT {COST}, COUNT(*) - COUNT(cost), SUM(prompt), SUM(completion) FROM attempt WHERE status = 'got'"


@dataclass(slots=True)
class EvaluationReport:
    """The outcome of a run's episodes, computed from the stored results. Only invented facts also need the packs' tasks."""

    run: str
    suite: str | None
    model: str
    cast: dict[str, str]
    calls: str
    planned: int
    asked: int
    """Planned trials of each task."""
    scores: EvaluationScores
    failures: list[FailureKind]
    parties: dict[str, int]
    cost: float | None
    """Dollars for all models; None if no price is known."""
    unpriced: int
    """Replies of unknown price, which `cost` does not include."""
    costs: dict[str, float]
    tokens: tuple[int, int]
    """Tokens in and out of all models."""
    notes: list[str] = field(default_factory=list)
    rewards: dict[str, dict[str, list[float | None]]] = field(default_factory=dict)
    """Part → task → rewards of its episodes; None for one without a reward."""
    perturbations: list[PerturbationCount] = field(default_factory=list)
    """Perturbations, and the agent's results with and without them; empty if there were none."""

    @property
    def k(self) -> int:
        """The k of avg@k: the largest number of scored trials of a task; the planned number before any is scored."""
        return self.scores.trials or self.asked


def collect_evaluation(run: Run) -> EvaluationReport:
    """Collect the report of a rollout."""
    facts, config = run.ledger.meta("facts") or {}, run.saved_config()
    episodes = list(read_episodes(run))
    tasks, notes = load_users_tasks(run, episodes)
    failures = classify_failures(episodes, tasks)
    rewards = collect_rewards(episodes)
    scores = score_parts(rewards, collect_scenarios(episodes))
    for name, part in scores.parts.items():
        if part.scenarios < part.tasks:
            notes.append(
                f"{name}: {write_count(part.tasks, 'task')} of {write_count(part.scenarios, 'scenario')}; intervals count the scenarios"
            )
        if part.short:
            notes.append(
                f"{name}: fewer than {write_count(scores.trials, 'scored trial')} in {part.short} of {write_count(part.tasks, 'task')}; figures that need more leave them out"
            )
    connection = run.ledger.db.ledger
    cost, unpriced, prompt, completion = connection.execute(SPENT).fetchone()
    costs = {name: each for name, each in connection.execute(COSTS) if name in scores.parts and each is not None}
    return EvaluationReport(
        run=run.id,
        suite=config.get("suite"),
        model=str(facts.get("model")),
        cast=dict(facts.get("cast") or {}),
        calls=str((config.get("sampling") or {}).get("calls", "")) if config.get("agent") == "llm" else "",
        planned=int(facts.get("planned") or len(episodes)),
        asked=int(config.get("group") or 1),
        scores=scores,
        failures=group_failures(failures),
        parties={str(party): count for party, count in count_parties(failures).items()},
        cost=cost,
        unpriced=unpriced,
        costs=costs,
        tokens=(prompt or 0, completion or 0),
        notes=notes,
        rewards={part: {task: list(values) for task, values in tasks.items()} for part, tasks in rewards.items()},
        perturbations=count_perturbations(each.row for each in episodes),
    )  # fmt: skip


def load_users_tasks(run: Run, episodes: Sequence[PlayedEpisode]) -> tuple[dict[str, Task], list[str]]:
    """Load the tasks by id if a model played the user of any episode. Returns no tasks and a note if they cannot be loaded."""
    if not any((each.row.get("extra") or {}).get("user_model") for each in episodes):
        return {}, []
    try:
        played = read_run_config(RolloutConfig, run)
        if addresses := list_addresses(played):
            raise UserError(f"they are on the server {addresses[0]}")
        with searching_from(run.start_folder):
            pack, _ = load_tasks(played)
    except UserError as error:
        why = f"facts that the user simulator invents are not counted, since the tasks cannot be loaded: {error}"
        return {}, [why]
    return {task.id: task for task in pack.tasks}, []


def list_part_rows(report: EvaluationReport) -> list[list[str]]:
    """List the rows of the table by part: tasks, scored episodes, mean reward, solved, cost."""
    average = report.scores.average
    rows = []
    for name, part in report.scores.parts.items():
        values = [format_estimate(part.figures.get(each), 3) for each in (f"avg@{report.scores.trials}", "pass^1")]
        cost = f"${report.costs[name]:,.2f}" if name in report.costs else ""
        rows.append([name, f"{part.tasks:,}", f"{part.scored:,} of {part.episodes:,}", *values, cost])
    if average:
        parts = report.scores.parts.values()
        counts = [
            sum(each.tasks for each in parts),
            sum(each.scored for each in parts),
            sum(each.episodes for each in parts),
        ]
        values = [format_estimate(average.get(each), 3) for each in (f"avg@{report.scores.trials}", "pass^1")]
        cost = "" if report.cost is None else f"${report.cost:,.2f}"
        rows.append([AVERAGE, f"{counts[0]:,}", f"{counts[1]:,} of {counts[2]:,}", *values, cost])
    return rows


def list_figure_rows(report: EvaluationReport, most: int | None = None) -> list[list[str]]:
    """List a head and a row for each pass figure, with a column for each part. More than `most` columns become the average alone."""
    columns = {name: part.figures for name, part in report.scores.parts.items()}
    if report.scores.average:
        columns[AVERAGE] = report.scores.average
        if most is not None and len(columns) > most:
            columns = {AVERAGE: report.scores.average}
    names = dict.fromkeys(figure for figures in columns.values() for figure in figures if not figure.startswith("avg"))
    rows = [[name, *(format_estimate(figures.get(name), 3) for figures in columns.values())] for name in names]
    return [["", *columns], *rows]


def format_estimate(value: Estimate | None, digits: int) -> str:
    """Format a value with its interval; empty if it is unknown."""
    return "" if value is None else f"{value.value:.{digits}f} [{value.low:.2f}, {value.high:.2f}]"


def list_facts(report: EvaluationReport) -> list[tuple[str, str]]:
    """List the run's facts: suite, model of each role, episodes, tokens and cost."""
    cost = "unknown" if report.cost is None else f"${report.cost:,.2f}"
    if report.cost is not None and report.unpriced:
        cost += f", and {write_count(report.unpriced, 'reply')} of unknown price"
    done = sum(part.episodes for part in report.scores.parts.values())
    rows = [
        ("suite", report.suite or "none"),
        ("agent", report.model + (f", {report.calls} calls" if report.calls else "")),
        *(({"player": "user"}.get(role, role), model) for role, model in sorted(report.cast.items())),
        ("episodes", f"{done:,} of {report.planned:,}; trials of each task: {report.asked}"),
    ]
    if any(report.tokens):
        rows.append(("models", f"{report.tokens[0]:,} tokens in, {report.tokens[1]:,} out; cost {cost}"))
    return rows


def print_evaluation(report: EvaluationReport, to: Console, at: str = "") -> None:
    """Print the report. `at`: the option of a command that names the folder of runs."""
    for name, value in list_facts(report):
        to.print(make_plain_text(f"{name:<9} {value}"), soft_wrap=True)
    table = make_table("part", ">tasks", ">scored", f">avg@{report.k}", ">solved (pass^1)", ">cost")
    table.columns[0].no_wrap = True
    for row in list_part_rows(report):
        table.add_row(*map(make_plain_text, row))
    to.print(Text())
    print_whole(table, to)
    head, *rows = list_figure_rows(report, MOST_COLUMNS)
    if report.scores.trials > 1:
        table = make_table(head[0], *(f">{name}" for name in head[1:]))
        for row in rows:
            table.add_row(*map(make_plain_text, row))
        to.print(Text())
        print_whole(table, to)
    average = "; average: parts count the same, whatever their tasks" if len(report.scores.parts) > 1 else ""
    to.print(
        f"intervals: 95 %, by resampling tasks, or scenarios where tasks share one; {FEW_TASKS}{average}",
        highlight=False,
        soft_wrap=True,
    )
    print_perturbations(report.perturbations, to)
    print_failures(report, to, at)
    for note in report.notes:
        to.print(make_plain_text(f"note: {note}"), soft_wrap=True)


def print_failures(report: EvaluationReport, to: Console, at: str) -> None:
    """Print failures by party and kind, each kind with one example. `at`: the option that names the folder of runs."""
    total = sum(report.parties.values())
    if not total:
        to.print(
            "no failures" if any(part.scored for part in report.scores.parts.values()) else "no scored episode yet",
            highlight=False,
        )
        return
    listed = ", ".join(f"{party} {count:,} ({count / total:.0%})" for party, count in report.parties.items())
    to.print(make_plain_text(f"\n{write_count(total, 'failure')}: {listed}"), soft_wrap=True)
    table = make_table("party", "kind", ">episodes", "example")
    for each in report.failures:
        example = each.examples[0]
        table.add_row(
            *map(
                make_plain_text,
                (each.party, each.kind, f"{each.count:,}", f"{example.item}: {example.detail[:EXAMPLE]}"),
            )
        )
    print_whole(table, to)
    to.print(
        make_plain_text(
            f"to read an example: simia runs show {report.run} --item {report.failures[0].examples[0].item}{at}"
        ),
        soft_wrap=True,
    )


def write_evaluation_json(report: EvaluationReport) -> str:
    """Return the report as JSON."""
    return orjson.dumps(asdict(report), option=orjson.OPT_INDENT_2).decode()


def write_evaluation_page(run: Run, report: EvaluationReport, path: Path) -> None:
    """Write the report as one HTML page with a sample of episodes. Raises `UserError` if it cannot be written."""
    examples = {each.item: (kind.party, kind.kind) for kind in report.failures for each in kind.examples}
    environment = make_page_environment()
    environment.filters |= {
        "number": lambda value: f"{value:,}",
        "meaning": explain_reason,
        "pretty": format_result,
        "arguments": format_arguments,
    }
    script = read_page_file("page.js")
    page = environment.get_template("evaluation.html.j2").render(
        report=report,
        facts=list_facts(report),
        parts=list_part_rows(report),
        figures=list_figure_rows(report),
        perturbation_heads=[head.removeprefix(">") for head in HEADS],
        perturbation_legend=LEGEND,
        perturbations=list_perturbation_rows(report.perturbations),
        items=sample_items(run, SAMPLE, tuple(examples)),
        examples=examples,
        config=dump_settings(run),
        style=Markup(read_page_file("page.css")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    save_page(page, path)


def print_comparison(
    left: str, right: str, rows: Sequence[PairedDifference], conditions: Sequence[str], to: Console
) -> None:
    """Print the paired differences of two runs."""
    table = make_table("part", "figure", ">n", ">A", ">B", ">B - A", ">p", ">+/-")
    for column in table.columns[1:]:
        column.no_wrap = True
    to.print(make_plain_text(f"A: {left}; B: {right}"), soft_wrap=True)
    for each in rows:
        cells = (
            each.part, each.figure, f"{each.tasks:,}", f"{each.left:.2f}", f"{each.right:.2f}",
            f"{each.difference.value:+.2f} [{each.difference.low:+.2f}, {each.difference.high:+.2f}]",
            f"{each.p:.3f}{'*' if each.p < SIGNIFICANCE else ''}", f"+{each.better:,} -{each.worse:,}",
        )  # fmt: skip
        table.add_row(*map(make_plain_text, cells))
    print_whole(table, to)
    lines = [
        "B - A: the difference on the same tasks, with its 95 % interval over n tasks; p: by flipping signs over tasks",
        *(
            ["note: some tasks share a scenario; these count as one in intervals and p"]
            if any(each.scenarios < each.tasks for each in rows)
            else []
        ),
        f"*: told apart at {SIGNIFICANCE:.0%}; +, -: tasks that B does better, worse",
        *(f"note: the runs differ in {line}" for line in conditions),
    ]
    for line in lines:
        to.print(make_plain_text(line), soft_wrap=True)


def write_comparison_json(rows: Sequence[PairedDifference], conditions: Sequence[str]) -> str:
    """Return a comparison as JSON."""
    found: list[dict[str, Any]] = [{**asdict(each), "verdict": each.verdict} for each in rows]
    return orjson.dumps(
        {"differences": found, "other_conditions": list(conditions)}, option=orjson.OPT_INDENT_2
    ).decode()
