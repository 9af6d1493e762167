"""The lock file of the release is whole and hashed, its audit counts what it audited, and every dependency's licence is listed."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts import audit, licences

ROOT = Path(__file__).parent.parent.parent
LOCK = (ROOT / "requirements.lock").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NOT_LOCKED = {"vllm", "llamafactory", "trl", "verl", "ragen"}
"""Extras that exclude one another, each for an environment of its own."""


def blocks() -> dict[str, str]:
    """Package → its lines in the lock file."""
    parts = re.split(r"^(?=[A-Za-z0-9])", LOCK, flags=re.MULTILINE)
    return {canonicalize_name(part.split("==")[0]): part for part in parts if part.strip() and part[0] != "#"}


def test_every_locked_package_has_one_version_and_its_hashes() -> None:
    assert len(blocks()) == len(audit.locked(LOCK)) > 30
    for name, block in blocks().items():
        assert re.match(r"\S+==\S+ ", block), name
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), name


def test_the_lock_names_no_index_and_no_place() -> None:
    assert not re.search(r"://|--(extra-)?index-url|--find-links|--trusted-host|(?<![\w.])/\w", LOCK)


def test_everything_that_the_project_needs_is_locked_in_the_tested_version() -> None:
    tested = audit.locked((ROOT / "constraints.txt").read_text())
    locked = audit.locked(LOCK)
    needs = [*PROJECT["dependencies"]]
    for extra, wanted in PROJECT["optional-dependencies"].items():
        needs += wanted if extra not in NOT_LOCKED else []
    for need in map(Requirement, needs):
        version = locked.get(canonicalize_name(need.name))
        assert version, f"{need} is not locked: run make lock"
        assert need.specifier.contains(version, prereleases=True), f"{need} is locked as {version}: run make lock"
    differ = {name: (version, tested[name]) for name, version in locked.items() if tested.get(name, version) != version}
    assert not differ, "constraints.txt and requirements.lock differ: run make lock"


def test_every_dependency_has_an_allowed_licence_and_is_listed() -> None:
    assert licences.page(licences.table()) == licences.PAGE.read_text(), "run scripts/licences.py"


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ("MIT", True),
        ("Apache-2.0 OR GPL-3.0-only", True),
        ("MPL-2.0 AND (Apache-2.0 OR MIT)", True),
        ("MIT AND GPL-3.0-only", False),
        ("GPL-3.0-or-later", False),
        ("LGPL-2.0-or-later", False),
        ("Proprietary", False),
    ],
)
def test_a_licence_that_binds_the_user_is_refused(expression: str, fits: bool) -> None:
    assert licences.allowed("some-package", expression) is fits


# What pip-audit 2.10.1 wrote: with an index that knows no advisories (it exits with 0 and says that nothing was found), and its
# own JSON form of packages with and without advisories.
SKIPPING = """{"dependencies": [{"name": "aiohappyeyeballs", "skip_reason": "Dependency not found on PyPI and could not be audited: \
aiohappyeyeballs (2.7.1)"}, {"name": "django", "skip_reason": "Dependency not found on PyPI and could not be audited: django (1.2)"}], \
"fixes": []}"""
ANSWERING = """{"dependencies": [{"name": "django", "version": "1.2", "vulns": [{"id": "PYSEC-2011-1", "fix_versions": ["1.2.4"], \
"aliases": ["CVE-2010-4534"], "description": "d"}]}, {"name": "flask", "version": "0.5", "vulns": [{"id": "PYSEC-2019-179", \
"fix_versions": ["1.0"], "aliases": ["CVE-2019-1010083"], "description": "Memory."}]}, {"name": "jinja2", "version": "3.0.2", "vulns": []}, \
{"name": "x", "skip_reason": "Dependency not found on PyPI and could not be audited: x (1)"}], "fixes": []}"""


@pytest.mark.parametrize(
    ("packages", "report", "code", "last"),
    [
        ({"jinja2": "3.0.2"}, ANSWERING, audit.CLEAN, "1 of 1 packages audited, no known vulnerability"),
        ({"flask": "0.5", "jinja2": "3.0.2"}, ANSWERING, audit.VULNERABLE, "2 of 2 packages audited, 1 advisories"),
        ({"jinja2": "3.0.2", "x": "1"}, ANSWERING, audit.SKIPPED, "1 of 2 packages audited, 1 skipped"),
        ({"jinja2": "3.0.2", "left-out": "1"}, ANSWERING, audit.SKIPPED, "1 of 2 packages audited, 1 skipped"),
        ({"jinja2": "3.0.9"}, ANSWERING, audit.SKIPPED, "0 of 1 packages audited, 1 skipped"),
        ({"aiohappyeyeballs": "2.7.1"}, SKIPPING, audit.UNANSWERED, "no advisory service answered: 0 of 1 packages"),
        ({"jinja2": "3.0.2"}, "null", audit.UNANSWERED, "no advisory service answered: 0 of 1 packages"),
        (
            {"jinja2": "3.0.2"},
            ANSWERING.replace('"PYSEC-2011-1"', "1").replace("django", "dj"),
            audit.UNANSWERED,
            "no adv",
        ),
    ],
)
def test_the_audit_counts_what_was_audited(packages: dict[str, str], report: str, code: int, last: str) -> None:
    parsed: dict[str, Any] | None = json.loads(report)
    found, lines = audit.judge(packages, parsed)
    assert (found, lines[-1][: len(last)]) == (code, last)


def test_a_vulnerable_package_is_named_with_the_version_that_mends_it() -> None:
    _, lines = audit.judge({"flask": "0.5"}, json.loads(ANSWERING))
    assert lines[0] == "flask 0.5: PYSEC-2019-179, fixed in 1.0"


def test_packages_for_other_platforms_are_audited_too() -> None:
    assert "colorama" in audit.locked(LOCK)
    assert audit.locked("A_b==1.0 ; sys_platform == 'win32' \\\n    --hash=sha256:00\nc==2 \\\n") == {
        "a-b": "1.0",
        "c": "2",
    }
