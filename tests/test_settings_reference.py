"""docs/reference/settings.md is what `scripts/settings_reference.py` writes: every setting has its entry."""

from __future__ import annotations

import re

import pytest

from scripts.settings_reference import PAGE, link, list_roots, walk, write_page
from simia.cli.config import MODELS
from simia.config_listing import list_settings

TEXT = PAGE.read_text(encoding="utf-8")
ROOTS = list_roots()


def read_rows(section: str) -> dict[str, str]:
    """Setting → description of a section."""
    found = TEXT.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `([\w-]+)` \|.*\| (.*) \|$", found, re.M))


def test_the_page_is_current() -> None:
    assert write_page() == TEXT, "run: python -m scripts.settings_reference"


def test_every_section_is_there_once_and_links_lead_to_one() -> None:
    sections = re.findall(r"^## (\w+)$", TEXT, re.M)
    assert len(set(map(str.lower, sections))) == len(sections) > 60
    assert set(re.findall(r"\]\((#\w+)\)", TEXT)) <= {link(name).partition("(")[2][:-1] for name in sections}
    assert len(ROOTS) >= len(MODELS) + 10


@pytest.mark.parametrize("root", ROOTS)
def test_every_dotted_name_ends_in_a_row_with_a_description(root: str) -> None:
    seen: dict[type, str] = {}
    for model in ROOTS.values():
        list(walk(model, seen))
    inner: dict[type, str] = {}
    list(walk(ROOTS[root], inner))
    rows = {name: text for model in inner for name, text in read_rows(seen[model]).items()}
    names = {each.name.rpartition(".")[2] for each in list_settings(ROOTS[root])} - {"NAME"}
    assert names
    assert names <= rows.keys()
    assert [name for name, text in rows.items() if not text.strip()] == []
