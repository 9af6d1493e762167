"""The prompt of an office task tells what every action of the target's apps prints, in the words of OfficeBench's own world."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from simia.drivers import officebench_world
from simia.formats.officebench import APPS, TOOLS
from simia.quality.suites import get_suite
from simia.quality.suites.officebench import MAX_APPS, MIN_APPS, read_replies, render_replies
from tests.quality.test_suites import SEEDS

WORLD = Path(officebench_world.__file__).parent
# Of our own world alone: the reason in brackets, the converter, and what OfficeBench never prints.
OWN = re.compile(r"it is no |cannot be converted|pages are pictures|was stopped|^Successfully switched|Malformed")


def list_printed_texts() -> Iterator[str]:
    """What the world's actions answer with, from its source: the texts after `return`, of refusals and of failures."""
    for file in sorted(WORLD.glob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        fragments = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if id(node) in fragments:
                continue
            text = None
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            elif isinstance(node, ast.JoinedStr):
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            if text and re.match(
                r"(The following is|Successfully|Failed|File |No (events|emails)|The (\w+ )?file )", text
            ):
                yield text


def normalize(text: str) -> str:
    """Without the names of values, so that texts of code and of prompts can be compared."""
    text = re.sub(r"\{[^}]*\}|\[\{\}\]|\[\]", "{}", text).replace("{}.eml", "{}")
    return re.sub(r"[.:\s]*(\{\})?[.:\s]*$", "", text.split("\n")[0].split(" ({})")[0]).strip()


def test_every_text_that_the_world_prints_stands_in_the_prompt() -> None:
    told = {normalize(text) for app in APPS for text in re.findall(r"`([^`]+)`", read_replies()[app])}
    printed = {normalize(text) for text in list_printed_texts() if not OWN.search(text)}
    assert len(printed) > 30
    assert {text for text in printed if text not in told} == set()


def test_every_action_is_told() -> None:
    for tool in TOOLS:
        app, _, action = tool.name.partition(".")
        assert re.search(rf"^- (?:\w+, )?{action}\b", read_replies()[app], re.M), tool.name


def test_a_prompt_tells_the_texts_of_its_targets_apps_and_of_no_other() -> None:
    suite, seed = get_suite("officebench"), SEEDS["officebench"][1]
    seen: set[str] = set()
    for number in range(60):
        target = suite.hint(seed, number)
        assert "\n" not in target
        told = re.findall(r"^(\w+)$", suite.explain(target), re.M)
        assert MIN_APPS <= len(told) <= MAX_APPS
        assert all(app in target for app in told)
        seen.update(told)
    assert seen >= {"calendar", "excel", "ocr", "pdf", "email", "word"}
    assert "create_event" in render_replies("Target: a task that needs 2 apps together: calendar and word; x.")
