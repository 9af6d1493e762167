"""Oracle trajectories in CodeGym's dialect: what the real LLaMA-Factory reads, renders and trains of them, and what simia says before."""

import json
from pathlib import Path
from typing import Any

from simia import event_loop
from simia.envs.opening import open_environment
from simia.envs.play.record import record_pack, write_recorded_pack
from simia.exporting import CardFacts, export
from simia.pack import Pack
from simia.trainers.llamafactory import launch
from tests.envs.gym_packs import write_gym_pack

PROBE = Path(__file__).parent / "llamafactory_probe.py"


async def export_gym(folder: Path, out: Path) -> list[list[dict[str, str]]]:
    """Write a gym with recorded solutions and export them; return the rows' messages."""
    pack = write_gym_pack(folder)
    async with await open_environment(str(folder), user="scripted") as environment:
        write_recorded_pack(pack, await record_pack(environment))
    report = export(Pack.load(folder).references.values(), out, to="codegym", cutoff=4000, facts=CardFacts())
    assert (report.rows, report.refused) == (3, {})
    return [json.loads(line)["messages"] for line in (out / "data.jsonl").read_text(encoding="utf-8").splitlines()]


def test_llamafactory_reads_every_row_whole(trainer: Any, tiny_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "sft"
    rows = event_loop.run(export_gym(tmp_path / "gym", out))
    trained = [[turn["content"] + "<|im_end|>\n" for turn in row if turn["role"] == "assistant"] for row in rows]
    chats = [{"messages": row, "tools": None, "trained": texts} for row, texts in zip(rows, trained, strict=True)]
    (out / "expected").write_text("".join(json.dumps(chat) + "\n" for chat in chats), encoding="utf-8")
    (tmp_path / "jobs.json").write_text(json.dumps([{"name": "gym", "folder": str(out)}]), encoding="utf-8")
    trainer.run(PROBE, tmp_path / "jobs.json", tiny_model, tmp_path / "answer.json")
    answer = json.loads((tmp_path / "answer.json").read_text(encoding="utf-8"))["gym"]
    assert [row["trained"] for row in answer["rows"]] == trained
    for got, row in zip(answer["rows"], rows, strict=True):
        assert got["system"] == row[0]["content"]
        assert [turn["content"] for turn in got["turns"]] == [turn["content"] for turn in row[1:]]
        assert got["trained_as_written"]
        assert got["as_chat_template"], got["text"]
    assert answer["trained_tokens_packed"] == answer["trained_tokens"] > 0


def test_the_start_of_a_training_is_checked(trainer: Any, tiny_model: Path, tmp_path: Path) -> None:
    event_loop.run(export_gym(tmp_path / "gym", tmp_path / "sft"))
    changes = {"model_name_or_path": str(tiny_model), "template": "qwen", "bf16": False, "deepspeed": None}
    started = launch(tmp_path / "sft", changes, python=trainer.python)
    assert "train.yaml" in " ".join(started.command)
