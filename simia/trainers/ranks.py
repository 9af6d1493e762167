"""Stop all ranks of a training together, and report a step's episodes without a reward.

If one rank raises alone, the others wait in the trainer's next collective operation, with some launchers for half an hour. So the ranks
exchange errors and results at a point that all of them reach: the end of a batch of episodes. Without ranks this costs nothing. torch is
not imported here: a process with ranks has already imported it.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from simia.envs.environment import Episode
from simia.errors import Code, UserError
from simia.terminal import clean, write_count

T = TypeVar("T")
log = logging.getLogger(__name__)


class Stopped(UserError):  # noqa: N818 - all ranks stop for an error of one
    """An error of one rank, raised on all ranks; the first rank reports it."""


def find_process_group() -> Any:
    """Return torch.distributed if the ranks can communicate; None if not, or without ranks."""
    found = getattr(sys.modules.get("torch"), "distributed", None)
    return found if found is not None and found.is_available() and found.is_initialized() else None


def find_rank() -> int:
    """Return this rank's number; before the ranks can communicate, the launcher's `RANK` (0 if unset)."""
    found = find_process_group()
    return int(found.get_rank() if found is not None else os.environ.get("RANK", "0"))


def gather_values(value: T) -> list[T]:
    """Return every rank's value, in their order. All ranks must call it."""
    found = find_process_group()
    if found is None:
        return [value]
    values: list[Any] = [None] * found.get_world_size()
    found.all_gather_object(values, value)
    return values


def run_on_all_ranks(work: Callable[[], T]) -> T:
    """Run this rank's work and return its result. All ranks must call it, and the work must not wait for other ranks.

    If the work raises on any rank, all ranks raise `Stopped` with the message of the first such rank. An error other than `UserError` is
    raised unchanged on its own rank.
    """
    if find_process_group() is None:
        return work()
    fault: Exception | None = None
    message = None
    try:
        found = work()
    except Exception as error:
        fault = error
        message = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    messages = gather_values(message)
    if fault is not None and not isinstance(fault, UserError):
        raise fault
    for number, each in enumerate(messages):
        if each is not None:
            raise Stopped(each if len(set(messages)) == 1 else f"rank {number}: {each}")
    return found


def log_aborted(episodes: Sequence[Episode], step: int, *, learns: bool = True) -> None:
    """Log the number of a step's episodes without a reward, of all ranks together, with the most frequent reason.

    Raises `Stopped` on all ranks if no episode has a reward, or if the budget is spent, since further steps would train on incomplete
    groups. The run can then resume from the last checkpoint. For an evaluation (not `learns`) it only logs.
    """
    lost = [episode for episode in episodes if episode.reward is None or episode.reward.value is None]
    counted = gather_values((len(lost), len(episodes), Counter(map(explain_aborted, lost))))
    missing, played = sum(each[0] for each in counted), sum(each[1] for each in counted)
    if not missing:
        return
    reasons = sum((each[2] for each in counted), Counter[tuple[bool, str]]())
    spent, why = max(reasons, key=lambda reason: (reason[0], reasons[reason]), default=(False, ""))
    line = f"{'' if learns else 'evaluation at '}step {step}: {missing} of {write_count(played, 'episode')} without a reward"
    if spent and learns:
        raise Stopped(f"{line}: {why}, from the last checkpoint")
    line += f", mostly: {why}" if why else ""
    if missing == played and learns:
        raise Stopped(f"{line}; fix this and start again: the training continues from the last checkpoint")
    if find_rank() == 0:
        log.warning(clean(line))


def explain_aborted(episode: Episode) -> tuple[bool, str]:
    """Return whether the budget was the reason, and the reason in words."""
    reward, issue = episode.reward, episode.issues[-1] if episode.issues else None
    code = reward.error if reward and reward.error else issue.code if issue else None
    words = (reward.rationale if reward else "") or (issue.detail if issue else "")
    return code is Code.BUDGET, words or (code.meaning if code else "")
