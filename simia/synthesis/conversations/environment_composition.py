"""Compose up to three built environments into one (EnvFactory §3.3.2: a chain crosses at most 3 environments).

Tables and tools are joined; a name that several environments use gets the environment's name as prefix. In the source of the methods only
such names are replaced. The tests of the originals become the tests of the composition.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simia.state_schema import StateSchema
from simia.synthesis.building.state_model import name_row_classes, write_state_model
from simia.synthesis.conversations.source_renaming import rename_mentions, rename_method
from simia.synthesis.design import BuiltEnvironment, BuiltTool, EnvironmentDesign, ToolDesign
from simia.task import Action
from simia.tool_test import ToolTest

MOST_ENVIRONMENTS = 3
LONGEST_NAME = 41  # of a pack
LONGEST_TOOL = 63

Names = dict[str, str]


@dataclass(frozen=True, slots=True)
class Composition:
    """Several environments as one."""

    built: BuiltEnvironment
    """The composition."""
    tools: dict[str, str]
    """`environment/tool` → its name in the composition."""
    tables: dict[str, list[str]]
    """Environment → its tables in the composition."""


def compose_environments(parts: Mapping[str, BuiltEnvironment]) -> Composition:
    """Compose one to three environments, by key. Equal inputs make equal outputs.

    Raises:
        ValueError: there are none or more than three, or a state model differs from the one that is derived from its tables.
    """
    if not 0 < len(parts) <= MOST_ENVIRONMENTS:
        raise ValueError(f"{len(parts)} environments cannot be composed: give 1 to {MOST_ENVIRONMENTS}")
    if len(parts) == 1:
        [(key, built)] = parts.items()
        names = {f"{key}/{name}": name for name in built.tools}
        return Composition(built, names, {key: list(built.design.state.tables)})
    for key, built in parts.items():
        if built.state_model != write_state_model(built.design.state):
            raise ValueError(f"{key}: its state model is not the one that its tables make, so it cannot be joined")
    tables = choose_names({key: list(built.design.state.tables) for key, built in parts.items()}, LONGEST_NAME)
    tools = choose_names(
        {key: [each.name for each in built.design.tools] for key, built in parts.items()}, LONGEST_TOOL
    )
    state = join_tables(parts, tables)
    classes = name_row_classes(state)
    renamed = {
        key: PartRenaming(
            key,
            tables[key],
            tools[key],
            {old: classes[tables[key][name]] for name, old in name_row_classes(built.design.state).items()},
        )
        for key, built in parts.items()
    }
    example = {
        new: value for key, built in parts.items() for new, value in renamed[key].rename_state(built.example).items()
    }
    composed = BuiltEnvironment(
        design=join_designs(parts, renamed, state),
        state_model=write_state_model(state),
        example=example,
        tools={
            renamed[key].tools[name]: renamed[key].rename_tool(tool)
            for key, built in parts.items()
            for name, tool in built.tools.items()
        },
        dropped={
            renamed[key].tools[name]: each for key, built in parts.items() for name, each in built.dropped.items()
        },
        tests=[renamed[key].rename_test(test, example) for key, built in parts.items() for test in built.tests],
    )
    return Composition(
        composed,
        {f"{key}/{name}": tools[key][name] for key, built in parts.items() for name in built.tools},
        {key: list(tables[key].values()) for key in parts},
    )


def choose_names(groups: Mapping[str, Sequence[str]], longest: int) -> dict[str, Names]:
    """Return environment → old name → new name: a name that several environments use gets the environment's name as prefix."""
    count = Counter(name for names in groups.values() for name in names)
    taken = {name for name, times in count.items() if times == 1}
    found: dict[str, Names] = {key: {} for key in groups}
    for key, names in groups.items():
        prefix = re.sub(r"\W+", "_", key).lower()
        for name in names:
            new = name
            if count[name] > 1:
                new = f"{prefix[: max(1, longest - 4 - len(name))]}_{name}"
                while new in taken:
                    new += "_"
                taken.add(new)
            found[key][name] = new
    return found


