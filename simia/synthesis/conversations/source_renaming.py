"""Rename tables, row classes and tools in the source of a method, and nothing else in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from simia.synthesis.state_access import is_state

Edit = tuple[int, int, int, str]
"""Line from 1, first and last byte of it, and the new text."""


def rename_method(source: str, *, tables: Mapping[str, str], rows: Mapping[str, str], tools: Mapping[str, str]) -> str:
    """Return a method's source with other names; comments and layout are kept.

    Args:
        source: one method without indentation.
        tables: table → new name; replaced as an attribute of `self.state` or of a variable that holds it.
        rows: row class → new name.
        tools: tool → new name; replaced as the method's own name and in its docstring.
    """
    tree = ast.parse(source)
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    lines = [line.encode() for line in source.splitlines()]
    edits = [*list_table_edits(function, tables), *list_row_edits(function, rows)]
    for line, first, last, new in sorted(edits, reverse=True):
        lines[line - 1] = lines[line - 1][:first] + new.encode() + lines[line - 1][last:]
    texts = [line.decode() for line in lines]
    head = function.lineno - 1
    name = tools.get(function.name, function.name)
    texts[head] = re.sub(rf"\bdef\s+{re.escape(function.name)}\b", f"def {name}", texts[head], count=1)
    first_statement = function.body[0]
    if ast.get_docstring(function) is not None:
        for number in range(first_statement.lineno - 1, first_statement.end_lineno or first_statement.lineno):
            texts[number] = rename_mentions(texts[number], tools)
    return "\n".join(texts) + "\n"


def list_table_edits(function: ast.FunctionDef, tables: Mapping[str, str]) -> Iterator[Edit]:
    """Attributes that are tables of the state."""
    aliases = {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and is_state(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and node.attr in tables and is_state(node.value, aliases):
            end = node.end_col_offset or 0
            yield node.end_lineno or node.lineno, end - len(node.attr.encode()), end, tables[node.attr]


def list_row_edits(function: ast.FunctionDef, rows: Mapping[str, str]) -> Iterator[Edit]:
    """Names that are classes of rows."""
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and node.id in rows:
            yield node.lineno, node.col_offset, node.end_col_offset or 0, rows[node.id]


def rename_mentions(text: str, names: Mapping[str, str]) -> str:
    """Replace names of tools in a text. A name without an underscore may be a plain word, so it is replaced only between backticks."""
    for old, new in names.items():
        if old != new:
            text = re.sub(rf"\b{old}\b" if "_" in old else rf"(?<=`){old}(?=`)", new, text)
    return text
