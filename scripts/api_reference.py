"""Write docs/reference/api.md: the public names of simia, from their signatures, docstrings and field descriptions.

python scripts/api_reference.py             (writes the page; a test compares it)
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

import simia
from simia.config_listing import write_default

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "api.md"
WIDTH = 100
HEAD = """\
# API reference

The public names of simia {version}, each as `simia.NAME`. Everything else may change without notice. Written by
`python scripts/api_reference.py` from signatures, docstrings and field descriptions; do not edit it.
"""
SECTION = re.compile(r"^(Args|Arguments|Returns|Raises|Example):\s*$")
ENTRY = re.compile(r"^(\*{0,2}\w+): ")
WORDS = {"Args": "Arguments"}
Row = tuple[Any, ...]


def write_page() -> str:
    """The whole page."""
    public = {name: getattr(simia, name) for name in simia.__all__ if name != "__version__"}
    returned = find_returned(public)
    functions = [name for name in public if inspect.isfunction(public[name])]
    classes = [name for name in public if name not in functions]
    parts = [HEAD.format(version=simia.__version__)]
    parts += [f"- Functions: {', '.join(map(link, functions))}\n- Types: {', '.join(map(link, classes))}\n"]
    parts += [f"- Returned types: {', '.join(map(link, returned))}\n"] if returned else []
    parts = [parts[0], "".join(parts[1:])]
    for name, value in (public | returned).items():
        parts.append(f"## {name}\n")
        parts += describe_function(value) if inspect.isfunction(value) else describe_class(value)
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def link(name: str) -> str:
    return f"[`{name}`](#{name.lower()})"


def find_returned(public: dict[str, Any]) -> dict[str, type]:
    """Classes of simia that public functions and methods return and that are not public names themselves."""
    found: dict[str, type] = {}
    for value in public.values():
        for function in [value] if inspect.isfunction(value) else [each for _, each in methods(value)]:
            name = str(inspect.signature(function).return_annotation)
            returned = function.__globals__.get(name)
            if inspect.isclass(returned) and returned.__module__.startswith("simia.") and name not in public:
                found[name] = returned
    return found


def describe_function(function: Callable[..., Any], name: str | None = None) -> Iterator[str]:
    yield f"```python\n{write_signature(function, name or function.__name__)}\n```\n"
    yield write_docstring(function)


def describe_class(cls: type) -> Iterator[str]:
    yield write_docstring(cls)
    if issubclass(cls, enum.Enum):
        yield write_table(("value", "meaning"), [(f"`{each.value}`", getattr(each, "meaning", "")) for each in cls])
        return
    if issubclass(cls, BaseModel):
        yield write_table(
            ("field", "type", "default", "description"),
            [
                (f"`{name}`", code(annotation_of(cls, name)), *describe_field(field))
                for name, field in cls.model_fields.items()
            ],
        )
    elif attributes := find_attributes(cls):
        rows = [(f"`{name}`", code(kind), description) for name, (kind, description) in attributes.items()]
        yield write_table(("attribute", "type", "description"), rows)
    for name, method in methods(cls):
        yield f"### {cls.__name__}.{name}\n"
        yield from describe_function(method, name)
    kinds = (property, cached_property)
    properties = [(name, each) for name, each in members(cls).items() if isinstance(each, kinds) and name[0] != "_"]
    if properties:
        yield f"### {cls.__name__}: properties\n"
        yield write_table(("property", "type", "description"), [describe_property(*each) for each in properties])


def describe_field(field: FieldInfo) -> tuple[str, str | None]:
    return code(write_default(field)), field.description


def describe_property(name: str, value: property | cached_property[Any]) -> Row:
    get = value.func if isinstance(value, cached_property) else value.fget
    assert get is not None
    return f"`{name}`", code(inspect.signature(get).return_annotation), " ".join((inspect.getdoc(get) or "").split())


def members(cls: type) -> dict[str, Any]:
    """What the class and its bases in simia define."""
    bases = [base for base in reversed(cls.__mro__) if base.__module__.startswith("simia.")]
    return {name: each for base in bases for name, each in vars(base).items()}


def methods(cls: type) -> list[tuple[str, Callable[..., Any]]]:
    """Public methods with a docstring that the class or its bases in simia define."""
    found = [(name, getattr(each, "__func__", each)) for name, each in members(cls).items() if not name.startswith("_")]
    return [(name, each) for name, each in found if inspect.isfunction(each) and each.__doc__]


def annotation_of(cls: type, field: str) -> str:
    """A field's type as it stands in the source."""
    return next(str(found[field]) for each in cls.__mro__ if field in (found := inspect.get_annotations(each)))


