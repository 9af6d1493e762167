"""The dialect of Qwen-AgentWorld, a world model for tools and shells: write its messages and parse its answers.

The system text has the tool definitions and a few turns as examples. In the chat that follows, each user message is an action and each
assistant message its observation. A turn has one call: `### Turn 3`, `**Action:**` with JSON in a fence; the answer is
`**Environment Observation:**` and the result as the tool returns it. The model does not report changes, and whether a call failed is
inferred from the observation. The released system texts are templates, so the sentences here are our own; we keep the headings, the role's
name, the form of a turn and the fields of an action.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import orjson

from simia.envs.worlds.simulated.feedback import (
    CHARS_A_TOKEN,
    Answer,
    AnsweredCall,
    ChangeReader,
    Feedback,
    ReplyForm,
    UnreadableAnswer,
    describe_task,
)
from simia.envs.worlds.simulated.settings import SimulatedSettings
from simia.errors import UserError
from simia.formats.reply.reply_json import strip_reasoning
from simia.pack import Pack
from simia.task import Task
from simia.tool import ToolSpec
from simia.trajectory import ToolCall

MARKER = "**Environment Observation:**"
STATE = "**Current State:**"
TAG = re.compile(r"<predicted_observation>(.*?)(?:</predicted_observation>|\Z)", re.S | re.I)
FENCED = re.compile(r"\A```\w*\n(.*)\n```\Z", re.S)
FAILURE = re.compile(r"\s*(error\b|status:\s*error)", re.I)
KEYS, WAIT = "keystrokes", "duration"


class AgentWorldFeedback(Feedback):
    """Prompts and answers of `agentworld-mcp`: any tools, each result as the tool returns it."""

    reply_form: ReplyForm = "observation"

    def name_prompts(self) -> tuple[str, str]:
        return "simulated/agentworld_mcp.j2", "simulated/agentworld_context.j2"

    @property
    def form(self) -> None:
        """Return None, since an observation is text and has no JSON schema."""

    def describe_tools(self) -> list[dict[str, Any]]:
        return [self.describe(tool) for tool in (*self.pack.tools, *self.pack.user_tools)]

    def describe(self, tool: ToolSpec) -> dict[str, Any]:
        """One tool for the system text: its definition as JSON, and turns that show its results."""
        definition: dict[str, Any] = {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
            **({"returns": tool.result_schema} if tool.result_schema else {}),
        }
        turns = [
            self.write_turn(number, AnsweredCall("agent", tool.name, each.arguments, Answer(each.result)))
            for number, each in enumerate(self.examples[tool.name], start=1)
        ]
        examples = [f"{action}\n{observation}" for action, observation in turns]
        return {"name": tool.name, "definition": json.dumps(definition, ensure_ascii=False), "examples": examples}

    def messages(
        self,
        task: Task,
        history: Sequence[AnsweredCall],
        ledger: str,
        calls: Sequence[tuple[str, ToolCall]],
        state: str = "",
        steering: str = "",
    ) -> list[dict[str, Any]]:
        """A chat: one pair of messages for each call so far, then the call to be answered. The oldest pairs are left out if
        the chat does not fit. `steering`: an instruction for this answer only, put into the system text."""
        [(_, call)] = calls
        knows = self.settings.knowledge != "schema"
        context = self._request.render(
            task=describe_task(task) if knows else "",
            reference=self._describe_reference(task)[0] if knows else "",
            policy=self.pack.policy,
            steering=steering,
        ).strip()
        system = f"{self.write_system(task)}\n\n{context}".strip()
        pairs = self.write_turns(history)
        now = self.write_action(len(history) + 1, call.name, call.arguments or {}, self.find_prompt(history))
        room = (
            int(self.settings.context * CHARS_A_TOKEN) - (self.settings.max_tokens or 4096) * 4 - len(system) - len(now)
        )
        while pairs and sum(len(action) + len(observation) for action, observation in pairs) > room:
            pairs.pop(0)
        found = [{"role": "system", "content": system}]
        for action, observation in pairs:
            found += [{"role": "user", "content": action}, {"role": "assistant", "content": observation}]
        return [*found, {"role": "user", "content": now}]

    def write_turns(self, history: Sequence[AnsweredCall]) -> list[tuple[str, str]]:
        """Action and observation of each call so far."""
        return [self.write_turn(number, done) for number, done in enumerate(history, start=1)]

    def write_turn(self, number: int, done: AnsweredCall) -> tuple[str, str]:
        action = self.write_action(number, done.name, done.arguments, self.settings.shell_prompt)
        return action, f"{MARKER}\n{done.answer.raw or done.answer.text}"

    def write_action(self, number: int, name: str, arguments: dict[str, Any], prompt: str) -> str:
        """The message that asks for one result."""
        return write_fenced_action(number, {"name": name, "arguments": arguments})

    def find_prompt(self, history: Sequence[AnsweredCall]) -> str:
        """Return the shell's prompt after these calls; empty in this dialect without a shell."""
        return ""

    def batch_calls(self, calls: Sequence[ToolCall]) -> list[list[ToolCall]]:
        return [[call] for call in calls]

    def write_complaint(self, text: str, words: str) -> list[dict[str, Any]]:
        """Return no messages, since the chat has only actions. The model is asked again with the same messages."""
        return []

    def parse(self, text: str, calls: Sequence[ToolCall], read_changes: ChangeReader | None = None) -> list[Answer]:
        """The answer to one call. Raises `UnreadableAnswer` where the reply holds no observation."""
        text = read_observation(text)
        fenced = FENCED.match(text)
        content = unwrap_text(load_container(fenced[1] if fenced else text))
        if isinstance(content, str):
            failed = FAILURE.match(content) is not None
            return [Answer({"error": content} if failed else content, failed, raw=text)]
        failed = isinstance(content, dict) and bool(content.get("error") or content.get("isError"))
        return [Answer(content, failed, raw=text)]


