"""Compare the error messages of a simulated environment with those of the executable one, for refused calls (Simia, figure 8).

    python -m eval.ablations.failure_messages

The 24 calls are those of docs/other_calls.jsonl, which no solution of their tasks makes. The pack's code answers each, and a strong model
answers it three times: it knows the schema, also the solution's calls, or also their results. The answers are recorded. Every call that
either side refuses is stored with both messages. `names a cause`: the message contains a value of the call or a number, as in "valid
until 2025-05-31".
"""

from __future__ import annotations

import asyncio
import json
import re
import runpy
from pathlib import Path
from typing import Any

from eval.ablations.outcomes import save_counts

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"
REAL, SIMULATED = "executable", "simulated"


async def collect_refusals(only: str | None = None) -> list[dict[str, Any]]:
    """The calls that the executable or the simulated environment refuses, with both answers. `only`: for one kind of knowledge alone."""
    script = runpy.run_path(str(ROOT / "docs" / "fidelity_references.py"), run_name="references")
    rows = []
    for way, settings in script["WAYS"].items():
        if only not in (None, way):
            continue
        for kind in script["KINDS"]:
            model = script["open_recording"](f"fidelity-other-{way}")
            async for row in script["play_other"](model, kind, **settings):
                if "simulated" in row and (row["real"]["failed"] or row["simulated"]["failed"]):
                    both = {REAL: row["real"], SIMULATED: row["simulated"]}
                    rows.append({"knows": way, "call": row["name"], "arguments": row["arguments"], **both})
    return rows


def write_message(answer: dict[str, Any]) -> str:
    content = answer["content"]
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def names_cause(answer: dict[str, Any], arguments: dict[str, Any]) -> bool:
    message = write_message(answer)
    return bool(re.search(r"\d", message)) or any(str(value) in message for value in arguments.values())


def count(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Count for each environment: how many of the stored calls it refuses, and how many of its refusals name a cause."""
    counts = []
    for arm in (REAL, SIMULATED):
        refused = [row for row in rows if row[arm]["failed"]]
        causes = sum(names_cause(row[arm], row["arguments"]) for row in refused)
        counts.append(
            {"arm": arm, "measure": "refused, of calls that either refuses", "count": len(refused), "of": len(rows)}
        )
        counts.append(
            {"arm": arm, "measure": "refusals that name a value or a number", "count": causes, "of": len(refused)}
        )
    return counts


def main() -> None:
    rows = asyncio.run(collect_refusals())
    for row in rows:
        print(f"{row['knows']}, {row['call']} {json.dumps(row['arguments'])}")
        for arm in (REAL, SIMULATED):
            print(f"  {arm}: {'' if row[arm]['failed'] else '(not refused) '}{write_message(row[arm])[:160]}")
    path = RESULTS / "failure_messages_calls.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    save_counts("failure_messages", "Calls that an environment refuses", count(rows), RESULTS)


if __name__ == "__main__":
    main()
