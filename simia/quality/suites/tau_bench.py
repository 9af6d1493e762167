"""Suites of tau-bench: airline, retail and telecom.

Only violations that the structure proves are found: a change to an order that its own look-up shows as delivered, or a
change of flights that may not change. Consent is checked for every policy that wants it (`simia.quality.truth.consent`). Whether an assistant explained a refund well is a question for a judge.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from simia.errors import Issue
from simia.quality.suites.base import (
    Suite,
    check_single_calls,
    is_failure,
    iterate_steps,
    make_suite_issue,
    parse_object,
)
from simia.trajectory import Trajectory

RETAIL_WRITE = re.compile(
    "cancel_pending_order|exchange_delivered_order_items|modify_pending_order_(?:address|items|payment)|"
    "modify_user_address|return_delivered_order_items"
)
# The policies' wording of two rules; they apply only to packs whose policy contains it.
ONE_CALL = re.compile(r"\bone (?:tool|function) call at a time\b|\bone tool at a time\b", re.I)
SILENT = re.compile(r"\bnot respond to the user (?:simultaneously|at the same time)\b", re.I)


def check_retail(t: Trajectory) -> Iterator[Issue]:
    """Check that only pending orders are cancelled or modified, and only delivered ones returned or exchanged."""
    status: dict[str, str] = {}
    for step in iterate_steps(t):
        order = str(step.arguments.get("order_id", ""))
        needed = "pending" if "_pending_order" in step.call.name else "delivered"
        # These two want "pending" and not "pending (item modified)".
        whole = step.call.name in ("cancel_pending_order", "modify_pending_order_items")
        found = parse_object(step.result)
        if RETAIL_WRITE.fullmatch(step.call.name) and "order_id" in found and not is_failure(step.result):
            known = status.get(order, needed)
            if (known != needed) if whole else not known.startswith(needed):
                yield make_suite_issue(step.where, f"{step.call.name} succeeds on order {order}, which is {known}")
        if isinstance(found.get("order_id"), str) and isinstance(found.get("status"), str):
            status[found["order_id"]] = found["status"].lower()


def check_airline(t: Trajectory) -> Iterator[Issue]:
    """Check that the flights of a basic economy reservation are not changed."""
    known: dict[str, dict[str, Any]] = {}
    for step in iterate_steps(t):
        reservation = known.get(str(step.arguments.get("reservation_id", "")), {})
        found = parse_object(step.result)
        if step.call.name == "update_reservation_flights" and "reservation_id" in found and not is_failure(step.result):
            old, new = list_legs(reservation.get("flights")), list_legs(step.arguments.get("flights"))
            if reservation.get("cabin") == "basic_economy" and old and new and old != new:
                yield make_suite_issue(step.where, "the flights of a basic economy reservation are changed")
        if isinstance(found.get("reservation_id"), str):
            known[found["reservation_id"]] = found


def list_legs(flights: Any) -> list[tuple[str, str]]:
    """Return (flight number, date) of each leg, sorted."""
    legs = [leg for leg in flights if isinstance(leg, dict)] if isinstance(flights, list) else []
    return sorted((str(leg.get("flight_number")), str(leg.get("date"))) for leg in legs)


def check_telecom(t: Trajectory) -> Iterator[Issue]:
    """Check that the assistant never calls the user's tools, which act on the user's phone."""
    theirs = {tool.name for tool in t.user_tools} - {tool.name for tool in t.tools}
    for step in iterate_steps(t):
        if step.call.name in theirs:
            yield make_suite_issue(
                step.where, f"{step.call.name} is done by the user on the device, not by the assistant"
            )


def make_tau_suite(domain: str, find: Callable[[Trajectory], Iterator[Issue]]) -> Suite:
    def check(t: Trajectory, seed: Trajectory | None) -> Iterator[Issue]:
        policy = t.system or ""
        if ONE_CALL.search(policy):
            yield from check_single_calls(t, text=SILENT.search(policy) is None)
        yield from find(t)

    return Suite(f"tau_{domain}", find_violations=check)


RETAIL = make_tau_suite("retail", check_retail)
AIRLINE = make_tau_suite("airline", check_airline)
TELECOM = make_tau_suite("telecom", check_telecom)
