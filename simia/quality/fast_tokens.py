"""A fast estimate of tokens, for thousands of texts a second: no tokenizer at hand can do that, and none need be."""

from __future__ import annotations

DIGITS = b"0123456789"
LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
SPACES = b" \t\r\n"
ASCII = bytes(range(128))


def text_tokens(text: str) -> int:
    """The estimate for one text."""
    return byte_tokens(text.encode())


def byte_tokens(raw: bytes) -> int:
    """Of UTF-8. Qwen gives each digit a token, a word one or two, a mark about half of one. Fitted on its tokenizer."""
    length = len(raw)
    digits = length - len(raw.translate(None, DIGITS))
    letters = length - len(raw.translate(None, LETTERS))
    spaces = length - len(raw.translate(None, SPACES))
    other = len(raw.translate(None, ASCII))
    marks = length - digits - letters - spaces - other
    return int(digits + 0.26 * letters + 0.12 * spaces + 0.6 * marks + 0.3 * other) + 1


def most_tokens(raw: bytes) -> int:
    """A bound from above, at a quarter of the cost: as if every letter were a mark."""
    digits = len(raw) - len(raw.translate(None, DIGITS))
    return digits + int(0.6 * (len(raw) - digits)) + 1
