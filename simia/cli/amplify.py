"""`simia amplify`: turn seed trajectories into validated ones."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from simia.amplification.settings import AmplifyConfig
from simia.cli.options import ENGINE, NAME, RUNS, SETTINGS, add_engine
from simia.cli.terminal_output import report_interrupt, watch_amplification
from simia.config import load_config
from simia.errors import UserError
from simia.jobs.run import check_name
from simia.search_path import find_resource
from simia.terminal import say, say_error, write_count


def amplify(
    config: Annotated[
        str | None,
        typer.Option(
            "--config", "-c", help="Config by name or path. Default: quickstart, or `default` with an endpoint."
        ),
    ] = None,
    seeds: Annotated[
        list[str] | None,
        typer.Option(
            "--seeds",
            "-s",
            help="Seeds: a pack (name or folder), a file of trajectories, or a data set (hf:OWNER/NAME); may be repeated.",
        ),
    ] = None,
    n: Annotated[int | None, typer.Option("--n", "-n", help="Number of trajectories to accept.")] = None,
    settings: SETTINGS = None,
    engine: ENGINE = None,
    name: NAME = None,
    runs: RUNS = Path("runs"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print one prompt and the projected price, without sending a request.")
    ] = False,
) -> None:
    """Generate validated trajectories from seed trajectories.

    Uses the endpoint if OPENAI_API_KEY is set, or with --set llm.base_url=… or --set llm.model=…. Otherwise, it uses a small local model, which
    is downloaded once.
    """
    if name is not None:
        check_name(name)  # before a model is fetched
    resolved = resolve_amplify_config(config, seeds, n, add_engine(settings, engine))
    if dry_run:
        with report_interrupt():
            show_dry_run(resolved)
        return
    from simia.amplification.session import start_amplification

    watch_amplification(partial(start_amplification, resolved, runs=runs, name=name), runs)


def resolve_amplify_config(
    config: str | None, seeds: list[str] | None, n: int | None, settings: list[str]
) -> AmplifyConfig:
    """Return the config of this command line. An endpoint (a key, a base_url or a model that is not a local one) replaces the local model."""
    from simia.formats import is_hub_name

    given = {name: value for name, _, value in (setting.partition("=") for setting in settings)}
    kind = given.get("llm.kind")
    endpoint = "llm.base_url" in given or kind == "openai"
    chosen = config is None
    if config is None:
        if kind is None:
            endpoint = endpoint or bool(os.environ.get("OPENAI_API_KEY")) or not is_local_model(given.get("llm.model"))
        else:
            endpoint = endpoint or kind not in ("embedded", "replay")
        config = "amplify/default" if endpoint else "amplify/quickstart"
        if n is None and "n" not in given:
            n = 8
    if endpoint and kind is None:
        settings = ["llm.kind=openai", *settings]
    found = load_config(AmplifyConfig, config, settings, n=n, seeds__packs=seeds or None)
    for name in found.seeds.packs:
        refuse_seeds_without_tools(Path(name).expanduser(), found.seeds.dialect)
        if not is_hub_name(name):
            find_resource("seeds", name)
    if chosen and seeds and config == "amplify/quickstart":
        say_error(
            f"config: {config}, for a small model: results keep the seeds' order of turns, and near-duplicates are kept"
        )
    return found


def is_local_model(name: str | None) -> bool:
    """Check for a model that this machine runs: one that simia knows, or a GGUF file. None: the default one."""
    from simia.llm.local_models import KNOWN

    return name is None or name in KNOWN or name.endswith(".gguf") or Path(name).expanduser().is_file()


def refuse_seeds_without_tools(file: Path, dialect: str | None) -> None:
    """Refuse a seed file of a pack that lists no tools: without the pack, each of its calls would be unknown."""
    from simia import formats
    from simia.trajectory import Trajectory

    if file.suffix in (".yaml", ".yml") or not file.is_file() or not (file.parent / "pack.yaml").is_file():
        return
    first = next(iter(formats.read(file, dialect)), None)
    if isinstance(first, Trajectory) and not first.tools and any(first.calls()):
        raise UserError(f"{file}: this file lists no tools; give the pack's folder: --seeds {file.parent}")


def show_dry_run(config: AmplifyConfig) -> None:
    """Print the first prompt, the seeds, and tokens and price projected from up to 50 items."""
    from simia.amplification.cost_estimate import describe_cost, estimate_cost
    from simia.amplification.seeds import describe_seeds
    from simia.amplification.session import open_preview
    from simia.quality.seed_filter import find_doubtful_seeds

    simulator, seeds = open_preview(config)
    for message in simulator.prompt(simulator.item(0)).messages:
        say(f"--- {message['role']} ---\n{message['content']}\n")
    for line in describe_seeds(seeds, config.n, language=config.checks.language):
        say_error(line)
    doubtful = find_doubtful_seeds(seeds.order, config.checks)
    if doubtful:
        say_error(
            f"a truth check, which results must pass, finds something in {write_count(len(doubtful), 'seed')} in use:"
        )
    for seed, issues in doubtful[:5]:
        say_error(f"  {seed.task_id or seed.id}: {issues[0]}")
    groups = estimate_cost(config, seeds, simulator)
    first = groups[0]
    say_error(
        f"about {first.prompt:,} prompt and {first.reply:,} reply tokens per item; {write_count(config.n, 'item')} if all are accepted"
    )
    say_error(
        f"a prefix cache can serve {first.static / max(1, first.prompt):.0%} of the prompt: items of one pack share it"
    )
    for line in describe_cost(groups):
        say_error(line)
