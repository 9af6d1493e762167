"""RAGEN's manager of environments and its proxy, with all episodes of a step at once.

RAGEN's manager steps one environment after another: 128 episodes whose simulator takes a second would take two minutes a round. Here
a batch runs concurrently in the portal's loop, before RAGEN's own bookkeeping reads the results one by one. Of a tag with `at_once`
only that many episodes run; the next begins when one ends. RAGEN's proxy plays a fixed number of rounds; this one plays until all
episodes have ended, and an unfinished one is judged instead of scored 0.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from ragen.llm_agent.agent_proxy import LLMAgentProxy  # type: ignore[import-not-found,unused-ignore]
from ragen.llm_agent.es_manager import EnvStateManager  # type: ignore[import-not-found,unused-ignore]

from simia import event_loop
from simia.errors import Code
from simia.trainers.ragen.env import SeedLane, SimiaEnv
from simia.trainers.ragen.settings import check_ragen_config, count_done_steps
from simia.trainers.ranks import log_aborted

CARRIED = "simia_env"  # key of the environment in an entry of RAGEN's cache, for the context manager


class EnvManager(EnvStateManager):  # type: ignore[misc,unused-ignore]
    """Raises `UserError` for a configuration that would not train what it says."""

    def __init__(self, config: Any, mode: str = "train") -> None:
        check_ragen_config(config)
        super().__init__(config, mode)
        self.steps = count_done_steps(config) if mode == "train" else 0
        """Rollouts so far, those before the checkpoint included: RAGEN's trainer makes one a step."""
        if self.base_seed is not None:
            self.seed_counter = self.steps * self.env_groups

    def _init_env_instances(self, config: Any) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = super()._init_env_instances(config)
        rounds = int(self.sys_config.agent_proxy.max_turn)
        groups: dict[str, dict[int, int]] = {}  # tag → its groups, each with its place among them
        for entry in entries:
            places = groups.setdefault(entry["tag"], {})
            places.setdefault(entry["group_id"], len(places))
        for entry in entries:
            env: SimiaEnv = entry["env"]
            group, places = entry["group_id"], groups[entry["tag"]]
            env.batched = True
            env.member = entry["env_id"] % self.group_size
            env.most_turns = min(rounds, int(entry["max_actions_per_traj"]))
            env.lane = SeedLane(self.base_seed or 0, self.env_groups, group, len(places), places[group])
        return entries

    def reset(self, seed: int | None = None) -> list[dict[str, Any]]:
        """Reset with RAGEN's seeds and begin the first episodes. Returns those that run, which alone go to the policy."""
        rows = super().reset(seed)
        for entry, row in zip(self.envs, rows, strict=True):
            row[CARRIED] = entry["env"]
        self.steps += 1
        return self._begin()

    def step(self, all_env_inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Take a turn in each of these episodes. Returns those that continue, and those that begin in place of ended ones."""
        envs: list[SimiaEnv] = [self.envs[each["env_id"]]["env"] for each in all_env_inputs]
        event_loop.run_together(
            env.answer(each["llm_raw_response"], each.get("ids"))
            for env, each in zip(envs, all_env_inputs, strict=True)
        )
        for env, each in zip(envs, all_env_inputs, strict=True):
            said = next((m for m in reversed(env.playing.messages) if m.role == "assistant"), None)
            if said is not None and any(call.arguments is None for call in said.calls):
                self.rollout_cache[each["env_id"]]["penalty"] += self.sys_config.es_manager.format_penalty
        running: list[dict[str, Any]] = super().step(all_env_inputs)
        return running + self._begin()

    def get_rollout_states(self) -> list[dict[str, Any]]:
        """Return all episodes, ended and judged. `metrics` are facts of each ending in place of RAGEN's averages over turns."""
        event_loop.run_together(entry["env"].abort_unstarted() for entry in self.envs if entry["env"].waiting)
        event_loop.run_together(entry["env"].cut(Code.MAX_TURNS) for entry in self.envs if not entry["env"].done)
        for entry in self.envs:
            status = entry["status"]
            status.terminated, status.truncated = True, not entry["env"].info["success"]
        states: list[dict[str, Any]] = super().get_rollout_states()
        for entry, state in zip(self.envs, states, strict=True):
            state["metrics"].update({f"{entry['tag']}/{name}": value for name, value in entry["env"].info.items()})
        return states

    def _begin(self) -> list[dict[str, Any]]:
        """Begin as many episodes as `at_once` allows, more where some end at their beginning. Returns those that run."""
        found: list[dict[str, Any]] = []
        while fresh := self._list_startable():
            event_loop.run_together(entry["env"].start() for entry in fresh)
            for entry in fresh:
                row = self.rollout_cache[entry["env_id"]]
                row["history"][-1]["state"] = entry["env"].render()
                if not entry["env"].done:
                    found.append(row)
        return found

    def _list_startable(self) -> list[dict[str, Any]]:
        """Return the waiting episodes that their tags' `at_once` allows to begin."""
        under_way = Counter(e["tag"] for e in self.envs if not e["env"].waiting and not e["env"].done)
        found = []
        for entry in self.envs:
            most = entry["config"].at_once
            if entry["env"].waiting and (most is None or under_way[entry["tag"]] < most):
                under_way[entry["tag"]] += 1
                found.append(entry)
        return found


class Proxy(LLMAgentProxy):  # type: ignore[misc,unused-ignore]
    """Raises `UserError` for a configuration that is refused, and for a step that would train nothing."""

    def rollout(self, dataproto: Any, val: bool = False) -> Any:
        """Play a step's episodes to their ends.

        Where none of them has a reward the optimizer would still move by its momentum and the schedule by a step, so `log_aborted` ends
        the training, to be restarted from the last checkpoint. No empty batch is sent: it would stop the engine.
        """
        manager = self.val_es_manager if val else self.train_es_manager
        context = self.val_ctx_manager if val else self.train_ctx_manager
        running = manager.reset()
        while running:
            said: list[dict[str, Any]] = []
            if speaking := context.opened(running):
                asked = context.get_lm_inputs(speaking, prepare_for_update=False)
                asked.meta_info = dataproto.meta_info
                said = context.get_env_inputs(self.generate_sequences(asked))
            running = manager.step(said)
        states = manager.get_rollout_states()
        log_aborted([entry["env"].playing for entry in manager.envs], manager.steps, learns=not val)
        return context.formulate_rollouts(states)
