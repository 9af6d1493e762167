"""Two built environments whose names clash, hand-written replies for conversations over both, and a run of the stages."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import yaml

from simia.synthesis.building.method_lint import MethodReader, find_method
from simia.synthesis.building.signatures import derive_tool
from simia.synthesis.building.state_model import fill_defaults, name_row_classes, write_state_model
from simia.synthesis.design import BuiltEnvironment, BuiltTool, EnvironmentDesign
from simia.tool_test import ToolTest
from tests.synthesis.build_fixtures import load_library

FOLDER = Path(__file__).parent / "fixtures" / "conversations"


def load_studio() -> BuiltEnvironment:
    """The workshop, whose table `members` and tool `get_member` have the names of the library's."""
    given = yaml.safe_load((FOLDER / "studio.yaml").read_text())
    code = (FOLDER / "studio_methods.txt").read_text()
    functions = {node.name: node for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)}
    for tool in given["design"]["tools"]:
        tool["parameters"] = derive_tool(functions[tool["name"]]).parameters
    design = EnvironmentDesign.model_validate(given["design"])
    tools = {}
    for tool in design.tools:
        source, _ = find_method(code, tool.name)
        checked = MethodReader(tool, set(name_row_classes(design.state).values())).read(source)
        tools[tool.name] = BuiltTool(source=checked.source, spec=checked.spec, writes=tool.writes)
    return BuiltEnvironment(
        design=design,
        state_model=write_state_model(design.state),
        example=fill_defaults(design.state, given["example"]),
        tools=tools,
        tests=[ToolTest.model_validate(test) for test in given["tests"]],
    )


def load_both() -> dict[str, BuiltEnvironment]:
    """The library and the workshop by key."""
    return {"library": load_library(), "studio": load_studio()}


def read_replies(name: str) -> dict[str, Any]:
    """A file of replies under fixtures/conversations."""
    found: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return found
