"""The run of a training: several processes write it, a killed one loses nothing, and a step that is played again counts once."""

from __future__ import annotations

import contextlib
import resource
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from simia.errors import Code, UserError
from simia.jobs import FAILED, PASSED, REJECTED, Run, cleanup
from simia.jobs.rebuild import salvage
from simia.jobs.shared_run import EpisodeFigures, SharedRun, TrainingRun
from simia.report.training_statistics import collect_training, iterate_figures
from tests.jobs.training_writer import join, make_row

STEPS, EACH, PROCESSES = 30, 8, 4


def start_writer(folder: Path, start: str, name: str, first: int, last: int, each: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.jobs.training_writer", folder, start, name, first, last, each]
    return subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def read(folder: Path) -> list[EpisodeFigures]:
    with contextlib.closing(Run.read_only(folder.parent, folder.name)) as run:
        return list(iterate_figures(run))


def test_processes_that_write_at_once_lose_and_mix_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "training"
    writers = [
        start_writer(folder, "one", str(n), 1, STEPS, EACH) for n in range(PROCESSES)
    ]  # one of them makes the run
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n" * STEPS)
        writer.stdin.flush()
    with contextlib.closing(join(folder)):
        assert [writer.wait(120) for writer in writers] == [0] * PROCESSES
        with contextlib.closing(Run.read_only(folder.parent, folder.name)) as run:
            assert run.condition().working
            assert "the training is in progress" in str(run.verify())
    with contextlib.closing(Run.read_only(folder.parent, folder.name)) as run:
        assert run.verify().complete
        items = list(run.ledger.items())
        assert len(items) == STEPS * EACH * PROCESSES
        assert [item.ord for item in items] == list(range(len(items)))
        for item in items:
            body = run.ledger.result(item.id)
            assert body is not None
            step, _, name = item.id.partition(".")
            assert body["trajectory"]["messages"][1]["content"] == f"one {step} {name}"
            assert body["trajectory"]["tools"][0]["name"] == "look_up"
            assert body["trajectory"]["provenance"]["item"] == item.id
    assert Counter(each.step for each in read(folder)) == dict.fromkeys(range(1, STEPS + 1), EACH * PROCESSES)


def test_a_kill_loses_no_step_that_was_added_and_a_resume_counts_none_twice(tmp_path: Path) -> None:
    folder = tmp_path / "training"
    writer = start_writer(folder, "one", "0", 1, 9, 4)
    assert writer.stdin is not None
    assert writer.stdout is not None
    writer.stdin.write("\n" * 7)
    writer.stdin.flush()
    assert [writer.stdout.readline().strip() for _ in range(8)][-1] == "step 7"
    writer.send_signal(signal.SIGKILL)
    writer.wait(60)
    assert Counter(each.step for each in read(folder)) == dict.fromkeys(range(1, 8), 4)
    with contextlib.closing(join(folder)) as run:  # from the checkpoint of step 4, with fewer episodes a step
        run.add([make_row(5, f"0.{n}", "two") for n in range(3)])
        assert Counter(each.step for each in read(folder)) == {1: 4, 2: 4, 3: 4, 4: 4, 5: 3}
        run.add([make_row(6, f"0.{n}", "two") for n in range(3)])
    assert {each.start for each in read(folder) if each.step > 4} == {"two"}
    with contextlib.closing(Run.read_only(folder.parent, folder.name)) as found:
        assert found.verify().complete
        assert found.ledger.counts() == {PASSED: 22, REJECTED: 3 * 4}
        assert found.ledger.reasons() == {Code.SUPERSEDED: 12}, "of steps 5 to 7, whose episodes are kept all the same"
        statistics = collect_training(found)
        assert statistics.superseded == 12
        assert statistics.total is not None
        assert statistics.total.episodes == 22


def test_a_validation_before_the_resumed_step_still_counts(tmp_path: Path) -> None:
    folder = tmp_path / "training"
    with contextlib.closing(join(folder)) as run:
        for step in (1, 2, 3):
            run.add([make_row(step, "0.0", "one")])
            run.add([make_row(step, "0.0", "one", validates=True)])
    with contextlib.closing(join(folder)) as run:
        run.add([make_row(3, "0.0", "two")])
    kept = [(each.step, each.validates, each.start) for each in read(folder)]
    assert sorted(kept) == [(1, False, "one"), (1, True, "one"), (2, False, "one"), (2, True, "one"), (3, False, "two")]


def test_two_processes_of_one_start_do_not_supersede_each_other(tmp_path: Path) -> None:
    folder = tmp_path / "training"
    with contextlib.closing(join(folder)) as one, contextlib.closing(join(folder)) as two:
        one.add([make_row(1, "0.0", "start"), make_row(1, "0.1", "start")])
        one.add([make_row(2, "0.0", "start")])
        two.add([make_row(1, "1.0", "start")])  # a slower one
        two.add([make_row(1, "1.0", "start", text="another one of this name")])
    assert Counter(each.step for each in read(folder)) == {1: 4, 2: 1}


def test_a_start_that_is_repeated_by_hand_replaces_its_episodes(tmp_path: Path) -> None:
    """Such as verl's own command, whose files name the start."""
    folder = tmp_path / "training"
    for text in ("first", "second"):
        with contextlib.closing(join(folder)) as run:
            run.add([make_row(1, name, "start", text=f"{text} {name}") for name in ("0", "1")])
    with contextlib.closing(Run.read_only(folder.parent, folder.name)) as found:
        assert found.verify().complete
        bodies = [found.ledger.result(item.id) for item in found.ledger.items()]
    assert [body["trajectory"]["messages"][1]["content"] for body in bodies if body] == ["second 0", "second 1"]


def test_an_episode_without_reward_says_why(tmp_path: Path) -> None:
    folder = tmp_path / "training"
    with contextlib.closing(join(folder)) as run:
        run.add([make_row(1, "0.0", "one", reward=None, end="aborted", code="connection")])
    with contextlib.closing(Run.read_only(folder.parent, folder.name)) as found:
        (item,) = found.ledger.items()
        assert (item.status, item.reason) == (FAILED, Code.UNSCORED)


def test_a_run_whose_first_process_died_while_making_it_is_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "training"
    join(folder).close()
    with contextlib.closing(sqlite3.connect(folder / "ledger.db", isolation_level=None)) as ledger:
        ledger.execute("DELETE FROM meta WHERE name IN ('facts', 'created')")
    with contextlib.closing(join(folder)) as run:
        run.add([make_row(1, "0", "one")])
    with contextlib.closing(Run.read_only(tmp_path, "training")) as found:
        assert found.verify().complete


def test_freeing_space_keeps_every_episode_that_counts(tmp_path: Path) -> None:
    folder = tmp_path / "training"
    for start in ("one", "two"):
        with contextlib.closing(join(folder)) as run:
            run.add([make_row(1, f"0.{n}", start, reward=0.0) for n in range(3)])
            with pytest.raises(UserError, match="is in use"):
                cleanup.clean(folder)
    assert cleanup.clean(folder).done[0] == "3 bodies of rejected results removed"
    with contextlib.closing(Run.read_only(tmp_path, "training")) as found:
        assert found.verify().complete
        kept = [item.id for item in found.ledger.items() if found.ledger.result(item.id)]
    assert kept == ["1.0.0-2", "1.0.1-2", "1.0.2-2"]


@pytest.mark.parametrize("other", ["another folder", "a rollout"])
def test_the_run_of_another_training_is_refused(tmp_path: Path, other: str) -> None:
    folder = tmp_path / "training"
    if other == "a rollout":
        (folder).mkdir()
        (folder / "config.yaml").write_text("kind: rollout\n")
        wanted = r"training is not a run of a training: set episodes\.run to another one"
    else:
        join(folder).close()
        wanted = r"training is of the training in /checkpoints: set episodes\.run to another one"
    with pytest.raises(UserError, match=wanted):
        SharedRun.join(folder, TrainingRun(trainer="trl", folder="/elsewhere"), {})


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        UserError, match=r"cannot write episodes to .*/file/training: Not a directory; set episodes.run to a folder"
    ):
        join(tmp_path / "file" / "training")
    (tmp_path / "training" / "ledger.db").mkdir(parents=True)
    with pytest.raises(UserError) as found:
        join(tmp_path / "training")
    assert "\n" not in str(found.value)


