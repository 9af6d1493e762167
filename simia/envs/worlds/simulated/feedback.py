"""Write the simulator's prompts and parse its answers (Simia-RL, §2.3 and App. D).

A prompt begins with static text, the same for every episode of a pack: rules, tools with full schemas and examples of their results, and
the policy. Then come the task with its solution, the same for a group; the history, which only grows; and last the ledger and the
calls, which change. So a prefix cache serves all but the end of a prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from simia.envs.reference_solution import describe_observations, describe_reference
from simia.envs.worlds.simulated.result_examples import ExampleCall, find_example_calls, write_on_one_line
from simia.envs.worlds.simulated.settings import SimulatedSettings
from simia.formats.reply.reply_json import RepairError, load_json, strip_reasoning
from simia.keyed_changes import CHANGES_SCHEMA, ChangeError
from simia.pack import Pack
from simia.prompt_quoting import escape_unprintable
from simia.prompts import decode_result, load_template
from simia.task import Task
from simia.tool import ToolSpec
from simia.trajectory import ToolCall, write_compact_json

CHARS_A_TOKEN = 3.6  # estimate for JSON and English, rather too low: a prompt cut early is better than a refused one
MOST_REFERENCES = 4_096  # solutions whose text is kept
SHORTENED = 160
STEERED = "For this answer alone, and before all rules: {}"
ChangeReader = Callable[[Any], list[dict[str, Any]]]
REPORTED_CHANGES = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"table": {"type": "string"}, "key": {"type": "string"}, "set": {"type": ["object", "null"]}},
        "required": ["table", "key", "set"],
    },
}


def make_form(changes: dict[str, Any]) -> dict[str, Any]:
    """Make the JSON Schema of a reply. `changes`: the schema of an answer's changes."""
    properties = {
        "call": {"type": "integer"},
        "outcome": {"type": "string", "enum": ["result", "error"]},
        "content": {},
        "changes": changes,
    }
    answer = {"type": "object", "properties": properties, "required": ["call", "outcome", "content"]}
    return {"type": "object", "properties": {"answers": {"type": "array", "items": answer}}, "required": ["answers"]}


FORM, STATE_FORM = make_form(REPORTED_CHANGES), make_form(CHANGES_SCHEMA)


class UnreadableAnswer(Exception):  # noqa: N818 - a state of a reply
    """The reply has no readable answers; the message says why, for the model and for the record."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one call: a result or an error, and the changes that it reports."""

    content: Any
    failed: bool = False
    changes: list[dict[str, Any]] = field(default_factory=list)
    crashed: bool = False
    """Whether the call failed because the changes of every answer were refused."""
    raw: str = ""
    """The model's own text, if its dialect has more text than the agent sees."""

    @property
    def text(self) -> str:
        """The text that the agent reads."""
        return self.content if isinstance(self.content, str) else write_compact_json(self.content)


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """An earlier call with its answer."""

    by: str
    name: str
    arguments: dict[str, Any]
    answer: Answer
    steering: str = ""
    """The perturbation's instruction for the answer; empty: none."""


ReplyForm = Literal["answer", "observation", "screen"]


