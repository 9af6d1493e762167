"""Repair JSON that a model wrote (paper §2.2, rule-based post-process): arguments, calls, whole replies.

Three readers are tried in order: orjson; `scan`, which repairs common errors and refuses ambiguous text; and json-repair,
whose result is accepted only if it kept every letter and digit in order. If none succeeds, the text is an error.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, TypeVar

import json_repair
import orjson

from simia.formats.dialect import find_fault
from simia.formats.reply.json_scanner import MAX_DEPTH, JSONScanner, RepairError
from simia.json_values import holds_beyond_64_bits, iterate_strings
from simia.trajectory import write_compact_json

__all__ = ["ReadCall", "RepairError", "load_json", "load_json_values", "read_arguments", "read_call_text"]

MAX_CHARS = 1_000_000
MAX_LAST_RESORT = 100_000
QUICK_TRIES = 12
BIG = re.compile(r"(?<![\w.\"])-?\d{19}")  # may be more than 64 bits
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
T = TypeVar("T")
CONTROLS = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
FENCE = re.compile(r"\s*```[\w+-]*[ \t]*\r?\n(.*?)(?:\r?\n[ \t]*```(?P<after>.*))?\s*\Z", re.S)
START = re.compile(r"[{\[]")
CLOSERS = re.compile(r"[\s}\]);`]*\Z")
# Text after a value that is more than a remark: another value, or the rest of one that was closed too early.
GOES_ON = re.compile(r"""\s*[,:"']|["']\s*:|[{\[]\s*["'{\[]""")
RESIDUE = re.compile(r"""["“”]\s*[:,]\s*["“”{\[0-9]|[}\]]\s*,\s*["{]""")
ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.S)
KEPT = re.compile(r"[^\W_]|\.")
WRAPPED = re.compile(r"<(tool_call|function_call|call)\b([^<>]*)>(.*?)(?:</\1\s*>|(?=<\1\b)|\Z)", re.S | re.I)
NAMED = re.compile(r"\s*<function=([\w.-]+)>(.*?)(?:</function>\s*)?\Z", re.S)
ATTRIBUTE = re.compile(r"""\bname\s*=\s*["']?([\w.-]+)""")
CALL_NAME = re.compile(r"""\s*\{\s*["']name["']\s*:\s*["']([\w.-]+)["']\s*,""")
NAME_KEYS = ("name", "tool", "tool_name", "function")
ARGUMENT_KEYS = ("arguments", "args", "parameters", "params", "input", "tool_input")
ABOUT_KEYS = frozenset({*NAME_KEYS, *ARGUMENT_KEYS, "id", "type", "call_id", "index"})


class ReadCall(NamedTuple):
    """A call as read: `arguments`, or `raw` when they could not be read. `id` is the model's own id."""

    name: str
    arguments: dict[str, Any] | None
    raw: str | None = None
    id: str | None = None


def strip_reasoning(text: str) -> str:
    """Return the text after a model's reasoning; drafts in the reasoning do not count."""
    return text if text.lstrip().startswith(("{", "[")) else text.rpartition("</think>")[2]


def load_json(text: str, *, exact: bool = False, big: bool = False) -> tuple[Any, list[str]]:
    """Read one JSON value; return it and the names of the repairs. `exact`: refuse text around the value; `big`: see below."""
    found, repairs = load_json_values(text, exact=exact, big=big)
    if len(found) != 1:
        raise RepairError(f"{len(found)} values where one belongs", final=True)
    return found[0], repairs


def load_json_values(text: str, *, exact: bool = False, big: bool = False) -> tuple[list[Any], list[str]]:
    """Read every JSON value of a text: one, several in a row, one a line, or separated by commas.

    `big`: keep integers beyond 64 bits, which orjson can neither read nor write; else they become floats.
    """
    try:
        return [load_valid_json(text, big=big)], []
    except orjson.JSONDecodeError:
        pass
    if len(text) > MAX_CHARS:
        raise RepairError(f"the text is longer than {MAX_CHARS} characters", final=True)
    repairs: dict[str, None] = {}
    body = text if exact else strip_json_fence(text, repairs)
    if repairs:
        try:
            return [load_valid_json(body, big=big)], list(repairs)
        except orjson.JSONDecodeError:
            pass
    if quick := repair_quickly(body):
        return [quick[0]], [*repairs, *quick[1]]
    try:
        return scan_values(body, repairs, exact=exact)
    except RepairError as error:
        if error.final or exact:
            raise
        return [try_json_repair(body, error)], [*repairs, "json_repair"]


def load_valid_json(text: str, *, big: bool) -> Any:
    value = refuse_repeated_keys(orjson.loads(text), text)
    return json.loads(text) if big and holds_beyond_64_bits(value) else value


def repair_quickly(text: str) -> tuple[Any, list[str]] | None:
    """Repair the commonest slips where the parser stops; None for any other.

    The repaired errors have one possible repair each: a comma before a closing bracket, a missing comma between two values, missing
    closing brackets at the end, a comment, a raw line break in a string. If `scan` can read the text, it gives the same value,
    at ten times the cost.
    """
    repairs: dict[str, None] = {}
    for _ in range(QUICK_TRIES):
        try:
            value = refuse_repeated_keys(orjson.loads(text), text)
            # Valid text is returned; repaired text must respect the limits of `scan`.
            return (
                None if repairs and (BIG.search(text) or find_fault(value, MAX_DEPTH - 1)) else (value, list(repairs))
            )
        except RepairError:
            return None
        except orjson.JSONDecodeError as error:
            at, why = error.pos, error.msg
        if "control character" in why and text[at : at + 1] in CONTROLS:
            text = f"{text[:at]}{CONTROLS[text[at]]}{text[at + 1 :]}"
            repairs["raw_control"] = None
        elif "trailing comma" in why and text[at : at + 1] == ",":
            text = text[:at] + text[at + 1 :]
            repairs["trailing_comma"] = None
        elif (comment := COMMENT.match(text, at)) is not None and text[:at].rstrip()[-1:] in ("{", "[", ","):
            text = text[:at] + text[comment.end() :]
            repairs["comment"] = None
        elif text[at : at + 1] in ("{", "[", '"') and text[:at].rstrip()[-1:] in ("}", "]"):
            text = f"{text[:at]},{text[at:]}"
            repairs["missing_comma"] = None
        elif at >= len(text) and "missing_bracket" not in repairs and text[-1:] in ("}", "]") and not BIG.search(text):
            for closers in ("}", "]}", "}]}"):
                try:
                    return refuse_repeated_keys(orjson.loads(text + closers), text + closers), [
                        *repairs,
                        "missing_bracket",
                    ]
                except RepairError:
                    return None
                except orjson.JSONDecodeError:
                    continue
            return None
        else:
            return None
    return None


def refuse_repeated_keys(value: T, text: str) -> T:
    """Return the value. Raises if a key occurs twice with different values: orjson would silently keep the last."""
    # A colon follows each key. More colons in the text than in the value, written again, mean that a key was dropped.
    if isinstance(value, dict | list) and text.count('":') != orjson.dumps(value).count(b'":'):
        json.loads(text, object_pairs_hook=build_object)
    return value


def build_object(found: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in found:
        if key in made and made[key] != value:
            raise RepairError(f"the key {key[:40]!r} stands twice with different values", final=True)
        made[key] = value
    return made


def strip_json_fence(text: str, repairs: dict[str, None]) -> str:
    found = FENCE.match(text)
    if not found:
        return text
    repairs["code_fence"] = None
    if (found["after"] or "").strip():
        repairs["trailing_text"] = None
        if GOES_ON.search(found["after"]):
            raise RepairError("text after the fence that goes on with the value", final=True)
    return found[1]


def scan_values(text: str, before: dict[str, None], *, exact: bool) -> tuple[list[Any], list[str]]:
    repairs = dict(before)
    start = START.search(text)
    if start is None:
        raise RepairError("no JSON object or list", final=True)
    if text[: start.start()].strip("\ufeff \t\r\n"):
        if exact or ("\n" not in text[: start.start()] and not text[: start.start()].rstrip().endswith(":")):
            raise RepairError("text stands before the value", final=True)
        repairs["leading_text"] = None
    scanner = JSONScanner(text, start.start())
    found = []
    while True:
        found.append(scanner.value())
        scanner.at = scanner.skip(scanner.at)
        after = scanner.skip(scanner.at + 1) if text[scanner.at : scanner.at + 1] in (",", ";") else scanner.at
        if text[after : after + 1] not in ("{", "["):
            break
        scanner.at = after
    repairs.update(scanner.repairs)
    rest = text[scanner.at :]
    if rest.strip():
        if CLOSERS.match(rest):
            repairs["extra_bracket"] = None
        elif exact or rest.lstrip().startswith(("...", "…")) or GOES_ON.match(rest) or GOES_ON.search(rest):
            raise RepairError(f"text after the value goes on: {rest.strip()[:40]!r}", final=True)
        else:
            repairs["trailing_text"] = None
    return found, list(repairs)


def try_json_repair(text: str, why: RepairError) -> Any:
    """Try json-repair; accept its value only if nothing was dropped, invented or moved."""
    body = text.strip()
    if len(body) > MAX_LAST_RESORT or not START.match(body) or body[-1] not in "}]":
        raise why
    try:
        value = json_repair.loads(body, skip_json_loads=True)
    except (ValueError, RecursionError, IndexError):
        raise why from None
    if not isinstance(value, dict | list):
        raise why
    try:
        written = orjson.dumps(value).decode()
    except (TypeError, orjson.JSONEncodeError):
        raise why from None
    if extract_letters(written) != extract_letters(body) or any(
        RESIDUE.search(found) for found in iterate_strings(value)
    ):
        raise why
    return value


def extract_letters(text: str) -> str:
    """Return every letter, digit and point in order, escapes decoded: no repair may change these."""
    plain = ESCAPED.sub(lambda found: chr(int(found[1], 16)) if found[1] else "", text)
    return "".join(KEPT.findall(plain))


def read_arguments(value: Any) -> tuple[dict[str, Any] | None, str | None, list[str]]:
    """Return (arguments, raw, repairs) of an object, of its JSON text, or of that text encoded as a JSON string again."""
    repairs: list[str] = []
    given = value
    for _ in range(3):
        if isinstance(value, dict):
            if holds_beyond_64_bits(value):
                return None, to_text(given), repairs
            return value, None, repairs
        if value is None or (isinstance(value, str) and not value.strip()):
            return {}, None, [*repairs, "no_arguments"]
        if not isinstance(value, str):
            break
        try:
            value, more = load_json(value)
        except RepairError:
            break
        repairs += more
    return None, to_text(given), repairs


def to_text(value: Any) -> str:
    return value if isinstance(value, str) else write_compact_json(value)


def read_call_text(text: str) -> tuple[list[ReadCall], list[str]]:
    """Read the calls of a text: one, a list, several in a row, with or without tags. Raises `RepairError`."""
    wrapped = list(WRAPPED.finditer(text))
    if not wrapped:
        return read_bare_calls(text, None)
    found: list[ReadCall] = []
    repairs: list[str] = []
    if WRAPPED.sub("", text).strip():
        raise RepairError("text stands beside the calls", final=True)
    for each in wrapped:
        attribute = ATTRIBUTE.search(each[2])
        more, names = read_bare_calls(each[3], attribute[1] if attribute else None)
        found += more
        repairs += names
    return found, repairs


def read_bare_calls(text: str, name: str | None) -> tuple[list[ReadCall], list[str]]:
    """Read calls without tags. `name`: the tool that the surrounding tag named; then the text is the arguments alone."""
    if function := NAMED.match(text):
        name, text = function[1], function[2]
    if name is not None:
        read, raw, repairs = read_arguments(text)
        if read is None or not (read.get("name") == name and "arguments" in read):
            return [ReadCall(name, read, raw)], repairs
    try:
        found, repairs = load_json_values(text, big=True)
    except RepairError:
        if (named := CALL_NAME.match(text)) is None:
            raise
        return [ReadCall(named[1], None, text.strip())], []
    flat = [call for value in found for call in (value if isinstance(value, list) else [value])]
    read_calls = []
    for value in flat:
        call, more = read_call(value)
        read_calls.append(call)
        repairs += more
    if not read_calls:
        raise RepairError("an empty list of calls", final=True)
    return read_calls, repairs


def read_call(value: Any) -> tuple[ReadCall, list[str]]:
    """Read a call from its object, in any of the shapes that models write."""
    before: list[str] = []
    if isinstance(value, str):
        value, before = load_json(value)
    if not isinstance(value, dict):
        raise RepairError(f"a call is not an object: {to_text(value)[:60]}", final=True)
    given_id = value.get("id") or value.get("call_id")
    if isinstance(value.get("function"), dict):
        value = value["function"]
    name = next((value[key] for key in NAME_KEYS if isinstance(value.get(key), str) and value[key].strip()), None)
    if name is None:
        raise RepairError(f"a call names no tool: {to_text(value)[:60]}", final=True)
    call_id = given_id if isinstance(given_id, str) else None
    told = [key for key in ARGUMENT_KEYS if value.get(key) not in (None, "", {})]
    if len(told) > 1 and any(value[key] != value[told[0]] for key in told):
        raise RepairError(f"a call has {told[0]} and {told[1]}, and they differ", final=True)
    key = told[0] if told else next((key for key in ARGUMENT_KEYS if key in value), None)
    if key is None:
        # Arguments beside the name instead of under it: which keys are arguments would be a guess.
        raw = None if value.keys() <= ABOUT_KEYS else to_text(value)
        return ReadCall(name.strip(), None if raw else {}, raw, call_id), before
    read, raw, repairs = read_arguments(value[key])
    return ReadCall(name.strip(), read, raw, call_id), before + repairs
