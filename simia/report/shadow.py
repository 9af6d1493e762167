"""Compare both worlds of a rollout with `backend=shadow`: one line for a run, and call by call for an episode.

Two answers agree if both refuse, or if both succeed with the same values. `simia fidelity` measures how similar other
answers are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from simia.evaluation.fidelity import iterate_leaves, json_kind
from simia.jobs import Run
from simia.report.console import make_plain_text
from simia.trajectory import write_compact_json

Row = Mapping[str, Any]
LONGEST = 200  # characters of an error


def list_compared_calls(run: Run, item: str) -> list[dict[str, Any]]:
    """Return the compared calls of an episode, each with `episode` set."""
    body = run.ledger.result(item)
    rows = (body["trajectory"].get("evidence") or {}).get("differences", []) if body and body["trajectory"] else []
    return [{**row, "episode": item} for row in rows]


def summarize_shadow(run: Run) -> str | None:
    """Summarize how many calls were compared, agree and were lost; None without a shadow back end."""
    if run.saved_config().get("backend") != "shadow":
        return None
    rows = [row for item in run.ledger.items() for row in list_compared_calls(run, item.id)]
    lost = Counter(str(row["lost"]) for row in rows if "lost" in row)
    same = sum(answers_agree(row) for row in rows)
    why = f" (mostly {lost.most_common(1)[0][0][:LONGEST]})" if lost else ""
    return (
        f"shadow: {len(rows)} calls, {same} agree, {len(rows) - same - lost.total()} differ, {lost.total()} lost{why}"
    )


def answers_agree(row: Row) -> bool:
    if "lost" in row:
        return False
    real, simulated = row["real"], row["simulated"]
    if real["failed"] or simulated["failed"]:
        return bool(real["failed"] == simulated["failed"])
    one, two = real["content"], simulated["content"]
    return json_kind(one) == json_kind(two) and Counter(iterate_leaves(one)) == Counter(iterate_leaves(two))


def print_differences(rows: Sequence[Row], to: Console) -> None:
    """Print each call of an episode, with both answers where they differ."""
    if not rows:
        return
    to.print("simulated world compared with the real one:", highlight=False)
    for row in rows:
        fate = "lost" if "lost" in row else "agrees" if answers_agree(row) else "differs"
        lines = [f"{row['step']}. {row['name']} {write_compact_json(row['arguments'])}: {fate}"]
        if "lost" in row:
            lines.append(f"     {row['lost']}")
        elif fate == "differs":
            lines += [f"     {world:<9} {format_answer(row[world])}" for world in ("real", "simulated")]
        if row.get("issue"):
            lines.append(f"     issue     {row['issue']}")
        for line in lines:
            to.print(make_plain_text(f"  {line}"), soft_wrap=True)


def format_answer(answer: Row) -> str:
    return f"{'refuses: ' if answer['failed'] else ''}{write_compact_json(answer['content'])}"
