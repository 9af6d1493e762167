"""`simia export --to simulator`: recorded calls become the simulated world's prompts with true answers; nothing held out is trained on."""

from __future__ import annotations

import asyncio
import json
import random
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
from simia.exporting import CardFacts
from simia.exporting import export as export_trajectories
from simia.exporting.simulator_export import NoTrainingRowsError, export_simulator
from simia.exporting.simulator_notes import list_notes
from simia.exporting.simulator_rows import (
    DISTURBED,
    DIVERGED,
    EXECUTED,
    NOT_EXECUTABLE,
    TOO_LONG,
    UNSHOWN,
    CollectedRows,
    SimulatorRow,
)
from simia.exporting.simulator_settings import HeldOutSettings, SimulatorConfig
from simia.exporting.simulator_split import balance_rows, choose_tools, count_classes, share_equally, split_rows
from simia.jobs import Run
from simia.pack import Pack
from simia.trainers.simulator_reward import score_completions
from simia.trajectory import Message, ToolCall, digest
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
    held = {"tools": ["add_todo"]}
    report = export(played, tmp_path / "out", world={"knowledge": "state"}, held_out=held)
    train, kept = read_rows(tmp_path / "out" / "data.jsonl"), read_rows(tmp_path / "out" / "held_out.jsonl")
    assert report.held_out == {"tool": 1, "task": 2}
    assert {row["tool"] for row in kept if row["held_out"] == "tool"} == {"add_todo"}
    assert all("add_todo" in row["messages"][0]["content"] for row in kept if row["held_out"] == "tool")
    assert not any("add_todo" in json.dumps(row) for row in train)
    assert report.left_out["training rows whose request names a held-out tool"] >= 1  # the history tells of it
    brief = export(played, tmp_path / "brief", held_out=held)
    assert brief.rows == 2
    assert "add_todo" not in (tmp_path / "brief" / "data.jsonl").read_text()


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


