"""Outputs of QueryGen's stages, which are inputs of later ones (EnvFactory §3.4): compositions, plans, queries, solved turns."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from simia.reward_spec import StrictModel
from simia.synthesis.conversations.environment_composition import Composition
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.graph.tool_graph import ToolGraph
from simia.task import Goal


class ComposedEnvironment(StrictModel):
    """One to three environments joined to one, with the graph of their tools."""

    environments: list[str]
    """Keys of the environments."""
    built: BuiltEnvironment
    """The composition, in which the tests of the originals pass."""
    graph: ToolGraph
    """Tools named `environment/tool`, with edges that lead to other environments too."""
    tools: dict[str, str]
    """`environment/tool` → its name in the composition."""
    tables: dict[str, list[str]]
    """Environment → its tables in the composition."""

    @classmethod
    def from_composition(cls, composition: Composition, graph: ToolGraph) -> ComposedEnvironment:
        """The output of the stage."""
        return cls(
            environments=list(composition.tables),
            built=composition.built,
            graph=graph,
            tools=composition.tools,
            tables=composition.tables,
        )


class ConversationPlan(StrictModel):
    """The user and the situation of a conversation, and the tools of each turn (EnvFactory §3.4, planning)."""

    composition: str
    """Key of the composition."""
    turns: list[list[str]]
    """Sampled tools of each turn, by their names in the composition."""
    persona: str
    """Who the user is, and how they write."""
    scenario: str
    """Why the user turns to the assistant today."""
    state: dict[str, Any]
    """The initial state."""


class UserTurn(StrictModel):
    """One turn of the user (EnvFactory §3.4, generation and refinement)."""

    subgoals: list[str] = Field(min_length=1)
    """What the user wants in this turn, step by step."""
    query: str = Field(min_length=5)
    """The user's words."""


class ConversationQueries(StrictModel):
    """The queries of a plan."""

    drafts: list[UserTurn]
    """The turns as they were written first, explicit and complete."""
    turns: list[UserTurn]
    """The turns after the refinements."""


class SolvedTurn(StrictModel):
    """A turn with its selected solution."""

    goal: Goal
    """The refined query, the essential calls with masked arguments, and how they are judged."""
    messages: list[dict[str, Any]]
    """The turn in the conversation of the selected solver, the user's query first."""
    solvers: int
    """How many solvers played it."""
    passed: int
    """How many of them satisfy the goal."""


class SolvedConversation(StrictModel):
    """The turns of a plan that were solved, up to the first that was not."""

    turns: list[SolvedTurn]
    """The solved turns in order."""
    unsolved: str = ""
    """Why the next turn has no solution; empty if all turns have one."""
