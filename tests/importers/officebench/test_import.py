"""What the importer writes, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simia.cli.imports import app
from simia.errors import UserError
from simia.formats.officebench import SWITCH, TOOLS
from simia.importers import officebench, officebench_solutions
from simia.importers.officebench import import_tasks
from simia.importers.officebench_solutions import digest_task
from simia.pack import Pack
from tests.importers.officebench import small


def changed(root: Path, name: str, **fields: Any) -> Path:
    """The small folder with other fields in one subtask."""
    tasks = small.folder(root / "tasks")
    path = tasks / name.replace("/", "/subtasks/")
    path.with_suffix(".json").write_text(json.dumps(small.SUBTASKS[name] | fields))
    return tasks


def solved(root: Path, *rows: Any) -> Path:
    path = root / "solutions.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


def test_a_pack_says_which_tasks_are_for_evaluation(small_pack: Path) -> None:
    pack = Pack.load(small_pack)
    assert [(task.id, task.split, "evaluation" in task.tags) for task in pack.tasks] == [
        ("1-1/0", "train", False),
        ("1-1/1", "train", False),
        ("1-1/2", "train", False),
        ("2-1/0", "test", True),
        ("3-1/0", "test", True),
    ]
    assert pack.evaluation is False
    task = pack.task("2-1/0")
    assert task.tags == ["officebench", "2_apps", "evaluation"]
    assert task.extra["evaluation"] is True
    assert "2024-05-06 (Monday)" in task.instruction
    assert "You work for Ann." in task.instruction
    assert task.instruction.endswith("Make stock.xlsx with a row for paper, 12, and mail Dora about it")
    # What the benchmark wrote beside the arguments stands among them, as it was meant.
    calls = task.reward.parts[0].calls  # type: ignore[union-attr]
    assert calls[0] == {
        "name": "excel_cell_value",
        "arguments": {"matches": [{"row": "1", "col": "2", "value": "12"}], "file": "data/stock.xlsx"},
        "expect": True,
    }


def test_the_tools_are_those_of_the_dialect(small_pack: Path) -> None:
    ours = {tool.name: list(tool.parameters["properties"]) for tool in Pack.load(small_pack).tools}
    theirs = {tool.name: list(tool.parameters["properties"]) for tool in (SWITCH, *TOOLS)}
    assert {**ours, "llm.complete_text": ["prompt"]} == {**theirs, "system.finish_task": ["answer"]}


def test_a_folder_without_files_needs_none(tmp_path: Path) -> None:
    tasks = small.folder(tmp_path / "tasks")
    for path in sorted((tasks / "1-1" / "testbed").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    pack = Pack.load(import_tasks(tasks, tmp_path / "pack"))
    assert pack.task("1-1/0").initial == {}
    assert pack.task("2-1/0").initial == {"folder": "testbeds/2-1"}


def test_paths_that_leave_the_testbed_lead_into_the_pack() -> None:
    assert officebench.map_path("1-7", "../../../../cache/0/testbed/data/a.xlsx") == "before/data/a.xlsx"
    assert officebench.map_path("1-8", "../../../../reference/a.xlsx") == "references/1-8/a.xlsx"
    assert officebench.map_path("1-8", "./data/a.xlsx") == "./data/a.xlsx"


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    tasks = small.folder(tmp_path / "tasks")
    (tasks / "1-1" / "testbed" / "data" / "secret.txt").symlink_to("/etc/passwd")
    with pytest.raises(UserError, match=r"secret\.txt is a link to a place outside of "):
        import_tasks(tasks, tmp_path / "pack")
    assert not (tmp_path / "pack").exists()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"evaluation": []}, "it has no list `evaluation` of checks"),
        ({"evaluation": [small.check("guess", file="a")]}, "no check is named 'evaluate_guess'; there are: evaluate_contain, "),
        ({"evaluation": [small.check("file_exist", files="a")]}, "evaluate_file_exist has the arguments files, not file"),
        ({"task": None}, "a subtask must have the texts username, date, weekday, time, task"),
        (
            {
                "evaluation": [
                    small.check(
                        "excel_cell_comparator",
                        file="a.xlsx",
                        matches=[{"row": 1, "col": 1, "comparator": "__import__('os')"}],
                    )
                ]
            },
            "is not a lambda",
        ),
    ],
)  # fmt: skip
def test_a_subtask_without_a_form_here_is_one_line(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    tasks = changed(tmp_path, "1-1/0", **fields)
    with pytest.raises(UserError) as told:
        import_tasks(tasks, tmp_path / "pack")
    assert words in str(told.value)
    assert str(tasks / "1-1" / "subtasks" / "0.json") in str(told.value)
    assert "\n" not in str(told.value)
    assert not (tmp_path / "pack").exists()


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("{", 'line 1: a solution must have the form {"task": "1-1/0", "actions": '),
        ({"task": "1-1/0"}, 'line 1: a solution must have the form {"task": "1-1/0", "actions": '),
        ({"task": "1-1/0", "actions": [{"name": "word.print"}]}, "line 1: there is no tool 'word.print'"),
        ({"task": "9-9/0", "actions": [{"name": "system.finish_task"}]}, "there is no subtask '9-9/0' in "),
    ],
)
def test_a_solution_that_is_wrong_is_one_line(tmp_path: Path, row: Any, words: str) -> None:
    tasks = small.folder(tmp_path / "tasks")
    with pytest.raises(UserError) as told:
        import_tasks(tasks, tmp_path / "pack", solved(tmp_path, row))
    assert words in str(told.value)
    assert "\n" not in str(told.value)


def test_what_is_no_folder_of_tasks_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is not a folder: give the one that contains OfficeBench's tasks"):
        import_tasks(tmp_path / "none", tmp_path / "pack")
    with pytest.raises(UserError, match=r"holds no tasks of OfficeBench: folders such as 1-1"):
        import_tasks(tmp_path, tmp_path / "pack")
    (tmp_path / "pack" / "inner").mkdir(parents=True)
    with pytest.raises(UserError, match=r"exists and is not empty: remove it or choose another folder$"):
        import_tasks(small.folder(tmp_path / "tasks"), tmp_path / "pack")


def test_the_command_imports_with_solutions(tmp_path: Path) -> None:
    actions = [{"name": "system.finish_task", "arguments": {"answer": "Dora"}}]
    solutions = solved(tmp_path, {"task": "1-1/1", "actions": actions})
    tasks = str(small.folder(tmp_path / "tasks"))
    out = tmp_path / "pack"
    done = CliRunner().invoke(app, ["officebench", tasks, "--out", str(out), "--solutions", str(solutions)])
    assert done.exit_code == 0, done.output
    assert "5 tasks (3 for training, 2 for evaluation only), 22 tools" in done.output
    pack = Pack.load(out)
    assert [action.name for action in pack.task("1-1/1").reference] == ["system.finish_task"]
    assert pack.task("1-1/0").reference == []
    assert "1 task with a solution; next: simia pack record" in done.output


def test_a_shipped_solution_is_given_to_the_very_task_it_was_written_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The small folder has tasks 1-1/0 to 1-1/2 of its own: simia's solutions of the benchmark's tasks are not theirs."""
    tasks = small.folder(tmp_path / "tasks")
    pack = Pack.load(import_tasks(tasks, tmp_path / "pack"))
    assert not any(task.solved for task in pack.tasks)
    rows = [json.loads(line) for line in (tmp_path / "pack" / "tasks.jsonl").read_text().splitlines()]
    ends = [{"name": "system.finish_task", "arguments": {"answer": "Dora"}}]
    shipped = [{"task": row["id"], "digest": digest_task(row), "actions": ends} for row in rows]
    path = tmp_path / "shipped.jsonl"
    path.write_text("\n".join(map(json.dumps, shipped)))
    monkeypatch.setattr(officebench_solutions, "SHIPPED", path)
    own = [{"name": "system.finish_task", "arguments": {"answer": "Carl"}}]
    changed(tmp_path, "1-1/0", task="Put dinner with Dora into Ann's calendar")
    given = solved(tmp_path, {"task": "1-1/1", "actions": own})
    pack = Pack.load(import_tasks(tasks, tmp_path / "other", given))
    found = {task.id: [action.arguments["answer"] for action in task.reference] for task in pack.tasks}
    assert found == {"1-1/0": [], "1-1/1": ["Carl"], "1-1/2": ["Dora"], "2-1/0": [], "3-1/0": []}
