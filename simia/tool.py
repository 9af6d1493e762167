"""ToolSpec: the description of a tool for an agent. This module is also the only place where foreign JSON Schemas are compiled.

A foreign schema is untrusted: it may point to the network, nest without end, expand to millions of checks through its
references, or contain a regular expression that never finishes. `compile_schema` refuses the first three and compiles
regular expressions with a linear-time engine and a size limit. A value that is too large for its schema is refused without
a check. Errors are collected only if there cannot be many, since an error costs far more than the check that found it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from simia.config_errors import explain_validation_error
from simia.schema_cost import MOST_LEVELS, SchemaError, count_states, estimate_cost, find_patterns

__all__ = ["CompiledSchema", "SchemaError", "ToolSpec", "compile_schema", "read_tool"]

# RFC 3339 wants a zone and seconds; tools in the wild mean "10:00" and "2025-09-17T09:30", and so do their users.
TIME = r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?"
LENIENT = {
    "time": lambda text: re.fullmatch(TIME, text) is not None,
    "date-time": lambda text: re.fullmatch(rf"\d{{4}}-[01]\d-[0-3]\d[Tt ]{TIME}", text) is not None,
}
MAX_SCHEMA_BYTES = 256_000
MAX_SCHEMA_DEPTH = 64
PATTERN_BYTES, ONE_PATTERN_BYTES = 32_000_000, 10_000_000  # compiled size: all expressions of a schema, one of them
MOST_WORK = 100_000_000  # checks of one place × bytes of the value; the slowest take about 20 ns
MOST_EXPLAINED = 100_000  # the same, for collecting errors: each takes 20 to 60 µs and kilobytes
MOST_ERRORS, MOST_MESSAGE = 20, 2_000
CHEAP = 64  # checks of one place that are never too many
HEAVY = 1_000  # states of regular expressions; of schemas with more, only few are kept compiled


class ToolSpec(BaseModel):
    """A tool: name, description, JSON Schema of its arguments. Unknown fields of a dialect are kept in `extra`.

    The contract (`requires`, `ensures`, `raises`, `reads`, `writes`) is for authors, checks and synthesis: agents do not see it, and
    trajectories do not store it.
    """

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    name: str
    """The tool's name in calls."""
    description: str = ""
    """What the tool does, for the model that calls it."""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})
    """JSON Schema of the arguments: an object."""
    identifiers: list[str] | None = None
    """Arguments that are identifiers, as top-level names or dotted paths. null: inferred."""
    returns: dict[str, Any] | str | None = None
    """The form of the result: a JSON Schema, or words. null: not declared."""
    requires: list[str] = Field(default_factory=list, exclude=True)
    """Preconditions, one sentence each: what must hold for the call to succeed."""
    ensures: list[str] = Field(default_factory=list, exclude=True)
    """Postconditions, one sentence each: what holds after a call that succeeded."""
    raises: dict[str, str] = Field(default_factory=dict, exclude=True)
    """Words of an error message → condition under which the tool refuses with it."""
    reads: list[str] | None = Field(None, exclude=True)
    """Tables of the state that it reads. null: not declared."""
    writes: list[str] | None = Field(None, exclude=True)
    """Tables of the state that it may change. Empty: it changes nothing. null: not declared."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Fields of the dialect that have no field here."""

    def argument_errors(self, arguments: dict[str, Any]) -> list[tuple[str, str]]:
        """Check arguments against the schema.

        Returns:
            (dotted place, what is wrong) for each violation; empty if the arguments are valid.
        """
        return compile_schema(self.parameters).errors(arguments)

    @property
    def result_schema(self) -> Any:
        """The declared form of the results, under any of the names that dialects use: a JSON Schema, or words; None: not declared."""
        return self.returns or next(
            (self.extra[name] for name in ("returns", "outputSchema", "output_schema") if self.extra.get(name)), None
        )

    @property
    def public(self) -> ToolSpec:
        """The tool without its contract: what agents see and trajectories store."""
        if not (self.requires or self.ensures or self.raises or self.reads is not None or self.writes is not None):
            return self
        contract: dict[str, Any] = {"requires": [], "ensures": [], "raises": {}, "reads": None, "writes": None}
        return self.model_copy(update=contract)

    @property
    def identity(self) -> dict[str, Any]:
        """The tool as JSON for hashes: the fields that agents see. An undeclared `returns` is left out, as in format 1."""
        return self.model_dump(exclude={"returns"} if self.returns is None else None)

    def flat(self) -> dict[str, Any]:
        """Return `{name, description, parameters}`, the form that prompts and ShareGPT files use."""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}

    def write_json(self) -> str:
        """Return the form that prompts use as a line of JSON."""
        return orjson.dumps(self.flat()).decode()


