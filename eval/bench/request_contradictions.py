"""Read a rendered request and its seed, and name the contradictions in it.

This module does not use the planner: it reads the text with patterns. The rules follow from the seed's policy, the schemas of its
tools, and the calls that all seeds make before a tool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from simia.trajectory import Trajectory

LENGTH = re.compile(r"(?:about |\()(\d+) messages")
CALLS = re.compile(r"Calls(?:, in whatever order fits)?: ([^\s,.]+(?:\.[a-z_]+)?(?:, [^\s,]+?)*)\.(?=\s|$)")
MAY_NEED = re.compile(r"may well need: ([^\n]+?)\.\n|may well need: ([^\n]+?)\.$")
LEFT_OUT = re.compile(r"the user wants what (\S+) does(; the policy|, and withdraws)")
VALUES = re.compile(r"^Values: (.+)\.$", re.M)
VALUE = re.compile(r"(?:^|, )([a-z_]\w*) ")
WRITE = re.compile(r"(?:^|\.)(?:cancel|modify|return|exchange|update|book|send|change|remove|add|apply|create|delete|move|set|append|reply|forward|rename|sort|copy|replace|save|request|write)(?:_|$)", re.I)  # fmt: skip
IDENTIFIES = ("find_user_id_by_email", "find_user_id_by_name_zip")
NEEDS_NO_USER = ("calculate", "list_all_product_types", "get_product_details", "transfer_to_human_agents", *IDENTIFIES)
ONE_CALL = re.compile(r"one tool call at a time", re.I)
CONSENT = re.compile(r"explicit|wait for a(?:n explicit)? yes|明确同意|yes first", re.I)
LIMITS = re.compile(r"\b(?:only|cannot|never|not|must)\b|不能|只能|不得|必须")
RULES = re.compile(r"\brules?\b|\bpolicy\b|not allowed|forbid|refusal")
NO_CHANGE = re.compile(
    r"nothing is changed|withdraws the wish before the change|rather keep things as they are|only wants information"
)
CHANGE = re.compile(r"[Tt]he change succeeds|yes at once when asked to confirm|summary of what was done")
ONE_TURN = re.compile(r"made in one turn")
TWO_GOALS = re.compile(
    r"two wishes|one more thing|second item|smaller instead|other part is done|asks for one thing more"
)
ASKED = re.compile(r"left out a detail")
COMPLETE = re.compile(r"all details at once|precise to a fault")
FORGETS = re.compile(
    r"forgets a needed|does not know all the details|is missing at first|first wish is ambiguous|is vague"
)
FAILS = re.compile(
    r"answers with an error|finds nothing; a second|gives a wrong identifier|(?:command|action) fails once"
)
REPEATS = re.compile(r"same tool is needed twice|second item|more than one record")
STEPS = re.compile(r"several steps|argument of the next call")
DIALOGUE = re.compile(
    r"at every turn|next turn|picks one|asked to confirm|when asked|comes back with it|asks twice|asks the same thing again|follow-up"
)
CASED = re.compile(r"no capitals|letter-case")


@dataclass(slots=True)
class Request:
    """The content of a request. `calls`: in order; `story`: its last line, which describes the user and events."""

    text: str
    seed: Trajectory
    group: Sequence[Trajectory]
    length: int = 0
    calls: list[str] = field(default_factory=list)
    not_called: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    goals: int = 0
    story: str = ""

    @property
    def policy(self) -> str:
        return self.seed.system or ""

    @property
    def writes(self) -> list[str]:
        return [name for name in self.calls if WRITE.search(name)]

    @property
    def events(self) -> str:
        """The text about goals and events, without values."""
        return VALUES.sub("", self.text)


def read_request(message: str, seed: Trajectory, group: Sequence[Trajectory]) -> Request:
    """Read the part of a prompt that follows the exemplar."""
    text = message[message.rindex("Write one new conversation") :]
    found = Request(text, seed, group, story=text.splitlines()[-1])
    if length := LENGTH.search(text):
        found.length = int(length[1])
    found.calls = [name for names in CALLS.findall(text) for name in names.split(", ")]
    found.not_called = [name for name, _ in LEFT_OUT.findall(text)]
    found.goals = len(re.findall(r"^Goal \d:", text, re.M))
    if values := VALUES.search(text):
        known = {name for tool in seed.tools for name in tool.parameters.get("properties") or {}}
        found.values = [name for name in VALUE.findall(values[1]) if name in known]
    return found


def names_other_tools(r: Request) -> bool:
    found = MAY_NEED.search(r.text)
    return bool(found and r.calls and set((found[1] or found[2]).split(", ")) != set(r.calls))


def gives_unused_value(r: Request) -> bool:
    """Whether a value is given that no called tool takes. Without named calls, the seed's calls count."""
    called = r.calls or [call.name for _, _, call in r.seed.calls()]
    taken = {name for tool in r.seed.tools if tool.name in called for name in tool.parameters.get("properties") or {}}
    return any(name not in taken for name in r.values)


