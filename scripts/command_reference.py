"""Write docs/reference/commands.md: every command of `simia` with its arguments and options, and the variables of the environment.

python -m scripts.command_reference            (writes the page; a test compares it)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import typer

from scripts.api_reference import code, write_table
from simia.cli import build_app
from simia.config_listing import describe_type

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "commands.md"
HEAD = """\
# Commands

Every command of `simia`, as `simia COMMAND --help` prints it. Written by `python -m scripts.command_reference`; do not edit it. Settings of
`--set` and of config files: [settings.md](settings.md). A user error ends with exit code 2 and one line on standard error.
"""
VARIABLES = {
    "OPENAI_API_KEY": "API key of an endpoint; the setting `key_env` of a model names another variable",
    "SIMIA_CACHE": "folder of local models and of virtual environments of trainers and packs; default `~/.cache/simia`",
    "SIMIA_NO_TOKEN": "`simia.serve.openenv_app`: `1`: clients on other machines need no token",
    "SIMIA_OUT": "`simia.serve.openenv_app`: file to which trajectories are appended; default `trajectories.jsonl`",
    "SIMIA_PATH": "folders, separated by `:`, with `prompts`, `configs` and `seeds` that replace bundled files",
    "SIMIA_RUNS": "folder of the runs, as with `--runs`; default `runs`",
    "SIMIA_SETTINGS": "`simia.serve.openenv_app`: settings of the environment, such as `backend=simulated llm.model=NAME`",
    "SIMIA_TOKEN": "token that clients of `simia serve --openenv` must send; `--token-env` names another variable. Clients have no default: `token_env` names theirs",
}


def list_commands(command: Any = None, name: str = "simia") -> Iterator[tuple[str, Any]]:
    """Yield each command with its whole name: the groups first, then what is in them."""
    command = typer.main.get_command(build_app()) if command is None else command
    yield name, command
    for inner, each in getattr(command, "commands", {}).items():
        yield from list_commands(each, f"{name} {inner}")


def write_page() -> str:
    """The whole page."""
    commands = list(list_commands())
    parts = [HEAD]
    leaves = [(name, each) for name, each in commands if not hasattr(each, "commands")]
    parts.append(
        write_table(("command", "what it does"), [(link(name), first_paragraph(each)) for name, each in leaves])
    )
    for name, each in commands:
        if hasattr(each, "commands") and name != "simia":
            continue
        shown = [option for option in each.params if not option.hidden]
        words = " ".join(write_argument(option) for option in shown if option.param_type_name == "argument")
        parts += [f"## {name}\n", f"```\n{name} {words}".rstrip() + "\n```\n", f"{(each.help or '').strip()}\n"]
        if shown:
            parts.append(write_table(("argument or option", "value", "default", "description"), map_rows(shown)))
    parts += ["## Variables of the environment\n", write_table(("variable", "meaning"), list(VARIABLES.items()))]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def link(name: str) -> str:
    return f"[`{name}`](#{name.replace(' ', '-')})"


def first_paragraph(command: Any) -> str:
    return " ".join(str(command.help or "").strip().partition("\n\n")[0].split())


def map_rows(options: list[Any]) -> list[tuple[str, str, str, str]]:
    return [(code(name_option(each)), code(name_value(each)), write_default(each), each.help or "") for each in options]


def name_option(option: Any) -> str:
    return (
        write_argument(option)
        if option.param_type_name == "argument"
        else ", ".join([*option.opts, *option.secondary_opts])
    )


def write_argument(option: Any) -> str:
    name = (option.metavar or option.name.upper()).removesuffix("...") + ("..." if option.nargs == -1 else "")
    return name if option.required else f"[{name}]"


def name_value(option: Any) -> str:
    """The type of an option's value: empty of a flag."""
    if getattr(option, "is_flag", False):
        return ""
    annotation = option.type_descriptor.annotation
    inner = get_args(annotation)[0] if get_origin(annotation) is list else annotation
    name = describe_type(inner).removesuffix(" or null")
    return {"Path": "path", "str": "text"}.get(name, name) + (", repeatable" if option.multiple else "")


def write_default(option: Any) -> str:
    if option.required:
        return "(required)"
    if option.default is None or option.default is False or option.default == []:
        return ""
    return code(str(getattr(option.default, "value", option.default)))


if __name__ == "__main__":
    PAGE.write_text(write_page(), encoding="utf-8")