class Feedback:
    """The prompts of one pack. Made once, shared by all episodes."""

    reply_form: ReplyForm = "answer"
    """What a reply holds: an answer with outcome, content and changes; the result as the tool returns it; or a terminal's screen."""

    def __init__(self, pack: Pack, settings: SimulatedSettings) -> None:
        self.pack, self.settings = pack, settings
        self.examples = self.find_examples()
        self._references: dict[str, tuple[Task, str, list[str]]] = {}
        self._write: Callable[[frozenset[str] | None], str]
        system_name, request_name = self.name_prompts()
        system, one = load_template(system_name)
        self._request, two = load_template(request_name)
        self.hashes = {system_name: one, request_name: two}
        more = {"code": settings.knowledge == "code"} if settings.holds_state else {}
        tools = self.describe_tools()
        self._write = lambda names: system.render(
            tools=[tool for tool in tools if names is None or tool["name"] in names],
            policy=pack.policy,
            helpful=settings.helpful,
            **more,
        ).strip()
        self.system = self._write(None)
        self._systems: dict[frozenset[str], str] = {}

    def name_prompts(self) -> tuple[str, str]:
        """The files of the system text and of the request."""
        kind = "state_" if self.settings.holds_state else ""
        return f"simulated/{kind}system.j2", f"simulated/{kind}request.j2"

    @property
    def form(self) -> dict[str, Any] | None:
        """JSON Schema of a reply, for endpoints with structured output; None if a reply is not JSON."""
        return STATE_FORM if self.settings.holds_state else FORM

    def find_examples(self) -> dict[str, list[ExampleCall]]:
        """Return for each tool the calls whose results the system text shows as examples."""
        recorded = self.settings.observations and self.settings.knowledge != "schema"
        return find_example_calls(self.pack, self.settings.examples, references=recorded)

    def describe_tools(self) -> list[dict[str, Any]]:
        """Return the description of each tool for the system text."""
        return [
            describe_tool(tool, [write_on_one_line(each.result) for each in self.examples[tool.name]])
            for tool in (*self.pack.tools, *self.pack.user_tools)
        ]

    def shows_result(self, call: ToolCall, result: str) -> bool:
        """Whether one of the examples is this call with this result, as when a measured task is also a seed or training reference."""
        return any(
            each.arguments == call.arguments and decode_result(each.result) == decode_result(result)
            for each in self.examples.get(call.name, [])
        )

    def write_system(self, task: Task) -> str:
        """The static text: rules, tools and policy. A task with only some of the agent's tools gets only these. The text is cached."""
        if task.tools is None:
            return self.system
        revealed = [name for reveal in task.reveals for name in reveal.tools]
        names = frozenset([*task.tools, *revealed, *(tool.name for tool in self.pack.user_tools)])
        if names not in self._systems:
            if len(self._systems) >= MOST_REFERENCES:
                self._systems.clear()
            self._systems[names] = self._write(names)
        return self._systems[names]

    def _describe_reference(self, task: Task) -> tuple[str, list[str]]:
        """Return the text of the task's solution and the recorded results in it. They are cached for all requests of the task."""
        held = self._references.get(task.id)
        if held is None or held[0] is not task:
            if len(self._references) >= MOST_REFERENCES:
                self._references.clear()
            shown = self.settings.observations
            text = describe_reference(self.pack, task, observations=shown)
            held = self._references[task.id] = (task, text, describe_observations(self.pack, task) if shown else [])
        return held[1:]

    def messages(
        self,
        task: Task,
        history: Sequence[AnsweredCall],
        ledger: str,
        calls: Sequence[tuple[str, ToolCall]],
        state: str = "",
        steering: str = "",
    ) -> list[dict[str, Any]]:
        """The request's messages. `calls`: each with its caller; `steering`: the perturbation's instruction. If the history is too long,
        its oldest entries are shortened, then left out."""
        knows = self.settings.knowledge != "schema"
        head = {
            "task": describe_task(task) if knows else "",
            "reference": self._describe_reference(task)[0] if knows else "",
            "state": state,
        }
        now = [format_call(n, by, call.name, call.arguments or {}) for n, (by, call) in enumerate(calls, start=1)]
        lines = [format_answered_call(n, done) for n, done in enumerate(history, start=1)]
        system = self.write_system(task)
        now += [STEERED.format(steering)] if steering else []
        room = self._find_room(len(system) + sum(len(text) for text in (*head.values(), ledger, *now)))
        text = self._request.render(**head, history=fit_history(lines, history, room), ledger=ledger, calls=now).strip()
        return [{"role": "system", "content": system}, {"role": "user", "content": text}]

    def state_messages(
        self,
        task: Task,
        history: Sequence[AnsweredCall],
        call: tuple[str, ToolCall],
        *,
        state: str,
        source: str = "",
        time: str = "",
    ) -> list[dict[str, Any]]:
        """The request's messages for one call on a held state. `source`: of the called tool; `time`: of the system's clock."""
        by, asked = call
        now = [format_call(1, by, asked.name, asked.arguments or {})]
        lines = [format_answered_call(n, done) for n, done in enumerate(history, start=1)]
        system = self.write_system(task)
        room = self._find_room(len(system) + sum(map(len, (state, source, *now))))
        text = self._request.render(
            history=fit_history(lines, history, room), state=state, source=source, time=time, calls=now
        ).strip()
        return [{"role": "system", "content": system}, {"role": "user", "content": text}]

    def _find_room(self, fixed: int) -> int:
        """Return the characters left for the history in a prompt with `fixed` other characters."""
        return int(self.settings.context * CHARS_A_TOKEN) - (self.settings.max_tokens or 4096) * 4 - fixed

    def batch_calls(self, calls: Sequence[ToolCall]) -> list[list[ToolCall]]:
        """Divide the calls of one turn into requests: here one request for all."""
        return [list(calls)]

    def answer_at_once(self, calls: Sequence[ToolCall]) -> list[Answer] | None:
        """Return the answers to calls that need no model; None if the model must answer."""
        return None

    def parse(self, text: str, calls: Sequence[ToolCall], read_changes: ChangeReader | None = None) -> list[Answer]:
        """The answers of a reply, in the order of the calls. Raises `UnreadableAnswer`."""
        return parse_answers(text, len(calls), read_changes)

    def write_complaint(self, text: str, words: str) -> list[dict[str, Any]]:
        """Write the messages that tell the model what is wrong with its answer."""
        return [{"role": "assistant", "content": text or "(nothing)"}, {"role": "user", "content": words}]

    def observations(self, task: Task) -> list[str]:
        """The recorded results that the prompts of a task show."""
        shown = self.settings.knowledge != "schema" and not self.settings.holds_state
        return self._describe_reference(task)[1] if shown else []


