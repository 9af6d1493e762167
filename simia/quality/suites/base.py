"""A suite: the rules and targets of an environment family, for prompts and checks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from simia import formats, search_path
from simia.errors import Code, Issue
from simia.formats.llamafactory import UntrainableError
from simia.prompts import read_lines
from simia.trajectory import Message, ToolCall, Trajectory

Check = Callable[[Trajectory, Trajectory | None], Iterator[Issue]]
Hint = Callable[[Trajectory, int], str]


def find_nothing(t: Trajectory, seed: Trajectory | None) -> Iterator[Issue]:
    yield from ()


def give_no_hint(seed: Trajectory, number: int) -> str:
    return ""


def explain_nothing(target: str) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Suite:
    """One environment family of the paper, or the generic one.

    `dialect`: the dialect that its data is written in for training. `find_violations`: (trajectory, its seed or None) →
    violations of the suite's own rules. `hint`: (seed, the item's number) → a line with the item's subject, or "".
    `explain`: what a prompt says about a target besides the target itself. `reasoned`: a thought stands before every call, and is trained. `more_files`: prompt files that the hints are read from.
    """

    name: str
    dialect: str = "apigen"
    find_violations: Check = find_nothing
    hint: Hint = give_no_hint
    explain: Callable[[str], str] = explain_nothing
    reasoned: bool = False
    more_files: tuple[str, ...] = ()

    @property
    def rules(self) -> str:
        """The prompt file with the suite's rules, for the static part of the synthesis prompt."""
        return f"suites/{self.name}.md"

    @property
    def files(self) -> tuple[str, ...]:
        """All prompt files of the suite."""
        return (self.rules, *self.more_files)

    @property
    def rules_text(self) -> str:
        return search_path.find_resource("prompts", self.rules).read_text(encoding="utf-8").strip()

    def check(self, t: Trajectory, seed: Trajectory | None, *, reasoning: bool = True) -> Iterator[Issue]:
        """Check the suite's rules; `simia.quality.check` checks the general ones. `reasoning`: thoughts were asked for."""
        if self.dialect != "apigen":  # a text form: it writes one call a turn, and not every trajectory
            yield from check_single_calls(t)
            try:
                formats.get(self.dialect).write(t)
            except UntrainableError as unfit:
                yield make_suite_issue(unfit.issue.where, unfit.issue.detail)
        if self.reasoned and reasoning and seed is not None and any(m.reasoning for m in seed.messages):
            yield from check_thoughts(t)
        yield from self.find_violations(t, seed)


def make_suite_issue(where: str, detail: str) -> Issue:
    return Issue(code=Code.BREAKS_SUITE, where=where, detail=detail[:300])


def make_target_hint(name: str) -> Hint:
    """Make hints from a file with one target a line, used in turn so that each occurs equally often."""

    def hint(seed: Trajectory, number: int) -> str:
        lines = read_lines(name)
        return f"Target: {lines[number % len(lines)]}."

    return hint


def check_thoughts(t: Trajectory) -> Iterator[Issue]:
    """Check that a thought stands before every call."""
    for i, message in enumerate(t.messages):
        if message.calls and not (message.reasoning or "").strip():
            yield make_suite_issue(
                f"messages[{i}]", "a call without the short thought (`reasoning`) that stands before each"
            )


def check_single_calls(t: Trajectory, *, text: bool = False) -> Iterator[Issue]:
    """Check for one call per turn. `text`: a turn may contain text besides its call."""
    for i, message in enumerate(t.messages):
        if len(message.calls) > 1:
            yield make_suite_issue(f"messages[{i}]", f"{len(message.calls)} calls in one turn, where one is allowed")
        if message.calls and message.text.strip() and not text:
            yield make_suite_issue(f"messages[{i}]", "text beside a call, where a turn holds one or the other")


@dataclass(frozen=True, slots=True)
class CallStep:
    """One call with its result. `at`: index of its message."""

    at: int
    where: str
    call: ToolCall
    result: Message | None

    @property
    def arguments(self) -> dict[str, Any]:
        return self.call.arguments or {}


def iterate_steps(t: Trajectory) -> Iterator[CallStep]:
    results = {message.call_id: message for message in t.messages if message.role == "tool"}
    for i, j, call in t.calls():
        yield CallStep(i, f"messages[{i}].calls[{j}]", call, results.get(call.id))


def parse_object(message: Message | None) -> dict[str, Any]:
    """Parse a tool's result as a JSON object; empty if it is none."""
    if message is None:
        return {}
    try:
        value = json.loads(message.text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def is_failure(message: Message | None) -> bool:
    """Return whether the tool refused; then it changed nothing and broke no rule."""
    if message is None or message.error is not None:
        return True
    text = message.text.strip().lower()
    return text.startswith(("error", '"error', "failed")) or "error" in parse_object(message)
