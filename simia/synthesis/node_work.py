"""Synthesis on a cluster: each worker runs stages, sends questions through the job's engines, and executes generated code in its sandbox."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from simia.jobs.nodes.node_worker import Node, Produce
from simia.synthesis.job import StageMaker, StageResult
from simia.synthesis.recipes import find_recipe
from simia.synthesis.stage import StageInput


@dataclass(frozen=True)
class SynthesisNodeWork:
    """The facts with which a worker makes the items of a run. `config`: plain values, since a recipe from a file has its own config class."""

    recipe: str
    config: dict[str, Any]

    async def open(self, node: Node, stack: contextlib.AsyncExitStack) -> Produce:
        kind = find_recipe(self.recipe)
        config = kind.config.model_validate(self.config)
        stages = {stage.name: stage for stage in kind.make(config).list_stages()}
        maker = StageMaker(config, node.engines, lambda *prompt: node.note(prompt), lambda: node.answered)

        async def make(given: tuple[str, str, StageInput]) -> StageResult:
            item, stage, value = given
            return await maker.make(item, stages[stage], value)

        return make
