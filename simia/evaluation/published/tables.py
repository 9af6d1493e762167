"""Read published result tables, recompute their averages and differences, and compute the same figures for our rollouts.

A table contains the figures as printed in the paper, including wrong ones. A printed average agrees with its row if it differs by at most one
unit of the last printed digit; a printed difference if by at most one and a half units, since each of the three figures is rounded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

import yaml
from pydantic import BaseModel, ConfigDict, Field

from simia.errors import UserError
from simia.evaluation.scores import Rewards, Scenarios, estimate_average, read_episodes
from simia.jobs import Run
from simia.statistics import (
    SUCCESS,
    Estimate,
    estimate_pass_at_k,
    estimate_pass_hat_k,
)
from simia.terminal import write_count

PAPERS = ("simia", "scaleenv", "envscaler", "envfactory", "codegym")
MEASURE = re.compile(r"(avg@|pass@|pass\^)(\d+)")
# Suite → pattern of `SUITE/PACK/TASK`; its group is the part.
PLACES = {
    "tau2": re.compile(r"(?:^|/)tau2[/-](retail|airline|telecom)/"),
    "taubench": re.compile(r"(?:^|/)tau-?_?bench[/_-](retail|airline)/"),
    "officebench": re.compile(r"(?:^|/)officebench/(?:[^/]*/)?([23])-"),
    "agentbench_os": re.compile(r"(?:^|/)agentbench[/_-](os)/"),
    "bfcl": re.compile(
        r"(?:^|/)bfcl[/_-].*?(base|missing_function|missing_parameter|miss_func|miss_param|long_context)"
    ),
    "acebench": re.compile(r"(?:^|/)acebench[/_-].*?(multi_step|multi_turn)"),
}
PARTS = {"2": "2-apps", "3": "3-apps", "miss_func": "missing_function", "miss_param": "missing_parameter"}


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PublishedColumn(_Model):
    """A column: a measured figure, or the mean of others."""

    title: str = Field(description="The column's heading.")
    benchmark: str | None = Field(None, description="Name of the benchmark as in the paper.")
    metric: str | None = Field(None, description="The measure, such as pass^1 or avg@4; as in the paper for others.")
    unit: str = Field("percent", description="Unit of the figures.")
    suite: str | None = Field(None, description="The suite of simia that measures it; unset: none does.")
    part: str | list[str] | None = Field(None, description="The part of the suite; of several the mean is taken.")
    mean_of: list[str] = Field(default_factory=list, description="Columns of which this one is the mean.")


class PublishedRow(_Model):
    """A row as printed."""

    model: str = Field(description="Name of the model in the table.")
    values: list[float] = Field(description="The printed figures, in the order of the columns.")
    base: str | None = Field(None, description="The row that the printed differences are to.")
    changes: dict[str, float] = Field(default_factory=dict, description="Printed differences by column.")
    likely: dict[str, float] = Field(
        default_factory=dict, description="Value of a cell with which the rest of its row agrees."
    )
    also: str | None = Field(None, description="Name of the same model in another table.")
    checkpoint: str | None = Field(None, description="Model name for an endpoint.")
    config: str | None = Field(None, description="Config that plays the row with this checkpoint.")


class PublishedGroup(_Model):
    """Rows under one heading."""

    title: str | None = Field(None, description="The heading; unset: none.")
    rows: list[PublishedRow] = Field(description="The rows, from top to bottom.")


class PublishedStatement(_Model):
    """A difference of two rows that the paper's text states."""

    section: str = Field(description="Where the text states it.")
    printed: float = Field(description="The stated difference.")
    of: str = Field(description="Model with the larger figure.")
    minus: str = Field(description="Model with the smaller figure.")
    columns: list[str] = Field(description="The column, or the columns whose mean is meant.")


