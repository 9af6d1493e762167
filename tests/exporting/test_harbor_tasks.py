"""`simia pack export --to harbor`: what an agent's container holds, and rewards of the scripts, run in simia's sandbox as containers."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from simia.authoring.scaffold import scaffold_pack
from simia.exporting.harbor_files import write_toml
from simia.exporting.harbor_tasks import make_folder_name
from simia.exporting.requirements import EVALUATION_ONLY, add_extra
from simia.trajectory import Trajectory
from tests.command import run_simia
from tests.exporting.harbor_containers import run_agent, run_verifier
from tests.properties import examples

Change = Callable[[dict[str, Any]], None]


def make_pack(folder: Path, change: Change = lambda head: None, *tasks: dict[str, Any]) -> Path:
    """The pack of `simia pack new`, with a changed pack.yaml and further tasks."""
    scaffold_pack(folder)
    head = yaml.safe_load((folder / "pack.yaml").read_text())
    change(head)
    (folder / "pack.yaml").write_text(yaml.safe_dump(head))
    with (folder / "tasks.jsonl").open("ab") as file:
        file.writelines(orjson.dumps(task) + b"\n" for task in tasks)
    return folder


def export(pack: Path | str, out: Path, *more: str) -> str:
    done = run_simia("pack", "export", pack, "--to", "harbor", "--out", out, "--trust-container", *more)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Task folders of a pack with two tasks for one agent, and one that needs a user."""
    work = tmp_path_factory.mktemp("harbor")
    reveal = {
        "id": "reveal-1",
        "reveals": [{"turn": 2, "tools": ["add_todo"]}],
        "script": [
            {"user": "Put 'Buy milk' on my list."}, {"agent": "I cannot do that yet."}, {"user": "And now?"},
            {"calls": [{"name": "add_todo", "arguments": {"text": "Buy milk"}}]}, {"agent": "Done."},
        ],
    }  # fmt: skip
    told = export(make_pack(work / "my_pack", lambda head: None, reveal), work / "tasks")
    assert told.splitlines()[0] == "2 tasks: the solution has reward 1, doing nothing 0"
    assert "left out: 1 task: needs a user who answers" in told
    return work / "tasks"


def test_the_agents_container_holds_the_tools_and_nothing_that_solves_or_judges(exported: Path) -> None:
    folder = exported / "todo-1"
    environment = folder / "environment"
    rows = [json.loads(line) for line in (environment / "pack" / "tasks.jsonl").read_text().splitlines()]
    assert [set(row) for row in rows] == [{"id", "instruction", "opening"}]
    head = yaml.safe_load((environment / "pack" / "pack.yaml").read_text())
    assert {"tools", "state", "policy", "executable"} <= set(head)
    assert not {"tests", "checks", "seeds", "references"} & set(head)
    text = b"".join(
        path.read_bytes() for path in environment.rglob("*") if path.is_file() and path.name != "state.json"
    )
    assert b"as done." not in text, "the solution's words"
    assert b"T-1001" not in text, "the solution's arguments"
    assert not list(environment.rglob("tests.jsonl"))
    assert "watered the plants" in (folder / "instruction.md").read_text()


def test_the_solution_has_reward_1_and_nothing_0(exported: Path, tmp_path: Path) -> None:
    for name in ("todo-1", "todo-2"):
        recorded = run_agent(exported / name)
        assert run_verifier(exported / name, recorded, tmp_path) == 1.0
        assert run_verifier(exported / name, "", tmp_path) == 0.0
        told = Trajectory.from_row(json.loads(recorded)).reward
        assert told is not None
        assert told.value is None, "the agent's container gives no reward"


@pytest.mark.attack("an agent writes another result and reward into the record of its episode", where="outside")
def test_a_forged_record_has_reward_0(exported: Path, tmp_path: Path) -> None:
    folder = exported / "todo-1"
    row = json.loads(run_agent(folder))
    row["reward"] = {"value": 1.0, "parts": {"state": 1.0}}
    for message in row["messages"]:
        for call in message.get("calls", []):
            call["arguments"] = {"todo_id": "T-1002"} if call["name"] == "finish_todo" else {}
    assert run_verifier(folder, f"no JSON\n{json.dumps(row)}\n", tmp_path) == 0.0


