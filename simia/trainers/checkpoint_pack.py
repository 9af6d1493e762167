"""Record the pack of a training in a file beside its checkpoints, so that a training on another pack does not resume from them."""

from __future__ import annotations

import json
from pathlib import Path

from simia.errors import UserError

FILE = "simia-pack.json"
CHECKPOINTS = ("checkpoint-*", "global_step_*")  # as TRL and verl name them


def refuse_other_pack(checkpoints: Path, pack: str, setting: str) -> None:
    """Raise `UserError` if the folder holds checkpoints of a training on another pack. `setting`: name of the setting for the folder."""
    try:
        made = json.loads((checkpoints / FILE).read_text(encoding="utf-8"))["pack"]
    except (OSError, ValueError, LookupError, TypeError):
        return
    if made != pack and any(path for name in CHECKPOINTS for path in checkpoints.glob(name)):
        raise UserError(
            f"{setting}: {checkpoints} holds checkpoints of a training on {made}: name another folder for one on {pack}"
        )


def write_pack_name(checkpoints: Path, pack: str) -> None:
    """Write the pack's name beside the checkpoints."""
    checkpoints.mkdir(parents=True, exist_ok=True)
    (checkpoints / FILE).write_text(json.dumps({"pack": pack}), encoding="utf-8")
