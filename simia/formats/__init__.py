"""Trajectory dialects in and out.

`read` yields a trajectory or a `RefusedRow` for each row of a file; `write` turns trajectories into rows of a dialect.
A dialect writes its own rows back unchanged. Each of `DIALECTS` can write the trajectories of every dialect; those of
`SUITE_DIALECTS` write only trajectories of their own suite, and raise `llamafactory.UntrainableError` for any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from simia.errors import UserError, require_type
from simia.formats.agentinstruct import AgentInstructDialect
from simia.formats.apigen import ApigenDialect
from simia.formats.codegym import CodeGymDialect
from simia.formats.data_sets import add_licence, is_data_set, open_data_set
from simia.formats.dialect import Dialect, RefusedRow, RowError, RowLimits
from simia.formats.hermes import HermesDialect
from simia.formats.hub import is_hub_name, pin_hub_name
from simia.formats.llamafactory_v1 import LlamaFactoryV1Dialect
from simia.formats.officebench import OfficeBenchDialect
from simia.formats.openai import OpenAIDialect
from simia.formats.row_conversion import convert_source, number_rows
from simia.formats.row_files import open_rows
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
    "read_rows",
    "write",
]

# In order of preference: a row without calls fits several dialects.
GENERAL = (
    NativeDialect(),
    ApigenDialect(),
    OpenAIDialect(),
    HermesDialect(),
    LlamaFactoryV1Dialect(),
    CodeGymDialect(),
)
DIALECTS: dict[str, Dialect] = {d.name: d for d in GENERAL}
SUITE_DIALECTS: dict[str, Dialect] = {d.name: d for d in (AgentInstructDialect(), OfficeBenchDialect())}
# If a row fits several, a suite's dialect is preferred: the general ones would read its actions as plain text.
ALL = {"simia": DIALECTS["simia"], **SUITE_DIALECTS, **DIALECTS}


def get(name: str) -> Dialect:
    """Return the dialect of that name. Raises `UserError`, which lists the known names, for any other."""
    if name not in ALL:
        raise UserError(f"no dialect is named {name!r}; there are: {', '.join(DIALECTS | SUITE_DIALECTS)}")
    return ALL[name]


def read(
    path: str | Path, dialect: str | None = None, *, limits: RowLimits | None = None
) -> Iterator[Trajectory | RefusedRow]:
    """Read every row of a `.jsonl`, `.json` or `.parquet` file or of a data set (`simia.formats.data_sets`), in order.

    Without `dialect`, the dialect is recognised from the first rows. Raises `UserError` at once for a file that cannot be read, an
    unknown dialect, or rows that fit no dialect or several.
    """
    chosen = None if dialect is None else get(dialect)
    if is_data_set(path):
        found = open_data_set(path)
        rows = found.rows(limits or RowLimits())
        return add_licence(convert_source(rows, found.source, found.source, list(ALL.values()), chosen), found.licence)
    path = Path(path)
    return convert_source(open_rows(path, limits or RowLimits()), str(path), path.name, list(ALL.values()), chosen)


def read_rows(
    rows: Iterable[Mapping[str, Any]],
    dialect: str | None = None,
    source: str = "rows",
    *,
    from_columns: bool = False,
    limits: RowLimits | None = None,
) -> Iterator[Trajectory | RefusedRow]:
    """Read rows that are already in memory or that another library streams, such as those of a Hugging Face data set.

    It streams: at most the first 50 rows are held, to recognise the dialect. Columns `messages` and `conversations` may be lists
    or JSON text; dates and arrays become JSON.

    Args:
        rows: The rows, each a mapping of column to value.
        dialect: The name of a dialect; None: recognised from the first rows.
        source: Name of the source for messages and provenance (`SOURCE:NUMBER`, numbers from 1).
        from_columns: The rows come from Arrow columns (Parquet, `datasets`), where every object has all members that any row
            has: null members are taken as absent.
        limits: The largest size and depth of a row.

    Raises:
        UserError: The dialect is unknown, or the first rows fit none or several.
    """
    chosen = None if dialect is None else get(dialect)
    numbered = number_rows(rows, limits or RowLimits(), from_columns=from_columns)
    return convert_source(numbered, source, source, list(ALL.values()), chosen)


def load_trajectories(path: str | Path, *, format: str | None = None) -> list[Trajectory]:
    """Read every trajectory of a file.

    Args:
        path: A `.jsonl`, `.json` or `.parquet` file, a folder of a data set (Parquet shards, or of `datasets.save_to_disk`), or a data set
            of the Hugging Face hub: `hf:OWNER/NAME`, with another split than train `hf:OWNER/NAME:SPLIT`.
        format: `simia`, `apigen`, `openai`, `hermes`, `codegym`, `llamafactory-v1`, `agentinstruct` or `officebench`. None: recognised
            from the first rows.

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
