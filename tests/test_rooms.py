"""Imports point down: a room uses the nouns and the rooms below it, never one above."""

import ast
from collections.abc import Iterator
from pathlib import Path

import simia

PACKAGE = Path(simia.__file__).parent
BELOW = ["sandbox", "interpreters", "llm", "formats", "runs"]
PLAYED = ["rewards", "users", "worlds", "importers"]
ABOVE = ["amplify", "export", "rollout", "verify", "report", "serve", "trainers", "cli"]
ROOMS = [*BELOW, *PLAYED, *ABOVE]  # from the ground up


def imported(path: Path) -> Iterator[str]:
    """The modules of simia that a file imports, at its top or inside of a function; not those that only the type checker sees."""
    tree = ast.parse(path.read_text())
    unseen = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in unseen:
            continue
        if isinstance(node, ast.ImportFrom) and node.module == "simia":
            yield from (f"simia.{one.name}" for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names)


def test_every_room_has_its_place() -> None:
    assert sorted(ROOMS) == sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


def test_no_room_imports_one_above_it() -> None:
    upwards = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for height, room in enumerate(ROOMS)
        for path in (PACKAGE / room).rglob("*.py")
        for name in imported(path)
        if name.startswith("simia.") and name.split(".")[1] in ROOMS[height + 1 :]
    ]
    assert not upwards, "\n".join(upwards)
