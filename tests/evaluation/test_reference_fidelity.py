"""What recorded references buy: the calls that `docs/fidelity_references.py` asks, and the prompts of its three ways."""

from __future__ import annotations

import json
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from simia.evaluation.fidelity import estimate_gain
from simia.llm.types import Reply, Request
from simia.pack import Pack

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "fidelity_references.py"))
FIGURES = {  # calls, of which success and refusal agree, and F1
    "solution, calls": (28, 28, 0.701), "solution, results": (28, 28, 1.0),
    "other, schema": (24, 22, 0.594), "other, calls": (24, 23, 0.671), "other, results": (24, 24, 0.752),
    "look-up, schema": (12, 12, 0.476), "look-up, calls": (12, 12, 0.571), "look-up, results": (12, 12, 0.655),
    "change, schema": (12, 10, 1.0), "change, calls": (12, 11, 0.974), "change, results": (12, 12, 1.0),
}  # fmt: skip
ONE = {
    "cs-056"
}  # the world takes its pencils out before the voucher is used, and the solution is refused that after it


class AnsweringBackend:
    """Answers each call with what the world gave for the last one of the kind: for the arithmetic of figures."""

    alias, model, structured = "answering", "answering", True

    def __init__(self, content: Any) -> None:
        self.content = content

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def complete(self, request: Request, *, draw: str) -> Reply:
        row = {"call": 1, "outcome": "result", "content": self.content, "changes": []}
        return Reply(text=json.dumps({"answers": [row]}))


def test_the_other_calls_are_not_the_solutions_next_ones() -> None:
    pack = Pack.load("customer_service")
    assert Counter(row["kind"] for row in SCRIPT["OTHER"]) == {"look-up": 12, "change": 12}
    for kind in SCRIPT["KINDS"]:
        tasks = [pack.task(row["task"]) for row in SCRIPT["OTHER"] if row["kind"] == kind]
        assert {task.split for task in tasks} == {"test"}
        emails = [{value for a in task.actions if (value := a.arguments.get("email"))} for task in tasks]
        customers = [min(found, key=len) for found in emails]
        assert len(set(customers)) == 12, "no two tasks of a batch are of one customer"
    made_elsewhere = []
    for row in SCRIPT["OTHER"]:
        actions = [(action.name, action.arguments) for action in pack.task(row["task"]).actions]
        call = (row["name"], row["arguments"])
        assert row["after"] <= len(actions)
        assert actions[row["after"] : row["after"] + 1] != [call], row
        made_elsewhere += [row["task"]] * (call in actions)
    assert made_elsewhere == ["cs-061", "cs-056"], "the two traps"


async def test_each_way_shows_the_simulator_what_it_says() -> None:
    shown = {}
    for way, settings in SCRIPT["WAYS"].items():
        asking = SCRIPT["AskingBackend"]()
        other = [row for row in SCRIPT["OTHER"] if row["task"] in ONE and row["kind"] == "change"]
        rows = [row async for row in SCRIPT["play_other"](asking, "change", other=other, **settings)]
        assert [(row["episode"], row["name"], row["real"]["failed"]) for row in rows] == [
            ("cs-056", "remove_item", False)
        ]
        assert len(asking.asked) == 2, "the solution's first call, and this one"
        shown[way] = asking.asked[-1].messages[1]["content"]
    refused = 'error: {"error": "without ITM-5349 order ORD-20471 is below the least total of voucher VCH-3074"}'
    assert "# A solution of this task" not in shown["schema"]
    assert '- remove_item {"order_id":"ORD-20471","item_id":"ITM-5349"}\n' in shown["calls"]
    assert refused not in shown["calls"]
    assert refused in shown["results"]
    for prompt in shown.values():
        assert (
            '1. agent: get_order {"order_id":"ORD-20471","email":"zofia.kaminska@example.com"}\n   result: {' in prompt
        )
        assert prompt.rstrip().endswith('1. agent: remove_item {"order_id":"ORD-20471","item_id":"ITM-5349"}')


async def test_only_the_other_call_counts() -> None:
    real = {"order_id": "ORD-20471", "item_id": "ITM-5349", "total": 28.35, "refund": 11.95, "refund_to": "card"}
    other = [row for row in SCRIPT["OTHER"] if row["task"] in ONE and row["kind"] == "change"]
    backend = AnsweringBackend({**real, "refund_by": "2025-05-22"})  # a day late: 5 of 6 values
    rows = [row async for row in SCRIPT["play_other"](backend, "change", other=other, **SCRIPT["WAYS"]["results"])]
    total = SCRIPT["measure_fidelity"](rows, {}).total
    assert (total.calls, total.hits, total.real, total.simulated) == (1, 5, 6, 6)


@pytest.mark.all
async def test_what_recorded_references_buy() -> None:
    """docs/simulated.md shows these figures."""
    found = await SCRIPT["measure"]()
    assert found.keys() == FIGURES.keys()
    for way, (calls, agree, value_f1) in FIGURES.items():
        total = found[way].total
        assert (total.calls, total.lost, total.agree) == (calls, 0, agree), way
        assert total.schema_validity == 1.0, way
        assert total.value_f1 == pytest.approx(value_f1, abs=0.001), way
    page = (Path(__file__).parents[2] / "docs" / "simulated.md").read_text(encoding="utf-8")
    for kind in ("other", "look-up"):
        cells = [found[f"{kind}, {way}"].interval("value_f1") for way in ("schema", "calls", "results")]
        said = " | ".join(f"{each.value:.2f} [{each.low:.2f}, {each.high:.2f}]" for each in cells if each is not None)
        assert f": F1 | {said} |" in page
    for one, two in (("results", "calls"), ("calls", "schema")):
        gain = estimate_gain(found[f"other, {one}"], found[f"other, {two}"], "value_f1")
        assert gain is not None
        assert 0.02 < gain.value < 0.1, (one, two)
        assert gain.low > -1e-9
        low, high = (f"{abs(100 * end):.1f}" for end in (gain.low, gain.high))  # without the sign of -0.0
        assert f"{100 * gain.value:.1f}" in page
        assert f"[{low}, {high}] to the {two if two == 'schema' else f'{two} alone'}" in page
