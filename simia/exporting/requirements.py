"""Facts that all exported packs state: how pip installs simia, and whether the pack is for evaluation only."""

from __future__ import annotations

import re
from pathlib import Path

from simia.errors import UserError

EVALUATION_ONLY = "for evaluation only: do not train on this task or on what agents did in it"
BASE_IMAGE = "python:3.12-slim-bookworm"
"""Base image of exported Dockerfiles."""
BUILD_WHEEL = "pip wheel --no-deps --wheel-dir dist ."
"""Builds the wheel in a clone."""
NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
WHEEL = re.compile(r"(.*\.whl)(?:\[(.*)\])?")


def find_wheel(requirement: str) -> Path | None:
    """Return the wheel that is copied into what is exported; None for a requirement that pip finds.

    Raises:
        UserError: The wheel does not exist, or is one of another package.
    """
    if not requirement.endswith(".whl"):
        return None
    wheel = Path(requirement)
    if not wheel.is_file():
        raise UserError(f"{wheel} is not a file: give --requirement a wheel that exists, or a requirement for pip")
    if not wheel.name.startswith("simia-"):
        raise UserError(f"{wheel} is not a wheel of simia: in a clone of simia, {BUILD_WHEEL} makes one")
    return wheel


def refer_to_wheel(wheel: Path) -> str:
    """Write the requirement that is a wheel beside a project's `pyproject.toml`, as Hatchling reads it."""
    return f"simia @ {{root:uri}}/{wheel.name}"


def describe_requirement(requirement: str) -> str:
    """Say in one line where the exported environment gets simia from, and what to do if no package index has it."""
    wheel = find_wheel(requirement)
    if wheel is not None:
        return f"installs simia from the copied {wheel.name}"
    if "@" in requirement:
        return f"installs simia by {requirement}"
    return (
        f"requires {requirement}, but simia is not on a package index yet: export again with --requirement WHEEL (in a clone of "
        f"simia, {BUILD_WHEEL} makes one), or let pip find simia installed"
    )


def add_extra(requirement: str, extra: str) -> str:
    """Add an extra to a requirement as pip writes it: `simia==1.0` becomes `simia[mcp]==1.0`.

    Raises:
        UserError: The text is no requirement.
    """
    wheel = WHEEL.fullmatch(requirement)
    if wheel and "@" not in requirement:
        return f"{wheel[1]}[{extra}{f',{wheel[2]}' if wheel[2] else ''}]"
    name = NAME.match(requirement)
    rest = requirement[name.end() :].lstrip() if name else ""
    if name is None or not requirement.isprintable():
        raise UserError(
            f"--requirement {requirement!r} is not a requirement for pip: write simia==VERSION, or the path of a wheel"
        )
    if rest.startswith("["):
        return f"{name.group()}[{extra},{rest[1:]}"
    return f"{name.group()}[{extra}]{' ' if rest.startswith('@') else ''}{rest}"
