"""eval/ablations/chain_execution.py: what the execution of chains finds is accepted without it."""

from __future__ import annotations

from eval.ablations.chain_execution import count_chains, list_cases

CASES = ("renew", "state_refuses_a_call", "chooses_by_place")


def test_the_gate_sees_calls_that_fail_and_no_choice_by_place() -> None:
    assert set(CASES) < set(list_cases())
    executed, unexecuted = (count_chains(execution, CASES) for execution in (True, False))
    assert (executed.given, executed.accepted, executed.gate_refuses, executed.gate_passes) == (3, 2, {}, [])
    assert (unexecuted.given, unexecuted.accepted) == (3, 3)
    assert unexecuted.gate_refuses == {"state_refuses_a_call": "nothing_to_verify"}
    assert unexecuted.gate_passes == ["chooses_by_place"]
