"""Where a run of TRL goes on: from which checkpoint, with which task next, and whether there is anything left to do.

The trainer's own answers are nearly right: it takes a half-written checkpoint for one, plays the first epoch's order again in a later
one, and gives a finished run one more step.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simia.errors import UserError

CHECKPOINT = re.compile(r"checkpoint-(\d+)")


def find_last_checkpoint(out: Path, say: Callable[[str], None]) -> Path | None:
    """The last whole one: a kill may come while one is written, whose state is what is written last."""
    found = {int(match[1]): path for path in out.glob("checkpoint-*") if (match := CHECKPOINT.fullmatch(path.name))}
    for _, path in sorted(found.items(), reverse=True):
        try:
            read_trainer_state(path)
        except (OSError, ValueError):
            say(f"{path} was not written to its end, and is passed over")
        else:
            return path
    return None


def read_trainer_state(checkpoint: Path) -> Any:
    return json.loads((checkpoint / "trainer_state.json").read_text())


def find_final_step(last: Path, arguments: Any) -> int | None:
    """The step at which all that was asked for is done; None: there is more to do. The trainer itself would do one step too many."""
    state = read_trainer_state(last)
    if arguments.max_steps > 0:
        done = state["global_step"] >= arguments.max_steps
    else:
        done = round(state["epoch"], 6) >= arguments.num_train_epochs
    return int(state["global_step"]) if done else None


def check_task_count(arguments: Any, tasks: int) -> None:
    """Raises `UserError` where no batch could be filled with different tasks: the trainer would stop at step 0 as if all were done."""
    groups = arguments.generation_batch_size // arguments.num_generations
    if groups > tasks:
        raise UserError(
            f"a step plays {groups} groups, each of another task, and there are {tasks} tasks: raise grpo.num_generations, or lower "
            "grpo.gradient_accumulation_steps, per_device_train_batch_size or the number of processes"
        )


def make_order_callback() -> Any:
    """A callback: the tasks' order in an epoch follows from the seed and the epoch's number. The sampler's own comes from a generator
    that no checkpoint holds: a run that goes on would play the first epoch's order again, other tasks than were paid for."""
    from transformers import TrainerCallback  # type: ignore[import-not-found,unused-ignore]

    class SameOrder(TrainerCallback):  # type: ignore[misc,unused-ignore]
        def on_epoch_begin(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any) -> None:
            batches = train_dataloader.batch_sampler
            while hasattr(batches, "batch_sampler"):  # one over the ranks
                batches = batches.batch_sampler
            if (generator := getattr(batches.sampler, "generator", None)) is not None:
                generator.manual_seed(args.seed + int(round(state.epoch or 0, 6)))

    return SameOrder()
