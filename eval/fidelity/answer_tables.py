"""The tables of docs/simulator-fidelity.md, computed from the recorded answers: `python eval/fidelity/answer_tables.py` writes them into the page.

The answers are a strong model's, in `answers.jsonl`; nothing is asked. `code` has all 120 calls of `calls-120.jsonl`, the other kinds of
knowledge the 40 of `calls-40.jsonl`, which are a part of them. The figures are those that `simia fidelity --frozen` prints.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from simia.evaluation.call_samples import name_bin, read_samples
from simia.evaluation.change_fidelity import split_rows
from simia.evaluation.fidelity import measure_fidelity
from simia.evaluation.sample_replies import SINGLE_ANSWER, compare_samples, load_packs
from simia.llm.batch_files import BatchBackend, BatchSettings
from simia.llm.engine import Engine, EngineLimits
from simia.llm.journals import MemoryJournal
from simia.report.change_report import BINS, format_estimate
from simia.trajectory import write_compact_json

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "simulator-fidelity.md"
BEGIN, END = "<!-- computed by eval/fidelity/answer_tables.py -->", "<!-- end of what is computed -->"
ASKED = (("schema", 40), ("reference", 40), ("state", 40), ("code", 40), ("code", 120))
"""Kinds of knowledge, and the number of calls that were asked."""
SHOWN = [each for each in ASKED if each != ("code", 40)]
"""Of the tables with a row for each group; those of `code` are all exact."""
BY_SIZE = [("|Δ|", group, group) for group in BINS]
BY_CALL = [
    *(("outcome", group, group) for group in ("ok", "error")),
    *(("arguments", group, f"{group} arguments") for group in ("0", "1", "2", "3 or more")),
]
"""Columns of a table: axis, group, title."""
MISSES = {
    "schema": ("tank-cascade/augmented-10/4", "job_seeking/chain-2/6-4c5cfa"),
    "reference": ("hotel_front_desk/1-1-plain/2", "job_seeking/chain-12/4-e9da97"),
}
LONGEST = 200  # characters of the changes of a miss
Row = dict[str, Any]
Asked = tuple[str, int]


async def compare_answers() -> dict[Asked, list[Row]]:
    """Compare the recorded answers with the truth. Returns a row for each call, with `paths`, the number of changed paths."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "results").mkdir()
        shutil.copy(HERE / "answers.jsonl", Path(folder) / "results")
        model = BatchBackend(BatchSettings(model="strong", folder=Path(folder)))
        async with Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine:
            for kind, count in ASKED:
                head, samples = read_samples(HERE / f"calls-{count}.jsonl")
                rows = await compare_samples(samples, load_packs(head), engine, {**SINGLE_ANSWER, "knowledge": kind})
                found[kind, count] = add_paths(rows, {sample.id: sample.paths for sample in samples})
    return found


def add_paths(rows: Iterable[Row], paths: Mapping[str, int]) -> list[Row]:
    return [{**row, "paths": paths[row["sample"]]} for row in rows]


def render(found: Mapping[Asked, Sequence[Row]]) -> str:
    """Write the tables and the misses."""
    by_size = write_groups(found, "exact by \\|Δ\\|", BY_SIZE)
    by_call = write_groups(found, "exact by outcome and number of arguments", BY_CALL)
    return "\n\n".join([write_totals(found), by_size, write_paths(found), by_call, write_misses(found)])


def write_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def write_totals(found: Mapping[Asked, Sequence[Row]]) -> str:
    lines = []
    for (kind, count), rows in found.items():
        all_calls = measure_fidelity(rows, {})
        total = all_calls.total
        exact, f1 = (format_estimate(all_calls.interval(what)) for what in ("exact_share", "value_f1"))
        named = [f"{total.forgotten} of {total.entities}", str(total.invented)]
        lines.append([f"{kind} ({count})", exact, f"{total.agreement:.2f}", f1, *named])
    head = ("knowledge (calls)", "exact", "outcome agrees", "F1 of results", "forgotten", "invented")
    return write_table(head, lines)


def write_groups(found: Mapping[Asked, Sequence[Row]], title: str, columns: Sequence[tuple[str, str, str]]) -> str:
    """Write the exact share of each group, with its interval."""
    lines = []
    for kind, count in SHOWN:
        split = {axis: split_rows(found[kind, count], axis, {}) for axis, _, _ in columns}
        estimates = [format_estimate(split[axis][group].interval("exact_share")) for axis, group, _ in columns]
        lines.append([f"{kind} ({count})", *estimates])
    return write_table((title, *(name for _, _, name in columns)), lines)


def write_paths(found: Mapping[Asked, Sequence[Row]]) -> str:
    """Write the exact calls by the number of changed paths, which is EnvSimBench's count."""
    lines = []
    for kind, count in SHOWN:
        groups = [[row for row in found[kind, count] if name_bin(row["paths"]) == name] for name in BINS]
        exact = [f"{sum(row['transition']['exact'] for row in rows)} of {len(rows)}" if rows else "" for rows in groups]
        lines.append([f"{kind} ({count})", *exact])
    return write_table(("exact by changed paths, a new row as one", *BINS), lines)


def write_misses(found: Mapping[Asked, Sequence[Row]]) -> str:
    """Write how many answers miss the true changes, and the true and the named changes of some."""
    counts, lines = [], []
    for kind, names in MISSES.items():
        rows = {row["sample"]: row for row in found[kind, 40] if not row["transition"]["exact"]}
        unknown = sum("there is no table" in row["transition"].get("fault", "") for row in rows.values())
        counts.append(f"{kind} {len(rows)}, of which {unknown} name a table that does not exist")
        for name in names:
            step = rows[name]["transition"]
            true, named = (write_changes(step[which]) for which in ("real", "simulated"))
            lines.append([kind, f"`{name}` {rows[name]['name']}", true, named])
    return f"Misses: {'; '.join(counts)}. Two of each:\n\n" + write_table(("knowledge", "call", "true", "named"), lines)


def write_changes(changes: Sequence[Mapping[str, Any]]) -> str:
    """Write changes shortly: table, key, and the rest."""
    parts = []
    for change in changes:
        rest = {name: value for name, value in change.items() if name not in ("table", "key")}
        value = rest["set"] if rest.keys() == {"set"} else rest["value"] if rest.keys() == {"value"} else rest
        parts.append(f"{change['table']} {change['key']} {write_compact_json(value)}")
    text = "; ".join(parts)
    return f"`{text if len(text) <= LONGEST else text[:LONGEST] + '…'}`"


def write_page(page: str, text: str) -> str:
    """Put the computed part into the page."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(
        write_page(PAGE.read_text(encoding="utf-8"), render(asyncio.run(compare_answers()))), encoding="utf-8"
    )
