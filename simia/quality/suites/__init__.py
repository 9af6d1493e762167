"""The suites of the paper. A trajectory's suite follows from its tools or its pack's name; others are `generic`."""

from __future__ import annotations

import difflib
import re

from simia.errors import UserError
from simia.quality.suites.agentbench import MIND2WEB, OS, WEBSHOP
from simia.quality.suites.base import Suite
from simia.quality.suites.officebench import OFFICEBENCH
from simia.quality.suites.tau_bench import AIRLINE, RETAIL, TELECOM
from simia.trajectory import Trajectory

__all__ = ["SUITES", "Suite", "detect_suite", "get_suite"]

GENERIC = Suite("generic")
SUITES: dict[str, Suite] = {
    suite.name: suite for suite in (GENERIC, AIRLINE, RETAIL, TELECOM, OS, WEBSHOP, MIND2WEB, OFFICEBENCH)
}
# Tools that only this suite has; the whole tool list where other environments use the names too.
MARKS = {
    "officebench": {"system.switch_app"},
    "tau_airline": {"book_reservation", "update_reservation_flights"},
    "tau_retail": {"modify_pending_order_items", "exchange_delivered_order_items"},
    "tau_telecom": {"refuel_data", "resume_line"},
}
WHOLE = {
    frozenset({"bash"}): "os",
    frozenset({"search", "click"}): "webshop",
    frozenset({"click", "type", "select", "none_of_the_above"}): "mind2web",
}
TAU = re.compile(r"(?:^|[^a-z])tau2?[^a-z]*(airline|retail|telecom)(?:[^a-z]|$)")


def get_suite(name: str) -> Suite:
    """Return the suite of that name. Raises `UserError` with the nearest name."""
    if name in SUITES:
        return SUITES[name]
    close = difflib.get_close_matches(name, SUITES, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(SUITES)}"
    raise UserError(f"no suite is named {name!r}; {hint}")


def detect_suite(t: Trajectory) -> Suite:
    """Detect the suite by the tools, else by the pack's name."""
    names = frozenset(tool.name for tool in t.tools)
    if names in WHOLE:
        return SUITES[WHOLE[names]]
    for suite, marks in MARKS.items():
        if marks <= names:
            return SUITES[suite]
    pack = (t.pack or "").lower()
    if found := TAU.search(pack):
        return SUITES[f"tau_{found[1]}"]
    return SUITES.get(pack, GENERIC)
