"""Print untrusted text: names and errors of packs, replies of models, messages of servers.

Such text may hold control characters that steer a terminal (title, clipboard, colours, a cursor that overwrites earlier lines), and
marks that turn the direction of writing. All of simia's own output goes through `say` here or through `Terminal` (simia.report.console).
"""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import traceback
from types import TracebackType

from simia.masking import mask

# C0 but newline and tab, DEL, C1, marks of direction, and lone surrogates, which cannot be written.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
NOT_ASCII = re.compile(r"[^\x00-\x7f]+")


def clean(text: str) -> str:
    """Replace each control character by U+FFFD; newlines and tabs stay."""
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Return the text as one line without control characters."""
    return " ".join(clean(" ".join(text.split())).split())


def write_count(n: int, noun: str) -> str:
    """Write a number with its noun: 1 seed, 1,200 seeds, 2 replies, 2 keys."""
    plural = f"{noun[:-1]}ies" if re.search("[^aeiou]y$", noun) else f"{noun}s"
    return f"{n:,} {noun if n == 1 else plural}"


def escape_json(text: str) -> str:
    """Write the control characters of a JSON text as `\\u00XX`, so that its value stays the same."""
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def say(text: object, *, error: bool = False) -> None:
    """Print a line to standard output, or to standard error, without control characters and keys."""
    print(clean(mask(str(text))), file=sys.stderr if error else sys.stdout, flush=True)


def say_error(text: object) -> None:
    """Print a line to standard error."""
    say(text, error=True)


def say_json(text: str) -> None:
    """Print JSON to standard output. Characters that its encoding lacks are written as `\\uXXXX`, so that all values stay the same."""
    line = escape_json(mask(text))
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        line.encode(encoding)
    except UnicodeEncodeError:
        line = NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], line)
    print(line, flush=True)


class CleanFormatter(logging.Formatter):
    """Log records without control characters and keys."""

    def format(self, record: logging.LogRecord) -> str:
        return clean(mask(super().format(record)))


def print_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an unexpected exception as Python does, without control characters and keys."""
    say_error("".join(traceback.format_exception(kind, error, trace)).rstrip())


def install_output_guard() -> None:
    """Let tracebacks and log records of this process pass through `clean` too, and print `?` for characters that the encoding of the
    terminal lacks. Called by entry points, not on import."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    sys.excepthook = print_exception
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(CleanFormatter())
    logging.lastResort = handler
