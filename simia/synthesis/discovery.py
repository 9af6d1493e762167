"""The front of EnvScaler: from a file of tasks, or a domain in words, to the themes of environments."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from simia.config import Config
from simia.synthesis.stage import Stage
from simia.synthesis.stages.task_filter import Screening, StatefulFilter
from simia.synthesis.stages.themes import Clusters, Descriptions, Themes
from simia.synthesis.task_sources import is_task_source, read_task_texts


class DiscoverySettings(Config):
    """How tasks lead to themes of environments (EnvScaler, task-guided environment discovery)."""

    field: str | None = None
    """Field of a row that holds the task's text; None: task, instruction, query, question or prompt, or the user's first message."""
    limit: int | None = Field(default=None, ge=1)
    """How many tasks of the source are used; None: all."""
    tasks_per_question: int = Field(default=1, ge=1, le=50)
    """Tasks that one question of the filter asks about; each gets a verdict of its own."""
    usefulness: int = Field(default=6, ge=1, le=10)
    """Smallest usefulness of an environment that is kept, 1 to 10."""
    modelability: int = Field(default=6, ge=1, le=10)
    """Smallest modelability of an environment that is kept, 1 to 10."""
    duplicate_cosine: float | None = Field(default=None, gt=0, le=1)
    """Cosine from which on two descriptions are of the same environment; None: 0.8 for embeddings, 0.35 for words."""


def list_discovery_stages(source: str, settings: DiscoverySettings) -> Sequence[Stage]:
    """The stages up to `themes`. Raises `UserError` for a source that cannot be read.

    Args:
        source: A file, pack or data set of tasks (`read_task_texts`); anything else is a domain in words, which is the only theme.
        settings: Thresholds, and how tasks are read.
    """
    if not is_task_source(source):
        return [Themes(source)]
    texts = read_task_texts(source, text_field=settings.field, limit=settings.limit).texts
    grouped = [Screening(texts, settings.tasks_per_question)] if settings.tasks_per_question > 1 else []
    described = Descriptions(settings.usefulness, settings.modelability)
    return [*grouped, StatefulFilter(texts), described, Clusters(settings.duplicate_cosine), Themes()]
