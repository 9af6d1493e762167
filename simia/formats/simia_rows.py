"""`simia`: simia's own rows, in the version that `Trajectory.to_row` writes and in every older one.

These rows have one canonical form: a null or empty field is left out when the row is written again. A row with an unknown
field is refused, since the field would be lost: foreign fields belong in an `extra`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from simia.errors import Code, Issue, UserError
from simia.formats.dialect import RowError
from simia.trajectory import TEXT_PARTS, VERSION, Message, Trajectory


class NativeDialect:
    """Simia's own JSON rows."""

    name = "simia"

    def sniff(self, row: Mapping[str, Any]) -> bool:
        messages = row.get("messages", [])
        return (
            "version" in row  # of whatever value: `read` says which ones there are
            and row.keys() <= Trajectory.model_fields.keys()
            and isinstance(messages, list)
            and all(isinstance(m, dict) and m.keys() <= Message.model_fields.keys() for m in messages)
        )

    def read(self, row: Mapping[str, Any]) -> Trajectory:
        version = row.get("version", VERSION)
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise RowError(Code.BAD_ROW, f"{version!r} is not a version of a simia row")
        try:
            trajectory = Trajectory.from_row(dict(row))
        except ValidationError as error:
            first = error.errors()[0]
            raise RowError(Code.BAD_ROW, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        except UserError as error:
            raise RowError(Code.BAD_ROW, str(error)) from None
        for i, issue in enumerate(row.get("issues", [])):  # other models refuse unknown fields themselves
            if strange := sorted(issue.keys() - Issue.model_fields.keys()):
                raise RowError(
                    Code.BAD_ROW, f"issues[{i}].{strange[0]}: not a field of a simia row (version {version})"
                )
        for i, message in enumerate(trajectory.messages):
            parts = message.content if isinstance(message.content, list) else []
            if strange := [part.get("type") for part in parts if part.get("type", "text") not in TEXT_PARTS]:
                detail = f"messages[{i}] has a part of type {strange[0]!s:.60}; simia reads text alone"
                raise RowError(Code.UNKNOWN_PART, detail)
        return trajectory

    def write(self, t: Trajectory) -> dict[str, Any]:
        return t.to_row()
