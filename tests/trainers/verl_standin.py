"""A stand-in of what simia's agent loop imports, where verl is not installed: the names, and the part of `AgentLoopOutput` that says where a
reward goes, in our words. `test_verl_trainer.py` is on verl itself."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel


class AgentLoopMetrics(BaseModel):
    generate_sequences: float = 0.0
    tool_calls: float = 0.0
    num_preempted: int = -1


class AgentLoopOutput(BaseModel):
    prompt_ids: list[int]
    response_ids: list[int]
    response_mask: list[int]
    response_logprobs: list[float] | None = None
    routed_experts: Any = None
    reward_score: float | None = None
    num_turns: int = 0
    metrics: AgentLoopMetrics
    extra_fields: dict[str, Any] = {}

    def as_dict(self) -> dict[str, Any]:
        """What was set, with the reward on the last id in place of `reward_score`."""
        found = self.model_dump(exclude_unset=True)
        reward = found.pop("reward_score", None)
        if reward is not None:
            found["rm_scores"] = [0.0] * (len(self.response_mask) - 1) + [reward]
        return found


class AgentLoopBase: ...


def install(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return simia's agent loop as a module over the stand-in."""
    modules: dict[str, dict[str, Any]] = {
        "transfer_queue": {},
        "omegaconf": {"OmegaConf": None},
        "verl": {},
        "verl.experimental": {},
        "verl.experimental.agent_loop": {},
        "verl.experimental.agent_loop.agent_loop": {
            "AgentLoopBase": AgentLoopBase,
            "AgentLoopMetrics": AgentLoopMetrics,
            "AgentLoopOutput": AgentLoopOutput,
        },
        "verl.utils": {},
        "verl.utils.config": {"omega_conf_to_dataclass": None},
    }
    for name, values in modules.items():
        module = ModuleType(name)
        module.__dict__.update(values)
        monkeypatch.setitem(sys.modules, name, module)
    name = "simia.trainers.verl.agent_loop"
    monkeypatch.delitem(sys.modules, name, raising=False)
    agent_loop = importlib.import_module(name)  # also where the package still holds one of another test
    monkeypatch.delitem(sys.modules, name)
    return agent_loop
