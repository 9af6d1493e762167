"""Environments of CodeGym's release as gym packs, without the defects of their own `step`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simia.cli import build_app
from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import NothingAgent, ReferenceAgent
from simia.envs.play.player import play
from simia.errors import Code, UserError
from simia.importers.codegym import read_environment_class, read_inputs
from simia.pack import Pack
from simia.trajectory import Message, ToolCall

SOURCE = Path(__file__).parent / "closest_env.py"
INPUTS = """\
ClosestEnv@{"numbers": [2, 5, 9, 14, 20], "target": 8, "name": "a@b", "sorted": true, "note": null}
ClosestEnv@{'numbers': [7, 30], 'target': 9, 'name': None}

{"numbers": [1, 4], "target": 2, "slow": true}
{"numbers": [], "target": 2}
"""


@pytest.fixture
def gym(tmp_path: Path) -> Pack:
    (tmp_path / "inputs.txt").write_text(INPUTS)
    words = ["import", "codegym", str(SOURCE), str(tmp_path / "inputs.txt"), "--out", str(tmp_path / "closest")]
    done = CliRunner().invoke(build_app(), words)
    assert done.exit_code == 0, (done.output, done.exception)
    assert "2 of 4 inputs became tasks, 2 with calls of its own solve" in " ".join(done.output.split())
    return Pack.load(tmp_path / "closest")


async def do(environment: Environment, *calls: tuple[str, dict[str, Any]]) -> tuple[list[Message], Any]:
    episode = await environment.reset("input-01")
    found: list[Message] = []
    for number, (name, arguments) in enumerate(calls):
        step = await episode.step(
            Message(role="assistant", calls=[ToolCall(id=str(number), name=name, arguments=arguments)])
        )
        found += step.messages
    state = await episode.world.state() if episode.world else None
    await episode.close()
    return found, episode.reward.value if episode.reward else state


async def test_its_own_solution_wins_and_doing_nothing_does_not(gym: Pack) -> None:
    assert [tool.name for tool in gym.tools] == ["Observe", "LookUp", "Mark", "Done"]
    assert gym.tools[1].parameters["properties"] == {"index": {"type": "integer", "description": "Position, from 0."}}
    assert "Examples" not in gym.tools[0].description
    async with await open_environment(str(gym.root), user="none") as environment:
        for task in environment.tasks:
            for agent, value in ((ReferenceAgent(task), 1.0), (NothingAgent(task), 0.0)):
                trajectory = await play(await environment.reset(task), agent)
                assert trajectory.reward is not None
                assert trajectory.reward.value == value


async def test_the_defects_of_its_step_are_gone(gym: Pack) -> None:
    async with await open_environment(str(gym.root), user="none") as environment:
        found, _ = await do(environment, ("Observe", {}))
        assert found[0].text == '{"length": 5, "target": 8, "name": "a@b"}', "true, null and @ are read"
        found, value = await do(environment, ("Done", {"answer": -1}))
        assert (found[0].text, value) == ("submitted", 0.0), "the reference answer is not told"
        episode = await environment.reset("input-01")
        both = [ToolCall(id=str(n), name="Done", arguments={"answer": n}) for n in (-1, 9)]
        step = await episode.step(Message(role="assistant", calls=both))
        assert [m.error for m in step.messages] == [None, Code.FINISHED]
        assert step.reward is not None
        assert step.reward.value == 0.0, "a second Done does not count"
        found, state = await do(
            environment, ("LookUp", {"index": 1}), ("Mark", {"label": "x", "values": [99]}), ("Observe", {})
        )
        assert [m.error for m in found] == [None, Code.TOOL_FAILED, None]
        assert "index out of range" not in found[1].text
        assert found[2].text == '{"length": 5, "target": 8, "name": "a@b"}', "what the failed action changed is undone"
        assert state["calls"] == [["LookUp", {"index": 1}], ["Observe", {}]]


def test_what_is_no_environment_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("class A:\n    def Act(self): ...\n")
    (tmp_path / "x.txt").write_text("XEnv@{}\nXEnv@[1]\n")
    with pytest.raises(UserError, match=r"x\.py has no class with an action Done"):
        read_environment_class(tmp_path / "x.py")
    with pytest.raises(UserError, match=r"x\.txt:2: an input is NAME@"):
        read_inputs(tmp_path / "x.txt")
