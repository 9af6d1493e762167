"""What the agent told the user: facts that occur in its words, whatever their spelling of numbers, spaces and case."""

from __future__ import annotations

import re
import unicodedata

from simia.rewards.part import Judged
from simia.rewards.values import equal
from simia.task import AnswerSpec
from simia.tool import SchemaError, compile_schema
from simia.trajectory import Trajectory

NUMBER = re.compile(r"-?\d[\d,.\u202f\u00a0 ]*\d|-?\d")
GROUPED = re.compile(r"(?<=\d)[,\u202f\u00a0 ](?=\d{3}(?!\d))")
SPACES, DASHES = re.compile(r"\s+"), re.compile(r"[\u2010-\u2015\u2212]")
MARKS = re.compile(r"[*_`€$£¥]")


def judge(trajectory: Trajectory, spec: AnswerSpec) -> Judged:
    said = [m.text for m in trajectory.messages if m.role == "assistant" and not m.calls and m.text]
    if not said:
        return Judged(0.0, "the agent told the user nothing")
    if spec.match == "exact":
        hits = [any(normal(said[-1]) == normal(each) for each in spec.expect)]
    else:
        text = "\n".join(said)
        hits = [found(each, text, spec) for each in spec.expect]
    value = sum(hits) / len(hits) if spec.partial else float(all(hits))
    if all(hits):
        return Judged(value, "the answer is there")
    missing = spec.expect[hits.index(False)]
    return Judged(value, f"not said: {missing!r}")


def found(expected: str, text: str, spec: AnswerSpec) -> bool:
    if spec.match == "number":
        try:
            wanted = float(plain_number(expected))
        except ValueError:
            return False
        return any(equal(number, wanted, spec.tolerance) for number in numbers(text))
    if spec.match == "regex":
        try:
            return compile_schema({"type": "string", "pattern": expected}).valid(text)
        except SchemaError:
            return False
    wanted_text, own = normal(expected), normal(text)
    before = r"(?<!\w)(?<!\d[.,])" if wanted_text[:1].isalnum() else ""
    after = r"(?!\w)(?![.,]\d)" if wanted_text[-1:].isalnum() else ""
    return re.search(before + re.escape(wanted_text) + after, own) is not None


def normal(text: str) -> str:
    """Case, spaces, dashes, emphasis, currency signs and the grouping of digits make no difference; nor do a price's last zeros."""
    text = MARKS.sub("", DASHES.sub("-", unicodedata.normalize("NFKC", text)))
    text = GROUPED.sub("", text)
    text = re.sub(r"(?<=\d)\.(\d*?)0+(?!\d)", lambda m: f".{m[1]}" if m[1] else "", text)
    return SPACES.sub(" ", text).strip().casefold()


def numbers(text: str) -> list[float]:
    found = []
    for each in NUMBER.findall(text):
        for piece in (each, *each.split()):
            try:
                found.append(float(plain_number(piece)))
            except ValueError:
                continue
    return found


def plain_number(text: str) -> str:
    return GROUPED.sub("", MARKS.sub("", text).strip()).rstrip(".,")
