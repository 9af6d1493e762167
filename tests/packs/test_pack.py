"""Reading packs: what is wrong is said in one line that names the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simia.errors import UserError
from simia.pack import Pack
from tests.packs.small import small

TASK = {"id": "t", "instruction": "x"}


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"pack_yaml": "format: 3\nname: x\n"}, "pack.yaml: format: expected 1 or 2, got 3"),
        ({"pack_yaml": "format: 1\nname: x\ntaks: t.jsonl\n"}, "pack.yaml: unknown key 'taks': did you mean 'tasks'?"),
        ({"pack_yaml": "format: 1\nname: [\n"}, "pack.yaml: not YAML: line 3, column 1: "),
        (
            {"pack_yaml": "format: 1\nname: x\ntools: gone.json\n"},
            "names 'gone.json', which is not a file in the pack's folder",
        ),
        (
            {"pack_yaml": "format: 1\nname: x\npolicy: /etc/hostname\n"},
            "names '/etc/hostname', which is not a file in the pack's folder",
        ),
        (
            {"pack_yaml": "format: 1\nname: x\npolicy: ../../../../../../etc/hostname\n"},
            "which is not a file in the pack's folder",
        ),
        ({"pack_yaml": "format: 1\nname: x\nmatch: {a: fuzzy}\n"}, "match"),
        (
            {"tools_json": '[{"name": "a"}, {"name": "b", "raeds": []}]'},
            "tools.json: tool b: unknown key 'raeds': did you mean 'reads'?",
        ),
        (
            {"tools_json": '[{"name": "a"}, {"description": "b"}]'},
            "tools.json: tool 2 of the list: name: a value is required",
        ),
        ({"tools_json": "{}"}, "a list of tools is expected"),
        ({"tools_json": '[{"name": "a"}, {"name": "a"}]'}, "duplicate tool name 'a'; names must be unique"),
        ({"tools_json": '[{"name": "a", "parameters": {"$ref": "http://x/y"}}]'}, "only references within the schema"),
        (
            {"tools_json": '[{"name": "a", "parameters": {"type": "object", "properties": {"b": {"type": "bool"}}}}]'},
            "tools.json: tool a: parameter b: not a usable JSON Schema",
        ),
        ({"tools_json": '[{"name": '}, "tools.json: not JSON: it ends too early (column 11)"),
        ({"policy_md": b"\xff\xfe"}, "not UTF-8"),
        (
            {"tools_json": '[{"name": "a",\n"reads": [],\n"re\\u0061ds": []}]'},
            "tools.json, line 3: the key 'reads' occurs twice in the same object: remove or rename one",
        ),
        (
            {"pack_yaml": "format: 2\nname: x\nschema: {tables: {columns: {columns: {status: {valuess: 1}}}}}\n"},
            "unknown key 'schema.tables.columns.columns.status.valuess': did you mean 'schema.tables.columns.columns.status.values'?",
        ),
        (
            {"pack_yaml": "format: 2\nname: x\nschema: {tables: {jobs: {rows: 1}}}\n"},
            "unknown key 'schema.tables.jobs.rows': known here: columns, key, match, path",
        ),
        ({"pack_yaml": "format: 2\nname: x\nmatch: {}\nmatch: {}\n"}, "line 4: the key 'match' occurs twice"),
    ],
)
def test_a_malformed_pack_is_one_line(tmp_path: Path, files: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as caught:
        small(tmp_path / "p", **files)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([TASK, TASK], "line 2: duplicate task id 't'; ids must be unique (line 1 has it too)"),
        ([{**TASK, "rewards": {}}], "line 1: unknown key 'rewards': did you mean 'reward'?"),
        ([TASK, {**TASK, "id": "u", "script": [{"user": "a", "agent": "b"}]}], "line 2: script.0"),
        ([{**TASK, "reward": {"parts": [{"kind": "guess"}]}}], "line 1: reward.parts.0"),
        ([{**TASK, "reward": {"parts": []}}], "line 1: reward.parts"),
    ],
)
def test_a_malformed_task_is_named_by_its_line(tmp_path: Path, rows: list[Any], words: str) -> None:
    pack = small(tmp_path / "p", tasks_jsonl=rows)
    with pytest.raises(UserError) as caught:
        _ = pack.tasks
    assert words in str(caught.value)


def test_the_name_of_a_tool_test_is_unique(tmp_path: Path) -> None:
    test = {"name": "all", "call": {"name": "list_todos"}}
    pack = small(tmp_path / "p", tests_jsonl=[test, {**test, "name": "again"}, test])
    with pytest.raises(
        UserError, match=r"line 3: duplicate test name 'all'; names must be unique \(line 1 has it too\)"
    ):
        _ = pack.tests


@pytest.mark.parametrize("name", ["tasks", "tests"])
def test_a_key_that_occurs_twice_in_a_line_is_refused(tmp_path: Path, name: str) -> None:
    pack = small(tmp_path / "p")
    path = tmp_path / f"p/{name}.jsonl"
    lines = path.read_text().splitlines()
    assert getattr(pack, name), "without it the file is read"
    path.write_text("\n".join([lines[0], f'{{"extra": {{"b": ["}}{{", {{"b": 1}}]}}, "extra": {{}}, {lines[1][1:]}']))
    with pytest.raises(UserError, match=rf"{name}\.jsonl, line 2: the key 'extra' occurs twice in the same object"):
        _ = getattr(Pack.load(tmp_path / "p"), name)


def test_a_cut_line_is_named_once_with_its_number(tmp_path: Path) -> None:
    pack = small(tmp_path / "p")
    (tmp_path / "p/tasks.jsonl").write_text('{"id": "t"\n')
    with pytest.raises(UserError, match=r"tasks\.jsonl, line 1: not JSON: it ends too early \(column 11\)$"):
        _ = Pack.load(tmp_path / "p").tasks
    assert pack.name == "p"


def test_what_is_no_name_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^name: expected str or Path, got 3$"):
        Pack.load(3)  # type: ignore[arg-type]


def test_a_task_that_is_not_there_is_answered_with_the_nearest(tmp_path: Path) -> None:
    pack = small(tmp_path / "p")
    assert pack.task("todo-1").id == "todo-1"
    with pytest.raises(UserError, match="did you mean 'todo-1'"):
        pack.task("tood-1")


def test_a_link_out_of_the_pack_is_refused(tmp_path: Path) -> None:
    small(tmp_path / "p")
    (tmp_path / "secret.md").write_text("secret")
    (tmp_path / "p" / "policy.md").unlink()
    (tmp_path / "p" / "policy.md").symlink_to(tmp_path / "secret.md")
    with pytest.raises(UserError, match="not a file in the pack's folder"):
        Pack.load(tmp_path / "p")


def test_loading_runs_no_code(tmp_path: Path) -> None:
    pack = small(tmp_path / "p", tools_py="raise SystemExit('ran')")
    assert len(pack.tasks) == 2
    assert Pack.load(tmp_path / "p").executable is not None
