"""Find prompt files by name, compile them once, and hash them.

A prompt file may be untrusted. It is rendered in Jinja's sandbox, where it can read only the values that it is given and can
change none of them. Its time and memory are not bounded: a prompt can loop without end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import orjson
from jinja2.sandbox import ImmutableSandboxedEnvironment

from simia import search_path
from simia.errors import UserError
from simia.json_values import holds_beyond_64_bits


class PromptTemplate:
    """A compiled prompt file."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        environment = ImmutableSandboxedEnvironment(
            undefined=jinja2.StrictUndefined, autoescape=False, keep_trailing_newline=False
        )
        try:
            self._template = environment.from_string(text)
        except jinja2.TemplateSyntaxError as error:
            raise UserError(f"prompt {name}:{error.lineno}: {error.message}") from None

    def render(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> str:
        """Render the prompt. Raises `UserError` for an operation that the sandbox refuses, and for a name that has no value."""
        try:
            return self._template.render({**(values or {}), **more})
        except (jinja2.TemplateError, OverflowError) as error:  # OverflowError: a longer range than the sandbox allows
            raise UserError(f"prompt {self.name}: {' '.join(str(error).split())}") from None


def decode_result(text: str) -> Any:
    """Return the JSON object or list that a tool's result holds, so that a prompt shows JSON and not text within text.

    A result with integers beyond 64 bits or a repeated key stays text, since orjson would change it.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    if not isinstance(value, dict | list) or holds_beyond_64_bits(value) or repeats_key(text, value):
        return text
    return value


def repeats_key(text: str, value: Any) -> bool:
    """Whether an object of a JSON text has a key twice. `value`: the text, read by orjson."""
    if text.count('":') == orjson.dumps(value).count(b'":'):  # a colon follows each key
        return False
    repeated = []
    json.loads(text, object_pairs_hook=lambda pairs: repeated.append(len(dict(pairs)) < len(pairs)))
    return any(repeated)


@cache
def load_template(name: str) -> tuple[PromptTemplate, str]:
    text, digest = read_prompt(name)
    return PromptTemplate(name, text), digest


@cache
def read_prompt(name: str) -> tuple[str, str]:
    path: Path = search_path.find_resource("prompts", name)
    return path.read_text(encoding="utf-8").strip(), search_path.file_hash(path)


def refuse_other_prompts(hashes: Mapping[str, str]) -> None:
    """Raise `UserError` for a prompt file that has another hash here than in `hashes`, by name."""
    for name, hashed in hashes.items():
        if read_prompt(name)[1] != hashed:
            raise UserError(
                f"the prompt file {name} of the job differs from the one on this node: copy the folders of SIMIA_PATH to all nodes"
            )


@cache
def read_lines(name: str) -> tuple[str, ...]:
    """Return the lines of a file under prompts/, blank ones left out."""
    text = search_path.find_resource("prompts", name).read_text(encoding="utf-8")
    return tuple(line.strip() for line in text.splitlines() if line.strip())
