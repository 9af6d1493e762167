"""The pages name files, modules and layers that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_layers import LAYERS, METHODS

ROOT = Path(__file__).parents[1]
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    *(
        str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").glob("*.md")) if page.name != "log.md"
    ),  # the log keeps the names of its time
    *(str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs" / "experiments").glob("*.md"))),
]
FILE = re.compile(r"(?<![\w./-])((?:simia|docs|configs|prompts|examples|eval|tests|scripts|seeds)/[\w./-]*\.\w+)")
MODULE = re.compile(r"(?<![\w./-])simia(?:\.[a-z_]\w*)+")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
NOT_IN_THE_REPOSITORY = {"scripts/setup_ragen.sh"}  # of RAGEN's checkout
NOT_MODULES = {
    "simia.backends",
    "simia.store",
    "simia.yaml",
    "simia.cdx.json",
}  # an entry-point group, a setting, a file that verl gets, and the bill of materials


def read_page(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def find_module(name: str) -> Path | None:
    """The file of a module or package, None where there is none."""
    path = ROOT / name.replace(".", "/")
    return next((found for found in (path.with_suffix(".py"), path / "__init__.py") if found.is_file()), None)


def is_defined(name: str) -> bool:
    """Whether a dotted name is a module, or a word in the source of the module that its beginning names."""
    if find_module(name):
        return True
    module, _, attribute = name.rpartition(".")
    found = find_module(module)
    return found is not None and re.search(rf"\b{attribute}\b", found.read_text(encoding="utf-8")) is not None


def read_module_renames() -> list[tuple[str, str]]:
    section = read_page("docs/renames.md").partition("## Modules")[2].partition("\n## ")[0]
    return re.findall(r"^\| `(simia[\w.]+)` \| (.+) \|$", section, re.M)


@pytest.mark.parametrize("page", PAGES)
def test_named_files_exist(page: str) -> None:
    text = read_page(page)
    missing = {name for name in FILE.findall(text) if not (ROOT / name).exists()} - NOT_IN_THE_REPOSITORY
    missing |= {target for target in LINK.findall(text) if not ((ROOT / page).parent / target).exists()}
    assert not missing


@pytest.mark.parametrize("page", sorted({*PAGES} - {"docs/renames.md"}))
def test_named_modules_exist(page: str) -> None:
    unknown = {name for name in MODULE.findall(read_page(page)) if not is_defined(name)} - NOT_MODULES
    assert not unknown


def test_pages_name_files_and_modules() -> None:
    """The expressions above find what they look for."""
    architecture = read_page("docs/architecture.md")
    assert len(set(FILE.findall(architecture))) >= 30
    assert "simia.amplify" in MODULE.findall(read_page("README.md"))
    assert not is_defined("simia.no_such_module")
    assert not is_defined("simia.pack.no_such_name")


def test_architecture_lists_the_layers() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|.*\| (\S+) \|$", read_page("docs/architecture.md"), re.M)
    assert [name for _, name, _ in rows] == LAYERS
    below_methods = LAYERS.index(METHODS[0])
    for number, (layer, name, lower) in enumerate(rows, 1):
        assert int(layer) == number
        highest = below_methods if name in METHODS else number - 1
        assert lower == (f"0–{highest}" if highest else "0")


def test_renames_lead_from_modules_that_are_gone_to_modules_that_exist() -> None:
    renames = read_module_renames()
    assert len(renames) >= 100
    for old, new in renames:
        assert find_module(old) is None, old
        assert new.startswith("removed") or find_module(new.strip("`")), new
