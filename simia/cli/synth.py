"""`simia synth`: make packs from nothing by a recipe."""

from __future__ import annotations

import contextlib
import os
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from simia.authoring.pack_draft import refuse_existing
from simia.cli.amplify import is_local_model
from simia.cli.options import ENGINE, NAME, RUNS, SETTINGS, add_engine, parse_settings
from simia.cli.terminal_output import name_runs, report_interrupt, watch_synthesis
from simia.config import apply_settings, read_command_line_value, read_config_file
from simia.errors import UserError
from simia.jobs import Run, folders
from simia.jobs.run import check_name
from simia.synthesis.settings import SynthesisConfig
from simia.terminal import say, say_error

ENDPOINT_MODEL = "gpt-5-mini"  # where a key is given and no model


def synth(
    recipe: Annotated[
        str,
        typer.Argument(
            help="envscaler, scaleenv, envfactory, codegym, vary, or a Python file that defines RECIPE (./my_recipe.py)."
        ),
    ],
    source: Annotated[
        str, typer.Argument(help="Input of the recipe: a domain in words, a file of tasks or problems, or a pack.")
    ] = "",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the new packs. It must not exist.", show_default=False)
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", "-c", help="Config by name or path. Default: synth/RECIPE.")
    ] = None,
    sources: Annotated[
        list[str] | None,
        typer.Option(
            "--sources",
            help="For envfactory, a source: a document, an OpenAPI file, a pack, a folder of these, or mcp:COMMAND; may be repeated.",
            show_default=False,
        ),
    ] = None,
    settings: SETTINGS = None,
    engine: ENGINE = None,
    name: NAME = None,
    runs: RUNS = Path("runs"),
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print the first prompt, the known items and the projected price, without sending a request.",
        ),
    ] = False,
) -> None:
    """Generate packs: environments whose tools and tasks are tested by execution.

    Uses the endpoint if OPENAI_API_KEY is set, or with --set llm.base_url=… or --set llm.model=…. Otherwise, it uses a small local model, which
    is downloaded once.
    """
    if name is not None:
        check_name(name)  # before a model is fetched
    if out is not None:
        refuse_taken_folder(out, runs)
    resolved = resolve_synth_config(recipe, source, config, add_engine(settings, engine), sources)
    if dry_run:
        with report_interrupt():
            show_first_prompt(resolved)
        return
    if out is None:
        raise UserError("--out is missing: name the folder that the packs are written to")
    from simia.synthesis.session import start_synthesis

    watch_synthesis(partial(start_synthesis, resolved, out, runs=runs, name=name), runs)


def refuse_taken_folder(out: Path, runs: Path) -> None:
    """Raise `UserError` unless `out` is free or an empty folder; it names the run that has written its packs there."""
    try:
        refuse_existing(out)
    except UserError as error:
        run = find_writer(out, runs)
        if run is None:
            raise
        at = name_runs(runs)
        raise UserError(
            f"{error}; run {run} has written it (simia runs show {run}{at}) and writes it again with simia runs resume {run} --out FOLDER{at}"
        ) from None


def find_writer(out: Path, runs: Path) -> str | None:
    """The name of the latest run whose packs are in `out`."""
    found = None
    for folder in folders(runs):
        with contextlib.suppress(UserError), contextlib.closing(Run.read_only(runs, folder.name)) as run:
            if run.ledger.meta("out") == str(out.expanduser().absolute()):
                found = run.id
    return found


def resolve_synth_config(
    recipe: str, source: str, config: str | None, settings: list[str], sources: list[str] | None = None
) -> SynthesisConfig:
    """Return the config of this command line. An endpoint (a key, a base_url or a model that is not a local one) replaces the local model."""
    from simia.synthesis.recipes import find_recipe
    from simia.synthesis.session import choose_config, parse_synthesis_config

    kind = find_recipe(recipe)
    if sources and "sources" not in kind.config.model_fields:
        raise UserError(f"recipe {recipe} takes no --sources: give its source as the argument after the recipe")
    base = choose_config(recipe, config)
    data = read_config_file(base) if base is not None else {}
    given = parse_settings(settings, read_command_line_value) | ({"sources": sources} if sources else {})
    if config is None:
        choose_endpoint(data, given)
    elif "llm.base_url" in given and "llm.kind" not in given:
        given = {"llm.kind": "openai", **given}
    apply_settings(data, given)
    return parse_synthesis_config(recipe, source, data, where=str(base or "settings"))


def choose_endpoint(data: dict[str, Any], given: dict[str, Any]) -> None:
    """Put the kind of the model into a config's values, unless the command line names it."""
    if "llm.kind" in given:
        return
    named = given.get("llm.model")
    endpoint = "llm.base_url" in given or bool(os.environ.get("OPENAI_API_KEY")) or not is_local_model(named)
    known = data.get("llm") or {}
    if not endpoint:
        data["llm"] = {"kind": "embedded", **(known if known.get("kind") == "embedded" else {})}
    elif known.get("kind") != "openai":
        data["llm"] = {"kind": "openai", "model": ENDPOINT_MODEL}


def show_first_prompt(config: SynthesisConfig) -> None:
    """Print the first prompt, the items that are known, and the projected price."""
    from simia.synthesis.dry_run import describe_dry_run, preview_synthesis
    from simia.synthesis.recipes import find_recipe

    found = preview_synthesis(find_recipe(config.recipe).make(config))
    if found.prompt is not None:
        say(f"--- user ---\n{found.prompt}\n")
    for line in describe_dry_run(found, config):
        say_error(line)
