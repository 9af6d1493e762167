"""Episodes that the infrastructure took from a step of training: said, or the end of the run."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from simia.envs.environment import Episode
from simia.errors import Code
from simia.terminal import clean
from simia.trainers.ranks import Stopped, find_rank, gather_values

log = logging.getLogger(__name__)


def log_aborted(episodes: Sequence[Episode], step: int, *, learns: bool = True) -> None:
    """Episodes that the infrastructure ended train nothing, which is said, of all ranks together. Raises `UserError` on all of them
    where none is left of a step, or the budget took some: it would use up the schedule on groups with holes, and the trainer's last
    checkpoint is a better place to go on from. What is lost of an evaluation (not `learns`) is only said."""
    lost = [episode for episode in episodes if episode.reward is None or episode.reward.value is None]
    mine = Counter(explain_aborted(episode) for episode in lost)
    counted = gather_values((len(lost), len(episodes), mine))
    missing, played = sum(each[0] for each in counted), sum(each[1] for each in counted)
    if not missing:
        return
    reasons = sum((each[2] for each in counted), Counter[tuple[bool, str]]())
    spent, why = max(reasons, key=lambda reason: (reason[0], reasons[reason]), default=(False, ""))
    said = f"{'' if learns else 'evaluation at '}step {step}: {missing} of {played} episodes have no reward"
    if spent and learns:
        raise Stopped(f"{said}: {why}, from the last checkpoint")
    said += f", mostly: {why}" if why else ""
    if missing == played and learns:
        raise Stopped(f"{said}; mend that and start again, from the last checkpoint")
    if find_rank() == 0:
        log.warning(clean(said))


def explain_aborted(episode: Episode) -> tuple[bool, str]:
    """Whether it was the budget, and the reason in words."""
    reward, issue = episode.reward, episode.issues[-1] if episode.issues else None
    code = reward.error if reward and reward.error else issue.code if issue else None
    words = (reward.rationale if reward else "") or (issue.detail if issue else "")
    return code is Code.BUDGET, words or (code.meaning if code else "")
