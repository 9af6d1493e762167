"""Tasks as the data sets that verl reads: a Parquet file of rows, each of which is a group of episodes.

A row holds what verl's RLHFDataset wants: a prompt (a stand-in, for the agent loop makes the real one when the episode begins), the
agent loop's name, the data source (the pack: validation is reported for each), and in `extra_info` the task and a number of the row,
which verl calls its index. Rows repeat when there are fewer tasks than a batch needs, for verl drops what does not fill one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simia.envs.config import EnvironmentConfig
from simia.envs.opening import select_tasks
from simia.exporting.parquet_table import import_arrow
from simia.pack import Pack
from simia.task import Task

AGENT = "simia"


def make_task_rows(
    pack: Pack, tasks: Sequence[Task], at_least: int = 1, *, validates: bool = False
) -> list[dict[str, Any]]:
    """A row a task, all of them again until there are `at_least` rows. Rows to validate on say so: nothing else tells the agent
    loop, and their groups are others than those that are trained on in the same step."""
    mark = {"validates": True} if validates else {}
    times = -(-at_least // len(tasks))
    return [
        {
            "prompt": [{"role": "user", "content": task.opening or task.instruction or task.id}],
            "agent_name": AGENT,
            "data_source": pack.name,
            "reward_model": {"style": "simia", "ground_truth": ""},
            "extra_info": {"index": number, "task": task.id, "split": task.split, **mark},
        }
        for number, task in enumerate([*tasks] * times)
    ]


def make_stage_rows(
    stage: EnvironmentConfig, split: str | None = None, at_least: int = 1, *, validates: bool = False
) -> list[dict[str, Any]]:
    """The rows of a stage's tasks (of one split, where it is named). Raises `UserError` for a split that the pack does not have,
    or where pyarrow is missing."""
    import_arrow()
    pack = Pack.load(stage.pack)
    tasks = select_tasks(pack, stage if split is None else stage.model_copy(update={"split": split}))
    return make_task_rows(pack, tasks, at_least, validates=validates)


def save_parquet(path: Path, found: list[dict[str, Any]]) -> None:
    pa, parquet = import_arrow()
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(found), path)


def write_tasks(
    path: Path, stage: EnvironmentConfig, split: str | None = None, at_least: int = 1, *, validates: bool = False
) -> int:
    """Write the rows of `make_stage_rows` to a file and return their number."""
    found = make_stage_rows(stage, split, at_least, validates=validates)
    save_parquet(path, found)
    return len(found)