def join_tables(parts: Mapping[str, BuiltEnvironment], names: Mapping[str, Names]) -> StateSchema:
    """The tables of all environments, with renamed references."""
    joined: dict[str, Any] = {}
    constraints: list[str] = []
    for key, built in parts.items():
        own = names[key]
        for name, table in built.design.state.tables.items():
            columns = {
                column: spec.model_copy(update={"references": own[spec.references]}) if spec.references else spec
                for column, spec in table.columns.items()
            }
            joined[own[name]] = table.model_copy(update={"columns": columns})
        constraints += built.design.state.constraints
    return StateSchema(tables=joined, constraints=list(dict.fromkeys(constraints)))


def join_designs(
    parts: Mapping[str, BuiltEnvironment], renamed: Mapping[str, PartRenaming], state: StateSchema
) -> EnvironmentDesign:
    """Join designs to one; each rule starts with the title of its environment."""
    designs = {key: built.design for key, built in parts.items()}
    titles = [design.title for design in designs.values()]
    return EnvironmentDesign(
        name="_".join(design.name for design in designs.values())[:LONGEST_NAME].rstrip("_"),
        title=f"{', '.join(titles[:-1])} and {titles[-1]}",
        description=" ".join(f"{design.title}: {design.description}" for design in designs.values()),
        rules=[
            f"{design.title}: {rename_mentions(rule, renamed[key].tools)}"
            for key, design in designs.items()
            for rule in design.rules
        ],
        state=state,
        tools=[renamed[key].rename_design(tool) for key, design in designs.items() for tool in design.tools],
    )


@dataclass(frozen=True, slots=True)
class PartRenaming:
    """The new names of one environment's parts."""

    key: str
    tables: Names
    tools: Names
    rows: Names

    def rename_state(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """A state or a patch of one, under the new names of the tables."""
        return {self.tables.get(name, name): value for name, value in state.items()}

    def rename_design(self, tool: ToolDesign) -> ToolDesign:
        """A designed operation under its new names."""
        words = {
            "description": rename_mentions(tool.description, self.tools),
            "returns": rename_mentions(tool.returns, self.tools),
            "rules": [rename_mentions(rule, self.tools) for rule in tool.rules],
            "refusals": [rename_mentions(refusal, self.tools) for refusal in tool.refusals],
        }
        tables = [self.tables[table] for table in tool.tables]
        return tool.model_copy(update={"name": self.tools[tool.name], "tables": tables, **words})

    def rename_tool(self, tool: BuiltTool) -> BuiltTool:
        """A tool under its new names; the words of its schema are those of the renamed docstring."""
        spec = tool.spec.model_copy(
            update={
                "name": self.tools[tool.spec.name],
                "description": rename_mentions(tool.spec.description, self.tools),
                "parameters": self._rename_words(tool.spec.parameters),
            }
        )
        source = rename_method(tool.source, tables=self.tables, rows=self.rows, tools=self.tools)
        return tool.model_copy(update={"source": source, "spec": spec})

    def _rename_words(self, schema: dict[str, Any]) -> dict[str, Any]:
        described = {
            name: {**each, "description": rename_mentions(each["description"], self.tools)}
            if isinstance(each, dict) and isinstance(each.get("description"), str)
            else each
            for name, each in schema.get("properties", {}).items()
        }
        return {**schema, "properties": described}

    def rename_test(self, test: ToolTest, example: Mapping[str, Any]) -> ToolTest:
        """Rename a test. `example`: the rows of the composition, which complete a test that has a whole state of its environment."""
        initial = {how: self.rename_state(value) for how, value in test.initial.items()}
        if "state" in initial:
            initial["state"] = {**example, **initial["state"]}
        changes = test.expect.changes
        if changes is not None:
            changes = {self._rename_path(path): value for path, value in changes.items()}
        return test.model_copy(
            update={
                "name": f"{self.key}: {test.name}",
                "initial": initial,
                "before": [self._rename_call(call) for call in test.before],
                "call": self._rename_call(test.call),
                "expect": test.expect.model_copy(update={"changes": changes}),
            }
        )

    def _rename_path(self, path: str) -> str:
        table, dot, rest = path.partition(".")
        return f"{self.tables.get(table, table)}{dot}{rest}"

    def _rename_call(self, call: Action) -> Action:
        return call.model_copy(update={"name": self.tools.get(call.name, call.name)})