def find_attributes(cls: type) -> dict[str, tuple[str, str]]:
    """Name → (type, description) of a dataclass's fields, and of attributes with a string under their assignment in `__init__`."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(tree, ast.ClassDef)
    bodies = [tree.body] if dataclasses.is_dataclass(cls) else []
    bodies += [each.body for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    found: dict[str, tuple[str, str]] = {}
    for base in cls.__bases__:
        found |= find_attributes(base) if dataclasses.is_dataclass(base) else {}
    for body in bodies:
        for statement, following in zip(body, [*body[1:], None], strict=True):
            documented = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            text = inspect.cleandoc(str(following.value.value)) if documented else ""  # type: ignore[union-attr]
            target: ast.expr
            if isinstance(statement, ast.AnnAssign):
                target, kind = statement.target, ast.unparse(statement.annotation)
            elif isinstance(statement, ast.Assign) and documented:
                target, kind = statement.targets[0], ""
            else:
                continue
            name = target.id if isinstance(target, ast.Name) else getattr(target, "attr", "_")
            if not name.startswith("_") and (documented or dataclasses.is_dataclass(cls)):
                found[name] = (kind, " ".join(text.split()))
    return found


def write_signature(function: Callable[..., Any], name: str) -> str:
    signature = inspect.signature(function)
    before = "async def " if inspect.iscoroutinefunction(function) else "def "
    parameters = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
    words, starred = [], False
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not starred:
            words.append("*")
        starred = starred or each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        words.append(unquoted(each))
    after = "" if signature.return_annotation is signature.empty else f" -> {signature.return_annotation}"
    line = f"{before}{name}({', '.join(words)}){after}"
    if len(line) <= WIDTH:
        return line
    return f"{before}{name}(\n" + "".join(f"    {word},\n" for word in words) + f"){after}"


def unquoted(parameter: inspect.Parameter) -> str:
    """A parameter whose annotation is text, as it stands in the source."""
    stars = "*" * ((parameter.kind is parameter.VAR_POSITIONAL) + 2 * (parameter.kind is parameter.VAR_KEYWORD))
    kind = "" if parameter.annotation is parameter.empty else f": {parameter.annotation}"
    if parameter.default is parameter.empty:
        return f"{stars}{parameter.name}{kind}"
    value = getattr(parameter.default, "__name__", None) or repr(parameter.default)
    return f"{parameter.name}{kind} = {value}"


def write_docstring(value: Any) -> str:
    """Markdown of a docstring: its sections become bold words with lists."""
    lines: list[str] = []
    section = ""
    for line in (inspect.getdoc(value) or "").splitlines():
        if found := SECTION.match(line):
            section = found[1]
            lines += [f"**{WORDS.get(section, section)}**", ""]
        elif section and line and not line.startswith(" "):
            section = ""
            lines.append(line)
        elif section in ("Args", "Arguments", "Raises"):
            entry = line.removeprefix("    ")
            lines.append(ENTRY.sub(r"- `\1`: ", entry) if not entry.startswith(" ") else "  " + entry.strip())
        else:
            lines.append(line.removeprefix("    ") if section else line)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def write_table(head: tuple[str, ...], rows: Sequence[Row]) -> str:
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *(f"| {' | '.join(map(cell, row))} |" for row in rows)]) + "\n"


def cell(value: Any) -> str:
    return " ".join(str(value or "").split()).replace(" | ", " \\| ")


def code(value: Any) -> str:
    return f"`{value}`" if value else ""


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(write_page(), encoding="utf-8")
