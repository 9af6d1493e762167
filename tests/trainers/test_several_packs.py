"""Several packs, and tasks of format 2, at the entry points of the trainers: rows, checks before the start, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simia.envs.config import EnvironmentConfig
from simia.envs.opening import load_tasks, open_environment
from simia.errors import Aborted, Code, UserError
from simia.pack import Pack
from simia.task import Task
from simia.trainers.launch import check_stage
from simia.trainers.ragen.env import SimiaEnv
from simia.trainers.ragen.settings import SimiaEnvConfig
from simia.trainers.trl import task_rows
from simia.trainers.trl.start import launch as launch_trl
from simia.trainers.trl.tool_methods import check_tool_methods, environment_factory
from simia.trainers.verl.start import make_stage_rows
from tests.trainers import lamps as packs


def make_packs(folder: Path) -> dict[str, Any]:
    """A stage of two packs: lamps with the splits train and test, and errands with train alone."""
    lamps = packs.conversations()
    lamps[3]["split"] = "test"
    packs.write(folder / "lamps", lamps)
    packs.write(folder / "errands", packs.errands())
    shares = [{"pack": str(folder / "lamps"), "split": "train"}, {"pack": str(folder / "errands"), "limit": 2}]
    return {"packs": shares, "user": "scripted"}


async def test_rows_of_trl_and_tasks_of_other_splits(tmp_path: Path) -> None:
    async with await open_environment(make_packs(tmp_path)) as environment:
        played = [row["prompt"] for row in task_rows(environment)]
        assert sorted(played) == [
            "errands/errand-0", "errands/errand-1", "lamps/lamps-0", "lamps/lamps-1", "lamps/lamps-2",
        ]  # fmt: skip
        environment.tasks = environment.pack.tasks  # as the training does for an evaluation
        assert task_rows(environment, "test") == [{"prompt": "lamps/lamps-3"}]


def test_rows_of_verl_name_each_tasks_pack(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    stage = EnvironmentConfig.model_validate(make_packs(tmp_path))
    rows = make_stage_rows(stage)
    assert {(row["data_source"], row["extra_info"]["task"]) for row in rows} == {
        ("errands", "errands/errand-0"), ("errands", "errands/errand-1"),
        ("lamps", "lamps/lamps-0"), ("lamps", "lamps/lamps-1"), ("lamps", "lamps/lamps-2"),
    }  # fmt: skip
    alone = stage.model_copy(update={"packs": (stage.packs or [])[:1]})
    assert [row["extra_info"]["task"] for row in make_stage_rows(alone, "test")] == ["lamps/lamps-3"]
    with pytest.raises(UserError, match="pack errands has no task of split 'test'"):
        make_stage_rows(stage, "test")


def test_each_pack_is_checked_before_the_start(tmp_path: Path) -> None:
    stage = EnvironmentConfig.model_validate(make_packs(tmp_path))
    pack, tasks = load_tasks(stage)
    assert (pack.name, len(tasks)) == ("lamps+errands", 5)
    check_stage(stage, pack)
    code = tmp_path / "errands" / "pack.yaml"
    code.write_text(code.read_text().replace("tools.py", "gone.py"))
    with pytest.raises(UserError, match=r"gone\.py"):
        check_stage(stage, load_tasks(stage)[0])


def test_ragen_plays_tasks_of_both_packs(tmp_path: Path) -> None:
    env = SimiaEnv(SimiaEnvConfig.model_validate({"stage": make_packs(tmp_path), "train": None, "val": None}))
    try:
        names = set()
        for seed in range(5):
            heard = env.reset(seed)
            assert heard.startswith("Switch the ")
            names.add(env.playing.trajectory.pack)
            done, reward = False, 1.0
            while not done:
                _, reward, done, _ = env.step("No.")
            assert reward == 0.0
        assert names == {"lamps", "errands"}
    finally:
        env.close()


async def test_an_episode_that_cannot_begin_is_its_packs(tmp_path: Path) -> None:
    async with await open_environment(make_packs(tmp_path)) as environment:
        task = environment.pack.task("errands/errand-0")
        lost = environment.abort(task, 0, Aborted(Code.WORKER_LOST, "on purpose"))
        assert (lost.trajectory.pack, [tool.name for tool in lost.tools]) == ("errands", ["switch"])


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"goals": [{"query": "One."}, {"query": "Two."}]}, "task t: TRL's environment_factory has no user who answers"),
    ({"instruction": "Go.", "reveals": [{"turn": 2, "tools": ["switch"]}]}, "has no user who answers"),
    ({"instruction": "Go.", "withheld": [{"fact": "The hall.", "asked": "which"}]}, "has no user who answers"),
    ({"instruction": "Go.", "tools": []}, "task t: TRL's environment_factory lists all tools of the pack"),
]


@pytest.mark.parametrize(("fields", "said"), REFUSED, ids=["goals", "reveals", "withheld", "tools"])
def test_tool_methods_refuse_tasks_that_they_cannot_play(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=f"{said}; train with rollout_func$"):
        check_tool_methods(Pack(name="p"), [Task.model_validate({"id": "t", **fields})])


async def test_tool_methods_refuse_several_packs(tmp_path: Path) -> None:
    stage = make_packs(tmp_path)
    said = "lists the tools of one pack, but these are several; train with rollout_func$"
    async with await open_environment(stage) as environment:
        with pytest.raises(UserError, match=said):
            environment_factory(environment)
    config = tmp_path / "run.yaml"
    config.write_text("model: Qwen/Qwen3-0.6B\nthrough: environment_factory\n")
    with pytest.raises(UserError, match=said):
        launch_trl(config, {"stage": stage})
