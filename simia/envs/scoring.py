"""Make the scorer of an environment's episodes from its config."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simia.config import parse_config
from simia.envs.config import EnvironmentConfig
from simia.envs.rewards.composed_scorer import ComposedScorer
from simia.envs.rewards.judge import RewardJudge
from simia.envs.rewards.reward_function import check_reward_function, load_reward_function
from simia.envs.rewards.rules_and_judge import RulesAndJudge
from simia.envs.rewards.step_rewards import check_tasks, list_references
from simia.envs.rewards.trace_and_state import TraceStateScorer
from simia.envs.role_models import judges_outcome_by_model
from simia.envs.worlds.simulated import SimulatedSettings
from simia.errors import UserError
from simia.llm.engine import Engine
from simia.pack import Pack
from simia.scorer import Scorer
from simia.task import Task


def check_reward_settings(config: EnvironmentConfig, tasks: Sequence[Task]) -> None:
    """Raise `UserError` for reward settings that cannot work. The reward function is looked up but not run."""
    if config.reward == "function" and config.reward_function is None:
        raise UserError(
            "reward is function, but reward_function is not set: set it to a function, such as my_rewards.py:my_reward"
        )
    if config.reward == "trace_state" and tasks and not any(map(list_references, tasks)):
        raise UserError("reward is trace_state, but no task has a reference solution: set reward to rules")
    if config.reward_function is not None:
        check_reward_function(config.reward_function)
    if config.step_rewards is not None:
        if config.step_rewards.by == "value" and config.backend == "simulated" and not holds_state(config):
            raise UserError(
                "step_rewards.by is value, but this simulated world does not hold the state with the value: set step_rewards.by to judge or calls, "
                "or let the world hold the state: backend_settings.knowledge=state"
            )
        check_tasks(config.step_rewards, tasks)


def holds_state(config: EnvironmentConfig) -> bool:
    """Whether a simulated world holds the pack's tables."""
    known: dict[str, Any] = {
        name: config.backend_settings[name] for name in ("knowledge", "stateful") if name in config.backend_settings
    }
    return parse_config(SimulatedSettings, known, where="the simulated back end").holds_state


def make_scorer(config: EnvironmentConfig, pack: Pack, judge: Engine | None, other: Scorer | None) -> Scorer | None:
    """Make the scorer of a pack's episodes; None: only the tasks' rules. `judge`: the engine of the judge's model; `other`: a scorer of
    the caller or the back end, in place of the rules. Raises `UserError` where the reward function cannot be loaded."""
    by_model = judges_outcome_by_model(config)
    steps, named = config.step_rewards, config.reward_function
    turns = steps is not None and steps.by == "judge"
    model: RewardJudge | None = None
    if judge is not None:
        settings = config.oracle.model_copy(update={"steps": True}) if turns else config.oracle
        model = RewardJudge(judge, pack, settings)
    if turns and model is None:
        raise UserError(
            "step_rewards.by is judge, but scorer= replaces the judging model: leave out scorer=, or set step_rewards.by to calls or value"
        )
    outcome = model if model is not None and by_model else other
    if outcome is None and config.reward == "both" and model is not None:
        outcome = RulesAndJudge(pack, model)
    if outcome is None and config.reward == "trace_state":
        outcome = TraceStateScorer(pack, config.trace_state)
    if steps is None and named is None:
        return outcome
    return ComposedScorer(
        pack,
        outcome=outcome,
        judge=model if turns else None,
        judges_outcome=turns and outcome is model,
        unjudged=config.reward == "function",
        function=load_reward_function(named) if named is not None else None,
        steps=steps,
    )
