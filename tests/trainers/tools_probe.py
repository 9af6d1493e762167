"""Runs inside TRL's environment: GRPOTrainer calls a pack's tools by its own loop, through `environment_factory`, for three steps.

python tools_probe.py MODEL PACK OUT.json OTHER_PACK...
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from grpo_watch import Watched, settings
from outage import Unsteady
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import get_json_schema
from trl.chat_template_utils import qwen2_5_chat_template

from simia import event_loop
from simia.envs.environment import Environment
from simia.envs.users import NoUser
from simia.envs.worlds.executable import ExecutableBackend
from simia.pack import Pack
from simia.trainers.trl.tool_methods import TrlTools, environment_factory, make_method, tool_rows, tools_reward

LOST_LATER = range(
    9, 17
)  # the first of these episodes that calls a tool loses its world: they are those of the second step

model_path, pack_path, out, *others = sys.argv[1:]
torch.manual_seed(0)
tokenizer = AutoTokenizer.from_pretrained(model_path)
tokenizer.chat_template = qwen2_5_chat_template  # one that TRL knows how to read calls of
model = AutoModelForCausalLM.from_pretrained(model_path)
pack = Pack.load(pack_path)
before = {name: value.detach().clone() for name, value in model.named_parameters()}
backend = Unsteady(ExecutableBackend(pack), lost=LOST_LATER, most=1)
environment = Environment(pack, backend, backend_name="executable", user=NoUser)  # type: ignore[arg-type]
episodes: list[dict[str, Any]] = []
said: list[list[Any]] = []
rewards: list[list[float | None]] = []


def watched_reward(**columns: Any) -> list[float | None]:
    said.append(columns["completions"])
    rewards.append(tools_reward(**columns))
    return rewards[-1]


trainer = Watched(
    model=model,
    reward_funcs=[watched_reward],
    args=settings(out, max_completion_length=200),
    train_dataset=Dataset.from_list(tool_rows(environment)),
    processing_class=tokenizer,
    environment_factory=environment_factory(
        environment,
        trainer=lambda: trainer,
        on_trajectory=lambda trajectory: episodes.append(trajectory.model_dump(mode="json")),
    ),
)
trainer.train()
event_loop.run(environment.close())

changed = [n for n, value in trainer.model.named_parameters() if not torch.equal(value.detach(), before[n])]
schemas = {}
for name in (pack_path, *others):
    tools = Pack.load(name).tools
    methods = type("Methods", (TrlTools,), {tool.name: make_method(tool) for tool in tools})
    schemas[name] = [get_json_schema(getattr(methods(environment), tool.name))["function"] for tool in tools]
told = {
    "steps": trainer.state.global_step,
    "losses": [row["loss"] for row in trainer.state.log_history if "loss" in row],
    "changed": [len(changed), len(before)],
    "batches": trainer.batches,
    "prompts": [[tokenizer.decode(ids) for ids in batch["prompts"]] for batch in trainer.batches],
    "trained": [
        [tokenizer.decode([token for _, token in row]) for row in batch["trained"]] for batch in trainer.batches
    ],
    "said": said,
    "rewards": rewards,
    "episodes": episodes,
    "schemas": schemas,
}
Path(out).write_text(json.dumps(told))
