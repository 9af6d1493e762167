"""Choose the trajectories that the report's page shows, and lay each out.

Accepted trajectories are sampled at random over the whole run, with a fixed seed, so that the sample represents the
run. In addition, the page shows accepted trajectories of each seed and rejected ones of each reason, in turn, so that a
reviewer sees one of each before a second of any. Long texts are cut, so that the page stays small.
"""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from typing import Any

import orjson

from simia.errors import Issue
from simia.jobs import Run
from simia.report.run_statistics import explain_reason
from simia.trajectory import Message, ToolCall, Trajectory

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
    """One item: its trajectory turn by turn or, if none could be parsed, the model's reply."""

    item: str
    verdict: str
    reason: str
    seed: str
    pack: str
    keys: list[str]
    issues: list[Issue] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    trajectory: Trajectory | None = None
    turns: list[SampleTurn] = field(default_factory=list)
    reply: str = ""
    cut: bool = False
    drawn: str = "random"
    detail: str = ""
    more: int = 0  # messages that are not shown
    size: int = 0

    @property
    def tools(self) -> list[str]:
        return list(dict.fromkeys(call.name for turn in self.turns for call in turn.message.calls))

    @property
    def title(self) -> str:
        """The beginning of the user's first message, or of the reply."""
        text = next((turn.message.text for turn in self.turns if turn.message.role == "user"), self.reply)
        return " ".join(text.split())[:160]

    @property
    def meaning(self) -> str:
        return explain_reason(self.reason)


def sample_items(run: Run, most: int) -> list[SampleItem]:
    """Sample at most `most` accepted items at random, half as many more from the seeds in turn, and `most` rejected items."""
    connection = run.ledger.db.ledger
    seeds: dict[str, list[str]] = defaultdict(list)
    kept: list[str] = []
    accepted = "SELECT item, spec ->> '$.seed' FROM accepted JOIN item ON item.id = item ORDER BY accepted.ord"
    for item, seed in connection.execute(accepted):
        kept.append(item)
        seeds[seed].append(item)
    reasons: dict[str, list[str]] = defaultdict(list)
    for item, reason in connection.execute("SELECT id, reason FROM item WHERE status = 'rejected' ORDER BY ord"):
        reasons[reason].append(item)
    draw = random.Random(run.id)
    at_random = set(draw.sample(kept, min(most, len(kept))))
    rest = [[item for item in items if item not in at_random] for items in seeds.values()]
    of_seeds = set(take_in_turn([draw.sample(items, len(items[:most])) for items in rest], most // 2))
    refused = take_in_turn([draw.sample(items, len(items[:most])) for items in reasons.values()], most)
    plan = [(item, "accepted", "random") for item in kept if item in at_random]
    plan += [(item, "accepted", "seed") for item in kept if item in of_seeds]
    plan += [(item, "rejected", "reason") for item in refused]
    found, left = [], MOST_PAGE
    for each in (load_sample_item(run, *which) for which in balance_kinds(plan)):
        left -= each.size
        found.append(each)
        if left < 0:
            break
    order = {item: place for place, (item, *_) in enumerate(plan)}
    return sorted(found, key=lambda each: order[each.item])


def balance_kinds(plan: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Interleave the kinds, so that a page that cannot show all items shows some of every kind."""
    kinds: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for one in plan:
        kinds[one[2]].append(one)
    return [one for turn in zip_longest(*kinds.values()) for one in turn if one is not None]


def take_in_turn(groups: list[list[str]], most: int) -> list[str]:
    """Take one of each group, then a second of each, up to `most` in total."""
    longest = max(map(len, groups), default=0)
    rounds = (group[i] for i in range(min(longest, most)) for group in groups if i < len(group))
    return list(islice(rounds, most))


def load_sample_item(run: Run, item: str, verdict: str, drawn: str = "random") -> SampleItem:
    ledger = run.ledger
    spec, reason, detail = ledger.db.ledger.execute(
        "SELECT spec, reason, detail FROM item WHERE id = ?", (item,)
    ).fetchone()
    about = orjson.loads(spec)
    body = ledger.result(item) or {"trajectory": None, "issues": [], "repairs": []}
    made = SampleItem(
        item=item,
        verdict=verdict,
        reason=reason or "",
        seed=str(about.get("task") or about.get("seed") or ""),
        pack=str(about.get("pack") or ""),
        keys=ledger.reply_keys(item),
        issues=[Issue.model_validate(issue) for issue in body["issues"]],
        repairs=body["repairs"],
        drawn=drawn,
        detail=detail or "",
    )
    if body["trajectory"]:
        made.trajectory = Trajectory.from_row(body["trajectory"])
        made.turns, made.size = fit_turns(made.trajectory.messages)
        made.more = len(made.trajectory.messages) - len(made.turns)
        for issue in made.issues:
            place = PLACE.match(issue.where)
            if place and int(place[1]) < len(made.turns):
                made.turns[int(place[1])].issues.append(issue)
    else:
        replies = [reply for key in made.keys if (reply := ledger.recall(key))]
        text = replies[-1].text if replies else ""
        made.reply, made.cut, made.size = text[:MOST_REPLY], len(text) > MOST_REPLY, min(len(text), MOST_REPLY)
    return made


def fit_turns(messages: list[Message]) -> tuple[list[SampleTurn], int]:
    """Return as many turns as fit, with long texts cut, and their size in characters."""
    turns, size = [], 0
    for message in messages:
        text = message.text
        if len(text) > MOST_TEXT:
            turns.append(
                SampleTurn(message.model_copy(update={"content": text[:MOST_TEXT]}), left_out=len(text) - MOST_TEXT)
            )
        else:
            turns.append(SampleTurn(message))
        size += 200 + min(len(text), MOST_TEXT) + sum(len(format_arguments(call)) for call in message.calls)
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
