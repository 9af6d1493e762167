"""What verl's own trainer needs on a machine without a GPU, by verl's own extension points, and an account of what it trains on.

verl imports this module in each of its processes (VERL_USE_EXTERNAL_MODULES=verl_probe). It brings a platform (gloo, CPU), a rollout
engine named `tiny` (transformers' `generate` in an actor that gets the trainer's weights after each step), and writes down
what the engine was asked and gave, and each batch when verl puts its advantages away. Nothing of the trainer or of the
agent loop is replaced. TOLD names the folder; LOSE the episodes of a worker (from 1) that lose their world.
"""

import asyncio
import contextlib
import itertools
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

TOLD = Path(os.environ.get("TOLD", "."))


class Sampler:
    """The policy: one request at a time, with the log-probability of each id under the distribution that it was drawn from."""

    def __init__(self, path: str) -> None:
        from transformers import AutoModelForCausalLM

        torch.manual_seed(0)
        self.model = AutoModelForCausalLM.from_pretrained(path).eval()
        self.end = self.model.config.eos_token_id

    @torch.no_grad()
    def sample(self, prompt: list[int], most: int, temperature: float) -> tuple[list[int], list[float]]:
        ids, logprobs, given, cache = [], [], torch.tensor([prompt]), None
        while len(ids) < most and (not ids or ids[-1] != self.end):
            out = self.model(input_ids=given, past_key_values=cache, use_cache=True)
            cache, scores = out.past_key_values, (out.logits[0, -1] / (temperature or 1.0)).log_softmax(-1)
            token = int(scores.exp().multinomial(1)) if temperature else int(scores.argmax())
            ids.append(token)
            logprobs.append(float(scores[token]))
            given = torch.tensor([[token]])
        return ids, logprobs


class Server:
    """verl's model server, as an actor: token ids in, token ids out."""

    def __init__(self, path: str) -> None:
        self.sampler, self.steps, self.turn = Sampler(path), 0, asyncio.Lock()

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: Any, **_: Any) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        most, temperature = sampling_params["max_tokens"], sampling_params["temperature"]
        async with self.turn:
            ids, logprobs = await asyncio.to_thread(self.sampler.sample, prompt_ids, most, temperature)
        line = {"request": request_id, "step": self.steps, "prompt": prompt_ids, "ids": ids, "logprobs": logprobs}
        with (TOLD / "server.jsonl").open("a") as out:
            out.write(json.dumps(line) + "\n")
        return TokenOutput(
            token_ids=ids, log_probs=logprobs, stop_reason="completed", extra_fields={"global_steps": self.steps}
        )

    async def load(self, weights: dict[str, torch.Tensor], steps: int | None) -> None:
        self.sampler.model.load_state_dict(weights, strict=False)
        self.steps = steps if steps is not None else self.steps

    async def nothing(self, **_: Any) -> None:
        """Memory that would be freed on a GPU."""

    wake_up = sleep = clear_kv_cache = resume_generation = abort_all_requests = nothing


