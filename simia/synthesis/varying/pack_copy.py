"""Write a pack with the tasks of another one and their variants, all with their measured pass rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from simia.authoring.difficulty import store_measurements
from simia.authoring.pack_draft import copy_pack_files, draft_pack, refuse_existing, replace_tasks
from simia.pack import Pack
from simia.pack_files import RECORD
from simia.task import Measurement, Task


def write_varied_pack(
    pack: Pack, out: Path, variants: Sequence[Task], *, agent: str, measured: Mapping[str, Measurement]
) -> None:
    """Copy a pack to `out`, with the variants after its own tasks. `measured`: pass rates of `agent` on its own tasks."""
    assert pack.root is not None
    refuse_existing(out)
    with draft_pack(out) as draft:
        copy_pack_files(pack.root, draft)
        (draft / RECORD).unlink(missing_ok=True)
        path = pack.path_of("tasks")
        assert path is not None
        replace_tasks(draft / path.relative_to(pack.root), [*pack.tasks, *variants])
        store_measurements(Pack.load(draft), agent, measured)
