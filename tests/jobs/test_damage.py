"""Files of a run that are damaged, lost, old or too new: one line that says what to do, and `simia runs rebuild` does it."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from simia.amplification.recheck import recheck_run
from simia.amplification.session import Amplified
from simia.errors import UserError
from simia.jobs import Run, folders
from simia.jobs.cleanup import clean, survey
from simia.jobs.diff import compare_runs
from simia.jobs.integrity import RUN
from simia.jobs.shared_spending import in_ledger
from simia.jobs.tables import COLUMNS, MOST, Damaged, is_disk_full
from tests.fake_endpoint import FakeEndpoint
from tests.jobs.faults import Done, N, Original, accepted, command, make

Made = tuple[dict[str, Original], FakeEndpoint]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    endpoint = FakeEndpoint("--respond", "tests.replies:trajectory")
    try:
        yield make(tmp_path_factory.mktemp("runs"), endpoint), endpoint
    finally:
        endpoint.stop()


@pytest.fixture
def copied(made: Made, tmp_path: Path) -> Callable[[str], Path]:
    def copy(kind: str) -> Path:
        return Path(shutil.copytree(made[0][kind].folder, tmp_path / kind / "r"))

    return copy


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def one_line(done: Done, *words: str) -> None:
    assert not done.trace, done.trace
    assert done.code == 2, done
    assert done.err.count("\n") == 1, done.err
    assert done.err.startswith("simia: ")
    assert len(done.err) < 600
    for word in words:
        assert word in done.err


def whole_again(folder: Path, made: Made, *, code: int = 0) -> Done:
    done = command("rebuild", folder, made[1])
    assert not done.trace, done.trace
    assert done.code == code, done
    return done


LOST = {
    "an empty ledger": lambda folder: (folder / "ledger.db").write_bytes(b""),
    "a lost ledger": lambda folder: (folder / "ledger.db").unlink(),
    "no database": lambda folder: (folder / "ledger.db").write_bytes(b"no database " * 1000),
    "half a ledger": lambda folder: os.truncate(folder / "ledger.db", 40_000),
}


@pytest.mark.parametrize("name", LOST)
@pytest.mark.parametrize("verb", ["resume", "show", "report", "export", "recheck"])
def test_a_lost_ledger_is_one_line_that_says_what_to_do(
    name: str, verb: str, made: Made, copied: Callable[[str], Path]
) -> None:
    folder = copied("closed")
    LOST[name](folder)
    one_line(command(verb, folder, made[1]), "ledger.db", f"simia runs rebuild {folder}")


@pytest.mark.parametrize("name", LOST)
def test_a_ledger_is_made_again_from_the_replies(name: str, made: Made, copied: Callable[[str], Path]) -> None:
    folder = copied("closed")
    LOST[name](folder)
    done = whole_again(folder, made)
    assert done.asked == 0
    assert "run r is complete" in done.out
    assert accepted(folder) == made[0]["closed"].whole
    assert (folder / "damaged-001").is_dir()
    assert command("export", folder, made[1]).code == 0
    again = command("resume", folder, made[1])
    assert (again.code, again.asked) == (0, 0), again.err
    assert accepted(folder) == made[0]["closed"].whole


def test_a_missing_write_ahead_log_of_the_ledger_is_one_line(made: Made, copied: Callable[[str], Path]) -> None:
    folder = copied("wal")
    (folder / "ledger.db-wal").unlink()
    for verb in ("resume", "report", "export"):
        one_line(command(verb, folder, made[1]), "the -wal file next to it is missing")
    whole_again(folder, made)
    assert accepted(folder) == made[0]["wal"].whole


def test_a_missing_write_ahead_log_of_the_replies_loses_them_and_says_so(
    made: Made, copied: Callable[[str], Path]
) -> None:
    folder = copied("wal")
    (folder / "replies.db-wal").unlink()
    one_line(command("export", folder, made[1]), "replies.db", "simia runs rebuild")
    done = whole_again(folder, made)
    assert "0 replies read" in done.out
    assert "replies of the ledger lost" in done.out
    assert accepted(folder) == made[0]["wal"].whole, "the ledger had them"


def test_a_reply_that_is_damaged_is_named_and_the_others_are_kept(made: Made, copied: Callable[[str], Path]) -> None:
    folder = copied("closed")
    change(folder / "replies.db", "UPDATE reply SET body = zeroblob(40) WHERE draw = 'i000003.0'")
    before = accepted(folder)
    one_line(command("recheck", folder, made[1]), "1 changed row in table reply")
    assert accepted(folder) == before, "nothing was touched"
    done = whole_again(folder, made)
    assert "1 damaged row of table reply left out" in done.out
    assert "1 reply of the ledger lost" in done.out
    assert accepted(folder) == before, "its result is still in the ledger"


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        ("DELETE FROM accepted WHERE ord = (SELECT MIN(ord) FROM accepted)", "not accepted in turn"),
        ("DELETE FROM accepted WHERE ord = (SELECT MAX(ord) FROM accepted)", "it ended as complete with 24"),
        ("DELETE FROM result WHERE item = (SELECT item FROM accepted)", "whose text is missing"),
        ("DELETE FROM item WHERE id = (SELECT item FROM accepted)", "missing from the plan"),
        ("DELETE FROM attempt WHERE item = (SELECT item FROM accepted)", "1 reply unknown to the ledger"),
    ],
)
def test_rows_that_are_missing_are_noticed(
    statement: str, word: str, made: Made, copied: Callable[[str], Path]
) -> None:
    folder = copied("closed")
    change(folder / "ledger.db", statement)
    one_line(command("export", folder, made[1]), "inconsistent", word, "--partial")
    assert word in command("report", folder, made[1]).err
    assert "inconsistent" in command("list", folder, made[1]).out or "turn" not in word
    assert command("export", folder, made[1], "--partial").code == 0
    whole_again(folder, made)
    assert accepted(folder) == made[0]["closed"].whole


@pytest.mark.parametrize("file", ["ledger", "replies"])
def test_a_newer_format_is_refused_in_one_line(file: str, made: Made, copied: Callable[[str], Path]) -> None:
    folder = copied("closed")
    change(folder / f"{file}.db", "PRAGMA user_version = 7")
    for verb in ("resume", "report", "export"):
        one_line(command(verb, folder, made[1]), f"{file}.db has format 7", "upgrade simia")


def as_of_0_1_0(folder: Path) -> None:
    """The files as the first release wrote them: no version, no checksums, nothing about the run beside the replies."""
    for file, tables in COLUMNS.items():
        drop = [f"ALTER TABLE {table} DROP COLUMN sum" for table in tables]
        change(
            folder / f"{file}.db", *drop, *(["DROP TABLE meta"] if file == "replies" else []), "PRAGMA user_version = 0"
        )
    change(folder / "ledger.db", f"DELETE FROM meta WHERE name = '{RUN}'")


def test_files_of_the_first_release_open_and_go_on(made: Made, copied: Callable[[str], Path]) -> None:
    folder = copied("closed")
    as_of_0_1_0(folder)
    for verb in ("list", "show", "export", "recheck", "resume"):
        assert command(verb, folder, made[1]).code == 0
    assert accepted(folder) == made[0]["closed"].whole
    done = command("resume", folder, made[1], "--n", str(N + 4))
    assert done.code == 0, done.err
    assert made[0]["closed"].whole.items() <= accepted(folder).items()


@pytest.mark.parametrize("kind", ["closed", "wal"])
def test_a_lost_ledger_of_the_first_release_is_made_again(kind: str, made: Made, copied: Callable[[str], Path]) -> None:
    folder = copied(kind)
    as_of_0_1_0(folder)
    (folder / "ledger.db").write_bytes(b"")
    whole_again(folder, made)
    assert accepted(folder) == made[0][kind].whole
    assert command("resume", folder, made[1]).code == 0


def test_a_damaged_row_of_the_first_release_is_one_line(made: Made, copied: Callable[[str], Path]) -> None:
    folder = copied("closed")
    as_of_0_1_0(folder)
    change(folder / "ledger.db", "UPDATE result SET body = zeroblob(40) WHERE item = (SELECT item FROM accepted)")
    change(folder / "replies.db", "UPDATE reply SET body = zeroblob(40) WHERE draw = 'i000003.0'")
    for verb in ("export", "recheck", "report"):
        one_line(command(verb, folder, made[1]), "simia runs rebuild")


def test_one_damaged_run_does_not_hide_the_others(made: Made, copied: Callable[[str], Path]) -> None:
    folder = copied("closed")
    bad = folder.with_name("bad")
    shutil.copytree(folder, bad)
    (bad / "ledger.db").write_bytes(b"no database " * 1000)
    done = command("list", folder, made[1])
    assert done.code == 0
    assert "cannot be read" in done.out
    assert "fake" in done.out, "the good one's model"
    assert f"simia runs rebuild {bad}" in done.err
    free = command("gc", folder, made[1])
    assert (free.code, free.trace) == (0, "")


def test_a_damaged_run_is_not_cleaned(made: Made, copied: Callable[[str], Path]) -> None:
    folder = copied("closed")
    change(folder / "ledger.db", "UPDATE item SET detail = 'x' WHERE ord = 2")
    with pytest.raises(Damaged, match="1 changed row in table item"):
        clean(folder)


def test_an_unfinished_run_is_exported_only_on_request(made: Made, copied: Callable[[str], Path]) -> None:
    folder = copied("killed")
    refused = command("export", folder, made[1])
    one_line(refused, f"of {N} accepted, killed before its end", "simia runs resume r", "--partial")
    assert not (folder.parent / "out").exists()
    done = command("export", folder, made[1], "--partial")
    assert done.code == 0
    assert "note: run r" in done.err
    rows = (folder.parent / "out" / "data.jsonl").read_text().splitlines()
    assert len(rows) == len(accepted(folder))


def test_a_run_in_progress_says_so(made: Made, copied: Callable[[str], Path]) -> None:
    folder = copied("killed")
    run = Run.open(folder.parent, str(folder))
    try:
        one_line(command("export", folder, made[1]), "run in progress", "--partial")
        assert "run in progress" in command("report", folder, made[1]).err
        assert command("export", folder, made[1], "--partial").code == 0
    finally:
        run.close()


def test_an_export_without_a_row_is_one_line(made: Made, tmp_path: Path, copied: Callable[[str], Path]) -> None:
    folder = copied("closed")
    done = command("export", folder, made[1], "--cutoff", "1", "--to", "llamafactory")
    assert done.code == 2
    assert done.err.startswith("simia: no row was written: none of 24 trajectories can be exported")
    assert done.err.count("\n") == 1


async def test_the_api_refuses_what_is_not_complete(made: Made, copied: Callable[[str], Path]) -> None:
    from simia.jobs.coordinator import Stop
    from simia.jobs.progress import Progress

    left = Amplified(copied("killed"), Stop("budget"), Progress("r", N))
    with pytest.raises(UserError, match=r"trajectories\(partial=True\)"):
        next(left.trajectories())
    assert list(left.trajectories(partial=True))


RECHECK = """
import sys; from pathlib import Path; from simia.amplification.recheck import recheck_run
print("begun", flush=True)
recheck_run(Path(sys.argv[1]), "r", print)
"""


@pytest.mark.all
def test_a_recheck_that_is_killed_leaves_the_old_result_or_the_new(made: Made, copied: Callable[[str], Path]) -> None:
    """The killed run holds passing results that the recheck accepts, so that old and new differ."""
    dice = random.Random(3)
    folder = copied("closed")
    old = accepted(folder)
    begun = time.monotonic()
    recheck_run(folder.parent, "r", print)
    took = time.monotonic() - begun
    for _ in range(6):
        child = subprocess.Popen([sys.executable, "-c", RECHECK, str(folder.parent)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(dice.uniform(0, took))
        child.send_signal(signal.SIGKILL)
        child.communicate()
        assert accepted(folder) == old
        assert command("export", folder, made[1]).code == 0


@pytest.mark.parametrize("after", [0, 1, 5, 17])
def test_a_recheck_that_dies_at_an_item_leaves_the_old_result(
    after: int, made: Made, copied: Callable[[str], Path]
) -> None:
    """Killed at exactly this item, with everything before it handed to the disk."""
    folder = copied("closed")
    old = accepted(folder)
    code = f"""
