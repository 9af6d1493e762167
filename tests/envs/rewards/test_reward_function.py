"""A reward of the user's own: what the function gets, what it may return, what goes wrong in it, and who may name it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simia.envs.environment import Episode
from simia.envs.opening import open_environment
from simia.envs.rewards.reward_function import check_reward_function, load_reward_function, make_absolute
from simia.errors import Aborted, Code, UserError
from simia.pack import Pack
from simia.trajectory import Message, ToolCall
from tests.trainers import lamps

FUNCTIONS = """
import asyncio

seen = []

def half(episode):
    seen.append(episode)
    return 0.5 * episode.reward.value

async def late(episode):
    await asyncio.sleep(0)
    return {"value": episode.reward.value, "parts": {"lamps": sum(episode.state["lamps"].values())}, "rationale": "counted"}

def alone(episode):
    assert episode.reward is None
    return {"value": 1, "steps": [0.25, -0.5]}

def steps(episode):
    return {"value": 0.5, "steps": [1.0]}

def broken(episode):
    return 1 / len(episode.task.id[:0])

def text(episode):
    return "good"

def no_number(episode):
    return float("nan")

def other_key(episode):
    return {"reward": 1.0}

def nothing(episode):
    return None

number = 3
"""


@pytest.fixture
def rewards(tmp_path: Path) -> Path:
    path = tmp_path / "my_rewards.py"
    path.write_text(FUNCTIONS, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def errands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lamps.write(tmp_path_factory.mktemp("packs") / "errands", lamps.errands())


async def play(pack: Path, *, on: bool = True, **settings: Any) -> Episode:
    """Play the errand of the kitchen lamp: a call, then words."""
    config = {"pack": str(pack), **settings}
    async with await open_environment(config, say=lambda _: None) as environment:
        episode = await environment.reset("errand-0")
        call = ToolCall(id="1", name="switch", arguments={"lamp": "kitchen", "on": on})
        await episode.step(Message(role="assistant", calls=[call]))
        await episode.step(Message(role="assistant", content="Done."))
        assert episode.end is not None
        return episode


async def test_it_makes_the_reward_from_the_rules_and_the_final_state(rewards: Path, errands: Path) -> None:
    rewarded = (await play(errands, reward_function=f"{rewards}:half")).reward
    assert rewarded is not None
    assert (rewarded.value, rewarded.parts) == (0.5, {"state": 1.0, "function": 0.5})
    seen = load_reward_function(f"{rewards}:half").function.__globals__["seen"][-1]
    assert seen.task.id == "errand-0"
    assert seen.state == {"lamps": {"kitchen": True, "hall": False, "attic": False, "porch": False}}
    assert [m.role for m in seen.trajectory.messages] == ["user", "assistant", "tool", "assistant"]
    failed = (await play(errands, on=False, reward_function=f"{rewards}:half")).reward
    assert failed is not None
    assert failed.value == 0.0
    counted = (await play(errands, reward_function=f"{rewards}:late")).reward
    assert counted is not None
    assert (counted.value, counted.parts["lamps"], counted.rationale) == (1.0, 1.0, "counted")


async def test_alone_it_needs_no_rules_and_may_reward_turns(rewards: Path, errands: Path) -> None:
    reward = (await play(errands, on=False, reward="function", reward_function=f"{rewards}:alone")).reward
    assert reward is not None
    assert (reward.value, reward.steps, reward.total) == (1.0, [0.25, -0.5], 0.75)
    with pytest.raises(UserError, match="reward is function, but reward_function is not set"):
        await play(errands, reward="function")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("broken", r"ZeroDivisionError: division by zero \(my_rewards.py, line 22\)"),
        ("text", "returned 'good'; return a number, None, or a dict with value"),
        ("no_number", "returned nan; return a number"),
        ("other_key", "returned the key 'reward'; return a number"),
        ("steps", "returned 1 step; the episode has 2 messages of the agent"),
    ],
)
async def test_what_goes_wrong_is_one_line_and_no_reward(
    rewards: Path, errands: Path, name: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    episode = await play(errands, reward_function=f"{rewards}:{name}")
    reward = episode.reward
    assert reward is not None
    assert (reward.value, reward.total, reward.error) == (None, None, Code.REWARD_FUNCTION)
    assert "\n" not in reward.rationale
    assert re.fullmatch(rf"reward_function {re.escape(str(rewards))}:{name}: {words}.*", reward.rationale)
    assert caplog.text.count("the episode has no reward") == 1


async def test_none_is_no_reward(rewards: Path, errands: Path) -> None:
    reward = (await play(errands, reward_function=f"{rewards}:nothing")).reward
    assert reward is not None
    assert (reward.value, reward.error, reward.rationale) == (None, Code.REWARD_FUNCTION, "the function returned None")


async def test_it_is_not_called_where_nothing_could_be_judged(rewards: Path, errands: Path) -> None:
    function = load_reward_function(f"{rewards}:half").function
    seen = function.__globals__["seen"]
    seen.clear()
    config = {"pack": str(errands), "reward_function": f"{rewards}:half"}
    async with await open_environment(config, say=lambda _: None) as environment:
        episode = await environment.reset("errand-0")
        assert episode.world is not None

        async def lost(turns: Any = ()) -> dict[str, Any]:
            raise Aborted(Code.WORKER_LOST, "on purpose")

        episode.world.evidence = lost  # type: ignore[method-assign]
        step = await episode.step(Message(role="assistant", content="Done."))
        assert step.reward is not None
        assert (step.reward.value, step.reward.error) == (None, Code.UNSCORED)
        stopped = await (await environment.reset("errand-1")).stop(Code.AGENT_FAILED, aborted=True)
        assert stopped.reward is not None
        assert stopped.reward.value is None
    assert seen == []


async def test_who_makes_the_final_state_unreadable_earns_nothing(rewards: Path, errands: Path) -> None:
    for settings in (
        {"reward_function": f"{rewards}:half"},
        {"reward": "function", "reward_function": f"{rewards}:alone"},
    ):
        async with await open_environment({"pack": str(errands), **settings}, say=lambda _: None) as environment:
            episode = await environment.reset("errand-0")
            assert episode.world is not None

            async def lost(turns: Any = ()) -> dict[str, Any]:
                raise Aborted(Code.TOOL_FAILED, "on purpose", own=True)

            episode.world.evidence = lost  # type: ignore[method-assign]
            step = await episode.step(Message(role="assistant", content="Done."))
            assert step.reward is not None
            assert step.reward.value == 0.0


# -- finding it -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("half", "write it as FILE.py:FUNCTION or MODULE:FUNCTION"),
        ("my-rewards:half", "write it as FILE.py:FUNCTION"),
        ("missing.py:half", "there is no file"),
        ("{file}:hafl", "has no function 'hafl'"),
        ("{file}:number", "has no function 'number'"),
        ("no_such_module_of_ours:half", "if it is a file, name it as ./no_such_module_of_ours.py:half"),
        ("{folder}/syntax.py:half", "cannot be imported: SyntaxError"),
        ("{folder}/fails.py:half", r"cannot be imported: KeyError: 'x' \(fails.py, line 2\)"),
    ],
)
def test_a_name_that_cannot_be_loaded_is_one_line(rewards: Path, name: str, words: str) -> None:
    folder = rewards.parent
    (folder / "syntax.py").write_text("def half(:\n", encoding="utf-8")
    (folder / "fails.py").write_text("\n{}['x']\n", encoding="utf-8")
    with pytest.raises(UserError, match=words) as refused:
        load_reward_function(name.format(file=rewards, folder=folder))
    assert "\n" not in str(refused.value)


def test_a_check_finds_the_function_without_running_the_file(rewards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = rewards.parent / "costly.py"
    path.write_text("import torch_of_the_trainer\n\nasync def mine(episode): ...\n\nother = mine\n", encoding="utf-8")
    check_reward_function(f"{path}:mine")
    check_reward_function(f"{path}:other")
    check_reward_function("a_module_of_the_trainers:mine")
    with pytest.raises(UserError, match="has no function 'yours'"):
        check_reward_function(f"{path}:yours")
    monkeypatch.chdir(rewards.parent)
    assert make_absolute("my_rewards.py:half") == f"{rewards}:half"
    assert make_absolute("my_package.rewards:half") == "my_package.rewards:half"


def test_an_edited_file_is_read_again(rewards: Path) -> None:
    first = load_reward_function(f"{rewards}:half").function
    assert load_reward_function(f"{rewards}:half").function is first
    rewards.write_text("def half(episode):\n    return 0.25\n", encoding="utf-8")
    assert load_reward_function(f"{rewards}:half").function(None) == 0.25  # type: ignore[arg-type]


# -- a pack never names one ---------------------------------------------------------------------------------------------


def name_in_part(task: dict[str, Any]) -> None:
    task["reward"] = {"parts": [{"kind": "function", "function": "evil:reward"}]}


def name_beside_parts(task: dict[str, Any]) -> None:
    task["reward"] = {"reward_function": "evil.py:reward"}


@pytest.mark.parametrize("name", [name_in_part, name_beside_parts])
def test_a_pack_that_names_one_is_refused(tmp_path: Path, name: Callable[[dict[str, Any]], None]) -> None:
    rows = lamps.errands()
    name(rows[1])
    root = lamps.write(tmp_path / "evil", rows)
    with pytest.raises(UserError, match=r"line 2: .*a pack cannot name a reward function") as refused:
        _ = Pack.load(str(root)).tasks
    assert "\n" not in str(refused.value)


def test_a_key_of_the_pack_file_is_refused_too(tmp_path: Path) -> None:
    root = lamps.write(tmp_path / "evil", lamps.errands())
    with (root / "pack.yaml").open("a") as file:
        file.write(f"reward_function: {json.dumps('evil.py:reward')}\n")
    with pytest.raises(UserError, match="unknown key 'reward_function'"):
        Pack.load(str(root))


def test_a_file_of_a_pack_or_a_run_is_not_run(tmp_path: Path) -> None:
    root = lamps.write(tmp_path / "evil", lamps.errands())
    (root / "code").mkdir()
    run = tmp_path / "runs" / "shared"
    run.mkdir(parents=True)
    (run / "ledger.db").touch()
    link = tmp_path / "link.py"
    link.symlink_to(root / "rewards.py")
    for path in (root / "rewards.py", root / "code" / "rewards.py", run / "rewards.py", link):
        path.write_text("raise AssertionError('it ran')\ndef mine(episode): ...\n", encoding="utf-8")
        for find in (load_reward_function, check_reward_function):
            with pytest.raises(
                UserError,
                match=r"the file lies in a (pack, whose code runs in the sandbox only|run's folder); copy it elsewhere",
            ):
                find(f"{path}:mine")
