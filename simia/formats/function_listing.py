"""Tools as Python functions with docstrings, as CodeGym's agent prompt lists them (CodeGym B.4).

A listing keeps all of a tool. If a signature and a docstring cannot express it, a line of the docstring does: `Schema:` with the
JSON Schema of the arguments, or `Definition:` with the whole tool as JSON.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from simia.formats import row_tools
from simia.formats.dialect import RowError, dump_json, is_same_json, parse_json, take_carried
from simia.tool import ToolSpec

HEADER = "Function:\n"
BLOCKS = re.compile(r"^Function:\n", re.MULTILINE)
DEFINITION, SCHEMA = "    Definition: ", "    Schema: "
ARGUMENT = re.compile(r"        (\w+) \([^()]*\): (.*)")
PYTHON_TYPES = {
    "integer": "int",
    "number": "float",
    "string": "str",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
}
JSON_TYPES = {python: name for name, python in PYTHON_TYPES.items()}
LONGEST_SIGNATURE = 10_000


def write_functions(specs: Sequence[ToolSpec]) -> str:
    """List tools as functions; `read_functions` gives them back."""
    return "\n\n".join(write_function(spec) for spec in specs)


def write_function(spec: ToolSpec) -> str:
    return write_function_fields(dump_json([spec.name, spec.description, spec.parameters, spec.returns, spec.extra]))


@lru_cache(maxsize=4096)
def write_function_fields(fields: str) -> str:
    """Write a tool given as the JSON list of its name, description, parameters, returns and extra: an agent lists its tools each turn."""
    name, description, parameters, returns, extra = json.loads(fields)
    spec = ToolSpec(name=name, description=description, parameters=parameters, returns=returns, extra=extra)
    plain = write_plain_function(spec)
    if expresses(plain, spec):
        return plain
    with_schema = write_plain_function(spec, f"{SCHEMA}{dump_json(spec.parameters)}\n")
    if expresses(with_schema, spec):
        return with_schema
    return write_plain_function(spec, f"{DEFINITION}{dump_json(row_tools.write_tool(spec, nested=False))}\n")


def expresses(text: str, spec: ToolSpec) -> bool:
    """Whether reading the text gives the tool, in name, description, arguments and further fields."""
    try:
        found = read_functions(text)
    except RowError:
        return False
    shown = [row_tools.write_tool(each, nested=False) for each in found or []]
    return is_same_json(shown, [row_tools.write_tool(spec, nested=False)]) and not take_carried(spec.extra, ())


def write_plain_function(spec: ToolSpec, more: str = "") -> str:
    """Write the signature and the docstring, with further lines at the end of the docstring."""
    properties = spec.parameters.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    needed = spec.parameters.get("required")
    needed = needed if isinstance(needed, list) else []
    schemas = {name: schema if isinstance(schema, dict) else {} for name, schema in properties.items()}
    ordered = sorted(schemas, key=lambda name: name not in needed)  # Python's order: those with a default come last
    signature = ", ".join(write_parameter(name, schemas[name], name in needed) for name in ordered)
    words = [
        f"        {name} ({write_type(schema)}): {schema.get('description', '')}" for name, schema in schemas.items()
    ]
    returns = f"    Returns:\n        {spec.returns}\n" if isinstance(spec.returns, str) else ""
    description = "".join(f"    {line}\n" for line in spec.description.split("\n"))
    arguments = "\n".join(words or ["        None"])
    return (
        f'{HEADER}def {spec.name}({signature}):\n    """\n{description}    Args:\n{arguments}\n{returns}{more}    """'
    )


def write_parameter(name: str, schema: dict[str, Any], needed: bool) -> str:
    default = "" if needed else f" = {schema.get('default')!r}"
    return f"{name}: {write_type(schema)}{default}"


def write_type(schema: dict[str, Any]) -> str:
    kind = schema.get("type")
    name = PYTHON_TYPES.get(kind, "Any") if isinstance(kind, str) else "Any"
    items = schema.get("items")
    return f"list[{write_type(items)}]" if name == "list" and isinstance(items, dict) and items else name


def read_functions(text: str) -> list[ToolSpec] | None:
    """Read a listing; None for a text that is not a listing. Raises `RowError` for a definition that is not a tool."""
    blocks = BLOCKS.split(text)
    if len(blocks) < 2 or blocks[0].strip():
        return None
    found = [read_function(block.strip("\n")) for block in blocks[1:]]
    return None if None in found else [spec for spec in found if spec is not None]


def read_function(block: str) -> ToolSpec | None:
    lines = block.split("\n")
    if len(lines) < 4 or lines[1].strip() != '"""' or lines[-1].strip() != '"""':
        return None
    for line in reversed(lines):
        if line.startswith(DEFINITION):
            return row_tools.read_tool(line.removeprefix(DEFINITION))
    signature = read_signature(lines[0])
    if signature is None or "    Args:" not in lines:
        return None
    name, properties, required = signature
    at = lines.index("    Args:")
    description = "\n".join(line.removeprefix("    ") for line in lines[2:at])
    needed = {"required": required} if required else {}
    parameters: dict[str, Any] = {"type": "object", "properties": properties, **needed, "additionalProperties": False}
    returns: str | None = None
    for number, line in enumerate(lines[at + 1 : -1], start=at + 1):
        if line.startswith(SCHEMA):
            parameters = read_listed_schema(line.removeprefix(SCHEMA), parameters)
        elif line == "    Returns:":
            returns = lines[number + 1].strip()
        elif returns is None and (argument := ARGUMENT.fullmatch(line)) and argument[1] in properties and argument[2]:
            properties[argument[1]]["description"] = argument[2]
    return ToolSpec(name=name, description=description, parameters=parameters, returns=returns)


def read_listed_schema(text: str, otherwise: dict[str, Any]) -> dict[str, Any]:
    try:
        value = parse_json(text)
    except ValueError:
        return otherwise
    return value if isinstance(value, dict) else otherwise


def read_signature(line: str) -> tuple[str, dict[str, dict[str, Any]], list[str]] | None:
    """(name, properties, required) of a line `def name(…):`; None for any other line. The line is parsed and never run."""
    if not line.startswith("def ") or len(line) > LONGEST_SIGNATURE:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (node,) = ast.parse(f"{line} pass").body
            assert isinstance(node, ast.FunctionDef)
            defaults = [ast.literal_eval(each) for each in node.args.defaults]
    except (SyntaxError, ValueError, AssertionError, RecursionError, MemoryError, TypeError):
        return None
    names = [each.arg for each in node.args.args]
    properties = {each.arg: read_type(each.annotation) for each in node.args.args}
    required = names[: len(names) - len(defaults)]
    for name, default in zip(names[len(required) :], defaults, strict=True):
        if default is not None:
            properties[name]["default"] = default
    return node.name, properties, required


def read_type(node: ast.expr | None) -> dict[str, Any]:
    if isinstance(node, ast.Name) and node.id in JSON_TYPES:
        return {"type": JSON_TYPES[node.id]}
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in ("list", "List"):
        return {"type": "array", "items": read_type(node.slice)}
    return {}
