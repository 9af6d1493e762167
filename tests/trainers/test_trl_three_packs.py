"""GRPO in TRL over three shipped packs of three recipes at once, with weights, by `simia train trl` and the config of docs/training.md.

The training plays copies of the packs whose tasks show two tools: a prompt of all 33 tools of the hotel has 7,000 tokens.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from simia.config import load_config
from simia.envs.opening import load_tasks
from simia.jobs import Run
from simia.pack import Pack
from simia.reward_spec import ChecklistSpec
from simia.trainers.trl.settings import TrlConfig
from simia.trajectory import Trajectory
from tests.trainers.conftest import ROOT, Trainer
from tests.trainers.test_trl_train import train

SEEDS = ROOT / "seeds"
PACKS = ("hotel_front_desk", "gyms/cold-cells", "job_seeking")
FOLDERS = {name.rpartition("/")[2]: name for name in PACKS}
STEPS, GROUP = 3, 4
PLAYED = {"hotel_front_desk": 2, "cold-cells": 3, "job_seeking": 1}
SHOWN = {
    "hotel_front_desk": ["find_guests", "get_reservation"],
    "cold-cells": ["observe", "done"],
    "job_seeking": ["find_seekers", "get_job"],
}
TASKS = 3  # of each copy
SMALL = {
    "max_steps": STEPS,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 4,
    "num_generations": GROUP,
    "max_completion_length": 200,
    "gradient_checkpointing": False,
    "bf16": False,
    "use_cpu": True,
    "save_steps": STEPS,
}


@pytest.fixture(scope="module")
def small_packs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Copies of the packs: their own code, policy and checks, and the first tasks, which show few tools."""
    top, copies = tmp_path_factory.mktemp("packs"), {}
    for name, folder in FOLDERS.items():
        copies[folder] = Path(shutil.copytree(SEEDS / folder, top / name))
        tasks = copies[folder] / "tasks.jsonl"
        rows = [json.loads(line) for line in tasks.read_text(encoding="utf-8").splitlines()[:TASKS]]
        tasks.write_text("".join(json.dumps({**row, "tools": SHOWN[name]}) + "\n" for row in rows), encoding="utf-8")
    return copies


@pytest.fixture(scope="module")
def gym_model(trl: Trainer, small_packs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that submits answers in the gym, right ones and wrong ones."""
    out = tmp_path_factory.mktemp("models") / "gym-qwen"
    texts = [small_packs[folder] / "tools.json" for folder in PACKS]
    trl.run(Path(__file__).with_name("taught_gyms.py"), out, *texts, "--", small_packs["gyms/cold-cells"])
    return out


def read_config() -> dict[str, Any]:
    """The config of the page, with as many tasks as three small steps play: each once, so that the weights can be counted."""
    page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    config = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", page.partition("### Several packs")[2], re.S)[0])
    config["stage"] |= {"limit": sum(PLAYED.values())}
    config["stage"]["episode"] = {"turns": 2}
    return config


def count_packs(names: list[str]) -> Counter[str]:
    return Counter(name.partition("/")[0] for name in names)


def test_the_config_of_the_page_gives_each_pack_its_share(tmp_path: Path) -> None:
    (tmp_path / "three.yaml").write_text(yaml.safe_dump(read_config()))
    _, tasks = load_tasks(load_config(TrlConfig, str(tmp_path / "three.yaml")).stage)
    assert count_packs([task.id for task in tasks]) == PLAYED


@pytest.mark.all
def test_three_steps_of_grpo_over_three_packs(
    trl: Trainer, small_packs: dict[str, Path], gym_model: Path, tmp_path: Path
) -> None:
    config = read_config() | {
        "model": str(gym_model),
        "at_once": None,
        "max_turn_tokens": 48,
        "episodes": {"run": str(tmp_path / "episodes")},
    }
    for share in config["stage"]["packs"]:
        share["pack"] = str(small_packs[share["pack"]])
    config["grpo"] = {**SMALL, "output_dir": str(tmp_path / "out")}
    (tmp_path / "three.yaml").write_text(yaml.safe_dump(config))
    assert "GRPO of" in train(trl, tmp_path / "three.yaml")

    log = json.loads((tmp_path / "out" / f"checkpoint-{STEPS}" / "trainer_state.json").read_text())["log_history"]
    assert len([row for row in log if "rewards/environment_reward/mean" in row]) == STEPS
    with contextlib.closing(Run.read_only(tmp_path, str(tmp_path / "episodes"))) as run:
        bodies = [run.ledger.result(item.id) for item in run.ledger.items()]
    played = [Trajectory.from_row(body["trajectory"]) for body in bodies if body is not None]
    assert count_packs([str(each.task_id) for each in played]) == {name: GROUP * n for name, n in PLAYED.items()}
    rewards: dict[str, list[float]] = defaultdict(list)
    for each in played:
        name, _, task = str(each.task_id).partition("/")
        assert each.reward is not None
        rewards[name].append(each.reward.value)
        if name == "job_seeking":
            assert (each.evidence or {})["expected"], "the episode was compared with the final state of its own task"
        else:
            [rules] = Pack.load(FOLDERS[name]).task(task).reward.parts
            assert isinstance(rules, ChecklistSpec)
            checks = (each.evidence or {})["checks"]
            assert set(checks) == set(rules.code), "the checks of the episode's own pack were executed"
            assert each.reward.value == float(all(checks.values()))
    assert set(rewards["hotel_front_desk"] + rewards["job_seeking"]) == {0.0}, "the model knows nothing of these two"
    assert set(rewards["cold-cells"]) == {0.0, 1.0}, "it knows right and wrong answers of the gym"
    assert any(row["grad_norm"] > 0 for row in log if "loss" in row)
