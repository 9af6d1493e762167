"""Rows of a pack's report as plain text, for the terminal and the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from simia.report.pack_statistics import (
    CODEGYM_CALLS,
    CODEGYM_TOOLS,
    OUTCOMES,
    SCALEENV_DOMAIN,
    SCALEENV_TASK,
    PackStatistics,
    count_histogram,
)
from simia.report.report_rows import Rows, format_counts, format_part
from simia.report.synthesis_counts import INPUT_REASONS, RunPrice, SynthesisPrice, list_dropped_tools
from simia.report.synthesis_record import as_list, bound_count, bound_line, bound_number, count_outcomes
from simia.statistics import compute_wilson_interval
from simia.synthesis.reasons import explain_reason
from simia.terminal import write_count

Cells = list[tuple[str, ...]]
OUTCOME_WORDS = {"success": "success", "refusal": "anticipated refusal", "failure": "unexpected failure"}
TOOL_HEAD = ("tool", "by", "kind", ">success", ">refusal", ">failure", ">debug rounds", "what it does")
DROPPED_HEAD = ("tool", "reason", "detail")
STAGE_HEAD = ("stage", ">inputs", ">made", ">refused", ">asked", ">tokens in", ">tokens out", ">cost", "refused for")
REASON_HEAD = ("reason", ">tasks", "meaning")
AGENT_HEAD = ("agent", ">tasks", ">episodes", ">solved", ">mean rate", "95 % interval", ">always", ">never")
TASK_HEAD = ("task", "agent", ">solved", ">of", "95 % interval")
MOST_TASK_ROWS = 400
ROUND_OUTCOMES = ("passed", "failed", "invalid", "unreadable")
"""Outcomes of a round of the assessment. The score is the share of `passed` among `passed` and `failed`."""


def list_pack_rows(of: PackStatistics) -> Rows:
    """The summary."""
    pack, record = of.pack, of.record
    made = "written by hand: no record of a synthesis" if not of.recipe else f"recipe {of.recipe}"
    if record is not None:
        made += f", model {record.model}" if record.model else ""
    rows = [("made", made)]
    if record is not None and record.fault:
        rows.append(("", record.fault))
    rows.append(("licence", bound_line(pack.licence) or "unknown"))
    dropped = len(list_dropped_tools(record)) if record else 0
    users = f", {len(pack.user_tools)} of the user" if pack.user_tools else ""
    rows.append(("tools", f"{len(pack.tools)}{users}" + (f"; {dropped} dropped" if record else "")))
    if pack.state_schema is not None:
        keys = sum(
            spec.references is not None
            for table in pack.state_schema.tables.values()
            for spec in table.columns.values()
        )
        rows.append(("tables", f"{len(pack.state_schema.tables)}, {write_count(keys, 'foreign key')}"))
    rows.append(("tests", describe_tests(of)))
    if record is not None and (tests := record.sum_tests()).total():
        rows.append(("", f"in the synthesis: {describe_outcomes(tests)}"))
    if record is not None and (rounds := record.sum_rounds())[0]:
        rows.append(("debug rounds", f"{rounds[0]} in {write_count(rounds[1], 'tool')}"))
    splits = Counter(bound_line(task.split) for task in pack.tasks)
    rows.append(("tasks", f"{len(pack.tasks)}" + (f" ({format_counts(splits)})" if splits else "")))
    if record is not None:
        refused = of.count_refused()
        words = "inputs refused" if of.is_gym else "refused by the gate"
        rows.append(("", f"{refused.total()} {words}" + (f": {format_counts(refused)}" if refused else "")))
    if of.calls:
        mean = sum(of.calls) / len(of.calls)
        rows.append(("calls to solve", f"{mean:.2f} on average, {min(of.calls)} to {max(of.calls)}"))
    rows += list_assessment_rows(of)
    return rows


def list_assessment_rows(of: PackStatistics) -> Rows:
    """List the scores of the dual-agent assessment (EnvScaler §3.1) from the record."""
    rows = []
    for key, note in (of.record.notes.get("assessment", {}) if of.record else {}).items():
        if (score := bound_number(note.get("score"))) is None:
            continue
        low, high = (bound_number(end) for end in [*as_list(note.get("interval")), None, None][:2])
        interval = f" [{low:.3f}, {high:.3f}]" if low is not None and high is not None else ""
        counts = Counter({name: bound_count(note.get(name)) for name in ROUND_OUTCOMES})
        outcomes = f": {format_counts(+counts)}" if +counts else ""
        rows.append(
            ("assessment", f"{key}: {score:.3f}{interval} in {bound_count(note.get('rounds'))} rounds{outcomes}")
        )
    return rows[:20]


def describe_tests(of: PackStatistics) -> str:
    if of.not_run:
        expected = Counter[str](test.expect.outcome for test in of.pack.tests)
        words = f" (expected: {format_counts(expected)})" if expected else ""
        return f"{len(of.pack.tests)}{words}; not run: {bound_line(of.not_run, 300)}"
    if not of.pack.tests:
        return "none"
    untested = [tool.name for tool in (*of.pack.tools, *of.pack.user_tools) if tool.name not in of.outcomes]
    return f"{len(of.pack.tests)} run now: {describe_outcomes(of.sum_outcomes())}" + (
        f"; no test: {', '.join(untested[:20])}" if untested else ""
    )


def describe_outcomes(tests: Counter[str]) -> str:
    return ", ".join(f"{tests[name]:,} {OUTCOME_WORDS[name]}" for name in OUTCOMES)


def list_tool_cells(of: PackStatistics) -> Cells:
    """List a row for each tool: outcomes of its tests as run now, or those of the record if they were not run."""
    notes = of.record.notes.get("tools", {}) if of.record else {}
    by_name = {key.rpartition("/")[2]: note for key, note in notes.items()}
    rows: Cells = []
    for by, specs in (("agent", of.pack.tools), ("user", of.pack.user_tools)):
        for tool in specs:
            note = by_name.get(tool.name)
            tests = of.outcomes.get(tool.name, Counter()) if not of.not_run else count_outcomes(note or {})
            kind = "" if tool.writes is None else "writes" if tool.writes else "reads"
            counts = (str(tests[name]) if tests.total() else "" for name in OUTCOMES)
            rounds = str(bound_count(note.get("rounds"))) if note else ""
            rows.append((tool.name, by, kind, *counts, rounds, bound_line(tool.description)))
    return rows


def list_dropped_cells(of: PackStatistics) -> Cells:
    return list_dropped_tools(of.record) if of.record else []


def list_reason_cells(of: PackStatistics) -> Cells:
    """List the reasons of refusals by the gate, and by the stages that drop inputs of gyms; the most frequent first."""
    inputs = INPUT_REASONS if of.is_gym else {}
    found = of.count_refused().most_common()
    return [(reason, f"{n:,}", inputs.get(reason) or explain_reason(reason)) for reason, n in found]


def list_stage_cells(of: PackStatistics) -> Cells:
    rows: Cells = []
    for stage in of.record.stages if of.record else ():
        about = "~" if stage.estimated else ""
        refused = stage.refused.total() or max(0, stage.inputs - stage.made)
        cost = "unknown" if stage.cost is None else f"${stage.cost:,.2f}"
        counts = (f"{n:,}" for n in (stage.inputs, stage.made, refused, stage.questions))
        tokens = (f"{about}{stage.prompt:,}", f"{about}{stage.completion:,}")
        rows.append((stage.name, *counts, *tokens, cost if stage.questions else "", format_counts(stage.refused)))
    return rows


def list_price_rows(of: PackStatistics) -> Rows:
    """List questions and tokens per accepted tool and task of the run, next to the papers' figures."""
    price = of.measure_price()
    return list_price_texts(price) if price else []


