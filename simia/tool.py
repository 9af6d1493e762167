"""ToolSpec: what an agent is told of a tool; and the one place where foreign JSON Schemas are compiled.

A schema from outside is hostile (law 9): it may point to the network, nest without end or carry a regular
expression that never finishes. `compile_schema` refuses the first two and uses an engine with linear-time
regexes for the third. The fast validator decides; the readable one only words the message of a refusal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field

# RFC 3339 wants a zone and seconds; tools in the wild mean "10:00" and "2025-09-17T09:30", and so do their users.
TIME = r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?"
LENIENT = {
    "time": lambda text: re.fullmatch(TIME, text) is not None,
    "date-time": lambda text: re.fullmatch(rf"\d{{4}}-[01]\d-[0-3]\d[Tt ]{TIME}", text) is not None,
}
MAX_SCHEMA_BYTES = 256_000
MAX_SCHEMA_DEPTH = 64


class SchemaError(ValueError):
    """A tool's schema cannot be used; the message says why."""


class ToolSpec(BaseModel):
    """A tool: name, description, JSON Schema of its arguments. Unknown fields of a dialect are kept in `extra`.

    `identifiers` declares which arguments are identifiers (top-level names or dotted paths); None: infer them.
    """

    model_config = ConfigDict(extra="forbid")

    name: str
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})
    identifiers: list[str] | None = None
    extra: dict[str, Any] = Field(default_factory=dict)

    def argument_errors(self, arguments: dict[str, Any]) -> list[tuple[str, str]]:
        """(where, what) for each way the arguments break the schema; empty when they are right."""
        return compile_schema(self.parameters).errors(arguments)

    @property
    def returns(self) -> Any:
        """What it declares of its results, under any of the names that dialects use: a JSON Schema, or words; None."""
        return self.extra.get("returns") or self.extra.get("outputSchema") or self.extra.get("output_schema")

    def flat(self) -> dict[str, Any]:
        """`{name, description, parameters}`, the form that prompts and ShareGPT files use."""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}


class CompiledSchema:
    """A checked schema. `valid` is the hot path; `errors` costs more and words what is wrong."""

    def __init__(self, schema: dict[str, Any]) -> None:
        import jsonschema_rs  # three megabytes that talking to an endpoint does not need

        guard(schema)
        try:
            self._fast = jsonschema_rs.Draft202012Validator(
                schema,
                formats=LENIENT,
                validate_formats=True,
                offline=True,
                pattern_options=jsonschema_rs.RegexOptions(),
            )
        except (jsonschema_rs.ValidationError, ValueError) as error:
            raise SchemaError(f"not a usable JSON Schema: {str(error).splitlines()[0]}") from None
        self._schema = schema

    def valid(self, value: Any) -> bool:
        return bool(self._fast.is_valid(value))

    def errors(self, value: Any) -> list[tuple[str, str]]:
        """(JSON path, message) for each violation."""
        if self._fast.is_valid(value):
            return []
        return [(dotted(e.instance_path), e.message) for e in self._fast.iter_errors(value)]


def compile_schema(schema: dict[str, Any]) -> CompiledSchema:
    """Compile once per distinct schema. Raises `SchemaError` with the reason."""
    try:
        key = orjson.dumps(schema, option=orjson.OPT_SORT_KEYS)
    except (TypeError, orjson.JSONEncodeError) as error:
        raise SchemaError(f"the schema is not JSON: {error}") from None
    return _compiled(key)


@lru_cache(maxsize=4096)
def _compiled(key: bytes) -> CompiledSchema:
    return CompiledSchema(orjson.loads(key))


def guard(schema: Any) -> None:
    """Refuse what must not reach a validator: remote references, absurd depth or size, non-object arguments."""
    if not isinstance(schema, dict):
        raise SchemaError("the schema is not an object")
    if len(orjson.dumps(schema)) > MAX_SCHEMA_BYTES:
        raise SchemaError(f"the schema is larger than {MAX_SCHEMA_BYTES} bytes")
    for depth, key, value in walk(schema):
        if depth > MAX_SCHEMA_DEPTH:
            raise SchemaError(f"the schema nests deeper than {MAX_SCHEMA_DEPTH}")
        if key in ("$ref", "$dynamicRef") and isinstance(value, str) and not value.startswith("#"):
            raise SchemaError(f"the schema refers to {value!r}: only references within the schema are read")


def walk(value: Any, depth: int = 0, key: str | None = None) -> Iterator[tuple[int, str | None, Any]]:
    """Every node of a JSON value with its depth and the key it stands under; stops below the depth limit."""
    stack: list[tuple[int, str | None, Any]] = [(depth, key, value)]
    while stack:
        depth, key, value = stack.pop()
        yield depth, key, value
        if depth > MAX_SCHEMA_DEPTH:
            continue
        if isinstance(value, dict):
            stack.extend((depth + 1, str(k), v) for k, v in value.items())
        elif isinstance(value, list):
            stack.extend((depth + 1, None, v) for v in value)


def dotted(path: list[Any]) -> str:
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".")
