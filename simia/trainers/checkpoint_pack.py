"""The pack that a folder of checkpoints was trained on, in a file beside them: a start on another pack would go on with its policy."""

from __future__ import annotations

import json
from pathlib import Path

from simia.errors import UserError

FILE = "simia-pack.json"
CHECKPOINTS = ("checkpoint-*", "global_step_*")  # as TRL and verl name them


def refuse_other_pack(checkpoints: Path, pack: str, setting: str) -> None:
    """Raise `UserError` if the folder holds checkpoints of a training on another pack. `setting`: the one that names the folder."""
    try:
        made = json.loads((checkpoints / FILE).read_text(encoding="utf-8"))["pack"]
    except (OSError, ValueError, LookupError, TypeError):
        return
    if made != pack and any(path for name in CHECKPOINTS for path in checkpoints.glob(name)):
        raise UserError(
            f"{setting}: {checkpoints} holds checkpoints of a training on {made}: name another folder for one on {pack}"
        )


def write_pack(checkpoints: Path, pack: str) -> None:
    """Write the pack's name beside the checkpoints."""
    checkpoints.mkdir(parents=True, exist_ok=True)
    (checkpoints / FILE).write_text(json.dumps({"pack": pack}), encoding="utf-8")
