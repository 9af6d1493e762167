"""Convert tools of a source so that Python methods can implement them (EnvFactory §3.2: tool definitions and schemas)."""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection

import orjson

from simia.synthesis.building.design_checks import KIT_MEMBERS
from simia.synthesis.sources.source_document import GivenTool
from simia.synthesis.stages.design import make_unique
from simia.tool import ToolSpec

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
UNFIT = re.compile(r"[^A-Za-z0-9_]+")
RESERVED = KIT_MEMBERS | {"self", "by"}
LONGEST = 2000  # characters of what a tool returns


def convert_tool(spec: ToolSpec, writes: bool | None, taken: Collection[str] = ()) -> GivenTool:
    """Convert a tool of a source. If its name or the name of an argument is no Python name, it is changed as little as possible.

    Args:
        spec: the tool as the source defines it.
        writes: whether it may change the state; None: unknown.
        taken: names of tools of the source that were converted before.
    """
    names: dict[str, str] = {}
    for argument in spec.parameters.get("properties", {}):
        names[argument] = make_unique(make_identifier(argument), names.values())
    parameters = {
        **spec.parameters,
        "type": "object",
        "properties": {names[name]: schema for name, schema in spec.parameters.get("properties", {}).items()},
    }
    if required := [names[name] for name in spec.parameters.get("required", []) if name in names]:
        parameters["required"] = required
    else:
        parameters.pop("required", None)
    returned = spec.result_schema
    words = returned if isinstance(returned, str) else orjson.dumps(returned).decode() if returned else ""
    name = make_unique(make_identifier(spec.name), taken)
    return GivenTool(
        name=name, description=spec.description, parameters=parameters, writes=writes, returns=words[:LONGEST]
    )


def make_identifier(name: str) -> str:
    """The name as a Python name: `X-Request-ID` → `X_Request_ID`, `from` → `from_`."""
    found = UNFIT.sub("_", name).strip("_")[:60]
    found = found if NAME.fullmatch(found) else f"a_{found}".rstrip("_")
    return f"{found}_" if keyword.iskeyword(found) or found in RESERVED else found
