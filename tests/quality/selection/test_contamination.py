"""Contamination: what a trajectory repeats of a benchmark, and what it may share with one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simia.amplification.seeds import load_seed_packs
from simia.amplification.settings import AmplifyConfig
from simia.errors import Code, UserError
from simia.quality.selection.benchmark_tasks import iterate_tasks
from simia.quality.selection.contamination import BenchmarkIndex
from simia.trajectory import Message, ToolCall, Trajectory

TAU2 = {
    "id": "12",
    "description": {"purpose": "The user asks for something that the policy does not allow at all, twice."},
    "user_scenario": {
        "persona": "You are a polite and very patient person who likes to write long messages.",
        "instructions": {
            "domain": "retail",
            "reason_for_call": "You want to exchange your red kettle for the larger one in brushed steel.",
            "known_info": "You are Ada Quist in zip code 19122.",
            "task_instructions": "If the kettle is gone, ask to be paid back to your gift card at once.",
        },
    },
    "evaluation_criteria": {
        "actions": [
            {"action_id": "0", "name": "find_user", "arguments": {"name": "Ada Quist", "zip": "19122"}},
            {"action_id": "1", "name": "list_products", "arguments": {}},
            {"action_id": "2", "name": "get_order", "arguments": {"order_id": "#W1"}},
            {"action_id": "3", "name": "exchange", "arguments": {"order_id": "#W1", "items": ["1", "2"]}},
        ]
    },
}


def conversation(*said: str, calls: list[tuple[str, dict[str, Any]]] = []) -> Trajectory:  # noqa: B006 - never changed
    messages = [Message(role="user", content=text) for text in said]
    messages += [
        Message(role="assistant", calls=[ToolCall(id=f"c{i}", name=name, arguments=arguments)])
        for i, (name, arguments) in enumerate(calls)
    ]
    return Trajectory(messages=messages)


def written(folder: Path, name: str, value: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, value)) if name.endswith("l") else json.dumps(value))
    return path


@pytest.fixture
def tau2(tmp_path: Path) -> BenchmarkIndex:
    return BenchmarkIndex.load("tau2", [written(tmp_path, "retail/tasks.json", [TAU2])])


def test_counts_say_what_was_indexed(tau2: BenchmarkIndex) -> None:
    assert (len(tau2.tasks), len(tau2._grams), len(tau2._whole), len(tau2._pairs)) == (1, 7 + 1 + 9, 0, 2)


def test_words_of_a_task_are_found_and_quoted(tau2: BenchmarkIndex) -> None:
    t = conversation("Hello!", "Hi, I want to exchange my RED kettle, for the larger one - please. It's old.")
    (issue,) = tau2.findings(t)
    assert issue.code is Code.CONTAMINATED
    assert issue.where == "messages[1]"
    assert "tau2, task retail/tasks#12" in issue.detail
    assert "“i want to exchange my red kettle for the larger one”" in issue.detail


@pytest.mark.parametrize(
    "said",
    [
        "The user asks for something that the policy does not allow at all, twice.",
        "You are a polite and very patient person who likes to write long messages.",
    ],
)
def test_what_a_task_says_of_itself_is_not_the_users_wish(tau2: BenchmarkIndex, said: str) -> None:
    assert tau2.findings(conversation(said)) == []


def test_seven_words_are_not_enough_unless_asked_for(tmp_path: Path) -> None:
    path = written(
        tmp_path, "tasks.jsonl", [{"instruction": "Book the quiet room on the third floor for Monday morning"}]
    )
    said = conversation("Please book the quiet room on the third of May")
    assert BenchmarkIndex.load("b", [path]).findings(said) == []
    assert len(BenchmarkIndex.load("b", [path], n=7).findings(said)) == 1


def test_words_of_other_roles_do_not_count(tau2: BenchmarkIndex) -> None:
    text = "You want to exchange your red kettle for the larger one in brushed steel."
    assert tau2.findings(Trajectory(messages=[Message(role="assistant", content=text)])) == []


def test_a_gram_does_not_reach_over_messages(tau2: BenchmarkIndex) -> None:
    assert tau2.findings(conversation("I want to exchange my", "red kettle for the larger one")) == []


def test_a_short_task_counts_as_a_whole_message(tmp_path: Path) -> None:
    path = written(tmp_path, "subtasks.jsonl", [{"task": "Which class has the least students?"}])
    benchmark = BenchmarkIndex.load("b", [path])
    assert len(benchmark._whole) == 1
    assert len(benchmark.findings(conversation("which class has the least students"))) == 1
    assert benchmark.findings(conversation("Tell me which class has the least students")) == []


def test_a_short_piece_of_a_longer_task_may_be_said_by_anybody(tmp_path: Path) -> None:
    texts = ["You do not remember your email", "You want the blue tent for six people with poles"]
    benchmark = BenchmarkIndex.load("b", [written(tmp_path, "tasks.jsonl", [{"instruction": texts}])])
    assert benchmark.findings(conversation("I do not remember my email")) == []
    assert len(benchmark.findings(conversation("I want the blue tent for six people"))) == 1


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("get_order", {"order_id": "#W1"}),
    ("exchange", {"items": ["1", "2"], "order_id": "#W1"}),
]


def test_two_calls_with_the_same_values_are_found(tau2: BenchmarkIndex) -> None:
    (issue,) = tau2.findings(conversation("Hi", calls=[("think", {"thought": "hm"}), *CALLS]))
    assert issue.where == "messages[2].calls[0]"
    assert "tau2, task retail/tasks#12: calls get_order(" in issue.detail
    assert "#w1" in issue.detail


def test_calls_without_arguments_lie_between_without_effect(tau2: BenchmarkIndex) -> None:
    assert len(tau2.findings(conversation(calls=[CALLS[0], ("list_products", {}), CALLS[1]]))) == 1


@pytest.mark.parametrize(
    "calls",
    [
        [("get_order", {"order_id": "#W2"}), ("exchange", {"items": ["1", "2"], "order_id": "#W2"})],  # names alone
        CALLS[:1],
        CALLS[::-1],
        [CALLS[0], ("think", {"thought": "hm"}), CALLS[1]],
        [("list_products", {}), ("list_products", {})],
    ],
)
def test_calls_that_are_no_contamination(tau2: BenchmarkIndex, calls: list[tuple[str, dict[str, Any]]]) -> None:
    assert tau2.findings(conversation(calls=calls)) == []


def test_each_task_is_named_once_with_its_longest_piece(tmp_path: Path) -> None:
    first = "alpha beta gamma delta epsilon zeta eta theta iota kappa"
    second = "one two three four five six seven eight nine"
    path = written(tmp_path, "tasks.json", {"a": {"instruction": first}, "b": {"instruction": second}})
    benchmark = BenchmarkIndex.load("b", [path])
    found = benchmark.findings(conversation(f"{first[:-6]} and {second}", first))
    assert [issue.where for issue in found] == ["messages[1]", "messages[0]"]
    assert "10 words" in found[0].detail
    assert ["tasks#a" in found[0].detail, "tasks#b" in found[1].detail] == [True, True]


def test_tasks_of_tau_bench_and_of_openai_form(tmp_path: Path) -> None:
    old = {"user_id": "u", "instruction": "x", "actions": [{"name": "f", "kwargs": {"a": 1}}]}
    new = {"question": "y", "ground_truth": [{"function": {"name": "g", "arguments": '{"b": 2}'}}, "stop"]}
    read = list(iterate_tasks(written(tmp_path, "t.jsonl", [old, new, 7])))
    assert len(read) == 2
    assert [(task.texts, [(c.name, c.arguments) for c in task.calls]) for task in read[:2] if task] == [
        (["x"], [("f", {"a": 1})]),
        (["y"], [("g", {"b": 2})]),
    ]


def test_trajectories_of_any_dialect_are_tasks(tmp_path: Path) -> None:
    said = "Please move the quarterly review to the twelfth of March at noon"
    rows = [{"conversations": [{"from": "human", "value": said}, {"from": "gpt", "value": "Done."}], "tools": "[]"}]
    benchmark = BenchmarkIndex.load("b", [written(tmp_path, "rows.json", rows)])
    assert "12 words" in benchmark.findings(conversation(said))[0].detail


def test_folders_of_officebench_and_patterns(tmp_path: Path) -> None:
    for folder, task in (
        ("1-1", "Write a letter to Bob about the party on Friday"),
        ("2-7", "Read the scores in the sheet, then write a letter to Bob"),
    ):
        written(tmp_path, f"{folder}/subtasks/0.json", {"username": "Bob", "task": task, "evaluation": []})
    both = BenchmarkIndex.load("office", [tmp_path])
    hard = BenchmarkIndex.load("office", [tmp_path / "[23]-*"])
    assert (len(both.tasks), len(hard.tasks)) == (2, 1)
    (issue,) = hard.findings(conversation("Read the scores in the sheet, then write to me"))
    assert "task 2-7/0:" in issue.detail
    assert hard.findings(conversation("Write a letter to Bob about the party on Friday")) == []


def test_our_seeds_are_clean_of_a_task_made_of_another_seed(tmp_path: Path) -> None:
    config = AmplifyConfig()
    seeds = load_seed_packs(config.seeds, config.checks).order
    benchmark = BenchmarkIndex.load("seeds", [written(tmp_path, "s.jsonl", [seeds[0].to_row()])])
    assert benchmark.findings(seeds[0])
    assert [seed.task_id for seed in seeds[1:] if benchmark.findings(seed)] == []


@pytest.mark.parametrize("content", ["[]", '[{"foo": 1}]', "not json", '{"instruction": "too short"}'])
def test_files_without_a_task_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "tasks.json").write_text(content)
    with pytest.raises(UserError, match="no task's words or calls"):
        BenchmarkIndex.load("b", [tmp_path / "tasks.json"])


def test_missing_files_and_senseless_settings_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path / "*.json", tmp_path):
        with pytest.raises(UserError, match="no file of tasks"):
            BenchmarkIndex.load("b", [path])
    with pytest.raises(UserError, match="4 or more"):
        BenchmarkIndex("b", [], n=3)
