"""Imports go down: a package imports core modules and packages below its own. Circular imports are refused, also those for types only."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import simia

PACKAGE = Path(simia.__file__).parent
LAYERS = [
    "venvs",
    "llm",
    "sandbox",
    "formats",
    "jobs",
    "quality",
    "envs",
    "authoring",
    "drivers",
    "importers",
    "amplification",
    "rollouts",
    "synthesis",
    "evaluation",
    "exporting",
    "report",
    "trainers",
    "serve",
    "cli",
]
METHODS = ["amplification", "rollouts", "synthesis"]
FRONT_DOOR = "simia"  # __init__.py imports the packages whose names it offers, when they are asked for


@cache
def modules() -> dict[str, Path]:
    """Module name → file."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = ("simia", *path.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(module: str) -> frozenset[str]:
    """The modules of simia that a module imports: at the top, inside functions, and for the type checker."""
    known = modules()
    package = module if known[module].name == "__init__.py" else module.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(ast.parse(known[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            parent = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parent, *([node.module] if node.module else [])])
            found.update(f"{base}.{name.name}" if f"{base}.{name.name}" in known else base for name in node.names)
    return frozenset(name for name in found if name in known and name != module)


def layer(module: str) -> int:
    """The height of a module's package; -1 for core modules."""
    part = module.split(".")[1] if "." in module else ""
    return LAYERS.index(part) if part in LAYERS else -1


def test_every_package_is_a_layer() -> None:
    assert sorted(LAYERS) == sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


def test_imports_go_down() -> None:
    upwards = [
        f"{module} imports {name}"
        for module in modules()
        if module not in (FRONT_DOOR, "simia.__main__")
        for name in imports(module)
        if layer(name) > layer(module)
    ]
    assert not upwards, "\n".join(sorted(upwards))


def test_no_method_imports_another() -> None:
    across = [
        f"{module} imports {name}"
        for module in modules()
        for name in imports(module)
        if layer(module) >= 0
        and LAYERS[layer(module)] in METHODS
        and layer(name) >= 0
        and LAYERS[layer(name)] in METHODS
        and layer(name) != layer(module)
    ]
    assert not across, "\n".join(sorted(across))


def test_no_circular_imports() -> None:
    """Strongly connected groups of modules (Tarjan), the front door left out: it imports upwards by purpose."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for name in imports(module) - {FRONT_DOOR}:
            if name not in index:
                visit(name)
                low[module] = min(low[module], low[name])
            elif name in stack:
                low[module] = min(low[module], index[name])
        if low[module] == index[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1:
                groups.append(group)

    for module in sorted(set(modules()) - {FRONT_DOOR}):
        if module not in index:
            visit(module)
    assert not groups, "\n".join(", ".join(sorted(group)) for group in groups)
