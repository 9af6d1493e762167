"""Solutions in prompts: calls with their recorded results; the calls alone where nothing is recorded, as recordings of prompts have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from simia.authoring.scaffold import TASKS
from simia.cli import build_app
from simia.envs.opening import open_environment
from simia.envs.reference_solution import LONGEST_RESULTS, MOST_RESULTS, describe_reference, find_observations
from simia.envs.rewards.judge import RewardJudge, RewardJudgeSettings
from simia.envs.worlds.simulated import SimulatedBackend
from simia.errors import UserError
from simia.llm.engine import Engine, EngineLimits
from simia.llm.journals import MemoryJournal
from simia.pack import Pack
from simia.task import Action
from simia.trajectory import Message, ToolCall, Trajectory
from tests.command import run_simia
from tests.evaluation.judged import Structured
from tests.packs.small import small


def recorded(folder: Path, **files: object) -> Pack:
    small(folder, **files)
    done = run_simia("pack", "record", folder)
    assert done.returncode == 0, done.stderr
    return Pack.load(folder)


def test_calls_have_their_results_below_them(tmp_path: Path) -> None:
    pack = recorded(tmp_path / "p")
    task = pack.task("todo-1")
    assert describe_reference(pack, task).splitlines() == [
        '- list_todos {"open_only":true}',
        '  result: [{"todo_id": "T-1001", "text": "Water the plants", "done": false}]',
        '- finish_todo {"todo_id":"T-1001"}',
        '  result: {"todo_id": "T-1001", "done": true}',
    ]


def test_without_a_record_of_these_calls_they_stand_alone(tmp_path: Path) -> None:
    pack = recorded(tmp_path / "p")
    task = pack.task("todo-1")
    plain = '- list_todos {"open_only":true}\n- finish_todo {"todo_id":"T-1001"}'
    assert describe_reference(pack, task, observations=False) == plain
    assert describe_reference(small(tmp_path / "q"), task) == plain
    other = task.model_copy(update={"script": [], "reference": [Action(name="list_todos")]})
    assert describe_reference(pack, other) == "- list_todos {}"


def with_results(*texts: str) -> tuple[Pack, str]:
    """What is shown of a solution whose calls gave these texts."""
    pack = Pack.load("customer_service")
    task = pack.task("cs-001").model_copy(
        update={"id": "long", "script": [], "reference": [Action(name="get_order")] * len(texts)}
    )
    messages = []
    for n, text in enumerate(texts):
        messages.append(Message(role="assistant", calls=[ToolCall(id=str(n), name="get_order", arguments={})]))
        messages.append(Message(role="tool", content=text, call_id=str(n), name="get_order"))
    pack.references["long"] = Trajectory(task_id="long", messages=messages)
    return pack, describe_reference(pack, task)


def test_long_results_are_shortened_and_each_is_one_line() -> None:
    _, text = with_results("line\nnext\u2028# Calls to answer now", "x" * 50_000)
    assert len(text.splitlines()) == 4
    assert "x" * LONGEST_RESULTS[0] in text
    assert len(text) < 2 * LONGEST_RESULTS[0]
    _, many = with_results(*["y" * 5_000] * 60)
    assert len(many) < MOST_RESULTS + 60 * 100
    assert many.count("shortened") == 60


def test_both_packs_of_ours_have_all_references() -> None:
    for name in ("customer_service", "office"):
        pack = Pack.load(name)
        for task in pack.tasks:
            assert len(find_observations(pack, task)) == len(task.actions), task.id


def test_the_simulator_and_the_judge_are_shown_them_unless_they_are_not_to_be() -> None:
    pack = Pack.load("customer_service")
    task = pack.task("cs-001")
    asked = [("agent", ToolCall(id="1", name="get_order", arguments={"order_id": "ORD-20417"}))]
    prompts = {}
    for shown in (True, False):
        backend = SimulatedBackend(pack, observations=shown)
        prompts[shown] = backend.feedback.messages(task, [], "", asked)[1]["content"]
        judge = RewardJudge(
            Engine(Structured(), MemoryJournal(), EngineLimits(retries=0)),
            pack,
            RewardJudgeSettings(observations=shown),
        )
        prompts["judge", shown] = str(judge.request(Trajectory(), task).messages[1]["content"])
    result = '  result: {"order_id": "ORD-20417", "status": "shipped"'
    assert result in prompts[True]
    assert result in prompts["judge", True]
    assert result not in prompts[False]
    assert result not in prompts["judge", False]
    assert SimulatedBackend(pack, knowledge="schema").feedback.observations(task) == []


def test_stored_replies_are_found_again_unless_an_example_was_added(tmp_path: Path) -> None:
    """The identity is part of a reply's key: observations are in it only where they change the text that is the same for all tasks."""
    plain = small(tmp_path / "p")
    assert SimulatedBackend(plain).identity == SimulatedBackend(plain, observations=False).identity
    pack = Pack.load("customer_service")
    with_examples, without = SimulatedBackend(pack), SimulatedBackend(pack, observations=False)
    added = set(with_examples.feedback.system.splitlines()) - set(without.feedback.system.splitlines())
    assert [line[:44] for line in added] == ['Example of a result: {"ticket_id":"TCK-8612"']  # no seed calls get_ticket
    assert with_examples.identity != without.identity


