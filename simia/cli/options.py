"""Options that several commands share, and the conversion of their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from simia.config import parse_scalar
from simia.errors import UserError

PACK = Annotated[str, typer.Argument(help="Name of a bundled pack, or folder of a pack.")]
RUN = Annotated[str, typer.Argument(help="Run: id, unique prefix, path, or `last`.")]
RUNS = Annotated[Path, typer.Option("--runs", help="Folder of the runs.", envvar="SIMIA_RUNS")]
NAME = Annotated[str | None, typer.Option("--name", help="Name of the run.")]
SETTINGS = Annotated[
    list[str] | None, typer.Option("--set", help="Any setting, for example llm.model=gpt-5-mini; may be repeated.")
]
ENGINE = Annotated[
    str | None, typer.Option("--engine", help="local, or ray: run on the nodes of a Ray cluster (docs/scale.md).")
]
LIMIT = Annotated[
    int | None,
    typer.Option(help="Maximum number of tasks, from the first one on; with several packs, each keeps its share."),
]
SPLIT = Annotated[str | None, typer.Option(help="Only tasks of this split.")]
TASKS = Annotated[list[str] | None, typer.Option("--task", help="Only the task with this id; may be repeated.")]
UNSAFE = Annotated[bool, typer.Option("--unsafe", help="Run the code without a sandbox. Only for code that you trust.")]
NETWORK = Annotated[bool, typer.Option("--network", help="Allow the pack's code to use the network.")]
VARIABLES = Annotated[
    list[str] | None,
    typer.Option("--variable", help="Allow the pack's code to read this environment variable; may be repeated."),
]
GRANT_READ = Annotated[
    list[Path] | None,
    typer.Option("--grant-read", help="Allow the pack's code to read this file or folder; may be repeated."),
]
NEW_PACK = Annotated[Path | None, typer.Option("--out", help="Folder of the new pack. It must not exist.")]


def collect_grants(unsafe: bool, network: bool, variables: list[str] | None, read: list[Path] | None) -> dict[str, Any]:
    """Return the given grants as settings of the executable back end."""
    grants = {"unsafe": unsafe, "network": network, "variables": variables, "read": make_granted_paths(read)}
    return {name: value for name, value in grants.items() if value}


def make_granted_paths(paths: list[Path] | None) -> list[str]:
    """Make the paths absolute, so that a run resumed from another folder grants the same files."""
    return [str(path.expanduser().absolute()) for path in paths or []]


def parse_settings(settings: Sequence[str] | None, read_value: Callable[[str], Any] = parse_scalar) -> dict[str, Any]:
    """Parse settings `a.b=value` to dotted name → value."""
    found = {}
    for setting in settings or ():
        name, sign, text = setting.partition("=")
        if not sign or not name:
            raise UserError(f"--set {setting!r}: write it as a.b=value")
        found[name] = read_value(text)
    return found


def read_agent(agent: str | None) -> dict[str, str | None]:
    """Return the settings of `--agent`: the name of an agent, or `FILE.py:FUNCTION`."""
    function = agent if agent is not None and ":" in agent else None
    return {"agent": agent if function is None else "function", "agent_function": function}


def add_engine(settings: list[str] | None, engine: str | None) -> list[str]:
    """Add the engine of `--engine` to the settings; None: that of the config."""
    return [*([f"engine.kind={engine}"] if engine is not None else []), *(settings or [])]


def add_endpoint_kind(settings: list[str] | None) -> list[str]:
    """Add the kind of an endpoint where its address or its model is given without one."""
    given = list(settings or [])
    named = any(s.startswith(("llm.base_url=", "llm.model=")) for s in given)
    return ["llm.kind=openai", *given] if named and not any(s.startswith("llm.kind=") for s in given) else given


def add_endpoint_settings(settings: list[str] | None) -> list[str]:
    """Set native tool calls for an endpoint. The default, a local model, writes its calls as text."""
    given = list(settings or [])
    if any(s.startswith("llm.base_url=") for s in given):
        for field, value in (("llm.kind=", "openai"), ("sampling.calls=", "native"), ("sampling.bare=", "false")):
            if not any(s.startswith(field) for s in given):
                given.insert(0, field + value)
    return given
