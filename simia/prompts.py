"""Prompts are files: found (a user's own before ours), compiled once, and known by their hash."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jinja2

from simia import resources
from simia.errors import UserError


@cache
def template(name: str) -> tuple[jinja2.Template, str]:
    text, digest = text_of(name)
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False, keep_trailing_newline=False)
    try:
        return environment.from_string(text), digest
    except jinja2.TemplateSyntaxError as error:
        raise UserError(f"prompt {name}, line {error.lineno}: {error.message}") from None


@cache
def text_of(name: str) -> tuple[str, str]:
    path: Path = resources.find("prompts", name)
    return path.read_text(encoding="utf-8").strip(), resources.file_hash(path)
