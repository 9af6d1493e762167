"""Read an endpoint's HTTP response: its body within a limit, the fault it reports, the token usage, and the rate limits in its headers.

A few hundred kilobytes of gzip can hold hundreds of megabytes, so the body is decompressed here, never beyond the limit, rather than by
the HTTP library. Only gzip and deflate are accepted; requests name gzip alone.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
import orjson

from simia.errors import Code
from simia.llm.types import LLMFault
from simia.masking import mask
from simia.terminal import one_line
from simia.trajectory import Usage

GZIP_OR_ZLIB, BARE = zlib.MAX_WBITS | 32, -zlib.MAX_WBITS
MAX_DETAIL = 400
DEEPEST = 64  # levels of a body that are kept; orjson writes at most some 200
FILTERED = {"content_filter", "content_policy_violation", "responsibleaipolicyviolation"}
OUT_OF_QUOTA = {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"}
REFUSED = {401: Code.AUTH, 403: Code.AUTH, 404: Code.NOT_FOUND}
MOST_TOKENS, MOST_COST = 10**9, 10**6  # of one reply; sums of them fit a ledger's integers
# An escaped backslash, a surrogate pair, or half of one.
ESCAPED_CHARACTER = re.compile(r"\\\\|\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|\\ud[89a-f][0-9a-f]{2}", re.IGNORECASE)
RATE_WINDOW = 60.0  # seconds over which rate limits are counted, and the longest wait for them
DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}


async def receive_body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Return the body of a response of a session with `auto_decompress=False`: `limit` bytes at most, also after decompression.

    Raises `LLMFault`, having closed the connection, so that the rest is never read.
    """
    try:
        if (response.content_length or 0) > limit:
            raise refuse_large_body(limit)
        raw = bytearray()
        async for chunk in response.content.iter_any():
            raw += chunk
            if len(raw) > limit:
                raise refuse_large_body(limit)
        return decompress(bytes(raw), response.headers.get("Content-Encoding", ""), limit)
    except LLMFault as fault:
        response.close()
        detail = f"HTTP {response.status}: {fault.detail}"
        raise LLMFault(fault.code, detail, retry=fault.retry, status=response.status) from None


def decompress(raw: bytes, encoding: str, limit: int) -> bytes:
    """Undo the body's content encoding. Raises `LLMFault` beyond `limit` bytes, and for data that cannot be decompressed."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity") or not raw:
        return raw
    if encoding not in ("gzip", "x-gzip", "deflate"):
        named = one_line(mask(encoding))[:40]  # masked before it is cut: a part of a key is not found
        raise LLMFault(Code.BAD_REPLY_BODY, f"the body has the unsupported content encoding {named!r}", retry=True)
    bare = encoding == "deflate" and raw[0] & 0x0F != 8  # some servers leave the zlib header out
    unpacker = zlib.decompressobj(BARE if bare else GZIP_OR_ZLIB)
    try:
        body = unpacker.decompress(raw, limit + 1)
    except zlib.error:
        raise LLMFault(Code.BAD_REPLY_BODY, f"the body is not {encoding}, as its header says", retry=True) from None
    if len(body) > limit:
        raise refuse_large_body(limit)
    if not unpacker.eof or unpacker.unused_data:
        raise LLMFault(Code.BAD_REPLY_BODY, f"the body's {encoding} data is cut off, or more follows it", retry=True)
    return body


def refuse_large_body(limit: int) -> LLMFault:
    detail = f"the reply is larger than {limit:,} bytes: raise max_reply_bytes to accept it"
    return LLMFault(Code.TOO_LARGE, detail, retry=False)


def read_fault(status: int, headers: Mapping[str, str], raw: bytes, clean: Callable[[str], str]) -> LLMFault:
    """Return the fault that a status and an error body report. `clean` turns a text into one line without secrets."""
    error = _read_error(raw)
    inner = error.get("code")
    if status == 200 and isinstance(inner, int) and 400 <= inner < 600:
        status = inner  # routers hide an upstream's failure in a 200
    details = error.get("innererror")
    names = [error.get("code"), error.get("type"), details.get("code") if isinstance(details, dict) else None]
    words = {str(name).lower() for name in names if name}
    message = str(error.get("message") or "") or raw[:65536].decode(errors="replace")
    detail = f"HTTP {status}: {clean(message) or 'no message'}"[:MAX_DETAIL]
    retry = status in (200, 408) or status >= 500
    if status == 200:
        code = Code.BAD_REPLY_BODY
    elif 300 <= status < 400:
        code = Code.BAD_REQUEST
        target = clean(headers.get("Location", "nowhere"))[:MAX_DETAIL]
        detail = f"HTTP {status}: redirected to {target}; set base_url to the final address"
    elif status in (402, 429):  # 402: no credit left
        code, retry = Code.RATE_LIMITED, status == 429 and not words & OUT_OF_QUOTA
    elif retry:
        code = Code.TIMEOUT if status == 408 else Code.SERVER_ERROR
    elif words & FILTERED and status != 404:
        code = Code.CONTENT_FILTER
    else:
        code = REFUSED.get(status, Code.BAD_REQUEST)
    return LLMFault(code, detail, retry=retry, retry_after=read_retry_after(headers), status=status)


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from `retry-after-ms` or `Retry-After` (seconds or a date, counted from the endpoint's own clock)."""
    for name, unit in (("retry-after-ms", 1000), ("Retry-After", 1)):
        with contextlib.suppress(KeyError, ValueError):
            return max(0.0, float(headers[name]) / unit)
    try:
        then = parsedate_to_datetime(headers.get("Retry-After", "")).timestamp()
        now = parsedate_to_datetime(headers["Date"]).timestamp() if "Date" in headers else time.time()
    except (ValueError, OverflowError):  # a year or a time zone out of range
        return None
    return max(0.0, then - now)


