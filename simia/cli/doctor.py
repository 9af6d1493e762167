"""`simia doctor`: what this machine has and lacks, each with what to do about it."""

from __future__ import annotations

import importlib.util
import platform
import sys

from rich.console import Console
from rich.table import Table

EXTRAS = {"embedded": "xllamacpp", "vllm": "vllm", "datasets": "pyarrow", "mcp": "mcp"}
out = Console()


def doctor() -> None:
    """What this machine can do: the sandbox, the local model, extras, trainer environments."""
    from simia import __version__
    from simia.resources import cache_root
    from simia.sandbox.probe import probe
    from simia.trainers.environments import RECIPES

    table = Table("what", "how it stands", show_header=False)
    table.add_row(
        "simia", f"{__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    )
    for what, how in probe().lines():
        table.add_row(what, how)
    for extra, module in EXTRAS.items():
        there = importlib.util.find_spec(module) is not None
        table.add_row(f"extra {extra}", "installed" if there else f"not installed: pip install 'simia\\[{extra}]'")
    for name, recipe in RECIPES.items():
        built = (cache_root() / "envs" / recipe.key).is_dir()
        how = "built" if built else f"not built ({recipe.size}): {sys.executable} -m simia.trainers.environments {name}"
        table.add_row(f"environment {name}", how)
    out.print(table)
