"""What may go, goes only when it is asked for; what was paid for stays; a run in use is left alone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from simia.amplification.settings import AmplifyConfig
from simia.config import load_config
from simia.errors import UserError
from simia.jobs import OPEN, PASSED, REJECTED, Item, Run
from simia.jobs.cleanup import clean, look, survey
from simia.llm.types import Reply, Request
from simia.rollouts.settings import RolloutConfig

BODY = {"trajectory": {"text": "many words " * 400}, "issues": [], "repairs": []}


async def made(root: Path, name: str = "r") -> Path:
    """One accepted item, two rejected ones, one open; each was answered. The third shares the first one's reply."""
    run = Run.create(root, load_config(AmplifyConfig, "amplify/default"), name=name, facts={"model": "m"})
    for ord_, status in enumerate((PASSED, REJECTED, REJECTED, OPEN)):
        item = Item(f"i{ord_}", ord_, {"seed": "s"}, status, "leak" if status == REJECTED else None)
        run.ledger.plan(item)
        key = "k0" if ord_ == 2 else f"k{ord_}"
        request = Request(messages=[{"role": "user", "content": f"{ord_} {os.urandom(3000).hex()}"}])
        await run.ledger.asked(key, item.id, f"{item.id}.0", request)
        await run.ledger.answered(key, item.id, Reply(text=f"reply {ord_}"))
        if status != OPEN:
            run.ledger.conclude(item, f"h{ord_}", BODY | {"salt": os.urandom(3000).hex()})
        if status == PASSED:
            run.ledger.accept(item, "h0")
    run.close()
    return root / name


def contents(folder: Path) -> dict[str, object]:
    run = Run.read_only(folder.parent, folder.name)
    ledger = run.ledger
    try:
        return {
            "replies": sorted(row["key"] for row in ledger.replies()),
            "results": [ledger.result(f"i{i}") is not None for i in range(4)],
            "counts": ledger.counts(),
            "accepted": len(list(ledger.accepted())),
            "reasons": ledger.reasons(),
        }
    finally:
        run.close()


async def test_looking_changes_nothing(tmp_path: Path) -> None:
    folder = await made(tmp_path)
    before = contents(folder)
    lock = (folder / "lock").stat().st_mtime_ns
    (found,) = survey(tmp_path)
    assert (found.accepted, found.reply_count, found.rejected_bodies, found.spent_replies) == (1, 3, 2, 1)
    assert found.size >= found.ledger + found.replies > 0
    assert found.freeable(replies=True) > found.freeable(replies=False) > 0
    assert contents(folder) == before
    assert (folder / "lock").stat().st_mtime_ns == lock, "the run is not the latest one by being looked at"


async def test_derived_things_go_and_replies_stay(tmp_path: Path) -> None:
    folder = await made(tmp_path)
    (folder / "report.html").write_text("x" * 5000)
    freed = clean(folder)
    assert freed.after < freed.before
    after = contents(folder)
    assert after["results"] == [True, False, False, False]
    assert after["replies"] == ["k0", "k1", "k3"]
    assert after["counts"] == {"passed": 1, "rejected": 2, "open": 1}
    assert after["reasons"] == {"leak": 2}
    assert not (folder / "report.html").exists()
    assert look(folder).freeable(replies=False) == 0, "nothing is left to free"
    assert clean(folder).done == []


async def test_replies_go_only_where_every_item_of_theirs_was_rejected(tmp_path: Path) -> None:
    folder = await made(tmp_path)
    clean(folder, replies=True)
    after = contents(folder)
    assert after["replies"] == ["k0", "k3"], "k0 is also an accepted item's, k3 an open one's"
    assert after["accepted"] == 1
    assert after["counts"] == {"passed": 1, "rejected": 2, "open": 1}


async def test_a_run_in_use_is_refused(tmp_path: Path) -> None:
    folder = await made(tmp_path)
    run = Run.open(tmp_path, "r")
    try:
        assert "in use by" in look(folder).problem
        assert look(folder).freeable(replies=True) == 0
        with pytest.raises(UserError, match="in use by"):
            clean(folder, replies=True)
    finally:
        run.close()
    assert contents(folder)["replies"] == ["k0", "k1", "k3"]


def test_an_empty_run_goes_whole_once_it_is_old(tmp_path: Path) -> None:
    Run.create(tmp_path, load_config(AmplifyConfig, "amplify/default"), name="young", facts={}).close()
    old = tmp_path / "old"
    shutil.copytree(tmp_path / "young", old)
    os.utime(old / "lock", (0, 0))
    assert not look(tmp_path / "young").empty
    assert look(old).empty
    clean(tmp_path / "young")
    clean(old)
    assert (tmp_path / "young" / "ledger.db").is_file()
    assert not old.exists()


def test_failed_episodes_of_a_rollout_stay(tmp_path: Path) -> None:
    """They cannot be played again, and a report without them would show the successes alone."""
    folder = tmp_path / "r"
    run = Run.create(tmp_path, load_config(RolloutConfig, "rollout/default"), name="r", facts={"planned": 4})
    for ord_, status in enumerate((PASSED, *[REJECTED] * 3)):
        run.ledger.conclude(Item(f"i{ord_}", ord_, {"task": "t"}, status), f"h{ord_}", BODY)
    run.close()
    os.utime(folder / "lock", (0, 0))
    found = look(folder)
    assert (found.rejected_bodies, found.empty) == (0, False), "it has no replies: its agent is no model"
    for replies in (False, True):
        clean(folder, replies=replies)
        assert contents(folder)["results"] == [True] * 4


async def test_a_run_with_verdicts_and_without_results_is_kept(tmp_path: Path) -> None:
    """An earlier version removed the bodies of all its rejected results."""
    run = Run.create(tmp_path, load_config(AmplifyConfig, "amplify/default"), name="r", facts={})
    run.ledger.plan(Item("i0", 0, {"seed": "s"}, REJECTED, "leak"))
    run.close()
    os.utime(tmp_path / "r" / "lock", (0, 0))
    assert not look(tmp_path / "r").empty


async def test_a_run_whose_reply_nobody_received_is_not_empty_for_long_work(tmp_path: Path) -> None:
    """It was asked just now, though its lock is old: a clock that went wrong must not cost a run."""
    run = Run.create(tmp_path, load_config(AmplifyConfig, "amplify/default"), name="r", facts={})
    await run.ledger.asked("k", "i0", "i0.0", Request(messages=[]))
    run.close()
    os.utime(tmp_path / "r" / "lock", (0, 0))
    assert not look(tmp_path / "r").empty
