"""Give the refusal of a question the reason of the faults that its replies had."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from simia.synthesis.reasons import Reason, Refused


@contextlib.contextmanager
def name_refusal(reason: Reason | Callable[[], Reason]) -> Iterator[None]:
    """Replace `unreadable_reply` by a reason that says what was wrong with the replies."""
    try:
        yield
    except Refused as refused:
        if refused.reason is not Reason.UNREADABLE_REPLY:
            raise
        raise Refused(reason if isinstance(reason, Reason) else reason(), refused.detail) from None
