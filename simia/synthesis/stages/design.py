"""Stage `design`: design tables, rules and operations for a domain (EnvScaler §2: logic planning; ScaleEnv §3.1)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from anyascii import anyascii
from pydantic import Field, ValidationError

from simia.reward_spec import StrictModel
from simia.state_schema import StateSchema
from simia.synthesis.building.building_settings import BuildingSettings
from simia.synthesis.building.design_checks import find_table_faults, find_tool_faults, normalize_state
from simia.synthesis.building.example_states import describe_tables
from simia.synthesis.design import EnvironmentDesign, ToolDesign
from simia.synthesis.reasons import Reason, Unreadable, name_refusal
from simia.synthesis.reply_reading import dump, explain_errors, read_json, refuse_faults
from simia.synthesis.sources.given_tools import describe_given_tool, fill_given_tools
from simia.synthesis.sources.source_document import GivenTool
from simia.synthesis.stage import StageContext, StageInput, StageOutputs

SHOWN = 6
MOST_NAME = 36


class Domain(StrictModel):
    """What an environment is made from."""

    domain: str = Field(min_length=1)
    """The domain in words."""
    title: str = ""
    """The environment in a few words, if `domain` names only its field."""
    name: str | None = Field(None, pattern=r"^[a-z][a-z0-9_]{0,40}$")
    """Name of the pack; None: made from the words."""
    description: str = ""
    """What the environment is, in a few sentences."""
    quotes: list[str] = Field(default_factory=list)
    """Passages of its sources."""
    tools: list[GivenTool] = Field(default_factory=list)
    """Tools that its sources define, which the design keeps."""


class TablePlan(StrictModel):
    """The first half of a design."""

    title: str = Field(min_length=1, max_length=200)
    """The environment in a few words."""
    description: str = Field(min_length=1)
    """What the environment is and who uses it."""
    rules: list[str] = Field(min_length=1)
    """Rules of the domain."""
    tables: dict[str, Any]
    """Tables with keys, columns, references and values."""
    constraints: list[str] = Field(default_factory=list)
    """Conditions that the data always satisfies, in words."""


class DesignStage:
    """Asks for the tables and rules of each domain, then for its operations."""

    name = "design"

    def __init__(self, settings: BuildingSettings, domains: Sequence[Mapping[str, Any]] = (), source: str = "") -> None:
        """`domains`: inputs; `source`: a stage whose outputs are inputs too."""
        self._settings, self._domains, self._source = settings, domains, source

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        given = [*self._domains, *(outputs.of(self._source).values() if self._source else ())]
        found: dict[str, Any] = {}
        for each in given:
            domain = Domain.model_validate({key: each[key] for key in Domain.model_fields if each.get(key)})
            name = make_unique(domain.name or make_name(domain.domain), found)
            words = domain.domain if domain.title in ("", domain.domain) else f"{domain.title} ({domain.domain})"
            found[name] = {"domain": words, "description": domain.description}
            found[name] |= domain.model_dump(include={"quotes", "tools"}, exclude_defaults=True)
        return [StageInput(name, value) for name, value in found.items()]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        given_tools = [GivenTool.model_validate(each) for each in given.value.get("tools", [])]
        sources = {"quotes": given.value.get("quotes", []), "given": list(map(describe_given_tool, given_tools))}
        with name_refusal(Reason.INVALID_DESIGN):
            values = {**given.value, **sources}
            plan, state = await context.ask("synthesis/tables.j2", values, read_tables, label="tables")
            rules = list(dict.fromkeys([*plan.rules, *plan.constraints]))
            least = max(self._settings.operations, len(given_tools))
            values = {
                "least": least,
                "most": least + least // 3,
                "title": plan.title,
                "description": plan.description,
                "rules": rules,
                "tables": describe_tables(state),
                **sources,
            }

            def read_operations(text: str) -> list[ToolDesign]:
                tools = read_tool_designs(text, given_tools)
                refuse_faults(find_tool_faults(tools, state, least), SHOWN)
                return tools

            tools = await context.ask("synthesis/operations.j2", values, read_operations, label="operations")
        design = EnvironmentDesign(
            name=given.key, title=plan.title, description=plan.description, rules=rules, state=state, tools=tools
        )
        context.note(tables=len(state.tables), tools=len(tools), writing=sum(tool.writes for tool in tools))
        return dump(design)


def read_tables(text: str) -> tuple[TablePlan, StateSchema]:
    """Read the tables and rules of a reply. Raises `Unreadable` with what is wrong."""
    plan: TablePlan = read_json(text, TablePlan)
    given: StateSchema = read_state_schema(plan)
    refuse_faults(find_table_faults(given), SHOWN)
    return plan, normalize_state(given)


def read_tool_designs(text: str, given: Sequence[GivenTool]) -> list[ToolDesign]:
    """Read the operations of a reply, with the given tools as their sources define them. Raises `Unreadable`."""
    if not given:
        designed: list[ToolDesign] = read_json(text, list[ToolDesign])
        return designed
    rows = fill_given_tools(read_json(text, list[dict[str, Any]]), given)
    try:
        return [ToolDesign.model_validate(row) for row in rows]
    except ValidationError as error:
        raise Unreadable(explain_errors(error)) from None


def read_state_schema(plan: TablePlan) -> StateSchema:
    """Return the tables of a plan as a schema. Raises `Unreadable` if they are not valid."""
    try:
        return StateSchema.model_validate({"tables": plan.tables})
    except ValidationError as error:
        raise Unreadable(f"tables: {explain_errors(error)}") from None


def make_name(words: str, most: int = MOST_NAME, prefix: str = "environment") -> str:
    """Make a pack's name from words in any script: `Hotel front desk` → `hotel_front_desk`, cut between words to at most `most` characters.

    `prefix`: put in front if the name would not begin with a letter.
    """
    name = re.sub(r"[^a-z0-9]+", "_", anyascii(words).lower()).strip("_")
    name = name if name[:1].isalpha() else f"{prefix}_{name}"
    if len(name) > most and "_" in name[: most + 1]:
        return name[: most + 1].rpartition("_")[0].strip("_")
    return name[:most].strip("_")


def make_unique(name: str, taken: Collection[str]) -> str:
    """Return the name, with a number appended if it is taken."""
    return next(each for each in (name, *(f"{name}_{n}" for n in range(2, len(taken) + 3))) if each not in taken)
