"""BFCL's multi-turn tasks as a pack: what the importer writes, ground truths and doing nothing, and simia's reward beside BFCL's own checker.

BFCL's checker runs in the "bfcl" environment (`bfcl_probe.py`), which is built once and kept in the cache.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from simia.envs.environment import Environment, EpisodeLimits
from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import NothingAgent, ReferenceAgent, make_text_message
from simia.envs.play.player import play
from simia.errors import UserError
from simia.importers import bfcl
from simia.pack import Pack
from simia.task import Action, Task
from simia.trajectory import Message, ToolCall, Trajectory
from tests.command import run_simia

PROBE = Path(__file__).parent / "bfcl_probe.py"
TAGS = ["base", "missing_function", "missing_parameter", "long_context"]
CATEGORY = {tag: category for category, tag in bfcl.CATEGORIES.items()}
AT_ONCE = 4
LIMITS = EpisodeLimits(turns=168, errors=168)  # as in configs/eval/bfcl.yaml
Turns = list[list[Action]]


@pytest.fixture(scope="session")
def python(environments: Callable[[str], Path]) -> Path:
    return environments("bfcl")


@pytest.fixture(scope="session")
def bfcl_pack(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bfcl.import_multi_turn(out=tmp_path_factory.mktemp("bfcl") / "bfcl", say=print)


def value(trajectory: Trajectory) -> float | None:
    return trajectory.reward.value if trajectory.reward else None


async def score(
    environment: Environment, tasks: Sequence[Task], make_agent: Callable[[Task], Any]
) -> list[float | None]:
    room = asyncio.Semaphore(AT_ONCE)

    async def one(task: Task) -> float | None:
        async with room:
            return value(await play(await environment.reset(task), make_agent(task)))

    return await asyncio.gather(*(one(task) for task in tasks))


class TurnsAgent:
    """Makes the calls of each turn one by one, and then answers."""

    def __init__(self, turns: Turns) -> None:
        self._messages = [
            message
            for turn in turns
            for message in [
                *(call_message(number, call) for number, call in enumerate(turn)),
                make_text_message("Done."),
            ]
        ]

    async def act(self, view: Any) -> tuple[Message, None]:
        return self._messages.pop(0), None


def call_message(number: int, call: Action) -> Message:
    return Message(role="assistant", calls=[ToolCall(id=f"call_{number}", name=call.name, arguments=call.arguments)])


def test_the_pack_has_all_tasks_with_their_words_and_tools(bfcl_pack: Path) -> None:
    pack = Pack.load(bfcl_pack)
    assert Counter(tag for task in pack.tasks for tag in task.tags) == {"bfcl": 800, **dict.fromkeys(TAGS, 200)}
    assert len(pack.tools) == 128
    assert pack.evaluation
    assert {task.split for task in pack.tasks} == {"test"}
    assert set(Counter(task.scenario for task in pack.tasks).values()) == {4}, "a task of each category"
    base, missing = pack.task("multi_turn_base_0"), pack.task("multi_turn_miss_func_0")
    assert [goal.calls[0].name if goal.calls else "" for goal in base.goals] == ["cd", "cd", "sort", "cd"]
    assert base.goals[2].calls[0].arguments == {"file_name": "final_report.pdf"}  # by its place in BFCL's text
    assert [reveal.model_dump() for reveal in missing.reveals] == [{"turn": 4, "tools": ["sort"], "runs": True}]
    assert missing.goals[3].query == "I have updated some more functions you can choose from. What about now?"
    assert "sort" not in (missing.tools or [])
    assert "sort" in (base.tools or [])
    assert [task.initial["long_context"] for task in (base, pack.task("multi_turn_long_context_0"))] == [False, True]
    # BFCL's types are JSON Schema's, also where a parameter is named `type`.
    kinds = {spec["type"] for tool in pack.tools for spec in tool.parameters["properties"].values()}
    assert kinds <= {"string", "number", "integer", "boolean", "array", "object"}
    assert not [
        line for line in run_simia("pack", "validate", bfcl_pack).stdout.splitlines() if line.startswith("fault")
    ]


def test_the_api_classes_are_copied_unchanged(bfcl_pack: Path, python: Path) -> None:
    package = "bfcl_eval/eval_checker/multi_turn_eval/func_source_code"
    source = bfcl.find_package(python).parent / package
    copied = {path.name: path.read_bytes() for path in (bfcl_pack / "code" / package).glob("*.py")}
    assert copied == {name: (source / name).read_bytes() for name in copied}
    assert len(copied) == 10


def pick(pack: Pack, tag: str, step: int, start: int) -> list[Task]:
    return [task for task in pack.tasks if tag in task.tags][start::step]


@pytest.mark.parametrize("tag", TAGS)
async def test_ground_truths_score_one_and_doing_nothing_zero(bfcl_pack: Path, tag: str) -> None:
    """Every twentieth task, and the ones that the importer has to treat with care; all of them below."""
    careful = {"multi_turn_miss_func_49", "multi_turn_long_context_46", "multi_turn_base_173"}
    async with await open_environment(str(bfcl_pack), episode=LIMITS) as environment:
        tasks = pick(environment.pack, tag, 20, 3)
        tasks += [task for task in environment.tasks if task.id in careful and tag in task.tags]
        assert await score(environment, tasks, ReferenceAgent) == [1.0] * len(tasks)
        assert await score(environment, tasks, NothingAgent) == [0.0] * len(tasks)


@pytest.mark.all
async def test_all_ground_truths_score_one_and_doing_nothing_zero(bfcl_pack: Path) -> None:
    async with await open_environment(str(bfcl_pack), episode=LIMITS) as environment:
        assert len(environment.tasks) == 800
        assert Counter(await score(environment, environment.tasks, ReferenceAgent)) == {1.0: 800}
        assert Counter(await score(environment, environment.tasks, NothingAgent)) == {0.0: 800}


@pytest.mark.parametrize("tag", TAGS)
async def test_rewards_are_those_of_bfcls_checker(bfcl_pack: Path, python: Path, tag: str) -> None:
    """Ground truths with calls left out, repeated, swapped, moved to another turn, altered, or taken from another task."""
    await compare_with_checker(bfcl_pack, python, tag, step=16, each=3)


@pytest.mark.all
@pytest.mark.parametrize("tag", TAGS)
async def test_more_rewards_are_those_of_bfcls_checker(bfcl_pack: Path, python: Path, tag: str) -> None:
    await compare_with_checker(bfcl_pack, python, tag, step=2, each=6)


async def compare_with_checker(folder: Path, python: Path, tag: str, *, step: int, each: int) -> None:
    rng = random.Random(f"bfcl {tag}")
    data = bfcl.find_folder(bfcl.find_package(python), "multi_turn_func_doc").parent
    rows = {row["id"]: (row, truth) for row, truth in bfcl.pair_answers(data, CATEGORY[tag])}
    async with await open_environment(str(folder), episode=LIMITS) as environment:
        picked = pick(environment.pack, tag, step, rng.randrange(step))
        tasks = [task.model_copy() for task in picked for _ in range(each)]
        played = {id(task): alter(task, rng, environment.tasks) for task in tasks}
        own = await score(environment, tasks, lambda task: TurnsAgent(played[id(task)]))
    theirs = ask_checker(python, [make_episode(*rows[task.id], played[id(task)]) for task in tasks])
    differ = [(task.id, a, b) for task, a, b in zip(tasks, own, theirs, strict=True) if a != float(not b)]
    assert not differ, differ[:3]
    kinds = Counter(theirs)
    assert kinds[""] >= len(tasks) / 10, kinds
    assert sum(kinds.values()) - kinds[""] >= len(tasks) / 4, kinds


def make_episode(row: dict[str, Any], truth: list[list[str]], turns: Turns) -> dict[str, Any]:
    return {"task": row, "truth": truth, "turns": [[[write(call)] for call in turn] for turn in turns]}


def ask_checker(python: Path, episodes: list[dict[str, Any]]) -> list[str]:
    """The type of error that BFCL's checker finds in each episode; empty where it is valid."""
    command = [str(python), "-s", "-P", str(PROBE)]
    done = subprocess.run(command, input=json.dumps(episodes), capture_output=True, text=True, check=True, timeout=300)
    found: list[str] = json.loads(done.stdout)
    return found


