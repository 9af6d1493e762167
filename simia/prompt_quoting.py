"""Quote untrusted values in prompts: JSON on one line, in which nothing can end the quotation or hide from the reader.

JSON leaves line separators (U+2028, U+0085), zero-width, bidirectional and tag characters as they are. They are escaped here,
so that a value is one line for every reader, and a model and a person see the same text.
"""

from __future__ import annotations

import json
import re
from typing import Any

PLAIN_LABEL = re.compile(r"""[^:"{}\[\]\\]*""")


def quote(value: Any) -> str:
    """Write a JSON value on one line, with every character that is not printable as an escape."""
    return escape_unprintable(json.dumps(value, ensure_ascii=False))


def quote_label(text: str) -> str:
    """Leave a plain identifier as it is; quote a text that could be read as more than one."""
    return text if PLAIN_LABEL.fullmatch(text) and text.isprintable() else quote(text)


def escape_unprintable(text: str) -> str:
    """Replace characters that are not printable by JSON escapes; the space is printable, other blanks are not."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)
