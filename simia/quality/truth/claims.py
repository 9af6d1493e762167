"""Actions that the assistant says it did: each has a successful call."""

from __future__ import annotations

import re
from collections.abc import Iterator

from simia.errors import Code, Issue
from simia.quality.tool_effects import split_tool_name
from simia.quality.truth.facts import Step, TruthView, classify_tools
from simia.quality.truth.identifiers import CODE, is_code, make_shape
from simia.quality.truth.vocabulary import (
    ACTIONS,
    ALSO,
    ASKS,
    CJK_AFTER_NOT,
    CJK_DONE,
    CJK_NOT,
    CJK_NOT_DONE,
    CLAIMS_IN_CJK,
    DONE,
    DONE_AT_START,
    DONE_LEADS,
    GENERIC_DONE,
    NO,
    NOT_DONE,
    PLAIN_ACTIONS,
    STARTS,
    YES,
    find_action_words,
)

PARTICIPLES = {name: re.compile(rf"(?:{action.done})") for name, action in ACTIONS.items()}
STEMS = {name: re.compile(action.cjk) for name, action in ACTIONS.items()}
LATE = re.compile(r"\b(?:delayed|postponed|late)\b")
HUMBLE = ("いたしました", "致しました")
# What was done before the conversation, and texts that an assistant writes without a call.
EARLIER = re.compile(
    r"(?:先日|前回|昨日|先ほど|先程|以前|当時|文面|文案|文章|下書き|案を|一覧|リスト|表を)[^。！？\n]*$"
)
NOTHING = re.compile(r"\s*(?:nothing|none|no\b|neither)")
IN_RESULT = {
    name: re.compile(rf"(?:{action.done}|{action.verbs}|{action.cjk})", re.I) for name, action in ACTIONS.items()
}


def find_claimed_actions(facts: TruthView) -> Iterator[Issue]:
    """Report an action that an answer claims and that no successful call before it did."""
    for i in facts.answers:
        text, low = facts.texts[i], facts.view.lows[i]
        wrote = any(step.at == i - 1 and step.writes and not step.failed for step in facts.steps)
        for n, (actions, at, end, passive) in enumerate(iterate_claims(text, low)):
            is_also = ALSO.search(text[at:end]) is not None
            if n == 0 and wrote and not is_also and STRICT.isdisjoint(actions):
                continue  # what the call just did, in other words
            is_action = is_tool_of(facts, actions) or (not passive and not PLAIN_ACTIONS.isdisjoint(actions))
            is_action = is_action or is_humble_claim(facts, i, actions, at, end)
            if is_action and not is_supported(facts, i, actions, passive, is_also):
                yield make_claim_issue(i, text[max(0, at - 10) : end + 30].strip())
                return
            if not passive and (other := find_unsupported_entity(facts, i, actions, text, at)):
                yield make_claim_issue(i, f"{'/'.join(actions)} {other}")
                return
        if find_generic_claim(facts, i, low):
            yield make_claim_issue(i, text[:60])
            return


def is_humble_claim(facts: TruthView, i: int, actions: list[str], at: int, end: int) -> bool:
    """Return whether a Japanese text says in the humble form (いたしました: the speaker did it) that it did one of the actions, although
    no call before changed anything. Which actions a call alone can do is seen from the policy and from the tools' descriptions."""
    text = facts.texts[i]
    if not text[at:end].endswith(HUMBLE) or EARLIER.search(text[max(0, at - 24) : end]):
        return False
    if any(step.at < i and not step.failed and step.writes is not False for step in facts.steps):
        return False
    described = "\n".join(tool.description for tool in facts.t.tools)
    places = {"update": facts.policy, "move": facts.policy, "create": described}
    return any(
        action in PLAIN_ACTIONS or (action in places and STEMS[action].search(places[action])) for action in actions
    )


def make_claim_issue(i: int, claim: str) -> Issue:
    return Issue(code=Code.CLAIMED_ACTION, where=f"messages[{i}]", detail=f"no successful call did it: {claim[:80]!r}")


def iterate_claims(text: str, low: str) -> Iterator[tuple[list[str], int, int, bool]]:
    """Yield (actions that the words can mean, start, end, passive)."""
    if low.isascii() or any(map(low.__contains__, (" the ", " is ", " i"))):
        done = DONE.finditer(low) if any(map(low.__contains__, DONE_LEADS)) else ()
        for match in (*done, *match_starts(low)):
            end = match.end("verb")
            sentence = low[max(low.rfind(mark, 0, match.start()) for mark in ".!?\n") + 1 : match.start()]
            rest = re.match(r"[^.!?\n]*\?", low[end:])
            if (
                NOTHING.match(low, end)
                or NOT_DONE.search(sentence)
                or rest
                or " already " in low[match.start() : end]
                or is_quoted(text, match.start())
                or is_timetable(match, low, sentence)
            ):
                continue
            who = match["who"] or ""
            names = [name for name, words in PARTICIPLES.items() if words.fullmatch(match["verb"])]
            is_passive = "be" in who or who.startswith(("is", "are")) or is_listed_state(match, low)
            yield names, match.start(), end, is_passive
    if text.isascii():
        return
    if not any(map(text.__contains__, CLAIMS_IN_CJK)):
        return
    for match in CJK_DONE.finditer(text):
        at = next(match.start(name) for name in ("a", "b", "c") if match[name])
        before, after = text[max(0, match.start() - 16) : match.start()], text[match.end() : match.end() + 14]
        if (
            CJK_NOT.search(match[0])
            or CJK_NOT_DONE.search(before)
            or CJK_AFTER_NOT.search(after)
            or is_quoted(text, match.start())
        ):
            continue
        yield [name for name, words in STEMS.items() if words.match(text, at)], max(0, at - 3), match.end(), True


