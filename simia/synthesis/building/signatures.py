"""Derive the JSON Schema of a method's arguments from its signature and docstring, by AST (EnvScaler §2: tool interfaces).

`Literal`, unions, `Optional`, defaults, `list[…]` and `dict[…]` are kept. Nothing is executed.
"""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

from simia.synthesis.reasons import Unreadable
from simia.tool import ToolSpec

SIMPLE = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array", "dict": "object"}
KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?):\s*$")
ARGUMENT = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")
DEPTH = 8
FORMATS = frozenset({"date", "email"})
"""Formats of designs that schemas keep. Times are left out: designs mean 10:30, and JSON Schema requires seconds and a time zone."""


def derive_tool(function: ast.FunctionDef) -> ToolSpec:
    """Return the tool that a method defines. Raises `Unreadable` for a signature or docstring that does not define one."""
    given = function.args
    if given.vararg or given.kwarg or given.posonlyargs:
        raise Unreadable(f"{function.name}: name every argument: no *args, **kwargs or `/`")
    if not given.args or given.args[0].arg != "self":
        raise Unreadable(f"{function.name}: the first argument is `self`")
    defaults: list[ast.expr | None] = [*[None] * (len(given.args) - len(given.defaults)), *given.defaults]
    pairs = [*zip(given.args[1:], defaults[1:], strict=True), *zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    summary, words = read_docstring(ast.get_docstring(function) or "")
    if not summary:
        raise Unreadable(f"{function.name}: the docstring is missing: say in one line what the tool does")
    properties: dict[str, Any] = {}
    for argument, default in pairs:
        if argument.annotation is None:
            raise Unreadable(f"{function.name}: {argument.arg} has no annotation")
        if not words.get(argument.arg):
            raise Unreadable(f"{function.name}: the docstring has no line for {argument.arg} under `Args:`")
        schema = {**derive_schema(argument.annotation), "description": words[argument.arg]}
        if default is not None and (value := read_default(argument.arg, default)) is not None:
            schema["default"] = value
        properties[argument.arg] = schema
    required = [argument.arg for argument, default in pairs if default is None]
    parameters: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = required
    return ToolSpec(name=function.name, description=summary, parameters={**parameters, "additionalProperties": False})


def read_default(name: str, node: ast.expr) -> Any:
    """The value of a default. Raises `Unreadable` unless it is a text, number, truth value or None."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        value = node
    if value is not None and type(value) not in KINDS:
        raise Unreadable(f"the default of {name} is not a plain text, number, truth value or None")
    return value


def derive_schema(node: ast.expr, depth: int = 0) -> dict[str, Any]:
    """The JSON Schema of an annotation. Raises `Unreadable` for a type that JSON does not have."""
    if depth > DEPTH:
        raise Unreadable("an annotation nests too deep")
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            return derive_schema(ast.parse(node.value, mode="eval").body, depth + 1)
        except SyntaxError:
            raise Unreadable(f"{node.value!r} is no type") from None
    if isinstance(node, ast.Constant) and node.value is None:
        return {"type": "null"}
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return join_schemas([derive_schema(side, depth + 1) for side in (node.left, node.right)])
    if isinstance(node, ast.Name) and node.id.lower() in SIMPLE:
        return {"type": SIMPLE[node.id.lower()]}
    if isinstance(node, ast.Name) and node.id == "Any":
        return {}
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        inner = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        if node.value.id == "Literal":
            return list_values(inner)
        parts = [derive_schema(each, depth + 1) for each in inner]
        match node.value.id.lower(), parts:
            case "optional", [only]:
                return join_schemas([only, {"type": "null"}])
            case "union", [_, *_]:
                return join_schemas(parts)
            case "list", [items]:
                return {"type": "array", **({"items": items} if items else {})}
            case "dict", [{"type": "string"}, values]:
                return {"type": "object", **({"additionalProperties": values} if values else {})}
    raise Unreadable(
        f"{ast.unparse(node)[:80]} is no type for an argument: use str, int, float, bool, list[…], dict[str, …], Literal[…] and `| None`"
    )


def list_values(nodes: list[ast.expr]) -> dict[str, Any]:
    """The schema of a `Literal`."""
    values = [node.value if isinstance(node, ast.Constant) else node for node in nodes]
    if not all(type(value) in (str, int, bool) for value in values):
        raise Unreadable("Literal[…] holds texts, integers and truth values")
    kinds = list(dict.fromkeys(KINDS[type(value)] for value in values))
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": values}


def join_schemas(members: list[dict[str, Any]]) -> dict[str, Any]:
    """Join alternative schemas: a list of types if that is enough, otherwise `anyOf`."""
    flat = [each for member in members for each in member.get("anyOf", [member])]
    if {} in flat:
        return {}
    kinds = [kind for each in flat for kind in (each["type"] if isinstance(each["type"], list) else [each["type"]])]
    types = list(dict.fromkeys(kinds))
    limited = [each for each in flat if len(each) > 1]
    if not limited:
        return {"type": types}
    others = [each for each in flat if each not in limited]
    if len(limited) == 1 and all(each["type"] == "null" for each in others):
        joined = {**limited[0], "type": types}
        return {**joined, "enum": [*joined["enum"], None]} if "enum" in joined else joined
    return {"anyOf": flat}


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The summary of a docstring in Google's style, and its arguments' descriptions."""
    lines = inspect.cleandoc(text).splitlines()
    summary, words, section, name, depth = [], {}, "", "", None
    for line in lines:
        if found := SECTION.match(line):
            section, name, depth = found[1], "", None
            continue
        if not section:
            summary.append(line.strip())
        elif section in ("Args", "Arguments", "Parameters") and line.strip():
            indent = len(line) - len(line.lstrip())
            depth = indent if depth is None else depth
            if indent <= depth and (found := ARGUMENT.match(line.strip())):
                name = found[1]
                words[name] = found[2].strip()
            elif name:
                words[name] = f"{words[name]} {line.strip()}".strip()
    first = " ".join(" ".join(summary).split("  ")[0].split())
    return first.removesuffix("."), {key: value.removesuffix(".") for key, value in words.items()}


def add_formats(derived: dict[str, Any], designed: dict[str, Any]) -> dict[str, Any]:
    """Return a derived schema of arguments with the `FORMATS` that the design gives their texts, or the texts of their lists."""
    wanted = designed.get("properties", {})
    properties = {name: add_format(schema, wanted.get(name)) for name, schema in derived.get("properties", {}).items()}
    return {**derived, "properties": properties}


def add_format(derived: dict[str, Any], designed: Any) -> dict[str, Any]:
    """Return the schema of a value with the format that the design gives it."""
    if not isinstance(designed, dict):
        return derived
    members = [designed, *(each for each in designed.get("anyOf") or () if isinstance(each, dict))]
    found = next((each["format"] for each in members if each.get("format") in FORMATS), None)
    if found is not None and "string" in list_json_types(derived) and "enum" not in derived and "anyOf" not in derived:
        return {**derived, "format": found}
    if isinstance(items := derived.get("items"), dict):
        lists = (each["items"] for each in members if "items" in each)
        return {**derived, "items": add_format(items, next(lists, None))}
    return derived


def compare_parameters(designed: dict[str, Any], derived: dict[str, Any]) -> list[str]:
    """Where a derived schema differs from the designed one: names, which are required, types and enumerated values."""
    wanted, has = designed.get("properties", {}), derived.get("properties", {})
    found = [f"the argument {name} is missing" for name in wanted if name not in has]
    found += [f"the design has no argument {name}" for name in has if name not in wanted]
    needed, must = set(designed.get("required", [])), set(derived.get("required", []))
    for name in (name for name in wanted if name in has):
        if (name in needed) is not (name in must):
            how = "is required: give it no default" if name in needed else "is optional: give it a default"
            found.append(f"{name} {how}")
        kinds, others = (list_json_types(schema) for schema in (wanted[name], has[name]))
        if kinds and others != kinds:
            found.append(
                f"{name} is {' or '.join(sorted(kinds))} in the design, {' or '.join(sorted(others)) or 'anything'} here"
            )
        values, own = (list_enumerated(schema) for schema in (wanted[name], has[name]))
        if values != own:
            text = ", ".join(sorted(map(repr, values))) or "not limited"
            found.append(f"{name}: its values are {text} in the design: write Literal[…] exactly so")
    return found


def list_json_types(schema: Any) -> set[str]:
    """The JSON types that a schema names, without null; empty: any."""
    if not isinstance(schema, dict):
        return set()
    members = schema.get("anyOf") or schema.get("oneOf") or []
    kind = schema.get("type", [])
    if not kind and "enum" in schema:
        kind = [KINDS.get(type(value), "object") for value in schema["enum"]]
    own = {kind} if isinstance(kind, str) else set(kind)
    return (own | {each for member in members for each in list_json_types(member)}) - {"null"}


def list_enumerated(schema: Any) -> set[Any]:
    """The values that a schema enumerates, without null."""
    if not isinstance(schema, dict):
        return set()
    own = {value for value in schema.get("enum", []) if isinstance(value, str | int | float)}
    members = schema.get("anyOf") or schema.get("oneOf") or []
    return own | {value for member in members for value in list_enumerated(member)}
