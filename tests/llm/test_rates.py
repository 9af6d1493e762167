"""Rate-limit headers, as endpoints write them."""

from __future__ import annotations

import pytest

from simia.llm.http_response import RateLimits, parse_number, parse_seconds


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("6m0s", 360),
        ("1.5s", 1.5),
        ("20ms", 0.02),
        ("1h2m3s", 3723),
        ("12", 12),
        ("soon", None),
        ("", None),
        (None, None),
    ],
)
def test_durations(text: str | None, value: float | None) -> None:
    assert parse_seconds(text) == (pytest.approx(value) if value is not None else None)


def test_numbers_that_are_none() -> None:
    assert [parse_number("12"), parse_number("-3"), parse_number("x"), parse_number(None)] == [12, 0, None, None]


def headers(left: str, kind: str = "tokens", limit: str = "60000", reset: str = "30s") -> dict[str, str]:
    names = {"remaining": left, "limit": limit, "reset": reset}
    return {f"x-ratelimit-{name}-{kind}": value for name, value in names.items()}


def test_the_wait_is_for_what_is_missing() -> None:
    rates = RateLimits()
    rates.note(headers("500"))
    assert rates.wait(2500) == pytest.approx(2.0)  # 2,000 missing, a thousand a second come back
    assert rates.wait(2500) == 0, "one word is used once"


def test_the_wait_is_never_longer_than_the_reset() -> None:
    rates = RateLimits()
    rates.note(headers("0", reset="100ms"))
    assert rates.wait(50_000) == pytest.approx(0.1)


def test_enough_left_and_no_headers_are_no_wait() -> None:
    rates = RateLimits()
    rates.note({"content-type": "application/json"})
    assert rates.wait(1e9) == 0
    rates.note(headers("5000"))
    assert rates.wait(2500) == 0


def test_requests_count_too() -> None:
    rates = RateLimits()
    rates.note(headers("0", kind="requests", limit="60", reset="60s"))
    assert rates.wait(10) == pytest.approx(1.0)
