"""Amplification on the nodes of a cluster: each worker renders prompts, asks through the job's engines, parses, checks and judges."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import partial

from simia.amplification.acceptance_judge import AcceptanceJudge
from simia.amplification.job import ask_engines, make_result
from simia.amplification.model_mix import Writer
from simia.amplification.seeds import Seeds
from simia.amplification.settings import AmplifyConfig
from simia.amplification.simulate import Simulator
from simia.jobs.nodes.node_worker import Node, Produce
from simia.llm.backends import LLMSettings
from simia.prompts import refuse_other_prompts

JUDGE = "judge"


@dataclass(frozen=True)
class AmplificationNodeWork:
    """The data that a worker needs to make the trajectories of a run. `name_models` lists its models.

    `prompts`: the prompt files of the run with their hashes. `recorded`: whether they belong to recorded requests, not to newly rendered ones."""

    config: AmplifyConfig
    seeds: Seeds
    writers: list[Writer]
    run_id: str
    prompts: dict[str, str]
    recorded: bool

    async def open(self, node: Node, stack: contextlib.AsyncExitStack) -> Produce:
        """Open the models. Raises `UserError` for prompt files that differ from those of the job's process."""
        if not self.recorded:
            refuse_other_prompts(self.prompts)
        engines = [node.engines[name_writer(place)] for place in range(len(self.writers))]
        judge = None
        if self.config.judge.enabled:
            judge = AcceptanceJudge(self.config.judge, node.engines.get(JUDGE, engines[0]))
        simulator = Simulator(self.config, self.seeds, writers=self.writers, run_id=self.run_id)
        return partial(
            make_result,
            simulator,
            ask=ask_engines(engines),
            prompts=self.prompts if self.recorded else None,
            judge=judge,
        )


def name_writer(place: int) -> str:
    """Return the name of the model of `llm` (place 0) or of `mix` among those that workers hold."""
    return f"writer {place}"


def name_models(config: AmplifyConfig) -> dict[str, LLMSettings]:
    """Return the models that workers hold, by name: the writers in their order, and the judge where it has a model of its own."""
    models = {name_writer(place): llm for place, llm in enumerate([config.llm, *(each.llm for each in config.mix)])}
    if config.judge.enabled and config.judge.llm is not None:
        models[JUDGE] = config.judge.llm
    return models