class CompiledSchema:
    """A checked schema. `valid` is the hot path; `errors` costs more and says what is wrong."""

    def __init__(self, schema: dict[str, Any]) -> None:
        import jsonschema_rs  # takes 3 MB and is not needed to call an endpoint

        refuse_hostile_schema(schema)
        self._cost = estimate_cost(schema)
        share = min(ONE_PATTERN_BYTES, PATTERN_BYTES // max(1, self._cost.patterns))
        try:
            self._fast = jsonschema_rs.Draft202012Validator(
                schema,
                formats=LENIENT,
                validate_formats=True,
                offline=True,
                pattern_options=jsonschema_rs.RegexOptions(size_limit=share, dfa_size_limit=min(share, 2_000_000)),
            )
        except (jsonschema_rs.ValidationError, ValueError) as error:
            raise SchemaError(f"not a usable JSON Schema: {str(error).splitlines()[0][:MOST_MESSAGE]}") from None
        self._schema = schema

    def valid(self, value: Any) -> bool:
        return self._too_large(value) is None and bool(self._fast.is_valid(value))

    def errors(self, value: Any) -> list[tuple[str, str]]:
        """(JSON path, message) for the first violations; for one at most where collecting them could cost too much."""
        if (why := self._too_large(value)) is not None:
            return [("", why)]
        if self._fast.is_valid(value):
            return []
        checks = self._cost.of(count_levels(value)) or self._cost.checks[-1]
        if checks * count_bytes(value) <= MOST_EXPLAINED:
            return [locate_error(error) for error in islice(self._fast.iter_errors(value), MOST_ERRORS)]
        if self._cost.alternatives:  # its errors hold those of every branch
            return [("", "the value breaks the schema; where is not searched for in a value of this size")]
        import jsonschema_rs

        try:
            self._fast.validate(value)
        except jsonschema_rs.ValidationError as error:
            return [locate_error(error)]
        return [("", "the value breaks the schema")]

    def _too_large(self, value: Any) -> str | None:
        """Why a value is refused unchecked: checking it could take too long."""
        cost = self._cost
        if not cost.recursive and not cost.patterns and cost.checks[-1] <= CHEAP:
            return None
        checks = cost.of(count_levels(value) if cost.recursive else 0)
        if checks is None:
            return f"the value nests deeper than the {len(cost.checks) - 1} levels that this recursive schema is checked to"
        size = count_bytes(value)
        if checks * size > MOST_WORK:
            return f"the value of {size:,} bytes is too large for a schema that makes {checks:,} checks of one place"
        return None


def locate_error(error: Any) -> tuple[str, str]:
    """A validator's error as (JSON path, message of bounded length)."""
    return join_dotted(error.instance_path), error.message[:MOST_MESSAGE]


def count_levels(value: Any) -> int:
    """How deep a JSON value nests; counting stops one level beyond the deepest that a recursive schema is checked to."""
    level, depth = [value], 0
    while depth <= MOST_LEVELS:
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                below.extend(each.values())
            elif isinstance(each, list):
                below.extend(each)
        if not below:
            break
        level, depth = below, depth + 1
    return depth


def count_bytes(value: Any) -> int:
    """The size of a JSON value as text; for a value that cannot be written as JSON, the length of its `repr`."""
    try:
        return len(orjson.dumps(value))
    except (TypeError, ValueError, RecursionError):
        return len(repr(value))


def compile_schema(schema: dict[str, Any]) -> CompiledSchema:
    """Compile once per distinct schema. Raises `SchemaError` with the reason."""
    try:
        key = orjson.dumps(schema, option=orjson.OPT_SORT_KEYS)
    except (TypeError, orjson.JSONEncodeError) as error:
        raise SchemaError(f"the schema is not JSON: {error}") from None
    return (_compile_heavy if is_heavy(key) else _compile_light)(key)


@lru_cache(maxsize=4096)
def is_heavy(key: bytes) -> bool:
    """Whether the regular expressions of a schema, given as JSON, take much memory once compiled."""
    return sum(map(count_states, find_patterns(orjson.loads(key)))) > HEAVY


@lru_cache(maxsize=4096)
def _compile_light(key: bytes) -> CompiledSchema:
    return CompiledSchema(orjson.loads(key))


@lru_cache(maxsize=64)
def _compile_heavy(key: bytes) -> CompiledSchema:
    return CompiledSchema(orjson.loads(key))


def refuse_hostile_schema(schema: Any) -> None:
    """Raise `SchemaError` for a schema that must not reach a validator: no object, too deep, too large, or with remote references."""
    if not isinstance(schema, dict):
        raise SchemaError("the schema is not an object")
    if len(orjson.dumps(schema)) > MAX_SCHEMA_BYTES:
        raise SchemaError(f"the schema is larger than {MAX_SCHEMA_BYTES} bytes")
    for depth, key, value in walk_json(schema):
        if depth > MAX_SCHEMA_DEPTH:
            raise SchemaError(f"the schema nests deeper than {MAX_SCHEMA_DEPTH}")
        if key in ("$ref", "$dynamicRef") and isinstance(value, str) and not value.startswith("#"):
            raise SchemaError(f"the schema refers to {value!r}: only references within the schema are read")


def walk_json(value: Any, depth: int = 0, key: str | None = None) -> Iterator[tuple[int, str | None, Any]]:
    """Yield every node of a JSON value with its depth and its key in the parent object; nothing more than one level beyond the depth limit."""
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


def join_dotted(path: list[Any]) -> str:
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".")


def read_tool(row: Any, number: int) -> ToolSpec:
    """Read a row of a list of tools. `number`: its place, counted from 1. Raises `SchemaError` that names the tool for a malformed row and for
    a schema that cannot be used."""
    try:
        tool = ToolSpec.model_validate(row)
    except ValidationError as error:
        name = row.get("name") if isinstance(row, dict) else None
        which = f"tool {name}" if isinstance(name, str) else f"tool {number} of the list"
        raise SchemaError(f"{which}: {explain_validation_error(ToolSpec, error, row)[1]}") from None
    try:
        compile_schema(tool.parameters)
    except SchemaError as error:
        raise SchemaError(f"tool {tool.name}: {find_bad_parameter(tool)}{error}") from None
    return tool


def find_bad_parameter(tool: ToolSpec) -> str:
    """Name the parameter whose own schema is wrong; empty if the fault is not in a single parameter."""
    properties = tool.parameters.get("properties")
    for name, schema in properties.items() if isinstance(properties, dict) else ():
        try:
            compile_schema(schema)
        except SchemaError:
            return f"parameter {name}: "
        except (TypeError, ValueError):
            return ""
    return ""
