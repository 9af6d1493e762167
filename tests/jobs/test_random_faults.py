"""Random faults in a run's files (see `faults.py`): twenty in each run of the tests, two commands each; all commands on three hundred in
the long ones, runs that were killed half-way among them, whose files differ from time to time."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_endpoint import FakeEndpoint
from tests.jobs.faults import COMMANDS, KINDS, Original, command, judge, make, run_fault

FEW, ALL = 20, 300
REPEATABLE = [number for number in range(ALL) if random.Random(number).choice(KINDS) != "killed"][:FEW]
Made = tuple[dict[str, Original], FakeEndpoint]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    endpoint = FakeEndpoint("--respond", "tests.replies:trajectory")
    try:
        yield make(tmp_path_factory.mktemp("runs"), endpoint), endpoint
    finally:
        endpoint.stop()


@pytest.mark.parametrize("number", REPEATABLE)
def test_a_damaged_run_is_never_a_traceback_or_a_silent_loss(number: int, made: Made, tmp_path: Path) -> None:
    # Numbers and commands have no common divisor, so that every command meets every kind of fault.
    commands = [COMMANDS[(number + i) % len(COMMANDS)] for i in (0, 3)]
    assert run_fault(number, made[0], tmp_path, made[1], commands).failures == []


def test_a_recheck_of_a_killed_run_that_changes_nothing_is_right(made: Made, tmp_path: Path) -> None:
    """Whether a recheck of a killed run has something to change depends on the moment of the kill; it is no loss where it has not."""
    folder = tmp_path / "r"
    shutil.copytree(made[0]["killed"].folder, folder)
    done = [command("recheck", folder, made[1]) for _ in range(2)]
    assert not re.search(r"^\w+: \d+ → ", done[1].out, re.M), "the second one has nothing to change"
    assert [judge("recheck", each, folder, made[0]["killed"]) for each in done] == [None, None]


@pytest.mark.parametrize("number", [127, 213])
def test_faults_that_once_got_through(number: int, made: Made, tmp_path: Path) -> None:
    """A byte in the text of SQLite's own message; a text that several requests share."""
    assert run_fault(number, made[0], tmp_path, made[1], ["list", "export", "rebuild"]).failures == []


@pytest.mark.all
@pytest.mark.parametrize("number", range(ALL))
def test_every_command_on_a_damaged_run(number: int, made: Made, tmp_path: Path) -> None:
    assert run_fault(number, made[0], tmp_path, made[1]).failures == []
