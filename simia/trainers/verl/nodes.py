"""Refuse a run on several nodes if its stored replies would be on storage that the nodes share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simia.envs.opening import load_tasks
from simia.envs.role_models import RoleModels
from simia.errors import UserError
from simia.trainers.launch import look_up
from simia.trainers.verl.settings import VerlSettings

MOUNTS = Path("/proc/self/mountinfo")
SHARED = (
    "nfs",
    "cifs",
    "smb",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "glusterfs",
    "afs",
    "9p",
    "wekafs",
    "panfs",
    "orangefs",
    "pvfs2",
    "virtiofs",
)
"""Prefixes of the names of network file systems."""


def check_nodes(data: Mapping[str, Any], ours: VerlSettings, store: Path, checkpoints: Path) -> None:
    """Raise `UserError` if several nodes would write one store of replies: its SQLite files must not be shared between hosts.

    An environment without models stores no replies. `checkpoints`: verl's folder, which all nodes reach by the same path.
    """
    nodes = look_up(data, "trainer.nnodes", 1)
    if not isinstance(nodes, int) or nodes < 2 or not asks_models(ours):
        return
    advice = "name a folder on each node's own disk as simia.store, such as /tmp/simia-replies"
    line = f"trainer.nnodes is {nodes}, and replies are SQLite files, which hosts must not share"
    if not ours.store:
        raise UserError(f"{line}: {advice}")
    real = store.expanduser().resolve()
    if real.is_relative_to(checkpoints.resolve()):
        raise UserError(
            f"{line}: simia.store ({store}) is in the checkpoints' folder, which all nodes write to; {advice}"
        )
    if (kind := find_shared_filesystem(real)) is not None:
        raise UserError(f"{line}: simia.store ({store}) is on {kind}; {advice}")


def asks_models(ours: VerlSettings) -> bool:
    """Whether any role in training or validation is a model, whose replies are kept."""
    stages = (ours.stage, ours.for_validation().stage)
    return any(RoleModels(stage, load_tasks(stage)[0]).opens_models for stage in stages)


def find_shared_filesystem(path: Path, mounts: Path | None = None) -> str | None:
    """Return the type of the path's file system if it is a network file system; None if it is not, or unknown."""
    try:
        lines = (mounts or MOUNTS).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    best, kind = -1, ""
    for line in lines:
        fields, _, rest = line.partition(" - ")
        point = Path(fields.split()[4].encode().decode("unicode_escape"))  # mountinfo writes a blank as \040
        if path.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), rest.split()[0]
    name = kind.removeprefix("fuse.")
    return kind if name.startswith(SHARED) else None
