"""What `simia runs show RUN --item ITEM` prints about the calls of a simulated or a shadow episode."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from simia.evaluation.failures import Failure
from simia.report.rollout_report import (
    compare_call_answers,
    list_failure_lines,
    print_differences,
    print_named_changes,
)

CANCELLED = {"table": "jobs", "key": "JOB-1", "set": {"status": "cancelled", "fee": 15}}
WITHOUT_FEE = {"table": "jobs", "key": "JOB-1", "set": {"status": "cancelled"}}
ANSWER = {"content": {"job_id": "JOB-1", "status": "cancelled"}, "failed": False}
REFUSAL = {"content": {"error": "no such job"}, "failed": True}


def make_row(named: list[Any], *, simulated: Any = ANSWER, **step: Any) -> dict[str, Any]:
    transition = {"real": [CANCELLED], "simulated": named, "exact": named == [CANCELLED], **step}
    call = {"step": 3, "name": "cancel_job", "arguments": {"job_id": "JOB-1"}, "real": ANSWER, "simulated": simulated}
    return {**call, "transition": transition}


def print_rows(*rows: dict[str, Any]) -> str:
    out = io.StringIO()
    print_differences(rows, Console(file=out, width=200))
    return out.getvalue()


def test_equal_answers_with_other_changes_do_not_agree() -> None:
    printed = print_rows(make_row([WITHOUT_FEE]))
    assert '3. cancel_job {"job_id":"JOB-1"}: differs in the changes' in printed
    assert 'changes   expected [{"table":"jobs","key":"JOB-1","set":{"status":"cancelled","fee":15}}]' in printed
    assert 'changes   named    [{"table":"jobs","key":"JOB-1","set":{"status":"cancelled"}}]' in printed
    assert "agrees" not in printed


def test_equal_answers_with_exact_changes_agree_and_the_changes_are_printed_once() -> None:
    printed = print_rows(make_row([CANCELLED]))
    assert "cancel_job" in printed
    assert ": agrees" in printed
    assert printed.count("changes") == 1


@pytest.mark.parametrize(
    ("row", "fate"),
    [
        (make_row([CANCELLED], simulated=REFUSAL), "differs"),
        (make_row([], simulated=REFUSAL), "differs"),
        ({"real": ANSWER, "simulated": ANSWER}, "agrees"),  # a state of files has no changes to compare
        ({"real": ANSWER, "lost": "timeout: no reply"}, "lost"),
    ],
)
def test_answers_are_compared_before_changes(row: dict[str, Any], fate: str) -> None:
    assert compare_call_answers(row) == fate


def test_changes_that_cannot_be_applied_are_explained() -> None:
    printed = print_rows(make_row([WITHOUT_FEE], fault="jobs has no row JOB-1"))
    assert "changes   cannot be applied: jobs has no row JOB-1" in printed


def test_the_changes_of_a_simulated_episode_are_printed() -> None:
    out = io.StringIO()
    print_named_changes({"evidence": {"changes": [], "simulated": [WITHOUT_FEE]}}, Console(file=out, width=200))
    printed = out.getvalue()
    assert printed.splitlines()[0] == "changes that the simulator named:"
    assert '{"table":"jobs","key":"JOB-1","set":{"status":"cancelled"}}' in printed


@pytest.mark.parametrize(
    "evidence", [None, {"changes": []}, {"simulated": []}, {"simulated": [CANCELLED], "differences": []}]
)
def test_no_heading_without_changes_of_a_simulator(evidence: Any) -> None:
    out = io.StringIO()
    print_named_changes({"evidence": evidence}, Console(file=out))
    assert out.getvalue() == ""


def test_a_failure_in_a_simulated_world_may_be_the_simulators() -> None:
    failure = Failure("cancel-1.0", "agent", "wrong final state", "parts/P-1 is unchanged")
    assert len(list_failure_lines([failure], "executable")) == 1
    assert "simulator" in list_failure_lines([failure], "simulated")[1]
    assert "simulator" in list_failure_lines([failure], {"*": "simulated"})[1]
    assert len(list_failure_lines([Failure("a", "user", "repeats itself", "")], "simulated")) == 1
