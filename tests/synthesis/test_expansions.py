"""Stage `expansions`: tools enter a subgraph when they execute; wrong and hostile refinements and chains are refused (fixtures/expansion)."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import Any

import pytest
import yaml

from simia.synthesis.building.random_calls import make_random_calls
from simia.synthesis.building.tool_runs import open_sandbox
from simia.synthesis.chains.chain import Chain, Expansion
from simia.synthesis.chains.chain_runs import play_chain
from simia.synthesis.context import ItemContext
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.expansion.known_arguments import ArgumentFinder, KnownValues
from simia.synthesis.expansion.subgraph_measures import compute_complexity, drop_dead_ends
from simia.synthesis.graph.tool_graph import ToolGraph
from simia.synthesis.reply_reading import dump, read_python
from simia.synthesis.settings import SamplingSettings
from simia.synthesis.stage import StageOutputs
from simia.synthesis.stages.expansions import Expansions, ExpansionSettings
from simia.task import Action
from tests.synthesis.build_fixtures import FIXTURES, FixtureEngine, load_library, read_reply, run_stages

REPLIES: dict[str, str] = yaml.safe_load((FIXTURES / "expansion" / "replies.yaml").read_text(encoding="utf-8"))
GRAPH = ToolGraph.model_validate_json((FIXTURES / "expansion" / "graph.json").read_bytes())
LEND = """\
def chain(call):
    book = call("search_books", word="tides")[0]
    call("lend_book", member_id="MB-01", book_id=book["book_id"])
"""
PAY = """\
def chain(call):
    call("search_books", word="tides")
    call("pay_fine", member_id="MB-02")