def is_too_long(r: Request) -> bool:
    """Whether the length is more than calls, goals, changes, questions, left-out calls and five more exchanges can fill, or at least 20
    messages for at most two calls."""
    if not r.length or not r.goals:
        return False
    exchanges = 1 + r.goals + len(set(r.writes)) + len(ASKED.findall(r.text)) + len(r.not_called) + 4
    return r.length > 2 * len(r.calls) + 2 * exchanges or (r.length >= 20 and len(r.calls) <= 2)


def is_too_short(r: Request) -> bool:
    if not r.length or not r.goals:
        return False
    together = len(re.findall(r"In one turn: ", r.text))
    consents = (
        sum(bool(re.search(rf"{WRITE.pattern}", name)) for name in set(r.calls)) if CONSENT.search(r.policy) else 0
    )
    consents = min(consents, r.goals)
    return r.length < 2 + 2 * len(r.calls) - together + 2 * consents * (len(r.seed.messages) > 4) * bool(
        ONE_CALL.search(r.policy)
    )


def skips_identification(r: Request) -> bool:
    """Whether a call about the user comes before the authentication that the policy demands."""
    if "authenticate" not in r.policy or not r.calls:
        return False
    for name in r.calls:
        if name in IDENTIFIES:
            return False
        if name not in NEEDS_NO_USER:
            return True
    return False


def skips_what_all_seeds_do(r: Request) -> bool:
    """Whether a call lacks another call that precedes it in every seed of these tools (at least three seeds)."""
    for at, name in enumerate(r.calls):
        if name in r.calls[:at]:
            continue
        before: set[str] | None = None
        count = 0
        for seed in r.group:
            names = [call.name for _, _, call in seed.calls()]
            if name in names:
                count += 1
                earlier = set(names[: names.index(name)])
                before = earlier if before is None else before & earlier
        done = set(r.calls[:at])
        done |= (
            set(IDENTIFIES) if done & set(IDENTIFIES) else set()
        )  # one way to identify the user is as good as the other
        if count >= 3 and before and not before <= done:
            return True
    return False


CONTRADICTIONS: dict[str, Callable[[Request], bool]] = {
    "one set of tools, then calls of another": names_other_tools,
    "a value that no planned tool takes": gives_unused_value,
    "longer than the plan can fill": is_too_long,
    "shorter than the plan needs": is_too_short,
    "calls without authentication": skips_identification,
    "the user is identified in two ways": lambda r: set(IDENTIFIES) <= set(r.calls),
    "a call without what all seeds do before it": skips_what_all_seeds_do,
    "nothing is changed, and a change is planned": lambda r: bool(NO_CHANGE.search(r.story) and r.writes),
    "a change that no call makes": lambda r: bool(CHANGE.search(r.story) and r.goals and not r.writes),
    "two calls in one turn against the policy": lambda r: bool(
        re.search(r"in one turn", r.text, re.I) and ONE_CALL.search(r.policy)
    ),
    "two look-ups in one turn, and one call": lambda r: bool(ONE_TURN.search(r.story) and len(r.calls) < 2),
    "rules without a policy": lambda r: bool(RULES.search(r.events) and not LIMITS.search(r.policy)),
    "several wishes, and one goal": lambda r: bool(TWO_GOALS.search(r.story) and r.goals < 2),
    "all details given, and one left out": lambda r: bool(COMPLETE.search(r.story) and ASKED.search(r.text)),
    "a detail is missing, and none is planned to be": lambda r: bool(
        FORGETS.search(r.story) and not ASKED.search(r.text)
    ),
    "an error that is not planned": lambda r: bool(
        FAILS.search(r.story) and r.goals and "has returned an error" not in r.text
    ),
    "a refused or withdrawn change is called": lambda r: any(name in r.calls for name in r.not_called),
    "a call twice, and it is planned once": lambda r: bool(
        REPEATS.search(r.story) and r.goals and len(set(r.calls)) == len(r.calls)
    ),
    "steps, and one call": lambda r: bool(STEPS.search(r.story) and r.goals and len(r.calls) < 2),
    "a dialogue where seeds have one user turn": lambda r: bool(
        DIALOGUE.search(r.story) and all(sum(m.role == "user" for m in seed.messages) < 2 for seed in r.group)
    ),
    "letter case in a script without": lambda r: bool(
        CASED.search(r.story) and re.search(r"[\u3040-\u9fff]", r.seed.messages[0].text)
    ),
    "a subject, and calls or values of another": lambda r: "Target: " in r.text and bool(r.calls or r.values),
    "an unknown tool": lambda r: not {*r.calls, *r.not_called} <= {tool.name for tool in r.seed.tools},
}
