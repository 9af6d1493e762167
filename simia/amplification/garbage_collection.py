"""Run Python's garbage collector more rarely while a job works.

Checking a trajectory makes hundreds of small objects that are in no cycle. At the default thresholds the collector traverses the seeds, the
schemas and everything in flight again and again, which takes 30 % of post-processing (docs/log.md).
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

OFTEN, OLDER, OLDEST = 50_000, 20, 50


@contextlib.contextmanager
def collect_rarely() -> Iterator[None]:
    """Leave the objects that exist now out of collections, and collect more rarely, until the end of the block."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(OFTEN, OLDER, OLDEST)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
