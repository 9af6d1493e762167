"""The office pack driven in this process, as its worker drives it: files laid out in a folder, `begin` before each call.

Its libraries are those of the `office` recipe: their folder is importable for as long as a module of tests needs it.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from simia.kit import ToolError
from simia.pack import Pack
from simia.sandbox.inside.files import read_entry, read_files
from simia.task import Action
from simia.venvs import ensure_environment

JSON = Any
PACK = Pack.load("office")
assert PACK.root is not None
ROOT: Path = PACK.root
TASKS = {task.id: task for task in PACK.tasks}
SPECS = {tool.name: tool for tool in PACK.tools}
READ: dict[bytes, JSON] = {}  # what files say, by their bytes: read once for all episodes
APPS = {
    "calendar": "office_calendar",
    "mail": "office_mail",
    "documents": "office_documents",
    "sheets": "office_sheets",
    "contacts": "office_contacts",
    "files": "office_world",
}


def python() -> Path:
    """The interpreter that the pack's code runs with."""
    return ensure_environment("office", say=lambda line: print(line, file=sys.stderr))


@contextmanager
def office() -> Iterator[Any]:
    """The pack's class. Afterwards nothing of its libraries is left, so that no other test comes to lean on them."""
    (packages,) = python().parents[1].glob("lib/python*/site-packages")
    before, path = set(sys.modules), list(sys.path)
    sys.path[:] = [str(ROOT), *path, str(packages)]
    try:
        spec = importlib.util.spec_from_file_location("office_world", ROOT / "tools.py")
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules["office_world"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module.Office
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None) or ""
            if file.startswith((str(ROOT), str(packages))):
                del sys.modules[name]


def marks(cls: Any) -> dict[str, tuple[str, bool]]:
    """Tool → by whom, and whether it writes."""
    return {name: f.__simia_tool__ for name, f in inspect.getmembers(cls) if hasattr(f, "__simia_tool__")}


def app_of(cls: Any, name: str) -> str:
    module = getattr(cls, name).__module__
    return next(app for app, each in APPS.items() if each == module)


def opened(cls: Any, root: Path, initial: dict[str, Any] | None = None) -> Any:
    """An episode in an empty folder."""
    assert PACK.executable is not None
    shutil.copytree(ROOT / "start", root, dirs_exist_ok=True)
    for name, entry in ((initial or {}).get("files") or {}).items():
        path = root / name
        path.unlink(missing_ok=True)
        if entry is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(read_entry(entry)[2])
    world = cls(root)
    world._said = READ
    world._seed, world._start = "0", PACK.executable.clock
    world.begin(0, "agent")
    world.ready()
    return world


def call(world: Any, action: Action, index: int) -> tuple[JSON, str | None]:
    """The result, or the refusal's words; then all is as before, which the worker sees to. What else is raised goes through."""
    world.begin(index, "agent")
    try:
        return json.loads(json.dumps(getattr(world, action.name)(**json.loads(json.dumps(action.arguments))))), None
    except ToolError as error:
        return None, str(error)


def said(world: Any) -> JSON:
    """What the state match compares: what the files say, without their bytes."""
    found = {}
    for name in read_files(world.root, modes=False):
        path = world.root / name
        found[name] = world.describe(path) if path.is_file() else None
    return json.loads(json.dumps({"files": found, "memory": world.memory}))
