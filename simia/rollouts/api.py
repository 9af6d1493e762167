"""The Python entry point of rollouts: `await simia.rollout({"pack": …, "agent": …})` does what the command does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simia.config import apply_settings, merge_sections, parse_config, read_config_file
from simia.errors import require_type
from simia.rollouts import session
from simia.rollouts.session import OnProgress, RolloutResult
from simia.rollouts.settings import RolloutConfig


async def rollout(
    config: RolloutConfig | Mapping[str, Any] | str | Path,
    *,
    runs: str | Path = "runs",
    name: str | None = None,
    settings: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
) -> RolloutResult:
    """Play every task of a pack with an agent, and keep the trajectories with their rewards in a run.

    Args:
        config: a config, the values of one that differ from `rollout/default`, or the name or path of one.
        runs: folder of the runs.
        name: name of the run; made from the time when left out.
        settings: any further setting by its dotted name.
        on_progress: called with the run's `RolloutProgress` after each change.

    Returns:
        The run's folder, why it stopped, scores with intervals, and the accepted trajectories.

    Raises:
        UserError: the caller must change something; any other reason to stop is in the result's `stop`.
    """
    resolved = resolve_config(config, settings)
    return await session.start_rollout(resolved, runs=Path(runs), name=name, on_progress=on_progress)


def resolve_config(
    config: RolloutConfig | Mapping[str, Any] | str | Path, settings: Mapping[str, Any] | None
) -> RolloutConfig:
    """Return the config with `settings` applied. Raises `UserError` for a bad one, `TypeError` for what is no config."""
    require_type("config", config, RolloutConfig, Mapping, str, Path)
    where = "config"
    if isinstance(config, RolloutConfig):
        data = config.model_dump(mode="json")
    elif isinstance(config, Mapping):
        data = merge_sections(read_config_file("rollout/default"), dict(config))
    else:
        data, where = read_config_file(config), str(config)
    return parse_config(RolloutConfig, apply_settings(data, settings), where=where)