def extend() -> None:
    """What verl calls a plug-in: a platform, an engine, and a place to look at what is trained."""
    import ray
    import transfer_queue as tq
    from verl.plugin.platform.platform_base import PlatformBase
    from verl.plugin.platform.platform_manager import PlatformRegistry
    from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout
    from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry

    @PlatformRegistry.register(platform="cpu")
    class CPU(PlatformBase):
        """Ray is told of a GPU that is none, for verl places its workers by it."""

        device_name = vendor_name = "cpu"
        device_module = SimpleNamespace(
            is_available=lambda: False,
            device_count=lambda: 1,
            get_device_name=lambda: "CPU",
            mem_get_info=lambda: (0, 1),
            get_rng_state=torch.get_rng_state,
            set_rng_state=torch.set_rng_state,
            **dict.fromkeys(("set_device", "synchronize", "empty_cache", "ipc_collect"), lambda *_: None),
            **dict.fromkeys(("memory_allocated", "memory_reserved"), lambda: 0),
            **dict.fromkeys(("max_memory_allocated", "max_memory_reserved"), lambda: 0),
        )

        def is_available(self) -> bool:
            return True

        def current_device(self) -> Any:
            return torch.device("cpu")

        def device_count(self) -> int:
            return 1

        def communication_backend_name(self) -> str:
            return "gloo"

        def visible_devices_envvar(self) -> str:
            return "CUDA_VISIBLE_DEVICES"

        def ray_resource_name(self) -> str:
            return "GPU"

        def ray_noset_envvars(self) -> list[str]:
            return []

        def is_ipc_supported(self) -> bool:
            return False

        def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
            return None, None

        def manual_seed(self, seed: int) -> None:
            torch.manual_seed(seed)

        def nvtx_range(self, msg: str) -> Any:
            return contextlib.nullcontext()

        def nothing(self, *_: Any) -> None:
            return None

        manual_seed_all = manual_seed
        set_device = synchronize = set_allocator_settings = empty_cache = nothing
        profiler_start = profiler_stop = cudart = nothing

    join = torch.distributed.init_process_group

    def join_once(backend: str | None = None, **more: Any) -> Any:
        """verl asks for gloo on the CPU and the platform's backend on its device, which is here the same device."""
        return join(backend="gloo" if backend == "cpu:gloo,cpu:gloo" else backend, **more)

    torch.distributed.init_process_group = join_once

    class Adapter(BaseRollout):
        """In the trainer's worker: hands the weights over."""

        async def resume(self, tags: list[str]) -> None: ...

        async def release(self) -> None: ...

        async def update_weights(self, weights: Any, global_steps: int | None = None, **_: Any) -> None:
            whole = {name: value.detach().float().cpu().clone() for name, value in weights}
            await ray.get_actor("tiny_server").load.remote(whole, global_steps)

    class Replica(RolloutReplica):
        async def launch_servers(self) -> None:
            actor = ray.remote(Server).options(name="tiny_server", max_concurrency=100)
            self._server_handle, self._server_address = actor.remote(self.model_config.path), "tiny"
            self.servers = [self._server_handle]

    sys.modules[__name__].Adapter = Adapter  # type: ignore[attr-defined] # verl looks it up by its name
    _ROLLOUT_REGISTRY["tiny", "async"] = f"{__name__}.Adapter"
    RolloutReplicaRegistry.register("tiny", lambda: Replica)

    put, numbers = tq.kv_batch_put, itertools.count()

    def told(keys: Any, partition_id: str, fields: Any = None, **more: Any) -> Any:
        done = put(keys=keys, partition_id=partition_id, fields=fields, **more)
        if fields is not None and "advantages" in fields.keys():  # noqa: SIM118 # a tensordict's
            names = ("uid", "prompts", "responses", "response_mask", "rm_scores", "rollout_log_probs")
            names += ("old_log_probs", "advantages", "extra_fields")
            data = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=list(names))
            rows = [{name: plain(data[name][i]) for name in names} for i in range(len(keys))]
            rows = [{**row, "key": key} for key, row in zip(keys, rows, strict=True)]
            (TOLD / f"batch-{next(numbers)}.json").write_text(json.dumps(rows))
        return done

    tq.kv_batch_put = told
    if os.environ.get("LOSE"):
        lose({int(number) for number in os.environ["LOSE"].split(",")})


def plain(value: Any) -> Any:
    value = getattr(value, "data", value) if not isinstance(value, torch.Tensor) else value
    return value.tolist() if hasattr(value, "tolist") else value


def lose(chosen: set[int]) -> None:
    """Some of a worker's episodes get a world that is lost at its first call."""
    from outage import Lost

    from simia.envs.worlds.executable import ExecutableBackend

    opened, numbers = ExecutableBackend.open, itertools.count(1)

    async def unsteady(self: Any, *args: Any, **how: Any) -> Any:
        number = next(numbers)
        world = await opened(self, *args, **how)
        return Lost(world) if number in chosen else world

    ExecutableBackend.open = unsteady  # type: ignore[method-assign]


if os.environ.get("VERL_USE_EXTERNAL_MODULES") == __name__:
    extend()
