"""`simia amplify`: turn seed trajectories into validated ones."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from simia.amplification.settings import AmplifyConfig
from simia.cli.options import NAME, RUNS, SETTINGS
from simia.cli.terminal_output import watch_amplification
from simia.config import load_config
from simia.errors import UserError
from simia.jobs.run import check_name
from simia.terminal import say, say_error


def amplify(
    config: Annotated[
        str | None,
        typer.Option(
            "--config", "-c", help="Config by name or path. Default: quickstart, or `default` with an endpoint."
        ),
    ] = None,
    seeds: Annotated[
        list[str] | None,
        typer.Option("--seeds", "-s", help="Pack (name or folder) or file of trajectories; may be repeated."),
    ] = None,
    n: Annotated[int | None, typer.Option("--n", "-n", help="How many trajectories to accept.")] = None,
    settings: SETTINGS = None,
    name: NAME = None,
    runs: RUNS = Path("runs"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print one rendered prompt and the projected price; send no request.")
    ] = False,
) -> None:
    """Amplify seed trajectories into validated ones.

    With OPENAI_API_KEY in the environment, or --set llm.base_url=…, that endpoint is used. Without one, a small local
    model is used, which is fetched once.
    """
    if name is not None:
        check_name(name)  # before a model is fetched
    resolved = resolve_amplify_config(config, seeds, n, settings or [])
    if dry_run:
        show_dry_run(resolved)
        return
    from simia.amplification.session import start_amplification

    watch_amplification(partial(start_amplification, resolved, runs=runs, name=name), runs)


def resolve_amplify_config(
    config: str | None, seeds: list[str] | None, n: int | None, settings: list[str]
) -> AmplifyConfig:
    """Return the config of this command line. An endpoint (a key or a base_url) replaces the local model."""
    endpoint = any(s.startswith(("llm.base_url=", "llm.kind=openai")) for s in settings)
    if config is None:
        key = bool(os.environ.get("OPENAI_API_KEY")) and not any(s.startswith("llm.kind=") for s in settings)
        config = "amplify/default" if endpoint or key else "amplify/quickstart"
        if n is None and not any(s.startswith("n=") for s in settings):
            n = 8
    if endpoint and not any(s.startswith("llm.kind=") for s in settings):
        settings = ["llm.kind=openai", *settings]
    found = load_config(AmplifyConfig, config, settings, n=n, seeds__packs=seeds or None)
    for name in found.seeds.packs:
        refuse_seeds_without_tools(Path(name).expanduser(), found.seeds.dialect)
    return found


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
    """Print the first prompt, and tokens and price projected from up to 50 items."""
    from simia.amplification.session import open_preview
    from simia.llm.backends import find_price
    from simia.quality.fast_tokens import estimate_text_tokens
    from simia.quality.seed_filter import find_doubtful_seeds
    from simia.trajectory import Usage

    simulator, seeds = open_preview(config)
    prompts = [simulator.prompt(simulator.item(i)) for i in range(min(len(seeds.order), 50))]
    for message in prompts[0].messages:
        say(f"--- {message['role']} ---\n{message['content']}\n")
    prompt_tokens = sum(estimate_text_tokens(m["content"]) for p in prompts for m in p.messages) // len(prompts)
    reply_tokens = sum(estimate_text_tokens(str(s.to_row()["messages"])) for s in seeds.order) // len(seeds.order)
    static_tokens = sum(estimate_text_tokens(m["content"]) for p in prompts for m in p.messages[:-1]) // len(prompts)
    say_error(f"{len(seeds.order)} seeds of {seeds.read} read, {len(seeds.refused)} refused by the pre-filter")
    for refused in seeds.refused[:5]:
        say_error(f"  {refused.name}: {refused.issues[0]}")
    doubtful = find_doubtful_seeds(seeds.order, config.checks)
    if doubtful:
        say_error(f"{len(doubtful)} seeds are used although a truth check, which results must pass, finds something:")
    for seed, issues in doubtful[:5]:
        say_error(f"  {seed.task_id or seed.id}: {issues[0]}")
    say_error(
        f"about {prompt_tokens:,} prompt and {reply_tokens:,} reply tokens per item; {config.n:,} items if all are accepted"
    )
    say_error(
        f"a prefix cache can serve {static_tokens / max(1, prompt_tokens):.0%} of the prompt: items of one pack share it"
    )
    price = find_price(config.llm)
    if price is None:
        say_error("price: unknown for this model; set llm.price")
        return
    served, whole = (
        price.of(Usage(prompt=prompt_tokens, completion=reply_tokens, cached=cached)) * config.n
        for cached in (static_tokens, 0)
    )
    spread = f"${served:,.2f} to ${whole:,.2f}, depending on the prefix cache" if served < whole else f"${whole:,.2f}"
    say_error(f"price: about {spread}; reasoning tokens and rejected items not counted")