def describe_task(task: Task) -> str:
    return task.instruction or task.opening or ""


def describe_tool(tool: ToolSpec, examples: list[str]) -> dict[str, Any]:
    returns = tool.result_schema
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": write_compact_json(tool.parameters),
        "returns": returns if isinstance(returns, str) else write_compact_json(returns) if returns else "",
        "examples": examples,
    }


def format_call(number: int, by: str, name: str, arguments: dict[str, Any]) -> str:
    """Format one call on one line, escaped, since the agent's arguments may imitate further lines."""
    return f"{number}. {by}: {name} {escape_unprintable(write_compact_json(arguments))}"


def format_answered_call(number: int, done: AnsweredCall, most: int | None = None) -> str:
    text = write_on_one_line(done.answer.text)
    if most is not None and len(text) > most:
        text = f"{text[:most]} … (shortened)"
    kind = "error" if done.answer.failed else "result"
    told = f"\n   (this answer was disturbed: {write_on_one_line(done.steering)})" if done.steering else ""
    return f"{format_call(number, done.by, done.name, done.arguments)}\n   {kind}: {text}{told}"


def fit_history(lines: list[str], history: Sequence[AnsweredCall], room: int) -> list[str]:
    """Shorten the history to `room` characters: old results are cut first, then old calls are left out."""
    total = sum(map(len, lines))
    found = list(lines)
    for n, done in enumerate(history):
        if total <= room:
            return found
        short = format_answered_call(n + 1, done, SHORTENED)
        total -= len(found[n]) - len(short)
        found[n] = short
    left_out = 0
    while total > room and left_out < len(found) - 1:
        total -= len(found[left_out])
        left_out += 1
    return [f"({left_out} earlier calls are left out)", *found[left_out:]] if left_out else found


def parse_answers(text: str, count: int, read_changes: ChangeReader | None = None) -> list[Answer]:
    """The answers of a reply, in the order of the calls.

    `read_changes`: parses an answer's changes; unset: as reported without a held state. Raises `UnreadableAnswer`.
    """
    try:
        value, _ = load_json(strip_reasoning(text))
    except RepairError as error:
        raise UnreadableAnswer(f"it is not JSON: {error}") from None
    rows = value.get("answers") if isinstance(value, dict) else value
    if rows is None and isinstance(value, dict) and "content" in value:
        rows = [value]  # one answer without the list around it
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UnreadableAnswer('there is no list "answers"')
    rows = [{**row, "call": int(row["call"])} if str(row.get("call")).isdecimal() else row for row in rows]
    if len(rows) > count:  # drop answers to calls that were not made, if it is clear which these are
        asked = [row for row in rows if row.get("call") in range(1, count + 1)]
        rows = asked if len({row["call"] for row in asked}) == len(asked) else rows
    if len(rows) != count:
        raise UnreadableAnswer(f"{len(rows)} answers for {count} calls")
    numbers = [row.get("call") for row in rows]
    if sorted(numbers, key=str) == sorted(range(1, count + 1), key=str):
        rows = sorted(rows, key=lambda row: int(row["call"]))
    return [parse_answer(row, read_changes or read_reported_changes) for row in rows]


def parse_answer(row: dict[str, Any], read_changes: ChangeReader) -> Answer:
    outcome = str(row.get("outcome", "result")).lower()
    if outcome not in ("result", "error", "success", "ok") or "content" not in row:
        raise UnreadableAnswer('an answer has "outcome" (result or error) and "content"')
    content = row["content"]
    if isinstance(content, str) and content[:1] in "{[" and content[-1:] in "}]":  # JSON in a string: use its value
        try:
            content = orjson.loads(content)
        except orjson.JSONDecodeError:
            pass
    failed = outcome == "error"
    if failed and isinstance(content, str):
        content = {"error": content}
    try:
        changes = read_changes(row.get("changes"))
    except ChangeError as error:
        raise UnreadableAnswer(str(error)) from None
    return Answer(content, failed, [] if failed else changes)


def read_reported_changes(given: Any) -> list[dict[str, Any]]:
    """Read the changes that a simulator without a state reports, for the ledger. Raises `ChangeError`."""
    changes = []
    for each in given if isinstance(given, list) else []:
        if not isinstance(each, dict) or "key" not in each or not isinstance(each.get("set"), dict | None):
            raise ChangeError('a change has "table", "key" and "set" (an object, or null)')
        changes.append({"table": str(each.get("table", "item")), "key": str(each["key"]), "set": each.get("set")})
    return changes
