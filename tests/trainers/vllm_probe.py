"""Runs inside TRL's environment: `simia train trl` with a policy that a server of vLLM samples, and an account of what was trained.

python vllm_probe.py OUT SYNC CONFIG [--set a.b=c]...

TRL sends weights by NCCL, which needs a GPU. Here its two functions that do so are replaced: the weights go through a file that the
server loads. SYNC: a folder for that file, or `never`, which leaves the server with the weights that it started with. Everything else
(when TRL sends weights, what it does with the log-probabilities) is TRL's own, and so is the server's sampling.
"""

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

import torch
import trl
from grpo_watch import Watched
from safetensors.torch import save_file
from trl.generation import vllm_client, vllm_generation

from simia.trainers.trl import train as trl_train
from simia.trainers.trl import vllm_sampler

out, sync, *arguments = sys.argv[1:]
told: dict[str, Any] = {"replies": [], "gaps": [], "rolled": [], "sent": 0, "fits": []}


def is_available(min_version: str | None = None) -> bool:
    return True  # vLLM is in the server's environment; its client needs it for NCCL alone


def send_weights(self: Any, metadata: Any, named_params: Any) -> None:
    weights = {name: value.detach().clone() for name, value in named_params}
    told["sent"] += 1
    if sync == "never":
        return
    save_file(weights, Path(sync) / "model.safetensors")
    call = {"method": "reload_weights", "kwargs": {"weights_path": sync}}
    request = urllib.request.Request(
        f"{self.base_url}/collective_rpc", json.dumps(call).encode(), {"Content-Type": "application/json"}
    )
    urllib.request.urlopen(request, timeout=60).read()


vllm_client.is_vllm_available = vllm_generation.is_vllm_available = is_available
vllm_client._HAS_RESET_PREFIX_CACHE_SUCCESS = True  # as it is for the server's version
vllm_client.VLLMClient.init_communicator = lambda self, device=0: None
vllm_client.VLLMClient.update_named_params = send_weights


class Told(Watched):
    def _generate_and_score_completions(self, inputs: Any) -> Any:
        told["replies"].append([])
        made = super()._generate_and_score_completions(inputs)
        for context, ids, logprobs in told["replies"][-1]:
            with torch.no_grad():
                logits = self.model(input_ids=torch.tensor([context + ids])).logits[0, len(context) - 1 : -1]
            own = (logits / self.temperature).log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0]
            told["gaps"].append(float((own - torch.tensor(logprobs)).abs().max()))
        told["logs"] = self.state.log_history
        told["batches"] = self.batches
        Path(out).write_text(json.dumps(told))
        return made

    def log(self, logs: Any, start_time: Any = None) -> None:
        super().log(logs, start_time)
        told["logs"] = self.state.log_history
        Path(out).write_text(json.dumps(told))


read = vllm_sampler.VLLMSampler._read


def read_and_keep(self: Any, context: list[int], status: int, body: Any) -> Any:
    reply = read(self, context, status, body)
    told["replies"][-1].append((context, reply.ids, reply.logprobs))
    return reply


def keep_rows(*rows: Any, **how: Any) -> Any:
    told["rolled"].append(make_columns(*rows, **how))
    return told["rolled"][-1]


from simia.trainers.trl import rollout  # noqa: E402

make_columns = rollout.make_columns
rollout.make_columns = keep_rows
vllm_sampler.VLLMSampler._read = read_and_keep  # type: ignore[method-assign]
trl.GRPOTrainer = Told
sys.exit(trl_train.main(arguments))
