"""`simia doctor`: report what this machine supports, and what to do about missing parts."""

from __future__ import annotations

import importlib.util
import platform
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Table

from simia.errors import UserError
from simia.report.console import Terminal
from simia.terminal import say

EXTRAS = {
    "openai": ["openai"],
    "embedded": ["xllamacpp"],
    "vllm": ["vllm"],
    "datasets": ["pyarrow", "huggingface_hub"],
    "languages": ["py3langid"],
    "mcp": ["mcp"],
    "serve": ["fastapi", "uvicorn", "websockets", "prometheus_client"],
    "plots": ["matplotlib"],
    "ray": ["ray"],
}
"""The modules of each extra's packages."""
WITHOUT = {
    "languages": "results in another language of a seed's script can be accepted (simia amplify names such seeds)"
}
"""What changes silently without an extra."""


def doctor(
    trainer: Annotated[str | None, typer.Option("--trainer", help="Check only whether this trainer can run.")] = None,
    report: Annotated[
        bool, typer.Option("--report", help="Print versions, extras and the sandbox as plain text, for a bug report.")
    ] = False,
) -> None:
    """Report what this machine supports: the sandbox, the local model, extras, and trainers in this environment."""
    if report:
        from simia.cli.machine_report import describe_machine

        for line in describe_machine():
            say(line)
        return
    from simia.trainers.versions import NEEDS

    if trainer is not None and trainer not in NEEDS:
        raise UserError(f"no trainer named {trainer!r}; there are: {', '.join(NEEDS)}")
    if trainer is None:
        Terminal().print(tabulate_machine())
    for name in [trainer] if trainer else NEEDS:
        describe_trainer(name)


def tabulate_machine() -> Table:
    from simia.sandbox.capabilities import probe_isolation
    from simia.search_path import cache_root
    from simia.trainers.versions import NEEDS, list_installed
    from simia.venvs import RECIPES, normalize_name
    from simia.version import __version__

    table = Table("part", "status", show_header=False)
    table.add_row(
        "simia", f"{__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    )
    for what, how in probe_isolation().lines():
        table.add_row(what, how)
    for extra, modules in EXTRAS.items():
        table.add_row(f"extra {extra}", describe_extra(extra, modules))
    have = list_installed()
    wanted = dict.fromkeys(name for needs in NEEDS.values() for name in needs)
    some = ", ".join(f"{name} {have[normalize_name(name)]}" for name in wanted if normalize_name(name) in have)
    table.add_row("of what trainers need", some or "nothing is installed here")
    for name, recipe in RECIPES.items():
        if name in NEEDS:
            continue
        built = (cache_root() / "envs" / recipe.key).is_dir()
        how = "built" if built else f"not built ({recipe.size}): {sys.executable} -P -m simia.venvs {name}"
        table.add_row(f"environment {name}", how)
    return table


def describe_extra(extra: str, modules: Sequence[str]) -> str:
    """Return whether an extra is installed: all of its modules are there."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if not missing:
        return "installed"
    part = f" ({', '.join(missing)} missing)" if len(missing) < len(modules) else ""
    meaning = f"; without it, {WITHOUT[extra]}" if extra in WITHOUT else ""
    return f"not installed{part}: pip install 'simia[{extra}]'{meaning}"


def describe_trainer(trainer: str) -> None:
    """Print whether a trainer can run in this environment, with version conflicts, and in an environment of its own."""
    from simia.trainers.versions import compare_versions, find_own_interpreter, format_build_command, list_installed
    from simia.venvs import RECIPES

    problem, own, recipe = (
        compare_versions(trainer, list_installed()),
        find_own_interpreter(trainer),
        RECIPES.get(trainer),
    )
    say(f"trainer {trainer}: " + (f"not in this environment: {problem}" if problem else "can run in this environment"))
    if own is not None:
        say(f"  its own environment: {own}")
    else:
        size = f" ({recipe.size})" if recipe and trainer != "ragen" else ""
        say(f"  a clean environment{size}: {format_build_command(trainer)}")