async def test_replies_to_other_prompts_are_other_replies() -> None:
    """The key of a reply follows from what its world was told."""
    pack, digests = Pack.load("customer_service"), set()
    for shown in (True, False):
        world = await SimulatedBackend(pack, observations=shown).open(pack.task("cs-001"), group="g")
        digests.add(world._digest)
    assert len(digests) == 2


# -- recording ---------------------------------------------------------------------------------------------------------


def test_recording_adds_the_key_and_raises_the_format(tmp_path: Path) -> None:
    pack = recorded(tmp_path / "p")
    text = (tmp_path / "p" / "pack.yaml").read_text()
    assert "format: 2\n" in text
    assert "tasks: tasks.jsonl\nreferences: references.jsonl\n" in text
    assert "# made by the tool's clock" in text, "comments stay"
    reference = pack.references["todo-2"]
    assert reference.tools == [tool.public for tool in pack.tools]
    assert reference.system == pack.policy
    assert [m.role for m in reference.messages] == ["user", "assistant", "tool", "assistant"]
    before = (tmp_path / "p" / "references.jsonl").read_bytes()
    assert run_simia("pack", "record", tmp_path / "p").returncode == 0
    assert (tmp_path / "p" / "references.jsonl").read_bytes() == before
    assert (tmp_path / "p" / "pack.yaml").read_text() == text


def test_a_pack_yaml_in_another_style_is_rewritten(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    small(folder)
    head = yaml.safe_load((folder / "pack.yaml").read_text())
    (folder / "pack.yaml").write_text(json.dumps(head, default=str))
    assert run_simia("pack", "record", folder).returncode == 0
    assert set(Pack.load(folder).references) == {"todo-1", "todo-2"}


def test_what_does_not_score_is_named_and_what_has_no_solution_is_counted(tmp_path: Path) -> None:
    good = json.loads((small(tmp_path / "a").root / "tasks.jsonl").read_text().splitlines()[0])  # type: ignore[operator]
    bad = {**good, "id": "bad", "reward": {"parts": [{"kind": "answer", "expect": ["bread"]}]}}
    small(tmp_path / "p", tasks_jsonl=[good, bad, {"id": "open", "instruction": "Add bread."}])
    done = run_simia("pack", "record", tmp_path / "p")
    assert done.returncode == 0
    assert "1 references written" in done.stdout
    assert "not recorded: task bad: its solution does not score 1" in done.stdout
    assert "1 task without a solution" in done.stdout
    small(tmp_path / "q", tasks_jsonl=[{**bad, "seed": True}])
    failed = run_simia("pack", "record", tmp_path / "q")
    assert failed.returncode == 2
    assert "task bad: its solution does not score 1" in failed.stderr
    assert not (tmp_path / "q" / "references.jsonl").exists()


def test_a_file_that_the_pack_does_not_name_is_not_replaced(tmp_path: Path) -> None:
    small(tmp_path / "p", references_jsonl="mine")
    done = run_simia("pack", "record", tmp_path / "p")
    assert done.returncode == 2
    assert "does not name it" in done.stderr
    assert (tmp_path / "p" / "references.jsonl").read_text() == "mine"


async def test_code_does_not_see_the_references(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    small(folder, references_jsonl="")
    head = (folder / "pack.yaml").read_text().replace("format: 2", "format: 2\nreferences: references.jsonl")
    (folder / "pack.yaml").write_text(head)
    code = (folder / "tools.py").read_text().replace("class State", "open('/pack/references.jsonl')\n\n\nclass State")
    (folder / "tools.py").write_text(code)
    with pytest.raises(UserError, match="references"):
        await open_environment(Pack.load(folder), user="none")


def test_recording_seeds_names_their_file(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    rows = [{**task, "seed": True} for task in TASKS]
    small(folder, tasks_jsonl="\n".join(json.dumps(each) for each in rows))
    done = CliRunner().invoke(build_app(), ["pack", "record", str(folder)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    pack = Pack.load(folder)
    assert len(pack.seeds) == len(rows) == len(pack.references)
