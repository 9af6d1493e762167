"""A process finds the replies of others that share its store, also of those that start later, without listing the store each time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from simia.jobs import Store
from simia.jobs.reply_store import SETTLED
from simia.llm.types import Reply, Request
from simia.trajectory import Usage

ASKED = Request(messages=[{"role": "user", "content": "?"}])


@pytest.fixture
def listings(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    found: list[Path] = []
    lists = Path.iterdir

    def iterdir(self: Path) -> Iterator[Path]:
        found.append(self)
        return iter(list(lists(self)))

    monkeypatch.setattr(Path, "iterdir", iterdir)
    return found


async def answer(store: Store, key: str) -> None:
    await store.asked(key, "item", "0", ASKED)
    await store.answered(key, "item", Reply(text=f"to {key}", usage=Usage()))


def age(root: Path) -> None:
    """Let the latest change of the folder be long ago."""
    then = root.stat().st_mtime - 2 * SETTLED
    os.utime(root, (then, then))


async def test_a_store_that_starts_later_is_found(tmp_path: Path, listings: list[Path]) -> None:
    first = Store.open(tmp_path)
    age(tmp_path)
    for _ in range(3):
        assert first.recall("a") is None
    assert listings.count(tmp_path) == 1, "nothing has changed since"
    second = Store.open(tmp_path)
    await answer(second, "a")
    found = first.recall("a")
    assert found is not None
    assert found.text == "to a"
    age(tmp_path)
    assert first.recall("b") is None
    before = listings.count(tmp_path)
    await answer(second, "b")
    assert (first.recall("b") or Reply()).text == "to b"
    assert (second.recall("c"), first.recall_from_others("b") is None, second.recall_from_others("b")) == (
        None,
        False,
        None,
    )
    assert listings.count(tmp_path) - before <= 1, "only the second one's first listing"
    second.close()
    first.close()


async def test_a_store_without_a_file_yet_is_looked_at_again(tmp_path: Path, listings: list[Path]) -> None:
    first = Store.open(tmp_path)
    (tmp_path / "1").mkdir()
    age(tmp_path)
    for _ in range(3):
        assert first.recall("a") is None
    assert listings.count(tmp_path) == 3
    second = Store.open(tmp_path)
    assert second.folder == tmp_path / "1"
    await answer(second, "a")
    assert (first.recall("a") or Reply()).text == "to a"
    second.close()
    first.close()
