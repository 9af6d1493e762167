"""Check a trajectory by rules: structure, calls against JSON Schemas, leaks, identifiers, size, truth. Nothing is repaired.

The order of the findings is fixed: the first one is the rejection reason that is counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher

from pydantic import Field

from simia.errors import Code, Issue
from simia.quality import refusals
from simia.quality.exact_duplicates import normalize_arguments, normalize_text
from simia.quality.fast_tokens import bound_tokens, estimate_byte_tokens
from simia.quality.grounding import Identifiers, find_ungrounded, infer_identifiers
from simia.quality.language import find_other_language
from simia.quality.leaks import LEAK_MARKERS, find_leaks
from simia.quality.toolset import Toolset
from simia.quality.trajectory_view import TrajectoryView
from simia.quality.truth.truth_checks import TruthChecks, find_untruths
from simia.tool import CompiledSchema, SchemaError
from simia.trajectory import Message, Trajectory

# The markup of a turn in the chat templates of the trained models, and of a call within it.
TURN_TOKENS, CALL_TOKENS = 6, 14
COPIED = 0.9  # share of equal characters from which on a text with the same calls counts as a copy


class Checks(TruthChecks):
    """The checks that a trajectory must pass."""

    max_tokens: int = Field(default=12_000, ge=1)
    """Maximum number of tokens (estimated) of a trajectory with its tools and system text. Set it to the training context."""
    max_messages: int = Field(default=120, ge=2)
    """Maximum number of messages of a trajectory."""
    require_calls: bool = True
    """Reject a trajectory without tool calls."""
    identifiers: bool = True
    """Reject a call with an identifier that does not occur in a message of the user, the system text or an earlier result."""
    refusals: bool = True
    """Reject a trajectory that ends with the assistant declining because it is an AI. Declining because of a policy is allowed."""
    language: bool = True
    """Reject texts in a language that the seed's messages do not use and its system text does not name, and texts in another script where
    a language is not known. Without the extra `languages`, fewer languages of one script are told apart. Tool results are not checked."""
    goals: bool = True
    """Reject a trajectory that certainly misses a goal of its plan (`prompt.scenarios`): a planned call is missing, a refused or withdrawn
    change is made, or a planned error or question does not occur."""
    leak_markers: list[str] = Field(default_factory=lambda: list(LEAK_MARKERS))
    """Texts of the prompt or the format that must not occur in a trajectory, in upper or lower case. Placeholders are always rejected too."""


def check_trajectory(
    t: Trajectory,
    checks: Checks,
    *,
    ids: Identifiers | None = None,
    seed: Trajectory | None = None,
    view: TrajectoryView | None = None,
    truth: bool = True,
) -> list[Issue]:
    """Return all findings. `ids`: the pack's identifiers (default: inferred from the tools). `truth`: also run the enabled truth checks,
    if nothing else was found."""
    view = TrajectoryView(t) if view is None else view
    issues = [*check_structure(t), *check_calls(t, checks), *find_leaks(view, checks.leak_markers)]
    if checks.refusals:
        issues += find_role_break(view)
    if checks.identifiers:
        issues += find_ungrounded(view, infer_identifiers(t.tools) if ids is None else ids)
    if checks.language and seed is not None:
        issues += find_other_language(view, seed)
    issues += check_size(view, checks)
    if seed is not None and is_seed_copy(t, seed):
        issues.append(Issue(code=Code.SEED_COPY, detail="same calls and nearly the same user turns as the seed"))
    if truth and not issues:  # a trajectory that is refused already needs no further reason
        issues = find_untruths(view, checks, seed)
    return issues


def check_structure(t: Trajectory) -> Iterator[Issue]:
    """Check for truncation, the order of roles, pairing of calls and results, the ending, and empty turns."""
    if t.end.kind == "truncated":
        yield Issue(code=Code.TRUNCATED, detail=f"the episode was cut: {t.end.code}" if t.end.code else "")
    turns = [(i, m) for i, m in enumerate(t.messages) if not (i == 0 and m.role == "system")]
    if not turns:
        yield Issue(code=Code.EMPTY_TURN, detail="there are no messages")
        return
    waiting: dict[str, str] = {}
    used: set[str] = set()
    before: Message | None = None
    for i, message in turns:
        if message.role == "tool":
            if message.call_id is None or waiting.pop(message.call_id, None) is None:
                yield Issue(code=Code.UNPAIRED_RESULT, where=f"messages[{i}]", detail="it answers no open call")
            before = message
            continue
        if waiting:
            yield from report_open_calls(waiting)
        if problem := describe_role_error(before, message):
            yield Issue(code=Code.ROLE_ORDER, where=f"messages[{i}]", detail=problem)
        if not message.calls and not message.text.strip():
            yield Issue(code=Code.EMPTY_TURN, where=f"messages[{i}]")
        for j, call in enumerate(message.calls):
            where = f"messages[{i}].calls[{j}]"
            if call.id in used:
                yield Issue(code=Code.UNPAIRED_CALL, where=where, detail=f"id {call.id!r} comes twice")
            used.add(call.id)
            waiting[call.id] = where
        before = message
    yield from report_open_calls(waiting)
    i, last = turns[-1]
    if last.role != "assistant" or last.calls:
        yield Issue(code=Code.BAD_ENDING, where=f"messages[{i}]", detail=f"it ends with {describe_turn(last)}")


def report_open_calls(waiting: dict[str, str]) -> Iterator[Issue]:
    for where in waiting.values():
        yield Issue(code=Code.UNPAIRED_CALL, where=where, detail="no result follows at once")
    waiting.clear()


def describe_role_error(before: Message | None, message: Message) -> str | None:
    if message.role == "system":
        return "a system turn within the conversation"
    if message.calls and message.role != "assistant":
        return "only the assistant calls tools"
    if before is None:
        return None if message.role == "user" else f"it starts with {describe_turn(message)}"
    if message.role == "user":
        return None if before.role == "assistant" and not before.calls else f"a user turn after {describe_turn(before)}"
    fine = before.role in ("user", "tool") or (before.role == "assistant" and before.calls)
    return None if fine else f"{describe_turn(message)} after {describe_turn(before)}"


def describe_turn(message: Message) -> str:
    names = {"user": "a user turn", "tool": "a tool result", "system": "a system turn"}
    return names.get(message.role) or ("an assistant turn with calls" if message.calls else "an assistant text")


def check_calls(t: Trajectory, checks: Checks) -> Iterator[Issue]:
    """Check that every call names a listed tool and satisfies its schema, enums and nested objects included."""
    schemas = Toolset.of(t).schemas
    called = False
    for i, j, call in t.calls():
        called = True
        schema = schemas.get(call.name)
        if isinstance(schema, CompiledSchema) and call.arguments is not None and schema.valid(call.arguments):
            continue
        where = f"messages[{i}].calls[{j}]"
        if schema is None:
            yield Issue(code=Code.UNKNOWN_TOOL, where=where, detail=f"no tool {call.name[:60]!r}")
        elif call.arguments is None:
            yield Issue(code=Code.UNPARSABLE_ARGUMENTS, where=where, detail=(call.raw or "")[:120])
        elif isinstance(schema, SchemaError):
            yield Issue(code=Code.BAD_TOOLS, where=where, detail=f"{call.name}: {schema}")
        else:
            for path, message in schema.errors(call.arguments):
                detail = f"{call.name}({path}): {message}" if path else f"{call.name}: {message}"
                yield Issue(code=Code.BAD_ARGUMENTS, where=where, detail=detail[:300])
    if checks.require_calls and not called:
        yield Issue(code=Code.NO_TOOL_USE)


def find_role_break(view: TrajectoryView) -> list[Issue]:
    """Find an ending in which the assistant declines because it is a machine."""
    if not view.t.messages or view.t.messages[-1].role != "assistant":
        return []
    found = refusals.find_role_break(view.texts[-1])
    where = f"messages[{len(view.t.messages) - 1}]"
    return [Issue(code=Code.REFUSAL, where=where, detail=found[:120])] if found else []


def check_size(view: TrajectoryView, checks: Checks) -> Iterator[Issue]:
    messages = len(view.t.messages)
    if messages > checks.max_messages:
        detail = f"{messages} messages, at most {checks.max_messages}"
        yield Issue(code=Code.OVER_BUDGET, detail=detail)
    tokens = estimate_view_tokens(view, enough=checks.max_tokens)
    if tokens > checks.max_tokens:
        yield Issue(code=Code.OVER_BUDGET, detail=f"{tokens} tokens, at most {checks.max_tokens}")


def estimate_trajectory_tokens(t: Trajectory) -> int:
    """Estimate the tokens of the trajectory in training, a little too high."""
    return estimate_view_tokens(TrajectoryView(t))


def estimate_view_tokens(view: TrajectoryView, *, enough: int = 0) -> int:
    """Estimate tokens; a total that is surely below `enough` may be returned as an upper bound, which costs less."""
    t = view.t
    markup = Toolset.of(t).tokens + CALL_TOKENS * len(t.tools) + TURN_TOKENS * len(t.messages)
    raw = view.raw
    for message in t.messages:
        markup += CALL_TOKENS * len(message.calls)
        if message.reasoning:
            markup += TURN_TOKENS
            raw += message.reasoning.encode()
    most = markup + bound_tokens(raw)
    return most if most < enough else markup + estimate_byte_tokens(raw)


def is_seed_copy(t: Trajectory, seed: Trajectory) -> bool:
    """Return whether user turns and calls are the same as the seed's, but for a few characters of the texts. The assistant's
    texts may differ."""
    texts, seed_texts = ([message.text for message in each.messages if message.role == "user"] for each in (t, seed))
    if len(texts) != len(seed_texts):
        return False  # the most frequent case, and the cheapest to detect
    calls, seed_calls = ([call for _, _, call in each.calls()] for each in (t, seed))
    return (
        [call.name for call in calls] == [call.name for call in seed_calls]
        and all(
            normalize_arguments(call.arguments) == normalize_arguments(other.arguments)
            for call, other in zip(calls, seed_calls, strict=True)
        )
        and is_copied(normalize_text("\n".join(texts)), normalize_text("\n".join(seed_texts)))
    )


def is_copied(text: str, original: str) -> bool:
    """Return whether a text is another one with at most a tenth of its characters changed."""
    if text == original:
        return True
    matcher = SequenceMatcher(None, text, original, autojunk=False)
    return matcher.real_quick_ratio() >= COPIED and matcher.quick_ratio() >= COPIED and matcher.ratio() >= COPIED
