"""Check the facts that the agent told the user. The spelling of numbers, spaces and case do not matter."""

from __future__ import annotations

import itertools
import math
import re
import unicodedata

from simia.envs.rewards.compare_values import values_equal
from simia.envs.rewards.reward_part import PartResult
from simia.errors import Code
from simia.reward_spec import AnswerSpec
from simia.tool import CompiledSchema, SchemaError, compile_schema
from simia.trajectory import Trajectory

SIGN = r"(?<!\w)-"  # in 2-3 and ORD-7 it is none
NUMBER = re.compile(rf"(?:{SIGN})?(?:\d[\d,.\u202f\u00a0 ]*\d|\d)")
DECIMAL = re.compile(r"(?<!\d)(?<!\d\.)(\d+)\.(\d+)(?!\.?\d)")  # no part of a version, an address or a date
GROUPED = re.compile(r"(?<=\d)[,\u202f\u00a0 ](?=\d{3}(?!\d))")
COMMAS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
SPACES, DASHES = re.compile(r"\s+"), re.compile(r"[\u2010-\u2015\u2212]")
MARKS = re.compile(r"[*_`€$£¥]")


def judge_answer(trajectory: Trajectory, spec: AnswerSpec) -> PartResult:
    broken = next((why for each in spec.expect if (why := find_answer_fault(each, spec))), None)
    if broken:
        return PartResult(None, broken)
    cut = trajectory.end.kind == "truncated" and trajectory.end.code is Code.MAX_TOKENS
    messages = trajectory.messages
    if cut and messages and messages[-1].role == "assistant":  # the incomplete message did not reach the user
        messages = messages[:-1]
    said = [m.text for m in messages if m.role == "assistant" and not m.calls and m.text]
    if not said:
        return PartResult(0.0, "the agent told the user nothing")
    if spec.match == "exact":
        hits = [any(normalize_text(said[-1]) == normalize_text(each) for each in spec.expect)]
    else:
        text = "\n".join(said)
        hits = [contains_fact(each, text, spec) for each in spec.expect]
    value = sum(hits) / len(hits) if spec.partial else float(all(hits))
    if all(hits):
        return PartResult(value, "the answer is there")
    missing = spec.expect[hits.index(False)]
    return PartResult(value, f"not said: {missing!r}")


def find_answer_fault(expected: str, spec: AnswerSpec) -> str | None:
    """Return why an expected text cannot be compared with any answer; None if it can. A part with a fault is not judged."""
    if spec.match == "number" and parse_number(expected) is None:
        return f"{expected!r} is no number"
    if spec.match == "regex" and compile_expression(expected) is None:
        return f"{expected!r} is no usable expression"
    if spec.match in ("contains", "exact") and not normalize_text(expected):
        return f"{expected!r} holds no words"
    return None


def contains_fact(expected: str, text: str, spec: AnswerSpec) -> bool:
    if spec.match == "number":
        wanted = parse_number(expected)
        return wanted is not None and any(values_equal(number, wanted, spec.tolerance) for number in find_numbers(text))
    if spec.match == "regex":
        expression = compile_expression(expected)
        return expression is not None and expression.valid(text)
    # A space between digits may group them or separate two numbers: "1 234.50", but also "2 100 watt bulbs".
    return any(
        re.search(make_word_pattern(normalize_text(expected, spaced=a)), normalize_text(text, spaced=b)) is not None
        for a, b in itertools.product((True, False), repeat=2)
    )


def make_word_pattern(text: str) -> str:
    """Make a regular expression that matches the text only as whole words and whole numbers."""
    before = r"(?<!\w)(?<!\d[.,])" if text[:1].isalnum() else ""
    if text[:1].isdigit():
        before += rf"(?<!{SIGN})"
    elif re.match(r"-\d", text):
        before = r"(?<!\w)"
    after = r"(?!\w)(?![.,]\d)" if text[-1:].isalnum() else ""
    return before + re.escape(text) + after


def normalize_text(text: str, *, spaced: bool = True) -> str:
    """Remove differences in case, spaces, dashes, emphasis, currency signs, grouping of digits and trailing zeros of decimals.
    `spaced`: whether a space may group digits too."""
    text = MARKS.sub("", DASHES.sub("-", unicodedata.normalize("NFKC", text)))
    text = (GROUPED if spaced else COMMAS).sub("", text)
    text = DECIMAL.sub(lambda m: f"{m[1]}.{m[2].rstrip('0')}".rstrip("."), text)
    return SPACES.sub(" ", text).strip().casefold()


def find_numbers(text: str) -> list[float]:
    """Find all numbers of a text. A comma that groups no digits separates two numbers; a space may do either."""
    pieces = [piece for each in NUMBER.findall(DASHES.sub("-", text)) for piece in (each, *each.split())]
    pieces += [part for piece in pieces if parse_number(piece) is None for part in piece.split(",")]
    return [number for piece in pieces if (number := parse_number(piece)) is not None]


def parse_number(text: str) -> float | None:
    plain = GROUPED.sub("", MARKS.sub("", DASHES.sub("-", text)).strip()).rstrip(".,")
    try:
        number = float(plain)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def compile_expression(expression: str) -> CompiledSchema | None:
    try:
        return compile_schema({"type": "string", "pattern": expression})
    except SchemaError:
        return None