def alter(task: Task, rng: random.Random, others: Sequence[Task]) -> Turns:
    """The ground truth with one or two changes."""
    turns: Turns = [[Action(**call.model_dump(exclude={"mask"})) for call in goal.calls] for goal in task.goals]
    for _ in range(rng.choice((1, 1, 2))):
        places = [(at, number) for at, turn in enumerate(turns) for number in range(len(turn))]
        if not places:
            break
        at, number = rng.choice(places)
        call = turns[at][number]
        how = rng.choice(("drop", "repeat", "swap", "move", "alter", "insert", "empty"))
        if how == "drop":
            del turns[at][number]
        elif how == "repeat":
            turns[at].insert(number, call)
        elif how == "swap":
            rng.shuffle(turns[at])
        elif how == "move":
            del turns[at][number]
            rng.choice(turns).append(call)
        elif how == "alter" and call.arguments:
            name = rng.choice(sorted(call.arguments))
            turns[at][number] = call.model_copy(
                update={"arguments": {**call.arguments, name: spoil(call.arguments[name])}}
            )
        elif how == "insert":
            turns[at].insert(number, find_other_call(task, rng, others))
        elif how == "empty":
            turns[at] = []
    return turns


def spoil(given: Any) -> Any:
    if isinstance(given, bool):
        return not given
    if isinstance(given, int | float):
        return given + 1
    return f"{given}x" if isinstance(given, str) else given[1:] if isinstance(given, list) else None


