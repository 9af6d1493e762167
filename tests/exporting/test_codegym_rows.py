"""Oracle trajectories of a gym as training rows in CodeGym's dialect: one call a step, and the calls win when they are played again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simia import formats
from simia.cli import build_app
from simia.envs.opening import open_environment
from simia.envs.play.record import record_pack, write_recorded_pack
from simia.errors import Code, UserError
from simia.exporting import CardFacts, ExportReport, export
from simia.exporting.step_reasons import add_step_reasons
from simia.formats.codegym import read_marked_message
from simia.pack import Pack
from simia.trajectory import Message, ToolCall, Trajectory
from tests.envs.gym_packs import write_gym_pack


async def record_gym(folder: Path) -> Pack:
    """Write a gym pack with recorded solutions."""
    pack = write_gym_pack(folder)
    async with await open_environment(str(folder), user="scripted") as environment:
        recorded = await record_pack(environment)
    assert recorded.skipped == []
    write_recorded_pack(pack, recorded)
    return Pack.load(folder)


def read_rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "data.jsonl").read_text().splitlines()]


def write_one(t: Trajectory, folder: Path, **more: Any) -> ExportReport:
    return export([t], folder, to="codegym", facts=CardFacts(), **more)


async def test_exported_solutions_win_when_they_are_played_again(tmp_path: Path) -> None:
    folder = tmp_path / "gym"
    pack = await record_gym(folder)
    made = CliRunner().invoke(build_app(), ["export", str(folder), "--to", "codegym", "--out", str(tmp_path / "sft")])
    assert made.exit_code == 0, made.output
    rows = read_rows(tmp_path / "sft")
    assert len(rows) == 2, "solutions of held-out tasks are no training data"
    async with await open_environment(str(folder), user="none", episode={"calls_per_message": 1}) as environment:
        for row, task_id in zip(rows, ["easy-01", "easy-03"], strict=True):
            turns = row["messages"]
            assert row.keys() == {"messages"}
            assert [turn["role"] for turn in turns[1:]] == ["user", "assistant"] * (len(turns) // 2)
            assert turns[0]["content"].startswith(pack.policy)
            assert "def look_up(index: int):" in turns[0]["content"]
            episode = await environment.reset(task_id)
            assert turns[1]["content"] == episode.messages[0].text
            for number, turn in enumerate(turns[2::2]):
                action = read_marked_message(turn["content"], f"call_{number}")
                assert len(action.calls) == 1
                step = await episode.step(action)
                if step.end is None:
                    answer = turns[2 * number + 3]["content"]
                    assert answer == f"<tool_response>\n{step.messages[0].text}\n</tool_response>"
            assert episode.end is not None
            assert episode.end.code is Code.FINISHED
            assert episode.reward is not None
            assert episode.reward.value == 1.0


async def test_rows_are_read_back_as_the_trajectories(tmp_path: Path) -> None:
    pack = await record_gym(tmp_path / "gym")
    t = pack.references["easy-01"]
    write_one(t, tmp_path / "out")
    (back,) = formats.load_trajectories(tmp_path / "out" / "data.jsonl")
    assert [(c.name, c.arguments) for _, _, c in back.calls()] == [(c.name, c.arguments) for _, _, c in t.calls()]
    assert [tool.flat() for tool in back.tools] == [tool.flat() for tool in t.tools]
    assert back.system == t.system


async def test_llamafactory_rows_of_a_finished_episode_end_with_the_agent(tmp_path: Path) -> None:
    pack = await record_gym(tmp_path / "gym")
    report = export(pack.references.values(), tmp_path / "out", to="llamafactory", facts=CardFacts())
    assert (report.rows, report.refused) == (3, {})
    assert all(row["conversations"][-1]["from"] == "function_call" for row in read_rows(tmp_path / "out"))


def make_parallel(results: list[Message], **more: Any) -> Trajectory:
    calls = [ToolCall(id=f"c{n}", name="look_up", arguments={"index": n}) for n in range(2)]
    messages = [
        Message(role="user", content="Find it."),
        Message(role="assistant", content="Both.", calls=calls, **more),
        *results,
        Message(role="assistant", content="Done."),
    ]
    return Trajectory(system="S", messages=messages)


def result(number: int, text: str, **more: Any) -> Message:
    return Message(role="tool", call_id=f"c{number}", content=text, **more)


def test_parallel_calls_become_steps(tmp_path: Path) -> None:
    assert write_one(make_parallel([result(0, "a"), result(1, "b")]), tmp_path).refused == {}
    (row,) = read_rows(tmp_path)
    assert [turn["content"] for turn in row["messages"][2:6]] == [
        'Both.\n<|FunctionCallBegin|>[{"name": "look_up", "parameters": {"index": 0}}]<|FunctionCallEnd|>',
        "<tool_response>\na\n</tool_response>",
        '<|FunctionCallBegin|>[{"name": "look_up", "parameters": {"index": 1}}]<|FunctionCallEnd|>',
        "<tool_response>\nb\n</tool_response>",
    ]


def test_calls_whose_ids_restart_in_each_turn_keep_their_results(tmp_path: Path) -> None:
    one, other = (make_parallel([result(0, a), result(1, b)]) for a, b in (("a", "b"), ("c", "d")))
    both = one.model_copy(update={"messages": [*one.messages[:-1], *other.messages[1:]]})
    assert write_one(both, tmp_path).refused == {}
    (row,) = read_rows(tmp_path)
    results = [turn["content"] for turn in row["messages"] if "<tool_response>" in turn["content"]]
    assert results == [f"<tool_response>\n{text}\n</tool_response>" for text in "abcd"]


def test_a_call_that_was_refused_as_the_second_is_not_trained(tmp_path: Path) -> None:
    write_one(make_parallel([result(0, "a"), result(1, "no", error=Code.MAX_CALLS)]), tmp_path)
    assert [len(read_marked_message(turn["content"]).calls) for turn in read_rows(tmp_path)[0]["messages"][2::2]] == [
        1,
        0,
    ]


@pytest.mark.parametrize(
    ("t", "code", "more"),
    [
        (make_parallel([result(0, "a"), result(1, "{{idx}}")]), "unexpressible", {}),
        (make_parallel([result(0, "a"), result(1, "<|im_end|>")]), "leak", {}),
        (make_parallel([result(0, "a"), result(1, "b")], train=False), "unexpressible", {}),
        (make_parallel([result(0, "a")]), "role_order", {}),
        (make_parallel([result(0, "a"), result(1, "b" * 4000)]), "over_budget", {"cutoff": 500}),
    ],
)
def test_what_a_trainer_would_change_or_cut_is_refused(tmp_path: Path, t: Trajectory, code: str, more: Any) -> None:
    assert write_one(t, tmp_path, **more).refused == {code: 1}


async def test_step_reasons_say_where_values_come_from_and_change_no_call(tmp_path: Path) -> None:
    pack = await record_gym(tmp_path / "gym")
    t = pack.references["easy-01"]
    write_one(t, tmp_path / "plain")
    write_one(t, tmp_path / "reasoned", step_reasons=True)
    (plain,), (reasoned,) = read_rows(tmp_path / "plain"), read_rows(tmp_path / "reasoned")
    pairs = list(zip(plain["messages"], reasoned["messages"], strict=True))
    assert all(one == other for one, other in pairs if one["role"] != "assistant")
    for one, other in pairs[2::2]:
        assert one["content"].startswith("<|FunctionCallBegin|>"), "the oracle says nothing"
        assert other["content"].endswith("\n" + one["content"])
    said = [read_marked_message(other["content"], "c").text for _, other in pairs[2::2]]
    assert said[0] == "Next: observe."
    assert all(f"{call.name}" in words for (_, _, call), words in zip(t.calls(), said, strict=True))


def test_a_reason_names_the_field_of_a_result_or_the_step_from_the_argument_before() -> None:
    def call(number: int, name: str, **arguments: Any) -> Message:
        return Message(role="assistant", calls=[ToolCall(id=f"c{number}", name=name, arguments=arguments)])

    def result(number: int, value: Any) -> Message:
        return Message(role="tool", content=json.dumps(value), call_id=f"c{number}")

    told = add_step_reasons(
        [
            call(0, "look_up", index=4), result(0, {"index": 4, "value": 93}),
            call(1, "look_up", index=5), result(1, {"index": 5, "value": 12}),
            call(2, "add", first=93, second=12, note=True), result(2, "x" * 400),
            Message(role="assistant", content="So it is 105.", calls=[ToolCall(id="c3", name="done", arguments={"answer": 105})]),
        ]
    )  # fmt: skip
    assert [message.text for message in told if message.role == "assistant"] == [
        "Next: look_up.",
        'look_up returned {"index": 4, "value": 93}. Next: look_up, with index 5, one more than before.',
        'look_up returned {"index": 5, "value": 12}. Next: add, with first 93, value of look_up, second 12, value of look_up.',
        "So it is 105.",
    ]


def test_step_reasons_are_for_rows_of_codegym(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="step reasons are only for --to codegym; trl rows"):
        export([], tmp_path / "sft", to="trl", facts=CardFacts(), step_reasons=True)


def test_a_pack_without_recorded_solutions_names_the_command_that_records(tmp_path: Path) -> None:
    folder = tmp_path / "gym"
    write_gym_pack(folder)
    done = CliRunner().invoke(build_app(), ["export", str(folder), "--to", "codegym", "--out", str(tmp_path / "sft")])
    assert isinstance(done.exception, UserError)
    assert str(done.exception).endswith(f"simia pack record {folder}")


async def test_a_refused_length_names_the_option(tmp_path: Path) -> None:
    pack = await record_gym(tmp_path / "gym")
    for to in ("codegym", "llamafactory"):
        report = export(list(pack.references.values()), tmp_path / to, to=to, facts=CardFacts(), cutoff=50)
        assert report.rows == 0
        assert report.examples[0].detail.endswith("fit into a cutoff of 50: set --cutoff")
