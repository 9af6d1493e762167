"""Mask API keys in untrusted texts: replies, errors, log lines.

An endpoint, a proxy or a router may repeat the key of a request in its reply. Each back end registers the keys that it sends with
`hide`; `mask` and `mask_bytes` replace them by `***` before a text is stored, logged or printed. They find a key as it is, in
other case, percent-encoded, with JSON escapes, in hexadecimal and in base64 (at each of the three alignments, so inside of
`user:key` too, and wrapped into lines), and mixtures of these, up to `ROUNDS` encodings deep. A key that is reversed, cut into pieces
or encrypted is not found.

An endpoint controls the text, so every step here takes time linear in its length: the text is flattened, so that all spellings of a
key become the same, and searched for exact strings. The position of a key is searched for only in a text that holds one.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

MASK = b"***"
LEAST = 8  # a shorter key protects nothing, and masking it would change replies
WORD = 16  # a single word that is shorter is a placeholder: EMPTY, password, changeme
BLOCK = 1 << 16  # least size in bytes of the blocks that are searched: limits the memory for decoded copies
SPELLED = 24  # bytes that one character of a form may be spelled with: percent-encoded, then escaped as JSON twice
ROUNDS = 8  # encodings of encodings that are undone
LARGE = 1 << 20
EFFORT = 1 << 20  # bytes that may be flattened to locate keys; beyond that, the whole text is replaced
LOWER = bytes(range(256)).lower().translate(bytes.maketrans(b"-_", b"+/"))  # the letters of both kinds of base64
SKIPPED = b"\\\0 \t\r\n"
BREAKS = (b"\\n", b"\\r", b"\\t")  # white space as JSON writes it
CODES = {
    b"%": {b"%02x" % code: bytes([code]).translate(LOWER, SKIPPED) for code in range(256)},
    b"u00": {b"%02x" % code: chr(code).encode().translate(LOWER, SKIPPED) for code in range(256)},
}
ESCAPED = re.compile(rb"u((?!d[89a-f])[0-9a-f]{4})")  # not a half of a surrogate pair
HALF_ESCAPE = re.compile(rb"(?<=\\)u[0-9a-fA-F]{0,3}\Z")


@dataclass(frozen=True, slots=True)
class Secret:
    """One key: its forms, flattened, and a pattern of those that need no decoding."""

    forms: tuple[bytes, ...]
    literal: re.Pattern[bytes]
    ascii: bool

    @property
    def reach(self) -> int:
        """The longest stretch of text that one spelling takes."""
        return SPELLED * max(map(len, self.forms))


_secrets: dict[bytes, Secret] = {}


def hide(secret: str) -> None:
    """Mask `secret` from now on, in this process. Placeholders (under 8 characters, or one short word) are left alone."""
    text = secret.strip()
    key = text.encode("utf-8", "surrogateescape")
    if len(key) < LEAST or (len(key) < WORD and key.isalpha()) or key in _secrets:
        return
    forms = [key, key.hex().encode(), *make_base64_forms(key)]
    if not key.isascii():  # with surrogate pairs, and read as Latin-1 by a server
        forms += [json.dumps(text)[1:-1].encode(), key.decode("latin-1").encode()]
    flat = dict.fromkeys(flatten(form) if key.isascii() else fold(flatten(form)) for form in forms)
    _secrets[key] = Secret(tuple(flat), re.compile(b"|".join(map(re.escape, forms)), re.IGNORECASE), key.isascii())


def mask(text: str) -> str:
    """Replace every registered key in `text` by `***`."""
    if not _secrets:
        return text
    raw = text.encode("utf-8", "surrogatepass")
    masked = mask_bytes(raw)
    return text if masked is raw else masked.decode("utf-8", "surrogatepass")


def mask_bytes(raw: bytes) -> bytes:
    """Replace every registered key in `raw` by `***`. JSON stays JSON.

    A text that holds a key is replaced as a whole if it is larger than 1 MiB, or if it takes too long to find all places.
    """
    if not _secrets:
        return raw
    found = find_hidden(raw, _secrets.values())
    if not found:
        return raw
    if len(raw) > LARGE:
        return MASK
    for secret in found:
        raw = cut_literal(raw, secret)
    found = find_hidden(raw, found)
    if found:
        raw = cut_spelled(raw, found)
    return MASK if find_hidden(raw, found) else raw


def find_hidden(raw: bytes, secrets: Iterable[Secret]) -> list[Secret]:
    """Return the secrets that `raw` holds in some form. Blocks overlap by the longest spelling, so that none is missed between two."""
    secrets = list(secrets)
    overlap = max((secret.reach for secret in secrets), default=0)
    block = max(BLOCK, 4 * overlap)
    found: dict[Secret, None] = {}
    for start in range(0, max(1, len(raw) - overlap), block - overlap):
        part = raw[start : start + block]
        texts = decode_steps(part)
        if any(mark in part for mark in BREAKS):  # also without them, for a form that was wrapped into lines
            for mark in BREAKS:
                part = part.replace(mark, b"")
            texts += decode_steps(part)
        folded = texts if all(secret.ascii for secret in secrets) else [fold(text) for text in texts]
        for secret in secrets:
            flat = texts if secret.ascii else folded
            if any(form in text for text in flat for form in secret.forms):
                found[secret] = None
    return list(found)


def flatten(raw: bytes) -> bytes:
    """Return the text in lower case, with percent encoding and JSON escapes undone and without white space."""
    return decode_steps(raw)[-1]


def decode_steps(raw: bytes) -> list[bytes]:
    """Return the flattened text after each step of decoding: one step too many drops the first digits of the key in `100%41b2c3`."""
    flat = raw.translate(LOWER, SKIPPED)
    texts = [flat]
    for _ in range(ROUNDS):
        size = len(flat)
        for mark, codes in CODES.items():
            if mark in flat:
                first, *rest = flat.split(mark)
                flat = first + b"".join([codes.get(each[:2], mark + each[:2]) + each[2:] for each in rest])
                if len(flat) < len(texts[-1]):
                    texts.append(flat)
        if len(flat) == size:
            break
    return texts


def fold(flat: bytes) -> bytes:
    """Return the text with letters beyond ASCII in one case too, and JSON's escapes of these undone."""
    flat = ESCAPED.sub(lambda found: chr(int(found[1], 16)).encode("utf-8"), flat)
    return flat.decode("utf-8", "surrogateescape").casefold().encode("utf-8", "surrogateescape")


