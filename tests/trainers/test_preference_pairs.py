"""LLaMA-Factory's and TRL's own loaders take our preference pairs: one prompt, and the two turns as they were said."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simia import export
from tests.exporting.test_episode_groups import keep, make_episode, make_row
from tests.trainers.conftest import Trainer

PROBE = Path(__file__).with_name("pairs_probe.py")


@pytest.mark.parametrize("to", ["llamafactory", "trl"])
def test_the_trainers_loader_reads_what_was_said(
    to: Any, environments: Callable[[str], Path], tiny_model: Path, tmp_path: Path
) -> None:
    keep(
        tmp_path,
        make_row(1, "0", "a", make_episode(0.0, "No, it is off.")),
        make_row(1, "1", "a", make_episode(1.0, "Yes, it is on.")),
        make_row(2, "0", "b", make_episode(1.0, "Yes.")),
        make_row(2, "1", "b", make_episode(0.0, "Yes.", query="hall")),
        make_row(3, "0", "c", make_episode(1.0, "Cut.", end="truncated")),
        make_row(3, "1", "c", make_episode(0.0, "Wrong.")),
    )
    report = export("grpo", tmp_path / "out", runs=tmp_path, to=to, pairs=0.5)
    assert report.rows == 2
    trainer = Trainer(environments(to), tmp_path / "work")
    trainer.run(PROBE, to, tmp_path / "out", tiny_model, tmp_path / "told.json")
    told = json.loads((tmp_path / "told.json").read_text())
    answers, calls = told["rows"]
    assert (clean(answers["chosen"]), clean(answers["rejected"])) == ("Yes, it is on.", "No, it is off.")
    for side, lamp in (("chosen", "kitchen"), ("rejected", "hall")):
        said = clean(calls[side]).removeprefix("<tool_call>").removesuffix("</tool_call>")
        assert json.loads(said) == {"name": "look_up", "arguments": {"lamp": lamp}}
    for row in told["rows"]:
        assert row["chosen_prompt"] == row["rejected_prompt"]
        assert row["chosen_prompt"].endswith("<|im_start|>assistant\n")
        assert "look_up" in row["chosen_prompt"]
    assert '{"on": true}' in answers["chosen_prompt"]
    assert '{"on": true}' not in calls["chosen_prompt"]
    assert to == "llamafactory" or math.isfinite(told["loss"])


def clean(text: str) -> str:
    return text.replace("<|im_end|>", "").replace("<|endoftext|>", "").strip()
