"""Resume a GRPO run from its last complete checkpoint.

The trainer's own resume has three faults, which are corrected here: it accepts a half-written checkpoint, repeats the first epoch's order
in a later epoch, and gives a finished run one more step.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHECKPOINT = re.compile(r"checkpoint-(\d+)")


def find_last_checkpoint(out: Path, say: Callable[[str], None]) -> Path | None:
    """Find the last complete checkpoint. If the process was killed, the last one may be incomplete; its state is written last."""
    found = {int(match[1]): path for path in out.glob("checkpoint-*") if (match := CHECKPOINT.fullmatch(path.name))}
    for _, path in sorted(found.items(), reverse=True):
        try:
            read_trainer_state(path)
        except (OSError, ValueError):
            say(f"{path} is incomplete and is skipped")
        else:
            return path
    return None


def read_trainer_state(checkpoint: Path) -> Any:
    return json.loads((checkpoint / "trainer_state.json").read_text())


def find_final_step(last: Path, arguments: Any) -> int | None:
    """Return the last step of a finished run; None if it is not finished. The trainer itself would do one step too many."""
    state = read_trainer_state(last)
    if arguments.max_steps > 0:
        done = state["global_step"] >= arguments.max_steps
    else:
        done = round(state["epoch"], 6) >= arguments.num_train_epochs
    return int(state["global_step"]) if done else None


def make_order_callback() -> Any:
    """Make a callback that derives the tasks' order in an epoch from the seed and the epoch's number.

    The sampler's own order comes from a generator that is not in the checkpoint. A resumed run would repeat the first epoch's order, with
    tasks whose replies are not stored.
    """
    from transformers import TrainerCallback  # type: ignore[import-not-found,unused-ignore]

    class SameOrder(TrainerCallback):  # type: ignore[misc,unused-ignore]
        def on_epoch_begin(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any) -> None:
            batches = train_dataloader.batch_sampler
            while hasattr(batches, "batch_sampler"):  # unwrap accelerate's sampler over the ranks
                batches = batches.batch_sampler
            if (generator := getattr(batches.sampler, "generator", None)) is not None:
                generator.manual_seed(args.seed + int(round(state.epoch or 0, 6)))

    return SameOrder()
