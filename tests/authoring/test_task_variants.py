"""Variants that need a question or patience: how they are worded, and that nothing else solves them."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from simia.authoring.gate_agents import play_task
from simia.authoring.task_variants import (
    GO_ON,
    MISSING_FUNCTION,
    MISSING_PARAMETER,
    NeededValue,
    NoVariant,
    VariantFault,
    WithheldWording,
    hide_tool,
    list_needed_tools,
    list_needed_values,
    make_question_pattern,
    read_opening,
    withhold_value,
)
from simia.authoring.value_removal import remove_value
from simia.authoring.variant_checks import GuessingAgent, HastyAgent, is_found_by_tools, make_unasked
from simia.authoring.verification_gate import verify_tasks
from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import ReferenceAgent
from simia.envs.users import NoUser, ScriptedUser
from simia.envs.users.scripted import matches_question
from simia.envs.worlds.executable import ExecutableBackend
from simia.envs.worlds.world import ToolResult
from simia.pack import Pack
from simia.task import Task
from simia.tool import ToolSpec
from tests.command import run_simia
from tests.packs.small import small

SHOP = Pack.load("customer_service")
MAIL = "ann@example.com"


@pytest.mark.parametrize(
    ("text", "value", "noun", "left"),
    [
        ("Hi, where's my order ORD-20417? Thanks.", "ORD-20417", "order", "Hi, where's my order? Thanks."),
        ("Please cancel order ORD-1234 today.", "ORD-1234", "order", "Please cancel an order today."),
        ("Please cancel ORD-1234 for me.", "ORD-1234", "order", "Please cancel a certain order for me."),
        ("Has the refund for ORD-1234 been paid?", "ORD-1234", "order", "Has the refund been paid?"),
        ("Cancel it please. My email is ann@example.com.", MAIL, "email", "Cancel it please."),
        ("Cancel it please. Email: ann@example.com", MAIL, "email", "Cancel it please."),
        ("Cancel it please. I'm ann@example.com and my postcode is 4000.", MAIL, "email", "Cancel it please. My postcode is 4000."),
        ("You are Ann (ann@example.com, postcode 4000). You want help.", MAIL, "email", "You are Ann (postcode 4000). You want help."),
        ("You are Ann (ann@example.com, postcode 4000). You want help.", "4000", "postcode", "You are Ann (ann@example.com). You want help."),
        ("You are Ann (ann@example.com). You want help.", MAIL, "email", "You are Ann. You want help."),
        ("What does the copper kettle, PRD-349, cost today?", "PRD-349", "product", "What does the copper kettle cost today?"),
        ("Does the copper kettle PRD-349 work?", "PRD-349", "product", "Does the copper kettle work?"),
        ("Put the note on ORD-1234 now, please.", "ORD-1234", "order", "Put the note on a certain order now, please."),
        # listed with another one, twice there, part of a longer word, nothing left, a wording that would miss something
        ("I have two, ORD-1234 and ORD-1235, open.", "ORD-1234", "order", None),
        ("ORD-1234 is late. Where is ORD-1234?", "ORD-1234", "order", None),
        ("Where is my order ORD-12345?", "ORD-1234", "order", None),
        ("ORD-1234", "ORD-1234", "order", None),
        ("Send it to ann@example.com", MAIL, "email", None),
        ("Its title shall be Plan B 2025 then.", "Plan B 2025", "title", None),
    ],
)  # fmt: skip
def test_a_value_is_taken_out_of_a_sentence(text: str, value: str, noun: str, left: str | None) -> None:
    assert remove_value(text, value, noun) == left


def make_task(**changes: Any) -> Task:
    row: dict[str, Any] = {
        "id": "t", "instruction": "You are Ann (ann@example.com). You want order ORD-1234 cancelled.", "seed": True,
        "script": [
            {"user": "Please cancel my order ORD-1234. I'm ann@example.com."},
            {"calls": [{"name": "get", "arguments": {"order_id": "ORD-1234", "email": MAIL}}]},
            {"calls": [{"name": "cancel", "arguments": {"order_id": "ORD-1234", "reason": "mistake"}}]},
            {"agent": "Done."},
        ],
        "measured": {"m": {"n": 1, "solved": 1}},
    }  # fmt: skip
    return Task.model_validate(row | changes)


def test_a_withheld_value() -> None:
    task = make_task(knows=["The order is ORD-1234."])
    order, mail = list_needed_values(task)
    assert (order.argument, order.value, order.noun, order.title) == ("order_id", "ORD-1234", "order", "order number")
    variant = withhold_value(task, order)
    assert isinstance(variant, Task)
    assert [turn.user or turn.agent for turn in variant.script[:3]] == [
        "Please cancel my order. I'm ann@example.com.", "Could you tell me the order number, please?", "The order number is ORD-1234.",
    ]  # fmt: skip
    assert variant.instruction == "You are Ann (ann@example.com). You want an order cancelled."
    assert (variant.id, variant.tags, variant.seed, variant.measured) == (
        "t-ask-order_id",
        [MISSING_PARAMETER],
        False,
        {},
    )
    assert variant.knows == []
    assert variant.actions == task.actions
    assert matches_question(variant.withheld[0].asked, variant.script[1].agent or "")
    assert isinstance(withhold_value(task, mail), Task)
    again = withhold_value(variant, mail)
    assert isinstance(again, NoVariant)
    assert again.fault is VariantFault.ALREADY_VARIED


@pytest.mark.parametrize(
    ("words", "matches"),
    [
        ("Which order is it?", True),
        ("Please give me the number of your order.", True),
        ("Could you provide the ORDER number", True),
        ("Your order? Which one?", True),
        ("I have taken care of that for you. Is there anything else I can help with?", False),
        ("Your order has been cancelled.", False),
        ("I am sorry, I cannot help with that.", False),
    ],
)
def test_what_counts_as_a_question(words: str, matches: bool) -> None:
    assert matches_question(make_question_pattern(NeededValue("get", "order_id", "ORD-1234")), words) is matches


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"script": [{"user": "Please cancel it."}, {"agent": "Done."}]}, VariantFault.NO_VALUE),
        ({"script": [*make_task().model_dump(exclude_none=True)["script"], {"user": "ORD-1234, yes."}, {"agent": "Done."}]}, VariantFault.VALUE_REPEATED),
        ({"profile": "Knows ORD-1234 by heart."}, VariantFault.VALUE_REPEATED),
        ({"instruction": "ORD-1234 and again ORD-1234."}, VariantFault.VALUE_NOT_REMOVABLE),
        ({"script": [], "goals": [{"query": "Cancel my order ORD-1234."}]}, VariantFault.NOT_EXPRESSIBLE),
        ({"script": []}, VariantFault.NOT_EXPRESSIBLE),
    ],
)  # fmt: skip
def test_why_a_value_cannot_be_withheld(changes: dict[str, Any], fault: VariantFault) -> None:
    found = withhold_value(make_task(**changes), NeededValue("get", "order_id", "ORD-1234"))
    assert isinstance(found, NoVariant)
    assert found.fault is fault


def test_a_wording_of_a_model_is_checked() -> None:
    good = {
        "opening": "Please cancel my order. I'm Ann.",
        "question": "Which one?",
        "fact": "ORD-1234.",
        "asked": "which",
    }
    task = make_task()
    needed = list_needed_values(task)[0]
    assert isinstance(withhold_value(task, needed, WithheldWording.model_validate(good)), Task)
    for changes in ({"opening": "Cancel ord-1234"}, {"question": "ORD-1234?"}, {"fact": "That one."}, {"opening": " "}):
        found = withhold_value(task, needed, WithheldWording.model_validate(good | changes))
        assert isinstance(found, NoVariant)
        assert found.fault is VariantFault.VALUE_NOT_REMOVABLE


def test_a_hidden_tool() -> None:
    task = make_task()
    assert list_needed_tools(task, {"cancel"}) == ["cancel", "get"]
    variant = hide_tool(task, "cancel")
    assert isinstance(variant, Task)
    assert not variant.shows_tool("cancel", 1)
    assert variant.shows_tool("cancel", 2)
    assert [turn.user for turn in variant.script if turn.user][1] == GO_ON
    assert MISSING_FUNCTION in variant.tags
    listed = hide_tool(make_task(tools=["get", "cancel"]), "cancel")
    assert isinstance(listed, Task)
    assert listed.tools == ["get"]
    alone = hide_tool(task, "cancel", user="none")
    assert isinstance(alone, Task)
    assert [len(goal.calls) for goal in alone.goals] == [0, 2]
    assert (alone.script, [part.kind for part in alone.reward.parts]) == ([], ["goals"])
    for found in (
        hide_tool(task, "burn"),
        hide_tool(variant, "get"),
        hide_tool(make_task(reward={"combine": "mean"}), "get", user="none"),
    ):
        assert isinstance(found, NoVariant)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pack, str]:
    """Variants of ten tasks of the shop."""
    out = tmp_path_factory.mktemp("variants") / "new"
    words = [word for task in SHOP.tasks[::8] for word in ("--task", task.id)]
    done = run_simia("pack", "variants", "customer_service", "--out", out, *words)
    assert done.returncode == 0, done.stderr
    return Pack.load(out), done.stdout


def test_variants_of_the_shop_pass_the_gate(written: tuple[Pack, str]) -> None:
    pack, said = written
    kinds = [sum(tag in task.tags for task in pack.tasks) for tag in (MISSING_PARAMETER, MISSING_FUNCTION)]
    assert kinds[0] >= 5
    assert kinds[1] >= 9
    assert f"missing_parameter: {kinds[0]} of 10 tasks" in said
    assert "solved_without_asking" in said
    assert not pack.seeds
    assert not pack.references

    async def gate() -> bool:
        async with await open_environment(pack, user="none") as environment:
            return (await verify_tasks(environment, pack.tasks)).passed

    assert asyncio.run(gate())


def test_who_does_not_ask_or_wait_does_not_score_but_by_luck(written: tuple[Pack, str]) -> None:
    """Guesses are drawn from the state, not from the solutions that were tried when the variants were made."""
    pack, _ = written
    text = (SHOP.root / "state.json").read_text() if SHOP.root else ""
    source = random.Random(20)

    async def play_all() -> dict[str, list[float]]:
        rewards: dict[str, list[float]] = {"guess": [], "luck": [], "hasty": [], "one message": [], "asks": []}
        async with await open_environment(pack, user="none") as environment:
            for task in pack.tasks:
                if MISSING_FUNCTION in task.tags:
                    agents: dict[str, Any] = {"hasty": HastyAgent(task.actions)}
                else:
                    needed = find_withheld(task)
                    others = [v for v in list_like(text, needed.value) if v != needed.value]
                    guess = source.choice(others) if others else "nothing"
                    agents = {
                        "guess": GuessingAgent(make_unasked(task, needed, guess)),
                        "luck": GuessingAgent(make_unasked(task, needed, needed.value)),
                        "one message": HastyAgent(make_unasked(task, needed, guess).actions),
                    }
                for name, agent in {**agents, "asks": ReferenceAgent(task)}.items():
                    user = NoUser(task) if name == "one message" else ScriptedUser(task)
                    played = await play_task(environment, task, agent, user)
                    rewards[name].append(played.reward.value or 0.0 if played.reward else 0.0)
        return rewards

    rewards = asyncio.run(play_all())
    assert set(rewards["asks"]) == {1.0}, "who asks and waits"
    assert sum(rewards["guess"]) == sum(rewards["hasty"]) == sum(rewards["one message"]) == 0
    assert sum(rewards["luck"]) >= len(rewards["luck"]) / 2, "the value is what they lack"


def find_withheld(task: Task) -> NeededValue:
    original = SHOP.task(task.extra["variant_of"])
    argument = task.id.partition("-ask-")[2]
    return next(
        needed
        for needed in list_needed_values(original)
        if needed.argument == argument and needed.value not in read_opening(task)
    )


def list_like(text: str, value: str) -> list[str]:
    """Values of the same form in the shop's state."""
    form = r"[\w.]+@[\w.]+" if "@" in value else re.sub(r"\d+", r"\\d+", value) if "-" in value else r"\b\d{5}\b"
    return sorted(set(re.findall(form, text)))