import os, sys, time; from pathlib import Path; from simia.amplification import recheck
store, count = recheck.store_result, 0
def dying(ledger, *rest):
    global count
    if count == {after}:
        while not ledger.db._queue.empty(): time.sleep(0.01)
        time.sleep(0.1)
        os.kill(os.getpid(), 9)
    count += 1
    return store(ledger, *rest)
recheck.store_result = dying
recheck.recheck_run(Path(sys.argv[1]), "r", print)
"""
    done = subprocess.run([sys.executable, "-c", code, str(folder.parent)], check=False, capture_output=True)
    assert done.returncode == -9, done.stderr
    assert accepted(folder) == old
    run = Run.read_only(folder.parent, str(folder))
    assert run.verify().complete
    run.close()


@pytest.mark.parametrize("after", range(3))
def test_a_rebuild_that_dies_can_be_repeated(after: int, made: Made, copied: Callable[[str], Path]) -> None:
    folder = copied("closed")
    (folder / "ledger.db").write_bytes(b"")
    code = f"""
import os, sys; from pathlib import Path; from simia.amplification.recheck import rebuild_run
replace, count = Path.replace, 0
def dying(path, to):
    global count
    if count == {after}: os.kill(os.getpid(), 9)
    count += 1
    return replace(path, to)
