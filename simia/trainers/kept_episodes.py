"""Keep the episodes of a training in a run: messages, reward and its parts, the trainer's step, the group, and what was sampled.

    keeper = EpisodeKeeper.open(settings, checkpoints, start=start, process=rank, trainer="trl", facts={"model": …})
    keeper.keep(step, rows)

`simia report RUN` draws the training from it, also while it goes on, and `simia export RUN` makes training data of it. A trainer calls
`keep` once for each batch of finished episodes, before it trains on them; what cannot be written stops the training with one line.
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
from simia.envs.rewards.judge import RewardJudge
from simia.jobs.shared_run import EpisodeFigures, EpisodeRow, SharedRun, TrainingRun
from simia.trainers.tokens import TokenRow
from simia.trajectory import digest

HOST = "{host}"


class KeptSettings(Config):
    """Where the episodes of a training are kept."""

    run: str | None = Field(
        None,
        description="Folder of the run, {host} in it is the machine; unset: in runs/, named after the checkpoints.",
    )
    tokens: bool = Field(False, description="Keep also the token ids and log-probabilities.")
    start: str = Field("", description="Name of this start of the training; `simia train` sets it.")


class EpisodeKeeper:
    """Writes the episodes of one process."""

    def __init__(self, run: SharedRun, *, start: str, process: str, tokens: bool = False) -> None:
        """`start` is the same in all processes of one start of the training, `process` is this one's name among them."""
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
            step: The trainer's step that they train, from 1; for a validation, the number of steps before it.
            episodes: The episodes, as ids where the trainer has them.
            validates: They are validated on.
            names: The name of each, which distinguishes it in its step; None: by this process and their order.
            logprobs: Whether the log-probabilities of the ids are known.

        Raises:
            UserError: The run cannot be written.
        """
        key = (step, validates)
        if key not in self._count:
            self._count = Counter({key: 0})  # the step before is over
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
        judge, rules = compare_judge(episode)
        figures = EpisodeFigures(
            step=step,
            validates=validates,
            group=episode.group or f"{step}/{episode.task.id}",
            task=episode.task.id,
            reward=find_reward(kept),
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


def find_reward(kept: TokenRow | Episode) -> float | None:
    """Return the reward that is trained on; None for an episode that infrastructure ended, or that could not be judged."""
    if isinstance(kept, TokenRow):
        return kept.reward
    aborted = kept.end is None or kept.end.kind == "aborted"
    return None if aborted or kept.reward is None else kept.reward.value


def compare_judge(episode: Episode) -> tuple[float | None, float | None]:
    """Return the judge's value and the one by the task's rules, where a model judged and the rules can be checked on the record."""
    reward, environment = episode.reward, episode.environment
    if not isinstance(environment.scorer, RewardJudge) or reward is None or reward.value is None:
        return None, None
    task, pack = episode.task, environment.pack
    if not task.reward.parts:
        return reward.value, None
    ruled = score_trajectory(
        episode.trajectory, task.reward, reference=task.actions, policies=pack.match, goals=task.goals
    )
    return reward.value, ruled.value


def list_tokens(row: TokenRow, logprobs: bool) -> dict[str, Any]:
    """Return what was sampled: ids, the mask of the policy's own, and their log-probabilities where they are known."""
    found: dict[str, Any] = {
        "prompt_ids": row.prompt_ids,
        "completion_ids": row.completion_ids,
        "mask": row.mask,
    }
    return {**found, "logprobs": row.logprobs} if logprobs else found
