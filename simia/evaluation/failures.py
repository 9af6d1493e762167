"""Attribute an episode without full reward to a party: the agent, the user simulator, the environment or the infrastructure.

Rules decide, without a model. The first that applies determines the party:

1. The episode has no reward: the code of its ending decides. A model that gave no reply, a budget or an error of simia is infrastructure; a
   user simulator without a readable message is user; an agent's function that failed is agent; a task that could not be set up, a lost
   world or a state that could not be judged is environment.
2. A tool of the pack failed, crashed or timed out, rather than refuse a call: environment.
3. The user is a model, and it named an identifier, address or long number that is neither in its task nor in the conversation; or wrote
   calls or results as text; or said the same three times; or more than half of its own calls failed; or it ended the conversation right
   after a question of the agent: user.
4. Everything else: agent. The kind is a limit that it reached, no calls at all, or the first part of the reward that is not full.

A rule reports what is visible in the record. It is no proof: the agent may also have made errors of its own in such an episode.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from simia.errors import Code
from simia.evaluation.scores import PlayedEpisode
from simia.statistics import SUCCESS
from simia.task import Task
from simia.terminal import write_count

Party = Literal["agent", "user", "environment", "infrastructure"]
PARTIES: tuple[Party, ...] = ("agent", "user", "environment", "infrastructure")
ENVIRONMENT = {
    Code.NO_START: "task cannot be set up",
    Code.WORKER_LOST: "world lost",
    Code.REPLAY_DIVERGED: "world not deterministic",
    Code.CONTRADICTION: "simulated world contradicts itself",
    Code.CHECK_TIMEOUT: "check took too long",
    Code.UNSCORED: "state cannot be judged",
    Code.REWARD_FUNCTION: "reward function failed",
}
BROKEN = {Code.TOOL_FAILED, Code.TOOL_CRASHED, Code.TOOL_TIMEOUT}
MALFORMED = {Code.UNKNOWN_TOOL, Code.BAD_ARGUMENTS, Code.UNPARSABLE_ARGUMENTS}
LIMITS = {Code.MAX_TURNS, Code.MAX_CALLS, Code.MAX_TOKENS, Code.RESOURCE_LIMIT}
PARTS = {
    "state": "wrong final state",
    "checklist": "failed check",
    "answer": "wrong or missing answer",
    "trace": "missed or wrong calls",
    "goals": "missed goal",
    "value": "low value",
}
MARKS = re.compile(r"</?tool_(?:call|response)>|^(?:Thought|Action|Observation):", re.M)
FACT = re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+|#?(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{5,}|\d(?:[ .-]?\d){5,}")
REWORDED = re.compile(r"\d{4}-\d\d?-\d\d?|\d\d?[./-]\d\d?[./-]\d{2,4}|\d{1,3}-[a-z]+")
"""A date or a count, such as `2-day`: a user may write the ones of its task in other words, so they are no identifiers."""
CLOSING = re.compile(
    r"\b(?:any|some)thing (?:else|more)\b|\b(?:any|further|other) (?:help|assistance|questions?)\b|\belse (?:I|we) can\b",
    re.I,
)
"""In the last question of an agent that is done; a user may end the conversation without an answer to it."""
REPEATS = 3
EXAMPLES = 3
LONGEST = 160  # characters of a detail


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed episode: the party, the kind of failure, and the line of the record that shows it."""

    item: str
    party: Party
    kind: str
    detail: str


@dataclass(slots=True)
class FailureKind:
    """All failures of one kind. `examples`: the first of them in the order of the plan."""

    party: Party
    kind: str
    count: int = 0
    examples: list[Failure] = field(default_factory=list)


def classify_failures(episodes: Sequence[PlayedEpisode], tasks: Mapping[str, Task]) -> list[Failure]:
    """Classify every episode without full reward. `tasks`: by id, if the packs are available; without its task, no fact counts as invented."""
    return [classify_failure(each, tasks.get(each.task)) for each in episodes if not is_success(each)]


def is_success(episode: PlayedEpisode) -> bool:
    return episode.reward is not None and episode.reward >= SUCCESS


def group_failures(failures: Sequence[Failure]) -> list[FailureKind]:
    """Group failures by party and kind, the most frequent kind of each party first."""
    found: dict[tuple[Party, str], FailureKind] = {}
    for each in failures:
        kind = found.setdefault((each.party, each.kind), FailureKind(each.party, each.kind))
        kind.count += 1
        if len(kind.examples) < EXAMPLES:
            kind.examples.append(each)
    return sorted(found.values(), key=lambda each: (PARTIES.index(each.party), -each.count, each.kind))


def classify_failure(episode: PlayedEpisode, task: Task | None) -> Failure:
    """Classify one episode without full reward, by the rules above."""
    row = episode.row
    found = (
        find_abortion(row)
        if episode.reward is None
        else find_broken_tool(row) or find_user_fault(row, task) or find_agent_fault(row)
    )
    party, kind, detail = found
    return Failure(episode.item, party, kind, " ".join(detail.split())[:LONGEST])


Finding = tuple[Party, str, str]


def find_abortion(row: Mapping[str, Any]) -> Finding:
    """Classify an episode without a reward."""
    reward, end = row.get("reward") or {}, row.get("end") or {}
    code = reward.get("error") or end.get("code") or Code.UNSCORED
    detail = reward.get("rationale") or next((each.get("detail", "") for each in reversed(row.get("issues", []))), "")
    if code == Code.USER_FAILED:
        return "user", "says nothing readable", detail
    if code == Code.AGENT_FAILED:  # in a rollout, only a function of the user's own ends so
        return "agent", "gives no message", detail
    if code in ENVIRONMENT:
        return "environment", ENVIRONMENT[Code(code)], detail
    kind = {Code.BUDGET: "budget reached", Code.INTERNAL: "error of simia"}.get(code, "model not reached")
    return "infrastructure", kind, f"{code}: {detail}"


