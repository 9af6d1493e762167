"""Hashes of what a rollout plays: its tasks, what the agent is shown, and the packs' worlds. A resume and a comparison tell by them what has changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simia.envs.several_packs import CombinedPack
from simia.errors import UserError
from simia.pack import Pack
from simia.pack_files import is_leftover
from simia.search_path import file_hash
from simia.task import Task
from simia.trajectory import digest

SETTINGS = {"executable", "user_tools", "ends", "state_schema", "limits"}
"""What `pack.yaml` says of the world."""
OF_THIS_MACHINE = {"executable": {"python", "needs", "network", "variables", "hidden"}}
"""Interpreters, paths and grants, which may differ between machines."""


def hash_contents(pack: Pack, tasks: Sequence[Task]) -> str:
    """Hash the contents of a rollout: policies and tools of the packs, and the tasks with their rewards."""
    return digest([*describe_packs(pack), [task.identity for task in tasks]])


def hash_shown(pack: Pack, tasks: Sequence[Task]) -> str:
    """Hash what conversations depend on: policies and tools of the packs, and the tasks without their rewards and solutions."""
    shown = [
        {key: value for key, value in task.identity.items() if key not in ("reward", "reference")} for task in tasks
    ]
    return digest([*describe_packs(pack), shown])


def hash_worlds(pack: Pack) -> str:
    """Hash what the packs' worlds are made of: their settings, and the files that `list_world_files` lists. Raises `UserError`."""
    found = []
    for one in list_member_packs(pack):
        root = one.root or Path()
        try:
            files = {str(path): file_hash(root / path) for path in list_world_files(one)}
        except OSError as error:
            raise UserError(f"{error.filename} cannot be read ({error.strerror}): make it readable") from None
        found.append([one.model_dump(mode="json", include=SETTINGS, exclude=OF_THIS_MACHINE), files])
    return digest(found)


def list_world_files(pack: Pack) -> list[Path]:
    """List the files of a pack's world by their paths in its folder: the initial state, the instructions of its user, and the Python files beside
    its code. Checks and hidden files are left out: a resume may go on with mended ones. Others in the folder, such as runs, do not belong to
    the pack."""
    if pack.root is None or pack.file is None:
        return []
    code = pack.file.executable
    named = [name for name in (pack.file.state, pack.file.instructions) if name]
    found = {path for name in named for path in [pack.root / name, *(pack.root / name).rglob("*")]}
    if code is not None:
        found |= {pack.root / code.code, *(pack.root / code.code).parent.glob("*.py")}
    judging = {pack.root / name for name in (pack.file.checks, *(code.hidden if code else ())) if name}
    inside = (path for path in found if path.is_file() and not judging & {path, *path.parents})
    names = (path.relative_to(pack.root) for path in inside)
    return sorted(name for name in names if not any(map(is_leftover, name.parts)))


def describe_packs(pack: Pack) -> list[object]:
    """The policy and the tools of each pack."""
    return [each for one in list_member_packs(pack) for each in (one.policy, [tool.identity for tool in one.tools])]


def list_member_packs(pack: Pack) -> list[Pack]:
    return list(pack.members.values()) if isinstance(pack, CombinedPack) else [pack]
