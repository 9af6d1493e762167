"""Schemas, token count and normalized system text of a set of tools, computed once for all trajectories that share it."""

from __future__ import annotations

from dataclasses import dataclass, field

import orjson

from simia.quality.fast_tokens import estimate_byte_tokens
from simia.quality.mentions import normalize_mention
from simia.tool import CompiledSchema, SchemaError, ToolSpec, compile_schema
from simia.trajectory import Trajectory

MOST = 256
_KNOWN: dict[tuple[object, ...], Toolset] = {}


@dataclass(slots=True)
class Toolset:
    """Tools by name, their compiled schemas (or why there is none), and the tokens of system text and tools."""

    tools: list[ToolSpec]
    tokens: int
    system: str  # normalized for `Mentions`
    schemas: dict[str, CompiledSchema | SchemaError] = field(default_factory=dict)

    @classmethod
    def of(cls, t: Trajectory) -> Toolset:
        # By identity: the trajectories of a run share the tool objects of its seeds. The entry keeps them alive, so that
        # no other object gets their id; tools are not edited in place while trajectories are checked.
        key = (t.system, *(id(tool) for tool in t.tools))
        known = _KNOWN.get(key)
        if known is None:
            if len(_KNOWN) >= MOST:
                _KNOWN.clear()
            raw = b"".join([(t.system or "").encode(), *(orjson.dumps(tool.flat()) for tool in t.tools)])
            known = _KNOWN[key] = cls(
                list(t.tools),
                estimate_byte_tokens(raw),
                normalize_mention(t.system or ""),
                {tool.name: try_compile(tool) for tool in t.tools},
            )
        return known


def try_compile(tool: ToolSpec) -> CompiledSchema | SchemaError:
    try:
        return compile_schema(tool.parameters)
    except SchemaError as error:
        return error
