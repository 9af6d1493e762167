"""`agentinstruct`: AgentTuning's rows, `{"id", "conversations": [{"from", "loss", "value"}]}`.

Three of its environments are read, each with tools of our own making: `os` (bash), `webshop` (search, click) and
`mind2web` (click, type, select on a lettered choice). Instructions become the system text. Turns between them and the
task (an "Ok.", a demonstration) are stored and written back, but not used otherwise. `loss` is `Message.train`.

Closing turns. `os` ends with `answer(…)`, whose text is the closing message, or with `finish`, which is `FINISHED`.
In `webshop` the last action has no observation and is the closing text itself: `click[Buy Now]`. A `mind2web` row is
one step, so its only action stays a call (else the row would use no tool), and the two messages that close it,
`RECORDED` and `FINISHED`, are added by simia and not written to rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from simia.formats.action_dialect import (
    ActionDialect,
    ActionStyle,
    InexpressibleTurn,
    make_action,
    make_tool,
    take_closing_text,
    take_only_call,
    text_schema,
)
from simia.formats.turn_dialect import RowShape, Turn
from simia.trajectory import Message, Trajectory

SHAPE = RowShape("conversations", "from", "value", {"human": "user", "gpt": "assistant"})
FINISHED = "Finished."
RECORDED = "recorded"
KINDS = ("os", "webshop", "mind2web")
ROW_ID = re.compile(rf"\A({'|'.join(KINDS)})(?:[_-]|\Z)")


class OsStyle(ActionStyle):
    """A shell: `Think: …`, then `Act: bash` with a fenced script, `Act: answer(…)` or `Act: finish`."""

    tools = (
        make_tool(
            "bash",
            "Run a bash script as root on an Ubuntu system; the reply is what it prints, cut where it is long. The "
            "script must not wait for input.",
            script=text_schema("The script, one or several lines."),
        ),
    )
    problem = "Now, my problem is:\n\n"
    told = "The output of the OS:\n\n"
    silent = "The output of the OS is empty."
    form = re.compile(r"(?:Think: (.*?)\n\n)?Act: (bash\n\n```bash\n(.*)\n```|answer\((.*)\)|finish)", re.DOTALL)
    loose = re.compile(r"^Act:\s*(?:(bash)\b|(finish)\b|answer\((.*)\))", re.MULTILINE | re.IGNORECASE)
    block = re.compile(r"```bash\n(.*?)\n?```", re.DOTALL)
    thought = re.compile(r"\A\s*Think:\s*")
    another = re.compile(r"\ANow, [^\n]{0,80}problem is:\s*")

    def read_agent(self, text: str) -> Message:
        if found := self.form.fullmatch(text):
            reasoning, action, script, answer = found.groups()
        else:
            acts = list(self.loose.finditer(text))
            if not acts:
                return Message(role="assistant", content=text)
            last = acts[-1]
            reasoning = self.thought.sub("", text[: last.start()]).strip() or None
            blocks = self.block.findall(text[last.end() :])
            action, answer = ("finish" if last[2] else last[0]), last[3]
            script = "\n\n".join(blocks) if last[1] else None
        if script is not None:
            return make_action("bash", reasoning, script=script)
        said = FINISHED if action == "finish" else answer
        return Message(role="assistant", reasoning=reasoning, content=said)

    def write_agent(self, message: Message) -> str:
        think = f"Think: {message.reasoning}\n\n" if message.reasoning else ""
        if message.calls:
            name, arguments = take_only_call(message)
            if name != "bash":
                raise InexpressibleTurn(f"there is no action {name!r}")
            return f"{think}Act: bash\n\n```bash\n{arguments.get('script', '')}\n```"
        said = take_closing_text(message)
        return f"{think}Act: finish" if said == FINISHED else f"{think}Act: answer({said})"

    def read_result(self, text: str) -> str:
        return "" if text == self.silent else text.removeprefix(self.told)

    def write_result(self, text: str) -> str:
        return self.told + text if text else self.silent

    def split(self, text: str) -> tuple[str | None, str]:
        before, found, after = text.partition(f"\n\n{self.problem}")
        if found:
            return before, after
        return None, self.another.sub("", text)

    def join(self, system: str | None, task: str) -> str:
        return f"{self.problem}{task}" if system is None else f"{system}\n\n{self.problem}{task}"

    def starts(self, turn: str, masked: bool) -> bool:
        return self.another.match(turn) is not None


class WebShopStyle(ActionStyle):
    """A shop: `Thought:` and `Action:` each above its text; the action is `search[…]` or `click[…]`."""

    tools = (
        make_tool(
            "search",
            "Search the shop; only on a page with a search box.",
            query=text_schema("Keywords of the product."),
        ),
        make_tool(
            "click",
            "Click a button, link, product or option that the page lists as clickable; the last click buys.",
            element=text_schema("The element's text, as the page lists it."),
        ),
    )
    acknowledged = "Ok."
    argument: ClassVar = {"search": "query", "click": "element"}
    form = re.compile(r"(?:Thought:\n(.*?)\n\n)?Action:\n(search|click)\[(.*)\]", re.DOTALL)
    loose = re.compile(r"^Action:\s*(search|click)\[([^\n]*)\]", re.MULTILINE | re.IGNORECASE)
    thought = re.compile(r"\A\s*Thought:\s*")
    action = re.compile(r"(search|click)\[(.*)\]", re.DOTALL)
    front = re.compile(r"\A(?:Observation:\s*)?[\"']?WebShop \[SEP\]")

    def read_agent(self, text: str) -> Message:
        if found := self.form.fullmatch(text):
            reasoning, name, value = found.groups()
        elif found := self.loose.search(text):
            reasoning = self.thought.sub("", text[: found.start()]).strip() or None
            name, value = found[1].lower(), found[2]
        else:
            return Message(role="assistant", content=text)
        return make_action(name, reasoning, **{self.argument[name]: value})

    def write_agent(self, message: Message) -> str:
        if message.calls:
            name, arguments = take_only_call(message)
            if name not in self.argument:
                raise InexpressibleTurn(f"there is no action {name!r}")
            action = f"{name}[{arguments.get(self.argument[name], '')}]"
        elif not self.action.fullmatch(action := take_closing_text(message)):
            raise InexpressibleTurn("the closing text is not an action such as click[Buy Now]")
        return f"Thought:\n{message.reasoning}\n\nAction:\n{action}" if message.reasoning else f"Action:\n{action}"

    def starts(self, turn: str, masked: bool) -> bool:
        return self.front.match(turn) is not None

    def closes(self, message: Message) -> bool:
        return any((call.arguments or {}).get("element", "").lower() == "buy now" for call in message.calls)

    def finish(self, message: Message) -> list[Message]:
        name, arguments = take_only_call(message)
        said = f"{name}[{arguments[self.argument[name]]}]"
        return [message.model_copy(update={"content": said, "calls": []})]


class Mind2WebStyle(ActionStyle):
    """One step on a page: `Thought: …`, `Answer: C.`, `Action: SELECT`, `Value: …`; answer A is "none of the above"."""

    choice = text_schema("The letter of an element in the list of choices, A excepted.", pattern="^[B-Z]$")
    tools = (
        make_tool("click", "Click the element of a choice.", choice=choice),
        make_tool(
            "type", "Type text into the element of a choice.", choice=choice, value=text_schema("The text to type.")
        ),
        make_tool(
            "select", "Select an option of a choice's list.", choice=choice, value=text_schema("The option's text.")
        ),
        make_tool("none_of_the_above", "Say that no choice is the right next step: that is choice A."),
    )
    form = re.compile(
        r"(?:Thought: (.*?)\n)?Answer: ([A-Z])\.(?:\nAction: (CLICK|SELECT|TYPE)(?:\nValue: (.*))?)?", re.DOTALL
    )
    loose = re.compile(r"^Answer:\s*([A-Z])\b", re.MULTILINE)
    action = re.compile(r"^Action:\s*(CLICK|SELECT|TYPE)\b", re.MULTILINE)
    value = re.compile(r"^Value:[ \t]*(.*?)[ \t]*$", re.MULTILINE)
    thought = re.compile(r"\A\s*Thought:\s*")

    def read_agent(self, text: str) -> Message:
        if found := self.form.fullmatch(text):
            reasoning, letter, action, value = found.groups()
        elif answer := self.loose.search(text):
            reasoning = self.thought.sub("", text[: answer.start()]).strip() or None
            done, given = self.action.search(text, answer.end()), self.value.search(text, answer.end())
            letter, action, value = answer[1], done and done[1], given and given[1]
        else:
            return Message(role="assistant", content=text)
        if letter == "A" and action is None:
            return make_action("none_of_the_above", reasoning)
        if action is None:
            return Message(role="assistant", content=text)
        arguments = {"choice": letter} if action == "CLICK" else {"choice": letter, "value": value or ""}
        return make_action(action.lower(), reasoning, **arguments)

    def write_agent(self, message: Message) -> str:
        if not message.calls:
            closing = f"result is {RECORDED!r} and after which the agent says {FINISHED!r}"
            raise InexpressibleTurn(f"a row is one action, whose {closing}")
        name, arguments = take_only_call(message)
        thought = f"Thought: {message.reasoning}\n" if message.reasoning else ""
        if name == "none_of_the_above":
            return f"{thought}Answer: A."
        value = f"\nValue: {arguments['value']}" if "value" in arguments else ""
        return f"{thought}Answer: {arguments.get('choice', '')}.\nAction: {name.upper()}{value}"

    def split(self, text: str) -> tuple[str | None, str]:
        before, found, after = text.partition("\n\n'''\n")
        return (before, f"'''\n{after}") if found and "'''\n" not in before else (None, text)

    def join(self, system: str | None, task: str) -> str:
        return task if system is None else f"{system}\n\n{task}"

    def starts(self, turn: str, masked: bool) -> bool:
        return masked

    def finish(self, message: Message) -> list[Message]:
        result = Message(role="tool", content=RECORDED)
        return [message, result, Message(role="assistant", content=FINISHED, train=message.train)]

    def unfinish(self, messages: list[Message]) -> list[Message]:
        last = [(m.role, m.content, bool(m.calls)) for m in messages[-2:]]
        said = [("tool", RECORDED, False), ("assistant", FINISHED, False)]
        return messages[:-2] if last == said else messages


STYLES: dict[str, ActionStyle] = {"os": OsStyle(), "webshop": WebShopStyle(), "mind2web": Mind2WebStyle()}


class AgentInstructDialect(ActionDialect):
    """AgentInstruct rows of the environments in `KINDS`."""

    name = "agentinstruct"
    shapes = (SHAPE,)
    losses = named = True

    def style_of(self, row: Mapping[str, Any], turns: Sequence[Turn], shape: RowShape) -> ActionStyle | None:
        """Choose the style by the row's id, or else by the form of the agent's actions (amplified rows have other ids)."""
        if isinstance(row.get("id"), str) and (named := ROW_ID.match(row["id"])):
            return STYLES[named[1]]
        said = [turn["value"] for turn in turns if turn["from"] == "gpt"]
        return next((style for style in STYLES.values() if any(style.acts(text) for text in said)), None)

    def style_for(self, t: Trajectory) -> ActionStyle | None:
        names = [spec.name for spec in t.tools]
        return next((style for style in STYLES.values() if names == [spec.name for spec in style.tools]), None)

    def stranger(self, row: Mapping[str, Any]) -> str:
        return f"the row is of none of the environments that are read: {', '.join(KINDS)}"
