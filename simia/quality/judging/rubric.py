"""Rubrics, prompt files that a user can replace, and the requests to a judge that are built from them.

The file begins with the purpose of the conversation; then each `## name` is a dimension. Rules, rubric, tools and policy
come first in a prompt and the conversation last, so that a prefix cache serves all but the conversation of each pack.
The conversation is written as one JSON line per turn, unprintable characters escaped, so that no text in a turn can end
it and imitate the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from simia.errors import UserError
from simia.json_schema import SHORT_TEXT, build_strict_object
from simia.llm.types import Request
from simia.prompt_quoting import escape_unprintable, quote
from simia.prompts import decode_result, load_template, read_prompt
from simia.quality.judging.settings import Judge
from simia.trajectory import Message, Trajectory, digest, write_compact_json

SECTION = re.compile(r"^## +(.+?) *$", re.M)
NAME = re.compile(r"[a-z][a-z0-9_]*")
OVERALL = "overall"  # stands for all dimensions together in the figures


class Rubric:
    """The rubric of a judge, with the dimensions that its settings select."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        text, rubric_hash = read_prompt(judge.rubric)
        self.about, sections = split_sections(judge.rubric, text)
        names = judge.dimensions if judge.dimensions is not None else list(sections)
        if missing := [name for name in names if name not in sections]:
            raise UserError(
                f"rubric {judge.rubric} has no dimension {missing[0]!r}; it has: {', '.join(sections) or 'none'}"
            )
        self.dimensions = {name: sections[name] for name in names}
        self._system, system_hash = load_template(judge.system)
        self._request, request_hash = load_template(judge.request)
        self.files = {judge.system: system_hash, judge.request: request_hash, judge.rubric: rubric_hash}

    def request(self, trajectory: Trajectory, *, structured: bool, goals: Sequence[Any] = ()) -> Request:
        """Build the request for a verdict. `structured`: the endpoint can constrain the reply to a schema. `goals`: what the
        conversation was planned to settle, as JSON values."""
        sampling = self.judge.sampling
        return Request(
            messages=self.messages(trajectory, goals),
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=sampling.max_tokens,
            reasoning_effort=sampling.reasoning_effort,
            response_format=self.schema() if structured else None,
            extra_body=sampling.extra,
        )

    def messages(self, trajectory: Trajectory, goals: Sequence[Any] = ()) -> list[dict[str, Any]]:
        end = trajectory.end
        cut = "" if end.kind == "terminated" else (end.code.meaning if end.code else end.kind)
        facts: dict[str, Any] = {
            "about": self.about,
            "dimensions": self.dimensions,
            "tools": [escape_unprintable(write_compact_json(tool.flat())) for tool in trajectory.tools],
            "policy": trajectory.system,
            # No policy can hold its own hash, so none can write its last line.
            "marker": digest(trajectory.system)[:16],
            "turns": render_turns(trajectory.messages),
            "end": cut,
            "goals": [quote(goal) for goal in goals],
        }
        system, request = self._system.render(facts), self._request.render(facts)
        return [{"role": "system", "content": system}, {"role": "user", "content": request}]

    def schema(self) -> dict[str, Any]:
        """Build the reply's schema. The reason precedes the verdict, so that the model reasons before it decides."""
        point = build_strict_object({"why": SHORT_TEXT, "pass": {"type": "boolean"}})
        body = build_strict_object(dict.fromkeys(self.dimensions, point))
        return {"type": "json_schema", "json_schema": {"name": "verdict", "schema": body}}


def split_sections(name: str, text: str) -> tuple[str, dict[str, str]]:
    """Return (the text before the first section, the sections)."""
    about, *rest = SECTION.split(text)
    sections: dict[str, str] = {}
    for heading, body in zip(rest[::2], rest[1::2], strict=True):
        if not NAME.fullmatch(heading) or heading == OVERALL or heading in sections:
            raise UserError(
                f"rubric {name}: {heading!r} cannot name a dimension: use lower-case letters, digits and _, each name once, and not {OVERALL}"
            )
        sections[heading] = body.strip()
    return " ".join(about.split()), sections


def render_turns(messages: list[Message]) -> list[str]:
    """Write each turn as one line of JSON, complete enough for a judge of format."""
    called: dict[str, str] = {}  # by turns, since some dialects restart their call ids in each
    lines = []
    for i, message in enumerate(messages):
        called |= {call.id: f"{call.name}, call {j} of turn {i}" for j, call in enumerate(message.calls, start=1)}
        turn: dict[str, Any] = {"turn": i, "role": message.role}
        if message.role == "tool":
            turn["answers"] = called.get(message.call_id or "", "no call")
        if message.reasoning:
            turn["reasoning"] = message.reasoning
        if message.text or not message.calls:
            turn["content"] = decode_result(message.text) if message.role == "tool" else message.text
        if message.calls:
            turn["calls"] = [
                {"name": call.name, "arguments": call.arguments if call.raw is None else call.raw}
                for call in message.calls
            ]
        if message.error:
            turn["error"] = message.error.meaning
        lines.append(quote(turn))
    return lines
