"""Simia-SFT: seed trajectories in, many validated ones out (prefilter → prompt → simulate → repair → check → dedupe).

`await simia.amplify(seeds, llm=…, n=…)` does what the command does. The room has the same name as its one public verb, so
the module itself can be called; `simia.amplification.amplify` is the same function.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simia.amplification.session import Amplified, OnProgress
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
    """Amplify seeds into n validated trajectories (paper §2.2).

    `seeds`: packs or files by name or path, or trajectories. `llm`: an `llm:` section as a mapping, or one of its kinds as
    text. `config`: a config to start from (default: quickstart without `llm`, else default). `settings`: any further
    setting by dotted name. Raises `UserError` for what the caller must change; anything else is in the result's `stop`.
    """
    from simia.amplification.session import amplify as start
    from simia.amplification.settings import AmplifyConfig
    from simia.config import assign, merge, parse, read
    from simia.trajectory import Trajectory

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
    return await start(parsed, given=given, runs=Path(runs), name=name, on_progress=on_progress)


class _Room(ModuleType):
    """A package that can be called."""

    async def __call__(self, *args: Any, **kwargs: Any) -> Amplified:
        return await amplify(*args, **kwargs)


sys.modules[__name__].__class__ = _Room
