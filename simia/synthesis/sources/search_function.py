"""Call a user's own search function, which finds documents for a query (EnvFactory §3.2: the search agent's tool).

    def find(query: str) -> list[dict[str, str]]:
        return [{"name": "Parcel lockers, an overview", "text": "…", "licence": "CC-BY-4.0"}]

It is trusted code and runs in simia's own process: only the user's config names it.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from simia.config import Config
from simia.envs.rewards.reward_function import import_file
from simia.errors import UserError
from simia.synthesis.reasons import Reason, Refused
from simia.synthesis.reply_reading import explain_errors
from simia.synthesis.sources.source_document import SourceDocument
from simia.synthesis.sources.source_reading import hash_content
from simia.synthesis.stage_errors import describe_failure

LONGEST = 200_000  # characters of a document


class SearchSettings(Config):
    """Search for sources with your own function. Off unless `function` is set."""

    function: str | None = None
    """`FILE.py:FUNCTION` or `MODULE:FUNCTION`. The function gets a query and returns a list of documents, each with `name`, `text` and
    optionally `licence`. null: no search."""
    queries: int = Field(default=3, ge=1)
    """Number of queries that a model writes in each round."""
    documents: int = Field(default=5, ge=1)
    """Maximum number of documents to keep for each query."""


class FoundDocument(BaseModel):
    """A document as a search function returns it; other keys are ignored."""

    name: str = Field(min_length=1)
    """Title or address."""
    text: str = Field(min_length=1)
    """Its text."""
    licence: str = "unknown"
    """Its licence, as an SPDX expression."""


def load_search_function(name: str) -> Callable[[str], Any]:
    """Import the function that a config names. Raises `UserError` in one line."""
    place, _, attribute = name.rpartition(":")
    if not place or not attribute.isidentifier():
        raise UserError(f"search.function {name!r}: write it as FILE.py:FUNCTION or MODULE:FUNCTION")
    try:
        module = import_file(Path(place).expanduser()) if place.endswith(".py") else importlib.import_module(place)
    except (Exception, SystemExit) as error:
        raise UserError(f"search.function {name} cannot be imported: {describe_failure(error)}") from None
    found: Callable[[str], Any] | None = getattr(module, attribute, None)
    if not callable(found):
        raise UserError(f"search.function {name}: {place} has no function {attribute!r}")
    return found


def make_function_absolute(name: str) -> str:
    """The name with the file's whole path, for a resume from another folder."""
    place, colon, attribute = name.rpartition(":")
    return f"{Path(place).expanduser().absolute()}{colon}{attribute}" if place.endswith(".py") else name


async def search_documents(function: Callable[[str], Any], query: str, most: int) -> list[SourceDocument]:
    """Call a search function, and return what it finds.

    Raises:
        Refused: `search_fails`, for an exception or a result of another form.
    """
    try:
        rows = await asyncio.to_thread(function, query)
        found = TypeAdapter(list[FoundDocument]).validate_python(rows)
    except ValidationError as error:
        raise Refused(Reason.SEARCH_FAILS, f"{query!r}: a result is not a document: {explain_errors(error)}") from None
    except Exception as error:
        raise Refused(Reason.SEARCH_FAILS, f"{query!r}: {describe_failure(error)}") from None
    return [
        SourceDocument(
            name=each.name, kind="search", content_hash=hash_content(each.text.encode()), licence=each.licence,
            passages=[each.text[:LONGEST]],
        )
        for each in found[:most]
    ]  # fmt: skip