class TerminalFeedback(AgentWorldFeedback):
    """Prompts and answers of `agentworld-terminal`: tools that type into a shell, each result the screen that follows.

    A tool with an argument `keystrokes` types exactly these keys and gets the whole screen. For any other tool, the only required text
    argument is a command: it is entered, and the result is the screen's text between the command and the next prompt.
    """

    reply_form: ReplyForm = "screen"

    def __init__(self, pack: Pack, settings: SimulatedSettings) -> None:
        self.commands = {tool.name: find_command(pack, tool) for tool in (*pack.tools, *pack.user_tools)}
        super().__init__(pack, settings)

    def name_prompts(self) -> tuple[str, str]:
        return "simulated/agentworld_terminal.j2", "simulated/agentworld_context.j2"

    def describe(self, tool: ToolSpec) -> dict[str, Any]:
        typed = bool(self.commands[tool.name])
        found = {**super().describe(tool), "description": tool.description, "typed": typed}
        return found if typed else {**found, "examples": []}

    def answer_at_once(self, calls: Sequence[ToolCall]) -> list[Answer] | None:
        """Answer a tool that ends the episode with an empty text: it types nothing, so no screen follows."""
        return [Answer("") for _ in calls] if all(not self.commands[call.name] for call in calls) else None

    def write_turns(self, history: Sequence[AnsweredCall]) -> list[tuple[str, str]]:
        """Write action and screen of each call. Each screen begins with the prompt that ended the one before."""
        found = []
        for number, done in enumerate(history, start=1):
            if self.commands.get(done.name):
                found.append(self.write_screen(number, done, self.find_prompt(history[: number - 1])))
        return found

    def write_turn(self, number: int, done: AnsweredCall) -> tuple[str, str]:
        return self.write_screen(number, done, self.settings.shell_prompt)

    def write_screen(self, number: int, done: AnsweredCall, prompt: str) -> tuple[str, str]:
        action = self.write_action(number, done.name, done.arguments, prompt)
        screen = done.answer.raw or done.answer.text
        if not done.answer.raw and self.commands[done.name] != KEYS:  # a recorded result, without echo and prompt
            command = str(done.arguments.get(self.commands[done.name], ""))
            screen = "\n".join(filter(None, [f"{prompt} {command}", done.answer.text.rstrip("\n"), prompt]))
        return action, f"{MARKER}\n{screen}"

    def write_action(self, number: int, name: str, arguments: dict[str, Any], prompt: str) -> str:
        argument = self.commands[name]
        typed = str(arguments.get(argument, ""))
        wait = arguments.get(WAIT, self.settings.duration) if argument == KEYS else self.settings.duration
        keys = typed if argument == KEYS else f"{typed}\n"
        state = f"{STATE}\n{prompt}\n\n" if number == 1 else ""
        return write_fenced_action(number, [{KEYS: keys, WAIT: wait}], state)

    def find_prompt(self, history: Sequence[AnsweredCall]) -> str:
        for done in reversed(history):
            last = (done.answer.raw or done.answer.text).rstrip().rpartition("\n")[2]
            if is_prompt(last, self.settings.shell_prompt):
                return last
        return self.settings.shell_prompt

    def parse(self, text: str, calls: Sequence[ToolCall], read_changes: ChangeReader | None = None) -> list[Answer]:
        [call] = calls
        screen = read_observation(text)
        argument = self.commands[call.name]
        typed = str((call.arguments or {}).get(argument, ""))
        return [Answer(screen if argument == KEYS else cut_screen(screen, typed), raw=screen)]


