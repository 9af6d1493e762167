"""Which trajectories of a run can be read on its page, and how each is laid out there.

Accepted ones are drawn at random over the whole run (the same ones each time), rejected ones so that every reason has
its turn: a reviewer wants to see one of each before a second of any.
"""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import orjson

from simia.errors import Issue
from simia.report.facts import meaning
from simia.runs import Run
from simia.trajectory import Message, ToolCall, Trajectory

PLACE = re.compile(r"messages\[(\d+)\]")
MOST_REPLY = 6_000
MOST_LINE = 96


@dataclass(slots=True)
class Turn:
    """A message with the findings on it."""

    message: Message
    issues: list[Issue] = field(default_factory=list)


@dataclass(slots=True)
class Shown:
    """One item: its trajectory turn by turn or, where none could be read, what the model replied."""

    item: str
    verdict: str
    reason: str
    seed: str
    pack: str
    keys: list[str]
    issues: list[Issue] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    trajectory: Trajectory | None = None
    turns: list[Turn] = field(default_factory=list)
    reply: str = ""
    cut: bool = False

    @property
    def tools(self) -> list[str]:
        return list(dict.fromkeys(call.name for turn in self.turns for call in turn.message.calls))

    @property
    def title(self) -> str:
        """What the user wants, or how the reply begins."""
        said = next((turn.message.text for turn in self.turns if turn.message.role == "user"), self.reply)
        return " ".join(said.split())[:160]

    @property
    def meaning(self) -> str:
        return meaning(self.reason)


def sample(run: Run, most: int) -> list[Shown]:
    """At most `most` accepted and as many rejected items, each kind in the run's order."""
    connection = run.ledger.db.ledger
    kept = [item for (item,) in connection.execute("SELECT item FROM accepted ORDER BY ord")]
    reasons: dict[str, list[str]] = defaultdict(list)
    for item, reason in connection.execute("SELECT id, reason FROM item WHERE status = 'rejected' ORDER BY ord"):
        reasons[reason].append(item)
    draw = random.Random(run.id)
    chosen = sorted(draw.sample(kept, min(most, len(kept))))
    return [shown(run, item, "accepted") for item in chosen] + [
        shown(run, item, "rejected") for item in in_turn(list(reasons.values()), most)
    ]


def in_turn(groups: list[list[str]], most: int) -> list[str]:
    """One of each group, then a second of each, until there are enough."""
    longest = max(map(len, groups), default=0)
    rounds = (group[i] for i in range(min(longest, most)) for group in groups if i < len(group))
    return [item for item, _ in zip(rounds, range(most), strict=False)]


def shown(run: Run, item: str, verdict: str) -> Shown:
    ledger = run.ledger
    spec, reason = ledger.db.ledger.execute("SELECT spec, reason FROM item WHERE id = ?", (item,)).fetchone()
    about = orjson.loads(spec)
    body = ledger.result(item) or {"trajectory": None, "issues": [], "repairs": []}
    made = Shown(
        item=item,
        verdict=verdict,
        reason=reason or "",
        seed=str(about.get("task") or about.get("seed") or ""),
        pack=str(about.get("pack") or ""),
        keys=ledger.reply_keys(item),
        issues=[Issue.model_validate(issue) for issue in body["issues"]],
        repairs=body["repairs"],
    )
    if body["trajectory"]:
        made.trajectory = Trajectory.from_row(body["trajectory"])
        made.turns = [Turn(message) for message in made.trajectory.messages]
        for issue in made.issues:
            place = PLACE.match(issue.where)
            if place and int(place[1]) < len(made.turns):
                made.turns[int(place[1])].issues.append(issue)
    else:
        replies = [reply for key in made.keys if (reply := ledger.recall(key))]
        text = replies[-1].text if replies else ""
        made.reply, made.cut = text[:MOST_REPLY], len(text) > MOST_REPLY
    return made


def pretty(text: str) -> str:
    """A tool's result, laid out if it is a JSON object or list; as it stands if not."""
    if text[:1] not in ("{", "["):
        return text
    try:
        return laid_out(json.loads(text))
    except (ValueError, RecursionError):
        return text


def arguments(call: ToolCall) -> str:
    return (call.raw or "") if call.arguments is None else laid_out(call.arguments)


def laid_out(value: Any) -> str:
    """On one line if it fits there."""
    line = json.dumps(value, ensure_ascii=False)
    return line if len(line) <= MOST_LINE else json.dumps(value, ensure_ascii=False, indent=2)
