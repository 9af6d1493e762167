"""Environment descriptions from tasks, scored and deduplicated (EnvScaler, task-guided environment discovery)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field

from simia.llm.embeddings import compute_cosine, make_lexical_vectors
from simia.synthesis.reasons import Reason, Refused
from simia.synthesis.reply_reading import read_json
from simia.synthesis.stage import StageContext, StageInput, StageOutputs
from simia.synthesis.stages.design import make_name, make_unique
from simia.synthesis.stages.task_filter import MOST_TEXT, StatefulFilter

EMBEDDING_COSINE, LEXICAL_COSINE = 0.8, 0.35
LONGEST_NAME, PREFIX = 32, "env"


class Theme(BaseModel):
    """An environment in words."""

    name: str = Field(min_length=1)
    """Name of the environment."""
    title: str = Field(min_length=1)
    """The environment in a few words."""
    domain: str = Field(min_length=1)
    """The field that it belongs to."""
    description: str = Field(min_length=1)
    """What the system is for, who uses it, which records it holds."""
    usefulness: int = Field(ge=1, le=10)
    """How useful the environment is for training an agent, 1 to 10."""
    modelability: int = Field(ge=1, le=10)
    """How well a program with a few tables models it, 1 to 10."""

    @property
    def comparable(self) -> str:
        """The text that is compared with those of others."""
        return f"{self.title}\n{self.domain}\n{self.description}"

    @property
    def score(self) -> int:
        """Usefulness × modelability: the best theme of a cluster has the highest one."""
        return self.usefulness * self.modelability


class Descriptions:
    """Describe the environment that a task belongs to, and refuse those that are of little use or hard to model. Key: task number."""

    name = "descriptions"

    def __init__(self, usefulness: int, modelability: int) -> None:
        self._usefulness, self._modelability = usefulness, modelability

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        return [StageInput(key, kept["text"]) for key, kept in outputs.of(StatefulFilter.name).items()]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        theme = await context.ask("synthesis/theme.j2", {"task": given.value[:MOST_TEXT]}, read_theme, label="theme")
        context.note(usefulness=theme.usefulness, modelability=theme.modelability)
        what = f"{theme.title}: usefulness {theme.usefulness}, modelability {theme.modelability}"
        if theme.usefulness < self._usefulness:
            raise Refused(Reason.LOW_USEFULNESS, f"{what}; at least {self._usefulness} is asked for")
        if theme.modelability < self._modelability:
            raise Refused(Reason.LOW_MODELABILITY, f"{what}; at least {self._modelability} is asked for")
        return theme.model_dump(mode="json")


def read_theme(text: str) -> Theme:
    found: Theme = read_json(text, Theme)
    return found.model_copy(update={"name": make_name(found.name, LONGEST_NAME, PREFIX)})


class Clusters:
    """Find descriptions of the same environment, by embeddings, or by words if the config names no embedding model. One item."""

    name = "clusters"

    def __init__(self, cosine: float | None) -> None:
        self._cosine = cosine

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        found = outputs.of(Descriptions.name)
        return [StageInput("all", list(found.items()))] if found else []

    async def make(self, given: StageInput, context: StageContext) -> Any:
        themes = {key: Theme.model_validate(value) for key, value in given.value}
        texts = [theme.comparable for theme in themes.values()]
        embedded = await context.embed(texts, label="vectors")
        threshold = self._cosine or (LEXICAL_COSINE if embedded is None else EMBEDDING_COSINE)
        vectors = dict(zip(themes, make_lexical_vectors(texts) if embedded is None else embedded, strict=True))
        doubles = await asyncio.to_thread(find_duplicates, themes, vectors, threshold)
        method = "words" if embedded is None else "embeddings"
        context.note(compared_by=method, threshold=threshold, themes=len(themes), duplicates=len(doubles))
        return {key: list(double) for key, double in doubles.items()}


def find_duplicates(
    themes: Mapping[str, Theme], vectors: Mapping[str, Any], threshold: float, known: Sequence[str] = ()
) -> dict[str, tuple[str, float]]:
    """Return key → (key of the kept theme that it repeats, their cosine).

    Themes are visited from the best to the worst. A theme is a duplicate if its cosine with the most similar kept theme reaches the threshold.
    It is compared only with kept themes, so a chain of similar themes cannot join two different ones. `known`: keys that are kept in any case.
    """
    kept: list[str] = list(known)
    found: dict[str, tuple[str, float]] = {}
    for key in sorted(themes, key=lambda key: -themes[key].score):  # sorting is stable
        cosine, nearest = max(
            ((compute_cosine(vectors[key], vectors[each]), each) for each in kept), default=(0.0, ""), key=first
        )
        if kept and cosine >= threshold:
            found[key] = (nearest, cosine)
        else:
            kept.append(key)
    return found


def first(pair: tuple[float, str]) -> float:
    return pair[0]


class Themes:
    """The distinct environments. Key: the environment's name, or KEPT/TASK for a description that repeats KEPT."""

    name = "themes"

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        described = outputs.of(Descriptions.name)
        doubles = outputs.of(Clusters.name).get("all", {})
        names: dict[str, str] = {}
        for key in described:
            if key not in doubles:
                names[key] = make_unique(described[key]["name"], set(names.values()))
        inputs = []
        for key, theme in described.items():
            if key in names:
                value = {**theme, "name": names[key], "task": int(key)}
                inputs.append(StageInput(names[key], value))
            else:
                of, cosine = doubles[key]
                value = {**theme, "task": int(key), "repeats": names[of], "cosine": round(cosine, 3)}
                inputs.append(StageInput(f"{names[of]}/{key}", value))
        return inputs

    async def make(self, given: StageInput, context: StageContext) -> Any:
        theme = given.value
        if "repeats" in theme:
            detail = f"{theme['title']} (task {theme['task']}) repeats {theme['repeats']}, cosine {theme['cosine']}"
            raise Refused(Reason.DUPLICATE_THEME, detail)
        return theme
