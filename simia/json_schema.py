"""Build strict JSON Schemas for endpoints that constrain a reply: simulated trajectories and verdicts share these parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

SHORT_TEXT = {"type": "string", "minLength": 1, "maxLength": 600}


def build_strict_object(properties: dict[str, Any], optional: Sequence[str] = ()) -> dict[str, Any]:
    """Return the schema of an object with exactly these properties, all required except `optional`."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
