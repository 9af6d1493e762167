"""Read the verdict in a judge's reply.

Reading is tolerant of form: a fence, a trailing comma, prose before the object and "yes" for true are accepted. It is
strict in meaning: a dimension that is missing or judged twice, a number instead of yes or no, or a remark after the
object that may revoke it makes the verdict an error. An error is never a pass or a fail; the authors' reward parser
read 0 from a trailing comma and 7.0 from a seven.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from simia.errors import Code, Issue
from simia.formats.reply.json_scanner import Unreadable
from simia.formats.reply.reply_json import RepairError, load_json
from simia.formats.reply.reply_parser import REFUSAL, strip_own_reasoning
from simia.llm.types import Reply

TRUE = frozenset({"true", "yes", "pass", "passed", "passes"})
FALSE = frozenset({"false", "no", "fail", "failed", "fails"})
PASS_KEYS = ("pass", "passed", "verdict")
FAIL_KEYS = ("fail", "failed")
WHY_KEYS = ("why", "rationale", "reason", "explanation")
# After the object: words that may change the verdict. A greeting or a closing fence does not.
TAKES_BACK = re.compile(
    r"[{\[]|\b(?:pass\w*|fail\w*|true|false|yes|no|not|but|however|actually|wait|correct\w*|instead|sorry|wrong)\b",
    re.I,
)


class Verdict(BaseModel):
    """One judge's verdict on one trajectory. `passed` is None if and only if there is an `error`."""

    model_config = ConfigDict(frozen=True)

    passed: bool | None = None
    dimensions: dict[str, bool | None] = Field(default_factory=dict)
    rationale: dict[str, str] = Field(default_factory=dict)
    error: Code | None = None
    detail: str = ""
    reply_key: str | None = None
    votes: tuple[Verdict, ...] = ()

    @property
    def issues(self) -> list[Issue]:
        """The faults found, as issues; none without a verdict."""
        if self.passed is None:
            return []
        return [
            Issue(code=Code.JUDGED_BAD, where=name, detail=self.rationale.get(name, "")[:500])
            for name, passed in self.dimensions.items()
            if passed is False
        ]


def make_error(names: Sequence[str], code: Code, detail: str = "", *, key: str | None = None) -> Verdict:
    return Verdict(dimensions=dict.fromkeys(names), error=code, detail=detail[:300], reply_key=key)


def read_verdict(reply: Reply, names: Sequence[str], *, key: str | None = None) -> Verdict:
    """Read the verdict in a reply on the dimensions `names`. Pure."""
    if reply.finish == "content_filter":
        return make_error(names, Code.CONTENT_FILTER, key=key)
    if reply.truncated:
        return make_error(names, Code.TRUNCATED, "the verdict reached its token limit", key=key)
    text = reply.text.strip("\ufeff \t\r\n")
    if not text:
        return make_error(names, Code.EMPTY_REPLY, key=key)
    try:
        points = unwrap_points(extract_value(strip_own_reasoning(text, [])), names)
        dimensions = {name: read_decision(points.get(name)) for name in names}
    except Unreadable as why:
        declined = "{" not in text and REFUSAL.search(text[:300])
        return make_error(names, Code.REFUSAL if declined else Code.UNPARSABLE, str(why), key=key)
    rationale = {name: said for name in names if (said := read_rationale(points.get(name)))}
    open_ = [name for name in names if dimensions[name] is None]
    if open_:
        detail = f"no clear verdict on {', '.join(open_)}"
        return Verdict(dimensions=dimensions, rationale=rationale, error=Code.UNPARSABLE, detail=detail, reply_key=key)
    passed = all(value is True for value in dimensions.values())
    return Verdict(passed=passed, dimensions=dimensions, rationale=rationale, reply_key=key)


def extract_value(text: str) -> Any:
    """Return the one JSON value of the text, without the prose around it, and repaired where it needs that."""
    first, last = text.find("{"), text.rfind("}")
    if first < 0 or last < first:
        raise RepairError("no JSON object")
    if TAKES_BACK.search(after := text[last + 1 :]):
        raise RepairError(f"the text after the verdict may take it back: {after.strip()[:60]!r}")
    return load_json(text[first : last + 1])[0]


def unwrap_points(value: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return the points by dimension; they may be nested under a single key such as `verdict`."""
    if isinstance(value, dict) and len(value) == 1:
        ((key, inner),) = value.items()
        if normalize_key(key) not in names and isinstance(inner, dict):
            value = inner
    if not isinstance(value, dict):
        raise RepairError("the verdict is not an object")
    points: dict[str, Any] = {}
    for key, point in value.items():
        if normalize_key(key) in points:
            raise RepairError(f"{normalize_key(key)} is judged twice")
        points[normalize_key(key)] = point
    return points


def normalize_key(key: str) -> str:
    return re.sub(r"[\s-]+", "_", key.strip().lower())


def read_decision(point: Any) -> bool | None:
    """Return True or False where the point states exactly that, in any accepted word; None otherwise."""
    if not isinstance(point, dict):
        return read_boolean(point)
    keys = {normalize_key(key): value for key, value in point.items()}
    said = [read_boolean(keys[key]) for key in PASS_KEYS if key in keys]
    said += [None if (failed := read_boolean(keys[key])) is None else not failed for key in FAIL_KEYS if key in keys]
    return said[0] if said and len(set(said)) == 1 else None


def read_boolean(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    word = value.strip().strip(".!*").lower() if isinstance(value, str) else None
    return True if word in TRUE else False if word in FALSE else None


def read_rationale(point: Any) -> str:
    if not isinstance(point, dict):
        return ""
    keys = {normalize_key(key): value for key, value in point.items()}
    return next((keys[key].strip() for key in WHY_KEYS if isinstance(keys.get(key), str)), "")


def combine_votes(votes: Sequence[Verdict], names: Sequence[str]) -> Verdict:
    """Combine votes: more than half of all votes decide each dimension; an unreadable vote counts for neither side."""
    if len(votes) == 1:
        return votes[0]
    dimensions: dict[str, bool | None] = {}
    rationale: dict[str, str] = {}
    for name in names:
        cast = [vote.dimensions.get(name) if vote.error is None else None for vote in votes]
        won = next((side for side in (True, False) if 2 * cast.count(side) > len(votes)), None)
        dimensions[name] = won
        said = next(
            (v.rationale[name] for v, c in zip(votes, cast, strict=True) if c is won and name in v.rationale), ""
        )
        if won is not None and said:
            rationale[name] = said
    open_ = [name for name in names if dimensions[name] is None]
    fault = next((vote for vote in votes if vote.error), None)
    return Verdict(
        passed=None if open_ else all(value is True for value in dimensions.values()),
        dimensions=dimensions,
        rationale=rationale,
        error=(fault.error if fault else Code.UNPARSABLE) if open_ else None,
        detail=f"no majority on {', '.join(open_)}" if open_ else "",
        reply_key=votes[0].reply_key,
        votes=tuple(votes),
    )
