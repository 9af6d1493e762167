"""Values that a JSON Schema allows, drawn at random: for the random agent, whose calls should at least be well-formed.

Only the usual keywords of tool schemas are supported. With others a value may break the schema; the environment then answers the call
with an error, as for any other agent.
"""

from __future__ import annotations

import random
import string
from typing import Any

MOST_VALUES = 1_000  # values of one call; a schema may ask for a billion items
WORDS = ("order", "Berlin", "yes", "2025-05-14", "a note", "alex@example.com", "blue", "42")
FORMATS = {"email": "alex@example.com", "date": "2025-05-14", "date-time": "2025-05-14T10:30:00Z", "time": "10:30"}


class Sampler:
    """Draws from one source of randomness."""

    def __init__(self, source: random.Random) -> None:
        self._random = source
        self._left = MOST_VALUES

    def object(self, schema: dict[str, Any]) -> dict[str, Any]:
        self._left = MOST_VALUES
        return self._object(schema, schema, 0)

    def value(self, schema: Any, root: dict[str, Any], depth: int = 0) -> Any:
        self._left -= 1
        if not isinstance(schema, dict) or depth > 8 or self._left < 0:
            return None
        if "$ref" in schema:
            target: Any = root
            for step in str(schema["$ref"]).removeprefix("#/").split("/"):
                target = target.get(step, {}) if isinstance(target, dict) else {}
            return self.value(target, root, depth + 1)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._random.choice(schema["enum"])
        for several in ("anyOf", "oneOf"):
            if schema.get(several):
                return self.value(self._random.choice(schema[several]), root, depth + 1)
        kind = schema.get("type", "string")
        if isinstance(kind, list):
            kind = self._random.choice(kind)
        return getattr(self, f"_{kind}", self._string)(schema, root, depth)

    def _object(self, schema: dict[str, Any], root: dict[str, Any], depth: int) -> dict[str, Any]:
        needed = schema.get("required", [])
        return {
            name: self.value(inner, root, depth + 1)
            for name, inner in schema.get("properties", {}).items()
            if self._left > 0 and (name in needed or self._random.random() < 0.4)
        }

    def _array(self, schema: dict[str, Any], root: dict[str, Any], depth: int) -> list[Any]:
        least = min(int(schema.get("minItems", 0)), self._left + 1)
        count = self._random.randint(least, max(least, min(int(schema.get("maxItems", least + 2)), least + 2)))
        return [self.value(schema.get("items", {}), root, depth + 1) for _ in range(count) if self._left > 0]

    def _integer(self, schema: dict[str, Any], root: dict[str, Any], depth: int) -> int:
        least = int(schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1))
        return self._random.randint(least, max(least, int(schema.get("maximum", least + 100))))

    def _number(self, schema: dict[str, Any], root: dict[str, Any], depth: int) -> float:
        least = float(schema.get("minimum", 0))
        return round(self._random.uniform(least, float(schema.get("maximum", least + 100))), 2)

    def _boolean(self, schema: dict[str, Any], root: dict[str, Any], depth: int) -> bool:
        return self._random.random() < 0.5

    def _null(self, schema: dict[str, Any], root: dict[str, Any], depth: int) -> None:
        return None

    def _string(self, schema: dict[str, Any], root: dict[str, Any], depth: int) -> str:
        if schema.get("format") in FORMATS:
            return FORMATS[schema["format"]]
        if "pattern" in schema:
            return self._of_pattern(str(schema["pattern"]))
        word = self._random.choice(WORDS)
        return word[: int(schema["maxLength"])] if "maxLength" in schema else word

    def _of_pattern(self, pattern: str) -> str:
        """Make a text for a pattern of literal characters, one-character classes and `{n}`; other syntax is copied as it is."""
        out, at = "", 0
        body = pattern.removeprefix("^").removesuffix("$")
        while at < len(body):
            if body[at] == "[" and "]" in body[at:]:
                end = body.index("]", at)
                letters = string.digits if "0-9" in body[at:end] or "\\d" in body[at:end] else string.ascii_uppercase
                at, unit = end + 1, letters
            elif body.startswith("\\d", at):
                at, unit = at + 2, string.digits
            else:
                unit, at = body[at].replace("\\", ""), at + 1
            count = 1
            if at < len(body) and body[at] == "{" and "}" in body[at:]:
                end = body.index("}", at)
                count = int(body[at + 1 : end].split(",")[0] or 0)
                at = end + 1
            elif at < len(body) and body[at] in "+*?":
                at += 1
            out += "".join(self._random.choice(unit) for _ in range(count)) if unit else ""
        return out