def prune_json(value: Any, levels: int = DEEPEST) -> Any:
    """The JSON value with null in place of every list and object that is nested deeper."""
    if isinstance(value, dict):
        return {name: prune_json(each, levels - 1) for name, each in value.items()} if levels else None
    if isinstance(value, list):
        return [prune_json(each, levels - 1) for each in value] if levels else None
    return value


def parse_body(raw: bytes) -> Any:
    """The JSON value of a body, pruned where it may be too deep; broken characters become U+FFFD. Raises `ValueError`."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:  # only half a character may be wrong, where a server or proxy cut the text
        body = orjson.loads(ESCAPED_CHARACTER.sub(replace_half_pair, raw.decode("utf-8-sig", errors="replace")))
    return prune_json(body) if raw.count(b"[") + raw.count(b"{") > DEEPEST else body


def replace_half_pair(escape: re.Match[str]) -> str:
    return "\\ufffd" if len(escape[0]) == len("\\ud800") else escape[0]


def _read_error(raw: bytes) -> dict[str, Any]:
    """The error object of a body: OpenAI's `{"error": {…}}`, a bare message, or the bodies of other servers; empty without one."""
    try:
        body = parse_body(raw)
    except ValueError:
        return {}
    if not isinstance(body, dict):
        return {}
    error = body.get("error", body.get("detail"))
    if (
        error is None
        and (choices := body.get("choices"))
        and isinstance(choices, list)
        and isinstance(choices[0], dict)
    ):
        error = choices[0].get("error")
    if error is None:
        return body if "message" in body and "choices" not in body else {}
    return error if isinstance(error, dict) else {"message": str(error)}


def read_usage(usage: Any) -> Usage:
    """The usage of a reply. If one token count is impossible, the whole usage is unknown; if only the cost is, the cost is unknown."""
    if not isinstance(usage, dict):
        return Usage()
    of_prompt, of_completion = (
        found if isinstance(found := usage.get(f"{part}_tokens_details"), dict) else {}
        for part in ("prompt", "completion")
    )
    counts = {
        "prompt": usage.get("prompt_tokens"),
        "completion": usage.get("completion_tokens"),
        "cached": of_prompt.get("cached_tokens") or usage.get("prompt_cache_hit_tokens"),
        "reasoning": of_completion.get("reasoning_tokens"),
    }
    known = {name: read_bounded_number(value, MOST_TOKENS) for name, value in counts.items() if value is not None}
    cost = read_bounded_number(usage.get("cost"), MOST_COST)  # routers say what they charged
    tokens = {name: int(value) for name, value in known.items() if value is not None and value == int(value)}
    if len(tokens) < len(known):
        return Usage()
    total = read_bounded_number(usage.get("total_tokens"), MOST_TOKENS)
    if total and "prompt" in tokens:  # some endpoints count the reasoning in the total alone
        tokens["completion"] = max(tokens.get("completion", 0), int(total) - tokens["prompt"])
    return Usage(**tokens, cost=cost)


def read_bounded_number(value: Any, most: float) -> float | None:
    """A finite number from 0 to `most`, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) and 0 <= value <= most else None


@dataclass(slots=True)
class RateLimits:
    """The rate limits of one endpoint, from `x-ratelimit-{limit,remaining,reset}-{requests,tokens}` of its latest response.

    OpenAI, Azure and many routers send them. The allowance refills steadily over a minute, so the wait is for what is missing, not for
    the whole reset.
    """

    allowances: dict[str, tuple[float, float | None, float | None]] = field(default_factory=dict)
    """By kind: how much is left, how much a window holds, seconds until it is full again."""

    def note(self, headers: Mapping[str, str]) -> None:
        for kind in ("requests", "tokens"):
            left = parse_number(headers.get(f"x-ratelimit-remaining-{kind}"))
            if left is not None:
                limit = parse_number(headers.get(f"x-ratelimit-limit-{kind}"))
                self.allowances[kind] = (left, limit, parse_seconds(headers.get(f"x-ratelimit-reset-{kind}")))

    def wait(self, tokens: float) -> float:
        """Seconds until a request of `tokens` tokens fits. Each allowance is used once: the next response brings a new one."""
        longest = 0.0
        for kind, (left, limit, reset) in self.allowances.items():
            missing = (tokens if kind == "tokens" else 1.0) - left
            waits = [] if reset is None else [reset]
            if limit:
                waits.append(missing / limit * RATE_WINDOW)
            if missing > 0 and waits:
                longest = max(longest, min(*waits, RATE_WINDOW))
        self.allowances = {}
        return longest


def parse_number(text: str | None) -> float | None:
    try:
        return max(0.0, float(text)) if text is not None else None
    except ValueError:
        return None


def parse_seconds(text: str | None) -> float | None:
    """`6m0s`, `1.5s`, `20ms`, or plain seconds."""
    if text is None or not (parts := DURATION.findall(text)) or "".join(map("".join, parts)) != text.strip():
        return None
    return sum(float(amount) * SECONDS[unit] for amount, unit in parts)