def list_price_texts(price: RunPrice) -> Rows:
    tools, tasks, whole = price.tools, price.tasks, SynthesisPrice()
    whole.add(tools)
    whole.add(tasks)
    domains = max(1, price.environments)
    paper = f"ScaleEnv: {SCALEENV_DOMAIN:,} tokens a domain; here {describe_tokens(tools, domains)}, {domains} made"
    other = f"ScaleEnv: {SCALEENV_TASK:,} tokens a task"
    rows = []
    for name, part, note in (("tool", tools, paper), ("task", tasks, other)):
        if part.accepted and whole.questions:
            each = part.questions / part.accepted
            words = f"{each:,.1f} questions, " if each >= 0.1 or not each else f"{each:.2f} questions, "
            words += f"{describe_tokens(part, part.accepted)} tokens, {part.accepted:,} made"
            if name == "task":
                note = f"with all stages {describe_tokens(whole, part.accepted)}; {note}"
            rows.append((f"each accepted {name}", f"{words} ({note})"))
    return rows


def describe_tokens(price: SynthesisPrice, parts: int) -> str:
    return f"{'~' if price.estimated else ''}{price.tokens / parts:,.0f}"


def list_agent_cells(of: PackStatistics) -> Cells:
    return [
        (bound_line(m.agent), f"{m.tasks:,}", f"{m.episodes:,}", f"{m.solved:,}", f"{m.rate.value:.3f}",
         f"{m.rate.low:.3f} to {m.rate.high:.3f}", f"{m.always:,}", f"{m.never:,}")
        for m in of.measure_agents()
    ]  # fmt: skip


