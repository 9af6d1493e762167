"""The benchmark's own subtasks: solutions of ours score 1, and doing nothing scores only where docs/officebench.md says so."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.envs.worlds.simulated import SimulatedBackend
from simia.errors import UserError
from simia.importers.officebench_solutions import SHIPPED
from simia.pack import Pack
from simia.task import Task
from tests.command import run_simia
from tests.importers.officebench.conftest import plain
from tests.importers.officebench.play import BENCHMARK, LIMITS, SOLUTIONS, benchmark, played, value, walls

pytestmark = [walls, benchmark]
UNTOUCHED = ["1-2/1", "1-11/3"]  # they pass before anybody has done anything
UNSOLVED = ["1-9/0", "1-10/3", "1-11/3", "1-14/2", "1-22/1"]  # their data is wrong
SAMPLE = [
    "1-1/0", "1-2/3", "1-3/4", "1-4/1", "1-6/0", "1-7/5", "1-8/0", "1-11/0", "1-14/1", "1-16/0", "1-18/1", "1-20/0",
    "2-3/0", "2-12/0", "2-27/0", "2-33/0", "2-39/4", "2-45/0",
    "3-6/0", "3-12/1", "3-21/0", "3-30/0", "3-36/0", "3-75/0", "3-93/0", "3-99/0",
]  # fmt: skip
AT_ONCE = 2


async def scores(environment: Environment, tasks: list[Task], *, solve: bool) -> dict[str, float | None]:
    room = asyncio.Semaphore(AT_ONCE)

    async def one(task: Task) -> float | None:
        async with room:
            calls = [(action.name, action.arguments) for action in task.actions] if solve else []
            return value(await played(environment, task, calls))

    return dict(zip([t.id for t in tasks], await asyncio.gather(*(one(t) for t in tasks)), strict=True))


def test_the_solutions_are_of_every_app_and_size() -> None:
    lines = [line for path in (SHIPPED, SOLUTIONS) for line in path.read_text(encoding="utf-8").splitlines()]
    rows = [json.loads(line) for line in lines]
    assert {row["task"] for row in rows} >= set(SAMPLE)
    sampled = [row for row in rows if row["task"] in SAMPLE]
    assert len([row for row in sampled if row["task"].startswith("1-")]) >= 10
    assert len([row for row in sampled if not row["task"].startswith("1-")]) >= 12
    apps = {action["name"].partition(".")[0] for row in sampled for action in row["actions"]}
    assert apps == {"calendar", "email", "excel", "ocr", "pdf", "shell", "system", "word"}


@pytest.mark.usefixtures("environments")
async def test_a_sample_of_solutions_scores_one(whole_pack: Path) -> None:
    async with await open_environment(str(whole_pack), episode=LIMITS) as environment:
        found = await scores(environment, [environment.pack.task(name) for name in SAMPLE], solve=True)
    assert found == dict.fromkeys(SAMPLE, 1.0)


@pytest.mark.usefixtures("environments")
@pytest.mark.parametrize(("agent", "expected"), [("reference", 1.0), ("nothing", 0.0)])
def test_the_suite_scores_solutions_of_two_and_three_apps(
    whole_pack: Path, tmp_path: Path, agent: str, expected: float
) -> None:
    """The suite over seven tasks of each size, with our solutions: 1 after them, and 0 before."""
    parts = [{"pack": str(whole_pack), "name": f"{n}-apps", "tags": [f"{n}_apps"], "limit": 7} for n in (2, 3)]
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump({"extends": "eval/officebench", "packs": parts}))
    done = run_simia(
        "eval", "./suite.yaml", "--agent", agent, "--set", "episode.turns=200", "--name", agent, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    scores = json.loads(run_simia("report", agent, "--json", cwd=tmp_path).stdout)["scores"]["parts"]
    assert {name: (part["tasks"], part["figures"]["avg@1"]["value"]) for name, part in scores.items()} == {
        "2-apps": (7, expected),
        "3-apps": (7, expected),
    }


def test_training_tasks_have_solutions_and_evaluation_tasks_have_none(tmp_path: Path) -> None:
    pack = Pack.load(plain(BENCHMARK, tmp_path / "pack"))
    train = [task for task in pack.tasks if task.split == "train"]
    assert len(train) == 85
    assert [task.id for task in train if not task.solved] == UNSOLVED
    assert not any(task.solved for task in pack.tasks if task.split == "test")
    assert sum(task.solved for task in pack.tasks) == 80


@pytest.mark.usefixtures("environments")
def test_references_are_recorded_and_reach_the_simulator(tmp_path: Path) -> None:
    """Three training tasks, one of each size; all 80 below."""
    wanted = {"1-1/0", "1-10/0", "1-20/1"}
    folder = plain(BENCHMARK, tmp_path / "pack")
    rows = [json.loads(line) for line in (folder / "tasks.jsonl").read_text(encoding="utf-8").splitlines()]
    kept = [row for row in rows if row["id"] in wanted or row["split"] == "test"]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    done = run_simia("pack", "record", folder)
    assert done.returncode == 0, done.stderr
    assert "3 references written" in done.stdout
    pack = Pack.load(folder)
    assert set(pack.references) == wanted
    backend = SimulatedBackend(pack)
    backend.check_references([task for task in pack.tasks if task.split == "train"])
    system, user = (message["content"] for message in backend.feedback.messages(pack.task("1-10/0"), [], "", []))
    assert 'result: "The following is the table from the excel file:\\n(1, 1): Name\\t(1, 2): midterm1' in user
    assert "Example of a result: Successfully create a new event to Bob's calendar." in system
    with pytest.raises(UserError, match="none of 60 tasks has a reference"):
        backend.check_references([task for task in pack.tasks if task.split == "test"])


@pytest.mark.all
@pytest.mark.usefixtures("environments")
def test_all_solutions_of_training_tasks_are_recorded(tmp_path: Path) -> None:
    folder = plain(BENCHMARK, tmp_path / "pack")
    done = run_simia("pack", "record", folder)
    assert done.returncode == 0, done.stderr
    assert "80 references written" in done.stdout
    assert "not recorded" not in done.stdout


@pytest.mark.usefixtures("environments")
async def test_doing_nothing_scores_only_where_it_is_said(whole_pack: Path) -> None:
    """A tenth of the subtasks and the listed ones; all of them below."""
    async with await open_environment(str(whole_pack), episode=LIMITS) as environment:
        tasks = [task for number, task in enumerate(environment.tasks) if number % 10 == 0 or task.id in UNTOUCHED]
        found = await scores(environment, tasks, solve=False)
    assert found == {task.id: float(task.id in UNTOUCHED) for task in tasks}


@pytest.mark.all
@pytest.mark.usefixtures("environments")
async def test_every_solution_scores_one(whole_pack: Path) -> None:
    async with await open_environment(str(whole_pack), episode=LIMITS) as environment:
        tasks = [task for task in environment.tasks if task.actions]
        assert [task.id for task in environment.tasks if not task.actions] == UNSOLVED
        found = await scores(environment, tasks, solve=True)
    assert found == {task.id: 1.0 for task in tasks}


@pytest.mark.all
@pytest.mark.usefixtures("environments")
async def test_doing_nothing_on_every_subtask(whole_pack: Path) -> None:
    async with await open_environment(str(whole_pack), episode=LIMITS) as environment:
        assert len(environment.tasks) == 145
        found = await scores(environment, environment.tasks, solve=False)
    assert [name for name, score in found.items() if score != 0] == UNTOUCHED


def test_the_docs_name_what_is_wrong() -> None:
    text = (Path(__file__).parents[3] / "docs" / "officebench.md").read_text(encoding="utf-8")
    for name in {*UNTOUCHED, *UNSOLVED}:
        assert f"`{name}`" in text
