"""The forms in which an endpoint may repeat a key, for tests and for the fake endpoint."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from urllib.parse import quote, unquote


def to_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def to_urlsafe_base64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def percent(key: str, form: str = "%{:02X}") -> str:
    return "".join(form.format(code) for code in key.encode())


def escape(key: str) -> str:
    return "".join(f"\\u{ord(character):04x}" for character in key)


FORMS: dict[str, Callable[[str], str]] = {
    "plain": lambda key: key,
    "upper": str.upper,
    "lower": str.lower,
    "swapped case": str.swapcase,
    "quoted": lambda key: quote(key, safe=""),
    "quoted, lower hex": lambda key: quote(key, safe="").lower(),
    "percent": percent,
    "percent, lower": lambda key: percent(key, "%{:02x}"),
    "percent twice": lambda key: percent(key, "%25{:02X}"),
    "some percent": lambda key: key[:5] + percent(key[5:9]) + key[9:],
    "base64": to_base64,
    "base64 after 1": lambda key: to_base64("u:" + key),
    "base64 after 2": lambda key: to_base64(":" + key),
    "Basic": lambda key: "Basic " + to_base64(f"user:{key}"),
    "urlsafe": to_urlsafe_base64,
    "urlsafe after 1": lambda key: to_urlsafe_base64("?" + key + "~~"),
    "urlsafe after 2": lambda key: to_urlsafe_base64("??" + key + "~"),
    "base64, percent": lambda key: quote(to_base64(key), safe=""),
    "base64, upper": lambda key: to_base64(key).upper(),
    "hex": lambda key: key.encode().hex(),
    "JSON escapes": escape,
    "JSON escapes, upper": lambda key: escape(key).upper(),
    "JSON twice": lambda key: json.dumps(json.dumps(key)).replace("/", "\\/"),
    "escapes in JSON": lambda key: json.dumps({"a": escape(key)}),
    "spaced": " ".join,
    "escaped percent": lambda key: percent(key).replace("%", "\\u0025"),
}


def holds(text: str, key: str) -> bool:
    """Whether a reader who undoes the usual encodings finds the key in `text`. Written apart from what is tested."""
    seen = [text]
    for _ in range(4):
        last = seen[-1]
        for code in range(32, 127):
            for form in (f"\\u{code:04x}", f"\\u{code:04X}", f"\\U{code:04X}"):
                last = last.replace(form, chr(code))
        seen.append(unquote(last).replace("\\", ""))
    texts = [variant.lower() for each in seen for variant in (each, each.replace(" ", ""))]
    cores = [to_base64(" " * n + key)[4 if n else 0 : -4] for n in range(3)]
    wanted = [key, key.encode().hex(), *cores, *(core.translate(str.maketrans("+/", "-_")) for core in cores)]
    return any(form.lower() in each for form in wanted for each in texts)
