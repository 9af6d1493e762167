"""Changes under a policy that wants consent: an assistant message names the change, and the user agrees to it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from simia.errors import Code, Issue
from simia.json_values import iterate_objects
from simia.quality.tool_effects import split_tool_name
from simia.quality.truth.facts import Step, TruthView, iterate_arguments
from simia.quality.truth.policy_rules import read_rule
from simia.quality.truth.quantities import find_quantities
from simia.quality.truth.vocabulary import (
    ACTIONS,
    ASKS,
    DEFERS,
    NO,
    QUESTION,
    REQUEST,
    STRONG_YES,
    YES,
    find_action_words,
)

GO = re.compile(r"\byes\b|\bgo ahead\b|はい|是的|确认", re.I)
KNOWN_SCRIPT = re.compile(r"[A-Za-z\u3040-\u30ff\u4e00-\u9fff]")


# "No, the first one then": another choice, and consent to it.
CHOOSES = re.compile(
    r"\b(?:the (?:first|second|third|other|former|latter|earlier|later|cheaper)|instead|make it)\b|那个|换成|改成|就要|の方|のほう|にして",
    re.I,
)
AGREES = re.compile(
    r"^\W*(?i:fine|al(?:l )?right|good|great|perfect|cool|right|deal|lovely)\b|[改退办订换取发报约]吧|可以|[改退办订换]了?[，。,!！]|就这|お願い|頼み|進めて|ください(?:$|[。、!！])"
)


def find_missing_consent(facts: TruthView) -> Iterator[Issue]:
    """Report a change that the user did not agree to after it was named, where the policy wants that."""
    rule = read_rule(facts.t.system, "consent") if facts.t.system else None
    if rule is None or not (rule.everything or rule.words):
        return
    for step in facts.steps:
        if not step.writes or step.failed or not rule.covers(step.call.name):
            continue
        if not has_consent(facts, step):
            detail = f"{step.call.name} before the change was named and the user agreed"
            yield Issue(code=Code.NO_CONSENT, where=step.where, detail=detail)
            return


def has_consent(facts: TruthView, step: Step) -> bool:
    """Return whether a proposal before the call was followed by the user's agreement. The last word of the user counts."""
    messages = facts.t.messages
    said = [i for i in range(step.place) if messages[i].role == "user"]
    if not said:
        return True
    last = said[-1]
    answer = facts.texts[last]
    if (
        (NO.search(answer) and not CHOOSES.search(answer) and not AGREES.search(answer))
        or (DEFERS.search(answer) and not AGREES.search(answer))
    ) and not STRONG_YES.search(answer):
        return False
    values = [value for _, value in iterate_arguments(step.arguments) if isinstance(value, str) and len(value) > 3]
    if last > 0 and GO.search(answer) and any(value.lower() in facts.view.lows[last] for value in values):
        return True  # "please add a note … yes, go ahead"
    named = [
        k for k in range(last) if messages[k].role == "assistant" and facts.texts[k] and names_change(facts, step, k)
    ]
    asked = next((k for k in range(last - 1, -1, -1) if messages[k].role == "assistant" and facts.texts[k]), None)
    if (
        asked is not None
        and QUESTION.search(facts.texts[asked])
        and not QUESTION.search(answer)
        and any(each.kind in ("amount", "date", "time") for each in find_quantities(facts.texts[asked]))
    ):
        return True  # the question states a price or a day, in words that the tables lack
    # Consent has too many forms to list: an answer that neither asks nor refuses nor puts off is one.
    return any(
        YES.search(facts.texts[i])
        or not is_known(facts.texts[i])
        or REQUEST.search(facts.texts[i])
        or not QUESTION.search(facts.texts[i])
        for k in named
        for i in said
        if i > k
    )


def is_known(text: str) -> bool:
    """Return whether a text is in a script whose words are known."""
    return KNOWN_SCRIPT.search(text) is not None


def names_change(facts: TruthView, step: Step, k: int) -> bool:
    """Return whether an assistant's text proposes the change: it names the action, or a value of it that is no identifier of
    the user, and asks."""
    low = facts.view.lows[k]
    if not is_known(low):
        return True
    if not ASKS.search(low):
        return False
    families = find_families(step.call.name)
    if not families or any(find_action_words(name).search(low) for name in families):
        return True
    values = [value for _, value in iterate_arguments(step.arguments)]
    plain = low.replace("_", " ")
    if any(len(str(value)) > 1 and str(value).lower().replace("_", " ") in plain for value in values):
        return True
    if any(is_row_named(facts, step, value, plain) for step in facts.steps if step.at < k for value in values):
        return True
    named = [each for value in values for each in find_quantities(str(value))]
    if not named:
        return False
    said = {(each.kind == "date", each.dates or each.value) for each in find_quantities(facts.texts[k])}
    return any((each.kind == "date", each.dates or each.value) in said for each in named)


@lru_cache(maxsize=1024)
def find_families(tool: str) -> tuple[str, ...]:
    words = set(split_tool_name(tool))
    return tuple(name for name, action in ACTIONS.items() if words & (action.tools | action.also))


def is_row_named(facts: TruthView, step: Step, value: str | int | float, low: str) -> bool:
    """Return whether a text names the row of a result that has this value: "the 10 GB pack" for its identifier."""
    place = (f"row of {value!r}", step.at)
    words: list[str] | None = facts.kept.get(place)
    if words is None:
        words = facts.kept[place] = list_row_words(step, value) if str(value) in step.text else []
    return any(each in low for each in words)


def list_row_words(step: Step, value: str | int | float) -> list[str]:
    """Return the texts, in lower case, of the rows of a result that have a value."""
    found: list[str] = []
    for held in iterate_objects(step.result):
        if value in held.values():
            found += [each.lower() for each in held.values() if isinstance(each, str) and len(each) > 2]
    return found
