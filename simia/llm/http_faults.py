"""What an HTTP status and an error body mean: one `LLMFault`, with its code, its advice to retry, and the endpoint's own words."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

from simia.errors import Code
from simia.llm.types import LLMFault

MAX_DETAIL = 400
DEEPEST = 64  # levels of a body that are kept; what stores it takes at most some 200
FILTERED = {"content_filter", "content_policy_violation", "responsibleaipolicyviolation"}
OUT_OF_QUOTA = {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"}


def read_fault(status: int, headers: Mapping[str, str], raw: bytes, clean: Callable[[str], str]) -> LLMFault:
    """`clean` makes one line of a text and takes secrets out of it."""
    error = _read_error(raw)
    if status == 200 and error is not None:  # routers hide an upstream's failure in a 200
        inner = error.get("code")
        status = inner if isinstance(inner, int) and 400 <= inner < 600 else 200
    words = _read_error_names(error)
    message = str((error or {}).get("message") or "") or raw[:65536].decode(errors="replace")
    detail = f"HTTP {status}: {clean(message) or 'no message'}"[:MAX_DETAIL]
    wait = read_retry_after(headers)

    def fault(code: Code, retry: bool) -> LLMFault:
        return LLMFault(code, detail, retry=retry, retry_after=wait, status=status)

    if status == 200:
        return fault(Code.BAD_REPLY_BODY, True)
    if 300 <= status < 400:
        target = clean(headers.get("Location", "nowhere"))[:MAX_DETAIL]
        return LLMFault(
            Code.BAD_REQUEST,
            f"HTTP {status}: redirected to {target}; put the final base_url",
            retry=False,
            status=status,
        )
    if status == 429:
        return fault(Code.RATE_LIMITED, not words & OUT_OF_QUOTA)
    if status == 408:
        return fault(Code.TIMEOUT, True)
    if status >= 500:
        return fault(Code.SERVER_ERROR, True)
    if status in (401, 403) and not words & FILTERED:
        return fault(Code.AUTH, False)
    if status == 404:
        return fault(Code.NOT_FOUND, False)
    return fault(Code.CONTENT_FILTER if words & FILTERED else Code.BAD_REQUEST, False)


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from `retry-after-ms` or `Retry-After` (seconds or a date, counted from the endpoint's own clock)."""
    try:
        return max(0.0, float(headers["retry-after-ms"]) / 1000)
    except (KeyError, ValueError):
        pass
    value = headers.get("Retry-After", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        then = parsedate_to_datetime(value).timestamp()
        now = parsedate_to_datetime(headers["Date"]).timestamp() if "Date" in headers else time.time()
    except (ValueError, OverflowError):  # a year or a time zone beyond what a date can be
        return None
    return max(0.0, then - now)


def prune_json(value: Any, levels: int = DEEPEST) -> Any:
    """The JSON value with null in place of every list and object that is nested deeper."""
    if isinstance(value, dict):
        return {name: prune_json(each, levels - 1) for name, each in value.items()} if levels else None
    if isinstance(value, list):
        return [prune_json(each, levels - 1) for each in value] if levels else None
    return value


def read_json(raw: bytes) -> Any:
    """The JSON value of a body, pruned where it may be too deep. Raises `ValueError`."""
    body = orjson.loads(raw)
    return prune_json(body) if raw.count(b"[") + raw.count(b"{") > DEEPEST else body


def _read_error(raw: bytes) -> dict[str, Any] | None:
    """The error object of a body: OpenAI's `{"error": {…}}`, a bare message, or the bodies of other servers."""
    try:
        body = read_json(raw)
    except ValueError:
        return None
    if not isinstance(body, dict):
        return None
    error = body.get("error", body.get("detail"))
    if error is None:
        return body if "message" in body and "choices" not in body else None
    return error if isinstance(error, dict) else {"message": str(error)}


def _read_error_names(error: dict[str, Any] | None) -> set[str]:
    """The machine-readable names an error goes by."""
    error = error or {}
    inner = error.get("innererror")
    names = [error.get("code"), error.get("type"), inner.get("code") if isinstance(inner, dict) else None]
    return {str(name).lower() for name in names if name}
