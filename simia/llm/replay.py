"""Answer from recorded completions: for demos, for tests, and for prompts answered by hand or on another machine.

A recording is JSON lines, one completion each:

    {"key": …, "request": {…canonical…}, "draw": "…", "reply": {"text": …, "reasoning"?, "finish"?, "usage"?}, "model": …,
     "batch"?: …, "prompts"?: {…}}

A row answers exactly the same request and draw. A row without `draw` serves its prompt's draws in the order of recording. `reply: null`
is a question that waits for its answer. A prompt that has changed is a miss whose message shows the first line that differs, never a near
match: a recorded answer to another question would be invented evidence.

With `match: draw`, the recorded request replaces the newly rendered one: a row answers the item and sample that its `draw` names. The run
stores the recorded request, so old replies can be parsed and checked by the current code after a prompt has changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from simia.config import Config
from simia.errors import Code, UserError
from simia.llm.types import LLMFault, Reply, Request
from simia.search_path import locate
from simia.terminal import write_count
from simia.trajectory import digest

UNNAMED = "recorded requests"  # stands for the prompt files of rows that name none
SHOWN = 80  # characters of a differing line


class ReplaySettings(Config):
    """A file of recorded replies, in place of a model."""

    kind: Literal["replay"] = "replay"
    """Recorded replies."""
    path: Path = Field(description="JSONL file of the recording.")
    match: Literal["prompt", "draw"] = Field(
        "prompt",
        description="prompt: a row answers only the same request, and a changed prompt has no reply. draw: a row answers the item and "
        "sample for which it was recorded, and its recorded request replaces the new one.",
    )
    model: str | None = Field(
        None, description="Name of the model in the keys of stored replies. null: that of the recording."
    )
    alias: str | None = Field(None, description="Name of the endpoint in the keys of stored replies. null: `replay`.")


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
    batch: str | None = None
    """The context in which a model answered this prompt and others of the same batch."""
    prompts: dict[str, str] = Field(default_factory=dict)
    """The prompt files that the request was made with: name to hash."""
    plan: dict[str, Any] | None = None
    """The item's plan, if it had one."""

    @field_validator("reply", mode="before")
    @classmethod
    def _text(cls, value: Any) -> Any:
        return {"text": value} if isinstance(value, str) else value  # people answer with plain text

    def row(self) -> dict[str, Any]:
        row = self.model_dump(mode="json", exclude_defaults=True, exclude={"request", "reply"})
        if self.request is not None:
            row["request"] = self.request.canonical()
        stored = self.reply and self.reply.model_dump(mode="json", exclude={"body"}, exclude_defaults=True)
        row["reply"] = None if self.reply is None else {"text": self.reply.text, **(stored or {})}
        return row


class ReplayBackend:
    """Serves a recording. The file is read when the back end is made, since its model's name is part of every key."""

    structured = True  # recorded requests had the same response_format

    def __init__(self, settings: ReplaySettings) -> None:
        self.path = locate(settings.path)
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
        self._by_draw = index_by_draw(self._rows) if settings.match == "draw" else {}
        self.matches_draws = settings.match == "draw"
        self.prompts = collect_prompts(self._rows)

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def find_recorded(self, request: Request, draw: str) -> Request:
        """Return the request to ask: with `match: draw` the one that is recorded for this sample, else `request` itself."""
        return self._by_draw.get(draw, request)

    def find_plan(self, draw: str) -> dict[str, Any] | None:
        """Return the recorded plan of this sample's item."""
        return next((row.plan for row in self._rows if row.draw == draw), None)

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
            raise self._miss(f"the prompt is recorded (sample {draw}), but it has no reply yet")
        return row.reply.model_copy(deep=True)

    def _miss(self, why: str) -> LLMFault:
        return LLMFault(Code.REPLAY_MISS, f"{self.path.name}: {why}", retry=False)

    def _why(self, request: Request, prompt: str, draw: str) -> str:
        if self.matches_draws and all(row.draw != draw for row in self._rows):
            return f"no reply is recorded for sample {draw}"
        if self._undrawn[prompt]:
            return f"no reply to this prompt is left for sample {draw}: {write_count(len(self._undrawn[prompt]), 'reply')} recorded, all used"
        draws = sorted(known for hashed, known in self._drawn if hashed == prompt)
        if draws:
            return f"the prompt is recorded for sample {', '.join(draws[:5])}, not for sample {draw}"
        asked = list_prompt_lines(request)
        rows = [(row.draw == draw, list_prompt_lines(row.request)) for row in self._rows]
        _, nearest = max(rows, key=lambda row: (row[0], count_common_lines(row[1], asked)))
        return f"no such prompt; against the nearest recorded one, {describe_difference(nearest, asked)}"


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


def index_by_draw(rows: Iterable[RecordedReply]) -> dict[str, Request]:
    """The request of each draw. Draws with several requests are left out, so these are still matched by prompt."""
    requests: dict[str, dict[str, Request]] = defaultdict(dict)
    for row in rows:
        if row.draw is not None and row.request is not None:
            requests[row.draw].setdefault(_hash_prompt(row.request), row.request)
    return {draw: next(iter(found.values())) for draw, found in requests.items() if len(found) == 1}


def collect_prompts(rows: Iterable[RecordedReply]) -> dict[str, str]:
    """The prompt files of a recording with their hashes. Rows that name none are identified by a hash of their requests."""
    files: dict[str, set[str]] = defaultdict(set)
    unnamed = []
    for row in rows:
        for name, hashed in row.prompts.items():
            files[name].add(hashed)
        if not row.prompts:
            unnamed.append(_hash_prompt(row.request))
    prompts = {name: ", ".join(sorted(hashes)) for name, hashes in sorted(files.items())}
    return prompts | ({UNNAMED: digest(sorted(set(unnamed)))} if unnamed else {})


def append_recording(rows: Iterable[RecordedReply], path: Path) -> int:
    """Append rows to a recording, and return their number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        return sum(1 for row in rows if file.write(orjson.dumps(row.row(), option=orjson.OPT_APPEND_NEWLINE)))


def list_prompt_lines(request: Request | None) -> dict[str, Any]:
    """A prompt by place: the lines and other fields of each message, then the parameters."""
    fields = request.canonical() if request else {"messages": []}
    lines: dict[str, Any] = {}
    for index, message in enumerate(fields.pop("messages")):
        where = f"messages[{index}] ({message.get('role', '?')})"
        for name, value in message.items():
            text = value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
            field = "" if name == "content" else f" {name}"
            lines |= {f"{where}{field}, line {number}": line for number, line in enumerate(text.split("\n"), 1)}
    return lines | fields


def count_common_lines(recorded: dict[str, Any], asked: dict[str, Any]) -> int:
    """How many lines two prompts have in common before the first difference."""
    return sum(1 for _ in takewhile(lambda place: recorded.get(place) == asked[place], asked))


def describe_difference(recorded: dict[str, Any], asked: dict[str, Any]) -> str:
    """The first place at which two prompts differ, with both values."""
    place = next(place for place in [*asked, *recorded] if recorded.get(place) != asked.get(place))
    return f"{place} differs: recorded {_quote_value(recorded.get(place))}, asked {_quote_value(asked.get(place))}"


def _quote_value(value: Any) -> str:
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "…")


def _hash_prompt(request: Request | None) -> str:
    return digest(request.canonical()) if request is not None else ""
