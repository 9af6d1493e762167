"""The customer service pack: its tables hold together and its tools keep their word."""

from __future__ import annotations

import inspect
import json
import re
from collections import Counter
from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from simia.state import diff_states
from simia.task import Action
from simia.tool import compile_schema
from simia.tool_test import ToolTest
from tests.packs.shop import BASE, MARKS, PACK, SHOP, SPECS, call, dangling, dump, opened
from tests.properties import examples

# -- the tables -------------------------------------------------------------------------------------------------------


def test_the_tables_hold_together() -> None:
    state = dump(opened())
    assert state == BASE, "state.json is what the model dumps"
    assert SHOP.State.model_validate(state).model_dump(mode="json") == state
    assert dangling(state) == []
    emails = [row["email"] for row in state["customers"].values()]
    assert len(set(emails)) == len(emails)
    items = [item for order in state["orders"].values() for item in order["items"]]
    assert len(set(items)) == len(items), "an item's id names one item in the whole shop"
    assert len(state["customers"]) >= 25
    assert len(state["orders"]) >= 70
    assert len(state["products"]) >= 40


def test_rows_agree_with_each_other() -> None:
    clock = datetime(2025, 5, 14, 10, 30)
    for key, order in BASE["orders"].items():
        goods = round(sum(item["price"] for item in order["items"].values()), 2)
        assert order["shipping"] == (0 if goods >= 60 else 4.95), key
        assert (order["delivered_on"] is not None) == (order["status"] in ("delivered", "returning", "returned")), key
        assert (order["expected_on"] is not None) == (order["status"] in ("pending", "shipped")), key
        days = [order["ordered_on"], order["delivered_on"] or order["ordered_on"]]
        assert days == sorted(days) and max(days) <= str(clock.date()), key  # noqa: PT018 - one thought
    for key, row in BASE["returns"].items():
        assert row["refund"] == round(
            sum(BASE["orders"][row["order_id"]]["items"][i]["price"] for i in row["item_ids"]) - row["fee"], 2
        ), key
        expected = {"waiting_for_parcel": "returning", "received": "returned"}[row["status"]]
        assert BASE["orders"][row["order_id"]]["status"] == expected, key
        (refund,) = [r for r in BASE["refunds"].values() if r["return_id"] == key]
        assert (refund["amount"], refund["refund_to"]) == (row["refund"], row["refund_to"]), key
    assert all(row["requested_at"] < clock.isoformat() for row in BASE["refunds"].values())


# -- the tools --------------------------------------------------------------------------------------------------------


def test_tools_json_agrees_with_the_methods() -> None:
    assert MARKS.keys() == SPECS.keys()
    assert len(SPECS) >= 14
    for name, spec in SPECS.items():
        parameters = dict(inspect.signature(getattr(SHOP, name)).parameters)
        parameters.pop("self")
        assert list(parameters) == list(spec.parameters["properties"]), name
        required = [key for key, p in parameters.items() if p.default is p.empty]
        assert required == spec.parameters["required"], name
        assert spec.parameters["additionalProperties"] is False, name


@pytest.mark.parametrize("row", PACK.tests, ids=lambda row: row.name)
def test_a_row_of_tests_jsonl(row: ToolTest) -> None:
    shop = opened(row.initial)
    for index, action in enumerate(row.before):
        assert call(shop, action, index)[1] is None
    assert SPECS[row.call.name].argument_errors(row.call.arguments) == []
    before = dump(shop)
    result, refusal = call(shop, row.call, len(row.before))
    changes = {".".join(change["path"]): change.get("new") for change in diff_states(before, dump(shop))}
    if row.expect.outcome == "refusal":
        assert row.expect.error
        assert row.expect.error in (refusal or "")
    else:
        assert refusal is None
        assert {key: result[key] for key in row.expect.result} == row.expect.result
    assert changes == (row.expect.changes or {})
    assert dangling(dump(shop)) == []


def test_each_tool_has_tests_of_success_and_of_refusal() -> None:
    seen = Counter((row.call.name, row.expect.outcome) for row in PACK.tests)
    for name, (_, writes) in MARKS.items():
        assert seen[name, "success"] >= 1, name
        assert seen[name, "refusal"] >= 1, name
        assert seen[name, "success"] + seen[name, "refusal"] >= 3, name
        assert not writes or any(row.expect.changes for row in PACK.tests if row.call.name == name), name


