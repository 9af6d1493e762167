"""Read calls and values written as Python: `{'name': 'f', 'arguments': {'a': None}}` and `[f(a=1, b='x'), g()]`, as in BFCL.

The text is parsed with `ast` and never run. Only literals are read: a text with a sum or a nested call, for example, is not a call.
"""

from __future__ import annotations

import ast
import re
import warnings
from typing import Any

from simia.formats.dialect import find_fault

LARGEST = 200_000  # characters; ast needs far more memory than its text
CALLS = re.compile(r"\[?\s*[^\W\d]\w*(?:[ .-]\w+)*\s*\(.*\)\s*\]?", re.DOTALL)
CONSTANTS = {"true": True, "false": False, "null": None}  # JSON's, in a text that is Python otherwise
STRING = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
LOOSE_NAME = re.compile(r"(?<![\w.])([^\W\d]\w*(?:(?: |-|\.)\w+)+)\s*\(")


def parse_python(text: str) -> Any:
    """The JSON value of a Python literal. Raises `ValueError` for any other text."""
    tree = parse(text)
    return check(convert(tree))


def parse_python_calls(text: str) -> list[tuple[str, dict[str, Any]]] | None:
    """Read (name, arguments) of each call of `[f(a=1), g()]` or `f(a=1)`; None for a text with anything but such calls.

    It is also None for a positional argument, since the text does not name its parameter.
    """
    text = text.strip()
    if len(text) > LARGEST or not CALLS.fullmatch(text):
        return None
    names: dict[str, str] = {}
    try:
        tree = parse(mask_names(text, names))
        nodes = tree.elts if isinstance(tree, ast.List) else [tree]
        return [read_call_node(node, names) for node in nodes] or None
    except ValueError:
        return None


def mask_names(text: str, names: dict[str, str]) -> str:
    """Replace names that are no Python identifiers, such as `Market Trends API` and `math.hypot`, by identifiers, except in strings."""
    pieces, at = [], 0
    for string in [*STRING.finditer(text), None]:
        end = string.start() if string else len(text)

        def mask(found: re.Match[str]) -> str:
            masked = f"name_{len(names)}_"
            names[masked] = found[1]
            return f"{masked}("

        pieces += [LOOSE_NAME.sub(mask, text[at:end]), string[0] if string else ""]
        at = string.end() if string else at
    return "".join(pieces)


def parse(text: str) -> ast.expr:
    if len(text) > LARGEST:
        raise ValueError("too large for Python")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"not Python: {error}") from None


def read_call_node(node: ast.expr, names: dict[str, str]) -> tuple[str, dict[str, Any]]:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.args:
        raise ValueError("not a call with named arguments")
    arguments = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise ValueError("an argument has no name")
        arguments[keyword.arg] = check(convert(keyword.value))
    return names.get(node.func.id, node.func.id), arguments


def convert(node: ast.expr) -> Any:
    """The JSON value of a literal's node."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str | bool | int | float | None):
        return node.value
    if isinstance(node, ast.Name) and node.id in CONSTANTS:
        return CONSTANTS[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        number = node.operand.value
        if isinstance(number, int | float) and not isinstance(number, bool):
            return -number
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return [convert(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        keys = [convert(key) if key is not None else None for key in node.keys]
        if all(isinstance(key, str) for key in keys):
            return {str(key): convert(value) for key, value in zip(keys, node.values, strict=True)}
    raise ValueError("not a literal")


def check(value: Any) -> Any:
    if why := find_fault(value):
        raise why
    return value
