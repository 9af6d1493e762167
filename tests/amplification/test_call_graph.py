"""What comes before a call follows from what the seeds do before it."""

from __future__ import annotations

import pytest

from simia import search_path
from simia.amplification.call_graph import CallGraph
from simia.amplification.plan_lines import CONDITIONS, PERSONAS, TWISTS, parse_plan_line, read_plan_lines
from simia.amplification.tool_counts import STRETCH, PlanCounts, ToolCounts
from simia.errors import UserError
from simia.pack import Pack
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall, Trajectory

SHOP = Pack.load(search_path.find_resource("seeds", "customer_service")).seeds


def tool(name: str, *arguments: str) -> ToolSpec:
    properties = {each: {"type": "string"} for each in arguments}
    return ToolSpec(name=name, parameters={"type": "object", "properties": properties, "required": list(arguments)})


TOOLS = [
    tool("find_user", "email"),
    tool("find_user_by_name", "name"),
    tool("get_order", "order_id"),
    tool("cancel_order", "order_id"),
    tool("read_ticket", "ticket_id"),
    tool("transfer", "summary"),
]


def seed(*turns: str | tuple[str, ...], result: str = "{}", ask: bool = False) -> Trajectory:
    """A seed with these calls, a turn each; a change follows a question where `ask`."""
    messages = [Message(role="user", content="Please.")]
    for i, turn in enumerate(turns):
        names = (turn,) if isinstance(turn, str) else turn
        if ask and "cancel_order" in names:
            messages += [Message(role="assistant", content="Shall I?"), Message(role="user", content="Yes.")]
        calls = [ToolCall(id=f"c{i}-{j}", name=name, arguments={}) for j, name in enumerate(names)]
        messages.append(Message(role="assistant", calls=calls))
        messages += [Message(role="tool", call_id=call.id, content=result) for call in calls]
    return Trajectory(tools=TOOLS, messages=[*messages, Message(role="assistant", content="Done.")])


def test_ways_to_a_tool_are_those_of_the_seeds() -> None:
    graph = CallGraph(
        [
            seed("find_user", "get_order", "cancel_order"),
            seed("find_user_by_name", "get_order"),
            seed("find_user", "get_order", "cancel_order", "transfer"),
        ]
    )
    assert graph.list_ways("get_order") == [("find_user",), ("find_user_by_name",)]
    assert graph.list_ways("cancel_order") == [("find_user", "get_order")]
    assert graph.list_ways("find_user") == [()]
    assert graph.list_ways("transfer") == [("find_user", "get_order", "cancel_order")], "the only seed that shows it"
    assert graph.final == {"transfer"}


def test_the_change_of_an_earlier_wish_is_no_prerequisite() -> None:
    graph = CallGraph(
        [seed("find_user", "get_order", "cancel_order", "transfer"), seed("find_user", "get_order", "transfer")]
    )
    assert graph.list_ways("transfer") == [("find_user", "get_order")]


def test_one_slip_among_many_seeds_is_no_way() -> None:
    seeds = [seed("find_user", "get_order", "cancel_order") for _ in range(99)]
    graph = CallGraph([*seeds, seed("cancel_order")])
    assert graph.list_ways("cancel_order") == [("find_user", "get_order")]


def test_a_tool_that_no_seed_calls_follows_what_gives_its_identifier_or_the_users_identification() -> None:
    giver = CallGraph([seed("find_user", "get_order", result='{"ticket_id": "T-1"}')])
    assert giver.list_ways("read_ticket") == [("find_user",), ("find_user", "get_order")]
    identified = CallGraph([seed("find_user", "get_order") for _ in range(6)])
    assert identified.list_ways("read_ticket") == [("find_user",)]
    assert CallGraph([seed("get_order")]).list_ways("read_ticket") == [()]


def test_a_change_that_no_seed_makes_follows_what_its_like_follows() -> None:
    tools = [*TOOLS, tool("modify_order", "order_id", "address")]
    shown = seed("find_user", "get_order", "cancel_order").model_copy(update={"tools": tools})
    assert CallGraph([shown]).list_ways("modify_order") == [("find_user", "get_order")]


