"""Keep the episodes of a training in a run: messages, reward and its parts, the trainer's step, the group, and the sampled ids.

    keeper = EpisodeKeeper.open(settings, checkpoints, start=start, process=rank, trainer="trl", facts={"model": …})
    keeper.keep(step, rows)

`simia report RUN` plots the training from it, also while it runs, and `simia export RUN` makes training data of it. A trainer calls
`keep` once for each batch of finished episodes, before it trains on them. If they cannot be written, the training stops with one line.
"""

from __future__ import annotations

import os
import platform
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from simia.config import Config
from simia.envs.environment import Episode
from simia.envs.rewards import score_trajectory
from simia.envs.rewards.composed_scorer import ComposedScorer
from simia.envs.rewards.judge import RewardJudge
from simia.jobs.shared_run import EpisodeFigures, EpisodeRow, SharedRun, TrainingRun
from simia.trainers.tokens import TokenRow
from simia.trajectory import digest

HOST = "{host}"


class KeptSettings(Config):
    """The run that stores the episodes of a training."""

    run: str | None = Field(
        None,
        description="Folder of the run; {host} is replaced by the machine's name. null: a folder in runs/ that is named after the "
        "folder of checkpoints.",
    )
    tokens: bool = Field(False, description="Whether to store also the token ids and log-probabilities.")
    start: str = Field("", description="Name of this start of the training. `simia train` sets it.")


class EpisodeKeeper:
    """Writes the episodes of one process."""

    def __init__(self, run: SharedRun, *, start: str, process: str, tokens: bool = False) -> None:
        """`start` identifies one start of the training, in all its processes; `process` names this process among them."""
        self.run = run
        self._start, self._process, self._tokens = start, process, tokens
        self._count = Counter[tuple[int, bool]]()

    @classmethod
    def open(
        cls,
        settings: KeptSettings,
        checkpoints: Path,
        *,
        trainer: str,
        start: str,
        process: str,
        facts: dict[str, Any] | None = None,
    ) -> EpisodeKeeper:
        """Open the training's run, which the first process makes. Raises `UserError` where it cannot be written."""
        folder = Path(find_run_folder(settings, checkpoints))
        config = TrainingRun(trainer=trainer, folder=str(checkpoints.expanduser().absolute()))
        run = SharedRun.join(folder, config, {"trainer": trainer, **(facts or {})})
        return cls(run, start=start, process=process, tokens=settings.tokens)

    def keep(
        self,
        step: int,
        episodes: Sequence[TokenRow | Episode],
        *,
        validates: bool = False,
        names: Sequence[str] | None = None,
        logprobs: bool = True,
    ) -> None:
        """Write finished episodes; they are on disk when it returns.

        Args:
            step: The trainer's step that uses the episodes, from 1; for a validation, the number of steps before it.
            episodes: The episodes, as rows of ids if the trainer has them.
            validates: Whether they are episodes of a validation.
            names: A unique name in the step for each; None: made from this process's name and the order.
            logprobs: Whether the log-probabilities of the ids are known.

        Raises:
            UserError: The run cannot be written.
        """
        key = (step, validates)
        if key not in self._count:
            self._count = Counter({key: 0})  # a new step has begun
        rows = []
        for number, each in enumerate(episodes):
            name = names[number] if names is not None else f"{self._process}.{self._count[key]}"
            self._count[key] += 1
            rows.append(self._make_row(step, each, validates, name, logprobs))
        self.run.add(rows)

    def close(self) -> None:
        self.run.close()

    def _make_row(self, step: int, kept: TokenRow | Episode, validates: bool, name: str, logprobs: bool) -> EpisodeRow:
        row = kept if isinstance(kept, TokenRow) else None
        episode = kept.episode if isinstance(kept, TokenRow) else kept
        trajectory, end = episode.trajectory, episode.end
        reward, outcome = find_rewards(kept)
        judge, rules = compare_judge(episode)
        figures = EpisodeFigures(
            step=step,
            validates=validates,
            group=episode.group or f"{step}/{episode.task.id}",
            task=episode.task.id,
            reward=outcome if validates else reward,
            outcome=outcome,
            end=trajectory.end.kind,
            code=str(end.code) if end and end.code else None,
            turns=sum(message.role == "assistant" for message in episode.messages),
            tokens=sum(row.mask) if row is not None else None,
            judge=judge,
            rules=rules,
            start=self._start,
        )
        return EpisodeRow(trajectory, figures, name, list_tokens(row, logprobs) if self._tokens and row else None)


def find_run_folder(settings: KeptSettings, checkpoints: Path) -> str:
    """Return the run's folder. Without a setting it is named after the checkpoints' folder, and is the same for each start."""
    if settings.run is not None:
        return settings.run.replace(HOST, platform.node())
    place = checkpoints.expanduser().absolute()
    name = re.sub(r"[^A-Za-z0-9._-]", "-", place.name).lstrip(".-")[:80] or "training"
    return f"{os.environ.get('SIMIA_RUNS', 'runs')}/{name}-{digest(str(place))[:6]}"


def find_rewards(kept: TokenRow | Episode) -> tuple[float | None, float | None]:
    """Return the reward to train on and the outcome, which is without rewards of single turns. Both are None for an episode that was aborted
    or could not be judged."""
    if isinstance(kept, TokenRow):
        return kept.reward, kept.outcome
    if kept.end is None or kept.end.kind == "aborted" or kept.reward is None:
        return None, None
    return kept.reward.total, kept.reward.value


def compare_judge(episode: Episode) -> tuple[float | None, float | None]:
    """Return the judge's value and the value by the rules. Both are None without a verdict, the second also if the record does not suffice."""
    reward, scorer = episode.reward, episode.environment.scorer
    if isinstance(scorer, ComposedScorer):
        scorer = scorer.outcome
    if not isinstance(scorer, RewardJudge) or reward is None or reward.value is None:
        return None, None
    judged = reward.parts.get("oracle")  # the value may be that of a reward function
    task, pack = episode.task, episode.environment.pack
    if judged is None or not task.reward.parts:
        return judged, None
    ruled = score_trajectory(
        episode.trajectory, task.reward, reference=task.actions, policies=pack.match, goals=task.goals
    )
    return judged, ruled.value


def list_tokens(row: TokenRow, logprobs: bool) -> dict[str, Any]:
    """Return the ids, the mask of those that the policy sampled, and their log-probabilities if they are known."""
    found: dict[str, Any] = {
        "prompt_ids": row.prompt_ids,
        "completion_ids": row.completion_ids,
        "mask": row.mask,
    }
    return {**found, "logprobs": row.logprobs} if logprobs else found