def find_command(pack: Pack, tool: ToolSpec) -> str:
    """Return the name of the typed argument: `keystrokes`, or the only required text; "" for a tool that ends the episode. Raises `UserError`."""
    properties = tool.parameters.get("properties", {})
    required = [
        name for name in tool.parameters.get("required", []) if properties.get(name, {}).get("type") == "string"
    ]
    if tool.name in pack.ends:
        return ""
    if KEYS in properties:
        return KEYS
    kind = tool.result_schema.get("type") if isinstance(tool.result_schema, dict) else "string"
    if len(required) != 1 or kind != "string":
        raise UserError(
            f"pack {pack.name}: dialect agentworld-terminal needs tools with exactly one required text argument and a text "
            f"result, unlike {tool.name}: set dialect to agentworld-mcp"
        )
    return str(required[0])


def write_fenced_action(number: int, action: Any, state: str = "") -> str:
    """Write a user message: the turn's number and the action. JSON escapes line breaks, so no argument can end the fence."""
    body = json.dumps(action, ensure_ascii=False, indent=2)
    return f"### Turn {number}\n{state}**Action:**\n```json\n{body}\n```"


def read_observation(text: str) -> str:
    """Extract the observation of a reply: without reasoning and marker, and from the last pair of tags if there are any."""
    text = strip_reasoning(text)
    if "<think>" in text:
        text = text.partition("<think>")[0]
    tagged = TAG.findall(text)
    text = (tagged[-1] if tagged else text).strip()
    if text.startswith(MARKER):
        text = text.removeprefix(MARKER).strip()
    if not text:
        raise UnreadableAnswer("it holds no observation")
    return text


def load_container(text: str) -> Any:
    """Parse a result that is a JSON object or list; return any other text unchanged."""
    if text[:1] not in ("{", "["):
        return text
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def unwrap_text(value: Any) -> Any:
    """Unwrap MCP's text content: `{"type": "text", "text": …}`, alone or as the only element of a list."""
    if isinstance(value, list) and len(value) == 1:
        inner = unwrap_text(value[0])
        return value if inner is value[0] else inner
    if (
        isinstance(value, dict)
        and value.get("type") == "text"
        and isinstance(value.get("text"), str)
        and len(value) == 2
    ):
        return load_container(value["text"])
    return value


def cut_screen(screen: str, command: str) -> str:
    """Return the part of a screen between the echo of a command and the next prompt."""
    lines = screen.split("\n")
    typed = command.rstrip("\n").split("\n")
    first = lines[0].rstrip()
    if typed[0] and first.endswith(typed[0].rstrip()) and first != typed[0]:
        prompt = first[: -len(typed[0].rstrip())].rstrip()
        lines.pop(0)
        for each in typed[1:]:  # further lines of a command follow the continuation prompt `> `
            if lines and lines[0].rstrip().removeprefix("> ") == each.rstrip():
                lines.pop(0)
        if lines and is_prompt(lines[-1].rstrip(), prompt):
            lines.pop()
    return "\n".join(lines)


def is_prompt(line: str, known: str) -> bool:
    """Whether a line is the shell's prompt, in any folder: it has the user, host and last character of a known prompt."""
    return bool(known) and line.startswith(known.partition(":")[0]) and line.endswith(known[-1])
