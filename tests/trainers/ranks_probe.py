"""Runs inside TRL's environment, one of several ranks: `simia train trl` with an account of what this rank trained on, a line a batch.

python -m torch.distributed.run --standalone --nproc-per-node 2 ranks_probe.py OUT CONFIG [--set a.b=c]...
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import trl
from grpo_watch import Watched

from simia.trainers.trl import train as trl_train

out, *arguments = sys.argv[1:]
rank = int(os.environ.get("RANK", "0"))
killed_at = int(os.environ.get("KILLED_AT", "-1"))  # a step: its episodes are played, its checkpoint is not written


class Told(Watched):
    def _calculate_rewards(self, inputs: Any, *more: Any) -> Any:
        self.gathered = super()._calculate_rewards(inputs, *more)
        if self.environments is None:
            self.tasks, self.own = [x["prompt"] for x in inputs], [x["reward"] for x in inputs]
        else:
            self.tasks, self.own = [x["task_id"] for x in inputs], [e._episode.reward.value for e in self.environments]
        return self.gathered

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        made = super()._generate_and_score_completions(inputs)
        batch = self.batches[-1]
        told = {
            "step": self.state.global_step,
            "tasks": self.tasks,
            "ids": batch["completions"],
            "texts": [self.processing_class.decode(ids) for ids in batch["completions"]],
            "rewards": self.own,
            "gathered": self.gathered[:, 0].tolist(),
            "advantages": batch["advantages"],
        }
        with Path(f"{out}.{rank}").open("a") as file:
            file.write(json.dumps(told) + "\n")
        if self.state.global_step == killed_at and rank == self.accelerator.num_processes - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return made


trl.GRPOTrainer = Told
sys.exit(trl_train.main(arguments))
