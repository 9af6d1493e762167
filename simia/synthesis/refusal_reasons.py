"""Refuse a question with a reason that names the faults of its replies, instead of `unreadable_reply`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from simia.synthesis.reasons import Reason, Refused


@contextlib.contextmanager
def name_refusal(reason: Reason | Callable[[], Reason]) -> Iterator[None]:
    """Replace the reason `unreadable_reply` of a refusal in this context by `reason`."""
    try:
        yield
    except Refused as refused:
        if refused.reason is not Reason.UNREADABLE_REPLY:
            raise
        raise Refused(reason if isinstance(reason, Reason) else reason(), refused.detail) from None