def find_other_call(task: Task, rng: random.Random, others: Sequence[Task]) -> Action:
    """A call of another task's ground truth whose function this one has."""
    for _ in range(200):
        calls = [call for call in rng.choice(others).actions if call.name in (task.tools or [])]
        if calls:
            return Action(**rng.choice(calls).model_dump(exclude={"mask"}))
    raise AssertionError("no other task uses this one's functions")


def write(call: Action) -> str:
    return f"{call.name}({', '.join(f'{name}={each!r}' for name, each in call.arguments.items())})"


async def test_a_state_can_be_restored_and_an_episode_repeats(bfcl_pack: Path) -> None:
    async with await open_environment(str(bfcl_pack), episode=LIMITS) as environment:
        for name in ("multi_turn_base_1", "multi_turn_long_context_150"):
            task = environment.pack.task(name)
            found = []
            for _ in range(2):
                episode = await environment.reset(task)
                trajectory = await play(episode, ReferenceAgent(task))
                found.append([message.text for message in trajectory.messages])
            assert found[0] == found[1]
            world = await environment.backend.open(task, seed=0, group=None)
            for call in task.actions:
                await world.call([ToolCall(id="a", name=call.name, arguments=call.arguments)])
            again = await environment.backend.open(task, seed=0, group=None, snapshot=await world.snapshot())
            assert await again.state() == await world.state()
            await world.close()
            await again.close()


def test_a_users_copy_is_read_and_what_is_missing_is_one_line(bfcl_pack: Path, python: Path, tmp_path: Path) -> None:
    source = tmp_path / "gorilla" / "berkeley-function-call-leaderboard" / "bfcl_eval"
    shutil.copytree(bfcl.find_package(python), source, ignore=shutil.ignore_patterns("__pycache__", "model_handler"))
    pack = bfcl.import_multi_turn(tmp_path / "gorilla", tmp_path / "mine")
    assert (pack / "tasks.jsonl").read_bytes() == (bfcl_pack / "tasks.jsonl").read_bytes()
    for path, words in {
        "data/possible_answer/BFCL_v4_multi_turn_base.json": "No such file or directory",
        "data/BFCL_v4_multi_turn_miss_func.json": "has no file BFCL_v[*]_multi_turn_miss_func.json",
        "data/multi_turn_func_doc": "has no folder multi_turn_func_doc",
    }.items():
        kept = source / path
        kept.rename(tmp_path / "aside")
        with pytest.raises(UserError, match=words) as refused:
            bfcl.import_multi_turn(tmp_path / "gorilla", tmp_path / "other")
        assert "github.com/ShishirPatil/gorilla" in str(refused.value)
        (tmp_path / "aside").rename(kept)
    assert not (tmp_path / "other").exists()
