"""What all exported packs say of simia and of themselves: how pip installs simia, and the mark of a pack for evaluation only."""

from __future__ import annotations

import re

from simia.errors import UserError

EVALUATION_ONLY = "for evaluation only: do not train on this task or on what agents did in it"
BASE_IMAGE = "python:3.12-slim-bookworm"
"""Base image of exported Dockerfiles."""
NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


def add_extra(requirement: str, extra: str) -> str:
    """Add an extra to a requirement as pip writes it: `simia==1.0` becomes `simia[mcp]==1.0`.

    Raises:
        UserError: The text is no requirement.
    """
    if requirement.endswith(".whl"):
        return f"{requirement}[{extra}]"
    name = NAME.match(requirement)
    rest = requirement[name.end() :].lstrip() if name else ""
    if name is None or not requirement.isprintable():
        raise UserError(
            f"--requirement {requirement!r} is no requirement for pip: write simia==VERSION, or the path of a wheel"
        )
    if rest.startswith("["):
        return f"{name.group()}[{extra},{rest[1:]}"
    return f"{name.group()}[{extra}]{' ' if rest.startswith('@') else ''}{rest}"
