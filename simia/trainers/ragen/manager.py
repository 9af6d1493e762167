"""RAGEN's manager of environments, with all of them at once.

The stock one steps one environment after another: 128 episodes whose simulator takes a second would take two minutes a round. Here
the whole batch goes through simia's loop together, before RAGEN's own bookkeeping picks up the results one by one. An episode that
is still open in the last round is judged in it; RAGEN would give it 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from ragen.llm_agent.es_manager import EnvStateManager  # type: ignore[import-not-found,unused-ignore]

from simia import sync
from simia.errors import Code
from simia.trainers.ragen.checks import check
from simia.trainers.ragen.env import SimiaEnv

CARRIED = "simia_env"  # where an entry of RAGEN's cache holds its environment, for the context manager


class EnvManager(EnvStateManager):  # type: ignore[misc,unused-ignore]
    """Raises `UserError` for a configuration that would not train what it says."""

    def __init__(self, config: Any, mode: str = "train") -> None:
        check(config)
        super().__init__(config, mode)

    def _init_env_instances(self, config: Any) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = super()._init_env_instances(config)
        rounds = int(self.sys_config.agent_proxy.max_turn)
        for entry in entries:
            env: SimiaEnv = entry["env"]
            env.batched = True
            env.member = entry["env_id"] % self.group_size
            env.most_turns = min(rounds, int(entry["max_actions_per_traj"]))
        return entries

    def reset(self, seed: int | None = None) -> list[dict[str, Any]]:
        """RAGEN's seeds; all episodes begin at once. Only those that run go to the policy."""
        rows = super().reset(seed)
        for entry, row in zip(self.envs, rows, strict=True):
            row[CARRIED] = entry["env"]
        return [row for row in rows if not row[CARRIED].done]

    def step(self, all_env_inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """A response of each. Returns those that go on."""
        together(
            self.envs[each["env_id"]]["env"].answer(each["llm_raw_response"], each.get("ids"))
            for each in all_env_inputs
        )
        for each in all_env_inputs:
            env: SimiaEnv = self.envs[each["env_id"]]["env"]
            said = next((m for m in reversed(env.playing.messages) if m.role == "assistant"), None)
            if said is not None and any(call.arguments is None for call in said.calls):
                self.rollout_cache[each["env_id"]]["penalty"] += self.sys_config.es_manager.format_penalty
        running: list[dict[str, Any]] = super().step(all_env_inputs)
        return running

    def get_rollout_states(self) -> list[dict[str, Any]]:
        """All episodes, over and judged. `metrics` are how each ended, not RAGEN's averages over turns."""
        running = [entry for entry in self.envs if not entry["env"].done]
        together(entry["env"].cut(Code.MAX_TURNS) for entry in running)
        for entry in self.envs:
            info, status = entry["env"].info, entry["status"]
            status.terminated, status.truncated = True, not info["success"]
        states: list[dict[str, Any]] = super().get_rollout_states()
        for entry, state in zip(self.envs, states, strict=True):
            state["metrics"].update({f"{entry['tag']}/{name}": value for name, value in entry["env"].info.items()})
        return states


def together(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All at once in simia's loop. What one raises is raised when all are over."""

    async def gathered() -> None:
        for done in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(done, BaseException):
                raise done

    sync.run(gathered())
