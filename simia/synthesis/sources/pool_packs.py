"""The pool: packs that exist already, which proposals must not repeat (EnvFactory §3.2: coverage gaps)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simia.errors import UserError
from simia.pack import Pack
from simia.reward_spec import StrictModel
from simia.search_path import find_resource

LONGEST = 400  # characters of a description


class PoolEntry(StrictModel):
    """One pack of the pool."""

    name: str
    """Name of the pack."""
    text: str
    """Title and description, which proposals are compared with."""
    tools: list[str]
    """Names of its tools."""


def read_pool(given: Sequence[str]) -> list[PoolEntry]:
    """Read the packs of these names, folders of a pack, and folders of packs, each once. None of their code is run.

    Raises:
        UserError: one does not exist, or holds no pack.
    """
    found: dict[Path, PoolEntry] = {}
    for each in given:
        folder = find_resource("seeds", each)
        packs = [folder] if (folder / "pack.yaml").is_file() else sorted(f.parent for f in folder.glob("*/pack.yaml"))
        if not packs:
            raise UserError(f"pool: {each} holds no pack: give a pack, or a folder of packs")
        for path in packs:
            found[path.resolve()] = describe_pack(Pack.load(path))
    return list(found.values())


def describe_pack(pack: Pack) -> PoolEntry:
    """Return the text of a pack that proposals are compared with: its description, or the beginning of its system text."""
    words = pack.description or (pack.policy or "")[:LONGEST]
    return PoolEntry(
        name=pack.name, text=f"{pack.name.replace('_', ' ')}\n{words}", tools=[tool.name for tool in pack.tools]
    )


def make_pool_absolute(name: str) -> str:
    """Return the name of a bundled pack unchanged, and a folder as an absolute path."""
    folder = Path(name).expanduser()
    return str(folder.absolute()) if folder.is_dir() else name
