"""Check a pack as a whole: find tools, tables and columns that no task uses, and a state that no solution changes although it is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simia.authoring.findings import Fault, Finding
from simia.envs.rewards.trace import list_calls
from simia.pack import Pack
from simia.state_schema import list_rows
from simia.task import Task
from simia.trajectory import Trajectory, write_compact_json

SHOWN = 8
LOOKED_AT = 2_000  # rows of a table


def find_unseen_state(
    tasks: Sequence[Task], played: Mapping[str, Trajectory], writes: Mapping[str, Mapping[str, bool]]
) -> list[Task]:
    """List tasks whose solutions call writing tools and whose rewards judge the state, if no solution of the pack changes the state."""
    if any((trajectory.evidence or {}).get("changes") for trajectory in played.values()):
        return []
    judged = {"state", "checklist", "goals"}
    return [
        task
        for task in tasks
        if task.id in played
        and judged & {part.kind for part in task.reward.parts}
        and any(writes.get(by, {}).get(name, False) for by, name, _ in list_calls(played[task.id]))
    ]


def check_coverage(pack: Pack, initial: Any, played: Sequence[Trajectory]) -> list[Finding]:
    """Name the tools that no solution calls, and the tables and columns that none reads or changes.

    A table is used if a solution changes it, calls a tool that declares to read or write it, or has the key of one of its rows in a call
    or a result. Without a schema only fields of the state that are objects count as tables. A column is used if a solution changes it, or if its name occurs in a call or a result.
    """
    called = {call.name for trajectory in played for _, _, call in trajectory.calls()}
    idle = [tool.name for tool in (*pack.tools, *pack.user_tools) if tool.name not in called]
    found = [name_uncovered(pack.name, "tools", idle)] if idle and played else []
    if not played or not isinstance(initial, dict):
        return found
    specs = {tool.name: tool for tool in (*pack.tools, *pack.user_tools)}
    declared = {
        table for name in called if name in specs for table in (*(specs[name].reads or ()), *(specs[name].writes or ()))
    }
    seen = "\n".join(
        text
        for trajectory in played
        for message in trajectory.messages
        for text in (
            message.text if message.role == "tool" else "",
            *(write_compact_json(c.arguments) for c in message.calls),
        )
    )
    changes = [change for trajectory in played for change in (trajectory.evidence or {}).get("changes") or []]
    changed = [write_compact_json(change) for change in changes]
    schema = pack.state_schema
    if schema is None:
        tables = {name: list(rows)[:LOOKED_AT] for name, rows in initial.items() if isinstance(rows, dict)}
    else:
        tables = {
            name: [key for key, _ in list_rows(initial, name, spec)[:LOOKED_AT]] for name, spec in schema.tables.items()
        }
    written = {(schema.find_table(c["path"]) if schema else None) or c["path"][0] for c in changes if c["path"]}
    quiet = [
        name
        for name, keys in tables.items()
        if name not in written | declared and not any(len(key) > 2 and key in seen for key in keys)
    ]
    if quiet:
        found.append(name_uncovered(pack.name, "tables", quiet))
    if schema is not None:
        every = [seen, *changed]
        columns = [
            f"{name}.{column}"
            for name, spec in schema.tables.items()
            for column in spec.columns
            if name not in quiet and not any(f'"{column}"' in text for text in every)
        ]
        if columns:
            found.append(name_uncovered(pack.name, "columns", columns))
    return found


def name_uncovered(pack: str, kind: str, names: Sequence[str]) -> Finding:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return Finding(Fault.UNCOVERED, pack, f"no solution touches the {kind} {', '.join(names[:SHOWN])}{more}")
