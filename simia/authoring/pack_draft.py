"""A pack is written under another name and renamed when it is whole: a killed import never leaves half of one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simia.errors import UserError


@contextmanager
def drafted(out: Path) -> Iterator[Path]:
    """The folder to write to, which becomes `out` at the end; an empty folder may stand there. Raises `UserError` where the disk
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
