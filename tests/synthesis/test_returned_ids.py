"""Ids that calls return must lead to a row: a tool that drops leading zeros is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from simia.envs.worlds.executable import ExecutableBackend
from simia.synthesis.building.random_calls import make_random_calls, repeat_tests
from simia.synthesis.building.returned_ids import list_ids, list_unknown_ids
from simia.synthesis.building.tool_runs import open_sandbox, run_tool_tests
from simia.synthesis.context import ItemContext
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.reasons import Reason
from simia.synthesis.settings import SamplingSettings
from tests.synthesis.build_fixtures import load_library

RETURNED = 'return {"loan_id": loan_id,'
DROPPED = 'return {"loan_id": "LN-" + loan_id[3:].lstrip("0"),'
STATE = {
    "items": {"0412": {"parent_id": "0007", "note": "412"}},
    "boards": {"B-1": {"item_ids": ["0412"], "external_id": 88}},
}


def change_tools(**sources: tuple[str, str]) -> BuiltEnvironment:
    """The library with words of tools replaced."""
    built = load_library()
    for name, (old, new) in sources.items():
        assert built.tools[name].source.count(old) == 1
        built.tools[name].source = built.tools[name].source.replace(old, new)
    return built


def run_in_sandbox(built: BuiltEnvironment, run: Callable[[ExecutableBackend], Awaitable[Any]]) -> Any:
    async def open_and_run() -> Any:
        async with open_sandbox(ItemContext("ids", {}, SamplingSettings(), asyncio.Semaphore(1)), built) as backend:
            return await run(backend)

    return asyncio.run(open_and_run())


def list_reasons(faults: dict[str, tuple[Reason, str]]) -> dict[str, Reason]:
    return {name: reason for name, (reason, _) in faults.items()}


def test_a_tool_that_drops_leading_zeros_passes_its_tests_and_not_their_repetition() -> None:
    built = change_tools(lend_book=(RETURNED, DROPPED))
    runs = run_in_sandbox(built, lambda backend: run_tool_tests(backend, built.design, built.tests))
    assert not [run.detail for run in runs if run.reason]
    faults = run_in_sandbox(built, lambda backend: repeat_tests(backend, built, 20))
    assert list_reasons(faults) == {"lend_book": Reason.UNKNOWN_ID}
    assert "which no row has and no tool finds" in faults["lend_book"][1]
    right = load_library()
    assert run_in_sandbox(right, lambda backend: repeat_tests(backend, right, 20)) == {}


def test_an_id_that_a_tool_understands_is_no_fault() -> None:
    """The member is returned without the dash of its key, and `get_member` takes both."""
    loose = 'self.state.members.get(member_id[:2] + "-" + member_id[-2:])'
    short = ('"member_id": member_id, "paid"', '"member_id": "MB" + member_id[-2:], "paid"')
    for read, expected in ((loose, {}), ("self.state.members.get(member_id)", {"pay_fine": Reason.UNKNOWN_ID})):
        built = change_tools(get_member=("self.state.members.get(member_id)", read), pay_fine=short)
        faults, _ = run_in_sandbox(built, lambda backend, built=built: make_random_calls(backend, built, 150))
        assert list_reasons(faults) == expected


@pytest.mark.parametrize(
    ("result", "arguments", "unknown"),
    [
        ({"item_id": 412}, {}, [("item_id", "412")]),
        ({"item": {"id": "0412"}, "boards": [{"id": "B-1"}]}, {}, []),
        ({"item_ids": ["0412", "0413"]}, {}, [("item_ids", "0413")]),
        ({"external_id": 88, "parent_id": "0007"}, {}, []),
        ({"itemId": 413, "paid": 5, "valid": True}, {}, [("itemId", "413")]),
        ({"deleted_id": "9"}, {"item_id": 9}, []),
        ({"id": None}, {}, []),
        ("0413", {}, []),
    ],
)
def test_ids_are_those_of_rows_of_columns_or_of_the_call(
    result: Any, arguments: dict[str, Any], unknown: list[Any]
) -> None:
    assert list_unknown_ids(result, arguments, STATE) == unknown


def test_names_of_identifiers() -> None:
    names = ["id", "loan_id", "loan_ids", "loanId", "paid", "valid", "kids", "idea", "grid"]
    assert [name for name, _ in list_ids(dict.fromkeys(names, "x"))] == ["id", "loan_id", "loan_ids", "loanId"]
