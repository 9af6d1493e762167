"""Keep the episodes of RAGEN's rollouts in the training's run. RAGEN plays all of them in one process."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simia.trainers.kept_episodes import EpisodeKeeper
from simia.trainers.launch import look_up
from simia.trainers.ragen.env import SimiaEnv


class RolloutKeeper:
    """Writes each tag's episodes to the run that its settings name; by default all tags share one run."""

    def __init__(self, config: Any) -> None:
        """`config`: RAGEN's configuration."""
        self._checkpoints = Path(str(look_up(config, "trainer.default_local_dir", "checkpoints"))).expanduser()
        self._model = str(look_up(config, "model_path", ""))
        self._start = uuid.uuid4().hex
        self._keepers: dict[str, EpisodeKeeper] = {}

    def keep(self, envs: Sequence[SimiaEnv], step: int, *, validates: bool = False) -> None:
        """Write the finished episodes of a step. Raises `UserError` where a run cannot be written."""
        by_run: dict[str, list[SimiaEnv]] = {}
        for env in envs:
            if env.config.episodes is not None:
                by_run.setdefault(env.config.episodes.model_dump_json(), []).append(env)
        for key, members in by_run.items():
            rows = [env.playing if env.row is None else env.row for env in members]
            self._get_keeper(key, members[0]).keep(step, rows, validates=validates, logprobs=False)

    def close(self) -> None:
        while self._keepers:
            self._keepers.popitem()[1].close()

    def _get_keeper(self, key: str, env: SimiaEnv) -> EpisodeKeeper:
        settings = env.config.episodes
        assert settings is not None
        if key not in self._keepers:
            facts = {"model": self._model, "pack": env.config.stage.pack}
            self._keepers[key] = EpisodeKeeper.open(
                settings, self._checkpoints, trainer="ragen", start=self._start, process="0", facts=facts
            )
        return self._keepers[key]