FILL = """
import resource, sys
from pathlib import Path
from simia.errors import UserError
from tests.jobs.training_writer import join, make_row
run = join(Path(sys.argv[1]))
run.add([make_row(1, "0.0", "one")])
size = (Path(sys.argv[1]) / "ledger.db-wal").stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40_000, resource.RLIM_INFINITY))
import random, string
text = "".join(random.Random(0).choices(string.printable, k=200_000))
try:
    run.add([make_row(2, f"0.{n}", "one", text=text) for n in range(4)])
except UserError as error:
    print(error)
"""


def test_a_full_disk_is_one_line_and_leaves_whole_steps(tmp_path: Path) -> None:
    """A limit on the size of files stands in for the disk: SQLite reports both as a failed write."""
    folder = tmp_path / "training"
    assert resource.RLIMIT_FSIZE
    code = f"import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n{FILL}"
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"cannot write episodes to the run {folder}: ")
    assert done.stdout.count("\n") == 1
    assert "start again" in done.stdout
    assert [each.step for each in read(folder)] == [1]
    with contextlib.closing(join(folder)) as run:
        run.add([make_row(2, "0.0", "two")])
    assert [each.step for each in read(folder)] == [1, 2]


def test_a_damaged_run_of_a_training_is_rebuilt(tmp_path: Path) -> None:
    folder = tmp_path / "training"
    with contextlib.closing(join(folder)) as run:
        for step in range(1, 5):
            run.add([make_row(step, f"0.{n}", "one") for n in range(3)])
        with pytest.raises(UserError, match="is in use"):
            salvage(tmp_path, "training")
    salvage(tmp_path, "training")
    assert len(read(folder)) == 12
    with contextlib.closing(Run.read_only(tmp_path, "training")) as found:
        assert found.verify().complete
