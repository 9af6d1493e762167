"""CodeGym's promise (§4.1): a call that raises, does not end or exhausts memory leaves the environment as before, and is answered.

CodeGym runs each call in a process on a pickled copy. Here the worker rolls back, or is replaced and rebuilt from its journal.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.envs.worlds.executable import ExecutableBackend
from simia.errors import Code
from simia.sandbox.limits import MB, WorkerLimits
from simia.task import Task
from simia.trajectory import Message, ToolCall
from tests.envs.gym_packs import write_gym_pack

BOTH = pytest.mark.parametrize("isolation", ["shared", "process"])
LIMITS = WorkerLimits(wall=1.5, memory=96 * MB)
BAD = {
    "raise": Code.TOOL_FAILED,
    "refuse": Code.TOOL_ERROR,
    "exit": Code.TOOL_FAILED,
    "recurse": Code.TOOL_FAILED,
    "unwritable": Code.TOOL_FAILED,
    "loop": Code.TOOL_TIMEOUT,
    "swallow": Code.TOOL_TIMEOUT,
    "memory": Code.TOOL_CRASHED,
    "os._exit": Code.TOOL_CRASHED,
}


def call(name: str, /, **arguments: Any) -> ToolCall:
    return ToolCall(id="c", name=name, arguments=arguments)


@BOTH
async def test_a_bad_call_changes_nothing_and_is_answered(tmp_path: Path, isolation: str) -> None:
    pack = write_gym_pack(tmp_path / "gym", hostile=True)
    backend = ExecutableBackend(pack, isolation=isolation, limits=LIMITS, workers=1)
    try:
        world, other = [await backend.open(pack.task("easy-01"), seed=seed) for seed in range(2)]
        for number in range(20):  # more than a checkpoint apart
            await world.call([call("note", name=f"n{number}", value=number)])
        await other.call([call("note", name="other", value=1)])
        before, others = await world.state(), await other.state()
        for then, code in BAD.items():
            (result,) = await world.call([call("half", then=then)])
            assert result.error is code, (then, result)
            assert not result.ends
            assert "error" in result.content
            assert await world.state() == before, then
            assert await other.state() == others, then
        (result,) = await world.call([call("look_up", index=2)])
        assert result.data == 9
        await world.call([call("note", name="after", value=1)])
        assert (await world.state())["notes"] == {**before["notes"], "after": 1}
        await world.close()
        await other.close()
    finally:
        await backend.close()


@BOTH
@pytest.mark.parametrize("name", ["sneak", "sneak_and_refuse"])
async def test_also_a_tool_that_lies_about_reading(tmp_path: Path, isolation: str, name: str) -> None:
    pack = write_gym_pack(tmp_path / "gym", hostile=True)
    backend = ExecutableBackend(pack, isolation=isolation, limits=LIMITS)
    try:
        world = await backend.open(pack.task("easy-01"))
        await world.call([call("note", name="n", value=1)])
        before = await world.state()
        (result,) = await world.call([call(name)])
        assert result.error in (Code.TOOL_FAILED, Code.TOOL_ERROR)
        assert await world.state() == before
        await world.close()
    finally:
        await backend.close()


async def open_gym(folder: Path, **episode: Any) -> Environment:
    write_gym_pack(folder, hostile=True)
    settings = {"pack": str(folder), "user": "none", "episode": episode, "backend_settings": {"limits": {"wall": 1.5}}}
    return await open_environment(settings)


async def test_an_episode_goes_on_after_bad_calls_and_is_won(tmp_path: Path) -> None:
    async with await open_gym(tmp_path / "gym", turns=256) as environment:
        task = environment.pack.task("easy-01")
        episode = await environment.reset(task)
        start = time.monotonic()
        for number, then in enumerate(["raise", "loop", "os._exit"]):
            step = await episode.step(
                Message(role="assistant", calls=[ToolCall(id=f"b{number}", name="half", arguments={"then": then})])
            )
            assert step.end is None
            assert step.messages[0].error is not None
        assert time.monotonic() - start < 30, "each step is bounded"
        for number, action in enumerate(task.actions):
            step = await episode.step(
                Message(
                    role="assistant", calls=[ToolCall(id=f"c{number}", name=action.name, arguments=action.arguments)]
                )
            )
        assert step.end is not None
        assert step.end.code is Code.FINISHED
        assert step.reward is not None
        assert step.reward.value == 1.0


async def test_only_the_first_call_of_a_message_is_made(tmp_path: Path) -> None:
    async with await open_gym(tmp_path / "gym", calls=12, calls_per_message=1) as environment:
        episode = await environment.reset("easy-01")
        names = ["note", *["look_up"] * 9]
        calls = [
            ToolCall(id=f"c{n}", name=name, arguments={"name": "x", "value": 1} if name == "note" else {"index": 0})
            for n, name in enumerate(names)
        ]
        step = await episode.step(Message(role="assistant", calls=calls))
        assert step.end is None, "refused calls are neither counted nor errors in a row"
        assert [m.call_id for m in step.messages] == [each.id for each in calls]
        assert [m.error for m in step.messages] == [None, *[Code.MAX_CALLS] * 9]
        assert "at most 1 call in a message" in step.messages[1].text
        unread = ToolCall(id="u", name="", raw="[7]")
        step = await episode.step(Message(role="assistant", calls=[unread]))
        assert step.messages[0].error is Code.UNPARSABLE_ARGUMENTS
        assert "not a JSON object with a name" in step.messages[0].text
        await episode.close()


async def test_a_pack_can_ask_for_one_call_a_message(tmp_path: Path) -> None:
    write_gym_pack(tmp_path / "gym", limits={"calls": 256, "calls_per_message": 1})
    async with await open_environment(str(tmp_path / "gym"), user="none") as environment:
        episode = await environment.reset("easy-01")
        assert (episode.limits.calls, episode.limits.calls_per_message) == (256, 1)
        await episode.close()


async def test_done_counts_once(tmp_path: Path) -> None:
    """In CodeGym a second `Done` overwrites the first; here the episode has ended."""
    pack = write_gym_pack(tmp_path / "gym")
    async with await open_environment(str(tmp_path / "gym"), user="none") as environment:
        episode = await environment.reset(pack.task("easy-01"))
        calls = [ToolCall(id=f"c{n}", name="done", arguments={"answer": answer}) for n, answer in enumerate([-1, 9])]
        step = await episode.step(Message(role="assistant", calls=calls))
        assert step.reward is not None
        assert step.reward.value == 0.0
        assert step.messages[0].text == "submitted", "it does not tell the answer"
        assert step.messages[1].error is Code.FINISHED
        assert not isinstance(environment.tasks[0], str)
        assert all(isinstance(task, Task) for task in environment.tasks)
