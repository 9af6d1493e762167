"""Stages `sources` and `search1`, `search2`, …: read the given sources, and look for more (EnvFactory §3.2: proposal and sketch)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from simia.errors import UserError
from simia.synthesis.reasons import Reason, Refused, Unreadable
from simia.synthesis.reply_reading import dump, read_json
from simia.synthesis.sources.pool_packs import PoolEntry
from simia.synthesis.sources.search_function import SearchSettings, load_search_function, search_documents
from simia.synthesis.sources.source_document import SourceDocument, choose_free_name
from simia.synthesis.sources.source_reading import SourcePlace, read_source
from simia.synthesis.stage import StageContext, StageInput, StageOutputs
from simia.synthesis.stages.design import make_name, make_unique

MOST_KEY = 60


class SourceStage:
    """Reads each source once; a server is started in the sandbox. Key: the source's name."""

    name = "sources"

    def __init__(self, places: Callable[[], Sequence[SourcePlace]]) -> None:
        """`places`: finds the sources; raises `UserError`."""
        self._places = places

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        found: dict[str, Any] = {}
        for place in self._places():
            found[make_unique(make_name(place.name, MOST_KEY, "source"), found)] = place.model_dump(mode="json")
        return [StageInput(key, value) for key, value in found.items()]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        place = SourcePlace.model_validate(given.value)
        try:
            if place.kind == "mcp":
                async with context.execution() as folder:
                    document = await asyncio.to_thread(read_source, place, folder)
            else:
                document = await asyncio.to_thread(read_source, place)
        except UserError as error:
            raise Refused(Reason.SOURCE_UNREADABLE, str(error)) from None
        context.note(kind=document.kind, characters=sum(map(len, document.passages)), tools=len(document.tools))
        return dump(document)


class SearchStage:
    """Asks a model for queries about what the pool lacks, and calls the search function with them. One item."""

    def __init__(
        self, number: int, settings: SearchSettings, topic: str, pool: Callable[[], Sequence[PoolEntry]]
    ) -> None:
        """`number`: the round that the documents are for. `topic`: what is wanted, in words; may be empty."""
        self.name = f"search{number}"
        self._number, self._settings, self._topic, self._pool = number, settings, topic, pool

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        value = {
            "topic": self._topic,
            "pool": describe_pool(self._pool()),
            "earlier": describe_earlier(outputs, self._number),
            "sources": [document.name for document in list_documents(outputs, self._number)],
        }
        return [StageInput("all", value)]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        settings = self._settings

        def read_queries(text: str) -> list[str]:
            given: list[str] = read_json(text, list[str])
            if not (queries := [each.strip() for each in given if each.strip()]):
                raise Unreadable("there is no query")
            return queries[: settings.queries]

        values = {**given.value, "number": settings.queries}
        queries = await context.ask("synthesis/search_queries.j2", values, read_queries, label="queries")
        function = load_search_function(settings.function or "")
        found: dict[str, SourceDocument] = {}
        for query in queries:
            for document in await search_documents(function, query, settings.documents):
                found.setdefault(document.content_hash, document)
        context.note(queries=queries, documents=[document.name for document in found.values()])
        return [dump(document) for document in found.values()]


def list_documents(outputs: StageOutputs, number: int) -> list[SourceDocument]:
    """The sources up to a round: those given, then those found, each content once, with unique names."""
    rows = list(outputs.of(SourceStage.name).values())
    for earlier in range(1, number + 1):
        rows += outputs.of(f"search{earlier}").get("all", [])
    found: dict[str, SourceDocument] = {}
    hashes: set[str] = set()
    for row in rows:
        document = SourceDocument.model_validate(row)
        if document.content_hash not in hashes:
            hashes.add(document.content_hash)
            name = choose_free_name(document.name, found)
            found[name] = document.model_copy(update={"name": name})
    return list(found.values())


def describe_pool(pool: Sequence[PoolEntry]) -> list[str]:
    """A line for each pack of the pool."""
    return [f"{' '.join(each.text.split())} Tools: {', '.join(each.tools[:30])}" for each in pool]


def describe_earlier(outputs: StageOutputs, number: int) -> list[str]:
    """A line for each proposal of the rounds before this one, refused ones with the reason."""
    lines = []
    for each in range(1, number):
        made = outputs.of(f"proposals{each}").get("all", {})
        lines += [f"{kept['title']}: {kept['description']}" for kept in made.get("kept", [])]
        lines += [f"{refused['title']}: refused, {refused['reason']}" for refused in made.get("refused", [])]
    return lines
