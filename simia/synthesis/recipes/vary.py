"""Vary: make harder variants of tasks that an agent solves too often, and easier ones of tasks that it solves too rarely.

Stages: `baseline`, `variations`, `verdicts`, `measured`. The source is a pack of any origin, with tasks and code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from simia.authoring.difficulty import store_measurements
from simia.authoring.pack_draft import copy_pack_files, draft_pack, refuse_existing, replace_tasks
from simia.config import Config
from simia.envs.play.llm_agent import LLMAgentSettings
from simia.errors import UserError
from simia.pack import Pack
from simia.pack_files import RECORD
from simia.synthesis.settings import SynthesisConfig
from simia.synthesis.stage import Expectation, Stage, StageOutputs
from simia.synthesis.stages.gym_difficulty import AGENT_ROLE
from simia.synthesis.stages.varied import (
    AgentEpisodes,
    Baseline,
    Remeasured,
    VariantVerdicts,
    VariationPlan,
    Variations,
    VariedPack,
)
from simia.synthesis.varying.task_drafts import CHANGES, TaskChange
from simia.task import Measurement, Task
from simia.terminal import write_count

MESSAGES = 6  # of an agent in an episode, for the projection of a dry run


class VaryAgentSettings(Config):
    """The agent whose pass rates decide which tasks are varied."""

    agent: Literal["llm", "reference", "nothing", "canned", "echo", "policy", "random"] = "llm"
    """Agent that plays. llm: the model of the role `agent`, or `llm` if there is no such role. Other values are baselines."""
    name: str | None = None
    """Name of the agent in the tasks' `measured`. null: the name of the model, as `simia pack difficulty` stores it, or of the baseline."""
    tries: int = Field(default=4, ge=1)
    """Number of episodes of each task."""
    turns: int = Field(default=30, ge=1)
    """Maximum number of messages of the agent in an episode."""
    sampling: LLMAgentSettings = Field(default_factory=LLMAgentSettings)
    """Prompt and sampling settings of the agent's model."""


class VaryConfig(SynthesisConfig):
    """Settings of `simia synth vary`. Its `source` is a pack."""

    tasks: list[str] = Field(default_factory=list)
    """Ids of the tasks that may be varied. Empty: all tasks."""
    limit: int | None = Field(default=None, ge=1)
    """Maximum number of tasks to measure, and maximum number of tasks to vary. null: all."""
    agent: VaryAgentSettings = Field(default_factory=VaryAgentSettings)
    """The agent whose pass rates decide which tasks are varied."""
    low: float = Field(default=0.25, ge=0, le=1)
    """Tasks with a lower pass rate (0 to 1) get easier variants."""
    high: float = Field(default=0.75, ge=0, le=1)
    """Tasks with a higher pass rate (0 to 1) get harder variants."""
    changes: list[TaskChange] = Field(default_factory=lambda: list(CHANGES), min_length=1)
    """Kinds of changes that variants may have. The seed decides which of them a task gets."""
    number: int = Field(default=1, ge=1)
    """Number of variants of each task, each with a different change."""
    repairs: int = Field(default=2, ge=0)
    """Maximum number of times that a variant is rewritten after execution or the gate refused it."""
    grants: dict[str, Any] = Field(default_factory=dict)
    """Permissions of the pack's code, as in `backend_settings` of an environment: `read`, `network`, `variables`."""

    @field_validator("source")
    @classmethod
    def make_folder_absolute(cls, source: str) -> str:
        """Name a folder by its absolute path, for a resume from another one."""
        path = Path(source).expanduser() if source and "\0" not in source else None
        return str(path.absolute()) if path is not None and path.is_dir() else source


