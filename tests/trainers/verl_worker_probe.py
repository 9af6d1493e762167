"""Runs inside verl's environment: its agent loop worker over simia's agent loop, with a local policy that also fails on purpose.

python verl_worker_probe.py FOLDER URL OUT     FOLDER: what `launch` wrote; URL: an endpoint that plays a simulated world

No Ray and no trainer: rows of the real data set, the worker of verl's current trainer, its replay buffer and its advantages, as JSON.
What verl keeps in its TransferQueue is kept in a dictionary. And each recipe of configs/verl is laid over verl's own
configuration, and checked by verl.
"""

import asyncio
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import torch
import transfer_queue
import yaml
from hydra import compose, initialize_config_dir, initialize_config_module
from omegaconf import OmegaConf
from verl.trainer.config.algorithm import AlgoConfig
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass, validate_config
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn
from verl.workers.rollout.replica import TokenOutput
from verl_probe import Sampler, plain

from simia.search_path import data_root
from simia.trainers.verl.agent_loop import find_context_length
from simia.trainers.verl.worker_state import close_all

STEP = 3
Worker = AgentLoopWorkerTQ.__ray_metadata__.modified_class


class Queue:
    """In place of verl's TransferQueue: tags and fields by partition and key."""

    def __init__(self) -> None:
        self.tags: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        self.rows: dict[str, Any] = {}
        for name in ("async_kv_put", "async_kv_batch_put", "kv_list", "kv_clear"):
            setattr(transfer_queue, name, getattr(self, name))
        transfer_queue.init = lambda *_: None

    async def async_kv_put(self, key: str, partition_id: str, fields: Any = None, tag: Any = None) -> None:
        self.tags[partition_id].setdefault(key, {}).update(tag)

    async def async_kv_batch_put(self, keys: list[str], partition_id: str, fields: Any, tags: list[Any]) -> None:
        for i, (key, tag) in enumerate(zip(keys, tags, strict=True)):
            await self.async_kv_put(key, partition_id, tag=tag)
            self.rows[key] = {name: plain(fields[name][i]) for name in fields.keys()}  # noqa: SIM118 # a tensordict's

    def kv_list(self) -> dict[str, dict[str, dict[str, Any]]]:
        return {name: {key: dict(tag) for key, tag in tags.copy().items()} for name, tags in self.tags.items()}

    def kv_clear(self, keys: list[str], partition_id: str) -> None:
        for key in keys:
            self.tags[partition_id].pop(key, None)


class Client:
    """In place of verl's client of its servers, which raise for a context without room. `faults`: which episode (row and number in
    its group, as `0/2`) → what happens to it."""

    def __init__(self, sampler: Sampler, faults: dict[str, str], room: int | None) -> None:
        self.sampler, self.faults, self.room = sampler, faults, room
        self.said: dict[str, list[Any]] = defaultdict(list)
        self.stops: set[tuple[int, ...]] = set()
        self.at_once = self.most_at_once = 0

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: Any, **more: Any
    ) -> TokenOutput:
        name = "/".join(request_id.split("/")[-2:])
        fault = self.faults.get(name)
        self.stops.add(tuple(sampling_params["stop_token_ids"]))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(0.05)
            if fault == "lost":
                raise ConnectionError("the server has gone")
            if fault == "slow" and self.said[name]:
                self.faults.pop(name)  # once
                self.said[name].clear()
                await asyncio.sleep(600)
            most, temperature = sampling_params["max_tokens"], sampling_params["temperature"]
            if self.room is not None:
                left = self.room - len(prompt_ids)
                if left < 1:
                    raise ValueError(f"Prompt length ({len(prompt_ids)}) leaves no room to generate")
                most = min(most, left)
            ids, logprobs = self.sampler.sample(prompt_ids, most, temperature)
        finally:
            self.at_once -= 1
        self.said[name].append([prompt_ids, ids])
        given = logprobs if sampling_params["logprobs"] else None
        steps = {"min_global_steps": STEP, "max_global_steps": STEP}
        return TokenOutput(token_ids=ids, log_probs=given, stop_reason="completed", extra_fields=steps)


