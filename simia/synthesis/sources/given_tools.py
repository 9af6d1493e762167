"""Merge tools of a source into a design: name, description and schema come from the source; rules, tables and refusals from the design."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from simia.synthesis.reasons import Unreadable
from simia.synthesis.sources.source_document import GivenTool


def fill_given_tools(rows: Sequence[dict[str, Any]], given: Sequence[GivenTool]) -> list[dict[str, Any]]:
    """Return the designed operations; those that are given tools get the source's name, description and schema.

    Raises:
        Unreadable: a given tool is missing.
    """
    kept = {tool.name: tool for tool in given}
    if missing := [name for name in kept if name not in {row.get("name") for row in rows}]:
        raise Unreadable(f"the given tool {missing[0]} is missing: all given tools are kept, by their names")
    found = []
    for row in rows:
        tool = kept.get(row.get("name", ""))
        if tool is None:
            found.append({key: value for key, value in row.items() if key != "given"})
            continue
        filled = {**row, "description": tool.description or row.get("description", ""), "parameters": tool.parameters}
        found.append({**filled, "given": True, **({} if tool.writes is None else {"writes": tool.writes})})
    return found


def describe_given_tool(tool: GivenTool) -> str:
    """A given tool as a line of JSON for prompts."""
    return orjson.dumps(tool.model_dump(mode="json", exclude_defaults=True)).decode()
