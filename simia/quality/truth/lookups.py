"""Changes of objects that were never looked up, where the policy or the seed looks up first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from simia.errors import Code, Issue
from simia.quality.entity_ledger import iterate_scalars, to_singular
from simia.quality.mentions import normalize_mention
from simia.quality.tool_effects import split_tool_name
from simia.quality.trajectory_view import TrajectoryView
from simia.quality.truth.entities import is_entity_name
from simia.quality.truth.facts import MOST, Step, TruthView, classify_tool
from simia.quality.truth.policy_rules import read_rule
from simia.quality.truth.vocabulary import is_handover
from simia.tool import ToolSpec
from simia.trajectory import Trajectory


def find_missing_lookups(facts: TruthView, seed: Trajectory | None) -> Iterator[Issue]:
    """Report a change of an object that no earlier call looked up, although a tool could have."""
    steps = facts.steps
    if not any(step.writes for step in steps):
        return
    rule = read_rule(facts.t.system or "", "lookup")
    habits = find_habits(seed) if seed is not None else frozenset()
    for step in steps:
        if not step.writes or step.failed or not (step.call.name in habits or rule.covers(step.call.name)):
            continue
        missing = find_unseen(facts, step)
        if missing is not None:
            detail = f"{step.call.name} changes {missing!r}, which was not looked up before"
            yield Issue(code=Code.NO_LOOKUP, where=step.where, detail=detail[:300])
            return


CREATES = frozenset(
    ["create", "register", "open", "submit", "new", "book", "reserve", "place", "buy", "purchase", "enroll"]
)
PATHS = ("path", "file", "filename", "name", "new_path")
OBJECT = re.compile(r"_(?:id|no|number|code|ref|reference)$", re.I)
REWRITES = frozenset(
    ["append", "replace", "edit", "update", "set", "modify", "overwrite"]
)  # what is in a file matters to these
_HABITS: dict[int, tuple[Trajectory, frozenset[str]]] = {}


def find_habits(seed: Trajectory) -> frozenset[str]:
    """Return the changing tools that a seed calls only after it looked the object up."""
    known = _HABITS.get(id(seed))
    if known is None:
        if len(_HABITS) >= 4096:
            _HABITS.clear()
        facts = TruthView(TrajectoryView(seed))
        writes = [step for step in facts.steps if step.writes and list_objects(facts, step)]
        hasty = {step.call.name for step in writes if find_unseen(facts, step) is not None}
        known = _HABITS[id(seed)] = (seed, frozenset(step.call.name for step in writes) - hasty)
    return known[1]


def list_objects(facts: TruthView, step: Step) -> list[str]:
    """Return the identifiers in a call's arguments that a look-up tool of the toolset takes too."""
    words = set(split_tool_name(step.call.name))
    if is_handover(words) or words & CREATES:
        return []
    taken, nouns = list_lookups(facts.t.tools)
    return [
        value
        for name, value in step.arguments.items()
        if isinstance(value, str)
        and value
        and (name in taken or extract_object(name) in nouns)
        and (words & REWRITES if name in PATHS else is_entity_name(name))
    ]


_LOOKUPS: dict[tuple[int, ...], tuple[list[ToolSpec], set[str], set[str]]] = {}


def list_lookups(tools: list[ToolSpec]) -> tuple[set[str], set[str]]:
    """Return the arguments that look-up tools take, and the nouns in their names."""
    key = tuple(map(id, tools))
    known = _LOOKUPS.get(key)
    if known is None:
        if len(_LOOKUPS) >= MOST:
            _LOOKUPS.clear()
        names: set[str] = set()
        nouns: set[str] = set()
        for tool in tools:
            if classify_tool(tools, tool.name) is False:
                properties: Any = tool.parameters.get("properties")
                names |= set(properties or ()) if isinstance(properties, dict) else set()
                nouns |= {to_singular(word) for word in split_tool_name(tool.name)[1:]}
        known = _LOOKUPS[key] = (list(tools), names, nouns)  # the tools are kept alive: their ids stay theirs
    return known[1], known[2]


def extract_object(name: str) -> str:
    """Return the noun of an identifier's name: `expense_id` → expense."""
    return OBJECT.sub("", name).lower()


def find_unseen(facts: TruthView, step: Step) -> str | None:
    """Return an object of the call that neither a look-up named nor a result showed."""
    for value in list_objects(facts, step):
        needle = normalize_mention(value)
        seen = any(
            other.place < step.place
            and not other.failed
            and (
                needle in facts.view.lows[other.at]
                or any(normalize_mention(str(each)) == needle for each in iterate_scalars(other.arguments))
            )
            for other in facts.steps
        )
        if not seen:
            return value
    return None
