"""Pack: one environment's description. In this release its words: tools, policy, seeds (executable parts follow).

On disk a directory with `pack.yaml` (`format: 1`), which names `policy`, `tools` and `seeds` files beside it. A bare
file of seed trajectories in any dialect is a pack too: every row then brings its own tools and system text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import orjson
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from simia import resources
from simia.errors import UserError
from simia.tool import SchemaError, ToolSpec, compile_schema
from simia.trajectory import Trajectory


class PackFile(BaseModel):
    """`pack.yaml`."""

    model_config = ConfigDict(extra="forbid")

    format: Literal[1]
    name: str
    description: str = ""
    licence: str = "unknown"
    policy: str | None = None
    tools: str | None = None
    seeds: str | None = None


class Pack(BaseModel):
    """Tools, policy and seeds of one domain. Seeds without tools or system text of their own get the pack's."""

    model_config = ConfigDict(extra="forbid")

    name: str
    description: str = ""
    licence: str = "unknown"
    policy: str | None = None
    tools: list[ToolSpec] = Field(default_factory=list)
    seeds: list[Trajectory] = Field(default_factory=list)

    @classmethod
    def load(cls, name: str | Path) -> Pack:
        """Read a pack directory, by path or by the name of one of `seeds/`."""
        root = resources.find("seeds", name)
        path = root / "pack.yaml" if root.is_dir() else root
        if not path.is_file():
            raise UserError(f"{root} is no pack: it has no pack.yaml")
        try:
            head = PackFile.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
        except (ValidationError, yaml.YAMLError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: {first_line(error)}") from None
        pack = cls(name=head.name, description=head.description, licence=head.licence)
        if head.policy:
            pack.policy = part(path, head.policy).read_text(encoding="utf-8").strip()
        if head.tools:
            pack.tools = read_tools(part(path, head.tools))
        if head.seeds:
            pack.seeds = [pack.adopt(t) for t in read_seeds(part(path, head.seeds))]
        return pack

    def adopt(self, seed: Trajectory) -> Trajectory:
        """A seed with what it leaves to the pack filled in: name, system text, tools, licence."""
        changes: dict[str, Any] = {"pack": seed.pack or self.name}
        if seed.system is None:
            changes["system"] = self.policy
        if not seed.tools:
            changes["tools"] = self.tools
        changes["provenance"] = seed.provenance.model_copy(update={"licence": seed.provenance.licence or self.licence})
        return seed.model_copy(update=changes)


def part(pack_yaml: Path, name: str) -> Path:
    path = pack_yaml.parent / name
    if not path.is_file():
        raise UserError(f"{pack_yaml} names {name!r}, which is not beside it")
    return path


def read_tools(path: Path) -> list[ToolSpec]:
    try:
        rows = orjson.loads(path.read_bytes())
        tools = [ToolSpec.model_validate(row) for row in rows]
        for tool in tools:
            compile_schema(tool.parameters)
    except (orjson.JSONDecodeError, ValidationError, SchemaError) as error:
        raise UserError(f"{path}: {first_line(error)}") from None
    return tools


def read_seeds(path: Path) -> list[Trajectory]:
    """Our own packs' seeds, in simia's own row form. A bad line is the pack author's mistake and raises."""
    seeds = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            seeds.append(Trajectory.from_row(orjson.loads(line)))
        except (orjson.JSONDecodeError, ValidationError) as error:
            raise UserError(f"{path}, line {number}: {first_line(error)}") from None
    return seeds


def first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(str(p) for p in first['loc'])}: {first['msg']}"
    return str(error).splitlines()[0]
