"""Gymnasium environments as packs: its own toy texts, a suite from the index, and small ones of ours; all run in the sandbox."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simia.authoring.validate import validate_pack
from simia.envs.environment import Episode
from simia.envs.opening import open_environment
from simia.envs.worlds.executable import make_executable_backend
from simia.envs.worlds.pack_requests import grant_options, list_requested_paths
from simia.errors import Code, UserError
from simia.importers.gymnasium import import_environment
from simia.pack import Pack
from simia.sandbox.capabilities import probe_isolation
from simia.trajectory import End, Message, ToolCall

OURS = str(Path(__file__).parent / "words_env.py")
pytestmark = [
    pytest.mark.skipif(probe_isolation().bwrap is None, reason="this machine has no sandbox: see simia doctor"),
    pytest.mark.usefixtures("environments"),
]


def imported(folder: Path, env_id: str, **more: Any) -> tuple[Pack, list[str]]:
    lines: list[str] = []
    if "textarena" not in env_id and not env_id.endswith(("v1", "v3", "v4")):
        more.setdefault("modules", [OURS])
    return Pack.load(import_environment(env_id, folder / "pack", say=lines.append, **more)), lines


async def act(episode: Episode, *actions: Any) -> list[Any]:
    found = []
    for i, action in enumerate(actions):
        step = await episode.step(
            Message(role="assistant", calls=[ToolCall(id=str(i), name="act", arguments={"action": action})])
        )
        [told] = step.messages
        found.append(told.text if told.error else json.loads(told.text))
    return found


def test_an_environment_of_words(tmp_path: Path) -> None:
    pack, lines = imported(tmp_path, "Guess-v0", kwargs={"tries": 4}, tasks=6, low=-1)
    assert lines[-1] == f"{tmp_path / 'pack'}: 6 tasks of Guess-v0, isolation: process"
    [tool] = pack.tools
    assert tool.parameters["properties"]["action"] == {"type": "string", "maxLength": 20, "description": "What to do"}
    assert [task.split for task in pack.tasks] == ["train"] * 4 + ["test", "train"]
    assert pack.tasks[2].instruction.endswith("to its end.\n\nI think of a colour. You have 4 tries.")
    assert pack.tasks[2].initial == {"seed": 2}
    assert "Guess the colour that is thought of." in (pack.policy or "")
    assert "Arguments" not in (pack.policy or "")
    assert not any("secret" in task.instruction for task in pack.tasks)
    facts = json.loads((tmp_path / "pack" / "gymnasium.json").read_text())
    assert "gymnasium==1.4.0" in facts["packages"]
    assert "probe" not in facts


async def colour(pack: Pack, task: str) -> str:
    """The colour that this task thinks of, found by trying."""
    async with await open_environment(pack) as environment:
        for each in ("red", "green", "blue"):
            episode = await environment.reset(task)
            [seen] = await act(episode, each)
            await episode.close()
            if seen["terminated"]:
                return each
    raise AssertionError


@pytest.fixture(scope="module")
def guess(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    return imported(tmp_path_factory.mktemp("guess"), "Guess-v0", tasks=6, low=-1)[0]


async def test_an_episode_ends_with_the_environment_and_is_scored_by_its_rewards(guess: Pack) -> None:
    right = await colour(guess, "guess-v0-3")
    wrong = next(each for each in ("red", "green", "blue") if each != right)
    async with await open_environment(guess) as environment:
        episode = await environment.reset("guess-v0-3")
        seen = await act(episode, wrong, "RED", right)
        assert seen[0] == {
            "observation": "No. 2 tries left.", "reward": -0.25, "total_reward": -0.25,
            "terminated": False, "truncated": False,
        }  # fmt: skip
        assert "colours are written in small letters" in seen[1]
        assert seen[2]["observation"] == "Yes!"
        assert episode.end == End(kind="terminated", code=Code.FINISHED)
        assert episode.reward is not None
        assert episode.reward.value == (0.75 + 1) / 2
        lost = await environment.reset("guess-v0-3")
        await act(lost, wrong, wrong, wrong)
        assert lost.reward is not None
        assert lost.reward.value == (-0.75 + 1) / 2


async def test_nothing_done_is_a_score_and_a_state_comes_back(guess: Pack) -> None:
    async with await open_environment(guess) as environment:
        episode = await environment.reset("guess-v0-1")
        assert (await episode.score()).value == 0.5
        await act(episode, "yellow")
        other = await episode.fork()
        [here], [there] = await act(episode, "pink"), await act(other, "pink")
        assert here == there
        assert here["observation"] == "No. 1 tries left."
        assert episode.world is not None
        state = await episode.world.state()
        assert state == {
            "seed": 1, "actions": ["yellow", "pink"], "total_reward": -0.5,
            "terminated": False, "truncated": False, "steps": 2,
        }  # fmt: skip
        await other.close()
        await episode.close()


async def test_arguments_are_checked_before(guess: Pack) -> None:
    async with await open_environment(guess) as environment:
        episode = await environment.reset("guess-v0-0")
        [seen] = await act(episode, 7)
        assert "wrong arguments for act" in seen
        await episode.close()


async def test_the_pack_is_valid(guess: Pack) -> None:
    findings, _ = await validate_pack(guess)
    assert not [finding for finding in findings if finding.refuses]


async def test_several_values_and_all_kinds_of_actions(tmp_path: Path) -> None:
    pack, _ = await asyncio.to_thread(imported, tmp_path, "Shelf-v0", tasks=1, high=10)
    action = pack.tools[0].parameters["properties"]["action"]
    assert action["properties"]["arm"] == {"type": "integer", "minimum": 1, "maximum": 3}
    assert action["properties"]["steps"]["prefixItems"][1] == {"type": "integer", "minimum": 0, "maximum": 4}
    assert action["properties"]["lights"] == {
        "type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 1}, "minItems": 3, "maxItems": 3,
    }  # fmt: skip
    assert '"marks":[[0,0],[0,0]]' in pack.tasks[0].instruction
    async with await open_environment(pack) as environment:
        episode = await environment.reset("shelf-v0-0")
        taken = {"arm": 3, "steps": [1, 4], "lights": [1, 1, 1], "word": "up"}
        seen = await act(episode, {**taken, "arm": 4}, taken)
        assert "wrong arguments for act" in seen[0]
        assert seen[1]["observation"] == {"place": 3, "marks": [[1, 1], [1, 1]], "say": "up"}
        assert seen[1]["truncated"] is True
        assert episode.reward is not None
        assert episode.reward.value == 0.5


def test_actions_bear_names(tmp_path: Path) -> None:
    pack, _ = imported(tmp_path / "a", "Named-v0", tasks=1)
    assert pack.tools[0].parameters["properties"]["action"]["enum"] == ["red", "green", "blue"]
    pack, _ = imported(tmp_path / "b", "Named-v0", tasks=1, actions=["r", "g", "b"])
    assert pack.tools[0].parameters["properties"]["action"]["enum"] == ["r", "g", "b"]
    with pytest.raises(UserError, match="it has 3 actions, but 2 different names are given"):
        imported(tmp_path / "c", "Named-v0", tasks=1, actions=["r", "g"])


async def test_one_that_does_not_repeat_itself_is_marked_and_can_be_played(tmp_path: Path) -> None:
    pack, lines = await asyncio.to_thread(imported, tmp_path, "Restless-v0", tasks=2)
    assert lines[0].startswith("Restless-v0 is not deterministic")
    assert pack.executable is not None
    assert pack.executable.repeatable is False
    async with await open_environment(pack) as environment:
        episode = await environment.reset("restless-v0-0")
        seen = await act(episode, "RED", "pink", "pink", "pink")
        assert "small letters" in seen[0]
        assert seen[3]["terminated"] is True
        assert episode.reward is not None
        assert episode.reward.value == 0.0
        assert episode.evidence is not None
        assert episode.evidence["values"] == {"total_reward": -0.75}


async def test_one_that_needs_programs_gets_a_sandbox_of_its_own(tmp_path: Path) -> None:
    pack, lines = await asyncio.to_thread(imported, tmp_path, "Shell-v0", tasks=1)
    assert pack.executable is not None
    assert pack.executable.isolation == "sandbox", lines
    assert lines[0].startswith("Shell-v0 needs a sandbox for each episode")
    async with await open_environment(pack) as environment:
        episode = await environment.reset("shell-v0-0")
        [seen] = await act(episode, "hello")
        assert seen["observation"] == "hello"
        assert (await episode.score()).value == 0.5
        await episode.close()


@pytest.mark.parametrize(
    ("env_id", "words"),
    [
        ("Film-v0", r"cannot be played by text: its observations are images \(64, 64, 3\)"),
        ("Steering-v0", "cannot be played by text: its actions are real numbers in a Box"),
        ("NoSuchThing-v0", "NoSuchThing"),
        ("CartPole-v1", r"its observations are arrays \(4,\) of real numbers"),
        ("Taxi-v3", "Please use `Taxi-v4` instead"),
    ],
)
def test_what_cannot_be_played_is_one_line(tmp_path: Path, env_id: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as error:
        imported(tmp_path, env_id)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"low": 1.0}, "the lowest reward, 1, must be less than the highest, 1"),
        ({"tasks": 0}, "a pack needs a task: give --tasks 1 or more"),
        ({"modules": ["no such.py"]}, "is not a Python file"),
        ({"modules": ["os; x"]}, "is not a module"),
        ({"modules": ["nowhere_to_be_found"]}, "No module named 'nowhere_to_be_found'"),
        ({"kwargs": {"tires": 4}}, "unexpected keyword argument"),
        ({"python": "/no/such/python"}, "is not an executable interpreter"),
        ({"pip": ["--index-url=http://evil.example.com"]}, "is not a package"),
    ],
)
def test_a_users_mistake_is_one_line(tmp_path: Path, more: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words) as error:
        imported(tmp_path, "Guess-v0", **more)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_the_command_says_what_is_wrong_with_its_json(tmp_path: Path) -> None:
    from simia.cli.imports import app

    for text, words in (("{", "--kwargs is not JSON"), ("[]", "must be a JSON object")):
        done = CliRunner().invoke(app, ["gymnasium", "Guess-v0", "--kwargs", text, "--out", str(tmp_path / "x")])
        assert isinstance(done.exception, UserError)
        assert words in str(done.exception)


def test_an_interpreter_of_the_users_own(tmp_path: Path) -> None:
    from simia.venvs import ensure_packages

    python = ensure_packages("gymnasium", pip=["gymnasium==1.4.0"])
    pack, lines = imported(tmp_path, "Guess-v0", python=str(python), tasks=1)
    assert pack.executable is not None
    assert pack.executable.python == os.path.abspath(python)
    folders = list(list_requested_paths(pack.executable))
    assert os.path.abspath(python.parent.parent) in folders
    assert lines[-1] == f"open it with {grant_options(folders)}: a pack grants itself nothing"
    with pytest.raises(UserError, match="--grant-read"):
        make_executable_backend(pack)
    assert make_executable_backend(pack, read=folders)


TOYS = [
    ("FrozenLake-v1", {}, ["left", "down", "right", "up"], (0.0, 1.0), "red is 'S' in line 1, column 1"),
    ("Taxi-v4", {}, ["south", "north", "east", "west", "pick up", "drop off"], (-200.0, 20.0), "magenta is "),
    ("Blackjack-v1", {}, ["stick", "hit"], (-1.0, 1.0), "Observation: ["),
    ("CliffWalking-v1", {}, ["up", "right", "down", "left"], (-100.0, -13.0), "o  o  o"),
]


@pytest.mark.parametrize(("env_id", "kwargs", "names", "reward", "seen"), TOYS)
async def test_gymnasiums_own_toy_texts(
    tmp_path: Path, env_id: str, kwargs: dict[str, Any], names: list[str], reward: tuple[float, float], seen: str
) -> None:
    low, high = reward
    pack, _ = await asyncio.to_thread(imported, tmp_path, env_id, tasks=3, kwargs=kwargs, low=low, high=high)
    assert pack.executable is not None
    assert (pack.executable.isolation, pack.executable.repeatable) == ("process", True)
    assert pack.tools[0].parameters["properties"]["action"]["enum"] == names
    assert seen in pack.tasks[0].instruction
    async with await open_environment(pack) as environment:
        first, second = [await environment.reset(pack.tasks[1].id) for _ in range(2)]
        walk = [names[i % len(names)] for i in range(4)]
        told = await act(first, walk[0])
        assert told == await act(second, walk[0])
        for episode in (first, second):
            await episode.close()


async def test_the_frozen_lake_is_crossed(tmp_path: Path) -> None:
    pack, _ = await asyncio.to_thread(
        imported, tmp_path, "FrozenLake-v1", tasks=1, kwargs={"is_slippery": False, "map_name": "4x4"}
    )
    async with await open_environment(pack) as environment:
        episode = await environment.reset("frozenlake-v1-0")
        seen = await act(episode, "down", "down", "right", "right", "down", "right")
        assert "red is 'G' in line 5, column 4" in seen[-1]["screen"]
        assert episode.reward is not None
        assert episode.reward.value == 1.0
        drowned = await environment.reset("frozenlake-v1-0")
        await act(drowned, "right", "down")
        assert drowned.end is not None
        assert drowned.reward is not None
        assert drowned.reward.value == 0.0


async def test_a_game_of_textarena(tmp_path: Path) -> None:
    """A real suite of texts from the index, in an environment of its own."""
    pack, _ = await asyncio.to_thread(
        imported, tmp_path, "textarena:GuessTheNumber-v0", pip=["textarena==0.7.4"], tasks=3
    )
    assert "between 1 and 20" in pack.tasks[0].instruction
    async with await open_environment(pack) as environment:
        episode = await environment.reset(pack.tasks[1].id)
        low, high, seen = 1, 20, None
        while episode.end is None:
            middle = (low + high) // 2
            [seen] = await act(episode, f"I say [{middle}].")
            low, high = (middle + 1, high) if "higher" in seen["observation"] else (low, middle - 1)
        assert "guessed the correct number" in seen["observation"]
        assert episode.reward is not None
        assert episode.reward.value == 1.0
        lost = await environment.reset(pack.tasks[1].id)
        await act(lost, "[21]", "[21]")
        assert lost.end is not None
        assert lost.reward is not None
        assert lost.reward.value == 0.0


async def test_a_pack_whose_environment_is_not_on_this_machine_says_what_to_do(guess: Pack, tmp_path: Path) -> None:
    assert guess.executable is not None
    other = guess.model_copy(
        update={"executable": guess.executable.model_copy(update={"python": "gymnasium-0123456789ab"})}
    )
    with pytest.raises(UserError, match=r"is not built on this machine: import its pack again, which builds it$"):
        await open_environment(other)
