"""Make tasks from seed trajectories: what the user wants and knows, the conversation as the script, and its calls as the solution.

A task's script replays the seed. Its reference is the list of calls that succeeded; the reward requires each of them (a `trace` part),
but does not compare arguments that the agent worded itself, such as the text of a note. If no call succeeded, the reward requires the
seed's last message. A judge model reads the same reference.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from simia.authoring.user_goals import UserGoal
from simia.quality.truth.facts import is_error_result
from simia.reward_spec import AnswerSpec, RewardSpec, TraceSpec
from simia.task import Action, By, ScriptTurn, Task
from simia.tool import SchemaError, ToolSpec, compile_schema
from simia.trajectory import Message, Trajectory, pair_calls

WORDS = 4  # a text argument with at least this many words, which the user did not say, is the agent's own wording


@dataclass(slots=True)
class ToolNames:
    """The tools of many seeds under unique names: a second schema for the same name becomes another tool, `NAME_2`."""

    tools: dict[str, ToolSpec] = field(default_factory=dict)
    renamed: list[str] = field(default_factory=list)
    """Names of which there are several schemas."""
    _variants: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, seed: Trajectory) -> dict[str, str]:
        """Add the seed's tools; return name in the seed → unique name. Raises `SchemaError` for an unusable schema."""
        for spec in seed.tools:
            try:
                compile_schema(spec.parameters)
            except SchemaError as error:
                raise SchemaError(f"tool {spec.name}: {error}") from None
        return {spec.name: self._find(spec) for spec in seed.tools}

    def _find(self, spec: ToolSpec) -> str:
        variant = (spec.name, json.dumps(drop_descriptions(spec.parameters), sort_keys=True))
        if variant not in self._variants:
            name, number = spec.name, 2
            while name in self.tools:
                name, number = f"{spec.name}_{number}", number + 1
            if name != spec.name and spec.name not in self.renamed:
                self.renamed.append(spec.name)
            self.tools[name] = spec.public.model_copy(update={"name": name})
            self._variants[variant] = name
        return self._variants[variant]


def drop_descriptions(schema: Any) -> Any:
    """The schema without descriptions of parameters, which seeds word differently."""
    if isinstance(schema, list):
        return [drop_descriptions(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: drop_descriptions(each)
        for key, each in schema.items()
        if not (key == "description" and isinstance(each, str))
    }


def rename_calls(seed: Trajectory, names: dict[str, str]) -> Trajectory:
    """Return the seed with its tools, calls and results under the unique names."""
    if all(old == new for old, new in names.items()):
        return seed
    messages = [
        message.model_copy(
            update={
                "calls": [call.model_copy(update={"name": names.get(call.name, call.name)}) for call in message.calls],
                "name": names.get(message.name, message.name) if message.name else message.name,
            }
        )
        for message in seed.messages
    ]
    tools = [spec.model_copy(update={"name": names[spec.name]}) for spec in seed.tools]
    return seed.model_copy(update={"messages": messages, "tools": tools})


def make_seed_task(seed: Trajectory, goal: UserGoal, *, tools: Sequence[str] | None, base: Task | None = None) -> Task:
    """Make the task of a seed.

    Args:
        goal: What its user wants and knows.
        tools: The tools that the agent sees; None: all of the pack.
        base: The task that the seed was recorded from, whose start and limits are kept.
    """
    script = make_seed_script(seed.messages)
    actions = list_successful_calls(seed.messages)
    said = "\n".join(message.text for message in seed.messages if message.role == "user").casefold()
    mask: dict[str, list[str]] = {}
    for action in actions:
        free = [name for name, value in action.arguments.items() if is_own_wording(value, said)]
        mask[action.name] = sorted({*mask.get(action.name, []), *free})
    trace = TraceSpec(mask={name: free for name, free in mask.items() if free})
    kept = {name: getattr(base, name) for name in ("initial", "tools", "reveals", "limits", "profile")} if base else {}
    fields: dict[str, Any] = {
        "id": seed.task_id,
        "split": seed.split or "train",
        "instruction": goal.instruction,
        "opening": goal.opening,
        "knows": list(goal.knows),
        "script": script,
        "reference": actions,
        "tools": None if tools is None else list(tools),
        "reward": RewardSpec(parts=[trace if actions else AnswerSpec(expect=[find_last_words(script)])]),
        "tags": ["evaluation"] if seed.extra.get("evaluation") is True else [],
        "seed": True,
        **kept,
    }
    return Task(**fields)


def find_last_words(script: Sequence[ScriptTurn]) -> str:
    """The agent's last words; the reference agent ends with "Done." where there are none."""
    return next((turn.agent for turn in reversed(script) if turn.agent is not None), "Done.")


def is_own_wording(value: Any, said: str) -> bool:
    """Whether an argument is a text of the agent's own."""
    return isinstance(value, str) and len(value.split()) >= WORDS and value.casefold() not in said


def make_seed_script(messages: Sequence[Message]) -> list[ScriptTurn]:
    """Write the conversation as a script.

    A text of the agent is kept if the user answers it, or at the end. One that calls follow is left out, since the user would answer it
    too early. Consecutive messages of one side are joined to one turn.
    """
    turns: list[ScriptTurn] = []
    for message in messages:
        by: By = "user" if message.role == "user" else "agent"
        if message.role not in ("user", "assistant"):
            continue
        if message.calls:
            if turns and turns[-1].agent is not None and by == "agent":
                turns.pop()
            calls = [Action(by=by, name=call.name, arguments=call.arguments or {}) for call in message.calls]
            turns.append(ScriptTurn(calls=calls))
        elif text := message.text.strip():
            before = getattr(turns[-1], by) if turns else None
            if before is not None:
                turns[-1] = ScriptTurn(**{by: f"{before}\n{text}"})
            elif turns or by == "user":  # the user speaks first
                turns.append(ScriptTurn(**{by: text}))
    return turns


def list_successful_calls(messages: Sequence[Message]) -> list[Action]:
    """The calls whose recorded result is no error."""
    return [
        Action(by="user" if message.role == "user" else "agent", name=call.name, arguments=call.arguments or {})
        for message, call, result in pair_calls(messages)
        if result is None or not is_error_result(result)
    ]