class PublishedTable(_Model):
    """One result table, or a figure whose values the text states."""

    id: str = Field(description="Number of the table, or a name for one without a number.")
    section: str = Field(description="Section of the paper.")
    caption: str = Field(description="What the table shows, in our words.")
    notes: list[str] = Field(default_factory=list, description="Footnotes and what a reader must know.")
    columns: dict[str, PublishedColumn] = Field(description="Columns by name, in order.")
    groups: list[PublishedGroup] = Field(description="Groups of rows.")
    statements: list[PublishedStatement] = Field(default_factory=list, description="Differences stated in the text.")

    @property
    def rows(self) -> dict[str, PublishedRow]:
        """Rows by model."""
        return {row.model: row for group in self.groups for row in group.rows}

    @property
    def unit(self) -> float:
        """One unit of the last printed digit of the table."""
        digits = [len(str(value).partition(".")[2].rstrip("0")) for row in self.rows.values() for value in row.values]
        return 10.0 ** -max(digits)

    def cell(self, row: PublishedRow, column: str) -> float:
        """The printed figure of a row."""
        return row.values[list(self.columns).index(column)]


class PublishedPaper(_Model):
    """The result tables of one paper."""

    paper: str = Field(description="Short name.")
    title: str = Field(description="Title of the paper.")
    authors: str = Field(description="Family names of the authors.")
    year: int = Field(description="Year of publication.")
    others: dict[str, str] = Field(default_factory=dict, description="Tables that hold no results, by number.")
    tables: list[PublishedTable] = Field(description="The result tables.")

    def find_table(self, number: str) -> PublishedTable:
        """Return a table by its number or name. Raises a `UserError` that lists the existing ones."""
        for table in self.tables:
            if table.id == number:
                return table
        if number in self.others:
            raise UserError(f"table {number} of {self.paper} holds no results: {self.others[number]}")
        there = ", ".join(table.id for table in self.tables)
        raise UserError(f"{self.paper} has no table {number!r}; there are: {there}")


def read_paper(name: str) -> PublishedPaper:
    """Read the tables of a paper. Raises `UserError` for an unknown one."""
    if name not in PAPERS:
        raise UserError(f"no paper is named {name!r}; there are: {', '.join(PAPERS)}")
    text = files(__package__).joinpath(f"{name}.yaml").read_text("utf-8")
    return PublishedPaper.model_validate(yaml.safe_load(text))


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """A printed figure that does not follow from the other printed figures."""

    model: str
    what: str
    printed: float
    computed: float

    def __str__(self) -> str:
        return f"{self.model}: {self.what} is printed as {self.printed:g} and computes to {round(self.computed, 2):g}"


def find_discrepancies(table: PublishedTable) -> list[Discrepancy]:
    """Recompute every average, difference and stated difference, and list those that disagree with the printed figures."""
    found = []
    rows, step = table.rows, table.unit
    for row in rows.values():
        for name, column in table.columns.items():
            if column.mean_of:
                mean = sum(table.cell(row, each) for each in column.mean_of) / len(column.mean_of)
                if is_beyond(table.cell(row, name) - mean, step):
                    found.append(Discrepancy(row.model, column.title, table.cell(row, name), mean))
        for name, printed in row.changes.items():
            change = table.cell(row, name) - table.cell(rows[row.base or ""], name)
            if is_beyond(printed - change, 1.5 * step):
                found.append(Discrepancy(row.model, f"difference of {table.columns[name].title}", printed, change))
    for each in table.statements:
        gaps = [table.cell(rows[each.of], name) - table.cell(rows[each.minus], name) for name in each.columns]
        gap = sum(gaps) / len(gaps)
        if is_beyond(each.printed - gap, 1.5 * step):
            what = f"the lead over {each.minus} in section {each.section}"
            found.append(Discrepancy(each.of, what, each.printed, gap))
    return found


def is_beyond(difference: float, allowed: float) -> bool:
    return abs(difference) > allowed + 1e-9


