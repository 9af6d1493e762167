"""Run Python's garbage collector more rarely while an engine is open, a job works or a trainer's episodes are played.

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

_lock = threading.Lock()
_raised = 0  # how many ask for raised thresholds at present
_original = gc.get_threshold()


def raise_thresholds() -> None:
    """Collect rarely until `lower_thresholds` is called as often. A collector that is off, or set to be slower, stays so."""
    global _original, _raised
    with _lock:
        _raised += 1
        if _raised == 1:
            _original = gc.get_threshold()
            if 0 < _original[0] < THRESHOLDS[0]:
                gc.set_threshold(*THRESHOLDS)


def lower_thresholds() -> None:
    """Take one `raise_thresholds` back."""
    global _raised
    with _lock:
        _raised -= 1
        if _raised == 0:
            gc.set_threshold(*_original)


@contextlib.contextmanager
def raised_thresholds() -> Iterator[None]:
    """Collect more rarely until the end of the block."""
    raise_thresholds()
    try:
        yield
    finally:
        lower_thresholds()


@contextlib.contextmanager
def collect_rarely() -> Iterator[None]:
    """Leave the objects that exist now out of collections, and collect more rarely, until the end of the block."""
    gc.collect()
    gc.freeze()
    try:
        with raised_thresholds():
            yield
    finally:
        gc.unfreeze()
