"""`simia import`: import foreign environments as packs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from simia.cli.options import NEW_PACK, UNSAFE
from simia.errors import UserError
from simia.terminal import say

HELP = "Import foreign environments as packs: tau2, taubench, bfcl, acebench, officebench, agentbench, gymnasium, codegym, mcp, openapi."
app = typer.Typer(help=HELP, no_args_is_help=True)


@app.command()
def tau2(
    domain: Annotated[str, typer.Argument(help="retail, airline or telecom.")],
    out: NEW_PACK = None,
) -> None:
    """Import a domain of tau2 as a pack for evaluation. It runs tau2's own code, in a cached virtual environment."""
    from simia.importers.tau2 import import_domain

    import_domain(domain, out, say=say)


@app.command()
def taubench(
    folder: Annotated[Path, typer.Argument(help="A checkout of tau-bench (the first version).")],
    domain: Annotated[str, typer.Argument(help="retail or airline.")],
    out: NEW_PACK = None,
) -> None:
    """Import a domain of tau-bench's first version as a pack. It runs tau-bench's own tools in the sandbox."""
    from simia.importers.taubench import import_domain

    import_domain(folder, domain, out, say=say)


@app.command()
def bfcl(
    folder: Annotated[
        Path | None,
        typer.Argument(help="A checkout of the Gorilla repository, or a folder in it. Default: the package bfcl-eval."),
    ] = None,
    out: NEW_PACK = None,
) -> None:
    """Import BFCL's multi-turn tasks as a pack for evaluation. It runs BFCL's own API classes in the sandbox."""
    from simia.importers.bfcl import import_multi_turn

    import_multi_turn(folder, out, say=say)


@app.command()
def acebench(
    folder: Annotated[Path, typer.Argument(help="A checkout of ACEBench.")],
    part: Annotated[str, typer.Argument(help="multi_step, multi_turn_phone or multi_turn_travel.")],
    out: NEW_PACK = None,
) -> None:
    """Import a part of ACEBench-Agent's English tasks as a pack for evaluation. It runs ACEBench's own API classes in the sandbox."""
    from simia.importers.acebench import import_part

    import_part(folder, part, out, say=say)


@app.command()
def officebench(
    folder: Annotated[
        Path, typer.Argument(help="Folder of OfficeBench's tasks, with the folders 1-1, 1-2, … and their subtasks.")
    ],
    out: NEW_PACK = None,
    solutions: Annotated[
        Path | None, typer.Option("--solutions", help="JSONL file of your solutions, which --agent reference plays.")
    ] = None,
) -> None:
    """Import OfficeBench's tasks as a pack with real files. Tasks with two or three apps are for evaluation only."""
    from simia.importers.officebench import import_tasks

    import_tasks(folder, out, solutions, say=say)


@app.command()
def agentbench(
    problems: Annotated[list[Path], typer.Argument(help="Files of problems in the format of AgentBench's OS suite.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the new pack. It must not exist.")] = Path("shell"),
    scripts: Annotated[
        Path | None, typer.Option(help="Folder to which the paths of script files are relative.")
    ] = None,
    train: Annotated[
        bool,
        typer.Option("--train", help="The problems are your own: their trajectories may be used as training data."),
    ] = False,
    licence: Annotated[str, typer.Option(help="Licence of the problems.")] = "unknown",
) -> None:
    """Import problems for a Linux shell as a pack. Each episode has its own machine, and a script or the answer is checked."""
    from simia import event_loop
    from simia.importers.agentbench import find_answers, import_problems

    folder = import_problems(problems, out, scripts=scripts, train=train, licence=licence, say=say)
    found = event_loop.run_command(find_answers(folder, say))
    say(f"solutions found by running the examples: {found}; next: simia pack gate {shlex.quote(str(folder))}")


@app.command()
def gymnasium(
    env_id: Annotated[
        str, typer.Argument(help="Id of the environment, such as FrozenLake-v1, module:Id-v0 or textarena:NAME.")
    ],
    out: NEW_PACK = None,
    pip: Annotated[
        list[str] | None,
        typer.Option("--pip", help="A package that the environment needs, in pip's syntax; may be repeated."),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(help="Python interpreter with the needed packages. No virtual environment is built then."),
    ] = None,
    modules: Annotated[
        list[str] | None,
        typer.Option("--import", help="A module, or your .py file, that registers the environment; may be repeated."),
    ] = None,
    kwargs: Annotated[str, typer.Option(help="Arguments of gymnasium.make, as a JSON object.")] = "{}",
    actions: Annotated[
        str | None, typer.Option(help="Names of the actions, separated by commas: left,down,right,up.")
    ] = None,
    tasks: Annotated[int, typer.Option(help="Number of tasks. Each has its own random seed, from 0 on.")] = 20,
    low: Annotated[
        float, typer.Option("--reward-low", help="Sum of the environment's rewards that gives a reward of 0.")
    ] = 0.0,
    high: Annotated[
        float, typer.Option("--reward-high", help="Sum of the environment's rewards that gives a reward of 1.")
    ] = 1.0,
) -> None:
    """Import a Gymnasium environment whose observations are text or a few values, or a game of TextArena, as a pack with one tool."""
    from simia.importers.gymnasium import import_environment

    import_environment(
        env_id, out, python=python, pip=pip or [], modules=modules or [], kwargs=parse_json_object(kwargs, "--kwargs"),
        actions=[name.strip() for name in actions.split(",")] if actions else None, tasks=tasks, low=low, high=high, say=say,
    )  # fmt: skip


