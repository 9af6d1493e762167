"""Read stored trajectories as plain dictionaries: building 90,000 models would take longer than all the figures.

Only rows that the ledger wrote are read, so their shape is known; rows of an older version are upgraded first. The head
of a trajectory (system text and tools), which thousands of rows share, is read once, and each conversation once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from simia.quality.check import CALL_TOKENS, TURN_TOKENS
from simia.quality.fast_tokens import estimate_byte_tokens
from simia.tool import ToolSpec
from simia.trajectory import upgrade_row

Row = dict[str, Any]


@dataclass(slots=True)
class TrajectoryHead:
    """The facts about a system text and its tools that the figures need."""

    pack: str
    system: str
    tools: frozenset[str]
    tokens: int

    @classmethod
    def of(cls, row: Row) -> TrajectoryHead:
        tools = row.get("tools", [])
        flat = [orjson.dumps(ToolSpec.model_validate(tool).flat()) for tool in tools]
        system = row.get("system") or ""
        return cls(
            pack=row.get("pack") or "",
            system=system.lower(),
            tools=frozenset(tool["name"] for tool in tools),
            tokens=CALL_TOKENS * len(tools) + estimate_byte_tokens(b"".join([system.encode(), *flat])),
        )


@dataclass(slots=True)
class ConversationFacts:
    """The facts about one conversation that the figures need."""

    messages: int
    users: list[str] = field(default_factory=list)
    calls: list[Row] = field(default_factory=list)
    parallel: int = 0
    failed: bool = False
    recovered: bool = False
    sequence: tuple[str, ...] = ()


def summarize_conversation(row: Row) -> ConversationFacts:
    """Collect the facts in one pass. Recovered: a tool returned an error, and a call of a later turn succeeded."""
    messages = upgrade_row(row).get("messages", [])
    story = ConversationFacts(len(messages))
    turn, failed_in = 0, None
    for message in messages:
        role = message["role"]
        if role == "tool":
            if "error" in message:
                failed_in = turn if failed_in is None else failed_in
            elif failed_in is not None and turn > failed_in:
                story.recovered = True
        elif role == "user":
            story.users.append(join_text_parts(message.get("content")))
        elif "calls" in message:
            calls = message["calls"]
            turn += 1
            story.parallel += len(calls) > 1
            story.calls += calls
    story.failed = failed_in is not None
    story.sequence = tuple([call["name"] for call in story.calls])
    return story


def count_row_tokens(row: Row, story: ConversationFacts) -> int:
    """Estimate the tokens of the conversation without its head, as `check.estimate_tokens` does."""
    messages = row.get("messages", [])
    texts = [join_text_parts(message.get("content")) for message in messages]
    reasoning = [message["reasoning"] for message in messages if message.get("reasoning")]
    markup = TURN_TOKENS * (len(messages) + len(reasoning)) + CALL_TOKENS * len(story.calls)
    texts += reasoning
    texts += story.sequence
    texts += [call.get("raw") or "" for call in story.calls]
    arguments = [orjson.dumps(call["arguments"]) for call in story.calls if call.get("arguments") is not None]
    return markup + estimate_byte_tokens(b"".join(["".join(texts).encode(), *arguments]))


def join_text_parts(content: Any) -> str:
    """Return the text of a message's content, as `Message.text` does."""
    if type(content) is str:
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if part.get("type", "text") == "text")
    return content or ""
