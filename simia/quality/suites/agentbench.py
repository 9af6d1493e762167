"""Suites of AgentBench in the form of AgentInstruct: a shell, a shop, one step on a web page."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator

from simia.errors import Issue
from simia.formats.agentinstruct import FINISHED, STYLES
from simia.quality.suites.base import Suite, iterate_steps, make_suite_issue, make_target_hint
from simia.trajectory import Message, Trajectory

# An editor, or a question at the keyboard; `read` in a loop over a file or a pipe is neither.
WAITS = re.compile(r"(?:^|[;&])[ \t]*(?:(?:vim?|nano|emacs)[ \t]|read[ \t]+-[a-z]*p\b[^<\n]*$)", re.M)
LISTED = re.compile(r"Available Actions:\s*(\{.*\})\s*\Z", re.DOTALL)
CHOICE = re.compile(r"^([A-Z])\. ", re.M)
CLICK = re.compile(r"(search|click)\[(.*)\]", re.DOTALL)
SEPARATOR = "[SEP]"


def check_shell(t: Trajectory, seed: Trajectory | None) -> Iterator[Issue]:
    for step in iterate_steps(t):
        if WAITS.search(str(step.arguments.get("script", ""))):
            yield make_suite_issue(step.where, "the script waits for input or opens a screen; nobody is there to type")
    last = t.messages[-1] if t.messages else None
    if last is not None and last.role == "assistant" and not last.calls and "\n" in last.text:
        yield make_suite_issue(f"messages[{len(t.messages) - 1}]", f"the answer is one line, or {FINISHED!r}")


def check_shop(t: Trajectory, seed: Trajectory | None) -> Iterator[Issue]:
    """Check that only elements of the last page are clicked, and only pages with a search box are searched."""
    page: Message | None = None
    for i, message in enumerate(t.messages):
        if message.role in ("user", "tool"):
            page = message
            continue
        for j, call in enumerate(message.calls):
            value = (call.arguments or {}).get("query" if call.name == "search" else "element")
            yield from check_offered(page, call.name, str(value), f"messages[{i}].calls[{j}]")
        if i == len(t.messages) - 1 and not message.calls and (action := CLICK.fullmatch(message.text)):
            yield from check_offered(page, action[1], action[2], f"messages[{i}]")
            if action[2].lower() != "buy now":
                yield make_suite_issue(f"messages[{i}]", "the shopping does not end with click[Buy Now]")


def check_offered(page: Message | None, action: str, value: str, where: str) -> Iterator[Issue]:
    if page is None:
        return
    search, clickables = read_offers(page.text)
    if action == "search" and search is False:
        yield make_suite_issue(where, "a search on a page without a search box")
    if action == "click" and clickables is not None and value.strip().lower() not in clickables:
        yield make_suite_issue(where, f"a click on {value!r}, which the page does not offer")


def read_offers(page: str) -> tuple[bool | None, set[str] | None]:
    """Return (has a search box, clickable names) of a page; None where the page does not show it."""
    listed = LISTED.search(page)
    if listed:
        try:
            actions = json.loads(listed[1])
        except (ValueError, RecursionError):
            actions = parse_python_literal(listed[1])
        names = actions.get("clickables")
        box = actions.get("has_search_bar")
        # "..." is how the public demonstration leaves the list out.
        known = isinstance(names, list) and "..." not in names
        return box if isinstance(box, bool) else None, {str(name).strip().lower() for name in names} if known else None
    if SEPARATOR not in page:
        return None, None
    parts = {part.strip(" \n\"'").lower() for part in page.split(SEPARATOR)}
    return "search" in parts, parts


def parse_python_literal(text: str) -> dict[str, object]:
    """Parse the list as Python prints it, which the environment does too."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return {}
    return value if isinstance(value, dict) else {}


def check_web_page(t: Trajectory, seed: Trajectory | None) -> Iterator[Issue]:
    """Check that each chosen element is in the list of the last page."""
    page: Message | None = None
    for i, message in enumerate(t.messages):
        if message.role == "user" or (message.role == "tool" and CHOICE.search(message.text)):
            page = message
        for j, call in enumerate(message.calls):
            choice = (call.arguments or {}).get("choice")
            listed = CHOICE.findall(page.text) if page else []
            where = f"messages[{i}].calls[{j}]"
            if not listed:
                yield make_suite_issue(where, "the page lists no choices")
            elif call.name != "none_of_the_above" and choice not in listed[1:]:
                yield make_suite_issue(where, f"choice {choice!r} is not one of {', '.join(listed[1:])}")


OS, WEBSHOP, MIND2WEB = (
    Suite(
        name,
        "agentinstruct",
        check,
        make_target_hint(f"suites/{name}_targets.txt"),
        reasoned=True,
        more_files=(f"suites/{name}_targets.txt",),
    )
    for name, check in zip(STYLES, (check_shell, check_shop, check_web_page), strict=True)
)
