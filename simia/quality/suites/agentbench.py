"""AgentBench's environments as AgentInstruct has them: a shell, a shop, one step on a web page."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator

from simia.errors import Issue
from simia.formats.agentinstruct import FINISHED, STYLES
from simia.quality.suites.base import Suite, breaks, one_call_a_turn, steps, targets, written
from simia.trajectory import Message, Trajectory

DIALECT = "agentinstruct"
# An editor, or a question at the keyboard; `read` in a loop over a file or a pipe is neither.
WAITS = re.compile(r"(?:^|[;&])[ \t]*(?:(?:vim?|nano|emacs)[ \t]|read[ \t]+-[a-z]*p\b[^<\n]*$)", re.M)
LISTED = re.compile(r"Available Actions:\s*(\{.*\})\s*\Z", re.DOTALL)
CHOICE = re.compile(r"^([A-Z])\. ", re.M)
CLICK = re.compile(r"(search|click)\[(.*)\]", re.DOTALL)
SEPARATOR = "[SEP]"


def shell(t: Trajectory, seed: Trajectory | None) -> Iterator[Issue]:
    yield from one_call_a_turn(t)
    yield from written(t, DIALECT)
    for step in steps(t):
        if WAITS.search(str(step.arguments.get("script", ""))):
            yield breaks(step.where, "the script waits for input or opens a screen; nobody is there to type")
    last = t.messages[-1] if t.messages else None
    if last is not None and last.role == "assistant" and not last.calls and "\n" in last.text:
        yield breaks(f"messages[{len(t.messages) - 1}]", f"the answer is one line, or {FINISHED!r}")


def shop(t: Trajectory, seed: Trajectory | None) -> Iterator[Issue]:
    """Check that only elements of the last page are clicked, and only pages with a search box are searched."""
    yield from one_call_a_turn(t)
    yield from written(t, DIALECT)
    page: Message | None = None
    for i, message in enumerate(t.messages):
        if message.role in ("user", "tool"):
            page = message
            continue
        for j, call in enumerate(message.calls):
            value = (call.arguments or {}).get("query" if call.name == "search" else "element")
            yield from offered(page, call.name, str(value), f"messages[{i}].calls[{j}]")
        if i == len(t.messages) - 1 and not message.calls and (action := CLICK.fullmatch(message.text)):
            yield from offered(page, action[1], action[2], f"messages[{i}]")
            if action[2].lower() != "buy now":
                yield breaks(f"messages[{i}]", "the shopping does not end with click[Buy Now]")


def offered(page: Message | None, action: str, value: str, where: str) -> Iterator[Issue]:
    if page is None:
        return
    search, clickables = offers(page.text)
    if action == "search" and search is False:
        yield breaks(where, "a search on a page without a search box")
    if action == "click" and clickables is not None and value.strip().lower() not in clickables:
        yield breaks(where, f"a click on {value!r}, which the page does not offer")


def offers(page: str) -> tuple[bool | None, set[str] | None]:
    """Return (has a search box, clickable names) of a page; None where the page does not show it."""
    listed = LISTED.search(page)
    if listed:
        try:
            actions = json.loads(listed[1])
        except (ValueError, RecursionError):
            actions = literal(listed[1])
        names = actions.get("clickables")
        box = actions.get("has_search_bar")
        # "..." is how the public demonstration leaves the list out.
        known = isinstance(names, list) and "..." not in names
        return box if isinstance(box, bool) else None, {str(name).strip().lower() for name in names} if known else None
    if SEPARATOR not in page:
        return None, None
    parts = {part.strip(" \n\"'").lower() for part in page.split(SEPARATOR)}
    return "search" in parts, parts


def literal(text: str) -> dict[str, object]:
    """Parse the list as Python prints it, which the environment does too."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return {}
    return value if isinstance(value, dict) else {}


def web_page(t: Trajectory, seed: Trajectory | None) -> Iterator[Issue]:
    """Check that each chosen element is in the list of the last page."""
    yield from one_call_a_turn(t)
    yield from written(t, DIALECT)
    page: Message | None = None
    for i, message in enumerate(t.messages):
        if message.role == "user" or (message.role == "tool" and CHOICE.search(message.text)):
            page = message
        for j, call in enumerate(message.calls):
            choice = (call.arguments or {}).get("choice")
            listed = CHOICE.findall(page.text) if page else []
            where = f"messages[{i}].calls[{j}]"
            if not listed:
                yield breaks(where, "the page lists no choices")
            elif call.name != "none_of_the_above" and choice not in listed[1:]:
                yield breaks(where, f"choice {choice!r} is not one of {', '.join(listed[1:])}")


def suite(name: str) -> Suite:
    checks = {"os": shell, "webshop": shop, "mind2web": web_page}
    return Suite(name, DIALECT, f"suites/{name}.md", checks[name], targets(f"suites/{name}_targets.txt"))


OS, WEBSHOP, MIND2WEB = (suite(name) for name in STYLES)
