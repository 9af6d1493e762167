"""tau-bench's first version as packs: a small folder of ours in its form; and, where its repository is at hand, its own rewards beside simia's."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from simia.envs.environment import Environment, EpisodeLimits
from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import NothingAgent, ReferenceAgent
from simia.envs.play.player import play
from simia.errors import Code, UserError
from simia.importers import taubench
from simia.pack import Pack
from simia.task import Task
from simia.trajectory import Message, ToolCall, Trajectory
from tests.command import run_simia
from tests.importers.small_taubench import write_folder

BENCHMARK = Path(os.environ.get("SIMIA_TAUBENCH") or Path(__file__).parents[3] / "shared/data/tau-bench")
benchmark = pytest.mark.skipif(not BENCHMARK.is_dir(), reason=f"tau-bench's repository is not at {BENCHMARK}")
PROBE = Path(__file__).parent / "taubench_probe.py"
FLOOR = {"retail": 7, "airline": 19}  # tests whose actions change nothing and that ask for no output
SIZE = {"retail": 115, "airline": 50}
LIMITS = EpisodeLimits(turns=60, errors=60)
Calls = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return taubench.import_domain(write_folder(tmp_path / "folder"), "retail", tmp_path / "pack")


class CallsAgent:
    """Makes these calls, then says these words."""

    def __init__(self, calls: Calls, words: str = "Done.") -> None:
        self._calls, self._words = list(calls), words

    async def act(self, view: Any) -> tuple[Message, None]:
        if not self._calls:
            return Message(role="assistant", content=self._words), None
        name, arguments = self._calls.pop(0)
        return Message(role="assistant", calls=[ToolCall(id="1", name=name, arguments=arguments)]), None


async def play_with(environment: Environment, task: Task, agent: Any) -> Trajectory:
    return await play(await environment.reset(task), agent)


def value(trajectory: Trajectory) -> float | None:
    return trajectory.reward.value if trajectory.reward else None


def test_the_pack_has_the_benchmarks_words_and_tools(small: Path) -> None:
    pack = Pack.load(small)
    assert [tool.name for tool in pack.tools] == ["call_librarian", "find_book", "lend_book"]
    assert pack.tools[2].description == "Lends a book. It is quick."
    assert (small / "user.md").read_text(
        encoding="utf-8"
    ) == "You are a visitor of a library.\nSay ###STOP### at the end.\n"
    assert pack.policy == "Be kind."
    assert [task.id for task in pack.tasks] == ["test-0", "test-1", "test-2"]
    assert all("evaluation" in task.tags for task in pack.tasks)
    assert [[call.name for call in task.actions] for task in pack.tasks] == [
        ["find_book", "lend_book"],
        ["find_book"],
        [],
    ]
    assert "no_change" in pack.task("test-2").tags
    assert run_simia("pack", "validate", small).returncode == 0


async def test_rewards_are_of_the_data_and_of_the_words(small: Path) -> None:
    async with await open_environment(str(small), user="none") as environment:
        lend, ask, none = environment.tasks
        for task, nothing in ((lend, 0.0), (ask, 0.0), (none, 1.0)):
            assert value(await play_with(environment, task, ReferenceAgent(task))) == 1.0
            assert value(await play_with(environment, task, NothingAgent(task))) == nothing
        twice: Calls = [("lend_book", {"book": "emma"})] * 2
        played = await play_with(environment, lend, CallsAgent(twice))
        # A call that raised keeps what it changed, as in tau-bench.
        assert [m.text for m in played.messages if m.role == "tool"] == ['{"out": 2}', "Error: all copies are out"]
        assert [m.error for m in played.messages if m.role == "tool"] == [None, Code.TOOL_ERROR]
        assert value(played) == 0.0
        assert value(await play_with(environment, lend, CallsAgent(twice[:1]))) == 1.0
        for words, expected in (("It is 1,200.", 1.0), ("It is 120.", 0.0)):
            assert value(await play_with(environment, ask, CallsAgent([], words))) == expected
        ended = await play_with(environment, ask, CallsAgent([("call_librarian", {"book": "emma"})]))
        assert (ended.end.kind, ended.end.code) == ("terminated", Code.FINISHED)


def test_what_is_missing_is_one_line(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder")
    with pytest.raises(UserError, match=r"^tau-bench has no domain 'retial'; did you mean 'retail'[?]$"):
        taubench.import_domain(folder, "retial")
    with pytest.raises(
        UserError, match=r"has no folder tau_bench/envs/airline: give the path of a checkout of github.com"
    ):
        taubench.import_domain(folder, "airline")
    path = folder / "tau_bench" / "envs" / "retail" / "tools" / "find_book.py"
    path.write_text(path.read_text(encoding="utf-8").replace('"find_book"', "NAME"), encoding="utf-8")
    with pytest.raises(UserError, match=r"find_book.py: get_info does not return a literal"):
        taubench.import_domain(folder, "retail", tmp_path / "out")
    assert not (tmp_path / "out").exists()


async def score_all(environment: Environment, tasks: Sequence[Task], make: Callable[[Task], Any]) -> list[float | None]:
    room = asyncio.Semaphore(2)

    async def one(task: Task) -> float | None:
        async with room:
            return value(await play_with(environment, task, make(task)))

    return await asyncio.gather(*(one(task) for task in tasks))


@benchmark
@pytest.mark.all
@pytest.mark.parametrize("domain", taubench.DOMAINS)
async def test_every_reference_scores_one_and_doing_nothing_its_floor(tmp_path: Path, domain: str) -> None:
    pack = taubench.import_domain(BENCHMARK, domain, tmp_path / "pack")
    async with await open_environment(str(pack), user="none", episode=LIMITS) as environment:
        tests = [task for task in environment.tasks if task.split == "test"]
        assert len(tests) == SIZE[domain]
        assert Counter(await score_all(environment, tests, ReferenceAgent)) == {1.0: len(tests)}
        idle = Counter(await score_all(environment, tests, NothingAgent))
        assert idle == {1.0: FLOOR[domain], 0.0: len(tests) - FLOOR[domain]}


@benchmark
@pytest.mark.all
@pytest.mark.parametrize("domain", taubench.DOMAINS)
async def test_rewards_are_tau_benchs_own(tmp_path: Path, domain: str) -> None:
    """Doing nothing, and references without a call, in another order, or with a call of another task."""
    rng = random.Random(f"tau-bench {domain}")
    pack = taubench.import_domain(BENCHMARK, domain, tmp_path / "pack")
    async with await open_environment(str(pack), user="none", episode=LIMITS) as environment:
        tests = [task for task in environment.tasks if task.split == "test"]
        played = {task.id: alter(task, rng, tests) for task in tests}
        own = await score_all(environment, tests, lambda task: CallsAgent(played[task.id], "It is 1,200.50."))
    episodes = [
        {"index": at, "actions": [*played[task.id], ("respond", {"content": "It is 1,200.50."})]}
        for at, task in enumerate(tests)
    ]
    theirs = ask_benchmark(domain, episodes)
    assert own == theirs
    assert 0.2 < sum(theirs) / len(theirs) < 0.9


def ask_benchmark(domain: str, episodes: list[dict[str, Any]]) -> list[float]:
    done = subprocess.run(
        [sys.executable, "-P", str(PROBE), str(BENCHMARK), domain],
        input=json.dumps(episodes), capture_output=True, text=True, check=True, timeout=600,
    )  # fmt: skip
    found: list[float] = json.loads(done.stdout)
    return found


def alter(task: Task, rng: random.Random, others: Sequence[Task]) -> Calls:
    calls: Calls = [(action.name, action.arguments) for action in task.actions]
    how = rng.choice(("same", "nothing", "drop", "shuffle", "insert"))
    if how == "nothing":
        return []
    if how == "drop" and calls:
        calls.pop(rng.randrange(len(calls)))
    elif how == "shuffle":
        rng.shuffle(calls)
    elif how == "insert":
        foreign = [(action.name, action.arguments) for other in others for action in other.actions]
        calls.insert(rng.randint(0, len(calls)), rng.choice(foreign))
    return calls
