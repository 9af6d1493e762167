"""At which step a run begins. RAGEN's trainer reads it off the checkpoint and tells nobody; its environments would begin with the first
step's seeds again: the same tasks, and the answers that were stored for them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from simia.trainers.launch import look_up

LATEST = "latest_checkpointed_iteration.txt"


def count_done_steps(config: Any) -> int:
    """Steps that the checkpoint holds from which the run will go on, by the rules of verl's `_load_checkpoint`; 0 without one."""
    mode = look_up(config, "trainer.resume_mode", "auto")
    if mode == "disable":
        return 0
    if mode == "resume_path":
        named = re.search(r"global_step_(\d+)$", str(look_up(config, "trainer.resume_from_path")))
        return int(named[1]) if named else 0
    folder = Path(str(look_up(config, "trainer.default_local_dir")))
    try:
        step = int((folder / LATEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0
    return step if (folder / f"global_step_{step}").exists() else 0
