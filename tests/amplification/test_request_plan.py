"""One plan holds all of a request; the same number and counts give the same plan, and its parts fit each other."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from simia import load_trajectories, search_path
from simia.amplification.call_graph import CallGraph
from simia.amplification.plan_settings import PlanSettings
from simia.amplification.plan_source import render_plan
from simia.amplification.request_plan import RequestPlan, plan_request
from simia.amplification.seed_traits import SeedTraits, read_traits
from simia.amplification.tool_counts import ToolCounts
from simia.config import load_config
from simia.pack import Pack
from simia.quality.goals import PlannedGoal
from simia.quality.suites import GENERIC, SUITES
from simia.trajectory import Message, Trajectory

sys.path.append(str(Path(__file__).parents[2] / "eval" / "bench"))
import planned_requests as bench

SEEDS = Path(__file__).parents[1] / "recordings" / "seeds"
SHOP = Pack.load(search_path.find_resource("seeds", "customer_service")).seeds
TRAITS = read_traits(SHOP[0], CallGraph(SHOP), GENERIC)


def plans(settings: PlanSettings | None = None, count: int = 600, traits: SeedTraits = TRAITS) -> list[RequestPlan]:
    counts, made = ToolCounts(), []
    for number in range(count):
        made.append(plan_request(SHOP[number % len(SHOP)], counts, number, traits, settings or PlanSettings()))
        counts.add(made[-1].calls)
    return made


def share(found: list[RequestPlan], outcome: str) -> float:
    return sum(outcome in plan.outcomes for plan in found) / len(found)


def test_the_same_number_and_counts_give_the_same_plan() -> None:
    again = read_traits(SHOP[0], CallGraph(list(SHOP)), GENERIC)
    first = plans(count=100)
    assert first == plans(count=100, traits=again)
    assert len({plan.persona for plan in first}) > 30
    assert len({plan.calls for plan in first}) > 40
    assert {bool(plan.twist) for plan in first} == {True, False}


def test_a_plan_is_read_back_from_an_items_spec() -> None:
    for plan in plans(count=200):
        assert RequestPlan.from_spec(json.loads(json.dumps(plan.to_spec()))) == plan
    assert RequestPlan.from_spec({"goals": [], "later": 1}) == RequestPlan()


def test_plans_reach_the_distribution_that_is_asked_for() -> None:
    asked = PlanSettings(goals={1: 1, 2: 1}, errors=0.3, refusals=0.2, missing=0.1, withdrawals=0.1, parallel=0.4)
    found = plans(asked, 1500)
    assert sum(len(plan.goals) == 2 for plan in found) / len(found) == pytest.approx(0.5, abs=0.06)
    assert share(found, "recovered") == pytest.approx(0.3, abs=0.07)
    assert share(found, "refused") == pytest.approx(0.2, abs=0.07)
    assert share(found, "missing") == pytest.approx(0.1, abs=0.04)
    assert share(found, "withdrawn") == pytest.approx(0.1, abs=0.04)
    assert sum(plan.is_parallel for plan in found) / len(found) == pytest.approx(0.4, abs=0.13)
    none = plans(PlanSettings(goals={3: 1}, errors=0, refusals=0, missing=0, withdrawals=0, parallel=0), 300)
    assert {outcome for plan in none for outcome in plan.outcomes} == {"done"}
    assert sum(len(plan.goals) == 3 for plan in none) > 270


def test_a_number_that_the_seeds_calls_allow_is_reached() -> None:
    def reach(count: int, **settings: Any) -> list[RequestPlan]:
        return plans(PlanSettings(**settings), count)

    assert sum(len(plan.calls) == 3 for plan in reach(400, calls={3: 1})) >= 0.9 * 400
    found = Counter(len(plan.calls) for plan in reach(400, calls={2: 1, 3: 3}, parallel=0, errors=0))
    assert found[2] / 400 == pytest.approx(0.25, abs=0.06)
    assert found[3] / 400 == pytest.approx(0.75, abs=0.06)
    assert sum(len(plan.calls) == 1 for plan in reach(400, calls={1: 1}, parallel=0, errors=0)) >= 0.9 * 400
    assert all(len(plan.goals) == 1 for plan in reach(200, goals={1: 1}))
    both = reach(400, goals={2: 1}, calls={3: 1})
    assert sum((len(plan.goals), len(plan.calls)) == (2, 3) for plan in both) >= 0.8 * 400


def test_two_look_ups_of_which_a_seed_makes_one_for_another_tool_are_planned_together() -> None:
    inn = list(load_trajectories(SEEDS / "inn_ja.jsonl"))
    graph = CallGraph(inn)
    assert graph.together == {("get_reservation", "list_options")}
    found = plans(PlanSettings(parallel=1, errors=0), 300, read_traits(inn[0], graph, GENERIC))
    assert sum(plan.is_parallel for plan in found) > 0.95 * 300
    assert not any(plan.is_parallel for plan in plans(PlanSettings(parallel=0), 100))


def test_calls_and_difficulty_can_be_set() -> None:
    few = plans(PlanSettings(calls={1: 1}, goals={1: 1}, errors=0, parallel=0), 300)
    many = plans(PlanSettings(calls={7: 1}, goals={3: 1}, errors=0, parallel=0), 300)
    assert sum(len(plan.calls) for plan in few) / 300 < 3 < 5 < sum(len(plan.calls) for plan in many) / 300
    hard = plans(PlanSettings(difficulty={"hard": 1}), 300)
    assert Counter(plan.difficulty for plan in hard)["hard"] > 170
    easy = plans(PlanSettings(difficulty={"easy": 1, "hard": 1}), 300)
    assert Counter(plan.difficulty for plan in easy)["easy"] > 100


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("plan.goals={4: 1}", "1, 2 or 3 goals"),
        ("plan.calls={0: 1}", "for 1 to 12 calls"),
        ("plan.goals={1: 0}", "at least one must be more than 0"),
        ("plan.errors=2", "expected a number of at most 1"),
    ],
)
def test_a_bad_distribution_is_one_line(settings: str, said: str) -> None:
    from simia.amplification.settings import AmplifyConfig
    from simia.errors import UserError

    with pytest.raises(UserError, match=said):
        load_config(AmplifyConfig, "amplify/default", [settings])


def test_each_call_stands_after_what_it_needs_and_all_tools_are_planned() -> None:
    found = plans(count=1500)
    assert {name for plan in found for name in plan.calls} == {tool.name for tool in SHOP[0].tools}
    counted = Counter(goal.tool for plan in found for goal in plan.goals)
    assert min(counted.values()) > 12, counted
    for plan in found:
        calls = plan.calls
        for at, name in enumerate(calls):
            ways = TRAITS.graph.list_ways(name)
            assert any(set(way) <= set(calls[:at]) for way in ways), (name, calls)


def test_what_was_accepted_often_is_planned_less_often() -> None:
    counts = ToolCounts()
    for _ in range(60):
        counts.add(["get_voucher", "apply_voucher"])

    def planned(given: ToolCounts) -> int:
        made = [plan_request(SHOP[0], given, number, TRAITS, PlanSettings()) for number in range(800)]
        return sum(any(goal.tool == "apply_voucher" for goal in plan.goals) for plan in made)

    assert planned(ToolCounts()) > 4 * planned(counts)


def test_a_refused_or_withdrawn_change_is_not_called_and_needs_a_policy_or_a_question() -> None:
    asked = PlanSettings(refusals=0.5, withdrawals=0.5)
    for plan in plans(asked, 400):
        left = [goal.tool for goal in plan.goals if goal.outcome in ("refused", "withdrawn")]
        assert not set(left) & set(plan.calls)
        assert plan.calls
    free = [seed.model_copy(update={"system": None}) for seed in SHOP]
    bare = read_traits(free[0], CallGraph(free), GENERIC)
    assert share(plans(asked, 300, bare), "refused") == 0
    helpful = SHOP[0].model_copy(
        update={"system": "You are a helpful assistant with access to the following functions, use them."}
    )
    assert not read_traits(helpful, CallGraph(SHOP), GENERIC).has_policy


def test_nothing_is_parallel_where_the_policy_or_the_suite_wants_single_calls() -> None:
    single = SHOP[0].model_copy(update={"system": f"{SHOP[0].system}\nMake only one tool call at a time."})
    for traits in (read_traits(single, CallGraph(SHOP), GENERIC), read_traits(SHOP[0], CallGraph(SHOP), SUITES["os"])):
        assert traits.one_call
    calm = plans(PlanSettings(parallel=1), 200, read_traits(single, CallGraph(SHOP), GENERIC))
    assert not any(plan.is_parallel for plan in calm)
    assert sum(plan.is_parallel for plan in plans(PlanSettings(parallel=1), 200)) > 100


def test_the_length_follows_from_calls_and_turns() -> None:
    one = PlannedGoal("get_order")
    change = PlannedGoal("cancel_order", "done", ("get_order",))
    from simia.amplification.request_plan import estimate_messages

    assert estimate_messages([one], TRAITS) == 4
    assert estimate_messages([change], TRAITS) == 2 + 4 + 2, "the assistant asks, the user agrees"
    assert estimate_messages([change, one], TRAITS) == 8 + 2 + 2
    assert estimate_messages([PlannedGoal("cancel_order", "withdrawn", ("get_order",))], TRAITS) == 2 + 2 + 2
    assert estimate_messages([PlannedGoal("get_order", "missing")], TRAITS) == 6
    assert estimate_messages([PlannedGoal("get_order", "recovered", (), "get_order")], TRAITS) == 6
    twice = PlannedGoal("get_order", "done", (), "", ("get_order", "get_order"))
    assert twice.calls == ("get_order", "get_order")
    assert estimate_messages([twice], TRAITS) == 5


def test_values_are_those_of_planned_calls() -> None:
    given: list[Any] = []

    def choose(tools: Any, language: str) -> dict[str, Any]:
        given.append((tuple(tools), language))
        return {"order_id": "ORD-1"}

    plan = plan_request(SHOP[0], ToolCounts(), 4, TRAITS, PlanSettings(), choose_values=choose)
    assert given == [(tuple(dict.fromkeys(plan.calls)), "en")]
    assert plan.values == {"order_id": "ORD-1"}


def test_trajectories_without_tools_have_a_plan_too() -> None:
    bare = Trajectory(messages=[Message(role="user", content="Hi"), Message(role="assistant", content="Hello.")])
    plan = plan_request(bare, ToolCounts(), 3, read_traits(bare, CallGraph([bare]), GENERIC), PlanSettings())
    assert (plan.goals, plan.messages) == ((), 2)
    assert plan.persona


def test_a_plan_is_written_in_plain_lines() -> None:
    plan = RequestPlan(
        (
            PlannedGoal("cancel_order", "refused", ("get_order",)),
            PlannedGoal("get_refund", "recovered", (), "get_refund"),
        ),
        "is in a hurry",
        "The result is empty.",
        8,
        {"email": "a@example.com", "count": 2},
        "zh",
    )
    assert render_plan(plan).splitlines() == [
        "Values: email a@example.com, count 2.",
        "Goal 1: the user wants what cancel_order does; the policy forbids it in this case, so the assistant declines and does not"
        " call it. Calls: get_order.",
        "Goal 2: done, after the first call of get_refund has returned an error and the assistant has corrected it."
        " Calls: get_refund, get_refund.",
        "The conversation is in the example's language (zh).",
        "The user is in a hurry. The result is empty.",
    ]


def test_no_request_of_a_shipped_config_contradicts_itself() -> None:
    results = bench.run(150)
    assert len(results) == 9
    wrong = {name: {k: n for k, n in each["contradictions"].items() if n} for name, each in results.items()}
    assert not any(wrong.values()), (wrong, [each["examples"] for each in results.values()])
    for name in ("default with scenarios", "tau2-90k", "Chinese"):
        assert results[name]["distinct"]["personas"] > 30
    for name in ("officebench-30k", "agentbench-15k"):  # suites with targets of their own
        assert results[name]["distinct"]["personas"] > 10
        assert results[name]["distinct"]["events"] > 4


def test_the_benchmark_finds_contradictions() -> None:
    """Each request below contradicts itself in one way that was measured before."""
    (seed, *_) = bench.make_tau_seeds(20)
    head = "Write one new conversation of about {} messages, with other people.\n"
    cases = {
        "a value that no planned tool takes": head.format(8) + "Values: email a@example.com.\nGoal 1: done. Calls: find_user_id_by_name_zip.\nThe user waits.",
        "longer than the plan can fill": head.format(24) + "Goal 1: done. Calls: find_user_id_by_email.\nThe user waits.",
        "shorter than the plan needs": head.format(4) + "Goal 1: done. Calls: find_user_id_by_email, get_order_details.\nThe user waits.",
        "calls without authentication": head.format(6) + "Goal 1: done. Calls: get_order_details.\nThe user waits.",
        "two calls in one turn against the policy": head.format(6)
        + "Goal 1: done. Calls: find_user_id_by_email, get_user_details.\nThe user waits. Two look-ups that do not depend on each other are made in one turn.",
        "nothing is changed, and a change is planned": head.format(10)
        + "Goal 1: done. Calls: find_user_id_by_email, get_order_details, cancel_pending_order.\nThe user only wants information in the end.",
        "one set of tools, then calls of another": "Write one new conversation of similar length (6 messages or so). It may well need:"
        " get_user_details.\nThe user waits. Calls, in whatever order fits: calculate.",
    }  # fmt: skip
    for kind, text in cases.items():
        request = bench.read_request(text, seed, [seed])
        assert bench.CONTRADICTIONS[kind](request), kind
        assert request.calls, text


def test_one_message_asks_for_as_many_changes_as_a_seed_and_for_no_look_up_alone() -> None:
    lockers = Pack.load(Path(__file__).parents[2] / "eval/loop/pack").seeds
    settings = PlanSettings(goals={1: 0.75, 2: 0.25}, errors=0, refusals=0, missing=0, withdrawals=0, parallel=0)
    traits = read_traits(lockers[0], CallGraph(lockers), GENERIC)
    found = plans(settings, 400, traits)
    assert 0.2 < sum(len(plan.goals) == 2 for plan in found) / len(found) < 0.3
    ends = {goal.tool for plan in found for goal in plan.goals}
    assert ends == {"move_parcel", "hold_parcel", "return_parcel"}
    assert {goal.before for plan in found for goal in plan.goals if goal.tool == "hold_parcel"} == {
        (),
        ("find_parcel",),
    }
    single = [
        seed for seed in lockers if len({call.name for _, _, call in seed.calls()} - {"find_parcel", "free_locker"}) < 2
    ]
    traits = read_traits(single[0], CallGraph(single), GENERIC)
    assert {len(plan.goals) for plan in plans(settings, 100, traits)} == {1}


LOCKERS = Pack.load(Path(__file__).parents[2] / "eval" / "loop" / "pack").seeds
LOCKER_TRAITS = read_traits(LOCKERS[0], CallGraph(LOCKERS), GENERIC)
MOVE_AND_HOLD = ("find_parcel", "free_locker", "move_parcel", "hold_parcel")


def test_several_goals_follow_a_seed_where_asked() -> None:
    """Without errors, the only seed with two changes gives its calls; one goal and three goals are planned as before."""
    plain = PlanSettings(goals={1: 0.5, 2: 0.5}, errors=0, parallel=0)
    free = plans(plain, traits=LOCKER_TRAITS)
    kept = plans(plain.model_copy(update={"seed_goals": 1.0}), traits=LOCKER_TRAITS)
    two = [plan.calls for plan in kept if len(plan.goals) == 2]
    assert set(two) == {MOVE_AND_HOLD}
    assert len({plan.calls for plan in free if len(plan.goals) == 2}) > 3
    assert {plan.calls for plan in kept if len(plan.goals) == 1} == {
        plan.calls for plan in free if len(plan.goals) == 1
    }
    half = plans(plain.model_copy(update={"seed_goals": 0.5}), traits=LOCKER_TRAITS)
    followed = sum(plan.calls == MOVE_AND_HOLD for plan in half if len(plan.goals) == 2)
    assert 0.4 < followed / len(two) < 0.7


def test_goals_of_a_seed_have_the_complications_that_are_asked_for() -> None:
    kept = plans(PlanSettings(goals={2: 1}, seed_goals=1, errors=1), traits=LOCKER_TRAITS)
    assert all([*dict.fromkeys(plan.calls)] == list(MOVE_AND_HOLD) and len(plan.calls) == 5 for plan in kept)
    assert share(kept, "recovered") == 1


def test_no_seed_with_as_many_changes_leaves_goals_free() -> None:
    single = read_traits(LOCKERS[0], CallGraph([seed for seed in LOCKERS if len(list(seed.calls())) < 4]), GENERIC)
    settings = PlanSettings(goals={2: 1}, calls={4: 1})
    assert plans(settings.model_copy(update={"seed_goals": 1.0}), 50, single) == plans(settings, 50, single)
