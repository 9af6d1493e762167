"""`make redteam`: run every test marked `attack` and print one table, attack → contained, for each isolation.

Mark a test with `@pytest.mark.attack("what the attacker does")`. The column is the value of the test's parameter `isolation`
(shared, process or sandbox) or the mark's argument `where`; without either it is `outside`: the attack targets the parent
process, a server or a file rather than a sandbox. A cell is "contained" when all its tests passed; their number follows.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

COLUMNS = ("shared", "process", "sandbox", "outside")
_rows = pytest.StashKey[dict[str, dict[str, list[str]]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_rows] = defaultdict(lambda: defaultdict(list))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = (yield).get_result()
    if report.when != "call" and report.outcome == "passed":
        return
    for mark in item.iter_markers("attack"):
        parameters = getattr(item, "callspec", None)
        isolation = parameters.params.get("isolation") if parameters else None
        column = mark.kwargs.get("where") or isolation or "outside"
        item.config.stash[_rows][mark.args[0]][str(column)].append(report.outcome)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.option.markexpr != "attack":
        return
    rows = config.stash[_rows]
    width = max((len(name) for name in rows), default=6)
    terminalreporter.write_sep("=", "attacks")
    terminalreporter.write_line(f"{'attack':{width}}  " + "  ".join(f"{column:14}" for column in COLUMNS))
    for name in sorted(rows):
        cells = [describe_cell(rows[name].get(column, [])) for column in COLUMNS]
        terminalreporter.write_line(f"{name:{width}}  " + "  ".join(f"{cell:14}" for cell in cells))
    contained = sum(all(o == "passed" for found in cells.values() for o in found) for cells in rows.values())
    terminalreporter.write_line(f"{contained} of {len(rows)} attacks contained")


def describe_cell(outcomes: list[str]) -> str:
    """The cell's text: contained when every test passed, with the number of variants; open when one failed."""
    if not outcomes:
        return "-"
    if failed := outcomes.count("failed"):
        return f"OPEN ({failed})"
    passed = outcomes.count("passed")
    return f"contained ({passed})" if passed else "not run"
