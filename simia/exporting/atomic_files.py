"""Files that appear together or not at all: written under temporary names, renamed when every one is complete."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from simia.errors import UserError


class AtomicFiles:
    """A set of files in one folder. Leaving the `with` block without an error puts them in place, in order of opening."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: dict[str, BinaryIO] = {}

    def __enter__(self) -> AtomicFiles:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot write to {self.folder}: {error.strerror}; choose another folder") from None
        return self

    def file(self, name: str) -> BinaryIO:
        """Open a file for writing. Raises `UserError` where the folder cannot be written to."""
        try:
            self._open[name] = self._temporary(name).open("wb")
        except OSError as error:
            raise UserError(f"cannot write to {self.folder}: {error.strerror}; choose another folder") from None
        return self._open[name]

    def text(self, name: str, text: str) -> None:
        self.file(name).write(text.encode())

    @property
    def names(self) -> list[str]:
        return list(self._open)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._open.values():
            if kind is None:
                handle.flush()
                os.fsync(handle.fileno())
            handle.close()
        for name in self._open:
            if kind is None:
                self._temporary(name).replace(self.folder / name)
            else:
                self._temporary(name).unlink()

    def _temporary(self, name: str) -> Path:
        return self.folder / f".{name}.partial"
