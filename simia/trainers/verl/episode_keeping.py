"""Keep the episodes of verl's workers in the training's run. Each worker process has one keeper for all its samples."""

from __future__ import annotations

import atexit
import threading
from pathlib import Path
from typing import Any

from simia.trainers.kept_episodes import EpisodeKeeper, KeptSettings
from simia.trainers.verl.play import PlayedEpisode

_keepers: dict[str, EpisodeKeeper] = {}
_one_at_a_time = threading.Lock()


def keep_played(
    settings: KeptSettings | None,
    checkpoints: Path | None,
    played: PlayedEpisode,
    *,
    step: int | None,
    name: str,
    validates: bool = False,
    facts: dict[str, Any] | None = None,
) -> None:
    """Write an episode. It blocks, so call it in a thread. Does nothing without settings, or without both a folder of checkpoints and a run.

    `name` distinguishes the episode in its step. Raises `UserError` where the run cannot be written.
    """
    if settings is None or (checkpoints is None and settings.run is None):
        return
    checkpoints = checkpoints or Path(settings.run or "")
    key = f"{checkpoints}:{settings.model_dump_json()}"
    with _one_at_a_time:
        if key not in _keepers:
            _keepers[key] = EpisodeKeeper.open(
                settings, checkpoints, trainer="verl", start=settings.start, process="", facts=facts
            )
        _keepers[key].keep(step or 0, [played.row], validates=validates, names=[name], logprobs=played.logprobs)


@atexit.register
def close_keepers() -> None:
    """Close the runs that this process has opened. Called at its exit too."""
    with _one_at_a_time:
        while _keepers:
            _keepers.popitem()[1].close()
