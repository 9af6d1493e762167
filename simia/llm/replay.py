"""Answer from recorded completions: demos, tests and prompts answered by hand or by a model that only somebody else can reach.

A recording is JSON lines, one completion each:

    {"key": …, "request": {…canonical…}, "draw": "…", "reply": {"text": …, "reasoning"?, "finish"?, "usage"?}, "model": …}

A row answers the very same request and draw. A row without `draw` serves its prompt's draws in the order of recording. `reply: null` is
a question that waits for its answer. A prompt that changed since is a miss that shows the first line that differs, never a near match:
a recorded answer to another question would be invented evidence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from simia.config import Config
from simia.errors import Code, UserError
from simia.llm.types import LLMFault, Reply, Request
from simia.trajectory import digest

SHOWN = 80  # characters of a differing line


class ReplaySettings(Config):
    """A file of recorded completions in place of a model."""

    kind: Literal["replay"] = "replay"
    """Recorded replies."""
    path: Path = Field(description="The recording, a JSONL file.")
    model: str | None = Field(None, description="The model's name in the replies' keys; the recording's if unset.")
    alias: str | None = Field(None, description="The endpoint's name in the replies' keys; `replay` if unset.")


class RecordedReply(BaseModel):
    """One row of a recording."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    key: str | None = None
    request: Request | None = None
    """The request."""
    draw: str | None = None
    """Which sample it is."""
    reply: Reply | None = None
    """The reply; None: not answered yet."""
    model: str | None = None
    """The model that replied."""

    @field_validator("reply", mode="before")
    @classmethod
    def _text(cls, value: Any) -> Any:
        return {"text": value} if isinstance(value, str) else value  # people answer with plain text

    def row(self) -> dict[str, Any]:
        row = self.model_dump(mode="json", exclude_none=True, exclude_defaults=True, exclude={"request", "reply"})
        if self.request is not None:
            row["request"] = self.request.canonical()
        row["reply"] = self.reply and {"text": self.reply.text} | self.reply.model_dump(
            mode="json", exclude={"body"}, exclude_none=True, exclude_defaults=True
        )
        return row


class ReplayBackend:
    """Serves a recording. The file is read when the back end is made, since its model's name is part of every key."""

    structured = True  # whatever was recorded was asked with the same response_format

    def __init__(self, settings: ReplaySettings) -> None:
        self.path = settings.path.expanduser()
        self._rows = [row for row in read_recording(self.path) if row.request is not None]
        if not self._rows:
            raise UserError(f"{self.path} holds no recorded requests")
        names = {row.model for row in self._rows if row.model}
        self.alias = settings.alias or "replay"
        self.model = settings.model or (names.pop() if len(names) == 1 else "recorded")
        self._drawn: dict[tuple[str, str], RecordedReply] = {}
        self._undrawn: dict[str, list[RecordedReply]] = defaultdict(list)
        for row in self._rows:
            prompt = _hash_prompt(row.request)
            if row.draw is None:
                self._undrawn[prompt].append(row)
            else:
                known = self._drawn.get((prompt, row.draw))
                # A later answer replaces an earlier one, or its open question.
                if known is None or row.reply is not None:
                    self._drawn[prompt, row.draw] = row
        self._served: dict[str, int] = defaultdict(int)

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def complete(self, request: Request, *, draw: str) -> Reply:
        prompt = _hash_prompt(request)
        row = self._drawn.get((prompt, draw))
        if row is None:
            queue, used = self._undrawn[prompt], self._served[prompt]
            if used < len(queue):
                self._served[prompt] += 1
                row = self._drawn[prompt, draw] = queue[used]  # the same draw asked again gets the same reply
        if row is None:
            raise self._miss(self._why(request, prompt, draw))
        if row.reply is None:
            raise self._miss(f"the prompt is recorded (draw {draw}) but nobody has answered it yet")
        return row.reply.model_copy(deep=True)

    def _miss(self, why: str) -> LLMFault:
        return LLMFault(Code.REPLAY_MISS, f"{self.path.name}: {why}", retry=False)

    def _why(self, request: Request, prompt: str, draw: str) -> str:
        if self._undrawn[prompt]:
            return f"all {len(self._undrawn[prompt])} completions of this prompt are used, none is left for draw {draw}"
        draws = sorted(known for hashed, known in self._drawn if hashed == prompt)
        if draws:
            return f"the prompt is recorded for draw {', '.join(draws[:5])}, not for draw {draw}"
        nearest = max(self._rows, key=lambda row: (row.draw == draw, *_measure_agreement(row.request, request)))
        return (
            f"no such prompt; against the nearest recorded one, {describe_first_difference(nearest.request, request)}"
        )


def read_recording(path: Path) -> Iterator[RecordedReply]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UserError(f"cannot read the recording {path}: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield RecordedReply.model_validate(orjson.loads(line))
            except (orjson.JSONDecodeError, ValidationError) as error:
                raise UserError(
                    f"{path}:{number} is not a recorded completion: {' '.join(str(error).split())[:300]}"
                ) from error


def append_recording(rows: Iterable[RecordedReply], path: Path) -> int:
    """Append rows to a recording; how many."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        return sum(1 for row in rows if file.write(orjson.dumps(row.row(), option=orjson.OPT_APPEND_NEWLINE)))


def describe_first_difference(recorded: Request | None, asked: Request) -> str:
    """Where two prompts part, in words: the message and its first differing line, or the parameter."""
    old, new = (recorded.canonical() if recorded else {"messages": []}), asked.canonical()
    for index, (was, now) in enumerate(zip_longest(old["messages"], new["messages"])):
        if was == now:
            continue
        where = f"messages[{index}] ({(now or was).get('role', '?')})"
        if was is None or now is None:
            return f"{where} is {'new' if was is None else 'gone'}"
        if was.get("role") != now.get("role"):
            return f"{where} had the role {was.get('role')}"
        for line, (before, after) in enumerate(zip_longest(_split_lines(was), _split_lines(now)), 1):
            if before != after:
                return f"{where} differs at line {line}: recorded {_quote_value(before)}, asked {_quote_value(after)}"
        return f"{where} differs in other fields than its content"
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            return f"{name} differs: recorded {_quote_value(old.get(name))}, asked {_quote_value(new.get(name))}"
    return "nothing differs"


def _measure_agreement(recorded: Request | None, asked: Request) -> tuple[int, int]:
    """How far two prompts run alike: whole messages, then lines of the first message that differs."""
    messages = 0
    for was, now in zip(recorded.messages if recorded else [], asked.messages, strict=False):
        if was != now:
            same = 0
            for before, after in zip(_split_lines(was), _split_lines(now), strict=False):
                if before != after:
                    break
                same += 1
            return messages, same
        messages += 1
    return messages, 0


def _split_lines(message: dict[str, Any]) -> list[str]:
    content = message.get("content")
    return (content if isinstance(content, str) else orjson.dumps(content, option=orjson.OPT_INDENT_2).decode()).split(
        "\n"
    )


def _quote_value(value: Any) -> str:
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "…")


def _hash_prompt(request: Request | None) -> str:
    return digest(request.canonical()) if request is not None else ""
