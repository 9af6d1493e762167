"""A pack for tests: the one that `simia pack new` writes, with files changed where a test wants it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from simia.authoring.scaffold import scaffold_pack
from simia.pack import Pack


def small(folder: Path, **files: Any) -> Pack:
    """`files`: name with `_` for the dot → text, or rows for a JSONL file; None removes it from the folder."""
    scaffold_pack(folder)
    for name, content in files.items():
        path = folder / ".".join(name.rsplit("_", 1))
        if isinstance(content, list):
            content = b"".join(orjson.dumps(row) + b"\n" for row in content)
        path.write_bytes(content if isinstance(content, bytes) else str(content).encode())
    return Pack.load(folder)
