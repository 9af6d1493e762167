"""Stage `problems`: solutions in one form, executed, and compared with the original; wrong and hostile replies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from simia.synthesis.design import CodingProblem
from simia.synthesis.gyms.function_runs import FunctionLimits
from simia.synthesis.gyms.problem_files import SourceProblem, read_problem
from simia.synthesis.reasons import Refused, Unreadable
from simia.synthesis.reply_reading import read_python
from simia.synthesis.stages.problems import ProblemStage
from tests.synthesis.closest_gym import CLOSEST, INPUTS, ReplyContext, read_reply

ORIGINAL = "def count_vowels(text):\n    return sum(c in 'aeiou' for c in text.lower())\n"
TESTS = """\
from solution import count_vowels

def test_some():
    assert count_vowels("Aha") == 2
    assert count_vowels("sky") == 0
"""


def make(source: SourceProblem, context: ReplyContext, repairs: int = 3) -> CodingProblem:
    stage = ProblemStage([source], FunctionLimits(seconds=1), repairs=repairs)
    (given,) = stage.list_inputs(None)  # type: ignore[arg-type]
    return CodingProblem.model_validate(asyncio.run(stage.make(given, context)))


def vowels(**more: Any) -> SourceProblem:
    row = {"id": "vowels", "question": "Count the vowels.", "solution": ORIGINAL, "test": TESTS, **more}
    return read_problem(row, "p.jsonl:1", 1, "MIT")


def refuse(reply: str, **more: Any) -> Refused:
    with pytest.raises(Refused) as found:
        make(vowels(**more), ReplyContext({"draft": read_reply(reply)}), repairs=0)
    return found.value


def test_a_problem_is_unified_executed_and_compared_with_the_original() -> None:
    context = ReplyContext({"draft": read_reply("vowels_unified")})
    problem = make(vowels(), context)
    assert [(each.inputs["text"], each.answer) for each in problem.examples] == [
        ("oh", 1), ("Tea at five", 5), ("queueing outside", 9),
    ]  # fmt: skip
    assert problem.inputs["properties"]["text"] == {
        "type": "string", "description": "Letters and spaces, 1 to 200 characters",
    }  # fmt: skip
    assert "EXAMPLES" not in problem.solution
    assert problem.licence == "MIT"
    assert context.notes == {"asked": True, "compared": 5, "repairs": 0}  # 3 examples, 2 calls of its tests
    assert "def test_some" in context.prompts["draft"]


def test_a_row_in_the_unified_form_asks_nothing() -> None:
    row = {"id": "closest", "statement": "Find it.", "solution": CLOSEST, "examples": INPUTS}
    context = ReplyContext({})
    problem = make(read_problem(row, "p.jsonl:1", 1, None), context)
    assert [each.answer for each in problem.examples] == [3, 8, 33]
    assert context.prompts == {}
    assert context.notes["asked"] is False


@pytest.mark.parametrize(
    ("reply", "reason", "words"),
    [
        ("wrong_unified_differs", "solution_differs", "the original returns"),
        ("wrong_unified_null", "unified_fails", "returns null"),
        ("hostile_unified_network", "unified_fails", "import urllib.request"),
        ("hostile_unified_endless", "unified_fails", "timed_out"),
        ("hostile_unified_random", "unified_fails", "two different answers"),
    ],
)
def test_a_faulty_solution_is_refused(reply: str, reason: str, words: str) -> None:
    refused = refuse(reply)
    assert (str(refused.reason), words in refused.detail) == (reason, True), refused


def test_examples_must_fit_the_types() -> None:
    with pytest.raises(Unreadable, match="example 1 does not fit"):
        make(vowels(), ReplyContext({"draft": read_reply("wrong_unified_examples")}))


def test_a_fault_is_shown_and_repaired() -> None:
    replies = {"draft": read_reply("wrong_unified_differs"), "repair1": read_reply("vowels_unified")}
    context = ReplyContext(replies)
    assert make(vowels(), context).examples[0].answer == 1
    assert "the original returns" in context.prompts["repair1"]
    assert "aeiouy" in context.prompts["repair1"]
    assert context.notes["repairs"] == 1


@pytest.mark.parametrize(
    ("solution", "tests", "compared", "why"),
    [
        (
            "class Solution:\n    def vowels(self, text):\n        return sum(c in 'aeiou' for c in text.lower())\n",
            "",
            3,
            "",
        ),
        ("print(sum(c in 'aeiou' for c in input()))\n", "", 0, "no tests that show its form"),
        ("import os\nprint(os.name)\n", "", 0, "the original is not run"),
        ("def f(text, letters):\n    return 0\n", "", 0, "no function of 1 arguments"),
        (ORIGINAL, "import numpy_that_is_missing\n", 3, "its tests cannot be run"),
        (ORIGINAL, "def check(candidate):\n    assert candidate('you') == 2\n", 4, ""),
        (ORIGINAL, "def test_loop():\n    while True:\n        pass\n", 3, ""),
        (ORIGINAL, "def test_wrong():\n    assert count_vowels('a') == 7\n", 4, "test_wrong"),
    ],
)
def test_originals_of_other_forms(solution: str, tests: str, compared: int, why: str) -> None:
    context = ReplyContext({"draft": read_reply("vowels_unified")})
    make(vowels(solution=solution, test=tests), context)
    assert context.notes["compared"] == compared
    assert why in context.notes.get("not_compared", "")


def test_a_row_that_cannot_be_used_is_refused_with_its_line() -> None:
    with pytest.raises(Refused, match=r"bad_problem: p.jsonl:3: it has no solution"):
        make(read_problem({"question": "What?"}, "p.jsonl:3", 3, None), ReplyContext({}))


PROGRAM = "print(sum(c in 'aeiou' for c in input().lower()))\n"


def test_a_program_is_compared_by_what_it_prints() -> None:
    pairs = [{"input": "Aha\n", "output": "2\n"}, {"input": "sky\n", "output": "0\n"}]
    context = ReplyContext({"draft": read_reply("vowels_unified")})
    make(vowels(solution=PROGRAM, test=pairs), context)
    assert (context.notes["compared"], context.notes.get("not_compared")) == (5, None)  # 2 tests, 3 examples
    refused = refuse("wrong_unified_differs", solution=PROGRAM, test=pairs[1:])
    assert (str(refused.reason), "the original prints" in refused.detail) == ("solution_differs", True), refused


@pytest.mark.parametrize(
    ("solution", "pairs", "words"),
    [
        (PROGRAM, [{"input": "2\nAha\nsky\n", "output": "2\n0\n"}], "does not have one line for each input"),
        (PROGRAM, [{"input": "Aha\n", "output": "7\n"}], "for its test 'Aha\\n' the original prints '2'"),
        ("print(input()[9])\n", [{"input": "Aha\n", "output": "2\n"}], "the original fails for the input"),
        ("print('many' if input() else 'none')\n", [{"input": "Aha\n", "output": "many\n"}], "another form"),
    ],
)
def test_a_program_that_cannot_be_compared_says_why(solution: str, pairs: list[Any], words: str) -> None:
    context = ReplyContext({"draft": read_reply("vowels_unified")})
    make(vowels(solution=solution, test=pairs), context)
    assert words in context.notes["not_compared"]


def test_an_original_that_fails_its_own_asserts_is_refused_before_a_question() -> None:
    context = ReplyContext({})
    wrong = f"{ORIGINAL}\nassert count_vowels('Aha') == 2\nassert count_vowels('sky') == 1\n"
    with pytest.raises(
        Refused, match=r"bad_problem: p.jsonl:1: .* fails: line 5 of the solution: assert count_vowels\('sky'\) == 1"
    ):
        make(vowels(solution=wrong), context)
    assert context.prompts == {}
    right = ReplyContext({"draft": read_reply("vowels_unified")})
    make(vowels(solution=wrong.replace("== 1", "== 0")), right)
    assert right.notes["compared"] == 5


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ("I cannot do this.", r"no Python block found .* not Python: invalid syntax \(line 1\)"),
        ("```python\nx = 1\ndef (\n```", r"the code is not Python: invalid syntax \(line 2\)"),
    ],
)
def test_a_reply_without_python_is_named(reply: str, words: str) -> None:
    with pytest.raises(Unreadable, match=words):
        read_python(reply)