def cut_literal(raw: bytes, secret: Secret) -> bytes:
    """Replace the forms that `raw` holds literally. Nearly always, no other form is left."""
    kept, last = [], 0
    for match in secret.literal.finditer(raw):
        kept.append(raw[last : step_before_escape(raw, last, match.start())])
        last = match.end()
    return MASK.join([*kept, raw[last:]])


def cut_spelled(raw: bytes, secrets: list[Secret]) -> bytes:
    """Replace the shortest stretches of `raw` that hold a key when flattened. `MASK` alone if that takes too long."""
    reach, start, effort = max(secret.reach for secret in secrets) // 3, 0, 0
    kept: list[bytes] = []
    while start < len(raw):
        window = raw[start : start + 2 * reach]
        if not find_hidden(window, secrets):
            kept.append(window[:reach])
            start += reach
            continue
        low, end = 0, len(window)  # a key is in window[:end], none is in window[:low]
        while end - low > 1:
            middle = (low + end) // 2
            low, end = (low, middle) if find_hidden(window[:middle], secrets) else (middle, end)
            effort += middle
        first, high = 0, end  # a key is in window[first:end], none is in window[high:end]
        while high - first > 1:
            middle = (first + high) // 2
            first, high = (middle, high) if find_hidden(window[middle:end], secrets) else (first, middle)
            effort += end - middle
        if effort > EFFORT:
            return MASK
        kept += [window[: step_before_escape(window, 0, first)], MASK]
        start += end
    return b"".join(kept)


def step_before_escape(raw: bytes, least: int, at: int) -> int:
    """Return `at`, or the start of the escape sequence or run of backslashes that a cut at `at` would split; at least `least`."""
    half = HALF_ESCAPE.search(raw, max(least, at - 4), at)
    if half is not None:
        at = half.start()
    while at > least and raw[at - 1] == ord("\\"):
        at -= 1
    return at


def make_base64_forms(key: bytes) -> list[bytes]:
    """Return the characters of `key` in base64 at each of the three alignments, without those shared with neighbouring bytes."""
    forms = []
    for before in range(3):
        whole = len(b"\0" * before + key) * 8 // 6  # the characters whose bits end inside of the key
        encoded = base64.b64encode(b"\0" * before + key)[-(-before * 8 // 6) : whole]
        forms += [encoded, encoded.translate(bytes.maketrans(b"+/", b"-_"))]
    return list(dict.fromkeys(forms))
