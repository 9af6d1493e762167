"""Write a pack under another name and rename it when it is complete: a killed import never leaves half of one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from simia.errors import UserError


@contextmanager
def draft_pack(out: Path) -> Iterator[Path]:
    """Give a folder to write to, which becomes `out` at the end; `out` may be an empty folder. Raises `UserError` where the disk
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


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON."""
    path.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n")
