"""Trainers refuse tasks that are for evaluation only, by one line that says what to do."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from simia.envs.config import EnvironmentConfig
from simia.envs.opening import load_tasks
from simia.errors import UserError
from simia.trainers.evaluation_tasks import refuse_evaluation_tasks
from simia.trainers.ragen.start import check_stages
from simia.trainers.trl import start as trl
from simia.trainers.verl import start as verl
from tests.packs.small import small

LINE = r"^pack {pack}: 1 of {n} {noun} to train on marked as for evaluation only, such as {task}: train on another split or on seeds \(simia pack new --from trajectories\), or set {setting}=true$"


@pytest.fixture
def marked(tmp_path: Path) -> Path:
    """A pack whose tasks are all for evaluation."""
    small(folder := tmp_path / "marked")
    path = folder / "pack.yaml"
    path.write_text(path.read_text() + "evaluation: true\n")
    return folder


def line(setting: str, pack: str = "marked", n: int = 1, task: str = "todo-1") -> str:
    return LINE.format(pack=pack, n=n, noun="task" if n == 1 else "tasks", task=task, setting=setting)


def train_trl(folder: Path, **more: Any) -> Any:
    config = folder.parent / "trl.yaml"
    config.write_text(json.dumps({"model": "some/model", "stage": {"pack": str(folder), "split": "train"}, **more}))
    return trl.launch(config, {}, python=Path("/nowhere/python"))


def test_trl(marked: Path) -> None:
    with pytest.raises(UserError, match=line("allow_evaluation_tasks")):
        train_trl(marked)
    with pytest.raises(UserError, match="/nowhere/python"):  # it goes on to the next check
        train_trl(marked, allow_evaluation_tasks=True)


def train_verl(folder: Path, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Any:
    monkeypatch.setattr(verl, "interpreter", lambda *_: Path(sys.executable))
    monkeypatch.setattr(verl, "read_verl_config", lambda _: {})
    monkeypatch.setattr(verl, "check_engine", lambda *_: None)
    pytest.importorskip("pyarrow", reason="verl's data sets are Parquet files")
    config = folder.parent / "verl.yaml"
    simia = {"stage": {"pack": str(folder)}, "data": {"train": "train", "val": "test"}, **more}
    out = str(folder.parent / "out")
    config.write_text(
        json.dumps({"simia": simia, "trainer": {"default_local_dir": out}, "data": {"train_batch_size": 1}})
    )
    return verl.launch(config, {})


def test_verl(marked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=line("simia.allow_evaluation_tasks")):
        train_verl(marked, monkeypatch)
    assert train_verl(marked, monkeypatch, allow_evaluation_tasks=True).notes[0].startswith("1 row of marked")


def check_ragen(train: Path, val: Path, **more: Any) -> list[str]:
    parts = {
        part: {"group_size": 2, "env_configs": {"tags": [part.title()], "n_groups": [1]}} for part in ("train", "val")
    }
    envs = {"Train": {"stage": {"pack": str(train)}, **more}, "Val": {"stage": {"pack": str(val)}}}
    return check_stages({"es_manager": parts, "custom_envs": {tag: {"env_config": env} for tag, env in envs.items()}})


def test_ragen_refuses_to_train_and_validates(marked: Path) -> None:
    with pytest.raises(UserError, match=line("custom_envs.Train.env_config.allow_evaluation_tasks")):
        check_ragen(marked, marked)
    assert len(check_ragen(marked, marked, allow_evaluation_tasks=True)) == 2
    assert len(check_ragen(Path("customer_service"), marked)) == 2


def test_a_task_with_the_tag_is_refused_and_one_of_several_packs_too(marked: Path, tmp_path: Path) -> None:
    small(folder := tmp_path / "mixed")
    rows = [json.loads(text) for text in (folder / "tasks.jsonl").read_text().splitlines()]
    rows[1]["tags"] = ["evaluation"]
    (folder / "tasks.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pack, tasks = load_tasks(EnvironmentConfig(pack=str(folder)))
    with pytest.raises(
        UserError, match=r"^pack mixed: 1 of 2 tasks to train on marked as for evaluation only, such as todo-2: "
    ):
        refuse_evaluation_tasks(pack, tasks, "x", allowed=False)
    refuse_evaluation_tasks(pack, tasks, "x", allowed=True)
    refuse_evaluation_tasks(pack, tasks[:1], "x", allowed=False)
    both = EnvironmentConfig.model_validate({"packs": ["customer_service", str(marked)]})
    pack, tasks = load_tasks(both)
    with pytest.raises(
        UserError,
        match=rf": 2 of {len(tasks)} tasks to train on marked as for evaluation only, such as marked/todo-1: ",
    ):
        refuse_evaluation_tasks(pack, tasks, "x", allowed=False)
    refuse_evaluation_tasks(pack, [task for task in tasks if task.id.startswith("customer")], "x", allowed=False)
