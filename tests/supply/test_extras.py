"""Every extra has one line in docs/install.md that resolves, and no text of the repository names an extra that does not exist."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from simia.cli.doctor import EXTRAS
from simia.trainers.versions import NEEDS

ROOT = Path(__file__).parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DECLARED: dict[str, list[str]] = PROJECT["optional-dependencies"]
NAMED = re.compile(r"simia\[([\w, -]+)\]")
# RAGEN's own setup script installs these two: flash-attn is compiled for the torch that is there.
BY_RAGEN = {"vllm", "flash-attn"}


def texts() -> list[Path]:
    folders = [path for name in ("simia", "docs", "examples", "eval", "scripts") for path in (ROOT / name).rglob("*")]
    return [
        path for path in [*folders, *ROOT.glob("*.md"), ROOT / "Makefile"] if path.suffix in (".py", ".md", ".yaml", "")
    ]


def test_no_text_names_an_extra_that_does_not_exist() -> None:
    named = {
        (extra.strip(), path.name)
        for path in texts()
        if path.is_file()
        for group in NAMED.findall(path.read_text(encoding="utf-8"))
        for extra in group.split(",")
    }
    assert len(named) > 10
    assert {each for each in named if each[0] not in DECLARED} == set()
    assert EXTRAS.keys() <= DECLARED.keys()
    for extra, modules in EXTRAS.items():
        packages = [canonicalize_name(Requirement(each).name) for each in DECLARED[extra]]
        assert [canonicalize_name(module) for module in modules] == packages


INSTALLS = re.compile(r"pip install(?: -[-\w]+)* [^`#\n]*?(?<![\w/])simia(?=\[|==|[\s'\"`]|$)")
"""A line that has pip look for simia by its name, not at a path."""
UNPUBLISHED = "on no package index yet"


def test_no_page_has_pip_look_for_simia_on_an_index() -> None:
    """Only docs/install.md names such a line, to say what it does."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*"), *ROOT.glob("configs/**/*.yaml")]
    read = {
        str(path.relative_to(ROOT)): path.read_text("utf-8") for path in pages if path.suffix in (".md", ".py", ".yaml")
    }
    del read["docs/log.md"]  # the log keeps the words of its time
    named = {page for page, text in read.items() if INSTALLS.search(text)}
    assert named == {"docs/install.md"}
    ours = re.compile(r"pip install '?\.?(?:/[\w./-]+)?\[|simia-[\d.]+-py3-none-any\.whl")
    shown = {page for page, text in read.items() if ours.search(text)}
    assert len(shown) > 8
    assert {page for page in shown if UNPUBLISHED not in " ".join(read[page].split())} == set()


@pytest.mark.parametrize(
    "line",
    [
        "pip install simia",
        "pip install 'simia[ray]'",
        "pip install --no-deps simia",
        "PYTHON -m pip install simia==0.3",
    ],
)
def test_a_line_that_asks_an_index_is_recognised(line: str) -> None:
    assert INSTALLS.search(line)
    assert not INSTALLS.search(line.replace("simia", "./simia-0.3.0.whl"))


def test_pages_name_the_wheel_of_this_version() -> None:
    """The wheel's name contains the version, which a release raises."""
    pages = [*ROOT.glob("docs/*.md"), *ROOT.glob("configs/ray/*.yaml")]
    named = {version for page in pages for version in re.findall(r"simia-([\d.]+)-py3", page.read_text("utf-8"))}
    assert named == {PROJECT["version"]}


def test_every_extra_has_one_line() -> None:
    lines = re.findall(r"^\| `pip install '\.\[(\w+)\]'` \|", (ROOT / "docs/install.md").read_text("utf-8"), re.M)
    assert sorted(lines) == sorted(DECLARED)


@pytest.mark.parametrize("trainer", NEEDS)
def test_a_trainers_extra_brings_what_the_trainer_needs(trainer: str) -> None:
    brought = {canonicalize_name(each.name): each.specifier for each in map(Requirement, DECLARED[trainer])}
    if trainer == "llamafactory":  # its wheel declares its ranges itself
        assert str(brought["llamafactory"]) == NEEDS[trainer]["llamafactory"]
        return
    wanted = {canonicalize_name(name): text for name, text in NEEDS[trainer].items()}
    assert wanted.keys() - brought.keys() == (BY_RAGEN if trainer == "ragen" else set())


@pytest.fixture(scope="module")
def uv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("uv")
    venv.create(folder, with_pip=True)
    subprocess.run([folder / "bin/python", "-m", "pip", "install", "--quiet", "uv==0.13.9"], check=True)
    return folder / "bin/uv"


@pytest.mark.all
@pytest.mark.parametrize("extra", DECLARED)
def test_an_extra_resolves(extra: str, uv: Path) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    command = [uv, "pip", "compile", "--quiet", "--python-version", version, "--extra", extra, ROOT / "pyproject.toml"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pinned = {canonicalize_name(name): found for name, found in re.findall(r"^([\w.-]+)==(\S+)", done.stdout, re.M)}
    wanted = {canonicalize_name(name): text for name, text in NEEDS.get(extra, {}).items()}
    if extra == "ragen":
        wanted = {name: text for name, text in wanted.items() if name not in BY_RAGEN}
    fits = {name: Requirement(f"{name}{text}").specifier.contains(pinned[name]) for name, text in wanted.items()}
    assert all(fits.values()), f"{pinned} does not fit {wanted}"
