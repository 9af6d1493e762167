"""A store's budget: it holds for all processes that name the store, killed ones too, and when they are started again."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from simia.errors import UserError
from simia.jobs import Store, shared_spending
from simia.llm.engine import BudgetReached
from simia.llm.types import Reply
from tests.jobs.spender import Spender, ask, engine


def spend(
    root: Path, caps: dict[str, Any], *, processes: int = 1, asks: int = 30, costs: tuple[int, ...] = (15,)
) -> Any:
    """What each process says at its end; all of them begin together."""
    command = [sys.executable, "-m", "tests.jobs.spender", str(root / "store"), str(root / "sent"), json.dumps(caps)]
    command += [str(asks), *map(str, costs)]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    ended = [process.communicate(timeout=240)[0] for process in started]
    return [json.loads(words) for words in ended]


def sent(root: Path) -> list[int]:
    return [int(line) for line in (root / "sent").read_text().split()] if (root / "sent").exists() else []


@pytest.mark.parametrize("caps", [{"max_requests": 40}, {"max_tokens": 600}, {"max_tokens": 614}, {"max_cost": 0.6}])
def test_a_cap_is_one_for_all_processes_of_a_store(tmp_path: Path, caps: dict[str, float]) -> None:
    ended = spend(tmp_path, caps, processes=4)
    assert len(sent(tmp_path)) == 40
    assert sum(each["answered"] for each in ended) == 40
    reached = [words for each in ended for words in each["reached"]]
    assert len(reached) == 80
    assert not any(each["other"] for each in ended)
    (cap,) = caps
    assert all(f"by all that share {tmp_path / 'store'}; raise {cap} and start again" in words for words in reached)


def test_replies_that_cost_more_than_the_mean_pass_it_by_no_more_than_what_is_in_flight(tmp_path: Path) -> None:
    spend(tmp_path, {"max_tokens": 600}, processes=4, costs=(6, 40, 8, 6, 25, 7))
    assert 400 < sum(sent(tmp_path)) <= 600 + 4 * 8 * (40 - 6)


def test_who_is_started_again_goes_on_with_what_is_left(tmp_path: Path) -> None:
    spend(tmp_path, {"max_tokens": 150}, asks=6)
    assert spend(tmp_path, {"max_tokens": 150})[0]["answered"] == 4 + 6, "six are recalled, at no cost"
    assert len(sent(tmp_path)) == 10
    assert spend(tmp_path, {"max_requests": 10})[0]["answered"] == 10, "whatever the cap counts"
    spend(tmp_path, {"max_tokens": 225, "max_requests": 14})
    assert len(sent(tmp_path)) == 14, "a raised cap goes on"


def test_what_was_spent_without_a_cap_counts_as_soon_as_there_is_one(tmp_path: Path) -> None:
    spend(tmp_path, {"max_tokens": 150}, asks=4)
    store = tmp_path / "store"
    (store / "spent.db").unlink()  # as there was none; also what a power cut may do
    assert spend(tmp_path, {"max_tokens": 150}, processes=2, asks=3)[0]["answered"] == 3
    assert len(sent(tmp_path)) == 4 + 3, "one of them has the first one's replies, the other asked for its own"
    rows = dict(sqlite3.connect(store / "spent.db").execute("SELECT folder, SUM(tokens) FROM spent GROUP BY folder"))
    assert sum(rows.values()) == 7 * 15


def test_what_a_killed_process_had_in_flight_counts_as_spent(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.jobs.spender", str(tmp_path / "store"), str(tmp_path / "sent")]
    command += [json.dumps({"max_tokens": 60}), "30", "15", "0", "0", "0"]
    dying = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert dying.stdin is not None
    dying.stdin.write("go\n")
    dying.stdin.flush()
    deadline = time.monotonic() + 240
    while len(sent(tmp_path)) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    dying.kill()
    dying.wait()
    assert sent(tmp_path) == [15, 0, 0, 0]
    again = spend(tmp_path, {"max_tokens": 90})[0]
    assert len(sent(tmp_path)) == 4 + 2, "15 are shared_spending, 45 may be"
    assert "max_tokens is 90 and 45 is spent and up to 45 more may be by all that share" in again["reached"][0]


async def test_a_till_that_cannot_be_used_is_one_line_and_not_a_missing_cap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_spending, "PATIENCE", 0.05)
    (tmp_path / "spent.db").mkdir()
    store = Store.open(tmp_path)
    refused = r"cannot record in .*spent\.db what is spent \(.+\), so the cap cannot be enforced: [^\n]+$"
    with pytest.raises(UserError, match=refused):
        store.open_shared_budget()
    (tmp_path / "spent.db").rmdir()
    (tmp_path / "spent.db").write_text("no database " * 100)
    with pytest.raises(UserError, match=refused):
        store.open_shared_budget()
    (tmp_path / "spent.db").unlink()
    backend = Spender()
    made = engine(backend, store, max_tokens=150)
    assert isinstance((await ask(made, 1, "first"))[0], Reply)
    other = sqlite3.connect(tmp_path / "spent.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(UserError, match=r"database is locked"):
        raise (await ask(made, 1, "locked"))[0]  # type: ignore[misc]
    other.execute("ROLLBACK")
    assert isinstance((await ask(made, 1, "free"))[0], Reply)
    (tmp_path / "spent.db").unlink()
    with pytest.raises(UserError, match=refused):
        raise (await ask(made, 1, "gone"))[0]  # type: ignore[misc]
    assert backend.calls == 2
    store.close()


def test_a_ledger_that_cannot_be_read_is_no_ledger_that_spent_nothing(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "ledger.db").touch()  # killed before it held anything
    store = Store.open(tmp_path)
    store.open_shared_budget()
    store.close()
    (tmp_path / "7" / "ledger.db").write_text("damaged " * 100)
    store = Store.open(tmp_path)
    with pytest.raises(UserError, match=r"cannot read what .*7 has spent"):
        store.open_shared_budget()
    store.close()


async def test_several_stores_of_one_process_share_the_cap(tmp_path: Path) -> None:
    stores = [Store.open(tmp_path) for _ in range(2)]
    learns, judges = (engine(Spender(), store, max_tokens=150) for store in stores)
    assert [isinstance(each, Reply) for each in await ask(learns, 7, "learns")] == [True] * 7
    outcomes = await ask(judges, 7, "judges")
    assert sum(isinstance(each, Reply) for each in outcomes) == 3
    assert sum(isinstance(each, BudgetReached) for each in outcomes) == 4
    for store in stores:
        store.close()
