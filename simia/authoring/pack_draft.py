"""Write a new pack: in a temporary folder, renamed when the pack is complete, so that a killed import leaves no partial pack."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson
import yaml

from simia.errors import UserError
from simia.pack_files import is_leftover
from simia.task import Task

FAST: Any = getattr(yaml, "CSafeDumper", None)


def refuse_existing(out: Path) -> None:
    """Raise `UserError` unless `out` is free or an empty folder."""
    if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise UserError(f"{out} exists and is not empty: remove it or choose another folder")


@contextmanager
def draft_pack(out: Path) -> Iterator[Path]:
    """Yield a folder to write to, which becomes `out` at the end; `out` may be an empty folder. Raises `UserError` if the disk
    refuses."""
    draft = out.absolute().parent / f".{out.name}.{os.getpid()}"
    try:
        draft.mkdir(parents=True)
        yield draft
        draft.rename(out)  # over an empty folder too
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def copy_pack_files(root: Path, draft: Path) -> None:
    """Copy a pack's files to a draft. Links stay links; files of version control and editors are left out."""
    shutil.copytree(
        root, draft, symlinks=True, dirs_exist_ok=True, ignore=lambda _, names: list(filter(is_leftover, names))
    )


def replace_file(path: Path, content: bytes) -> None:
    """Write a file in place of what is there, which may be a link."""
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def replace_rows(path: Path, rows: Iterable[Any]) -> None:
    """Write JSON lines in place of a file, which may be a link."""
    replace_file(path, b"".join(orjson.dumps(row) + b"\n" for row in rows))


def replace_tasks(path: Path, tasks: Iterable[Task]) -> None:
    """Write tasks as JSON lines in place of a file, which may be a link. Fields that are not set are left out."""
    replace_rows(path, (task.model_dump(mode="json", exclude_unset=True) for task in tasks))


def write_pack_files(folder: Path, contents: Mapping[str, Any]) -> None:
    """Write files by the form of their suffix: JSON, JSON lines, YAML or text. A file whose content is None is omitted. A link is replaced."""
    for name, content in contents.items():
        if content is None:
            continue
        if name.endswith(".json"):
            data = orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n"
        elif name.endswith(".jsonl"):
            data = b"".join(orjson.dumps(row) + b"\n" for row in content)
        elif name.endswith(".yaml"):
            data = write_yaml(content).encode()
        else:
            data = content.encode()
        replace_file(folder / name, data)


def write_yaml(content: Any) -> str:
    """Write YAML in block style. libyaml is five times faster but escapes characters beyond U+FFFF, so Python writes such content."""
    how: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": 1000}
    if FAST is not None and max(orjson.dumps(content), default=0) < 0xF0:  # first byte of such a character in UTF-8
        return str(yaml.dump(content, Dumper=FAST, **how))
    return str(yaml.safe_dump(content, **how))


def copy_driver(name: str, target: Path) -> None:
    """Copy a module or a package of `simia.drivers` into a pack."""
    source = Path(str(files("simia.drivers"))) / name
    if source.is_file():
        target.write_bytes(source.read_bytes())
        return
    target.mkdir()
    for module in source.glob("*.py"):
        (target / module.name).write_bytes(module.read_bytes())
