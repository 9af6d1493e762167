"""Proposals of environments with quotes of sources; code checks that the quotes occur there (EnvFactory §3.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field

from simia.config import Config
from simia.pack_provenance import SourceQuote
from simia.synthesis.reasons import Reason, Refused, Unreadable
from simia.synthesis.reply_reading import read_json
from simia.synthesis.sources.source_document import GivenTool, SourceDocument
from simia.synthesis.stages.design import make_name
from simia.synthesis.stages.themes import LONGEST_NAME, PREFIX, Theme

SHOWN_REFUSALS = 3
LONGEST_QUOTE = 600  # characters that are kept of a quote


class ProposalSettings(Config):
    """How environments are proposed."""

    rounds: int = Field(default=2, ge=1)
    """Number of rounds of proposals. Each round sees the proposals of earlier rounds."""
    number: int = Field(default=4, ge=1)
    """Maximum number of proposals that one request asks for."""
    questions: int = Field(default=4, ge=1)
    """Maximum number of requests in a round, each with a different part of the sources. A later round continues after the parts of earlier
    rounds."""
    characters: int = Field(default=40_000, ge=1000)
    """Number of characters of the sources in one request."""
    quotes: int = Field(default=2, ge=1)
    """Minimum number of a proposal's quotes that must occur in their source."""
    usefulness: int = Field(default=6, ge=1, le=10)
    """Minimum usefulness of an environment that is kept, from 1 to 10."""
    modelability: int = Field(default=6, ge=1, le=10)
    """Minimum modelability of an environment that is kept, from 1 to 10."""
    cosine: float | None = Field(default=None, gt=0, le=1)
    """Minimum cosine similarity (0 to 1) at which two proposals count as the same environment. null: a default, which depends on whether
    embeddings or words are compared."""


class Quote(BaseModel):
    """A passage of a source."""

    source: str
    """Name of the source."""
    text: str
    """The passage, to the letter."""


class ToolChoice(BaseModel):
    """A tool that a source defines."""

    source: str
    """Name of the source."""
    name: str
    """Name of the tool."""


class Proposal(Theme):
    """An environment that a model proposes on the basis of sources."""

    adds: str = Field(min_length=1)
    """What the pool lacks, and this environment adds."""
    quotes: list[Quote]
    """Passages that it is grounded in."""
    tools: list[ToolChoice] = Field(default_factory=list)
    """Tools of the sources that it keeps."""


class GroundedProposal(Theme):
    """A proposal whose quotes were found in their sources."""

    adds: str
    """What the pool lacks, and this environment adds."""
    sources: list[SourceQuote]
    """Its sources with their quotes."""
    tools: list[GivenTool]
    """The tools that it keeps, as their sources define them."""
    refused: list[str] = Field(default_factory=list)
    """Quotes and tools that do not occur in their source, one line each."""


def read_proposals(text: str, most: int) -> list[Proposal]:
    """Read at most `most` proposals of a reply. An empty list means that there is nothing to add. Raises `Unreadable`."""
    found: list[Proposal] = read_json(text, list[Proposal])
    for each in found:
        if not each.quotes:
            raise Unreadable(f"{each.title}: `quotes` is empty: copy passages of the sources that it is grounded in")
    return [each.model_copy(update={"name": make_name(each.name, LONGEST_NAME, PREFIX)}) for each in found[:most]]


def ground_proposal(
    proposal: Proposal, documents: Mapping[str, SourceDocument], settings: ProposalSettings, most: int
) -> GroundedProposal:
    """Look up the quotes and tools of a proposal in its sources. `most`: tools that it keeps at most.

    Raises:
        Refused: `quote_not_found` if too few quotes occur in their source; `low_usefulness`, `low_modelability`.
    """
    for score, least, reason in (
        (proposal.usefulness, settings.usefulness, Reason.LOW_USEFULNESS),
        (proposal.modelability, settings.modelability, Reason.LOW_MODELABILITY),
    ):
        if score < least:
            raise Refused(reason, f"{proposal.title}: {score}; at least {least} is asked for")
    found: dict[str, SourceQuote] = {}
    tools: dict[str, GivenTool] = {}
    refused: list[str] = []

    def cite(document: SourceDocument) -> SourceQuote:
        new = SourceQuote(name=document.name, licence=document.licence, content_hash=document.content_hash)
        return found.setdefault(document.name, new)

    for quote in proposal.quotes:
        document = documents.get(quote.source)
        text = " ".join(quote.text.split())
        if document is None:
            refused.append(f"there is no source {quote.source!r}")
        elif not document.find_quote(text):
            refused.append(f"{quote.source} does not say {text[:100]!r}")
        elif text not in (quotes := cite(document).quotes):
            quotes.append(text[:LONGEST_QUOTE])
    if (count := sum(len(each.quotes) for each in found.values())) < settings.quotes:
        why = f": {refused[0]}" if refused else ""
        raise Refused(
            Reason.QUOTE_NOT_FOUND,
            f"{proposal.title}: {count} of {len(proposal.quotes)} quotes occur in their source{why}",
        )
    for choice in proposal.tools:
        document = documents.get(choice.source)
        tool = next((each for each in document.tools if each.name == choice.name), None) if document else None
        if document is None or tool is None:
            refused.append(f"{choice.source} has no tool {choice.name}")
        elif choice.name in tools or len(tools) == most:
            why = f"{most} tools are kept already" if len(tools) == most else "another tool has its name"
            refused.append(f"{choice.source}: {choice.name} is left out: {why}")
        else:
            tools[tool.name] = tool
            cite(document)
    kept: dict[str, Any] = {name: getattr(proposal, name) for name in (*Theme.model_fields, "adds")}
    return GroundedProposal(**kept, sources=list(found.values()), tools=list(tools.values()), refused=refused)


def explain_refusals(refused: Sequence[str]) -> str:
    """The first refused quotes and tools, in one line."""
    return "; ".join(refused[:SHOWN_REFUSALS]) + (
        f"; and {len(refused) - SHOWN_REFUSALS} more" if len(refused) > SHOWN_REFUSALS else ""
    )
