"""An episode whose own calls make its state unreadable is scored; one that the machine lost is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simia.envs.environment import Environment
from simia.envs.episode import Episode
from simia.envs.opening import open_environment
from simia.errors import Code
from simia.sandbox.limits import MB, WorkerLimits
from simia.trajectory import Message, ToolCall
from tests.sandbox.making import ANY, HEAD, make_pack

CODE = (
    HEAD
    + """
import json, os, signal

class State(BaseModel):
    held: Any = None

class World(Tools[State]):
    State = State

    @write
    def hold(self, text: str) -> str:
        self.state.held = json.loads(text)
        return "held"

    @write
    def fill(self, size: int) -> str:
        self.state.held = "x" * size
        return "held"

    @write
    def dice(self) -> str:
        return os.urandom(16).hex()

    @write
    def die(self, number: int) -> str:
        os._exit(3)
"""
)
TASK = {
    "id": "t", "instruction": "x", "reference": [{"name": "hold", "arguments": {"text": "1"}}], "reward": {"parts": [{"kind": "state"}]},
}  # fmt: skip


def written(folder: Path, code: str = CODE) -> str:
    make_pack(folder, code, dict.fromkeys(("hold", "fill", "dice", "die"), ANY))
    (folder / "tasks.jsonl").write_text(json.dumps(TASK) + "\n")
    with (folder / "pack.yaml").open("a") as file:
        file.write("tasks: tasks.jsonl\n")
    return str(folder)


LIMITS = {"limits": WorkerLimits(state=4 * MB)}


async def played(environment: Environment, *calls: tuple[str, dict[str, object]], kill: bool = False) -> Episode:
    episode = await environment.reset("t")
    for number, (name, arguments) in enumerate(calls):
        call = ToolCall(id=str(number), name=name, arguments=arguments)
        if episode.end is None:
            await episode.step(Message(role="assistant", calls=[call]))
    if kill:  # as the machine does when its memory ends
        worker = episode.world._slot.live  # type: ignore[union-attr]
        await worker._zygote.end(worker._number)
    if episode.end is None:
        await episode.step(Message(role="assistant", content="Done."))
    return episode


@pytest.mark.attack("make the final state unreadable, so that the episode has no reward", where="process")
@pytest.mark.parametrize(
    "call", [("hold", {"text": "[" * 300 + "]" * 300}), ("fill", {"size": 5 * MB})], ids=["deep", "large"]
)
async def test_unreadable_state_of_its_own_making_is_worth_nothing(
    tmp_path: Path, call: tuple[str, dict[str, object]]
) -> None:
    async with await open_environment(written(tmp_path / "pack"), user="none", backend_settings=LIMITS) as environment:
        episode = await played(environment, call)
        assert episode.reward is not None
        assert (episode.reward.value, episode.reward.error) == (0.0, None)
        assert "made its final state unreadable" in episode.reward.rationale
        assert [issue.where for issue in episode.issues] == ["score"]
        good = await played(environment, ("hold", {"text": "1"}))
        assert good.reward is not None
        assert good.reward.value == 1


@pytest.mark.attack(
    "end the worker after a call that cannot be repeated, so that the episode has no reward", where="process"
)
async def test_replay_that_diverges_after_a_crash_of_its_own_is_scored(tmp_path: Path) -> None:
    async with await open_environment(written(tmp_path / "pack"), user="none", backend_settings=LIMITS) as environment:
        episode = await played(environment, ("dice", {}), ("die", {"number": 1}))
        assert episode.end is not None
        assert (episode.end.kind, episode.end.code) == ("truncated", Code.REPLAY_DIVERGED)
        assert episode.reward is not None
        assert episode.reward.value == 0


async def test_what_the_machine_lost_has_no_reward(tmp_path: Path) -> None:
    async with await open_environment(written(tmp_path / "pack"), user="none", backend_settings=LIMITS) as environment:
        episode = await played(environment, ("dice", {}), kill=True)
        assert episode.reward is not None
        assert (episode.reward.value, episode.reward.error) == (None, Code.UNSCORED)
        assert [issue.code for issue in episode.issues] == [Code.REPLAY_DIVERGED]


async def test_state_that_no_episode_can_read_has_no_reward(tmp_path: Path) -> None:
    code = CODE.replace("held: Any = None", "held: Any = 'x' * (5 << 20)")
    async with await open_environment(
        written(tmp_path / "pack", code), user="none", backend_settings=LIMITS
    ) as environment:
        episode = await played(environment, ("hold", {"text": "1"}))
        assert episode.reward is not None
        assert episode.reward.value is None