@pytest.mark.all
def test_the_last_episode_counts_and_one_of_another_task_does_not(exported: Path, tmp_path: Path) -> None:
    folder = exported / "todo-1"
    good = run_agent(folder)
    row = json.loads(good)
    row["messages"] = row["messages"][:1]
    assert run_verifier(folder, good + json.dumps(row) + "\n", tmp_path) == 0.0
    assert run_verifier(folder, json.dumps(row) + "\n" + good, tmp_path) == 1.0
    assert run_verifier(folder, json.dumps({**json.loads(good), "task_id": "todo-2"}) + "\n", tmp_path) == 0.0


def test_the_health_check_opens_the_pack_and_records_nothing(exported: Path) -> None:
    settings = tomllib.loads((exported / "todo-1" / "task.toml").read_text())
    assert run_agent(exported / "todo-1", settings["environment"]["healthcheck"]["command"]) == ""


FILES = """
from simia.kit import FileTools, write


class Desk(FileTools):
    @write
    def save(self, name: str, text: str) -> str:
        self.path(name).write_text(text)
        return "saved"
"""


def test_a_pack_of_files_is_played_too(tmp_path: Path) -> None:
    pack = tmp_path / "desk"
    (pack / "start").mkdir(parents=True)
    (pack / "start" / "a.txt").write_text("a")
    (pack / "tools.py").write_text(FILES)
    text = {"type": "string"}
    schema = {"type": "object", "properties": {"name": text, "text": text}, "required": ["name", "text"]}
    (pack / "tools.json").write_text(json.dumps([{"name": "save", "description": "Save a text", "parameters": schema}]))
    call = {"name": "save", "arguments": {"name": "b.txt", "text": "hi"}}
    (pack / "tasks.jsonl").write_text(
        json.dumps({"id": "d1", "instruction": "Write hi to b.txt.", "reference": [call]})
    )
    how = {"code": "tools.py", "object": "Desk", "isolation": "sandbox", "root": "/scratch"}
    head = {"format": 2, "name": "desk", "tools": "tools.json", "tasks": "tasks.jsonl", "state": "start/"}
    (pack / "pack.yaml").write_text(yaml.safe_dump({**head, "executable": how}))
    export(pack, tmp_path / "out")
    assert run_verifier(tmp_path / "out" / "d1", run_agent(tmp_path / "out" / "d1"), tmp_path) == 1.0


def test_without_trust_the_pack_needs_a_sandbox_in_the_container(tmp_path: Path) -> None:
    pack = make_pack(tmp_path / "my_pack")
    done = run_simia("pack", "export", pack, "--to", "harbor", "--out", tmp_path / "out", "--task", "todo-1")
    assert done.returncode == 0, done.stderr
    with pytest.raises(AssertionError, match="this pack's code must run in a sandbox"):
        run_agent(tmp_path / "out" / "todo-1")


def test_an_evaluation_pack_says_so_in_every_task(tmp_path: Path) -> None:
    told = export(make_pack(tmp_path / "my_pack", lambda head: head.update(evaluation=True)), tmp_path / "out")
    assert "for evaluation only" in told
    assert EVALUATION_ONLY in (tmp_path / "out" / "README.md").read_text()
    for path in (tmp_path / "out").glob("*/task.toml"):
        settings = tomllib.loads(path.read_text())
        assert settings["metadata"]["evaluation_only"] is True
        assert settings["metadata"]["use"] == EVALUATION_ONLY
        assert "evaluation-only" in settings["task"]["keywords"]
    packs = list((tmp_path / "out").rglob("pack.yaml"))
    assert len(packs) == 4
    assert all(yaml.safe_load(path.read_text())["evaluation"] is True for path in packs)


def test_a_wheel_is_copied_beside_both_dockerfiles(tmp_path: Path) -> None:
    wheel = tmp_path / "simia-0.3.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    export(make_pack(tmp_path / "my_pack"), tmp_path / "out", "--requirement", str(wheel), "--task", "todo-1")
    for part in ("environment", "tests"):
        folder = tmp_path / "out" / "todo-1" / part
        assert (folder / wheel.name).read_bytes() == b"wheel"
        assert f"pip install --no-cache-dir '/tmp/{wheel.name}[mcp]'" in (folder / "Dockerfile").read_text()


