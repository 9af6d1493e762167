"""docs/reference/commands.md is what `scripts/command_reference.py` writes: every command, option and variable has its entry."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import simia
from scripts.command_reference import PAGE, VARIABLES, list_commands, write_page
from simia.cli import COMMANDS, GROUPS

TEXT = PAGE.read_text(encoding="utf-8")
LEAVES = [(name, command) for name, command in list_commands() if not hasattr(command, "commands")]
OF_A_SHELL = {"SIMIA_PWD"}  # between a tool and the shell that it starts
VARIABLE = re.compile(r"\bSIMIA_[A-Z_]+\b")


def read_section(name: str) -> str:
    return TEXT.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def test_the_page_is_current() -> None:
    assert write_page() == TEXT, "run: python -m scripts.command_reference"


def test_every_command_is_there() -> None:
    names = {name for name, _ in LEAVES}
    assert {f"simia {name}" for name in COMMANDS} <= names
    assert {f"simia {group}" for group in GROUPS} <= {name.rpartition(" ")[0] for name in names}


@pytest.mark.parametrize(("name", "command"), LEAVES, ids=[name for name, _ in LEAVES])
def test_a_command_has_a_description_and_each_of_its_options(name: str, command: object) -> None:
    section = read_section(name)
    assert (command.help or "").strip().splitlines()[0] in section  # type: ignore[attr-defined]
    for option in command.params:  # type: ignore[attr-defined]
        if option.hidden or option.name == "help":
            continue
        word = option.opts[0] if option.param_type_name == "option" else option.metavar or option.name.upper()
        (row,) = re.findall(rf"^\| `\[?{re.escape(word)}(?:[`,\].]).*$", section, re.M)
        assert not row.endswith("|  |"), f"{name} {word} has no description"


def test_every_variable_that_simia_reads_is_listed() -> None:
    package = Path(simia.__file__).parent
    read = {name for path in package.rglob("*.py") for name in VARIABLE.findall(path.read_text(encoding="utf-8"))}
    assert read - OF_A_SHELL == {name for name in VARIABLES if name.startswith("SIMIA_")}
