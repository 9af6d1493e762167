"""`simia pack new --from trajectories`: each seed becomes a task, which the reference agent solves in a simulated world.

The world answers with the recorded observations, and no model is asked: an episode that leaves the recorded calls fails here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simia.authoring.seed_tasks import list_successful_calls
from simia.cli import build_app
from simia.envs.config import EnvironmentConfig
from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import CannedAgent, ReferenceAgent
from simia.envs.play.player import play
from simia.envs.role_models import user_kind
from simia.envs.users import LLMUser, NoUser
from simia.envs.users.llm import describe_task
from simia.errors import UserError
from simia.importers.trajectories import import_trajectories, read_seed_source
from simia.llm.engine import Engine, EngineLimits
from simia.llm.journals import MemoryJournal
from simia.llm.types import Request
from simia.pack import Pack
from simia.reward_spec import AnswerSpec
from simia.task import Task
from simia.trajectory import Message, ToolCall, Trajectory
from tests.envs.worlds.test_simulated import Scripted
from tests.importers.seed_rows import GLAIVE_ROWS, make_row

GLAIVE = Path(__file__).parents[3] / "shared" / "data" / "glaive_toolcall_en_demo.json"
LIMITS = {"turns": 200, "errors": 200}


def refuse_to_answer(request: Request) -> str:
    raise AssertionError(f"a model was asked: {request.messages[-1]['content'][-500:]}")


async def play_references(folder: Path, backend: str = "simulated") -> dict[str, Trajectory]:
    """Play every task by the reference agent, and check that an agent that does nothing earns nothing."""
    world: dict[str, Any] = {"replay": True} if backend == "simulated" else {}
    found = {}
    async with (
        Engine(Scripted(refuse_to_answer), MemoryJournal(), EngineLimits(retries=0)) as engine,
        await open_environment(
            folder, backend=backend, user="scripted", reward="rules", engine=engine, episode=LIMITS, **world
        ) as environment,
    ):
        for task in environment.tasks:
            found[task.id] = await play(await environment.reset(task), ReferenceAgent(task))
            idle = await play(await environment.reset(task), CannedAgent(task))
            assert idle.reward is not None
            assert idle.reward.value == 0.0, task.id
    return found


def check_solved(found: dict[str, Trajectory]) -> None:
    missed = {name: each.reward for name, each in found.items() if each.reward is None or each.reward.value != 1.0}
    assert not missed


def list_results(trajectory: Trajectory) -> list[Any]:
    """The calls with their results; JSON as values."""
    results = [message for message in trajectory.messages if message.role == "tool"]
    return [
        (
            call.name,
            call.arguments,
            json.loads(result.text) if result.text[:1] in "{[" else result.text,
            bool(result.error),
        )
        for (_, _, call), result in zip(trajectory.calls(), results, strict=True)
    ]


@pytest.mark.parametrize(("name", "count"), [("customer_service", 38), ("office", 42)])
async def test_every_seed_of_our_packs_is_solved_with_its_observations(name: str, count: int, tmp_path: Path) -> None:
    [folder] = import_trajectories(name, tmp_path / "seeds")
    found = await play_references(folder)
    assert len(found) == count
    check_solved(found)
    for seed in Pack.load(name).seeds:
        assert seed.task_id is not None
        assert list_results(found[seed.task_id]) == list_results(seed)


async def test_the_same_tasks_are_solved_by_the_packs_own_code(tmp_path: Path) -> None:
    [folder] = import_trajectories("customer_service", tmp_path / "seeds")
    found = await play_references(folder, "executable")
    check_solved(found)
    recorded = Pack.load(folder).references
    assert all(list_results(each) == list_results(recorded[name]) for name, each in found.items())


async def test_rows_of_the_glaive_form_become_tasks(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([*GLAIVE_ROWS, make_row([("human", "Hi"), ("gpt", "Hello!")])]))
    lines: list[str] = []
    [folder] = import_trajectories(str(path), tmp_path / "pack", say=lines.append)
    check_solved(found := await play_references(folder))
    assert list(found) == [f"rows-{number}" for number in range(1, len(GLAIVE_ROWS) + 1)]
    assert lines[0] == f"{len(GLAIVE_ROWS)} seeds of {len(GLAIVE_ROWS) + 1} read; refused: 1 no_tool_use"
    pack = Pack.load(folder)
    assert (pack.user, pack.file and pack.file.references, pack.file and pack.file.seeds) == (
        "llm",
        "seeds.jsonl",
        "seeds.jsonl",
    )
    # Another schema of one name is another tool, and a task shows the tools of its own row alone.
    assert [tool.name for tool in pack.tools] == ["get_stock_price", "find_book", "order_book", "get_stock_price_2"]
    assert [task.tools for task in pack.tasks] == [
        ["get_stock_price"],
        ["find_book", "order_book"],
        ["get_stock_price_2"],
    ]
    assert [action.name for action in pack.tasks[2].actions] == ["get_stock_price_2"]
    assert lines[-1].endswith("4 tools; several schemas, each a tool of its own: get_stock_price")


async def test_every_kept_row_of_glaives_demonstration_is_solved(tmp_path: Path) -> None:
    if not GLAIVE.is_file():
        pytest.skip(f"{GLAIVE} is not on this machine; the rows of seed_rows.py have the same form")
    [folder] = import_trajectories(str(GLAIVE), tmp_path / "glaive")
    found = await play_references(folder)
    check_solved(found)
    kept = read_seed_source(str(GLAIVE), None).seeds
    assert len(found) == len(kept) == 125
    for seed in kept:
        assert seed.task_id is not None
        assert [row[1:] for row in list_results(found[seed.task_id])] == [row[1:] for row in list_results(seed)]


def book_task(tmp_path: Path) -> tuple[Path, Task]:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(GLAIVE_ROWS))
    [folder] = import_trajectories(str(path), tmp_path / "pack")
    return folder, Pack.load(folder).task("rows-2")


async def test_the_policy_sees_no_later_wish_and_the_user_no_result(tmp_path: Path) -> None:
    folder, task = book_task(tmp_path)
    model = Scripted(lambda request: "Yes, order it." if len(model.asked) < 3 else "Thanks ###STOP###")
    async with (
        Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine,
        await open_environment(folder, backend="simulated", reward="rules", replay=True, engine=engine) as environment,
    ):
        episode = await environment.reset(task)
        assert isinstance(episode.user, LLMUser)  # by the pack, without a setting
        seen = json.dumps(
            [episode.view.system, [m.text for m in episode.view.messages], [t.flat() for t in episode.view.all_tools]]
        )
        assert [message.text for message in episode.view.messages] == [task.opening]
        assert all(secret not in seen for secret in ("paperback", "BK-7710", "18.40", "You write to an assistant"))
        trajectory = await play(episode, ReferenceAgent(task))
    assert trajectory.reward is not None
    assert trajectory.reward.value == 1.0
    told = str(model.asked[0].messages[0]["content"])
    assert "I want the paperback, sent to 12 Mill Road." in told  # what the later turns want and know
    assert "BK-7710" not in told  # what only a result said
    assert "18.40" not in told
    assert "- Yes, order […] for […]." in told
    assert task.knows == ["I am looking for The Winter Orchard.", "I want the paperback, sent to 12 Mill Road."]
    assert describe_task(task) in told


async def test_the_simulators_prompt_holds_the_seeds_results_and_the_tasks_own_tools(tmp_path: Path) -> None:
    folder, task = book_task(tmp_path)
    model = Scripted(lambda _: '{"answers": [{"call": 1, "outcome": "result", "content": {"books": []}}]}')
    async with (
        Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine,
        await open_environment(folder, backend="simulated", reward="rules", user=NoUser, engine=engine) as environment,
    ):
        await play(await environment.reset(task), ReferenceAgent(task))
    system, request = (str(message["content"]) for message in model.asked[0].messages)
    assert "## find_book\n" in system
    assert "get_stock_price" not in system
    assert "BK-7710" in request.split("# A solution of this task")[1]


async def test_an_episode_that_leaves_the_record_asks_the_model(tmp_path: Path) -> None:
    folder, task = book_task(tmp_path)
    model = Scripted(lambda _: '{"answers": [{"call": 1, "outcome": "error", "content": "none"}]}')
    wrong = task.model_copy(update={"script": [task.script[0], task.script[-2], task.script[1], task.script[-1]]})
    async with (
        Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine,
        await open_environment(
            folder, backend="simulated", reward="rules", user=NoUser, replay=True, engine=engine
        ) as opened,
    ):
        trajectory = await play(await opened.reset(task), ReferenceAgent(wrong))
    assert len(model.asked) == 2  # the second call is the recorded one, but not after these calls
    assert trajectory.reward is not None
    assert trajectory.reward.value == 0.0


def test_calls_that_failed_are_replayed_and_not_asked_for(tmp_path: Path) -> None:
    [folder] = import_trajectories("customer_service", tmp_path / "seeds")
    tasks = {task.id: task for task in Pack.load(folder).tasks}
    failed = [seed for seed in Pack.load(folder).seeds if any(message.error for message in seed.messages)]
    assert len(failed) == 7
    for seed in failed:
        task = tasks[seed.task_id or ""]
        made = [call.name for _, _, call in seed.calls()]
        assert [action.name for turn in task.script for action in turn.calls or []] == made
        assert len(task.reference) < len(made)
        assert isinstance(task.reward.parts[0], AnswerSpec) is not bool(task.reference)
    assert {seed.task_id for seed in failed if not tasks[seed.task_id or ""].reference}  # some have no other call


def write_call(call_id: str, name: str, order: str) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps({"order_id": order})}
    return {"id": call_id, "type": "function", "function": function}


async def test_calls_that_failed_by_their_text_are_not_asked_for(tmp_path: Path) -> None:
    """Rows of other programs mark no result as failed, and the results of parallel calls may come in any order."""
    order = {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]}
    names = ("get_order", "cancel_order")
    tools = [{"type": "function", "function": {"name": name, "description": "", "parameters": order}} for name in names]
    looked_up = [write_call("1", "get_order", "ORD-20417"), write_call("2", "get_order", "ORD-20418")]
    messages = [
        {"role": "user", "content": "Cancel my order ORD-20417, or else ORD-20418."},
        {"role": "assistant", "content": None, "tool_calls": looked_up},
        {"role": "tool", "tool_call_id": "2", "content": '{"order_id": "ORD-20418", "status": "pending"}'},
        {"role": "tool", "tool_call_id": "1", "content": '{"error": "order ORD-20417 not found"}'},
        {"role": "assistant", "content": None, "tool_calls": [write_call("1", "cancel_order", "ORD-20418")]},
        {"role": "tool", "tool_call_id": "1", "content": '{"order_id": "ORD-20418", "status": "cancelled"}'},
        {"role": "assistant", "content": "Order ORD-20418 is cancelled."},
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"tools": tools, "messages": messages}) + "\n")
    [folder] = import_trajectories(str(path), tmp_path / "pack")
    [task] = Pack.load(folder).tasks
    assert [(each.name, each.arguments) for each in task.actions] == [
        ("get_order", {"order_id": "ORD-20418"}),
        ("cancel_order", {"order_id": "ORD-20418"}),
    ]
    check_solved(await play_references(folder))


@pytest.mark.parametrize(
    ("result", "is_kept"),
    [
        ('{"claim_id": "C-1", "status": "rejected"}', True),
        ('{"valid": false, "errors": ["zip missing"]}', True),
        ("Failed logins: 3 since Monday", True),
        ("Error log of May: empty", True),
        ('{"error": "not found"}', False),
        ('{"success": false}', False),
        ("Error: not found", False),
        ("Error 404: not found", False),
        ("Failed to reach the desk", False),
    ],
)
def test_a_result_that_only_reads_like_an_error_keeps_its_call(result: str, *, is_kept: bool) -> None:
    messages = [
        Message(role="assistant", calls=[ToolCall(id="1", name="review", arguments={})]),
        Message(role="tool", content=result, call_id="1"),
    ]
    assert [call.name for call in list_successful_calls(messages)] == ["review"] * is_kept


def number_row(number: int) -> dict[str, Any]:
    """A row with a text and a system text of its own."""
    turns = json.loads(json.dumps(GLAIVE_ROWS[0]["conversations"]).replace("Hi,", f"Hello {number},"))
    return {**GLAIVE_ROWS[0], "conversations": turns, "system": f"Today is day {number}."}


def test_several_system_texts_become_several_packs(tmp_path: Path) -> None:
    rows = [
        {**row, "system": text} for row, text in zip(GLAIVE_ROWS, ("Be brief.", "Be kind.", "Be brief."), strict=True)
    ]
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(rows))
    folders = import_trajectories(str(path), tmp_path / "pack")
    assert folders == [tmp_path / "pack" / "1", tmp_path / "pack" / "2"]
    assert [(pack.name, pack.policy, len(pack.tasks)) for pack in map(Pack.load, folders)] == [
        ("pack-1", "Be brief.", 2),
        ("pack-2", "Be kind.", 1),
    ]
    path.write_text(json.dumps([number_row(number) for number in range(65)]))
    with pytest.raises(UserError, match=r"its seeds have 65 different system texts, .*: remove what differs"):
        import_trajectories(str(path), tmp_path / "many")
    assert not (tmp_path / "many").exists()


def test_seeds_of_an_evaluation_stay_for_evaluation(tmp_path: Path) -> None:
    seed = Pack.load("customer_service").seeds[0]
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(seed.model_copy(update={"extra": {"evaluation": True}}).to_row()) + "\n")
    [folder] = import_trajectories(str(path), tmp_path / "pack")
    assert Pack.load(folder).tasks[0].tags == ["evaluation"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["customer_service", "--from", "trajectories"],
            "--out is missing: simia pack new --from trajectories SEEDS --out FOLDER",
        ),
        (
            ["made", "--out", "there"],
            "--out and --set are only for --from trajectories: omit them, and give the folder as the argument",
        ),
        (["nothing.json", "--from", "trajectories", "--out", "there"], "nothing.json does not exist"),
        (
            ["empty.jsonl", "--from", "trajectories", "--out", "there"],
            "empty.jsonl holds no rows: give a file, pack or data set with seed trajectories",
        ),
    ],
)
def test_what_cannot_be_made_is_one_line(
    words: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.jsonl").write_text("")
    done = CliRunner().invoke(build_app(), ["pack", "new", *words])
    assert done.exit_code != 0
    assert line in f"{done.output}{done.exception}"
    assert not Path("there").exists()


@pytest.mark.parametrize("name", ["library.jsonl", "library.json"])
def test_seeds_in_place_of_a_pack_are_pointed_to_the_command(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text('{"messages": []}\n{"messages": []}\n')
    line = f"{name} is not a pack.*: simia pack new --from trajectories {name} --out DIR"
    with pytest.raises(UserError, match=line):
        Pack.load(name)


def test_a_rollout_of_a_pack_without_code_is_pointed_to_the_simulated_world(tmp_path: Path) -> None:
    import_trajectories("customer_service", tmp_path / "made")
    pack = Pack.load(tmp_path / "made")
    pack.executable = None  # as that of a file of seeds
    with pytest.raises(UserError, match=r"^pack made has no executable world, .*: --set backend=simulated$"):
        user_kind(EnvironmentConfig(pack=str(tmp_path / "made")), pack)
    simulated = EnvironmentConfig(pack=str(tmp_path / "made"), backend="simulated")
    assert user_kind(simulated, pack) == "llm"


def test_the_command_makes_a_pack_and_says_what_is_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(
        build_app(), ["pack", "new", "--from", "trajectories", "customer_service", "--out", "made"]
    )
    assert done.exit_code == 0, done.output
    assert "made: 38 tasks, 20 tools" in done.output
    without = "--set evaluate=null --set grpo.eval_strategy=no"
    assert done.output.rstrip().endswith(f"next: simia train trl trl/seeds --set stage.pack=made {without} --dry-run")
    assert CliRunner().invoke(build_app(), ["pack", "validate", "made"]).exit_code == 0