class Rollout:
    """Rows through verl's worker, as its trainer submits them."""

    def __init__(self, config: Any, rows: list[dict[str, Any]], faults: dict[str, str] | None = None) -> None:
        self.queue, self.rows, self.config = Queue(), rows, config
        room = config.actor_rollout_ref.rollout.get("max_model_len")
        self.client = Client(Sampler(config.actor_rollout_ref.model.path), dict(faults or {}), room)
        self.worker = Worker(config, self.client)
        self.submitted: list[str] = []

    async def submit(self, rows: list[dict[str, Any]], *, greedy: bool = False) -> None:
        """A group of each row is under way when this returns."""
        batch = collate_fn(rows)
        uids = [uuid4().hex for _ in rows]
        self.submitted += uids
        batch["uid"] = np.array(uids, dtype=object)
        batch["__do_sample__"] = np.array([not greedy] * len(rows), dtype=object)
        data = tu.get_tensordict(batch)
        tu.assign_non_tensor_data(data, "global_steps", STEP)
        for uid in uids:
            tag = {"is_prompt": True, "status": "pending", "global_steps": STEP}
            await self.queue.async_kv_put(uid, "train", tag=tag)
        await self.worker.generate_sequences(data)

    async def played(self, *, greedy: bool = False) -> dict[str, Any]:
        await self.submit(self.rows, greedy=greedy)
        await asyncio.gather(*self.worker.background_tasks)
        await close_all()
        found = [(key, self.queue.rows[key]) for key in self.queue.tags["train"] if key in self.queue.rows]
        found.sort(key=lambda item: (self.submitted.index(item[1]["uid"]), item[1]["session_id"]))
        advantages = self.advantages([row for _, row in found])
        told = []
        for (_, row), advantage in zip(found, advantages, strict=True):
            place = f"{row['index']}/{row['session_id']}"
            told.append(
                {
                    "place": place,
                    "prompt": row["prompts"],
                    "response": row["responses"],
                    "mask": row["response_mask"],
                    "logprobs": row.get("rollout_log_probs"),
                    "reward": sum(row["rm_scores"]),
                    "advantage": advantage,
                    "tools_kwargs": row["tools_kwargs"],
                    "index": row["index"],
                    "simia": row["extra_fields"]["simia"],
                    **row["extra_fields"]["reward_extra_info"],
                    "said": self.client.said[place],
                }
            )
        statuses = [self.queue.tags["train"][uid]["status"] for uid in self.submitted]
        client = self.client
        return {
            "rows": told,
            "statuses": statuses,
            "most_at_once": client.most_at_once,
            "stops": sorted(client.stops),
        }

    @staticmethod
    def advantages(rows: list[dict[str, Any]]) -> list[float]:
        """verl's own, of each row's tokens."""
        if not rows:
            return []

        def padded(name: str) -> torch.Tensor:
            return torch.nn.utils.rnn.pad_sequence([torch.tensor(row[name]).float() for row in rows], batch_first=True)

        mask = padded("response_mask")
        uids = np.array([row["uid"] for row in rows], dtype=object)
        found, _ = compute_grpo_outcome_advantage(padded("rm_scores"), mask, uids, config=AlgoConfig())
        return (found.sum(1) / mask.sum(1).clamp(min=1)).tolist()

    async def sampled(self) -> dict[str, Any]:
        """What verl's trainer does in a step, told to replace lost groups: it waits for a batch of them in its replay buffer."""
        loop = asyncio.get_running_loop()
        await self.submit(self.rows)

        def refill(number: int) -> None:
            assert len(self.submitted) < 20, "for ever"
            asyncio.run_coroutine_threadsafe(self.submit(self.rows[:1] * number), loop).result()

        buffer = ReplayBuffer(
            "sync", {}, None, "drop", {}, poll_interval=0.1, refill_fn=refill,
            train_batch_size=len(self.rows), gen_batch_size=1, sync_refill_failed_groups=True,
        )  # fmt: skip
        try:
            await asyncio.wait_for(asyncio.to_thread(buffer.sample, STEP, "train", len(self.rows)), 120)
            said = None
        except ValueError as error:
            said = str(error)
        await asyncio.gather(*self.worker.background_tasks)
        await close_all()
        return {"said": said, "groups": len(self.submitted)}