Path.replace = dying
rebuild_run(Path(sys.argv[1]), "r")
"""
    done = subprocess.run([sys.executable, "-c", code, str(folder.parent)], check=False, capture_output=True)
    assert done.returncode == -9, done.stderr
    whole_again(folder, made)
    assert accepted(folder) == made[0]["closed"].whole
    assert not list(folder.glob("rebuilding-*"))


def test_damage_within_the_message_of_sqlite_is_one_line(made: Made, copied: Callable[[str], Path]) -> None:
    folder = copied("closed")
    data = (folder / "ledger.db").read_bytes()
    (folder / "ledger.db").write_bytes(data.replace(b"CREATE TABLE trait", b"CREATE \xb3ABLE trait"))
    for verb in ("list", "export", "resume"):
        one_line(command(verb, folder, made[1]), "simia runs rebuild")
    whole_again(folder, made)
    assert accepted(folder) == made[0]["closed"].whole


def test_a_lost_text_of_the_requests_is_stored_again(made: Made, copied: Callable[[str], Path]) -> None:
    folder = copied("closed")
    change(folder / "replies.db", "DELETE FROM text")
    whole_again(folder, made)
    run = Run.read_only(folder.parent, str(folder))
    try:
        assert all(row["request"]["messages"] for row in run.ledger.replies())
    finally:
        run.close()


@pytest.mark.attack("a run's lock file is missing")
@pytest.mark.parametrize("verb", ["list", "show", "export", "recheck", "resume", "rebuild"])
def test_a_run_without_its_lock_is_a_run(verb: str, made: Made, copied: Callable[[str], Path]) -> None:
    folder = copied("closed")
    (folder / "lock").unlink()
    done = command(verb, folder, made[1])
    assert (done.code, done.trace, done.asked) == (0, "", 0), done
    assert [found.name for found in folders(folder.parent)] == ["r"]
    assert accepted(folder) == made[0]["closed"].whole
    assert (folder / "lock").is_file() == (verb in ("recheck", "rebuild")), "who works on a run makes it again"


@pytest.mark.attack("a directory stands in place of a run's lock file")
def test_a_directory_in_place_of_the_lock_is_one_line(made: Made, copied: Callable[[str], Path]) -> None:
    folder = copied("closed")
    (folder / "lock").unlink()
    (folder / "lock").mkdir()
    for verb in ("list", "show", "export", "resume"):  # there is nothing to work on in a complete run
        assert command(verb, folder, made[1]).code == 0
    for verb in ("recheck", "rebuild"):
        one_line(command(verb, folder, made[1]), f"{folder / 'lock'} is a directory", "remove it")
    (found,) = survey(folder.parent)
    assert "is a directory" in found.problem


def test_a_run_that_has_lost_both_files_is_one_line(made: Made, copied: Callable[[str], Path]) -> None:
    folder = copied("closed")
    for name in ("ledger.db", "replies.db"):
        (folder / name).unlink()
    for verb in ("list", "show", "export", "resume"):
        one_line(command(verb, folder, made[1]), "is missing", f"simia runs rebuild {folder}")


@pytest.mark.attack("the replies of another run of the same config are put into a run")
def test_replies_of_another_run_are_one_line(made: Made, copied: Callable[[str], Path], tmp_path: Path) -> None:
    folder = copied("closed")
    before = sorted(path.name for path in folder.iterdir())
    shutil.copyfile(made[0]["killed"].folder.parent.parent / "killed-whole" / "r" / "replies.db", folder / "replies.db")
    for verb in ("list", "show", "report", "export", "recheck", "resume", "rebuild"):
        one_line(command(verb, folder, made[1]), "belong to different runs", f"simia runs rebuild {folder}")
    with pytest.raises(UserError, match="belong to different runs"):
        clean(folder)
    assert sorted(path.name for path in folder.iterdir()) == before, "no copy is left for a later attempt to read"
    (folder / "ledger.db").rename(tmp_path / "ledger.db")
    assert whole_again(folder, made).asked == 0
    for verb in ("show", "export", "rebuild"):
        assert command(verb, folder, made[1]).code == 0


@pytest.mark.attack("a directory stands in place of a run's database")
@pytest.mark.parametrize("name", ["ledger.db", "ledger.db-wal", "ledger.db-shm"])
def test_a_directory_in_place_of_the_ledger_is_put_aside(name: str, made: Made, copied: Callable[[str], Path]) -> None:
    folder = copied("closed")
    (folder / name).unlink(missing_ok=True)
    (folder / name).mkdir()
    (folder / name / "kept").write_text("x")
    for verb in ("show", "export", "resume"):
        one_line(command(verb, folder, made[1]), f"{name} is a directory", f"simia runs rebuild {folder}")
    assert command("gc", folder, made[1]).trace == ""
    assert whole_again(folder, made).asked == 0
    assert accepted(folder) == made[0]["closed"].whole
    assert (folder / "damaged-001" / f"{name}.directory" / "kept").is_file()
    assert command("resume", folder, made[1]).code == 0


def test_only_a_full_disk_is_told_to_need_more(made: Made, copied: Callable[[str], Path]) -> None:
    folder = copied("closed")
    (folder / "ledger.db.new").mkdir()  # of an earlier attempt
    whole_again(folder, made)
    assert is_disk_full(OSError(errno.ENOSPC, "no space"))
    assert not is_disk_full(OSError(errno.EISDIR, "a directory"))
    (folder / ".rebuilding-001").write_text("")
    one_line(command("rebuild", folder, made[1]), "File exists", f"fix this, then: simia runs rebuild {folder}")


@pytest.mark.attack("the figures of an endpoint are beyond what a database can add up")
def test_figures_of_any_size_are_shown(made: Made, copied: Callable[[str], Path]) -> None:
    folder = copied("closed")
    other = folder.with_name("other")
    shutil.copytree(folder, other)
    for statement in (
        "UPDATE attempt SET prompt = 9223372036854775807, completion = 9223372036854775807, cached = -5, cost = 9e999",
        "UPDATE attempt SET sum = NULL",
    ):
        change(folder / "ledger.db", statement)
    for verb in ("list", "show", "report", "export", "recheck", "resume"):
        done = command(verb, folder, made[1])
        assert (done.code, done.trace) == (0, ""), done
    left, right = (Run.read_only(folder.parent, str(each)) for each in (folder, other))
    try:
        found = compare_runs(left, right).left
        assert (found.prompt, found.cached, found.cost) == (MOST, 0, 1e15)
    finally:
        left.close()
        right.close()
    assert in_ledger(folder / "ledger.db").tokens == 2 * MOST
