"""Check functions: which are read, which discriminate, and the guard that sees further changes."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from simia.envs.worlds.executable import ExecutableBackend
from simia.pack import Pack
from simia.sandbox.limits import WorkerLimits
from simia.state import diff_states
from simia.synthesis.building.pack_writing import write_environment
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.reasons import Reason, Unreadable
from simia.synthesis.scenarios.check_functions import judge_check, read_check, write_guard
from simia.synthesis.scenarios.solution_runs import PlayedSolution, play_solution
from simia.task import Action
from tests.synthesis.scenario_fixtures import BAD_CHECKS, GOOD, LIBRARY

STATE: dict[str, Any] = LIBRARY["example"]
SOLUTION = [
    Action(name="pay_fine", arguments={"member_id": "MB-02"}),
    Action(name="lend_book", arguments={"member_id": "MB-02", "book_id": "BK-003"}),
]


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    folder = tmp_path_factory.mktemp("library") / "pack"
    write_environment(folder, BuiltEnvironment.model_validate(LIBRARY))
    return Pack.load(folder)


def judge(pack: Pack, *codes: str) -> list[tuple[Reason, str] | None]:
    """Judge checks on the example state and the solution."""

    async def go() -> list[tuple[Reason, str] | None]:
        backend = ExecutableBackend(pack, limits=WorkerLimits(cpu=2))
        try:
            played = await play_solution(backend, STATE, SOLUTION)
            assert played.fault is None
            return [await judge_check(backend, STATE, played.changes, code) for code in codes]
        finally:
            await backend.close()

    return asyncio.run(go())


def test_good_checks_are_read_and_kept(pack: Pack) -> None:
    replies = GOOD["scenarios/library/0/0"]
    codes = [read_check(replies[f"check{number}"]) for number in (1, 2, 3)]
    assert judge(pack, *codes) == [None, None, None]


@pytest.mark.parametrize("name", [name for name, case in BAD_CHECKS.items() if case["reason"] == "unreadable"])
def test_a_check_that_reaches_out_is_not_read(name: str) -> None:
    with pytest.raises(Unreadable) as caught:
        read_check(BAD_CHECKS[name]["code"])
    assert BAD_CHECKS[name]["detail"] in str(caught.value)


def test_a_check_that_does_not_discriminate_is_dropped(pack: Pack) -> None:
    cases = {name: case for name, case in BAD_CHECKS.items() if case["reason"] != "unreadable"}
    found = judge(pack, *(read_check(case["code"]) for case in cases.values()))
    assert {name: fault and str(fault[0]) for name, fault in zip(cases, found, strict=True)} == {
        name: case["reason"] for name, case in cases.items()
    }
    for case, fault in zip(cases.values(), found, strict=True):
        assert fault is not None
        assert case.get("detail", "") in fault[1]


def test_the_guard_sees_further_changes(pack: Pack) -> None:
    async def go() -> tuple[Any, ...]:
        backend = ExecutableBackend(pack)
        try:
            played = await play_solution(backend, STATE, SOLUTION)
            guard = write_guard(STATE, played.final)
            other = copy.deepcopy(played.final)
            other["books"]["BK-001"]["copies"] = 9
            more = await play_solution(
                backend, STATE, [*SOLUTION, Action(name="return_book", arguments={"loan_id": "LN-0001"})]
            )
            return guard, played, more, other
        finally:
            await backend.close()

    guard, played, more, other = asyncio.run(go())
    names: dict[str, Any] = {}
    exec(guard, names)  # our own code
    check = names["check"]
    assert check(STATE, STATE)
    assert check(played.final, STATE)
    assert not check(more.final, STATE)
    assert not check(other, STATE)


def play(pack: Pack, *calls: Action) -> PlayedSolution:
    async def go() -> PlayedSolution:
        backend = ExecutableBackend(pack)
        try:
            return await play_solution(backend, STATE, calls)
        finally:
            await backend.close()

    return asyncio.run(go())


def test_a_solution_is_executed_with_values_of_earlier_results(pack: Pack) -> None:
    played = play(
        pack,
        Action(name="lend_book", arguments={"member_id": "MB-01", "book_id": "BK-003"}),
        Action(name="return_book", arguments={"loan_id": "$1.loan_id"}),
    )
    new = [key for key in played.final["loans"] if key not in STATE["loans"]]
    assert played.fault is None
    assert played.calls[1].arguments == {"loan_id": new[0]}
    assert diff_states(STATE, played.final) == played.changes


def test_a_call_that_is_refused_ends_the_solution_with_its_message(pack: Pack) -> None:
    played = play(pack, Action(name="get_member", arguments={}), *SOLUTION)
    assert played.fault is not None
    assert played.fault.startswith("call 1, get_member: ")
    assert (played.calls, played.final) == ([], None)
    nothing = play(pack, Action(name="get_member", arguments={"member_id": "MB-01"}))
    assert nothing.fault == "all calls succeed, and the state is as it was before them"