class VaryRecipe:
    """Measure, vary, verify, and measure again."""

    name = "vary"

    def __init__(self, config: VaryConfig) -> None:
        self._config = config

    @cached_property
    def _source(self) -> VariedPack:
        """The pack. Raises `UserError` for one without tasks or code."""
        config, agent = self._config, self._config.agent
        if not config.source.strip():
            raise UserError("vary: the pack is missing: simia synth vary PACK --out FOLDER")
        if config.low > config.high:
            raise UserError(f"vary: low is {config.low}, more than high, {config.high}: change one of them")
        pack = Pack.load(config.source)
        tasks = [pack.task(name) for name in config.tasks] if config.tasks else pack.tasks
        if not tasks or pack.executable is None or pack.root is None:
            raise UserError(f"vary: pack {pack.name} has no tasks or no code: variants are verified by playing them")
        model = config.roles.get(AGENT_ROLE, config.llm)
        name = agent.name or ((model.model or model.kind) if agent.agent == "llm" else agent.agent)
        return VariedPack(pack, name, tasks, config.grants, config.limit)

    @property
    def plan(self) -> VariationPlan:
        """Which tasks are varied, and how."""
        config = self._config
        return VariationPlan(config.changes, config.number, config.low, config.high, config.repairs, config.seed)

    def list_stages(self) -> Sequence[Stage]:
        source, agent = self._source, self._config.agent
        episodes = AgentEpisodes(agent.agent, agent.tries, agent.turns, agent.sampling)
        return [
            Baseline(source, episodes),
            Variations(source, self.plan),
            VariantVerdicts(source),
            Remeasured(source, episodes),
        ]

    def expected(self) -> Mapping[str, int | Expectation]:
        """What each stage is expected to ask, for a dry run, if every task is varied and nothing is refused."""
        source, config = self._source, self._config
        known = sum(source.agent in task.measured for task in source.tasks)
        tasks = min(known or len(source.tasks), config.limit or len(source.tasks))
        episodes = MESSAGES * config.agent.tries if config.agent.agent == "llm" else 0
        variants = tasks * min(config.number, len(config.changes))
        return {
            "baseline": Expectation(0 if known else episodes * tasks, 2500, 120, AGENT_ROLE),
            "variations": Expectation(variants, 6000, 900),
            "measured": Expectation(episodes * variants, 2500, 120, AGENT_ROLE),
        }

    def summarize(self, outputs: StageOutputs) -> list[str]:
        """How many tasks were varied, verified and measured, and how many pass rates moved into the range."""
        config, source = self._config, self._source
        rates = {key: Measurement.model_validate(row).rate for key, row in outputs.of("baseline").items()}
        outside = [rate for rate in rates.values() if not config.low <= rate <= config.high]
        lines = [
            f"{source.agent}: {write_count(len(rates), 'task')} measured, {len(outside)} of them outside of {config.low:.0%} to {config.high:.0%}"
        ]
        for direction in ("harder", "easier"):
            drafted = [row for row in outputs.of("variations").values() if direction in row["tags"]]
            found = [task for task in self._list_variants(outputs) if direction in task.tags]
            inside = sum(config.low <= task.measured[source.agent].rate <= config.high for task in found)
            if drafted:
                pairs = [(rates[str(task.extra["variant_of"])], task.measured[source.agent].rate) for task in found]
                before, after = (
                    (sum(side) / max(len(pairs), 1) for side in zip(*pairs, strict=True)) if pairs else (0, 0)
                )
                lines.append(
                    f"{direction}: {write_count(len(drafted), 'variant')} held, {len(found)} passed the gate together and were measured, "
                    f"{inside} moved into {config.low:.0%} to {config.high:.0%}; mean pass rate {before:.0%} before, {after:.0%} after"
                )
        return lines

    def _list_variants(self, outputs: StageOutputs) -> list[Task]:
        return [Task.model_validate(row) for row in outputs.of("measured").values()]

    def write(self, outputs: StageOutputs, out: Path) -> list[Path]:
        """Write one pack: the old tasks and the new ones, with what was measured. None if no variant passed."""
        variants = self._list_variants(outputs)
        if not variants:
            return []
        measured = {key: Measurement.model_validate(row) for key, row in outputs.of("baseline").items()}
        write_varied_pack(self._source.pack, out, variants, agent=self._source.agent, measured=measured)
        return [out]


def write_varied_pack(
    pack: Pack, out: Path, variants: Sequence[Task], *, agent: str, measured: Mapping[str, Measurement]
) -> None:
    """Copy a pack to `out`, with the variants after its own tasks. `measured`: pass rates of `agent` on its own tasks."""
    assert pack.root is not None
    refuse_existing(out)
    with draft_pack(out) as draft:
        copy_pack_files(pack.root, draft)
        (draft / RECORD).unlink(missing_ok=True)
        path = pack.path_of("tasks")
        assert path is not None
        replace_tasks(draft / path.relative_to(pack.root), [*pack.tasks, *variants])
        store_measurements(Pack.load(draft), agent, measured)
