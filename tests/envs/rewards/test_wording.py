"""What must be told, in words: spellings of expressions, and the same facts as the rules ask for."""

from __future__ import annotations

import pytest

from simia.envs.rewards.answer import contains_fact
from simia.envs.rewards.wording import describe_answer_part, list_spellings
from simia.pack import Pack
from simia.reward_spec import AnswerSpec


@pytest.mark.parametrize(
    ("expression", "texts"),
    [
        (
            r"(^|[^0-9])0?16(th)?[.]?( of)? [Mm]ay([^a-z]|$)|2025-05-16|(^|[^0-9])0?16[./]0?5([^0-9]|$)",
            ["16 May", "2025-05-16", "16/5"],
        ),
        (r"(30|[Tt]hirty)[ -]min|half an hour", ["30 min", "Thirty min", "half an hour"]),
        (r"[Nn]ew (ceiling )?hook", ["New hook"]),
        (r"2 ?(%|percent)", ["2 %", "2 percent"]),
        (r"(no|not) [^.]{0,90}fiona[.]o", ["no … fiona.o", "not … fiona.o"]),
        (r"\bO-\d+\b", ["O-#"]),
        (r"a.*b", ["a … b"]),
        (r"(?:yes|yeah)!{2,}", ["yes!!", "yeah!!"]),
        (r"1,?240", ["1240"]),
        (r"a(?=b)", ["a(?=b)"]),  # what it cannot read it shows
        (r"a[", ["a["]),
        (r"(a", ["(a"]),
        (r"\pL+", [r"\pL+"]),
        ("", [""]),
    ],
)
def test_an_expression_in_words(expression: str, texts: list[str]) -> None:
    assert list_spellings(expression) == texts


def test_each_way_of_matching_says_what_it_asks_for() -> None:
    def lines(match: str, *expect: str) -> list[str]:
        return describe_answer_part(AnswerSpec.model_validate({"match": match, "expect": expect}))

    assert lines("contains", "12.50", "O-1") == ['"12.50"', '"O-1"']
    assert lines("exact", "yes", "no") == ['as the last words, exactly "yes" or "no"']
    assert lines("number", "75") == ["the number 75"]
    assert lines("regex", "a|b", "c") == ['"a" or "b" (or the same in other words)', '"c" (or the same in other words)']


def test_long_choices_are_cut() -> None:
    assert len(list_spellings("|".join(f"word{n}" for n in range(50)))) == 8
    assert len(list_spellings("(a|b)" * 40)) == 8
    assert list_spellings("((a{99}){99}){99999999}") == ["a" * 200]
    assert list_spellings("(" * 5_000 + "a" + ")" * 5_000) == ["(" * 5_000 + "a" + ")" * 5_000]


@pytest.mark.parametrize("name", ["customer_service", "office"])
def test_what_is_shown_is_what_the_rules_find(name: str) -> None:
    """Each spelling of each expression of our packs passes that very expression, and none shows its signs."""
    seen = 0
    for task in Pack.load(name).tasks:
        for spec in (part for part in task.reward.parts if isinstance(part, AnswerSpec) and part.match == "regex"):
            for expression in spec.expect:
                for text in list_spellings(expression):
                    seen += 1
                    assert not set("[](){}|^$?*\\") & set(text), text
                    said = " " + text.replace(" … ", " ") + " "
                    assert contains_fact(expression, said, spec), (task.id, text)
    assert seen > 25
