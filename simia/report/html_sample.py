"""Sample the trajectories that the report's page shows, and prepare their layout.

Accepted trajectories are sampled at random over the whole run, with a fixed seed, so that the sample represents the
run. In addition, the page shows accepted trajectories of each seed and rejected ones of each reason, in turn, so that a
reviewer sees one of each before a second of any. Long texts are cut, so that the page stays small.
"""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, TypeVar

import orjson

from simia.errors import Issue
from simia.jobs import Run
from simia.report.conversation import list_outcome_lines
from simia.trajectory import Message, ToolCall, Trajectory

T = TypeVar("T")
PLACE = re.compile(r"messages\[(\d+)\]")
MOST_REPLY = 6_000
MOST_LINE = 96
MOST_TEXT = 3_000  # characters of one message
MOST_SHOWN = 30_000  # characters of one trajectory
MOST_PAGE = 1_500_000  # characters of all trajectories


@dataclass(slots=True)
class SampleTurn:
    """A message with its findings. `left_out`: number of characters of its text that are not shown."""

    message: Message
    issues: list[Issue] = field(default_factory=list)
    left_out: int = 0


@dataclass(slots=True)
class SampleItem:
    """One item: its trajectory turn by turn or, if none could be parsed, the model's reply. `drawn`: random, seed or
    reason; `more`: number of messages that are not shown; `cut`: only the beginning of the reply is shown."""

    item: str
    verdict: str
    drawn: str
    reason: str
    detail: str
    seed: str
    pack: str
    keys: list[str]
    issues: list[Issue]
    repairs: list[str]
    trajectory: Trajectory | None
    turns: list[SampleTurn]
    reply: str
    cut: bool
    more: int
    size: int
    outcome: list[str]
    """Of an episode: its reward with parts and reasons, and its ending, line by line."""

    @property
    def tools(self) -> list[str]:
        return list(dict.fromkeys(call.name for turn in self.turns for call in turn.message.calls))

    @property
    def title(self) -> str:
        """The beginning of the user's first message, or of the reply."""
        text = next((turn.message.text for turn in self.turns if turn.message.role == "user"), self.reply)
        return " ".join(text.split())[:160]


def sample_items(run: Run, most: int, named: Sequence[str] = ()) -> list[SampleItem]:
    """Sample at most `most` accepted items at random, half as many more from the seeds in turn, and `most` rejected items. Rejected items
    that are `named` come first."""
    connection = run.ledger.db.ledger
    seeds: dict[str, list[str]] = defaultdict(list)
    kept: list[str] = []
    accepted = "SELECT item, spec ->> '$.seed' FROM accepted JOIN item ON item.id = item ORDER BY accepted.ord"
    for item, seed in connection.execute(accepted):
        kept.append(item)
        seeds[seed].append(item)
    reasons: dict[str, list[str]] = defaultdict(list)
    chosen = [item for item in dict.fromkeys(named) if item not in set(kept)]
    for item, reason in connection.execute("SELECT id, reason FROM item WHERE status = 'rejected' ORDER BY ord"):
        reasons[reason].append(item)
    draw = random.Random(run.id)
    at_random = set(draw.sample(kept, min(most, len(kept))))
    rest = [[item for item in items if item not in at_random] for items in seeds.values()]
    of_seeds = set(take_in_turn([draw.sample(items, len(items[:most])) for items in rest], most // 2))
    refused = take_in_turn([draw.sample(items, len(items[:most])) for items in reasons.values()], most)
    refused = [*chosen, *(item for item in refused if item not in chosen)]
    plan = [
        [(item, "accepted", "random") for item in kept if item in at_random],
        [(item, "accepted", "seed") for item in kept if item in of_seeds],
        [(item, "rejected", "reason") for item in refused],
    ]
    found, left = {}, MOST_PAGE
    # The kinds take turns, so that a page that cannot show all items shows some of every kind.
    for item, verdict, drawn in take_in_turn(plan):
        if left < 0:
            break
        found[item] = load_sample_item(run, item, verdict, drawn)
        left -= found[item].size
    return [found[item] for kind in plan for item, *_ in kind if item in found]


def take_in_turn(groups: Sequence[Sequence[T]], most: int | None = None) -> list[T]:
    """Take one of each group, then a second of each, up to `most` in total."""
    return [one for turn in zip_longest(*groups) for one in turn if one is not None][:most]


def load_sample_item(run: Run, item: str, verdict: str, drawn: str) -> SampleItem:
    ledger = run.ledger
    row = "SELECT spec, reason, detail FROM item WHERE id = ?"
    spec, reason, detail = ledger.db.ledger.execute(row, (item,)).fetchone()
    about = orjson.loads(spec)
    body = ledger.result(item) or {"trajectory": None, "issues": [], "repairs": []}
    issues = [Issue.model_validate(issue) for issue in body["issues"]]
    keys = ledger.reply_keys(item)
    trajectory, turns, size, text = None, list[SampleTurn](), 0, ""
    if body["trajectory"]:
        trajectory = Trajectory.from_row(body["trajectory"])
        turns, size = fit_turns(trajectory.messages)
        for issue in issues:
            place = PLACE.match(issue.where)
            if place and int(place[1]) < len(turns):
                turns[int(place[1])].issues.append(issue)
    else:
        text = next((reply.text for key in reversed(keys) if (reply := ledger.recall(key))), "")
        size = min(len(text), MOST_REPLY)
    return SampleItem(
        item=item,
        verdict=verdict,
        drawn=drawn,
        reason=reason or "",
        detail=detail or "",
        seed=str(about.get("task") or about.get("seed") or ""),
        pack=str(about.get("pack") or ""),
        keys=keys,
        issues=issues,
        repairs=body.get("repairs", []),
        trajectory=trajectory,
        turns=turns,
        reply=text[:MOST_REPLY],
        cut=len(text) > MOST_REPLY,
        more=len(trajectory.messages) - len(turns) if trajectory else 0,
        size=size,
        outcome=list_outcome_lines(body["trajectory"]) if trajectory is not None and trajectory.reward else [],
    )


def fit_turns(messages: list[Message]) -> tuple[list[SampleTurn], int]:
    """Return as many turns as fit, with long texts cut, and their size in characters."""
    turns, size = [], 0
    for message in messages:
        left_out = max(0, len(message.text) - MOST_TEXT)
        shown = message.model_copy(update={"content": message.text[:MOST_TEXT]}) if left_out else message
        turns.append(SampleTurn(shown, left_out=left_out))
        size += 200 + len(shown.text) + sum(len(format_arguments(call)) for call in message.calls)
        if size > MOST_SHOWN:
            break
    return turns, size


def format_result(text: str) -> str:
    """Indent a tool's result if it is a JSON object or list; return other text unchanged."""
    if text[:1] not in ("{", "["):
        return text
    try:
        return lay_out_json(json.loads(text))
    except (ValueError, RecursionError):
        return text


def format_arguments(call: ToolCall) -> str:
    return ((call.raw or "") if call.arguments is None else lay_out_json(call.arguments))[:MOST_TEXT]


def lay_out_json(value: Any) -> str:
    """Write JSON on one line if it fits, else indented."""
    line = json.dumps(value, ensure_ascii=False)
    return line if len(line) <= MOST_LINE else json.dumps(value, ensure_ascii=False, indent=2)
