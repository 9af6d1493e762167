"""The agreement of rules on the held state with the reward is printed and saved alike."""

from __future__ import annotations

import io

import pytest

from simia.quality.judging.agreement import Agreement
from simia.report.change_report import collect_reward_figures, print_changes, print_rewards
from simia.report.console import Terminal


def test_agreement_of_the_rewards_is_printed_as_it_is_saved() -> None:
    found = {"state": Agreement(10, 9, 0.5), "schema": None, "code": Agreement(4, 4, None)}
    out = Terminal(width=120, record=True, file=io.StringIO())
    print_rewards(found, out)
    assert out.export_text().splitlines() == [
        "state: rules on the held state agree with the reward in 9 of 10: 0.90 [0.60, 0.98]",
        "code: rules on the held state agree with the reward in 4 of 4: 1.00 [0.51, 1.00]",
    ]
    saved = collect_reward_figures(found)
    assert saved.keys() == {"state", "code"}
    assert saved["state"] == {
        "episodes": 10, "agreed": 9, "share": 0.9, "kappa": 0.5,
        "low": pytest.approx(0.596, abs=1e-3), "high": pytest.approx(0.982, abs=1e-3),
    }  # fmt: skip


def test_lost_calls_are_named_beside_the_figures_without_them() -> None:
    result = {"content": {"a": 1}, "failed": False}
    step = {"exact": True, "rewarded": True, "delta": 0, "entities": 0, "invented": [], "forgotten": []}
    call = {"episode": "t", "name": "look", "arguments": {}, "real": result}
    rows = [
        {**call, "step": 1, "simulated": result, "transition": step},
        {**call, "step": 2, "lost": "unparsable"},
    ]
    out = Terminal(width=120, record=True, file=io.StringIO())
    print_changes({"state": rows}, {}, out)
    assert "state: 1 of 2 calls had no readable answer; all other figures leave them out\n" in out.export_text()