def test_disturbed_episodes_are_left_out_and_said_to_be(played: Path, tmp_path: Path) -> None:
    shutil.copytree(played, tmp_path / "copy")
    done = run_simia(
        "rollout", tmp_path / "copy" / "todos", "--agent", "repeating", "--name", "disturbed", "--set", "perturb.kinds=[transient_error]",
        cwd=tmp_path / "copy",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    config = SimulatorConfig.model_validate({"world": WORLD, "largest": 1})
    report = export_simulator(["disturbed", "ref"], tmp_path / "out", config, folder=tmp_path / "copy" / "runs")
    assert report.left_out[DISTURBED] == 2
    assert DIVERGED not in report.left_out
    with pytest.raises(
        NoTrainingRowsError, match=rf"2 {re.escape(DISTURBED)} were left out.*play the pack without perturb"
    ):
        export_simulator(["disturbed"], tmp_path / "alone", config, folder=tmp_path / "copy" / "runs")


def test_calls_that_the_world_answers_by_code_are_no_rows(played: Path, tmp_path: Path) -> None:
    report = export(played, tmp_path / "out", world={**WORLD, "compute": "reads"})
    rows = read_rows(tmp_path / "out" / "data.jsonl") + read_rows(tmp_path / "out" / "held_out.jsonl")
    assert {row["tool"] for row in rows} == {"finish_todo", "add_todo"}
    assert report.left_out[EXECUTED] == 3
    export(played, tmp_path / "all")
    every = read_rows(tmp_path / "all" / "data.jsonl") + read_rows(tmp_path / "all" / "held_out.jsonl")
    assert [row for row in every if row["tool"] != "list_todos"] == rows


def test_a_repeated_export_replaces_the_packs_of_the_earlier_one(played: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(played, out, held_out={"tools": ["add_todo"]})
    assert {path.name for path in out.glob("*prompts/*")} == {"todos_prompts", "todos_tasks", "todos_tools"}
    packs = {path.name: Pack.load(path) for path in out.glob("*prompts/*")}
    assert packs["todos_tools"].description.startswith("Calls of tools of todos that no training row calls")
    assert packs["todos_tasks"].description.startswith("Calls of todos in tasks that no training row is of")
    (out / "held_out_prompts" / "mine").mkdir()
    (out / "held_out_prompts" / "mine" / "world.py").write_text("mine")
    (out / "held_out_prompts" / "todos_tools" / "notes.txt").write_text("mine")
    report = export(played, out)
    assert {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()} == {
        *report.files, "held_out_prompts/mine/world.py", "held_out_prompts/todos_tools/notes.txt",
    }  # fmt: skip


def test_a_folder_of_a_simulator_holds_no_other_export(played: Path, tmp_path: Path) -> None:
    export(played, tmp_path / "out")
    recipe = tmp_path / "out" / "train.yaml"
    recipe.write_text(recipe.read_text().replace("seed: 42", "seed: 43"))
    (note,) = [note for note in export(played, tmp_path / "out").notes if "train.yaml" in note]
    assert "is kept" in note
    assert yaml.safe_load(recipe.read_text())["seed"] == 43
    with pytest.raises(UserError, match=r"holds an export of another format \(simulator\)"):
        export_trajectories([], tmp_path / "out", to="llamafactory", facts=CardFacts())
    export_trajectories([], tmp_path / "rows", to="openai", facts=CardFacts())
    with pytest.raises(UserError, match=r"holds an export of another format \(openai\)"):
        export(played, tmp_path / "rows")


def test_a_held_out_pack_has_one_system_text() -> None:
    rows = [make_row(n, tool=f"tool{n % 5}", pack=pack) for pack in "pq" for n in range(10)]
    assert choose_tools(rows, HeldOutSettings(packs=["q"], tools=0.2))["q"] == set()


def test_the_files_for_a_small_model(played: Path, tmp_path: Path) -> None:
    done = run_simia(
        "export",
        "--to",
        "simulator",
        "-c",
        "simulator/small",
        "--out",
        tmp_path / "out",
        "--set",
        "held_out={}",
        cwd=played,
    )
    assert done.returncode == 0, done.stderr
    assert "run ref, the latest in runs" in done.stdout
    recipe = yaml.safe_load((tmp_path / "out" / "train.yaml").read_text())
    assert (recipe["model_name_or_path"], recipe["template"]) == ("HuggingFaceTB/SmolLM2-135M-Instruct", "smollm2")
    assert (recipe["dataset"], recipe["cutoff_len"]) == ("simia", 1024)
    assert "deepspeed" not in recipe
    assert not (tmp_path / "out" / "ds_zero3.json").exists()


def test_the_files_for_llamafactory(played: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run_simia(
        "export", "ref", "--to", "simulator", "--config", "simulator/small", "--out", out, "--model", "qwen2.5-1.5b",
        "--set", "held_out={}", cwd=played,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "training rows of 2 episodes" in done.stdout
    assert "training rows: refused: 0, |Δ| 0: 1, |Δ| 1-2: 1, |Δ| 3-6: 1, |Δ| 7+: 0\n" in done.stdout
    assert "|Δ|: leaf fields of the state that a call adds, removes or changes." in done.stdout
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


def test_the_card_names_runs_packs_and_licences(played: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(played, out, world={"knowledge": "state"}, held_out={"tools": ["add_todo"]})  # which reads the run twice
    card = (out / "README.md").read_text()
    with closing(Run.read_only(played / "runs", "ref")) as run:
        contents = run.ledger.meta("facts")["contents"]
        config = digest(run.saved_config())
    assert card.count(f"| `ref` | `{config}` | `reference` | todos | `{contents}` |") == 1
    licence = Pack.load(played / "todos").licence
    assert f"| todos | {licence} |" in card
    assert r"| rows | all | refused | \|Δ\| 0 |" in card
    assert {Pack.load(path).licence for path in out.glob("*prompts/*")} == {licence}


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
        (["--to", "simulator", "--mix", "a=1"], "cannot be combined with --mix"),
        (["--to", "trl", "--set", "cutoff=3"], "are only for --to simulator"),
        (
            ["--to", "simulator", "--set", "held_out.tools=1.5"],
            "a share of at least 0 and below 1, or a list of tools, got 1.5",
        ),
        (
            ["--to", "simulator", "--set", "held_out.tools=1"],
            "a share of at least 0 and below 1, or a list of tools, got 1",
        ),
        (
            ["--to", "simulator", "--set", "held_out.tools=-0.2"],
            "a share of at least 0 and below 1, or a list of tools, got -0.2",
        ),
        (["--to", "simulator", "--set", "held_out.tools=[fly]"], "no row is of a tool 'fly'"),
        (
            ["--to", "simulator", "--set", "world.dialect=agentworld-mcp", "--set", "world.knowledge=schema"],
            "set world.dialect to simia or brief",
        ),
    ],
)
def test_what_does_not_fit_is_refused(played: Path, tmp_path: Path, words: list[str], says: str) -> None:
    done = run_simia("export", "ref", *words, "--out", tmp_path / "out", cwd=played)
    assert done.returncode == 2
    assert says in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "todos",
            r"todos is a pack, .*: run simia rollout todos --agent reference --name played, then simia export played --to simulator",
        ),
        ("customer_service", "customer_service is a pack, .*: run simia rollout customer_service"),
        ("data.parquet", "data.parquet is a file, .*: run simia rollout PACK"),
        ("nothing", "there is no run 'nothing'"),
    ],
)
def test_what_is_no_run_is_told_how_to_become_one(
    played: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.parquet").touch()
    (tmp_path / "todos").symlink_to(played / "todos")
    with pytest.raises(UserError, match=says):
        export_simulator([name], tmp_path / "out", SimulatorConfig(), folder=played / "runs")


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
    failed: bool = False,
) -> SimulatorRow:
    before, after = {"a": {}}, {"a": {"k": {str(i): i for i in range(delta)}}} if delta else {"a": {}}
    truth = make_truth(n, failed, before, after, None)
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
    found = balance_rows(uneven, take, largest, least=1)
    assert [Counter(row.truth.delta for row in found)[delta] for delta in (0, 2, 4, 9)] == counts
    tools = Counter(row.tool for row in found if row.truth.delta == 0)
    assert max(tools.values()) - min(tools.values()) <= 1
    assert balance_rows([], 3) == []
    assert [row.truth.delta for row in balance_rows(uneven, None, 0.5, least=50)].count(0) == 50


