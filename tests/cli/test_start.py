"""A command imports the module of its verb alone, and is the same command as in the whole command line."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from typer.main import get_command

from scripts.command_reference import list_commands
from simia.cli import COMMANDS, GROUPS, build_app


def build(verb: str) -> Any:
    """The command line that begins with this word."""
    return get_command(build_app(verb))


def list_parameters(command: Any) -> list[tuple[Any, ...]]:
    return [(each.name, each.opts, each.required, each.default, each.help) for each in command.params]


def test_each_verb_alone_is_what_it_is_among_all() -> None:
    whole = build("").commands
    assert set(whole) == {*COMMANDS, *GROUPS}
    for verb, command in whole.items():
        (alone,) = build(verb).commands.items()
        assert alone[0] == verb
        pairs = zip(list_commands(alone[1]), list_commands(command), strict=True)
        for (name, one), (same, other) in pairs:
            assert (name, one.help) == (same, other.help)
            assert list_parameters(one) == list_parameters(other)


@pytest.mark.parametrize("word", ["", "--help", "-h", "rolout", "--runs"])
def test_with_any_other_word_all_commands_can_be_named(word: str) -> None:
    assert set(build(word).commands) == {*COMMANDS, *GROUPS}


@pytest.mark.parametrize(("words", "imported"), [("runs list --runs missing", ["runs"]), ("--version", [])])
def test_no_other_verb_is_imported(words: str, imported: list[str], tmp_path: Any) -> None:
    code = (
        "import sys, simia.cli\n"
        f"sys.argv = ['simia', *{words.split()}]\n"
        "try:\n    simia.cli.main()\n"
        "except SystemExit as end:\n    assert not end.code, end\n"
        f"print([name for name in {[*COMMANDS, *GROUPS.values()]} if 'simia.cli.' + name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1:] == [str(imported)], done.stdout + done.stderr
