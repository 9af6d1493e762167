"""Runs inside an environment with torch: simia's context for RAGEN makes the tensors of a step, over stand-ins of RAGEN and its containers.

python turn_scores_probe.py OUT.json

Three episodes of a group: three turns with rewards of their own and an outcome of 1; one turn and a penalty; one that was aborted.
"""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

SAMPLED = [[10, 11, 12], [13, 14], [15]]  # ids of the first episode's turns; 20 to 29 are the environment's


class Attributes(dict[str, Any]):
    def __getattr__(self, name: str) -> Any:
        return self[name]


class Tensors(dict[str, Any]):
    def __init__(self, values: dict[str, Any], batch_size: int) -> None:
        super().__init__(values)


class Data:
    batch: Any
    non_tensor_batch: Any
    meta_info: Any


def add_module(name: str, **values: Any) -> None:
    module = ModuleType(name)
    module.__dict__.update(values)
    module.__file__ = __file__
    sys.modules[name] = module


add_module("ragen")
add_module("ragen.env", REGISTERED_ENVS={}, REGISTERED_ENV_CONFIGS={})
add_module("ragen.llm_agent")
add_module("ragen.llm_agent.es_manager", EnvStateManager=object)
add_module("ragen.llm_agent.agent_proxy", LLMAgentProxy=object)
add_module("ragen.llm_agent.ctx_manager", ContextManager=object)
add_module("tensordict", TensorDict=Tensors)
add_module("verl", DataProto=Data)

from simia.trainers.ragen.context import Context  # noqa: E402
from simia.trainers.ragen.rollout import CARRIED  # noqa: E402


def episode(completion: list[int], mask: list[int], ends: list[int], reward: float | None, steps: list[float]) -> Any:
    row = SimpleNamespace(prompt_ids=[1, 2], completion_ids=completion, mask=mask, turn_ends=ends)
    return SimpleNamespace(row=row, reward=reward, steps=steps)


def make_step(mode: str, method: str, turn_scores: bool) -> dict[str, Any]:
    first, second, third = SAMPLED
    episodes = [
        episode([*first, 20, 21, *second, 22, *third], [1, 1, 1, 0, 0, 1, 1, 0, 1], [2, 6, 8], 1.0, [0.25, 0.25, 0.0]),
        episode([16, 17], [1, 1], [1], 0.0, [0.5]),
        episode([18], [1], [0], None, []),
    ]
    context: Any = object.__new__(Context)
    normalization = Attributes(method=method)
    proxy = Attributes(use_turn_scores=turn_scores, reward_normalization=normalization)
    context.pad, context.mode, context.config = 0, mode, Attributes(agent_proxy=proxy)
    rows = [
        {CARRIED: each, "group_id": 0, "env_id": number, "penalty": -0.1 * (number == 1), "metrics": {}}
        for number, each in enumerate(episodes)
    ]
    batch = context.formulate_rollouts(rows).batch
    return {name: batch[name].tolist() for name in ("input_ids", "loss_mask", "rm_scores", "original_rm_scores")}


told = {
    "turns": make_step("train", "identity", True),
    "sums": make_step("train", "mean_std", False),
    "validation": make_step("val", "identity", True),
}
Path(sys.argv[1]).write_text(json.dumps(told))