def test_two_first_calls_that_never_stand_together_take_each_others_place() -> None:
    one, other = seed("find_user", "get_order"), seed("find_user_by_name", "get_order")
    graph = CallGraph([one, other] * 5)
    assert graph.instead == {"find_user": {"find_user_by_name"}, "find_user_by_name": {"find_user"}}
    assert CallGraph([one, other]).instead == {}, "too few to tell"
    assert CallGraph([one, other, seed("find_user", "find_user_by_name")] * 5).instead == {}


def test_what_is_made_together_and_what_is_confirmed() -> None:
    graph = CallGraph([seed(("get_order", "get_order"), "cancel_order", ask=True)])
    assert graph.together == {("get_order", "get_order")}
    assert graph.confirmed == {"cancel_order"}
    assert graph.user_turns == 2
    assert CallGraph([seed("get_order", "cancel_order")]).confirmed == frozenset()
    assert "cancel_order" in CallGraph(SHOP).confirmed


def test_following_the_counts_evens_out_the_tools() -> None:
    counts = PlanCounts(used=True)
    for ord_ in range(10):
        counts.note_plan(ord_, ["a", "b"])
    assert counts.counts(10).tools["a"] == pytest.approx(8), "expected acceptance, while none is known"
    counts.note_plan(10, ["a"])
    assert counts.counts(11).tools["a"] == pytest.approx(8.8)
    assert counts.counts(11).pairs["a", "b"] == pytest.approx(8)


def test_known_acceptance_takes_the_place_of_the_expected_one_and_a_resume_counts_the_same() -> None:
    def work(until: int, *, restored: bool) -> PlanCounts:
        counts = PlanCounts(used=True)
        for ord_ in range(until):
            if not restored:
                counts.counts(ord_)
            counts.note_plan(ord_, ["a"] if ord_ % 2 else ["a", "b"])
            if ord_ < STRETCH:  # the second stretch is planned and not decided
                if ord_ % 4 == 0:
                    counts.note(["a", "b"])
                counts.decided(ord_)
        return counts

    live, resumed = work(2 * STRETCH, restored=False), work(2 * STRETCH, restored=True)
    here = live.counts(2 * STRETCH)
    assert here == resumed.counts(2 * STRETCH)
    assert here.tools["a"] == pytest.approx(STRETCH / 4 + STRETCH / 4), "accepted, and a quarter of the planned"
    assert here.tools["b"] == pytest.approx(STRETCH / 4 + STRETCH / 8)
    assert not live.is_known(3 * STRETCH)


def test_counts_of_a_long_run_stay_small() -> None:
    counts = PlanCounts(used=True)
    for ord_ in range(20 * STRETCH):
        counts.counts(ord_)
        counts.note_plan(ord_, ["a"])
        counts.note(["a"])
        counts.decided(ord_)
    assert len(counts._taken) <= 4
    assert len(counts._planned) <= 4


def test_a_set_is_covered_as_its_rarest_pair() -> None:
    counts = ToolCounts()
    counts.add(["b", "a", "a"])
    counts.add(["b", "c"])
    assert counts.seen(["a", "b"]) == 1
    assert counts.seen(["a", "b", "c"]) == 0
    assert counts.seen([]) == 0


def test_lines_have_conditions_that_are_known() -> None:
    line = parse_plan_line("waits | needs: change dialogue | forbids: goals | adds: -2", "x.txt")
    assert (line.text, line.adds) == ("waits", -2)
    assert line.fits({"change", "dialogue"})
    assert not line.fits({"change"})
    assert not line.fits({"change", "dialogue", "goals"})
    assert parse_plan_line("is calm", "x.txt").fits(())
    for bad in ("waits | needs: chnage", "waits | needs:", "waits | soon", "waits | adds: two"):
        with pytest.raises(UserError, match=r"prompts/x\.txt: cannot read .* of the line 'waits'"):
            parse_plan_line(bad, "x.txt")
    used = {word for name in (PERSONAS, TWISTS) for each in read_plan_lines(name) for word in each.needs | each.forbids}
    assert used <= CONDITIONS


def test_personas_are_many_different_and_fit_the_line() -> None:
    personas = [line.text for line in read_plan_lines(PERSONAS)]
    assert len(personas) == len(set(personas)) >= 60
    assert all(len(text) < 100 and text[0].islower() and not text.endswith(".") for text in personas)
    assert all(line.text.endswith(".") for line in read_plan_lines(TWISTS))
