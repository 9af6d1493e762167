"""Write-ahead logs that a killed process left: no command loses a row of them before `simia runs rebuild` has read them."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from simia.amplification.recheck import recheck_run
from simia.errors import UserError
from simia.jobs import Store
from simia.jobs.cleanup import survey
from simia.jobs.integrity import RUN
from simia.jobs.rebuild import scan_pages
from simia.jobs.reply_store import readable
from simia.jobs.shared_spending import in_ledger
from simia.jobs.tables import COLUMNS, Damaged, File
from simia.terminal import write_count
from tests.fake_endpoint import FakeEndpoint
from tests.jobs.faults import Original, accepted, command, make
from tests.jobs.logs import STATES, leave_log

HEADER, FRAME = 32, 24 + 4096
READERS = ("list", "gc", "show", "report", "export")
WRITERS = ("recheck", "resume")
FILES: tuple[File, ...] = ("ledger", "replies")
Leave = Callable[..., Path]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[FakeEndpoint]:
    fake = FakeEndpoint("--respond", "tests.replies:trajectory")
    try:
        yield fake
    finally:
        fake.stop()


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory, endpoint: FakeEndpoint) -> Original:
    return make(tmp_path_factory.mktemp("runs"), endpoint, ["closed"])["closed"]


@pytest.fixture
def leave(closed: Original, tmp_path: Path) -> Leave:
    def left(state: str, *files: File) -> Path:
        folder = Path(shutil.copytree(closed.folder, tmp_path / "run" / "r"))
        for file in files:
            leave_log(folder, file, state)
        return folder

    return left


def change_byte(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0x41
    path.write_bytes(data)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name.endswith((".db", ".db-wal"))}


def keys(folder: Path) -> set[str]:
    with closing(sqlite3.connect(folder / "replies.db")) as connection:
        return {key for (key,) in connection.execute("SELECT key FROM reply")}


def refuse_all(folder: Path, endpoint: FakeEndpoint, *words: str) -> None:
    """Each command says what is wrong, and leaves both files and their logs as they are."""
    before = contents(folder)
    for verb in (*READERS, *WRITERS):
        done = command(verb, folder, endpoint)
        assert (done.trace, done.asked) == ("", 0)
        if verb in WRITERS:
            assert done.code == 2, (verb, done)
        if verb not in ("list", "gc"):  # they count, and do not verify
            assert all(word in done.err for word in words), (verb, done)
        after = contents(folder)
        assert all(after.get(name, b"") == data for name, data in before.items()), verb


@pytest.mark.attack("a run's database is empty, and all its rows are in the log of a killed process")
@pytest.mark.parametrize("size", [None, 0, 1])
@pytest.mark.parametrize("file", FILES)
def test_an_empty_file_does_not_cost_its_log(
    file: File, size: int | None, leave: Leave, closed: Original, endpoint: FakeEndpoint
) -> None:
    """SQLite removes the log of an empty file as soon as it opens the file."""
    folder = leave("in the log", *FILES)
    path = folder / f"{file}.db"
    path.unlink() if size is None else os.truncate(path, size)
    refuse_all(folder, endpoint, f"{file}.db is damaged", f"simia runs rebuild {folder}")
    done = command("rebuild", folder, endpoint)
    assert (done.code, done.asked) == (0, 0), done
    assert "are lost" not in done.out
    assert keys(folder) == keys(closed.folder)
    assert accepted(folder) == closed.whole


@pytest.mark.parametrize("size", [2, 99, 100, 2937, 4095])
@pytest.mark.parametrize("file", FILES)
def test_a_cut_file_whose_rows_are_in_the_log_is_whole(
    file: File, size: int, leave: Leave, closed: Original, endpoint: FakeEndpoint
) -> None:
    folder = leave("in the log", *FILES)
    os.truncate(folder / f"{file}.db", size)
    done = command("recheck", folder, endpoint)
    assert (done.code, done.err) == (0, ""), done
    assert keys(folder) == keys(closed.folder)
    assert accepted(folder) == closed.whole


@pytest.mark.attack("a byte of a log is changed")
@pytest.mark.parametrize("place", [5, 20, HEADER + 9, HEADER + 20 * FRAME + 9, HEADER + 20 * FRAME + 2000])
def test_commits_behind_a_damaged_one_are_not_lost(
    place: int, leave: Leave, closed: Original, endpoint: FakeEndpoint
) -> None:
    """SQLite drops a damaged commit and all after it, and removes them on closing."""
    folder = leave("in the log", "replies")
    change_byte(folder / "replies.db-wal", place)
    refuse_all(folder, endpoint, "r", "rebuild")
    done = command("rebuild", folder, endpoint)
    assert (done.code, done.asked) == (0, 0), done
    assert "are lost" not in done.out
    assert keys(folder) == keys(closed.folder)
    assert accepted(folder) == closed.whole


@pytest.mark.attack("a log is cut after a part of it was copied into its file")
def test_an_older_page_of_a_cut_log_does_not_replace_a_newer_one(
    leave: Leave, closed: Original, endpoint: FakeEndpoint
) -> None:
    folder = leave("copied", "replies")
    os.truncate(folder / "replies.db-wal", HEADER + 40 * FRAME)
    with closing(sqlite3.connect(f"file:{folder / 'replies.db'}?mode=ro", uri=True)) as connection:
        assert connection.execute("SELECT COUNT(*) FROM reply").fetchone()[0] < len(keys(closed.folder))
    refuse_all(folder, endpoint, "lost replies", "rebuild")
    done = command("rebuild", folder, endpoint)
    assert (done.code, done.asked) == (0, 0), done
    assert "are lost" not in done.out
    assert keys(folder) == keys(closed.folder)
    assert accepted(folder) == closed.whole


@pytest.mark.attack("a log is cut after a half of it was copied into its file")
def test_what_was_copied_of_a_cut_log_is_kept(leave: Leave, closed: Original, endpoint: FakeEndpoint) -> None:
    folder = leave("half copied", "replies")
    os.truncate(folder / "replies.db-wal", HEADER + 26 * FRAME)
    left = {row[0] for row in scan_pages(folder / "replies.db", "reply")}
    with closing(sqlite3.connect(f"file:{folder / 'replies.db'}?mode=ro", uri=True)) as connection:
        assert connection.execute("SELECT COUNT(*) FROM reply").fetchone()[0] < len(left)
    refuse_all(folder, endpoint, "lost replies", "rebuild")
    assert "replies of the ledger lost" in command("rebuild", folder, endpoint).out
    assert left <= keys(folder)
    assert accepted(folder) == closed.whole, "the ledger had them"


def test_a_cut_file_gets_rows_back_from_the_log_that_was_begun_anew(
    leave: Leave, closed: Original, endpoint: FakeEndpoint
) -> None:
    """Frames of the log before stand behind the new ones, and hold pages that the file has lost."""
    folder = leave("begun anew", "replies")
    os.truncate(folder / "replies.db", 4096)
    refuse_all(folder, endpoint, "replies.db is damaged", "rebuild")
    done = command("rebuild", folder, endpoint)
    assert done.asked == 0
    lost = keys(closed.folder) - keys(folder)
    assert (f"{write_count(len(lost), 'reply')} of the ledger lost" in done.out) == bool(lost)
    assert len(lost) < len(keys(closed.folder)) / 2
    assert accepted(folder) == closed.whole


@pytest.mark.parametrize("state", STATES)
def test_a_sound_log_is_left_by_readers_and_copied_back_by_writers(
    state: str, leave: Leave, closed: Original, endpoint: FakeEndpoint
) -> None:
    folder = leave(state, *FILES)
    before = contents(folder)
    for verb in READERS:
        done = command(verb, folder, endpoint)
        assert (done.code, done.trace) == (0, ""), done
        assert contents(folder) == before, verb
    for verb in WRITERS:
        done = command(verb, folder, endpoint)
        assert (done.code, done.err.count("note"), done.asked) == (0, 0, 0), done
        assert not (folder / "replies.db-wal").exists()
        assert keys(folder) == keys(closed.folder)
        assert accepted(folder) == closed.whole


@pytest.mark.parametrize("old", [["ledger", "replies"], ["ledger"]], ids=["both", "ledger"])
@pytest.mark.parametrize("verbs", [READERS, WRITERS], ids=["readers", "writers"])
def test_a_log_of_the_first_release_is_read(
    verbs: tuple[str, ...], old: list[File], leave: Leave, closed: Original, endpoint: FakeEndpoint
) -> None:
    """Its tables get their columns also by a command that only reads; a kill between the two files leaves one of each release."""
    folder = leave("in the log", *FILES)
    for file in old:
        tables = COLUMNS[file]
        path = folder / f"{file}.db"
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA wal_autocheckpoint=0")
            for table in tables:
                connection.execute(f"ALTER TABLE {table} DROP COLUMN sum")
            connection.execute("PRAGMA user_version = 0")
            connection.execute("DROP TABLE meta" if file == "replies" else f"DELETE FROM meta WHERE name = '{RUN}'")
            killed = contents(folder)
        for part in ("", "-wal"):
            (folder / f"{file}.db{part}").write_bytes(killed[f"{file}.db{part}"])
    for verb in verbs:
        done = command(verb, folder, endpoint)
        assert (done.code, done.trace) == (0, ""), done
    for file in FILES if verbs is WRITERS else old:
        with closing(sqlite3.connect(folder / f"{file}.db")) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    if verbs is WRITERS:
        more = command("resume", folder, endpoint, "--n", "26")
        assert more.code == 0, more.err
    assert keys(folder) >= keys(closed.folder)
    assert accepted(folder).items() >= closed.whole.items()


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


REJECTED = "SELECT reply_key FROM l.attempt JOIN l.item ON item.id = attempt.item WHERE item.status = 'rejected'"


def test_lost_replies_of_rejected_items_are_named_when_the_identity_is_lost_too(
    leave: Leave, endpoint: FakeEndpoint
) -> None:
    folder = leave("in the log")
    attach = f"ATTACH '{folder / 'ledger.db'}' AS l"
    change(folder / "replies.db", attach, f"DELETE FROM reply WHERE key IN ({REJECTED})", "DELETE FROM meta")
    says: list[str] = []
    recheck_run(folder.parent, "r", says.append)
    assert "lost replies" in says[0]
    assert "replies.db has lost the run's identity" in says[0]
    assert "replies of the ledger lost" in command("rebuild", folder, endpoint).out
    assert command("recheck", folder, endpoint).err == "", "after it nothing is missing any more"


def test_more_lost_replies_than_were_removed_on_request_are_named(leave: Leave, endpoint: FakeEndpoint) -> None:
    folder = leave("in the log")
    count = len(keys(folder))
    assert command("gc", folder, endpoint, "--free", "--replies", "--yes").code == 0
    freed = count - len(keys(folder))
    assert freed > 0
    done = command("rebuild", folder, endpoint)
    assert "are lost" not in done.out, "what was removed on request is not lost"
    change(folder / "replies.db", f"UPDATE meta SET value = '{freed - 1}', sum = NULL WHERE name = 'freed'")
    assert "1 lost reply" in command("recheck", folder, endpoint).err
    assert "1 reply of the ledger lost" in command("rebuild", folder, endpoint).out
    assert command("recheck", folder, endpoint).err == ""


def test_a_store_does_not_lose_its_log(leave: Leave, tmp_path: Path) -> None:
    """A trainer's store has no `rebuild`: it is put aside by hand."""
    folder = tmp_path / "store" / "0"
    shutil.copytree(leave("in the log", *FILES), folder)
    (folder / "config.yaml").unlink()
    whole = contents(folder)
    change_byte(folder / "replies.db-wal", HEADER + 20 * FRAME + 2000)
    damaged = contents(folder)
    with pytest.raises(Damaged, match=rf"lost replies\); move {folder} away"):
        Store.open(folder.parent)
    assert contents(folder) == damaged
    for name, data in whole.items():
        (folder / name).write_bytes(data)
    os.truncate(folder / "replies.db", 0)
    assert readable(folder / "replies.db") is None
    with pytest.raises(Damaged, match=r"replies\.db is damaged \(it is empty, and replies\.db-wal is not\)"):
        Store.open(folder.parent)
    os.truncate(folder / "ledger.db", 0)
    with pytest.raises(UserError, match=r"it is empty, and ledger\.db-wal is not"):
        in_ledger(folder / "ledger.db")
    assert contents(folder)["replies.db-wal"] == whole["replies.db-wal"]
    assert contents(folder)["ledger.db-wal"] == whole["ledger.db-wal"]
    for name, data in whole.items():
        (folder / name).write_bytes(data)
    store = Store.open(folder.parent)
    try:
        assert store.folder == folder
    finally:
        store.close()


def test_gc_names_an_empty_file_with_a_log(leave: Leave) -> None:
    folder = leave("in the log", "replies")
    os.truncate(folder / "replies.db", 0)
    (found,) = survey(folder.parent)
    assert "it is empty, and replies.db-wal is not" in found.problem