@app.command()
def codegym(
    source: Annotated[
        Path, typer.Argument(help="Python file with an environment class as CodeGym publishes it: XEnv(gymnasium.Env).")
    ],
    inputs: Annotated[Path, typer.Argument(help="Text file with one input per line: XEnv@{…}.")],
    out: NEW_PACK = None,
    task: Annotated[str | None, typer.Option(help="Text of the task. Default: the docstring of the class.")] = None,
    licence: Annotated[str, typer.Option(help="Licence of the environment.")] = "unknown",
) -> None:
    """Import an environment of CodeGym as a pack. Each action becomes a tool, each input a task, and `Done` ends the episode."""
    from simia.importers.codegym import import_codegym

    import_codegym(source, inputs, out, task=task, licence=licence, say=say)


@app.command()
def mcp(
    command: Annotated[
        str | None, typer.Argument(help="Command of the server in quotes, such as 'npx -y PACKAGE ARGUMENTS'.")
    ] = None,
    out: NEW_PACK = None,
    pip: Annotated[
        list[str] | None,
        typer.Option("--pip", help="Package of the server, in pip's syntax; may be repeated for further packages."),
    ] = None,
    npm: Annotated[str | None, typer.Option("--npm", help="Package of the server, in npm's syntax.")] = None,
    url: Annotated[str | None, typer.Option("--url", help="URL of a running server with streamable HTTP.")] = None,
    files: Annotated[
        Path | None, typer.Option("--files", help="Folder with the files with which each episode starts.")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            help="Environment variable of the server, as NAME=VALUE; may be repeated. ${ROOT} is the episode's folder.",
        ),
    ] = None,
    variables: Annotated[
        list[str] | None,
        typer.Option(
            "--variable",
            help="Allow the server to read this environment variable of yours; may be repeated. Its value is not stored.",
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            help="With --url: HTTP header, as 'NAME: VALUE'; may be repeated. ${VARIABLE} inserts a variable of --variable.",
        ),
    ] = None,
    reset: Annotated[
        str | None,
        typer.Option(
            "--reset", help="Tool that is called when an episode starts, with its JSON arguments after a space."
        ),
    ] = None,
    state_tools: Annotated[
        str | None,
        typer.Option(
            "--state-tools",
            help="For a server with its state in memory: the tools that load and return the state, as LOAD,SAVE.",
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option("--state", help="With --state-tools: JSON file with the state with which episodes start."),
    ] = None,
    clock_variable: Annotated[
        str | None,
        typer.Option(
            "--clock-variable",
            help="Environment variable from which the server reads the time. Elsewhere, ${CLOCK} inserts the same time.",
        ),
    ] = None,
    needs: Annotated[
        list[Path] | None, typer.Option("--needs", help="Additional folder that the server can read; may be repeated.")
    ] = None,
    network: Annotated[
        bool, typer.Option("--network", help="Allow the server to use the network while its tools are listed.")
    ] = False,
    unsafe: UNSAFE = False,
) -> None:
    """Import an MCP server as a pack: by its command, from pip or npm, or at a URL. A command or package runs in the sandbox."""
    import shlex

    from simia.importers.mcp import import_server

    import_server(
        shlex.split(command or ""), out=out, url=url, pip=pip or [], npm=npm, folder=files,
        environment=parse_pairs(env, "=", "--env"), variables=variables or [], headers=parse_pairs(header, ":", "--header"),
        reset=parse_reset(reset), state_tools=parse_state_tools(state_tools), state=state, clock_variable=clock_variable, needs=needs or [], network=network, unsafe=unsafe, say=say,
    )  # fmt: skip


@app.command()
def openapi(
    source: Annotated[str, typer.Argument(help="OpenAPI 3 document: a file, or its URL.")],
    out: NEW_PACK = None,
    base_url: Annotated[
        str | None,
        typer.Option(
            help="Base URL of the real API. The pack can then be played against this API, but no other address."
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Only operations whose name, or method and path ('GET /path'), matches; may be repeated."),
    ] = None,
    auth: Annotated[
        list[str] | None,
        typer.Option(
            help="Authentication as a header, such as 'Authorization: Bearer ${API_KEY}', or as name=value. ${API_KEY} inserts a "
            "granted environment variable; may be repeated."
        ),
    ] = None,
) -> None:
    """Import an OpenAPI 3 document as a pack whose tools can be simulated. With --base-url, it can also be played against the real API."""
    from simia.importers.openapi import import_api

    import_api(source, out, base_url=base_url, only=only or [], auth=auth or [], say=say)


def parse_json_object(text: str, option: str) -> dict[str, Any]:
    """Parse an option's value as a JSON object. Raises `UserError` for anything else."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise UserError(f"{option} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"{option} must be a JSON object, such as '{{\"size\": 4}}'")
    return value


def parse_pairs(words: list[str] | None, sign: str, option: str) -> dict[str, str]:
    """Parse names and values of command-line options. Raises `UserError` for a word without the sign."""
    found = {}
    for word in words or []:
        name, there, value = word.partition(sign)
        if not there or not name.strip():
            raise UserError(f"{option} takes NAME{sign}VALUE, not {word.partition(' ')[0]!r}")
        found[name.strip()] = value.strip()
    return found


def parse_reset(text: str | None) -> tuple[str, dict[str, Any]] | None:
    """Parse a tool and its arguments: `clear {"all": true}`."""
    name, _, arguments = (text or "").strip().partition(" ")
    return (name, parse_json_object(arguments.strip() or "{}", f"--reset {name}")) if name else None


def parse_state_tools(text: str | None) -> tuple[str, str] | None:
    """Parse `LOAD,SAVE`. Raises `UserError` for anything but two names."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if len(names) != 2 or not all(names) or names[0] == names[1]:
        raise UserError(f"--state-tools takes two tools as LOAD,SAVE, not {text!r}")
    return names[0], names[1]
