"""Where a pack comes from, and the graph of its tools: parts of a pack that synthesis writes and episodes do not read."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class SourceQuote(BaseModel):
    """A source that a pack was made from."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    name: str
    """Title, file or address."""
    quotes: list[str] = Field(default_factory=list)
    """Passages that the pack relies on."""
    licence: str = "unknown"
    """Licence of the source, as an SPDX expression."""
    content_hash: str = ""
    """SHA-256 of the source's content, hexadecimal; empty if it was not read by simia."""


class PackProvenance(BaseModel):
    """How a pack was made."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    recipe: str = ""
    """Name of the importer or of the synthesis recipe; empty: written by hand."""
    sources: list[SourceQuote] = Field(default_factory=list)
    """The sources of the pack."""
    model: str | None = None
    """The model that wrote it."""
    prompts: dict[str, str] = Field(default_factory=dict)
    """Prompt file → hash of its content."""


class ToolEdge(BaseModel):
    """One edge of the tool graph (ScaleEnv §3.2, EnvFactory §3.3)."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    source: str
    """The tool on which the target depends."""
    target: str
    """The tool that depends on it."""
    kind: str = "provides"
    """Type of the edge: `provides` (a result is an argument), `requires` (a condition that the source makes true), `changes` (both use a table that
    the source changes), or a type of the recipe's own."""
    argument: str | None = None
    """Argument of the target that the edge concerns."""
    result: str | None = None
    """Field of the source's result that becomes the argument."""
    origin: str = "given"
    """How the edge was found: by `words`, `embeddings`, `state` (shared tables), a `model`, or `given` by hand."""
