"""RAGEN's manager of environments and its proxy, with all episodes of a step at once.

RAGEN's manager steps one environment after another: with 128 episodes and a simulator that takes a second, a round takes two minutes. Here
they run concurrently in the portal's loop, each on its own schedule, and RAGEN's own bookkeeping reads the results of those that are
ready. With `at_once`, a tag runs at most that many episodes; the next begins when one ends. RAGEN's proxy plays a fixed number of rounds and
gives unfinished episodes the score 0; this one plays until all episodes have ended, and scores truncated ones.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from ragen.llm_agent.agent_proxy import LLMAgentProxy  # type: ignore[import-not-found,unused-ignore]
from ragen.llm_agent.es_manager import EnvStateManager  # type: ignore[import-not-found,unused-ignore]

from simia import event_loop
from simia.errors import Code
from simia.garbage_collection import raised_thresholds
from simia.trainers.ragen.env import SeedLane, SimiaEnv
from simia.trainers.ragen.episode_keeping import RolloutKeeper
from simia.trainers.ragen.settings import check_ragen_config, count_done_steps
from simia.trainers.ranks import log_aborted
from simia.trainers.turn_schedule import TurnSchedule

CARRIED = "simia_env"  # key of the environment in an entry of RAGEN's cache, for the context manager


class EnvManager(EnvStateManager):  # type: ignore[misc,unused-ignore]
    """Raises `UserError` for a configuration that would silently train something else."""

    def __init__(self, config: Any, mode: str = "train") -> None:
        check_ragen_config(config)
        super().__init__(config, mode)
        self._schedule = TurnSchedule[int]()
        self._begun: set[int] = set()  # numbers of the episodes that have begun
        self._said: dict[int, dict[str, Any]] = {}  # by episode: the policy's turn under way
        self.steps = count_done_steps(config) if mode == "train" else 0
        """Number of rollouts so far, including those before the checkpoint; RAGEN's trainer makes one per step."""
        if self.base_seed is not None:
            self.seed_counter = self.steps * self.env_groups

    def _init_env_instances(self, config: Any) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = super()._init_env_instances(config)
        rounds = int(self.sys_config.agent_proxy.max_turn)
        groups: dict[str, dict[int, int]] = {}  # tag → its groups, each with its index among them
        for entry in entries:
            places = groups.setdefault(entry["tag"], {})
            places.setdefault(entry["group_id"], len(places))
        for entry in entries:
            env: SimiaEnv = entry["env"]
            group, places = entry["group_id"], groups[entry["tag"]]
            env.set_mode(self.mode)
            _ = env.lease  # opened now, so that mistakes are reported before the first step
            env.batched = True
            env.member = entry["env_id"] % self.group_size
            env.most_turns = min(rounds, int(entry["max_actions_per_traj"]))
            env.lane = SeedLane(self.base_seed or 0, self.env_groups, group, len(places), places[group])
        return entries

    def reset(self, seed: int | None = None) -> list[dict[str, Any]]:
        """Reset with RAGEN's seeds and begin the first episodes. Returns only the running ones, for the policy."""
        self._prepare(seed)
        return self._collect_all()

    def step(self, all_env_inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Take a turn in each of these episodes. Returns those that continue and those that begin after others have ended."""
        self._start_turns(all_env_inputs)
        return self._collect_all()

    def begin(self) -> list[dict[str, Any]]:
        """Reset as `reset` does, and return the first episodes that are ready for the policy."""
        self._prepare(None)
        return self._collect()

    def advance(self, all_env_inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Start a turn in each of these episodes. Returns the episodes that are ready for their next turn, which may be others; empty
        when all have ended."""
        self._start_turns(all_env_inputs)
        return self._collect()

    def _prepare(self, seed: int | None) -> None:
        self._schedule.close()  # left from a cancelled rollout
        rows = super().reset(seed)
        for entry, row in zip(self.envs, rows, strict=True):
            row[CARRIED] = entry["env"]
        self.steps += 1
        self._begun, self._said = set(), {}

    def _start_turns(self, all_env_inputs: list[dict[str, Any]]) -> None:
        for each in all_env_inputs:
            env_id = each["env_id"]
            self._said[env_id] = each
            env: SimiaEnv = self.envs[env_id]["env"]
            self._schedule.start(env_id, env.answer(each["llm_raw_response"], each.get("ids")))

    def _collect_all(self) -> list[dict[str, Any]]:
        found = self._collect()
        while self._schedule:
            found += self._collect()
        return sorted(found, key=lambda row: int(row["env_id"]))

    def _collect(self) -> list[dict[str, Any]]:
        """Wait until episodes are ready for the policy, beginning others in place of ended ones."""
        found: list[dict[str, Any]] = []
        while not found:
            for env_id in self._list_startable():
                self._begun.add(env_id)
                self._schedule.start(env_id, self.envs[env_id]["env"].start())
            ready = self._schedule.collect()
            if not ready:
                break
            answered = [self._said.pop(env_id) for env_id in sorted(ready) if env_id in self._said]
            began = sorted(ready.keys() - {each["env_id"] for each in answered})
            for each in answered:
                self._punish_malformed_calls(each["env_id"])
            if answered:
                found += super().step(answered)
            for env_id in began:
                row = self.rollout_cache[env_id]
                row["history"][-1]["state"] = self.envs[env_id]["env"].render()
                if not self.envs[env_id]["env"].done:
                    found.append(row)
        return found

    def _punish_malformed_calls(self, env_id: int) -> None:
        """Subtract RAGEN's `format_penalty` for a turn with a malformed call."""
        said = next((m for m in reversed(self.envs[env_id]["env"].playing.messages) if m.role == "assistant"), None)
        if said is not None and any(call.arguments is None for call in said.calls):
            self.rollout_cache[env_id]["penalty"] += self.sys_config.es_manager.format_penalty

    def get_rollout_states(self) -> list[dict[str, Any]]:
        """Return all episodes, ended and scored. `metrics` holds facts about each ending, in place of RAGEN's averages over turns."""
        while self._schedule:
            self._schedule.collect()
        event_loop.run_together(entry["env"].abort_unstarted() for entry in self.envs if entry["env"].waiting)
        event_loop.run_together(entry["env"].cut(Code.MAX_TURNS) for entry in self.envs if not entry["env"].done)
        for entry in self.envs:
            status = entry["status"]
            status.terminated, status.truncated = True, not entry["env"].info["success"]
        states: list[dict[str, Any]] = super().get_rollout_states()
        for entry, state in zip(self.envs, states, strict=True):
            state["metrics"].update({f"{entry['tag']}/{name}": value for name, value in entry["env"].info.items()})
        return states

    def close(self) -> None:
        self._schedule.close()
        super().close()

    def _list_startable(self) -> list[int]:
        """Return the numbers of the waiting episodes that may begin under their tags' `at_once`."""
        under_way = Counter(
            self.envs[env_id]["tag"]
            for env_id in self._begun
            if env_id in self._schedule or not self.envs[env_id]["env"].done
        )
        found = []
        for entry in self.envs:
            most = entry["config"].at_once
            waits = entry["env_id"] not in self._begun and entry["env"].waiting
            if waits and (most is None or under_way[entry["tag"]] < most):
                under_way[entry["tag"]] += 1
                found.append(entry["env_id"])
        return found


class Proxy(LLMAgentProxy):  # type: ignore[misc,unused-ignore]
    """Raises `UserError` for a configuration that is refused, and for a step that would train nothing."""

    _keeper: RolloutKeeper | None = None

    def rollout(self, dataproto: Any, val: bool = False) -> Any:
        """Play a step's episodes to their ends.

        If no episode has a reward, `log_aborted` ends the training, which can resume from the last checkpoint: otherwise the optimizer's
        momentum and the schedule would still make a step. An empty batch is never sent, since it would stop the engine.
        """
        manager = self.val_es_manager if val else self.train_es_manager
        context = self.val_ctx_manager if val else self.train_ctx_manager
        with raised_thresholds():
            running = manager.begin()
            while running:
                said: list[dict[str, Any]] = []
                if speaking := context.opened(running):
                    asked = context.get_lm_inputs(speaking, prepare_for_update=False)
                    asked.meta_info = dataproto.meta_info
                    said = context.get_env_inputs(self.generate_sequences(asked))
                running = manager.advance(said)
            states = manager.get_rollout_states()
        self._keep(manager, val)
        log_aborted([entry["env"].playing for entry in manager.envs], manager.steps, learns=not val)
        return context.formulate_rollouts(states)

    def _keep(self, manager: EnvManager, validates: bool) -> None:
        """Write the episodes to the training's run."""
        if self._keeper is None:
            self._keeper = RolloutKeeper(manager.sys_config)
        envs = [entry["env"] for entry in manager.envs]
        self._keeper.keep(envs, self.train_es_manager.steps, validates=validates)
