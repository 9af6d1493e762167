"""`simia export --to simulator`: recorded calls become the simulated world's prompts with true answers; nothing held out is trained on."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import ReferenceAgent, make_text_message
from simia.envs.play.player import play
from simia.envs.users import EpisodeView
from simia.envs.worlds.executable import make_executable_backend
from simia.errors import UserError
from simia.evaluation.simulator_score import make_truth
from simia.exporting.simulator_export import export_simulator
from simia.exporting.simulator_rows import DIVERGED, NOT_EXECUTABLE, TOO_LONG, UNSHOWN, SimulatorRow
from simia.exporting.simulator_settings import HeldOutSettings, SimulatorConfig
from simia.exporting.simulator_split import balance_rows, share_equally, split_rows
from simia.jobs import Run
from simia.pack import Pack
from simia.trainers.simulator_reward import score_completions
from simia.trajectory import Message, ToolCall
from tests.command import run_simia
from tests.envs.worlds.test_simulated import simulated
from tests.packs.small import small

WORLD = {"knowledge": "state", "dialect": "brief", "state_tokens": 450}
SOLVE = [
    {"calls": [{"name": "list_todos", "arguments": {}}]},
    {"calls": [{"name": "finish_todo", "arguments": {"todo_id": "T-9999"}}]},
    {"calls": [{"name": "finish_todo", "arguments": {"todo_id": "T-1001"}}, {"name": "add_todo", "arguments": {"text": "Rest"}}]},
    {"calls": [{"name": "list_todos", "arguments": {"open_only": True}}]},
    {"agent": "Done."},
]  # fmt: skip


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulator")
    tasks = [
        {"id": f"todo-{n}", "split": split, "script": [{"user": "Help."}, *SOLVE[:-1][:n], SOLVE[-1]]}
        for n, split in ((4, "train"), (2, "test"))
    ]
    small(folder / "todos", tasks_jsonl=tasks)
    done = run_simia("rollout", folder / "todos", "--agent", "reference", "--name", "ref", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def export(folder: Path, out: Path, **settings: Any) -> Any:
    config = SimulatorConfig.model_validate({"world": WORLD, "largest": 1, **settings})
    return export_simulator(["ref"], out, config, folder=folder / "runs")


def test_each_call_is_a_row_with_its_true_answer(played: Path, tmp_path: Path) -> None:
    report = export(played, tmp_path / "out", held_out={"tasks": 0})
    rows = read_rows(tmp_path / "out" / "data.jsonl") + read_rows(tmp_path / "out" / "held_out.jsonl")
    assert report.held_out == {"task": 2}, "all calls of the test task are those of the training task too"
    assert report.left_out == {"training rows that teach what a held-out row asks for": 2}
    assert [(row["tool"], row["outcome"], row["delta"]) for row in rows] == [
        ("finish_todo", "result", 1),
        ("add_todo", "result", 3),
        ("list_todos", "result", 0),
        ("list_todos", "result", 0),
        ("finish_todo", "error", 0),
    ]
    answer = json.loads(rows[0]["messages"][2]["content"])
    assert answer == {
        "answers": [
            {
                "call": 1,
                "outcome": "result",
                "content": {"todo_id": "T-1001", "done": True},
                "changes": [{"table": "todos", "key": "T-1001", "set": {"done": True}}],
            }
        ]
    }
    assert '"done":true' in rows[1]["messages"][1]["content"], (
        "the state of a prompt is the one after the calls before it"
    )
    assert [each["role"] for each in rows[0]["messages"]] == ["system", "user", "assistant"]


@pytest.mark.parametrize("world", [WORLD, {"knowledge": "state"}])
async def test_a_model_that_knows_the_rows_plays_the_world_as_the_code_does(
    played: Path, tmp_path: Path, world: dict[str, Any]
) -> None:
    """So the prompts are those of the simulated world, to the letter, and the answers are read as they are meant."""
    await asyncio.to_thread(export, played, tmp_path / "out", world=world)
    rows = read_rows(tmp_path / "out" / "data.jsonl") + read_rows(tmp_path / "out" / "held_out.jsonl")
    learnt = {json.dumps(row["messages"][:2]): row["messages"][2]["content"] for row in rows}
    assert len(learnt) == 5
    pack = Pack.load(played / "todos")
    task = pack.task("todo-4")
    real = make_executable_backend(pack)
    async with simulated(lambda request: learnt[json.dumps(request.messages)], pack=pack, **world) as (backend, _):
        one, two = await real.open(task), await backend.open(task)
        for turn in SOLVE:
            calls = [ToolCall(id="c", **call) for call in turn.get("calls", [])]  # type: ignore[attr-defined]
            assert [r.content for r in await one.call(calls)] == [r.content for r in await two.call(calls)]
            assert await one.state() == await two.state()
        await one.close()
        await two.close()
        await backend.close()
    await real.close()


def test_held_out_tools_are_in_no_training_row(played: Path, tmp_path: Path) -> None:
    held = {"tools": ["finish_todo"]}
    report = export(played, tmp_path / "out", world={"knowledge": "state"}, held_out=held)
    train, kept = read_rows(tmp_path / "out" / "data.jsonl"), read_rows(tmp_path / "out" / "held_out.jsonl")
    assert report.held_out == {"tool": 2, "task": 1}
    assert {row["tool"] for row in kept if row["held_out"] == "tool"} == {"finish_todo"}
    assert all("finish_todo" in row["messages"][0]["content"] for row in kept if row["held_out"] == "tool")
    assert not any("finish_todo" in json.dumps(row) for row in train)
    assert report.left_out["training rows whose request names a held-out tool"] >= 1  # the history tells of it
    brief = export(played, tmp_path / "brief", held_out=held)
    assert brief.rows == 2
    assert "finish_todo" not in (tmp_path / "brief" / "data.jsonl").read_text()


def test_rows_that_are_too_long_or_cannot_be_answered_are_left_out(played: Path, tmp_path: Path) -> None:
    longest = export(played, tmp_path / "whole").longest
    report = export(played, tmp_path / "out", cutoff=longest - 1)
    assert 0 < report.left_out[TOO_LONG] < 6
    assert report.longest < longest
    todos = {f"T-{n}": {"text": f"Chore number {n} of a long list that does not fit"} for n in range(1000, 1100)}
    folder = tmp_path / "many"
    folder.mkdir()
    small(
        folder / "todos",
        state_json=json.dumps({"todos": todos}),
        tasks_jsonl=[{"id": "t", "script": [{"user": "Go."}, *SOLVE]}],
    )
    assert run_simia("rollout", folder / "todos", "--agent", "reference", "--name", "ref", cwd=folder).returncode == 0
    report = export(folder, tmp_path / "view", world={**WORLD, "state_tokens": 100})
    assert report.left_out[UNSHOWN] == 2, "both lists"
    assert (
        export(folder, tmp_path / "all", world={**WORLD, "state_tokens": 100}, answerable=False).rows == report.rows + 2
    )


def test_episodes_that_are_not_what_the_code_does_today_are_left_out(played: Path, tmp_path: Path) -> None:
    shutil.copytree(played, tmp_path / "copy")
    code = tmp_path / "copy" / "todos" / "tools.py"
    code.write_text(code.read_text().replace('"done": todo.done}', '"done": not todo.done}'))
    config = tmp_path / "copy" / "runs" / "ref" / "config.yaml"
    config.write_text(config.read_text().replace(str(played), str(tmp_path / "copy")))
    with pytest.raises(UserError, match=DIVERGED):
        export(tmp_path / "copy", tmp_path / "out")


def test_the_files_for_llamafactory(played: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run_simia(
        "export", "ref", "--to", "simulator", "--config", "simulator/small", "--out", out, "--model", "qwen2.5-1.5b",
        "--set", "held_out={}", cwd=played,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "training rows of 2 episodes" in done.stdout
    info = json.loads((out / "dataset_info.json").read_text())
    recipe = yaml.safe_load((out / "train.yaml").read_text())
    assert (recipe["dataset"], recipe["cutoff_len"], recipe["template"]) == ("simia", 1024, "qwen")
    assert recipe["model_name_or_path"] == "Qwen/Qwen2.5-1.5B-Instruct"
    assert (out / info["simia"]["file_name"]).is_file()
    [column] = info["simia"]["columns"].values()
    assert all(
        {each["role"] for each in row[column]} <= {*info["simia"]["tags"].values()}
        for row in read_rows(out / "data.jsonl")
    )
    settings = re.search(r"backend_settings=(\{.*?\})'", (out / "README.md").read_text())
    assert settings is not None
    assert json.loads(settings[1])["dialect"] == "brief"
    assert Counter(row["held_out"] for row in read_rows(out / "held_out.jsonl")) == {"task": 2}


class Knowing:
    """Answers a prompt as a row does."""

    def __init__(self, answers: dict[str, str]) -> None:
        self._answers = answers

    async def act(self, view: EpisodeView) -> tuple[Message, None]:
        return make_text_message(self._answers[view.messages[0].text]), None


async def test_prompts_are_packs_for_every_trainer(played: Path, tmp_path: Path) -> None:
    await asyncio.to_thread(export, played, tmp_path / "out")
    rows = read_rows(tmp_path / "out" / "data.jsonl")
    pack = Pack.load(tmp_path / "out" / "prompts" / "todos_prompts")
    assert len(pack.tasks) == len(rows)
    settings = {
        "user": "none",
        "reward": "function",
        "reward_function": "simia.trainers.simulator_reward:score_episode",
    }
    answers = {row["messages"][1]["content"]: row["messages"][2]["content"] for row in rows}
    async with await open_environment(pack, **settings) as environment:
        for task, row in zip(pack.tasks, rows, strict=True):
            good = await play(await environment.reset(task), Knowing(answers))
            assert good.reward is not None
            assert (good.reward.value, good.reward.parts["exact"]) == (1.0, 1.0)
            assert [good.system, good.messages[0].text] == [each["content"] for each in row["messages"][:2]]
            bad = await play(await environment.reset(task), ReferenceAgent(task))
            assert bad.reward is not None
            assert bad.reward.value == 0
    truths = [row["truth"] for row in rows]
    told = [[row["messages"][2]] for row in rows]
    assert score_completions(told, truths) == [1.0] * len(rows)
    assert score_completions(["no"] * len(rows), truths) == [0.0] * len(rows)


def test_a_simulated_rollout_is_no_truth(played: Path, tmp_path: Path) -> None:
    shutil.copytree(played, tmp_path / "copy")
    with closing(Run.open(tmp_path / "copy" / "runs", "ref")) as run:
        for item in run.ledger.items():
            body = run.ledger.result(item.id)
            assert body is not None
            body["trajectory"]["extra"]["backend"] = "simulated"
            run.ledger.conclude(item, None, {**body, "head": run.ledger.head("h", dict)})
        run.ledger.flush()
    with pytest.raises(UserError, match=NOT_EXECUTABLE):
        export_simulator(["ref"], tmp_path / "out", SimulatorConfig(), folder=tmp_path / "copy" / "runs", partial=True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--to", "simulator", "--mix", "a=1"], "leave out --mix"),
        (["--to", "trl", "--set", "cutoff=3"], "are for --to simulator"),
        (["--to", "simulator", "--set", "held_out.tools=[fly]"], "no row is of a tool 'fly'"),
        (
            ["--to", "simulator", "--set", "world.dialect=agentworld-mcp", "--set", "world.knowledge=schema"],
            "set simia or brief",
        ),
    ],
)
def test_what_does_not_fit_is_refused(played: Path, tmp_path: Path, words: list[str], says: str) -> None:
    done = run_simia("export", "ref", *words, "--out", tmp_path / "out", cwd=played)
    assert done.returncode == 2
    assert says in done.stderr
    assert not (tmp_path / "out").exists()


# -- splits -----------------------------------------------------------------------------------------------------


def make_row(
    n: int = 0,
    *,
    tool: str = "get",
    pack: str = "p",
    task: str = "t",
    split: str = "train",
    delta: int = 0,
    prompt: str = "",
) -> SimulatorRow:
    before, after = {"a": {}}, {"a": {"k": {str(i): i for i in range(delta)}}} if delta else {"a": {}}
    truth = make_truth(n, False, before, after, None)
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": prompt},
        {"role": "assistant", "content": f"{n}"},
    ]
    return SimulatorRow(pack, task, split, tool, {"n": n}, messages, truth, 10)


def test_duplicates_and_leaks_are_dropped_whatever_else_a_prompt_shows() -> None:
    rows = [
        make_row(1, prompt="x"),
        make_row(1, prompt="y"),
        make_row(2),
        make_row(2, split="test", prompt="z"),
        make_row(3, tool="cut"),
    ]
    found = split_rows(rows, HeldOutSettings(tools=["cut"]))
    assert [row.truth.content for row in found.train] == [1]
    assert {use: [row.truth.content for row in held] for use, held in found.held_out.items()} == {
        "task": [2],
        "tool": [3],
    }
    assert sum(found.left_out.values()) == 2


def test_packs_tools_and_tasks_are_held_out_by_name_and_by_share() -> None:
    rows = [make_row(n, tool=f"tool{n % 5}", pack=pack, task=f"{pack}{n % 4}") for pack in "pq" for n in range(20)]
    found = split_rows(rows, HeldOutSettings(packs=["q"]))
    assert {row.pack for row in found.train} == {"p"}
    assert {row.pack for row in found.held_out["pack"]} == {"q"}
    found = split_rows(rows, HeldOutSettings(tools=0.2, tasks=0.25))
    assert {len({row.tool for row in found.held_out["tool"] if row.pack == pack}) for pack in "pq"} == {1}
    assert {len({row.task for row in found.held_out["task"] if row.pack == pack}) for pack in "pq"} == {1}
    held = {(row.pack, row.tool) for row in found.held_out["tool"]} | {row.task for row in found.held_out["task"]}
    assert not any({(row.pack, row.tool), row.task} & held for row in found.train)
    with pytest.raises(UserError, match="no row is of pack 'r'"):
        split_rows(rows, HeldOutSettings(packs=["r"]))


@pytest.fixture
def uneven() -> list[SimulatorRow]:
    counts = {0: 60, 2: 10, 4: 4, 9: 1}
    return [
        make_row(100 * delta + n, delta=delta, tool="abc"[n % 3])
        for delta, count in counts.items()
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("take", "largest", "counts"),
    [
        (None, 1.0, [60, 10, 4, 1]),
        (None, 0.5, [15, 10, 4, 1]),
        (None, 0.75, [45, 10, 4, 1]),
        (8, 1.0, [3, 2, 2, 1]),
        (1000, 1.0, [60, 10, 4, 1]),
    ],
)
def test_balance(uneven: list[SimulatorRow], take: int | None, largest: float, counts: list[int]) -> None:
    found = balance_rows(uneven, take, largest)
    assert [Counter(row.truth.delta for row in found)[delta] for delta in (0, 2, 4, 9)] == counts
    tools = Counter(row.tool for row in found if row.truth.delta == 0)
    assert max(tools.values()) - min(tools.values()) <= 1
    assert balance_rows([], 3) == []
    assert len(balance_rows([row for row in uneven if not row.truth.delta], None, 0.5)) == 60, "there is nothing else"


def test_equal_parts_as_far_as_there_are() -> None:
    assert share_equally({"a": 100, "b": 3, "c": 100}, 23) == {"a": 10, "b": 3, "c": 10}
    assert share_equally({"a": 1}, 5) == {"a": 1}
    assert sum(share_equally({"a": 9, "b": 9, "c": 9}, 2).values()) == 2
