"""Models that stages exchange: the design of an environment, its verified code, and coding problems with their gyms.

A stage returns `dump(model)` as its output; a later stage reads it with `model_validate`.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from simia.reward_spec import StrictModel
from simia.state_schema import StateSchema
from simia.task import Measurement
from simia.tool import ToolSpec
from simia.tool_test import ToolTest


class ToolDesign(StrictModel):
    """One operation of an environment, before there is code for it (EnvScaler's logic planning, ScaleEnv §3.1)."""

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,62}$")
    """Name of the tool and of its method; in lower case unless a source gives it."""
    description: str
    """What it does, for the agent."""
    writes: bool
    """Whether it may change the state."""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})
    """JSON Schema of the arguments, an object."""
    returns: str = ""
    """What a successful call returns."""
    rules: list[str] = Field(default_factory=list)
    """What the call does to the state, and which rules of the domain it enforces."""
    refusals: list[str] = Field(default_factory=list)
    """When it refuses: one condition each."""
    tables: list[str] = Field(default_factory=list)
    """Tables that it reads or changes."""
    given: bool = False
    """Whether a source defines the tool; its name, description and schema are then kept unchanged in the pack."""


class EnvironmentDesign(StrictModel):
    """A domain as tables, rules and operations (EnvScaler's logic planning, ScaleEnv §3.1)."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,40}$")
    """Name of the pack."""
    title: str
    """The environment in a few words."""
    description: str
    """What the environment is and who uses it, in a few sentences."""
    rules: list[str] = Field(default_factory=list)
    """Rules of the domain, for the system text and for the code."""
    state: StateSchema
    """Tables with keys, columns, references and values. Rows are a mapping: a table without `key` is keyed by its rows' ids."""
    tools: list[ToolDesign] = Field(default_factory=list)
    """The operations."""


class BuiltTool(StrictModel):
    """A tool whose code passed its tests."""

    source: str
    """The method, with its decorator, without indentation."""
    spec: ToolSpec
    """The tool as agents see it; its schema is derived from the method's signature and docstring."""
    writes: bool
    """Whether it may change the state."""
    repairs: int = 0
    """Rounds of the debug loop that it took."""


class DroppedTool(StrictModel):
    """A designed tool that the environment does not have."""

    reason: str
    """A `Reason`."""
    detail: str = ""
    """One line for people."""


class BuiltEnvironment(StrictModel):
    """An environment whose tools were tested by execution: everything that a pack has except tasks."""

    design: EnvironmentDesign
    """What was asked for."""
    state_model: str
    """Python source of the pydantic models of the state; the outermost one is `State`."""
    example: dict[str, Any]
    """A state that the schema allows, in which the tests run."""
    tools: dict[str, BuiltTool]
    """Kept tools by name, in the order of the design."""
    dropped: dict[str, DroppedTool] = Field(default_factory=dict)
    """Designed tools that were dropped, by name."""
    tests: list[ToolTest] = Field(default_factory=list)
    """Tests of the kept tools, which they pass."""


class SolvedExample(StrictModel):
    """Inputs of a coding problem with the answer that its solution returned when it was executed."""

    inputs: dict[str, Any]
    """The inputs by name."""
    answer: Any
    """The answer, a JSON value that is not null."""


class CodingProblem(StrictModel):
    """A coding problem with a solution in one unified form (CodeGym §3.2)."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,60}$")
    """Name of the problem, and of its pack."""
    statement: str
    """The problem."""
    solution: str
    """Python source that defines `solve(...)`, which takes the inputs by name and returns the answer, a JSON value."""
    inputs: dict[str, Any]
    """JSON Schema of the inputs, an object."""
    examples: list[SolvedExample] = Field(default_factory=list)
    """Inputs on which the solution was executed, small ones first. Stage `problems` gives at least two."""
    licence: str = "unknown"
    """Licence of the problem, as an SPDX expression."""


class GymEnvironment(StrictModel):
    """An interactive form of a coding problem (CodeGym §3.3): tools over a state that holds the inputs."""

    problem: CodingProblem
    """The problem that it comes from."""
    task: str
    """The task in words, for the agent; it does not contain the inputs."""
    code: str
    """The pack's `tools.py`: a class `Gym` of `simia.kit.Tools` with `observe`, `done` and at least two tools of its own. Its state has
    a field for each input, and `answer`, None until `done(answer)` has set it and ended the episode."""
    tools: list[ToolSpec]
    """The tools as agents see them; `tool_writes` names those that change the state."""
    tool_writes: list[str] = Field(default_factory=list)
    """Names of the tools that change the state."""
    examples: dict[str, str] = Field(default_factory=dict)
    """Tool → usage examples: calls with their results. Only writers of solutions see them."""
    tests: list[ToolTest] = Field(default_factory=list)
    """The same calls as tests of the tools."""


class GymInstance(StrictModel):
    """One input of a gym with its reference answer (CodeGym §3.3.2)."""

    id: str
    """Unique in the gym: `easy-03`."""
    level: str
    """`easy`, `medium`, `hard`, or `augmented` for enlarged inputs (CodeGym §3.5)."""
    inputs: dict[str, Any]
    """The inputs by name."""
    answer: Any
    """What the problem's solution returns for them."""
    calls: list[dict[str, Any]] = Field(default_factory=list)
    """Calls of the oracle solution that solves it: `{"name", "arguments"}`, the last one of `done`."""
    measured: dict[str, Measurement] = Field(default_factory=dict)
    """Agent → how often it solved this input."""
