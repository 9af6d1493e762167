"""Open engines make the garbage collector run rarely, and leave its settings as they found them."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from simia.garbage_collection import THRESHOLDS, collect_rarely
from simia.llm.engine import Engine
from tests.llm.test_engine import Scripted

DEFAULT = (700, 10, 10)


@pytest.fixture(autouse=True)
def default_thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*DEFAULT)
    yield
    gc.set_threshold(*before)


async def test_the_last_engine_that_closes_restores_the_thresholds() -> None:
    first, second = Engine(Scripted()), Engine(Scripted())
    await first.start()
    await first.start()
    await second.start()
    assert gc.get_threshold() == THRESHOLDS
    await first.close()
    await first.close()
    assert gc.get_threshold() == THRESHOLDS
    with collect_rarely():
        await second.close()
        assert gc.get_threshold() == THRESHOLDS
    assert gc.get_threshold() == DEFAULT


@pytest.mark.parametrize("own", [(0, 10, 10), (80_000, 5, 5)])
async def test_a_collector_that_is_off_or_slower_stays_so(own: tuple[int, int, int]) -> None:
    gc.set_threshold(*own)
    async with Engine(Scripted()):
        assert gc.get_threshold() == own
    assert gc.get_threshold() == own