def ask_for_network(head: dict[str, Any]) -> None:
    head["executable"] |= {"isolation": "sandbox", "network": True}


def drop_code(head: dict[str, Any]) -> None:
    del head["executable"]


@pytest.mark.parametrize(
    ("change", "more", "message"),
    [
        (ask_for_network, [], "asks for the network of this machine"),
        (lambda head: head["executable"].update(needs=["/srv/maps"]), [], "asks for /srv/maps of this machine"),
        (lambda head: head["executable"].update(repeatable=False), [], "has repeatable: false"),
        (drop_code, [], "has no code to run: export it with --to verifiers or --to openenv"),
        (lambda head: None, ["--split", "validation"], "no such tasks to export; its splits: test, train"),
        (lambda head: None, ["--task", "todo-9"], "has no task 'todo-9'"),
        (lambda head: None, ["--requirement", "gone.whl"], "gone.whl is not a file"),
        (lambda head: None, ["--requirement", "==1"], "is not a requirement for pip"),
    ],
)
def test_what_cannot_be_exported_is_refused_in_one_line(
    tmp_path: Path, change: Change, more: list[str], message: str
) -> None:
    pack = make_pack(tmp_path / "my_pack", change)
    done = run_simia("pack", "export", pack, "--to", "harbor", "--out", tmp_path / "out", *more)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_link_out_of_the_pack_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    pack = make_pack(tmp_path / "my_pack")
    (pack / "data.txt").symlink_to(secret)
    done = run_simia("pack", "export", pack, "--to", "harbor", "--out", tmp_path / "out", "--task", "todo-1")
    assert done.returncode == 2
    assert "data.txt is a link to a place outside of the pack" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_link_to_a_hidden_file_does_not_bring_it_to_the_agent(tmp_path: Path) -> None:
    pack = make_pack(tmp_path / "my_pack")
    (pack / "more.jsonl").symlink_to("tests.jsonl")
    (pack / "code.py").symlink_to("tools.py")
    export(pack, tmp_path / "out", "--task", "todo-1")
    environment = tmp_path / "out" / "todo-1" / "environment" / "pack"
    assert not (environment / "more.jsonl").exists()
    assert (environment / "code.py").read_bytes() == (pack / "tools.py").read_bytes()
    assert not (environment / "code.py").is_symlink()


def test_an_existing_folder_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("mine")
    done = run_simia("pack", "export", make_pack(tmp_path / "my_pack"), "--to", "harbor", "--out", out)
    assert done.returncode == 2
    assert "exists and is not empty" in done.stderr
    assert [path.name for path in out.iterdir()] == ["mine"]


def test_task_ids_become_folder_names() -> None:
    assert make_folder_name("a/b c", set()) == "a-b-c"
    assert make_folder_name("a b c", {"a-b-c"}) == "a-b-c-2"
    assert make_folder_name("A-B-C", {"a-b-c"}) == "A-B-C-2"
    assert make_folder_name("../..", set()) == "task"


def test_an_extra_is_added_to_every_form_of_requirement() -> None:
    assert add_extra("simia==0.3.0", "mcp") == "simia[mcp]==0.3.0"
    assert add_extra("simia @ git+https://example.com/simia", "mcp") == "simia[mcp] @ git+https://example.com/simia"
    assert add_extra("simia", "mcp") == "simia[mcp]"
    assert add_extra("simia[openai]>=0.2", "mcp") == "simia[mcp,openai]>=0.2"
    assert add_extra(add_extra("/tmp/simia-1.whl", "mcp"), "serve") == "/tmp/simia-1.whl[serve,mcp]"
    assert add_extra("simia @ file:///tmp/simia-1.whl", "mcp") == "simia[mcp] @ file:///tmp/simia-1.whl"


TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.dictionaries(TEXT, st.lists(TEXT) | st.booleans() | st.integers(-9, 9) | TEXT))
@example({"text": '"\\\n\t\x00\x7f\x80\u2028'})
@examples(100)
def test_toml_holds_what_was_written(values: dict[str, Any]) -> None:
    values = {key: value for key, value in values.items() if key not in ("table", "rows", "inner", "deep")}
    tables = {**values, "table": {"inner": values, "rows": [values, {"deep": values}]}}
    assert tomllib.loads(write_toml(tables)) == tables
