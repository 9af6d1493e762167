"""`simia.amplify`: what the command `simia amplify` does, as a coroutine function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simia.amplification.session import Amplified, OnProgress
from simia.amplification.session import start_amplification as start
from simia.amplification.settings import AmplifyConfig
from simia.config import apply_settings, assign_setting, merge_sections, parse_config, read_config_file
from simia.errors import require_type
from simia.llm.backends import LLMSettings, attach_client, read_llm
from simia.trajectory import Trajectory

if TYPE_CHECKING:
    from openai import AsyncOpenAI


async def amplify(
    seeds: str | Path | Sequence[str | Path] | Sequence[Trajectory] | None = None,
    *,
    llm: str | Mapping[str, Any] | LLMSettings | AsyncOpenAI | None = None,
    n: int | None = None,
    config: str | Path | None = None,
    runs: str | Path = "runs",
    name: str | None = None,
    settings: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
) -> Amplified:
    """Amplify seeds into n validated trajectories (Simia-SFT, https://arxiv.org/abs/2511.01824 §2.2).

    Every reply is stored before it is used, so that a run that was stopped or killed can be resumed
    (`simia runs resume`) without asking for anything twice.

    Args:
        seeds: Packs or files of trajectories by name or path, or trajectories. None: those that the config names.
        llm: The model: its name at an OpenAI-compatible endpoint, `"embedded"` (a small model on this machine), an `llm:`
            section as a mapping (`{"kind": "openai", "model": "gpt-5-mini"}`) or as settings, or an `openai.AsyncOpenAI`, with
            the model's name in `settings` as `llm.model`. A client's key is kept nowhere.
        n: How many accepted trajectories to stop at. None: as the config says.
        config: The config to start from, by name or path. None: `amplify/quickstart` for the embedded model, else
            `amplify/default`.
        runs: The folder in which the run's folder is made.
        name: The run's id. None: one is made up from the time.
        settings: Any further setting by its dotted name, such as `{"limits.max_cost": 20}`; `simia config amplify`
            lists them.
        on_progress: Is called with the present figures while the run works.

    Returns:
        The run's folder, the reason why it stopped, its figures, and its `trajectories()`.

    Raises:
        UserError: Something must be changed by the caller: a setting, a seed file, a key. Everything else, such as an
            endpoint that fails, is no exception but the reason in `stop`.

    Example:
        ```python
        made = await simia.amplify("my_seeds.jsonl", llm={"kind": "openai", "model": "gpt-5-mini"}, n=1000)
        print(made.run_id, made.stop.kind)
        for trajectory in made.trajectories(partial=True):
            print(trajectory.id, len(trajectory.messages))
        ```
    """
    if seeds is not None:
        require_type("seeds", seeds, str, Path, Sequence)
    section = read_llm(llm)
    base = config or ("amplify/default" if section.get("kind", "embedded") != "embedded" else "amplify/quickstart")
    data = read_config_file(base)
    if section:
        data["llm"] = merge_sections(data.get("llm", {}), section)
    apply_settings(data, settings)
    if n is not None:
        data["n"] = n
    given: list[Trajectory] | None = None
    if isinstance(seeds, str | Path):
        seeds = [seeds]
    if seeds is not None:
        given = [seed for seed in seeds if isinstance(seed, Trajectory)]
        if len(given) < len(seeds):
            assign_setting(data, ["seeds", "packs"], [str(seed) for seed in seeds])
            given = None
    parsed = parse_config(AmplifyConfig, data, where=str(base))
    attach_client(parsed.llm, llm)
    return await start(parsed, given=given, runs=Path(runs), name=name, on_progress=on_progress)