def collect_placed_rewards(run: Run) -> dict[tuple[str, str], Rewards]:
    """Collect the rewards of a rollout: (suite, part) → task → rewards of its episodes. Episodes of other packs are left out. Raises
    `UserError` for a run that is not a rollout."""
    if not run.is_rollout:
        raise UserError(f"{run.id} is not a rollout: give a run of simia rollout or simia eval")
    config, facts = run.saved_config(), run.ledger.meta("facts") or {}
    start = f"{config.get('suite') or ''}/" + ("" if config.get("packs") else f"{facts.get('pack')}/")
    found: dict[tuple[str, str], Rewards] = {}
    for each in read_episodes(run):
        if place := find_place(start + each.task):
            found.setdefault(place, {}).setdefault(each.task, []).append(each.reward)
    return found


def describe_conditions(run: Run, rewards: Mapping[tuple[str, str], Rewards]) -> str:
    """Describe how a rollout was played, for the row below a published table: tasks by part, trials, user model, turns."""
    config, facts = run.saved_config(), run.ledger.meta("facts") or {}
    tasks = ", ".join(f"{write_count(len(found), 'task')} of {part}" for (_, part), found in rewards.items())
    user = (facts.get("cast") or {}).get("player") or config.get("user") or "the packs' own"
    turns = (config.get("episode") or {}).get("turns")
    limit = f"; at most {write_count(turns, 'turn')}" if turns else ""
    return f"{tasks}; trials of each task: {config.get('group') or 1}; user: {user}{limit}"


def find_place(path: str) -> tuple[str, str] | None:
    """Return the suite and part of an episode by `SUITE/PACK/TASK`; None if no table has a column for it."""
    for suite, form in PLACES.items():
        if match := form.search(path):
            return suite, PARTS.get(match[1], match[1])
    return None


def measure_columns(
    table: PublishedTable, rewards: Mapping[tuple[str, str], Rewards], scenarios: Scenarios | None = None
) -> dict[str, Estimate]:
    """Compute our figures in percent for each column that our suites measure, with 95 % intervals over tasks. A column over several parts, or a
    mean of columns, needs all of these. Its interval resamples tasks within each part. The columns of a mean have one part each."""
    groups: dict[str, list[dict[str, float]]] = {}
    for name, column in table.columns.items():
        match = MEASURE.fullmatch(column.metric or "")
        if column.suite is None or column.part is None or match is None:
            continue
        parts = [column.part] if isinstance(column.part, str) else column.part
        figures = [measure_part(rewards.get((column.suite, part), {}), match[1], int(match[2])) for part in parts]
        if all(figures):
            groups[name] = figures
    for name, column in table.columns.items():
        if column.mean_of and all(each in groups for each in column.mean_of):
            groups[name] = [values for each in column.mean_of for values in groups[each]]
    return {name: estimate_percent(groups[name], scenarios or {}) for name in table.columns if name in groups}


def estimate_percent(groups: list[dict[str, float]], scenarios: Scenarios) -> Estimate:
    """The mean of the groups' means in percent, with its 95 % interval."""
    found = estimate_average(groups, scenarios)
    return Estimate(100 * found.value, 100 * found.low, 100 * found.high)


def measure_part(rewards: Rewards, measure: str, k: int) -> dict[str, float]:
    """Compute a measure of each task with scored episodes: avg@k is the mean of the task's rewards; pass^k and pass@k are estimated from n ≥ k
    episodes of the task. Empty without scored episodes, or for pass^k and pass@k if a task has fewer than k."""
    known = {task: [value for value in values if value is not None] for task, values in rewards.items()}
    known = {task: values for task, values in known.items() if values}
    if not known or (measure != "avg@" and min(map(len, known.values())) < k):
        return {}
    if measure == "avg@":
        return {task: sum(values) / len(values) for task, values in known.items()}
    estimate = estimate_pass_at_k if measure == "pass@" else estimate_pass_hat_k
    return {task: estimate(len(values), sum(value >= SUCCESS for value in values), k) for task, values in known.items()}
