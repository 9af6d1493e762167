"""TRL's own SFTTrainer takes our rows and trains each assistant turn, and nothing else; `datasets` reads our Parquet."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

from simia.exporting import CardFacts, export
from simia.pack import Pack
from tests.trainers.conftest import Trainer

PROBE = Path(__file__).with_name("trl_probe.py")


def test_prompts_and_completions_train_what_the_assistant_says(
    environments: Callable[[str], Path], tiny_model: Path, tmp_path: Path
) -> None:
    trainer = Trainer(environments("trl"), tmp_path / "work")
    seeds = Pack.load(PROBE.parents[1] / "recordings/seeds/office").seeds[:4]
    facts = CardFacts(name="test", licences=["Apache-2.0"])
    export(seeds, tmp_path / "turns", to="trl", segment="turns", facts=facts)
    export(seeds, tmp_path / "table", to="parquet", facts=facts)
    files = (tmp_path / "turns" / "data.jsonl", tmp_path / "table" / "data.parquet")
    trainer.run(PROBE, *files, tiny_model, tmp_path / "out.json")
    told = json.loads((tmp_path / "out.json").read_text())
    rows = [json.loads(line) for line in files[0].read_text().splitlines()]
    assert told["rows"] == len(rows) == len(told["trained"])
    assert math.isfinite(told["loss"])
    for trained, row in zip(told["trained"], rows, strict=True):
        said = trained.replace("<|im_end|>", "").replace("<|endoftext|>", "").strip()
        assert said == row["completion"][0]["content"].strip()
    count, messages = told["parquet"]
    assert count == len(seeds)
    assert [message["role"] for message in messages] == [message.role for message in seeds[0].messages]
    call = next(call for message in messages for call in message["calls"])
    assert json.loads(call["arguments"]) == next(seeds[0].calls())[2].arguments
