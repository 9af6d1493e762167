"""`simia model`: the local models."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from simia.report.console import Terminal
from simia.terminal import say

app = typer.Typer(help="Local models: list, fetch.", no_args_is_help=True)


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="Name of a known model, or a path.")] = "qwen2.5-coder-0.5b",
) -> None:
    """Fetch a model once: given path, cache, hub, hash-pinned mirror. The source is printed."""
    from simia.llm.local_models import fetch_model as get

    say(get(name))


@app.command("list")
def list_models() -> None:
    """The models that can be fetched by name."""
    from simia.llm.local_models import KNOWN

    table = Table("name", "MB", "licence")
    for model in KNOWN.values():
        table.add_row(model.name, f"{model.size / 1e6:,.0f}", model.licence)
    Terminal().print(table)