KNOWN = {
    "order_id": list(BASE["orders"]),
    "customer_id": list(BASE["customers"]),
    "product_id": list(BASE["products"]),
    "new_product_id": list(BASE["products"]),
    "return_id": list(BASE["returns"]),
    "voucher_id": list(BASE["vouchers"]),
    "ticket_id": list(BASE["tickets"]),
    "item_id": [item for order in BASE["orders"].values() for item in order["items"]],
    "email": [row["email"] for row in BASE["customers"].values()],
    "postcode": [row["address"]["postcode"] for row in BASE["customers"].values()],
}


def values(name: str, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that fit the schema, among them ids that exist."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    known = st.sampled_from(KNOWN[name]) if name in KNOWN else st.nothing()
    match schema["type"]:
        case "string" if "pattern" in schema:
            return known | st.from_regex(re.compile(schema["pattern"], re.ASCII), fullmatch=True)
        case "string" if schema.get("format") == "email":
            fits = compile_schema({"type": "object", "properties": {"email": schema}})
            return known | st.emails().filter(lambda email: fits.valid({"email": email}))
        case "string":
            return known | st.text(min_size=schema.get("minLength", 0), max_size=schema.get("maxLength", 60))
        case "boolean":
            return st.booleans()
        case "integer":
            whole = st.integers(schema["minimum"], schema["maximum"])
            return whole | whole.map(float)  # 3.0 is an integer to JSON Schema
        case "number":
            return st.floats(0, 1e300) | st.integers(0, 10**30)
        case "array":
            ids = st.sampled_from(KNOWN["item_id"]) | values("item", schema["items"])
            return st.lists(ids, min_size=schema["minItems"], max_size=4)
        case _:
            return objects(schema)


def objects(schema: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    fields = {name: values(name, each) for name, each in schema["properties"].items()}
    needed = {name: fields.pop(name) for name in schema["required"]}
    return st.fixed_dictionaries(needed, optional=fields)


def fitting(order_id: str) -> st.SearchStrategy[Action]:
    """A call about one order whose ids belong together, so that it may well succeed."""
    order = BASE["orders"][order_id]
    items, email = sorted(order["items"]), BASE["customers"][order["customer_id"]]["email"]
    vouchers = [k for k, row in BASE["vouchers"].items() if row["customer_id"] == order["customer_id"]] or ["VCH-0000"]
    returns = [k for k, row in BASE["returns"].items() if row["order_id"] == order_id] or ["RET-000"]
    own = {"order_id": st.just(order_id), "email": st.just(email), "customer_id": st.just(order["customer_id"])}
    own |= {"item_id": st.sampled_from(items), "voucher_id": st.sampled_from(vouchers)}
    own |= {
        "item_ids": st.lists(st.sampled_from(items), min_size=1, unique=True),
        "return_id": st.sampled_from(returns),
    }

    def arguments(name: str) -> st.SearchStrategy[Action]:
        schema = SPECS[name].parameters
        picked = {key: own.get(key, values(key, each)) for key, each in schema["properties"].items()}
        needed = {key: picked.pop(key) for key in schema["required"]}
        return st.fixed_dictionaries(needed, optional=picked).map(lambda a: Action(name=name, arguments=a))

    return st.sampled_from(sorted(SPECS)).flatmap(arguments)


ANY = st.sampled_from(sorted(SPECS)).flatmap(
    lambda name: objects(SPECS[name].parameters).map(lambda a: Action(name=name, arguments=a))
)
OPEN = [key for key, order in BASE["orders"].items() if order["ordered_on"] > "2025-04-15"]
CALLS = st.lists(ANY | st.sampled_from(OPEN).flatmap(fitting), min_size=1, max_size=12)


@examples(150, suppress_health_check=list(HealthCheck))
@given(CALLS)
def test_any_calls_that_fit_the_schemas(actions: list[Action]) -> None:
    """Nothing but a declared refusal is raised, a refusal or a look-up changes nothing, and the tables go on holding together."""
    shop = opened()
    for index, action in enumerate(actions):
        assert SPECS[action.name].argument_errors(action.arguments) == []
        before = dump(shop)
        result, refusal = call(shop, action, index)
        after = dump(shop)
        if refusal is not None or not MARKS[action.name][1]:
            assert after == before, action
        if refusal is not None:
            assert refusal == refusal.strip() != ""
        json.dumps(result, allow_nan=False)
        assert SHOP.State.model_validate(after).model_dump(mode="json") == after
    assert dangling(dump(shop)) == []
    assert all(row["stock"] >= 0 for row in dump(shop)["products"].values())
    assert all(row["amount"] >= 0 for row in dump(shop)["refunds"].values())
