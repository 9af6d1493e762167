"""`simia import`: its help names every importer."""

from __future__ import annotations

from simia.cli.imports import HELP, app


def test_the_help_names_every_importer() -> None:
    names = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]
    assert len(names) >= 6
    assert HELP.rstrip(".").partition(": ")[2].split(", ") == names