def test_a_value_that_tools_return_is_no_missing_parameter(tmp_path: Path) -> None:
    """The list of the small pack names its entries, so an entry's number need not be asked for."""
    tasks = [
        {
            "id": "a",
            "instruction": "Please mark T-1001 as done.",
            "reference": [{"name": "finish_todo", "arguments": {"todo_id": "T-1001"}}],
        }
    ]
    small(tmp_path / "todo", tasks_jsonl=tasks)
    done = run_simia("pack", "variants", tmp_path / "todo", "--out", tmp_path / "new", "--task", "a")
    assert "tools return T-1001 without it" in done.stdout, done.stderr
    pack = Pack.load(tmp_path / "new")
    assert [task.id for task in pack.tasks] == ["a-wait-finish_todo"]
    assert [turn.user for turn in pack.tasks[0].script if turn.user] == ["Please mark T-1001 as done.", GO_ON]


@pytest.mark.parametrize(
    ("result", "found"),
    [
        ([{"order_id": "ORD-20417"}], True),
        ("Orders of Ann Lee: ORD-20417 (pending)", True),
        ({"message": "Orders: ORD-20417, ORD-20418"}, True),
        ("Orders of Ann Lee: ORD-204170", False),
    ],
)
def test_a_value_within_a_text_is_found_by_tools_too(result: Any, found: bool) -> None:
    class TextWorld:
        async def initial(self) -> Any:
            return {"customers": {"C1": {"name": "Ann Lee"}}}

        async def call(self, calls: Any, by: str = "agent") -> list[ToolResult]:
            return [ToolResult(calls[0].id, str(result), data=None if isinstance(result, str) else result)]

        async def close(self) -> None:
            pass

    class TextBackend(ExecutableBackend):
        def __init__(self) -> None:
            pass

        async def open(self, *_: Any, **__: Any) -> Any:
            return TextWorld()

    says = "I am Ann Lee. Cancel my order ORD-20417, please."
    calls = [
        {"name": "list_orders", "arguments": {"customer": "Ann Lee"}},
        {"name": "cancel_order", "arguments": {"order_id": "ORD-20417"}},
    ]
    task = Task.model_validate(
        {
            "id": "a",
            "instruction": "",
            "opening": says,
            "script": [{"user": says}, {"calls": calls}, {"agent": "Done."}],
        }
    )
    needed = next(each for each in list_needed_values(task) if each.value == "ORD-20417")
    variant = withhold_value(task, needed)
    assert isinstance(variant, Task)
    customer = {"type": "object", "properties": {"customer": {"type": "string"}}, "required": ["customer"]}
    pack = Pack(name="shop", tools=[ToolSpec(name="list_orders", parameters=customer)])
    environment: Any = SimpleNamespace(backend=TextBackend(), pack=pack)
    assert asyncio.run(is_found_by_tools(environment, variant, needed, {"cancel_order"})) is found


def test_what_cannot_be_varied_is_one_line(tmp_path: Path) -> None:
    tasks = [
        {
            "id": "a",
            "instruction": "Say hello.",
            "reference": [],
            "reward": {"parts": [{"kind": "answer", "expect": ["hello"]}]},
        }
    ]
    small(tmp_path / "todo", tasks_jsonl=tasks)
    done = run_simia("pack", "variants", tmp_path / "todo", "--out", tmp_path / "new")
    assert done.returncode == 2
    assert "no task of todo has a variant: no_value 1, no_tool_needed 1" in done.stderr
    inside = run_simia("pack", "variants", tmp_path / "todo", "--out", tmp_path / "todo" / "new")
    assert "is inside the pack" in inside.stderr
    assert not (tmp_path / "new").exists()
