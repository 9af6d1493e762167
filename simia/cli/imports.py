"""`simia import`: foreign environments become packs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(help="Foreign environments become packs: tau2.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Foreign environments become packs."""


@app.command()
def tau2(
    domain: Annotated[str, typer.Argument(help="retail, airline or telecom.")],
    out: Annotated[Path | None, typer.Option("--out", help="The pack's folder, which must not exist.")] = None,
) -> None:
    """A domain of tau2 as a pack for evaluation, run by tau2's own code (installed in an environment of its own once)."""
    from simia.importers.tau2 import import_domain

    console = Console()
    import_domain(domain, out, say=lambda line: console.print(line, markup=False, soft_wrap=True, highlight=False))
