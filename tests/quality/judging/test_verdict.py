"""Reading verdicts: every form that says one thing is read, every other one is an error and never a guess."""

from __future__ import annotations

import json

import pytest

from simia.errors import Code
from simia.llm.types import Reply
from simia.quality.judging.judge_reply import Verdict, combine_votes, read_verdict

NAMES = ["logic", "format"]
GOOD = '{"logic": {"why": "sums agree", "pass": true}, "format": {"why": "a result is missing", "pass": false}}'


def verdict(text: str, names: list[str] = NAMES) -> Verdict:
    return read_verdict(Reply(text=text), names, key="k")


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}\n```\n\nHope this helps.",
        f"Here is my verdict. {GOOD}",
        f"I read all turns.\n\n{GOOD}\n",
        f"<think>Perhaps {{both}} pass?</think>\n{GOOD}",
        GOOD.replace("}}", "},}"),
        GOOD.replace("true", '"yes"').replace("false", '"No."'),
        GOOD.replace("true", "True").replace("false", "False"),
        GOOD.replace("true", '"PASS"').replace("false", '"**fail**"'),
        GOOD.replace('"pass"', '"passed"').replace('"why"', '"reason"'),
        GOOD.replace('"logic"', '"Logic "').replace('"format"', '"FORMAT"'),
        GOOD.replace('"pass": false', '"pass": false, "fail": true'),
        f'{{"verdict": {GOOD}}}',
        f"[{GOOD}]",
        GOOD[:-1] + ', "overall": {"why": "", "pass": false}}',
        GOOD.replace('"', "“", 0).replace("{", "{ \n"),
        GOOD.replace("'", "").replace('"', "'"),
    ],
)
def test_forms_that_say_the_same(text: str) -> None:
    read_ = verdict(text)
    assert (read_.passed, read_.dimensions, read_.error) == (False, {"logic": True, "format": False}, None)
    assert read_.rationale == {"logic": "sums agree", "format": "a result is missing"}
    assert read_.reply_key == "k"
    assert [(issue.code, issue.where, issue.detail) for issue in read_.issues] == [
        (Code.JUDGED_BAD, "format", "a result is missing")
    ]


def test_bare_booleans_are_a_verdict_without_a_reason() -> None:
    read_ = verdict('{"logic": true, "format": "pass"}')
    assert (read_.passed, read_.rationale) == (True, {})


@pytest.mark.parametrize(
    "value", [7, 1, 0, 1.0, None, "maybe", "n/a", "", [], [True], {}, "true or false", "not passed"]
)
def test_what_is_not_yes_or_no_is_an_error(value: object) -> None:
    read_ = verdict(json.dumps({"logic": {"pass": value, "why": "x"}, "format": {"pass": True, "why": "y"}}))
    assert (read_.passed, read_.error) == (None, Code.UNPARSABLE)
    assert read_.dimensions == {"logic": None, "format": True}
    assert "logic" in read_.detail
    assert read_.issues == []


@pytest.mark.parametrize(
    "text",
    [
        '{"logic": {"why": "x", "pass": true}}',  # a dimension is missing
        '{"logic": {"why": "x"}, "format": {"pass": true}}',
        '{"logic": {"pass": true}, "logic": {"pass": false}, "format": {"pass": true}}',
        '{"logic": {"pass": true, "pass": false}, "format": {"pass": true}}',
        '{"logic": {"pass": true}, "logic": {"pass": false}, "format": {"pass": true},}',  # the same, to be repaired
        '{"logic": {"pass": true}, "Logic": {"pass": false}, "format": {"pass": true}}',
        '{"logic": {"pass": true, "verdict": "fail"}, "format": {"pass": true}}',
        '{"logic": {"pass": true, "fail": true}, "format": {"pass": true}}',
        f"{GOOD}\n{GOOD.replace('false', 'true')}",
        f"First I thought {GOOD}, but in fact {GOOD.replace('false', 'true')}",
        f"{GOOD}\nOn second thoughts, format passes.",
        f"{GOOD}\nActually, that is too strict.",
        GOOD[: GOOD.index('"format"')],
        GOOD[:-8],
        "Logic passes, format fails.",
        "true",
        "7",
        "null",
        "[]",
        '"pass"',
        f"<think>{GOOD}",
        "{" * 5_000,
        "[" * 100_000,
    ],
)
def test_what_has_no_or_two_readings_is_an_error(text: str) -> None:
    read_ = verdict(text)
    assert (read_.passed, read_.error) == (None, Code.UNPARSABLE)
    assert set(read_.dimensions) == set(NAMES)


def test_what_became_of_the_reply_comes_before_what_it_says() -> None:
    assert read_verdict(Reply(text=GOOD, finish="length"), NAMES).error is Code.TRUNCATED
    assert read_verdict(Reply(text=GOOD, finish="content_filter"), NAMES).error is Code.CONTENT_FILTER
    assert read_verdict(Reply(text=" \n", reasoning=GOOD), NAMES).error is Code.EMPTY_REPLY
    assert verdict("I'm sorry, but I can't help with that.").error is Code.REFUSAL


def votes(*sides: str) -> list[Verdict]:
    """`+` passes, `-` fails, `?` is unreadable."""
    texts = {
        "+": '{"logic": {"why": "fine", "pass": true}}',
        "-": '{"logic": {"why": "wrong", "pass": false}}',
        "?": "?",
    }
    return [read_verdict(Reply(text=texts[side]), ["logic"], key=str(i)) for i, side in enumerate(sides)]


@pytest.mark.parametrize(
    ("cast", "passed"),
    [("+++", True), ("++-", True), ("+--", False), ("++?", True), ("--?", False), ("+-?", None), ("+??", None)],
)
def test_the_majority_of_all_votes_decides(cast: str, passed: bool | None) -> None:
    together = combine_votes(votes(*cast), ["logic"])
    assert (together.passed, together.error) == (passed, None if passed is not None else Code.UNPARSABLE)
    assert [vote.reply_key for vote in together.votes] == ["0", "1", "2"]
    assert together.rationale.get("logic") == {True: "fine", False: "wrong", None: None}[passed]


def test_a_single_vote_is_the_verdict_itself() -> None:
    (vote,) = votes("+")
    assert combine_votes([vote], ["logic"]) is vote
