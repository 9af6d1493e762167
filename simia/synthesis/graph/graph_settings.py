"""Settings of the tool graph."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from simia.config import Config

WORDS_THRESHOLD, EMBEDDINGS_THRESHOLD = 0.5, 0.85


class GraphSettings(Config):
    """How the tool graph is built (EnvFactory §3.3.1, ScaleEnv §4.1.3)."""

    matcher: Literal["words", "embeddings"] = "words"
    """How results are compared with arguments. words: by names. embeddings: also by embeddings from the model of the role `embeddings`; without
    that role, only by names."""
    threshold: float | None = Field(default=None, gt=0, le=1)
    """Minimum similarity (0 to 1) at which a result can become an argument. With embeddings, it applies only to these, and names keep 0.5.
    null: 0.5 for words, 0.85 for embeddings."""
    refine: bool = True
    """Whether a model adds and removes edges and names the arguments that a user knows (one request for each environment)."""

    @property
    def words_threshold(self) -> float:
        """The threshold for names, which also applies if embeddings are used."""
        return self.threshold if self.threshold is not None and self.matcher == "words" else WORDS_THRESHOLD

    @property
    def embeddings_threshold(self) -> float:
        """The threshold of embeddings."""
        return self.threshold if self.threshold is not None else EMBEDDINGS_THRESHOLD
