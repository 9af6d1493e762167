"""RAGEN's manager of environments, with all of them at once, or as many as may be.

The stock one steps one environment after another: 128 episodes whose simulator takes a second would take two minutes a round. Here
the whole batch goes through simia's loop together, before RAGEN's own bookkeeping picks up the results one by one. Of a tag with
`at_once` the first so many episodes begin, and the next when one of them is over. An episode that is still open in the last round is
judged in it; RAGEN would give it 0.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from ragen.llm_agent.es_manager import EnvStateManager  # type: ignore[import-not-found,unused-ignore]

from simia import event_loop
from simia.errors import Code
from simia.trainers.ragen.checks import check_ragen_config
from simia.trainers.ragen.env import SeedLane, SimiaEnv
from simia.trainers.ragen.resume import count_done_steps

CARRIED = "simia_env"  # where an entry of RAGEN's cache holds its environment, for the context manager


class EnvManager(EnvStateManager):  # type: ignore[misc,unused-ignore]
    """Raises `UserError` for a configuration that would not train what it says."""

    def __init__(self, config: Any, mode: str = "train") -> None:
        check_ragen_config(config)
        super().__init__(config, mode)
        self.steps = count_done_steps(config) if mode == "train" else 0
        """Rollouts so far, those before the checkpoint with them: RAGEN's trainer makes one a step."""
        if self.base_seed is not None:
            self.seed_counter = self.steps * self.env_groups

    def _init_env_instances(self, config: Any) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = super()._init_env_instances(config)
        rounds = int(self.sys_config.agent_proxy.max_turn)
        groups: dict[str, list[int]] = {}
        for entry in entries:
            its = groups.setdefault(entry["tag"], [])
            its += [entry["group_id"]] * (entry["group_id"] not in its)
        for entry in entries:
            env: SimiaEnv = entry["env"]
            group, its = entry["group_id"], groups[entry["tag"]]
            env.batched = True
            env.member = entry["env_id"] % self.group_size
            env.most_turns = min(rounds, int(entry["max_actions_per_traj"]))
            env.lane = SeedLane(self.base_seed or 0, self.env_groups, group, len(its), its.index(group))
        return entries

    def reset(self, seed: int | None = None) -> list[dict[str, Any]]:
        """RAGEN's seeds; the first episodes begin at once. Only those that run go to the policy."""
        rows = super().reset(seed)
        for entry, row in zip(self.envs, rows, strict=True):
            row[CARRIED] = entry["env"]
        self.steps += 1
        return self._begun()

    def step(self, all_env_inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """A response of each. Returns those that go on, and those that begin in place of what is over."""
        event_loop.run_together(
            self.envs[each["env_id"]]["env"].answer(each["llm_raw_response"], each.get("ids"))
            for each in all_env_inputs
        )
        for each in all_env_inputs:
            env: SimiaEnv = self.envs[each["env_id"]]["env"]
            said = next((m for m in reversed(env.playing.messages) if m.role == "assistant"), None)
            if said is not None and any(call.arguments is None for call in said.calls):
                self.rollout_cache[each["env_id"]]["penalty"] += self.sys_config.es_manager.format_penalty
        running: list[dict[str, Any]] = super().step(all_env_inputs)
        return running + self._begun()

    def get_rollout_states(self) -> list[dict[str, Any]]:
        """All episodes, over and judged. `metrics` are how each ended, not RAGEN's averages over turns."""
        event_loop.run_together(entry["env"].abort_unstarted() for entry in self.envs if entry["env"].waiting)
        event_loop.run_together(entry["env"].cut(Code.MAX_TURNS) for entry in self.envs if not entry["env"].done)
        for entry in self.envs:
            info, status = entry["env"].info, entry["status"]
            status.terminated, status.truncated = True, not info["success"]
        states: list[dict[str, Any]] = super().get_rollout_states()
        for entry, state in zip(self.envs, states, strict=True):
            state["metrics"].update({f"{entry['tag']}/{name}": value for name, value in entry["env"].info.items()})
        return states

    def _begun(self) -> list[dict[str, Any]]:
        """As many episodes begin as there is room for; again, where some are over at once. Returns those that run."""
        found: list[dict[str, Any]] = []
        while fresh := self._next():
            event_loop.run_together(entry["env"].start() for entry in fresh)
            for entry in fresh:
                row = self.rollout_cache[entry["env_id"]]
                row["history"][-1]["state"] = entry["env"].render()
                found += [row] * (not entry["env"].done)
        return found

    def _next(self) -> list[dict[str, Any]]:
        """Those of which their tags may begin another."""
        under_way = Counter(e["tag"] for e in self.envs if not e["env"].waiting and not e["env"].done)
        found = []
        for entry in self.envs:
            most = entry["config"].at_once
            if entry["env"].waiting and (most is None or under_way[entry["tag"]] < most):
                under_way[entry["tag"]] += 1
                found.append(entry)
        return found
