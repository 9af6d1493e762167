"""A source that proposals quote: its passages, its tools, and the hash of its content (EnvFactory §3.2)."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from pydantic import Field

from simia.reward_spec import StrictModel

LEAST_QUOTE = 20
"""Fewest characters of a quote: a shorter one could occur in any text."""
QUOTES = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-"})
WORDS = ("summary", "description")


class GivenTool(StrictModel):
    """A tool that a source defines: a design keeps its name and its schema."""

    name: str
    """Name of the tool: the source's, with `_` in place of what a Python name cannot hold."""
    description: str = ""
    """What it does, in the source's words."""
    parameters: dict[str, Any]
    """JSON Schema of the arguments, an object."""
    writes: bool | None = None
    """Whether it may change the state; None: the source does not say."""
    returns: str = ""
    """What it returns, as far as the source says."""


class SourceDocument(StrictModel):
    """One source."""

    name: str
    """Name by which quotes name it: a file, a server, or the title of a found document."""
    kind: str
    """`text`, `html`, `openapi`, `mcp`, `pack` or `search`."""
    content_hash: str
    """SHA-256 of its content, hexadecimal."""
    licence: str = "unknown"
    """Its licence, as an SPDX expression."""
    passages: list[str]
    """Its texts in order; a quote lies within one of them."""
    tools: list[GivenTool] = Field(default_factory=list)
    """The tools that it defines."""

    def find_quote(self, quote: str) -> bool:
        """Whether a passage contains the quote; differences in white space, dashes and quotation marks are ignored."""
        wanted = normalize_passage(quote)
        return len(wanted) >= LEAST_QUOTE and any(wanted in normalize_passage(each) for each in self.passages)


def choose_free_name(name: str, taken: Collection[str]) -> str:
    """The name, with a number after it if it is taken."""
    return next(each for each in (name, *(f"{name} ({n})" for n in range(2, len(taken) + 3))) if each not in taken)


def normalize_passage(text: str) -> str:
    """A text for comparison: one blank between words, plain quotation marks and dashes."""
    return " ".join(unicodedata.normalize("NFKC", text).translate(QUOTES).split())


def collect_passages(value: Any) -> list[str]:
    """The summaries and descriptions in a JSON value that are long enough to be quoted, in its order, each once."""
    return [text for text in dict.fromkeys(find_words(value)) if len(text) >= LEAST_QUOTE]


def find_words(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in WORDS and isinstance(inner, str):
                if inner.strip():
                    yield inner.strip()
            else:
                yield from find_words(inner)
    elif isinstance(value, list):
        for each in value:
            yield from find_words(each)


def group_documents(documents: Sequence[SourceDocument], most: int) -> list[list[dict[str, Any]]]:
    """Divide sources into groups that one prompt can show.

    Args:
        documents: in their order.
        most: characters of a group; a longer paragraph is cut into parts.

    Returns:
        For each group the sources in it: `name`, `kind`, `text`, and `tools` with a line each.
    """
    groups: list[list[dict[str, Any]]] = []
    left = 0
    for document in documents:
        shown: dict[str, Any] | None = None
        for kind, line in list_lines(document, most):
            if len(line) > left or not groups:
                groups.append([])
                left, shown = most, None
            if shown is None:
                shown = {"name": document.name, "kind": document.kind, "text": "", "tools": []}
                groups[-1].append(shown)
            if kind == "tool":
                shown["tools"].append(line)
            else:
                shown["text"] += f"\n\n{line}" if shown["text"] else line
            left -= len(line)
    return groups


def list_lines(document: SourceDocument, most: int) -> Iterator[tuple[str, str]]:
    """The paragraphs of a source, then its tools: ("text" or "tool", line)."""
    for passage in document.passages:
        for paragraph in passage.split("\n\n"):
            text = paragraph.strip("\n")
            yield from (("text", text[start : start + most]) for start in range(0, len(text), most))
    for tool in document.tools:
        needed = tool.parameters.get("required", [])
        arguments = (name if name in needed else f"{name}?" for name in tool.parameters.get("properties", {}))
        summary = tool.description.strip().partition("\n")[0]
        yield "tool", f"{tool.name}({', '.join(arguments)}): {summary}"[:most]
