"""Write a pack with the tasks of another one and their variants, all with their measured pass rates."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from simia.authoring.difficulty import store_measurements
from simia.authoring.pack_draft import draft_pack, refuse_existing
from simia.authoring.variant_pack import RECORD, replace_file
from simia.pack import Pack
from simia.pack_files import is_leftover
from simia.task import Measurement, Task


def write_varied_pack(
    pack: Pack, out: Path, variants: Sequence[Task], *, agent: str, measured: Mapping[str, Measurement]
) -> None:
    """Copy a pack to `out`, with the variants after its own tasks. `measured`: pass rates of `agent` on its own tasks."""
    assert pack.root is not None
    refuse_existing(out)
    with draft_pack(out) as draft:
        shutil.copytree(
            pack.root,
            draft,
            symlinks=True,
            dirs_exist_ok=True,
            ignore=lambda _, names: list(filter(is_leftover, names)),
        )
        (draft / RECORD).unlink(missing_ok=True)
        path = pack.path_of("tasks")
        assert path is not None
        replace_file(draft / path.relative_to(pack.root), [*pack.tasks, *variants])
        store_measurements(Pack.load(draft), agent, measured)
