"""Runs inside verl's environment: its agent loop worker over simia's agent loop, with a local policy that also fails on purpose.

python verl_worker_probe.py FOLDER URL OUT     FOLDER: what `launch` wrote; URL: an endpoint that plays a simulated world

No Ray and no trainer: rows of the real data set, verl's AgentLoopWorker, verl's own advantages, as JSON. And each recipe of
configs/verl is laid over verl's own configuration, and checked by verl.
"""

import asyncio
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from hydra import compose, initialize_config_dir, initialize_config_module
from hydra.utils import instantiate
from omegaconf import OmegaConf
from verl import DataProto
from verl.experimental.agent_loop import agent_loop as verl_loop
from verl.trainer.config.algorithm import AlgoConfig
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn
from verl.workers.rollout.replica import TokenOutput
from verl_probe import Sampler

from simia.resources import data_root
from simia.trainers.verl.stages import close_all

KEEPS = ("uid", "index", "tools_kwargs", "success", "truncated", "aborted", "attempts", "simia", "__num_turns__")


class Client:
    """In place of verl's client of its servers. Episodes are numbered as they begin, from 0; `faults`: number → what happens."""

    def __init__(self, sampler: Sampler, faults: dict[int, str]) -> None:
        self.sampler, self.faults = sampler, faults
        self.requests: dict[str, int] = {}
        self.said: dict[int, list[Any]] = defaultdict(list)
        self.at_once = self.most_at_once = 0

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: Any, **more: Any
    ) -> TokenOutput:
        number = self.requests.setdefault(request_id, len(self.requests))
        fault, turn = self.faults.get(number), len(self.said[number])
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(0.05)
            if fault == "lost":
                raise ConnectionError("the server has gone")
            if fault == "slow" and turn:
                await asyncio.sleep(600)
            most, temperature = sampling_params["max_tokens"], sampling_params["temperature"]
            ids, logprobs = self.sampler.sample(prompt_ids, most, temperature)
        finally:
            self.at_once -= 1
        self.said[number].append([prompt_ids, ids])
        given = logprobs if sampling_params["logprobs"] else None
        return TokenOutput(
            token_ids=ids, log_probs=given, stop_reason="completed", extra_fields={"min_global_steps": 3}
        )


async def rolled(
    config: Any, rows: list[dict[str, Any]], n: int, faults: dict[int, str], *, greedy: bool = False
) -> Any:
    """One batch through verl's worker: n episodes of each row, as verl repeats them."""
    client = Client(Sampler(config.actor_rollout_ref.model.path), faults)
    worker = verl_loop.AgentLoopWorker(config, client)
    data = collate_fn(rows)
    data["uid"] = np.array([f"u{i}" for i in range(len(rows))], dtype=object)
    batch = DataProto.from_single_dict(data).repeat(n, interleave=True)
    batch.meta_info |= {"global_steps": 3, "validate": greedy}
    out = await worker.generate_sequences(batch)
    await close_all()
    tensors, plain = out.batch, out.non_tensor_batch
    advantages, _ = compute_grpo_outcome_advantage(
        tensors["rm_scores"].clone(), tensors["response_mask"].float(), plain["uid"], config=AlgoConfig()
    )
    shape, seen = tensors["response_mask"].shape, tensors["attention_mask"]
    told = []
    for i in range(len(batch)):
        real = int(seen[i, -shape[1] :].sum())
        told.append(
            {
                "prompt": tensors["prompts"][i][seen[i, : -shape[1]].bool()].tolist(),
                "response": tensors["responses"][i][:real].tolist(),
                "mask": tensors["response_mask"][i][:real].tolist(),
                "masked_beyond": int(tensors["response_mask"][i][real:].sum()),
                "logprobs": tensors["rollout_log_probs"][i][:real].tolist() if "rollout_log_probs" in tensors else None,
                "reward": float(tensors["rm_scores"][i].sum()),
                "advantage": float(advantages[i].sum() / max(1, int(tensors["response_mask"][i].sum()))),
                **{key: plain[key][i] for key in KEEPS},
            }
        )
    said = [client.said.get(number, []) for number in range(len(client.requests))]
    return {"rows": told, "said": said, "most_at_once": client.most_at_once, "width": list(tensors["prompts"].shape)}


async def sessions(config: Any, row: dict[str, Any], faults: dict[int, str]) -> list[Any]:
    """Two episodes of a group as verl's current trainer plays them: it says which of the group each is, and takes lists."""
    client = Client(Sampler(config.actor_rollout_ref.model.path), faults)
    worker = verl_loop.AgentLoopWorker(config, client)
    params = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}

    async def one(number: int) -> Any:
        loop = instantiate(
            verl_loop._agent_loop_registry["simia"],
            trainer_config=verl_loop.DictConfigWrap(config),
            server_manager=client,
            tokenizer=worker.tokenizer,
            processor=None,
            dataset_cls=worker.dataset_cls,
            data_config=verl_loop.DictConfigWrap(config.data),
            tools=None,
        )
        return await loop.run(dict(params), session_id=number, uid="u", global_steps=7, **row)

    found = await asyncio.gather(one(0), one(1), return_exceptions=True)
    await close_all()
    return [
        out if out == [] else repr(out) if isinstance(out, Exception) else out.extra_fields["simia"] for out in found
    ]


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


def main(folder: str, url: str, out: str) -> None:
    with initialize_config_module("verl.trainer.config", version_base=None):
        recipes = {path.stem: checked(path) for path in sorted((data_root() / "configs" / "verl").glob("*.yaml"))}
    with initialize_config_dir(folder, version_base=None):
        config = compose("verl", overrides=["hydra.searchpath=[pkg://verl.trainer.config]"])
    OmegaConf.resolve(config)
    dataset = RLHFDataset(config.data.train_files, None, config.data)
    rows = [dataset[i] for i in range(3)]
    for row in rows:
        row["tools_kwargs"] = {"switch": {"create_kwargs": {"n": row["index"]}}}
    faults = {2: "lost", 5: "slow", **dict.fromkeys(range(8, 12), "lost")}
    told = {"recipes": recipes, "episodes": asyncio.run(rolled(config, rows, 4, faults))}
    for name, faulty in {"one_lost": {0: "lost"}, "all_lost": {0: "lost", 1: "lost"}}.items():
        told[name] = asyncio.run(sessions(config, rows[0], faulty))
    loop = yaml.safe_load(Path(config.actor_rollout_ref.rollout.agent.agent_loop_config_path).read_text())
    settings = yaml.safe_load(Path(loop[0]["settings"]).read_text())
    model = {"kind": "openai", "base_url": url, "model": "m"}
    settings["stage"] |= {"backend": "simulated", "llm": model}
    simulated = Path(out).with_name("agent-simulated.yaml")
    simulated.write_text(yaml.safe_dump([{**loop[0], "settings": {**settings, "store": None}}]))
    config.actor_rollout_ref.rollout.agent.agent_loop_config_path = str(simulated)
    told["simulated"] = asyncio.run(rolled(config, rows[:1], 4, {}, greedy=True))
    Path(out).write_text(json.dumps(told, default=lambda value: value.tolist()))


if __name__ == "__main__":
    main(*sys.argv[1:])
