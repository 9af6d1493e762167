"""What a start of a trainer says of the planned episodes, or refuses: tasks whose solution nobody knows, checkpoints, who plays the user."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from simia.errors import UserError
from tests.trainers import lamps as packs
from tests.trainers.ragen_standin import config as ragen_config
from tests.trainers.test_dry_run import SIMULATED, dry_run, nothing

__all__ = ["nothing"]
LLM: dict[str, Any] = {"kind": "openai", "model": "o4-mini"}


def write_pack(folder: Path, unsolved: int) -> Path:
    """A pack of four tasks; so many of the first have no solution."""
    tasks = packs.errands()
    for task in tasks[:unsolved]:
        del task["script"]
    return packs.write(folder, tasks)


def write_ragen(folder: Path, pack: Path, **stage: Any) -> str:
    whole = json.loads(json.dumps(ragen_config(pack, backend="simulated", reward="oracle", llm=LLM, **stage)))
    whole["custom_envs"]["Lamps"]["env_config"]["val_environment"] = {"backend": "executable", "reward": "rules"}
    (folder / "run.yaml").write_text(yaml.safe_dump(whole))
    return "run.yaml"


def start_each(folder: Path, pack: Path) -> dict[str, tuple[str, str, list[str]]]:
    """The section of `stage` → trainer, config and settings of a run in a simulated world of this pack."""
    ours = [f"stage.pack={pack}", "stage.split=null", "stage.reward=oracle"]
    off = ["trainer.test_freq=-1", "trainer.val_before_train=false"]
    return {
        "stage": ("trl", "trl/seeds", [*ours, "evaluate=null", "grpo.eval_strategy=no"]),
        "simia.stage": ("verl", "verl/simia", [*(f"simia.{each}" for each in ours), "simia.data.train=null", *off]),
        "custom_envs.Lamps.env_config.stage": ("ragen", write_ragen(folder, pack), []),
    }


def test_a_simulator_that_is_to_see_solutions_needs_one(nothing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place, (trainer, config, settings) in start_each(nothing, write_pack(nothing / "unsolved", 4)).items():
        line = rf"none of 4 tasks has a reference: set {place}\.backend_settings\.knowledge=schema, or give the tasks a"
        with pytest.raises(UserError, match=line):
            dry_run(capsys, trainer, config, *settings)
        schema = f"{place}.backend_settings.knowledge=schema"
        assert not any("no solution: " in line for line in dry_run(capsys, trainer, config, *settings, schema))


def test_tasks_without_a_solution_are_counted(nothing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pack, line = (
        write_pack(nothing / "some", 3),
        "training: 3 of 4 tasks have no solution: simulator and judge see the task alone",
    )
    for trainer, config, settings in start_each(nothing, pack).values():
        assert dry_run(capsys, trainer, config, *settings).count(line) == 1
    lines = dry_run(capsys, "ragen", "run.yaml", "custom_envs.Lamps.env_config.stage.reward=rules")
    assert "training: 3 of 4 tasks have no solution: the simulator sees the task alone" in lines
    trained = dry_run(capsys, "trl", "trl/grpo", *SIMULATED)
    assert not any("have no solution" in line for line in trained), "every task of customer_service has one"


def test_a_world_to_validate_in_needs_solutions_where_it_is_named(
    nothing: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = packs.errands()
    for task in tasks[2:]:
        del task["script"]
    pack = packs.write(
        nothing / "split", [{**t, "split": s} for t, s in zip(tasks, ("train", "train", "test", "test"), strict=True)]
    )
    config = write_ragen(nothing, pack)
    place = "custom_envs.Lamps.env_config"
    splits = (f"{place}.train=train", f"{place}.val=test")
    lines = dry_run(capsys, "ragen", config, *splits, f"{place}.val_environment=null")
    assert "validation: 2 of 2 tasks have no solution: simulator and judge see the task alone" in lines
    with pytest.raises(UserError, match=rf"set {place}\.val_environment\.backend_settings\.knowledge=schema"):
        dry_run(capsys, "ragen", config, *splits, f"{place}.val_environment={{reward: oracle}}")
