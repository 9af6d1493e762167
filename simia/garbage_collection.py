"""Run Python's garbage collector less often while an engine is open, a job works or a trainer's episodes are played.

A request in flight, and the check of a trajectory, make hundreds of small objects that are in no cycle. At the default thresholds the
collector traverses the seeds, the schemas and everything in flight again and again, which takes 30 % of a reply and of post-processing
(docs/log.md). In a trainer's process it traverses torch and transformers too, and the event loop stands still for 0.2 s each time.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

THRESHOLDS = 50_000, 20, 50
EPISODES = 2_000, 5_000, 1_000
"""Where a thousand episodes wait in one loop, nearly all new objects are in use: a collection of 50,000 of them takes 100 ms and frees
nothing. Older objects are left to the collections between steps."""

_lock = threading.Lock()
_raised = 0  # number of callers that need raised thresholds at present
_original = gc.get_threshold()


def raise_thresholds(thresholds: tuple[int, int, int] = THRESHOLDS) -> None:
    """Collect less often until `lower_thresholds` was called once for each call of this function. A collector that is off or has a higher
    first threshold is left as it is, and so are thresholds that are already raised."""
    global _original, _raised
    with _lock:
        _raised += 1
        if _raised == 1:
            _original = gc.get_threshold()
            if 0 < _original[0] < thresholds[0]:
                gc.set_threshold(*thresholds)


def lower_thresholds() -> None:
    """Undo one `raise_thresholds`; the last one restores the original thresholds."""
    global _raised
    with _lock:
        _raised -= 1
        if _raised == 0:
            gc.set_threshold(*_original)


@contextlib.contextmanager
def raised_thresholds(thresholds: tuple[int, int, int] = EPISODES) -> Iterator[None]:
    """Collect less often until the end of the block. The default thresholds are those for a trainer's episodes."""
    raise_thresholds(thresholds)
    try:
        yield
    finally:
        lower_thresholds()


@contextlib.contextmanager
def collect_rarely() -> Iterator[None]:
    """Exclude the objects that exist now from collections, and collect less often, until the end of the block."""
    gc.collect()
    gc.freeze()
    try:
        with raised_thresholds(THRESHOLDS):
            yield
    finally:
        gc.unfreeze()
