"""Split an episode of a task with goals into the turns of the goals."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from simia.task import Goal
from simia.trajectory import End, Message, Perturbation, Trajectory

ANSWERS = "user_answers"  # key of the evidence: indices of the user's messages that open no goal


def split_turns(trajectory: Trajectory, goals: Sequence[Goal]) -> Iterator[tuple[Goal, Trajectory | None]]:
    """Yield each goal with the messages and the evidence of its turn, or None if the episode ended before it."""
    whole, evidence = trajectory.messages, trajectory.evidence or {}
    turns: list[dict[str, Any]] = evidence.get("turns") or []
    starts = [*list_goal_starts(whole, evidence.get(ANSWERS) or ()), len(whole)]
    for number, goal in enumerate(goals):
        if number >= len(starts) - 1:
            yield goal, None
            continue
        start, end = starts[number : number + 2]
        own = {**(turns[number] if number < len(turns) else {}), "before": whole[:start]}
        ending = trajectory.end if end == len(whole) else End()
        events = [move_event(event, -start) for event in trajectory.perturbations]
        update = {"messages": whole[start:end], "evidence": own, "end": ending, "perturbations": events}
        yield goal, trajectory.model_copy(update=update)


def move_event(event: Perturbation, by: int) -> Perturbation:
    """Return the event with other indices of its messages."""
    refused = [at + by for at in event.detail.get("refused", [])]
    detail = {**event.detail, "refused": refused} if refused else event.detail
    return event.model_copy(update={"message": event.message + by, "detail": detail})


def list_goal_starts(messages: Sequence[Message], answers: Collection[int]) -> list[int]:
    """Indices of the user's messages that open a goal: all of its messages but `answers`."""
    return [at for at, m in enumerate(messages) if m.role == "user" and not m.calls and at not in answers]
