"""What the truth checks read of a trajectory: calls with their parsed results, and the values that were known before a message."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any

import orjson

from simia.json_values import is_number
from simia.quality.entity_ledger import iterate_scalars
from simia.quality.tool_effects import find_effect, find_effect_by_name
from simia.quality.trajectory_view import TrajectoryView
from simia.quality.truth.quantities import find_quantities, narrow
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall

# It starts with a digit, and not with alternatives: `re` then skips to the next digit at once.
NUMBER = re.compile(r"\d(?:\d{0,2}(?:,\d{3})+(?:\.\d+)?|\d*(?:\.\d+)?)")
NUMBER_CHARS = bytes(code if chr(code) in "0123456789.," else 32 for code in range(256))
WRITES = {"change": True, "look_up": False, "": None}
FAILED = re.compile(r'\s*["\']?(?:error|failed|failure|错误|失败|エラー|失敗)', re.I)
CERTAIN_ERROR = re.compile(
    r'\s*["\']?(?:error(?:\s+\d+)?\s*(?:[:：.!]|["\']?$)|(?:failed|unable) to\b|错误[:：]|エラー[:：])', re.I
)
FAILED_STATUS = frozenset(("error", "failed", "failure", "fail", "rejected", "denied"))


class Step:
    """A call with its result. `place`: index of the call's message; `at`: index of the result's message."""

    __slots__ = ("at", "call", "failed", "place", "result", "text", "where", "writes")

    def __init__(
        self, place: int, where: str, call: ToolCall, at: int, message: Message, text: str, writes: bool | None
    ):
        self.place, self.where, self.call, self.at, self.text, self.writes = place, where, call, at, text, writes
        self.result: Any = parse_result(text)
        self.failed = message.error is not None or is_error(self.result, text)

    @property
    def arguments(self) -> dict[str, Any]:
        return self.call.arguments or {}


class TruthView:
    """The view of one unchanged trajectory for the truth checks; everything is computed once, when it is asked for."""

    def __init__(self, view: TrajectoryView) -> None:
        self.view = view
        self.t = view.t
        self.texts = view.texts
        self._numbers: dict[int, set[float]] = {}
        self.kept: dict[tuple[str, int], Any] = {}
        """What a check has computed of all that was given before a message, by what it is and the message's index."""

    @cached_property
    def steps(self) -> list[Step]:
        """The calls that have a result, in order."""
        opened: dict[str, tuple[int, int, ToolCall]] = {}
        steps = []
        kinds = classify_tools(self.t.tools)
        for i, message in enumerate(self.t.messages):
            if message.calls:
                for j, call in enumerate(message.calls):
                    opened[call.id] = (i, j, call)
            if message.role == "tool" and message.call_id in opened:
                place, j, call = opened.pop(message.call_id)
                writes = kinds[call.name] if call.name in kinds else WRITES[find_effect_by_name(call.name)]
                steps.append(Step(place, f"messages[{place}].calls[{j}]", call, i, message, self.texts[i], writes))
        return steps

    @cached_property
    def answers(self) -> list[int]:
        """Indices of the assistant's texts."""
        return [i for i, m in enumerate(self.t.messages) if m.role == "assistant" and self.texts[i]]

    @cached_property
    def policy(self) -> str:
        """System text and descriptions of the tools."""
        return get_policy(self.t.system or "", self.t.tools)

    @cached_property
    def written(self) -> list[str]:
        """For each message the text that counts as given: its text, and the arguments of its calls."""
        return [
            text if not given else text + "\n" + "\n".join(each.decode("utf-8", "replace") for each in given)
            for text, given in zip(self.texts, self.view.arguments, strict=True)
        ]

    @cached_property
    def policy_low(self) -> str:
        return get_lower(self.policy)

    @cached_property
    def _joined(self) -> tuple[str, list[int]]:
        """All messages in lower case, and where each starts."""
        parts, starts, at = [], [], 0
        for text, low, given in zip(self.written, self.view.lows, self.view.arguments, strict=True):
            part = narrow(text.lower() if given else low)
            starts.append(at)
            parts.append(part)
            at += len(part) + 1
        return "\n".join(parts), [*starts, at]

    def is_said(self, needle: str, i: int) -> bool:
        """Return whether a lower-case text occurs in the policy or before message i."""
        joined, starts = self._joined
        return needle in self.policy_low or joined.find(needle, 0, starts[i]) >= 0

    def is_number_said(self, digits: str, i: int) -> bool:
        """Return whether a number, as it is written, occurs in the policy or before message i as a whole number."""
        joined, starts = self._joined
        return has_number(joined, digits, starts[i]) or has_policy_number(self.policy_low, digits)

    @cached_property
    def policy_numbers(self) -> frozenset[float]:
        return get_policy_numbers(self.policy)

    def numbers_before(self, i: int) -> set[float]:
        """Return every number that was given before message i."""
        known = self._numbers.get(i)
        if known is None:
            start = max((at for at in self._numbers if at < i), default=-1)
            known = set(self._numbers[start]) if start >= 0 else set(self.policy_numbers)
            for at in range(max(start, 0), i):
                known |= read_numbers(self.written[at])
            self._numbers[i] = known
        return known

    def sources_before(self, i: int) -> Iterator[tuple[int, str]]:
        """Yield (index, text) of users and results before message i, the newest first."""
        for at in range(i - 1, -1, -1):
            if self.t.messages[at].role in ("user", "tool"):
                yield at, self.texts[at]