def checked(path: Path) -> dict[str, Any]:
    """A recipe over verl's own configuration: names that verl does not know, and verl's own checks."""
    ours = yaml.safe_load(path.read_text())
    ours.pop("simia")
    base = compose("ppo_trainer")
    known = set(leaves(OmegaConf.to_container(base)))
    unknown = sorted(set(leaves(ours)) - known)
    OmegaConf.set_struct(base, False)
    config = OmegaConf.merge(base, ours)
    validate_config(config, need_reference_policy(config), need_critic(config))
    for section in ("actor_rollout_ref.actor", "actor_rollout_ref.rollout", "algorithm"):
        omega_conf_to_dataclass(OmegaConf.select(config, section))
    return {"unknown": unknown, "reference": need_reference_policy(config), "critic": need_critic(config)}


def leaves(value: Any, at: str = "") -> list[str]:
    if not isinstance(value, dict):
        return [at]
    return [name for key, inner in value.items() for name in leaves(inner, f"{at}.{key}".lstrip("."))]


def settings_of(config: Any, out: str, name: str, change: Any) -> Any:
    """The configuration with an agent loop of other settings."""
    path = config.actor_rollout_ref.rollout.agent.agent_loop_config_path
    (loop,) = yaml.safe_load(Path(path).read_text())
    settings = yaml.safe_load(Path(loop["settings"]).read_text())
    change(settings)
    place = Path(out).with_name(f"agent-{name}.yaml")
    place.write_text(yaml.safe_dump([{**loop, "settings": {**settings, "store": None}}]))
    found = config.copy()
    found.actor_rollout_ref.rollout.agent.agent_loop_config_path = str(place)
    return found


async def all_of(config: Any, rows: list[dict[str, Any]], url: str, out: str) -> dict[str, Any]:
    whole = {f"{rows[2]['index']}/{n}": "lost" for n in range(4)}
    first = rows[0]["index"]
    told: dict[str, Any] = {}
    told["episodes"] = await Rollout(
        config, rows, {f"{first}/2": "lost", f"{rows[1]['index']}/1": "slow", **whole}
    ).played()
    told["survivor"] = await Rollout(config, rows[:1], {f"{first}/{n}": "lost" for n in range(3)}).played()
    losing = settings_of(config, out, "losing", lambda settings: settings["play"].update(lost_groups=3, resample=0))
    told["losing"] = await Rollout(
        losing, rows[:2], {f"{r['index']}/{n}": "lost" for r in rows for n in range(4)}
    ).sampled()
    tight = config.copy()
    shortest = min(len(row["prompt"]) for row in told["episodes"]["rows"])
    tight.actor_rollout_ref.rollout.max_model_len = shortest + 70
    told["tight"] = {**await Rollout(tight, rows[:1]).played(), "room": shortest + 70}
    told["contexts"] = [find_context_length(config), find_context_length(tight)]

    def simulated(settings: dict[str, Any]) -> None:
        settings["stage"] |= {"backend": "simulated", "llm": {"kind": "openai", "base_url": url, "model": "m"}}

    changed = settings_of(config, out, "simulated", simulated)
    told["simulated"] = await Rollout(changed, rows[:1]).played(greedy=True)
    return told


def main(folder: str, url: str, out: str) -> None:
    with initialize_config_module("verl.trainer.config", version_base=None):
        recipes = {path.stem: checked(path) for path in sorted((data_root() / "configs" / "verl").glob("*.yaml"))}
    with initialize_config_dir(folder, version_base=None):
        config = compose("verl", overrides=["hydra.searchpath=[pkg://verl.trainer.config]"])
    OmegaConf.resolve(config)
    config.actor_rollout_ref.rollout.full_determinism = True  # requests are named by their episodes
    dataset = RLHFDataset(config.data.train_files, None, config.data)
    rows = [dataset[i] for i in range(3)]
    for row in rows:
        row["tools_kwargs"] = {"switch": {"create_kwargs": {"n": row["index"]}}}
    told = {"recipes": recipes, **asyncio.run(all_of(config, rows, url, out))}
    notes = [
        json.loads(line) for path in Path(folder, "groups").glob("*.jsonl") for line in path.read_text().splitlines()
    ]
    Path(out).write_text(json.dumps({**told, "notes": notes}, default=lambda value: value.tolist()))


if __name__ == "__main__":
    main(*sys.argv[1:])
