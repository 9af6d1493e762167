"""The Python entry point of amplification: `await simia.amplify(seeds, llm=…, n=…)` does what the command does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simia.amplification import session
from simia.amplification.session import Amplified, OnProgress
from simia.amplification.settings import AmplifyConfig
from simia.config import assign, merge, parse, read
from simia.trajectory import Trajectory


async def amplify(
    seeds: str | Path | Sequence[str | Path] | Sequence[Trajectory] | None = None,
    *,
    llm: str | Mapping[str, Any] | None = None,
    n: int | None = None,
    config: str | Path | None = None,
    runs: str | Path = "runs",
    name: str | None = None,
    settings: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
) -> Amplified:
    """Amplify seed trajectories into n validated ones (paper §2.2).

    Args:
        seeds: packs or files by name or path, or trajectories; the config's when left out.
        llm: an `llm:` section as a mapping, or one of its kinds by name.
        n: how many trajectories to accept.
        config: config to start from, by name or path; without it `amplify/quickstart` for a local model, else `amplify/default`.
        runs: folder of the runs.
        name: name of the run; made from the time when left out.
        settings: any further setting by its dotted name.
        on_progress: called with the run's `Progress` after each change.

    Returns:
        The run's folder, why it stopped, its last figures, and its trajectories.

    Raises:
        UserError: the caller must change something; any other reason to stop is in the result's `stop`.
    """
    section = {"kind": llm} if isinstance(llm, str) else dict(llm or {})
    base = config or ("amplify/default" if section.get("kind", "embedded") != "embedded" else "amplify/quickstart")
    data = read(base)
    if section:
        data["llm"] = merge(data.get("llm", {}), section)
    for dotted, value in (settings or {}).items():
        assign(data, dotted.split("."), value)
    if n is not None:
        data["n"] = n
    given: list[Trajectory] | None = None
    if isinstance(seeds, str | Path):
        assign(data, ["seeds", "packs"], [str(seeds)])
    elif seeds is not None:
        given = [seed for seed in seeds if isinstance(seed, Trajectory)]
        if len(given) < len(seeds):
            assign(data, ["seeds", "packs"], [str(seed) for seed in seeds])
            given = None
    parsed = parse(AmplifyConfig, data, where=str(base))
    return await session.amplify(parsed, given=given, runs=Path(runs), name=name, on_progress=on_progress)