def match_starts(low: str) -> Iterator[re.Match[str]]:
    """Yield the participles at the start of a sentence, label or line that claim an action: with "done" before them, or with an
    object or nothing after them. Others are labels and adjectives."""
    for start in STARTS.finditer(low):
        match = DONE_AT_START.match(low, start.end())
        if match and (match["sure"] or match["object"] or match["ends"] is not None):
            yield match


def is_timetable(match: re.Match[str], low: str, sentence: str) -> bool:
    """Return whether a text says when something leaves or starts by its timetable: "is delayed and is now scheduled to leave at 12:10"."""
    if match["verb"] != "scheduled" or not match["who"].startswith(("is", "are")):
        return False
    return LATE.search(sentence) is not None or re.match(r" to [a-z]", low[match.end() :]) is not None


def is_listed_state(match: re.Match[str], low: str) -> bool:
    """Return whether a participle stands alone after a label or as an item of a list: "Status: cancelled"."""
    if "sure" not in match.re.groupindex or match["sure"] or match["object"]:
        return False
    return low.endswith((": ", "- ", "* "), 0, match.start())


def is_quoted(text: str, at: int) -> bool:
    """Return whether a place is in a quotation, or in the draft of a message that the user is asked about."""
    before = text[:at]
    if before.count('"') % 2 or before.count("“") > before.count("”") or before.count("「") > before.count("」"):
        return True
    return text.rstrip()[-1:] in "?？" and ("\n" in before or ":" in before)


def is_tool_of(facts: TruthView, actions: list[str]) -> bool:
    """Return whether the toolset has a tool for the claimed action."""
    names = [name for name, writes in classify_tools(facts.t.tools).items() if writes is not False]
    return any(not ACTIONS[action].tools.isdisjoint(split_tool_name(name)) for name in names for action in actions)


def is_supported(facts: TruthView, i: int, actions: list[str], passive: bool, is_also: bool) -> bool:
    """Return whether a successful call before message i does one of the actions, or a passive claim repeats what was given.

    `is_also`: a second action is claimed, so that another tool's call is no support where the toolset has one for it.
    """
    own = {action for action in actions if is_tool_of(facts, [action])}
    for step in facts.steps:
        if step.at < i and not step.failed and does(step, actions, own if is_also else own & STRICT):
            return True
    if not passive or is_also:
        return False
    # "has been shipped": what a look-up, the user or the policy said is no claim of an action.
    return any(
        IN_RESULT[action].search(text)
        for action in actions
        for at, text in facts.sources_before(i)
        if facts.t.messages[at].role == "tool"
    )


STRICT = frozenset(("send", "delete"))


def does(step: Step, actions: list[str], strict: set[str]) -> bool:
    """Return whether a call does one of the actions. `strict`: those that only their own tools do."""
    words = set(split_tool_name(step.call.name))
    if step.writes is not True:
        return step.writes is None
    for action in actions:
        if words & ACTIONS[action].tools:
            return True
        if step.writes and (
            IN_RESULT[action].search(step.text) or (action not in strict and words & ACTIONS[action].also)
        ):
            return True
    return False


def find_unsupported_entity(facts: TruthView, i: int, actions: list[str], text: str, at: int) -> str | None:
    """Find an identifier in the claim's clause that no call of the claimed kind had, although it has the shape of theirs."""
    done = [
        step
        for step in facts.steps
        if step.at < i
        and not step.failed
        and step.writes
        and set(split_tool_name(step.call.name)) & set().union(*(ACTIONS[a].tools for a in actions))
    ]
    if not done:
        return None
    said = "\n".join(str(step.arguments) + step.text for step in done).lower()
    shapes = {
        make_shape(str(value))
        for step in done
        for value in step.arguments.values()
        if isinstance(value, str) and is_code(value)
    }
    clause = re.match(r"[^.!?;:,。！？，；：\n]*", text[at:])
    for match in CODE.finditer(clause[0]) if clause else ():
        token = match[0]
        if is_code(token) and make_shape(token) in shapes and token.lower() not in said:
            return token
    return None


def find_generic_claim(facts: TruthView, i: int, low: str) -> bool:
    """Return whether the text says "done" right after the user agreed to a proposal, without any call since."""
    if i < 2 or facts.t.messages[i - 1].role != "user" or facts.t.messages[i - 2].role != "assistant":
        return False
    answer, asked = facts.texts[i - 1], facts.view.lows[i - 2]
    if not ASKS.search(asked) or NO.search(answer) or not YES.search(answer):
        return False
    return GENERIC_DONE.search(low) is not None and any(
        find_action_words(name).search(asked) and is_tool_of(facts, [name]) for name in ACTIONS
    )
