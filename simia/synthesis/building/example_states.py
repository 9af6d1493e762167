"""Ask a model for states, and check their referential integrity by code (ScaleEnv §3.1, EnvScaler §3.1)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import orjson

from simia.state_schema import StateSchema
from simia.synthesis.building.state_model import describe_row_schema, fill_defaults
from simia.synthesis.design import EnvironmentDesign, ToolDesign
from simia.synthesis.reasons import Reason, name_refusal
from simia.synthesis.reply_reading import read_json, refuse_faults
from simia.synthesis.stage import StageContext
from simia.tool import compile_schema

CLOCK = "2025-05-14T10:30:00"
"""When every episode of a synthesized environment starts."""
SHOWN = 5
STATE_PROMPT = "synthesis/state.j2"
EXAMPLE_PURPOSE = (
    "It is the state that tests of all operations run in: 4 to 8 rows in each table, and for every rule at least one row that satisfies "
    "it and one that a call has to be refused for."
)


async def ask_state(
    context: StageContext, design: EnvironmentDesign, *, purpose: str = EXAMPLE_PURPOSE
) -> dict[str, Any]:
    """Ask for a state of the design. If the state has faults, the model sees them and is asked again.

    Args:
        context: the context of the stage's input that the state is for.
        design: the design, whose tables the state must have.
        purpose: what the state is for, in words: how many rows, which situations occur in it.

    Returns:
        A state that is valid by the schema and the state model, with defaults filled in.

    Raises:
        Refused: `invalid_state`.
    """

    def parse(text: str) -> dict[str, Any]:
        state: dict[str, Any] = read_json(text, dict[str, Any])
        refuse_faults(find_state_faults(design.state, state), SHOWN)
        return fill_defaults(design.state, state)

    values = {
        "title": design.title,
        "description": design.description,
        "rules": design.rules,
        "tables": describe_tables(design.state),
        "purpose": purpose,
        "clock": CLOCK,
    }
    with name_refusal(Reason.INVALID_STATE):
        return await context.ask(STATE_PROMPT, values, parse, label="state", role="writer")


def find_state_faults(schema: StateSchema, state: dict[str, Any]) -> list[str]:
    """Why the schema or the state model refuses a state, one line for each fault; empty if they allow it."""
    found = [f"{name}: there is no such table" for name in state if name not in schema.tables]
    for name, table in schema.tables.items():
        rows = state.get(name)
        if not isinstance(rows, dict):
            found.append(f"{name}: it must be an object, row id → row")
            continue
        check = compile_schema(describe_row_schema(table))
        for key, row in rows.items():
            if not key or "." in key or not key.isprintable():
                found.append(f"{name}: {key!r} cannot be an id: ids have no dots and no control characters")
            found += [f"{name}.{key}{'.' if where else ''}{where}: {what}" for where, what in check.errors(row)[:1]]
    if found:
        return found
    return schema.find_violations(fill_defaults(schema, state))


def list_own_tables(design: EnvironmentDesign, tool: ToolDesign) -> list[str]:
    """The tables that a tool reads or changes by its design, or all if the design names none."""
    return [name for name in design.state.tables if name in tool.tables or not tool.tables]


def write_tool_data(design: EnvironmentDesign, tool: ToolDesign, state: dict[str, Any]) -> str:
    """Write the part of a state that prompts about a tool show: the rows of its tables, and the ids of the tables that these reference."""
    own = list_own_tables(design, tool)
    referenced = {column.references for name in own for column in design.state.tables[name].columns.values()}
    ids = {name: ", ".join(state[name]) for name in design.state.tables if name in referenced and name not in own}
    lines = [f"{name} has rows with the ids {listed or 'none'}" for name, listed in ids.items()]
    return "\n".join([write_rows({name: state[name] for name in own}), *lines])


def describe_tables(schema: StateSchema, shown: Collection[str] | None = None) -> str:
    """The tables as JSON for prompts, without what is a default. `shown`: None for all."""
    tables = {
        name: table.model_dump(exclude_defaults=True)
        for name, table in schema.tables.items()
        if shown is None or name in shown
    }
    lines = [f" {orjson.dumps(name).decode()}: {orjson.dumps(table).decode()}" for name, table in tables.items()]
    return "{\n" + ",\n".join(lines) + "\n}"


def write_tool_design(tool: ToolDesign) -> str:
    """A designed operation as JSON for prompts."""
    return orjson.dumps(tool.model_dump(mode="json", exclude={"given"}), option=orjson.OPT_INDENT_2).decode()


def write_rows(state: dict[str, Any]) -> str:
    """A state as JSON for prompts: a line for each row."""
    tables = []
    for table, rows in state.items():
        lines = [f"  {orjson.dumps(key).decode()}: {orjson.dumps(row).decode()}" for key, row in rows.items()]
        tables.append(f" {orjson.dumps(table).decode()}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(tables) + "\n}"
