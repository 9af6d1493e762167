"""What one episode's record cannot hold costs that episode alone."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import patch

import pytest

from simia.envs.opening import open_environment
from simia.errors import Code
from simia.jobs import Run
from simia.rollouts.job import RolloutWork as Job
from simia.rollouts.session import start_rollout
from simia.rollouts.settings import RolloutConfig
from simia.sandbox.inside.frames import MOST_LEVELS, nests_deeper, unpack_bounded
from simia.trajectory import Message, ToolCall, Trajectory
from tests.sandbox.making import HEAD, make_pack

CODE = (
    HEAD
    + """
import json

class State(BaseModel):
    notes: dict[str, Any] = {}

class World(Tools[State]):
    State = State

    @write
    def save(self, text: str) -> str:
        self.state.notes["x"] = json.loads(text)
        return "saved"
"""
)


def written(folder: Path, levels: tuple[int, ...]) -> Path:
    make_pack(folder, CODE, {"save": {"type": "object", "properties": {"text": {"type": "string"}}}})
    tasks = [
        {
            "id": f"levels-{n}",
            "instruction": "x",
            "reference": [{"name": "save", "arguments": {"text": "[" * n + "]" * n}}],
            "reward": {"parts": [{"kind": "state"}]},
        }
        for n in levels
    ]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    with (folder / "pack.yaml").open("a") as file:
        file.write("tasks: tasks.jsonl\n")
    return folder


def rewards_of(runs: Path) -> dict[str, float | None]:
    run = Run.open(runs, "r")
    bodies = [run.ledger.result(item.id) for item in run.ledger.items()]
    run.close()
    found = [Trajectory.from_row(body["trajectory"]) for body in bodies if body]
    return {each.task_id or "": each.reward.value if each.reward else None for each in found}


@pytest.mark.attack("store a value that nests too deep to be recorded", where="process")
async def test_state_that_nests_deep_costs_its_episode_alone(tmp_path: Path) -> None:
    folder = written(tmp_path / "pack", (1, 90, 150, 247, 300, 900))
    config = RolloutConfig.model_validate({"pack": str(folder), "agent": "reference"})
    done = await start_rollout(config, runs=tmp_path, name="r")
    assert "Recursion" not in done.why
    assert rewards_of(tmp_path) == {
        "levels-1": 1.0, "levels-90": 1.0, **dict.fromkeys(("levels-150", "levels-247", "levels-300", "levels-900"), 0.0),
    }  # fmt: skip


@pytest.mark.attack("make a record that cannot be written", where="process")
async def test_record_that_cannot_be_written_costs_its_episode_alone(tmp_path: Path) -> None:
    folder = written(tmp_path / "pack", (1, 2, 3))
    config = RolloutConfig.model_validate({"pack": str(folder), "agent": "reference"})
    told: list[str] = []
    write = Job._conclude

    def conclude(self: Job, item: object, task: object, trajectory: Trajectory) -> str:
        if trajectory.reward is not None and trajectory.reward.value is not None and trajectory.task_id == "levels-2":
            trajectory = trajectory.model_copy(update={"extra": {"deep": "\ud800"}})
        elif trajectory.task_id == "levels-2":
            told.append(trajectory.reward.rationale if trajectory.reward else "")
        return write(self, item, task, trajectory)  # type: ignore[arg-type]

    with patch.object(Job, "_conclude", conclude):
        await start_rollout(config, runs=tmp_path, name="r")
    assert rewards_of(tmp_path) == {"levels-1": 1.0, "levels-2": None, "levels-3": 1.0}
    assert "task levels-2: the record cannot be written" in told[0]


@pytest.mark.attack("write arguments that cannot be recorded")
@pytest.mark.parametrize("deep", [150, 300, 5000])
async def test_arguments_that_cannot_be_written_are_kept_as_text(tmp_path: Path, deep: int) -> None:
    value: object = "\ud800"
    for _ in range(deep):
        value = [value]
    async with await open_environment(str(written(tmp_path / "pack", (1,))), user="none") as environment:
        episode = await environment.reset("levels-1")
        for arguments in ({"text": value}, {"text": "\ud800"}):
            call = ToolCall(id="1", name="save", arguments=arguments)
            step = await episode.step(Message(role="assistant", content="\ud800", calls=[call]))
            assert step.messages[0].error is Code.UNPARSABLE_ARGUMENTS
        await episode.step(Message(role="assistant", content="Done."))
        assert episode.reward is not None
        assert episode.reward.value == 0
        row = episode.trajectory.to_row()
        assert not nests_deeper(row, 2 * MOST_LEVELS)
        json.dumps(row, ensure_ascii=False).encode()
        await episode.close()


@pytest.mark.attack("send an answer that nests deep, or holds half a character")
def test_frames_are_bounded_in_depth_and_are_unicode() -> None:
    for levels in (1, 100, 103):
        assert not nests_deeper(unpack_bounded(b"[" * levels + b"]" * levels, 10_000), levels)
    for body in (b"[" * 104 + b"]" * 104, b'{"a":' * 400 + b"1" + b"}" * 400, rb' "\ud800"', b' "\xed\xa0\x80"'):
        with pytest.raises(ValueError):
            unpack_bounded(body, 10_000)
    assert unpack_bounded(b" [123456789012345678901234567890]", 10) == [123456789012345678901234567890]