def list_measured_cells(of: PackStatistics) -> Cells:
    """Each measured task with Wilson's interval."""
    rows: Cells = []
    for task in of.pack.tasks:
        for agent, each in task.measured.items():
            low, high = compute_wilson_interval(each.solved, each.n)
            rows.append((task.id, bound_line(agent), str(each.solved), str(each.n), f"{low:.2f} to {high:.2f}"))
    return rows[:MOST_TASK_ROWS]


def list_gym_rows(tools: Sequence[int], calls: Sequence[int]) -> Rows:
    """List the mean numbers of tools and of calls to solve a task, next to the paper's (CodeGym, Fig. 4)."""
    rows = []
    for name, values, paper in (("tools", tools, CODEGYM_TOOLS), ("calls to solve", calls, CODEGYM_CALLS)):
        if values:
            mean = sum(values) / len(values)
            rows.append(
                (name, f"{mean:.2f} on average over {len(values):,} (CodeGym: {paper}), {min(values)} to {max(values)}")
            )
    return rows


def list_bins(values: Sequence[int]) -> list[tuple[str, int, str]]:
    """Bins of a histogram: range, count, and share with both counts."""
    return [(name, count, format_part(count, len(values))) for name, count in count_histogram(values)]


def list_reference_lines(of: PackStatistics) -> list[str]:
    """Foreign keys, one line each, for the terminal."""
    tables = of.pack.state_schema.tables if of.pack.state_schema else {}
    return [
        f"{name}.{column} → {spec.references}"
        for name, table in tables.items()
        for column, spec in table.columns.items()
        if spec.references is not None
    ]


def list_access_cells(of: PackStatistics) -> Cells:
    """Tables with the tools that write and read them."""
    tools = (*of.pack.tools, *of.pack.user_tools)
    tables = dict.fromkeys([
        *(of.pack.state_schema.tables if of.pack.state_schema else ()),
        *(table for tool in tools for table in (*(tool.writes or ()), *(tool.reads or ()))),
    ])  # fmt: skip
    found: Cells = []
    for table in tables:
        writing = [tool.name for tool in tools if table in (tool.writes or ())]
        reading = [tool.name for tool in tools if table in (tool.reads or ()) and tool.name not in writing]
        if writing or reading:
            found.append((table, ", ".join(writing), ", ".join(reading)))
    return found
