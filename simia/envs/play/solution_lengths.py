"""The number of messages that a solution has, and limits of episodes that leave room for it."""

from __future__ import annotations

from collections.abc import Iterable

from simia.envs.episode_limits import NO_LIMITS, EpisodeLimits, combine_limits
from simia.envs.play.baseline_agents import make_solution_messages
from simia.task import CallLimits, Task
from simia.terminal import write_count

FEWEST = 200  # turns and errors that any solution may have
SCRIPTED = ("reference", "following", "repeating")
"""Agents that play the solutions."""


def make_solution_limits(tasks: Iterable[Task]) -> dict[str, int]:
    """Return limits, as the setting `episode` has them, under which the solution of every task can be played to its end."""
    longest = max((max(len(make_solution_messages(task)), len(task.actions)) for task in tasks), default=0)
    return {"turns": max(FEWEST, longest + 1), "errors": max(FEWEST, longest + 1)}


def note_long_solutions(tasks: Iterable[Task], limits: EpisodeLimits, pack: CallLimits = NO_LIMITS) -> str:
    """Say how many solutions have more messages than `limits` allows, and which setting plays them all; empty if each fits. Solutions over a limit
    of their task or of the pack are not counted, since no setting raises that."""
    solved = {task.id: task for task in tasks if task.solved}
    lengths = {id_: len(make_solution_messages(task)) for id_, task in solved.items()}
    unlimited = EpisodeLimits(turns=max(lengths.values(), default=1) or 1)
    long = [
        length
        for id_, length in lengths.items()
        if limits.turns < length <= combine_limits(unlimited, pack, solved[id_].limits).turns
    ]
    if not long:
        return ""
    verbs = ("has", "is") if len(long) == 1 else ("have", "are")
    return (
        f"{len(long):,} of {write_count(len(solved), 'solution')} {verbs[0]} more than {limits.turns} messages and {verbs[1]} "
        f"truncated there; to play all: --set episode.turns={max(long)}"
    )