def find_broken_tool(row: Mapping[str, Any]) -> Finding | None:
    """Find a call on which the tool's own code failed."""
    for message in row.get("messages", []):
        if message.get("error") in BROKEN:
            return "environment", "tool broke", f"{message.get('name')}: {read_message_text(message)}"
    return None


def find_user_fault(row: Mapping[str, Any], task: Task | None) -> Finding | None:
    """Find a visible fault of a user that is a model."""
    if not (row.get("extra") or {}).get("user_model"):
        return None
    messages = row.get("messages", [])
    said = [read_message_text(each) for each in messages if each["role"] == "user" and not each.get("calls")]
    known = describe_known_facts(task) if task is not None else None
    for message in messages:
        text = read_message_text(message)
        if message["role"] == "user" and not message.get("calls"):
            if MARKS.search(text):
                return "user", "writes calls or results as text", text
            if known is not None and (fact := find_new_fact(text, known)):
                return "user", "invents a fact", f"{fact} in: {text}"
        if known is not None:
            known += f"\n{fold(text)}\n{fold(write_calls(message))}"
    repeated = Counter(text for text in said if text).most_common(1)
    if repeated and repeated[0][1] >= REPEATS:
        return "user", "repeats itself", f"{repeated[0][1]} times: {repeated[0][0]}"
    own = [each for each in messages if each["role"] == "tool" and each.get("visible_to") == ["user"]]
    failed = sum(bool(each.get("error")) for each in own)
    if 2 * failed > len(own):
        return "user", "calls its tools wrongly", f"{failed} of {write_count(len(own), 'call')} failed"
    if (row.get("end") or {}).get("code") == Code.USER_STOP:
        last = next((read_message_text(each) for each in reversed(messages) if each["role"] == "assistant"), "")
        unanswered = messages[-1]["role"] != "user" or not read_message_text(messages[-1]).strip()
        if unanswered and asks_more(last):
            return "user", "leaves a question unanswered", last
    return None


def asks_more(text: str) -> bool:
    """Whether an agent's message ends with a question, other than whether anything else is wanted."""
    question = re.split(r"(?<=[.!?])\s+", text.strip())[-1]
    return question.endswith("?") and not CLOSING.search(question)


def describe_known_facts(task: Task) -> str:
    """Describe the facts that the user may know: the whole task without its solution."""
    given = task.model_dump(mode="json", include={"instruction", "opening", "profile", "knows", "withheld"})
    given["goals"] = [goal.query for goal in task.goals]
    return fold(orjson.dumps(given).decode())


def find_new_fact(text: str, known: str) -> str | None:
    """Return the first identifier, address or long number of a text that is not among the known facts; dates and counts are left out."""
    found = (fact for fact in FACT.findall(text) if not REWORDED.fullmatch(fact.rstrip(".")))
    return next((fact for fact in found if fold(fact) not in known), None)


def fold(text: str) -> str:
    """Lower the case and drop spaces, dots, commas, hyphens and `#`, so that all spellings of a number are equal."""
    return re.sub(r"[\s.,\-#]", "", text.lower())


def find_agent_fault(row: Mapping[str, Any]) -> Finding:
    """Classify a scored episode whose failure is the agent's."""
    reward, code = row.get("reward") or {}, (row.get("end") or {}).get("code")
    results = [
        each for each in row.get("messages", []) if each["role"] == "tool" and each.get("visible_to") != ["user"]
    ]
    errors = [each for each in results if each.get("error")]
    if code == Code.MAX_ERRORS:
        return (
            "agent",
            "fails again and again",
            f"{errors[-1].get('name')}: {read_message_text(errors[-1])}" if errors else "",
        )
    if code in LIMITS:
        return "agent", "reaches a limit", Code(code).meaning
    calls = [call for each in row.get("messages", []) if each["role"] == "assistant" for call in each.get("calls", [])]
    if not calls:
        said = [read_message_text(each) for each in row.get("messages", []) if each["role"] == "assistant"]
        return "agent", "calls nothing", said[-1] if said else ""
    if errors and all(each["error"] in MALFORMED for each in errors) and len(errors) == len(calls):
        return "agent", "no call is well-formed", f"{errors[-1].get('name')}: {read_message_text(errors[-1])}"
    for name, value in (reward.get("parts") or {}).items():
        if value < SUCCESS:
            line = next((each for each in reward.get("rationale", "").splitlines() if each.startswith(f"{name}:")), "")
            return "agent", PARTS.get(name.partition(".")[0], name), line.removeprefix(f"{name}:")
    return "agent", "low reward", reward.get("rationale", "")


def read_message_text(message: Mapping[str, Any]) -> str:
    """The text of a stored message."""
    content = message.get("content")
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content)
    return str(content or "")


def write_calls(message: Mapping[str, Any]) -> str:
    calls = message.get("calls")
    return orjson.dumps(calls).decode() if calls else ""


def count_parties(failures: Sequence[Failure]) -> dict[Party, int]:
    """Count the failures of each party, including parties without any."""
    counts: dict[Party, int] = defaultdict(int)
    for each in failures:
        counts[each.party] += 1
    return {party: counts[party] for party in PARTIES}
