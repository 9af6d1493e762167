"""Refinements of an initial state: rows that a model adds or changes so that tools can be called (ScaleEnv §4.2.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from simia.json_values import iterate_strings
from simia.reward_spec import StrictModel
from simia.state import Change
from simia.state_schema import StateSchema
from simia.synthesis.building.example_states import find_state_faults
from simia.synthesis.building.state_model import fill_defaults
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.reply_reading import read_json, refuse_faults
from simia.synthesis.scenarios.solution_runs import WrittenCall
from simia.task import Action

SHOWN = 5
MOST_CALLS = 60


class Refinement(StrictModel):
    """What a model proposes for tools that no call could execute."""

    patch: dict[str, dict[str, dict[str, Any]]] = Field(default_factory=dict)
    """Table → row id → columns: new rows, or new values of columns. No row can be removed."""
    calls: list[WrittenCall] = Field(default_factory=list, max_length=MOST_CALLS)
    """Calls that succeed in the patched state."""


def read_refinement(text: str, built: BuiltEnvironment, tools: Sequence[str]) -> Refinement:
    """Read a reply. Raises `Unreadable` for tables and tools that do not exist, and for arguments that the schema refuses."""
    found: Refinement = read_json(text, Refinement)
    faults = [f"patch: there is no table {name}" for name in found.patch if name not in built.design.state.tables]
    for call in found.calls:
        if call.name not in tools:
            faults.append(f"calls: {call.name} is none of the tools that were asked for")
        else:
            errors = built.tools[call.name].spec.argument_errors(call.arguments)
            faults += [f"calls: {call.name}: {where} {what}" for where, what in errors[:1]]
    refuse_faults(faults, SHOWN)
    return found


def list_touched_rows(
    schema: StateSchema, state: Mapping[str, Any], calls: Sequence[Action], changes: Sequence[Change]
) -> dict[str, list[str]]:
    """Return table → rows that a chain names, changes or adds: no refinement may alter them."""
    named = {text for call in calls for text in iterate_strings(call.arguments)}
    changed = {(change["path"][0], change["path"][1]) for change in changes if len(change["path"]) > 1}
    found: dict[str, list[str]] = {}
    for table in schema.tables:
        keys = [key for key in state.get(table, {}) if key in named or (table, key) in changed]
        keys += sorted(key for name, key in changed if name == table and key not in state.get(table, {}))
        if keys:
            found[table] = keys
    return found


def apply_refinement(
    schema: StateSchema,
    state: Mapping[str, Any],
    patch: Mapping[str, Mapping[str, Mapping[str, Any]]],
    frozen: Mapping[str, Sequence[str]],
) -> tuple[dict[str, Any], str]:
    """Return the patched state, and what is wrong with it: an altered frozen row or a violation of the schema; empty if nothing is."""
    patched: dict[str, Any] = {table: dict(rows) for table, rows in state.items()}
    for table, rows in patch.items():
        for key, columns in rows.items():
            if key in frozen.get(table, ()):
                return patched, f"the patch changes {table}.{key}, which the task uses and which must stay as it is"
            patched.setdefault(table, {})[key] = {**patched.get(table, {}).get(key, {}), **columns}
    if faults := find_state_faults(schema, patched):
        return patched, "; ".join(faults[:SHOWN])
    return fill_defaults(schema, patched), ""