_POLICIES: dict[tuple[Any, ...], tuple[list[ToolSpec], str]] = {}
_POLICY_NUMBERS: dict[str, frozenset[float]] = {}
_TOOLS: dict[tuple[int, ...], tuple[list[ToolSpec], dict[str, bool | None]]] = {}
MOST = 256


def get_policy(system: str, tools: list[ToolSpec]) -> str:
    key = (system, *(id(tool) for tool in tools))
    known = _POLICIES.get(key)
    if known is None:
        if len(_POLICIES) >= MOST:
            _POLICIES.clear()
        parts = [narrow(system)]
        for tool in tools:
            parts += [tool.description, orjson.dumps(tool.parameters, default=str).decode()]
        known = _POLICIES[key] = (list(tools), "\n".join(parts))  # the tools are kept alive: their ids stay theirs
    return known[1]


def get_policy_numbers(policy: str) -> frozenset[float]:
    known = _POLICY_NUMBERS.get(policy)
    if known is None:
        if len(_POLICY_NUMBERS) >= MOST:
            _POLICY_NUMBERS.clear()
        known = _POLICY_NUMBERS[policy] = frozenset(read_numbers(policy))
    return known


def classify_tool(tools: list[ToolSpec], name: str) -> bool | None:
    """Return whether a tool changes something: by its contract, else by the words of its name; None: not known."""
    known = classify_tools(tools)
    return known[name] if name in known else WRITES[find_effect_by_name(name)]


def classify_tools(tools: list[ToolSpec]) -> dict[str, bool | None]:
    """Return for each tool whether it changes something."""
    key = tuple(map(id, tools))
    known = _TOOLS.get(key)
    if known is None:
        if len(_TOOLS) >= MOST:
            _TOOLS.clear()
        # The entry keeps the tools alive, so that no other object gets their ids.
        known = _TOOLS[key] = (list(tools), {tool.name: WRITES[find_effect(tool)] for tool in tools})
    return known[1]


def has_number(text: str, digits: str, end: int) -> bool:
    at = text.find(digits, 0, end)
    while at >= 0:
        after = text[at + len(digits) : at + len(digits) + 2]
        if not (at and (text[at - 1].isdigit() or text[at - 1] in ".,")) and not (
            after[:1].isdigit() or (after[:1] in (".", ",") and after[1:].isdigit())
        ):
            return True
        at = text.find(digits, at + 1, end)
    return False


@lru_cache(maxsize=4096)
def has_policy_number(policy: str, digits: str) -> bool:
    return has_number(policy, digits, len(policy))


@lru_cache(maxsize=MOST)
def get_lower(text: str) -> str:
    return text.lower()


def read_numbers(text: str) -> set[float]:
    """Return the plain numbers of a text and its amounts (1.2万円 is 12000)."""
    if text.isascii():
        return read_ascii_numbers(text)
    text = narrow(text)
    found = {float(each.replace(",", "")) for each in NUMBER.findall(text)}
    if not text.isascii() and any(char in text for char in "万億亿千"):
        found |= {each.value for each in find_quantities(text) if each.kind in ("amount", "number")}
    return found


def read_ascii_numbers(text: str) -> set[float]:
    """Return the plain numbers of an ASCII text: the runs of digits and signs, of which few need the pattern."""
    found: set[float] = set()
    for each in set(text.encode().translate(NUMBER_CHARS).split()):
        run = each.strip(b".,")
        if run.isdigit():
            found.add(float(run))
        elif run:
            found |= {float(number.replace(",", "")) for number in NUMBER.findall(run.decode())}
    return found


def parse_result(text: str) -> Any:
    """Parse a result; None if it is not JSON."""
    if text[:1] not in ("{", "["):
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def is_error(value: Any, text: str) -> bool:
    if isinstance(value, dict):
        if value.get("error") or value.get("errors") or value.get("success") is False or value.get("ok") is False:
            return True
        status = value.get("status")
        return isinstance(status, str) and status.lower() in FAILED_STATUS and len(value) <= 3
    return FAILED.match(text) is not None


def is_failed_result(message: Message) -> bool:
    """Return whether a result is an error: by its mark, which most foreign formats lack, or by its text."""
    text = message.text.strip()
    return message.error is not None or is_error(parse_result(text), text)


def is_error_result(message: Message) -> bool:
    """Return whether a result is an error beyond doubt. A result such as {"status": "rejected"} or "Failed logins: 3" may be of a call
    that succeeded, so it is none here."""
    text = message.text.strip()
    value = parse_result(text)
    if message.error is not None:
        return True
    if isinstance(value, dict):
        return bool(value.get("error")) or any(value.get(name) is False for name in ("success", "ok"))
    return CERTAIN_ERROR.match(text) is not None


def find_money(value: Any) -> set[float]:
    """Return the numbers of a parsed result that can be amounts."""
    return {float(each) for each in iterate_scalars(value) if is_number(each)}


def has_number_in(value: Any) -> bool:
    """Return whether a parsed result has a number."""
    return any(isinstance(each, (int, float)) and not isinstance(each, bool) for each in iterate_scalars(value))


def iterate_arguments(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (name, scalar) of arguments, nested ones too."""
    if isinstance(value, dict):
        for key, each in value.items():
            if isinstance(each, (dict, list)):
                yield from iterate_arguments(each, key)
            elif each is not None and not isinstance(each, bool):
                yield key, each
    elif isinstance(value, list):
        for each in value:
            yield from iterate_arguments(each, name)
    elif value is not None and not isinstance(value, bool):
        yield name, value