"""
SMALL: dict[str, Any] = {"least": 7, "chains": 1, "random_calls": 70}


def make_state(**changes: Any) -> dict[str, Any]:
    """The example state, with other columns: `members={"MB-02": {"fines": 0}}`."""
    state = copy.deepcopy(load_library().example)
    for table, rows in changes.items():
        for key, columns in rows.items():
            state[table][key] |= columns
    return state


NO_FINES = make_state(members={"MB-02": {"fines": 0}})


def expand(
    replies: dict[str, str] | None = None,
    *,
    state: dict[str, Any] | None = None,
    built: BuiltEnvironment | None = None,
    code: str = LEND,
    tools: tuple[str, ...] = ("search_books", "lend_book"),
    **settings: Any,
) -> tuple[StageOutputs, FixtureEngine]:
    """Run the stage on one chain; `replies`: label → name of a fixture."""
    chain = Chain(
        environment="library",
        tools=list(tools),
        code=code,
        state=state or make_state(),
        calls=[],
        known={"word": "tides"},
    )
    outputs = StageOutputs(
        made={
            "environments": {"library": dump(built or load_library())},
            "graph": {"library": dump(GRAPH)},
            "chains": {"library/0": dump(chain)},
        }
    )
    engine = FixtureEngine({f"expansions/library/0.{label}": REPLIES[name] for label, name in (replies or {}).items()})
    stage = Expansions(ExpansionSettings.model_validate({**SMALL, **settings}))
    return run_stages(engine, [stage], outputs), engine


def read_expansion(outputs: StageOutputs) -> tuple[Expansion, dict[str, Any]]:
    assert not outputs.refused, outputs.refused
    return Expansion.model_validate(outputs.of("expansions")["library/0"]), outputs.notes["expansions"]["library/0"]


def test_tools_enter_with_arguments_that_code_derives() -> None:
    outputs, engine = expand()
    found, notes = read_expansion(outputs)
    assert not engine.asked
    assert found.visible == list(load_library().tools)
    assert found.complexity == pytest.approx((7 + 0.5 * 10) / 50)
    assert [call.name for call in found.chain.calls] == ["search_books", "lend_book"]
    assert found.chain.calls[1].arguments == {"member_id": "MB-01", "book_id": "BK-003"}
    assert (notes["by_code"], notes["by_question"], notes["failing"]) == (5, 0, {})
    assert 20 <= notes["random_successes"] < notes["random_calls"] == 70


def test_the_state_is_refined_until_a_tool_executes_and_the_chain_does_the_same() -> None:
    outputs, engine = expand({"refinement1": "good_patch"}, state=NO_FINES)
    found, notes = read_expansion(outputs)
    assert list(engine.asked) == ["expansions/library/0.refinement1"]
    prompt = engine.asked["expansions/library/0.refinement1"].messages[0]["content"]
    assert "It refuses if" in prompt
    assert "owes nothing" in prompt
    assert "members: MB-01" in prompt
    assert "books: BK-003" in prompt
    assert found.chain.state["members"]["MB-09"]["fines"] == 3.5
    assert {**found.chain.state, "members": None} == {**NO_FINES, "members": None}
    assert (notes["by_code"], notes["by_question"], notes["patches"], notes["rejected"]) == (4, 1, 1, 0)
    assert "pay_fine" in found.visible


@pytest.mark.parametrize(
    ("name", "words"),
    [
        pytest.param("wrong_other_effect", "another effect", marks=pytest.mark.all),
        pytest.param("wrong_fixed_row", "members.MB-01, which the task uses", marks=pytest.mark.all),
        ("wrong_dangling_loan", "BK-077"),
        ("wrong_entered_tool_fails", "no longer succeeds"),
    ],
)
def test_a_patch_that_breaks_something_is_rejected_and_the_model_sees_why(name: str, words: str) -> None:
    outputs, engine = expand({"refinement1": name, "refinement2": "good_patch"}, state=NO_FINES)
    found, notes = read_expansion(outputs)
    assert words in str(engine.asked["expansions/library/0.refinement2"].messages[0]["content"])
    assert (notes["patches"], notes["rejected"]) == (1, 1)
    assert "BK-000" not in found.chain.state["books"]

    outputs, _ = expand({"refinement1": name, "refinement2": name}, state=NO_FINES, least=6)
    found, notes = read_expansion(outputs)
    assert found.chain.state == NO_FINES
    assert "pay_fine" not in found.visible
    assert "owes nothing" in notes["failing"]["pay_fine"]


@pytest.mark.parametrize("name", ["hostile_removed_row", "hostile_other_tool"])
def test_a_refinement_outside_of_the_form_is_asked_for_again_and_then_left_out(name: str) -> None:
    outputs, engine = expand({"refinement1": name}, state=NO_FINES, least=6)
    found, _ = read_expansion(outputs)
    assert len(engine.asked) == 3
    assert found.chain.state == NO_FINES


def test_without_refinement_the_state_stays_and_a_tool_that_fails_is_left_out() -> None:
    outputs, engine = expand(state=NO_FINES, refinements=0, least=6)
    found, _ = read_expansion(outputs)
    assert not engine.asked
    assert found.chain.state == NO_FINES
    assert len(found.visible) == 6
    outputs, _ = expand(state=NO_FINES, refinements=0)
    assert outputs.refused["expansions"]["library/0"].reason == "too_few_visible"


def test_without_execution_tools_enter_that_cannot_be_executed() -> None:
    outputs, _ = expand(state=NO_FINES, execution=False)
    found, _ = read_expansion(outputs)
    assert "pay_fine" in found.visible
    broken = LEND.replace("MB-01", "MB-77")
    outputs, _ = expand(code=broken)
    assert outputs.refused["expansions"]["library/0"].reason == "replay_differs"
    outputs, _ = expand(code=broken, execution=False)
    assert not outputs.refused


GATED: dict[str, Any] = {"most": 3, "chains": 2, "rollouts": 4, "least": 5}
SEARCH = {
    "search2_1": "wrong_chain_refused",
    "search2_2": "good_chain",
    "search2_3": "wrong_chain_leaves_scope",
    "search2_4": "hostile_chain_network",
}


def test_a_further_chain_enters_if_the_gate_says_so() -> None:
    outputs, engine = expand(SEARCH | {"gate2": "gate_yes"}, **GATED)
    found, notes = read_expansion(outputs)
    assert found.chains == 2
    assert {"list_loans", "renew_loan"} <= set(found.visible)
    (search,) = notes["searches"]
    assert (search["k"], search["executed"], search["g"], search["p"]) == (4, 1, 0.25, 0.8)
    assert search["interval"][0] < 0.25 < search["interval"][1]
    gate = engine.asked["expansions/library/0.gate2"].messages[0]["content"]
    assert "Feasibility: 0.25, from 4 attempts" in gate
    assert f"Complexity: {search['c']}" in gate


@pytest.mark.parametrize("gate", ["gate_no", "gate_yes"])
def test_auxiliary_chains_fill_up_where_no_further_chain_enters(gate: str) -> None:
    failing = dict.fromkeys(SEARCH, "wrong_chain_refused")
    outputs, _ = expand({**failing, "search2_4": "hostile_chain_endless", "gate2": gate}, **GATED | {"least": 6})
    found, notes = read_expansion(outputs)
    assert found.chains == 1
    assert notes["searches"][0]["executed"] == 0
    assert notes["auxiliary"] > 0
    assert len(found.visible) >= 6


def test_a_gate_that_gives_no_score_refuses_the_task() -> None:
    outputs, _ = expand(SEARCH | {"gate2": "hostile_gate"}, **GATED)
    assert outputs.refused["expansions"]["library/0"].reason == "unreadable_reply"


def test_only_the_first_tasks_are_searched() -> None:
    outputs, engine = expand(**GATED, searched=0)
    found, _ = read_expansion(outputs)
    assert (found.chains, engine.asked) == (1, {})


def test_a_tool_that_leaves_a_dangling_key_leaves_the_subgraph_or_refuses_its_chain() -> None:
    built = load_library()
    built.tools["lend_book"].source = read_python(read_reply("wrong/lends_unknown_books"))
    outputs, _ = expand(built=built, code=PAY, tools=("search_books", "pay_fine"), least=5, random_calls=300)
    found, notes = read_expansion(outputs)
    assert "lend_book" not in found.visible
    assert "lend_book" in notes["failing"]
    outputs, _ = expand(built=built, least=5, random_calls=300)
    assert outputs.refused["expansions"]["library/0"].reason == "dangling_key"


def test_a_thousand_random_calls_in_a_refined_state_find_no_fault() -> None:
    outputs, _ = expand({"refinement1": "good_patch"}, state=NO_FINES)
    found, _ = read_expansion(outputs)
    built = load_library()

    async def go() -> tuple[dict[str, Any], int]:
        context = ItemContext("test/completeness", {}, SamplingSettings(), asyncio.Semaphore(1))
        async with open_sandbox(context, built) as backend:
            again = await play_chain(backend, found.chain.state, found.chain.code)
            assert [call.model_dump() for call in again.calls] == [call.model_dump() for call in found.chain.calls]
            return await make_random_calls(backend, built, 1000, seed=7, state=found.chain.state)

    faults, succeeded = asyncio.run(go())
    assert faults == {}
    assert succeeded > 250


def test_arguments_come_from_results_rows_and_tests() -> None:
    known = KnownValues()
    known.add_call(Action(name="list_loans", arguments={"member_id": "MB-04"}), [{"loan_id": "LN-0003", "title": "x"}])
    finder = ArgumentFinder(load_library(), GRAPH, known, make_state(), "seed")
    assert next(finder.propose("renew_loan")) == {"loan_id": "LN-0003"}
    assert next(finder.propose("pay_fine")) == {"member_id": "MB-04"}
    lends = list(finder.propose("lend_book"))
    assert lends[0]["member_id"] == "MB-04"
    assert {(each["member_id"], each["book_id"]) for each in lends} >= {("MB-01", "BK-002"), ("MB-01", "BK-003")}
    assert len({json.dumps(each, sort_keys=True) for each in lends}) == len(lends)
    assert lends == list(ArgumentFinder(load_library(), GRAPH, known, make_state(), "seed").propose("lend_book"))
    assert {"word": "maren", "genre": "children"} in list(finder.propose("search_books"))


def test_measures_of_a_subgraph() -> None:
    assert compute_complexity(GRAPH, ["search_books", "lend_book"]) == pytest.approx(2.5 / 50)
    assert drop_dead_ends(GRAPH, ["get_member", "renew_loan"], ()) == ["get_member"]
    assert drop_dead_ends(GRAPH, ["get_member", "renew_loan"], ["renew_loan"]) == ["get_member", "renew_loan"]
    assert drop_dead_ends(GRAPH, ["lend_book", "renew_loan"], ()) == []