def test_refused_calls_are_a_class_of_their_own() -> None:
    rows = [
        *(make_row(n, failed=True) for n in range(60)),
        *(make_row(100 + n) for n in range(40)),
        *(make_row(200 + n, delta=2) for n in range(40)),
    ]
    assert count_classes(rows) == {"refused": 60, "0": 40, "1-2": 40, "3-6": 0, "7+": 0}
    third = {"refused": 30, "0": 30, "1-2": 30, "3-6": 0, "7+": 0}
    assert count_classes(balance_rows(rows, 90)) == third
    assert count_classes(balance_rows(rows[:80], None, 0.5))["refused"] == 20, "as many as look-ups"
    config = SimulatorConfig(take=90)
    found = split_rows(rows, HeldOutSettings(), take=90)
    assert list_notes(CollectedRows(rows), found, config) == [], "neither refusals nor look-ups are over their share"
    found = split_rows(rows[:70], HeldOutSettings(), take=70)
    assert list_notes(CollectedRows(rows), found, config) == [
        "60 of 70 training rows are refused calls, since there are few others: play more calls that succeed or take fewer"
    ]


@pytest.mark.parametrize("largest", [0.25, 0.5, 0.75])
@pytest.mark.parametrize("least", [0, 4, 100])
def test_more_rows_never_leave_fewer(uneven: list[SimulatorRow], largest: float, least: int) -> None:
    random.Random(0).shuffle(uneven)
    sizes = [len(balance_rows(uneven[:n], None, largest, least)) for n in range(len(uneven) + 1)]
    assert sizes == sorted(sizes)
    same = [make_row(n, tool="abc"[n % 3]) for n in range(60)]
    assert (
        len(balance_rows(same, None, largest, 40))
        == 40
        <= len(balance_rows([*same, make_row(delta=2)], None, largest, 40))
    )


def test_the_balance_leaves_a_row_of_each_tool() -> None:
    rows = [*(make_row(n, tool=f"look_{n % 7}") for n in range(30)), make_row(delta=2, tool="write")]
    assert len(balance_rows(rows, None, 0.5)) == 8
    assert {row.tool for row in balance_rows(rows, None, 0.5)} == {row.tool for row in rows}
    found = split_rows(rows, HeldOutSettings(), take=4)
    assert len(found.lost) == 4
    config = SimulatorConfig(take=4)
    assert list_notes(CollectedRows(rows), found, config) == [
        "3 of 4 training rows are of |Δ| 0, since there are few others: play more calls that change something or take fewer",
        f"--take 4 leaves no training row of {', '.join(found.lost)}: take more",
    ]
    found = split_rows(rows, HeldOutSettings(), None, 0.5)
    assert list_notes(CollectedRows(rows), found, SimulatorConfig())[0] == (
        "balancing the classes (refusals, |Δ|) leaves out 23 of 31 training rows: --set largest=1 keeps all"
    )


def test_many_calls_over_the_cutoff_are_told(played: Path, tmp_path: Path) -> None:
    longest = export(played, tmp_path / "all").longest
    report = export(played, tmp_path / "some", cutoff=longest - 1)
    assert len(report.notes) == 1
    found = re.fullmatch(
        rf"(\d+)% of the calls are over the cutoff of {longest - 1:,} tokens, among them all with \|Δ\| 3-6: try --cutoff (\d+)",
        report.notes[0],
    )
    assert found is not None
    assert int(found[1]) < 50
    assert export(played, tmp_path / "found", cutoff=int(found[2])).rows == 3


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--set", "held_out.packs=[todos]"], r"5 rows held out by pack\).*: hold out less \(held_out.packs\)"),
        (["--cutoff", "64"], r"7 rows longer than the cutoff were left out\).*: try --cutoff \d+00$"),
    ],
)
def test_no_training_row_is_a_failure(played: Path, tmp_path: Path, words: list[str], says: str) -> None:
    done = run_simia("export", "ref", "--to", "simulator", *words, "--out", tmp_path / "out", cwd=played)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert re.search(says, line), line
    assert "next:" not in done.stdout
    assert not (tmp_path / "out").exists()


def test_equal_parts_as_far_as_there_are() -> None:
    assert share_equally({"a": 100, "b": 3, "c": 100}, 23) == {"a": 10, "b": 3, "c": 10}
    assert share_equally({"a": 1}, 5) == {"a": 1}
    assert sum(share_equally({"a": 9, "b": 9, "c": 9}, 2).values()) == 2
