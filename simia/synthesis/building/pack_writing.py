"""Write a built environment as a pack, and open it. Equal inputs make equal bytes."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from simia.authoring.pack_draft import draft_pack, refuse_existing, write_pack_files
from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.pack_provenance import PackProvenance
from simia.synthesis.building.code_assembly import assemble_code, name_tools_class
from simia.synthesis.building.example_states import CLOCK
from simia.synthesis.design import BuiltEnvironment, EnvironmentDesign, ToolDesign
from simia.synthesis.graph.tool_graph import ToolGraph
from simia.synthesis.reply_reading import dump
from simia.task import Task
from simia.tool import ToolSpec


def write_environment(
    folder: Path,
    built: BuiltEnvironment,
    *,
    tasks: Sequence[Task] = (),
    checks: str | None = None,
    seeds: Sequence[dict[str, Any]] = (),
    provenance: PackProvenance | None = None,
    user: Literal["none", "scripted", "llm"] = "none",
    clock: str = CLOCK,
    graph: ToolGraph | None = None,
) -> None:
    """Write a complete pack to `folder`, which does not exist or is empty.

    Args:
        folder: becomes the pack.
        built: the environment.
        tasks: rows of `tasks.jsonl`; without tasks the pack has no such file.
        checks: source of `checks.py`. Constraints of the schema that it does not define are left out of `pack.yaml`.
        seeds: rows of `seeds.jsonl`, trajectories; without them the pack has no such file.
        provenance: how the environment was made.
        user: the pack's default user.
        clock: when every episode starts.
        graph: its edges between tools that the environment still has become `graph.jsonl`.

    Raises:
        UserError: the folder has files, or cannot be written.
    """
    design = built.design
    edges = graph.select(built.tools).edges if graph else []
    head: dict[str, Any] = {
        "format": 2,
        "name": design.name,
        "description": design.description,
        "policy": "policy.md",
        "tools": "tools.json",
        "state": "state.json",
        **({"tasks": "tasks.jsonl"} if tasks else {}),
        **({"seeds": "seeds.jsonl"} if seeds else {}),
        "tests": "tests.jsonl",
        **({"checks": "checks.py"} if checks else {}),
        **({"graph": "graph.jsonl"} if edges else {}),
        "user": user,
        "schema": write_schema(design, checks),
        **({"provenance": dump(provenance)} if provenance else {}),
        "executable": {
            "code": "tools.py",
            "object": name_tools_class(design),
            "isolation": "process",
            "clock": clock,
        },
    }
    designs = {tool.name: tool for tool in design.tools}
    refuse_existing(folder)
    with draft_pack(folder) as draft:
        contents = {
            "pack.yaml": head,
            "policy.md": write_policy(design),
            "tools.py": assemble_code(design, built.state_model, [tool.source for tool in built.tools.values()]),
            "tools.json": [write_tool(tool.spec, designs[name]) for name, tool in built.tools.items()],
            "state.json": built.example,
            "tests.jsonl": [dump(test) for test in built.tests],
            "tasks.jsonl": [dump(task) for task in tasks] if tasks else None,
            "seeds.jsonl": list(seeds) if seeds else None,
            "checks.py": checks,
            "graph.jsonl": [dump(edge) for edge in edges] or None,
        }
        write_pack_files(draft, contents)


async def open_built(folder: Path, **settings: Any) -> Environment:
    """Open a written environment with its executable world, to play it or to score episodes; `settings` as for `open_environment`."""
    return await open_environment(folder, backend="executable", **settings)


def write_schema(design: EnvironmentDesign, checks: str | None) -> dict[str, Any]:
    """The `schema` of pack.yaml: the tables, and the constraints that are functions of the checks file."""
    tree = ast.parse(checks or "")
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    constraints = [name for name in design.state.constraints if name in functions]
    return dump(design.state.model_copy(update={"constraints": constraints}))


def write_tool(spec: ToolSpec, design: ToolDesign) -> dict[str, Any]:
    """A tool's row of `tools.json`, with the tables of its contract."""
    row: dict[str, Any] = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    if design.returns:
        row["returns"] = design.returns
    return {**row, "reads": design.tables, "writes": design.tables if design.writes else []}


def write_policy(design: EnvironmentDesign) -> str:
    """The system text: the environment, and its rules as a list."""
    rules = "".join(f"- {rule}\n" for rule in design.rules)
    return f"# {design.title}\n\n{design.description}\n" + (f"\n## Rules\n\n{rules}" if rules else "")
