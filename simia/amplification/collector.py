"""Python's garbage collector, told not to walk over what lives as long as the job.

Judging a trajectory makes hundreds of small objects that no cycle holds; at the default thresholds the collector walked
the seeds, the schemas and everything in flight again and again, a quarter of the time of post-processing (docs/log.md).
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

OFTEN, OLDER, OLDEST = 50_000, 20, 50


@contextlib.contextmanager
def seldom() -> Iterator[None]:
    """What lives now is left out, and what comes is walked more rarely, until the end of the block."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(OFTEN, OLDER, OLDEST)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
