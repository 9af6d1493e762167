"""Trajectory dialects in and out.

`read` yields a trajectory or a `RefusedRow` for each row of a file; `write` turns trajectories into rows of a dialect.
What a dialect read it writes back unchanged. What any dialect read, each of `DIALECTS` can write; those of
`SUITE_DIALECTS` write their own suite's trajectories only, and raise `llamafactory.UntrainableError` for any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from simia.errors import UserError, require_type
from simia.formats.agentinstruct import AgentInstructDialect
from simia.formats.apigen import ApigenDialect
from simia.formats.data_sets import is_data_set, open_data_set, read_data_set
from simia.formats.dialect import Dialect, RefusedRow, RowError, RowLimits
from simia.formats.hermes import HermesDialect
from simia.formats.hub import is_hub_name, pin_hub_name
from simia.formats.officebench import OfficeBenchDialect
from simia.formats.openai import OpenAIDialect
from simia.formats.row_files import read_file
from simia.formats.simia_rows import NativeDialect
from simia.trajectory import Trajectory

__all__ = [
    "DIALECTS",
    "SUITE_DIALECTS",
    "Dialect",
    "RefusedRow",
    "RowError",
    "RowLimits",
    "get",
    "is_data_set",
    "is_hub_name",
    "load_trajectories",
    "open_data_set",
    "pin_hub_name",
    "read",
    "write",
]

# In order of preference where a row fits several: text without a single call is as good as any.
DIALECTS: dict[str, Dialect] = {d.name: d for d in (NativeDialect(), ApigenDialect(), OpenAIDialect(), HermesDialect())}
SUITE_DIALECTS: dict[str, Dialect] = {d.name: d for d in (AgentInstructDialect(), OfficeBenchDialect())}
# Where a row fits several, a suite's dialect wins over the general ones: to those its actions are mere text.
ALL = {"simia": DIALECTS["simia"], **SUITE_DIALECTS, **DIALECTS}


def get(name: str) -> Dialect:
    """The dialect of that name. Raises `UserError` that lists what there is."""
    if name not in ALL:
        raise UserError(f"no dialect is named {name!r}; there are: {', '.join(DIALECTS | SUITE_DIALECTS)}")
    return ALL[name]


def read(
    path: str | Path, dialect: str | None = None, *, limits: RowLimits | None = None
) -> Iterator[Trajectory | RefusedRow]:
    """Every row of a `.jsonl` or `.json` file or of a data set (`simia.formats.data_sets`), in order. Without a dialect it is made
    out from the first rows.

    Raises `UserError` at once for a file that cannot be read, an unknown dialect, or rows that fit none.
    """
    chosen = None if dialect is None else get(dialect)
    if is_data_set(path):
        return read_data_set(open_data_set(path), list(ALL.values()), chosen, limits or RowLimits())
    return read_file(Path(path), list(ALL.values()), chosen, limits or RowLimits())


def load_trajectories(path: str | Path, *, format: str | None = None) -> list[Trajectory]:
    """Read every trajectory of a file.

    Args:
        path: A `.jsonl`, `.json` or `.parquet` file, a folder of a data set (Parquet shards, or of `datasets.save_to_disk`), or a data set
            of the Hugging Face hub: `hf:OWNER/NAME`, with another split than train `hf:OWNER/NAME:SPLIT`.
        format: `simia`, `apigen`, `openai`, `hermes`, `agentinstruct` or `officebench`. None: recognised from the first rows.

    Returns:
        The trajectories in the order of the file.

    Raises:
        UserError: The file cannot be read, the format is unknown, or a row is not of it. `simia.formats.read` yields such a
            row as a `RefusedRow` instead and goes on.
    """
    require_type("path", path, str, Path)
    found: list[Trajectory] = []
    for row in read(path, format):
        if isinstance(row, RefusedRow):
            raise UserError(f"{path}:{row.line}: {row.code}: {row.detail}; correct or remove this row")
        found.append(row)
    return found


def write(trajectories: Iterable[Trajectory], dialect: str) -> Iterator[dict[str, Any]]:
    """The rows of these trajectories, ready to be dumped as JSON (with the standard library where integers are huge)."""
    chosen = get(dialect)
    return (chosen.write(t) for t in trajectories)
