"""The customer service pack: its tables hold together, its tools keep their word, and its tasks can be told from each other.

The world is driven in this process, as its worker drives it: a state from JSON, `begin` before each call. The sandbox and
the scorers have tests of their own; here a small judge of our own stands for them, which is rather too lenient with what
a wrong solution leaves behind, so that a task which fails to tell two solutions apart fails here too.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simia.kit import ToolError
from simia.pack import Pack
from simia.state import diff, merge_patch
from simia.task import Action, AnswerSpec, StateSpec, Task, ToolTest, TraceSpec
from simia.tool import compile_schema

JSON = Any
PACK = Pack.load("customer_service")
assert PACK.root is not None
assert PACK.executable is not None
BASE: JSON = json.loads((PACK.root / "state.json").read_bytes())
TASKS = {task.id: task for task in PACK.tasks}
SPECS = {tool.name: tool for tool in PACK.tools}
SYSTEM = PACK.policy or ""


def load() -> Any:
    """The pack's class, with the pack's folder importable only while it loads."""
    assert PACK.root is not None
    sys.path.insert(0, str(PACK.root))
    try:
        spec = importlib.util.spec_from_file_location("customer_service_tools", PACK.root / "tools.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(PACK.root))
    return module.Shop


SHOP = load()
MARKS = {name: f.__simia_tool__ for name, f in inspect.getmembers(SHOP) if hasattr(f, "__simia_tool__")}


def opened(initial: dict[str, Any] | None = None) -> Any:
    assert PACK.executable is not None
    shop = SHOP(SHOP.State.model_validate(merge_patch(BASE, (initial or {}).get("patch", {}))))
    shop._seed, shop._start = "0", PACK.executable.clock
    return shop


def call(shop: Any, action: Action, index: int) -> tuple[JSON, str | None]:
    """The result, or the refusal's words. Anything else that a tool raises goes through."""
    shop.begin(index, "agent")
    try:
        return getattr(shop, action.name)(**json.loads(json.dumps(action.arguments))), None
    except ToolError as error:
        return None, str(error)


def dump(shop: Any) -> JSON:
    return shop.state.model_dump(mode="json")


@functools.cache
def replayed(task_id: str, extra_read: bool = False) -> tuple[JSON, str, str]:
    """Final state, all observations and the agent's words of a task's script."""
    task, shop, seen, index = TASKS[task_id], opened(TASKS[task_id].initial), [], 0
    if extra_read:
        call(shop, Action(name="get_product", arguments={"product_id": "PRD-301"}), 0)
        index = 1
    for action in task.actions:
        result, refusal = call(shop, action, index)
        seen.append(json.dumps(refusal or result, ensure_ascii=False))
        index += 1
    return dump(shop), "\n".join(seen), "\n".join(turn.agent for turn in task.script if turn.agent)


def dangling(state: JSON) -> list[str]:
    """Every reference between the tables that does not resolve, in words."""
    found: list[str] = []

    def need(where: str, key: str, among: Iterable[str]) -> None:
        if key not in among:
            found.append(f"{where}: {key}")

    for key, order in state["orders"].items():
        need(key, order["customer_id"], state["customers"])
        for item_id, item in order["items"].items():
            need(item_id, item["product_id"], state["products"])
        if order["voucher_id"]:
            need(key, order["voucher_id"], state["vouchers"])
    for table in ("returns", "exchanges", "refunds"):
        for key, row in state[table].items():
            need(key, row["order_id"], state["orders"])
            items = state["orders"].get(row["order_id"], {"items": {}})["items"]
            for item_id in row.get("item_ids", [row["item_id"]] if "item_id" in row else []):
                need(key, item_id, items)
            if row.get("return_id"):
                need(key, row["return_id"], state["returns"])
            if "new_product_id" in row:
                need(key, row["new_product_id"], state["products"])
    for key, row in state["vouchers"].items():
        need(key, row["customer_id"], state["customers"])
        if row["used_for"]:
            need(key, row["used_for"], [o for o, order in state["orders"].items() if order["voucher_id"] == key])
    for key, row in state["tickets"].items():
        if row["customer_id"]:
            need(key, row["customer_id"], state["customers"])
    return found


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
    changes = {".".join(change["path"]): change.get("new") for change in diff(before, dump(shop))}
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
            return known | st.emails()
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


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
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


def test_the_same_calls_give_the_same_bytes() -> None:
    for task in PACK.tasks:
        shop = opened(task.initial)
        for index, action in enumerate(task.actions):
            call(shop, action, index)
        assert json.dumps(dump(shop)) == json.dumps(replayed(task.id)[0]), task.id


# -- the tasks --------------------------------------------------------------------------------------------------------


def test_the_tasks_are_spread() -> None:
    lengths = Counter(len(task.actions) for task in PACK.tasks)
    assert len(PACK.tasks) >= 66
    assert set(lengths) == set(range(1, 11))
    assert sum("refusal" in task.tags for task in PACK.tasks) >= 12
    assert sum(task.seed for task in PACK.tasks) >= 24
    assert 0.25 <= sum(task.split == "test" for task in PACK.tasks) / len(PACK.tasks) <= 0.35
    assert not [task.id for task in PACK.tasks if task.seed and task.split == "test"], "a seed would give its test away"
    assert {action.name for task in PACK.tasks for action in task.actions} == set(SPECS)


def test_the_first_tasks_are_the_seeds_in_their_words() -> None:
    for seed in PACK.seeds:
        task = TASKS[seed.task_id or ""]
        said = [m.content for m in seed.messages if m.role == "user"]
        assert [turn.user for turn in task.script if turn.user] == said, task.id
        calls = [(c.name, c.arguments) for m in seed.messages for c in m.calls or []]
        assert [(action.name, action.arguments) for action in task.actions] == calls, task.id


@pytest.mark.parametrize("task", PACK.tasks, ids=lambda task: task.id)
def test_a_script_runs_and_its_words_are_borne_out(task: Task) -> None:
    final, seen, words = replayed(task.id)
    assert task.script[0].user == task.opening
    assert task.script[-1].agent
    for action in task.actions:
        assert SPECS[action.name].argument_errors(action.arguments) == []
    assert dangling(final) == []
    told = seen + task.instruction + " ".join(turn.user or "" for turn in task.script)
    for word in re.findall(r"\b[A-Z]{3}-\d{3,5}\b", words):
        assert word in told, f"{word} comes out of nothing"
    wrote = any(MARKS[action.name][1] for action in task.actions)
    assert wrote or final == dump(opened(task.initial))


def facts(task: Task) -> list[AnswerSpec]:
    return [part for part in task.reward.parts if isinstance(part, AnswerSpec)]


def says(part: AnswerSpec, words: str) -> bool:
    if part.match == "regex":
        return all(re.search(pattern, words) for pattern in part.expect)
    return all(re.search(rf"(?<!\w){re.escape(fact)}(?!\w)", words) for fact in part.expect)


def left(final: JSON) -> list[str]:
    """What a solution changed, without what does not count; the ids of new rows are all alike."""
    changes = []
    for change in diff(BASE, final):
        table, key = change["path"][:2]
        for pattern, policy in PACK.match.items():
            where, _, name = pattern.split(".")
            if where == table and policy != "exact":
                if isinstance(change.get("new"), dict):
                    change = {**change, "new": {k: v for k, v in change["new"].items() if k != name}}
                if change["path"][2:] == [name]:
                    change = {**change, "new": "", "old": ""}
        changes.append((json.dumps(change, sort_keys=True), key if key not in BASE[table] else None))
    text = [each for each, _ in changes]
    for new in {key for _, key in changes if key}:
        text = [each.replace(f'"{new}"', '"new"') for each in text]
    return sorted(text)


def traced(task: Task, actions: list[Action]) -> bool:
    """Whether each reference call stands among the calls, but for the masked arguments."""
    for part in task.reward.parts:
        if isinstance(part, TraceSpec):
            assert not part.mask.keys() - SPECS.keys()
            for wanted in task.actions:
                masked = part.mask.get(wanted.name, [])
                alike = [
                    {k: v for k, v in a.arguments.items() if k not in masked} for a in actions if a.name == wanted.name
                ]
                if {k: v for k, v in wanted.arguments.items() if k not in masked} not in alike:
                    return False
    return True


def judged(task: Task, final: JSON, words: str, actions: list[Action]) -> bool:
    assert any(isinstance(part, StateSpec) for part in task.reward.parts)
    same = left(final) == left(replayed(task.id)[0])
    return same and traced(task, actions) and all(says(part, words) for part in facts(task))


@pytest.mark.parametrize("task", PACK.tasks, ids=lambda task: task.id)
def test_a_task_tells_its_solution_from_all_others(task: Task) -> None:
    final, _, words = replayed(task.id)
    assert judged(task, final, words, task.actions)
    more = replayed(task.id, extra_read=True)[0]
    assert judged(task, more, words, task.actions), "one look-up more, other ids: the same solution"
    idle = dump(opened(task.initial))
    users = "\n".join([task.instruction, *(turn.user or "" for turn in task.script)])
    for lazy in ("", users, "I have done that for you.", SYSTEM, users + SYSTEM):
        assert not judged(task, idle, lazy, [])
        assert not any(says(part, lazy) for part in facts(task)), "the fact must come from a look-up"
    passed = [
        other.id
        for other in PACK.tasks
        if other.id != task.id and judged(task, replayed(other.id)[0], replayed(other.id)[2], other.actions)
    ]
    assert passed == []


def test_the_expressions_run_in_linear_time_and_know_the_usual_dates() -> None:
    patterns = [
        pattern for task in PACK.tasks for part in facts(task) if part.match == "regex" for pattern in part.expect
    ]
    for pattern in patterns:
        compile_schema({"type": "object", "properties": {"text": {"type": "string", "pattern": pattern}}})
    (day,) = facts(TASKS["cs-012"])
    for words in ("It ended on 2 May 2025.", "on May 2nd", "2025-05-02", "02.05.2025", "the 2nd of May"):
        assert says(day, words), words
    for words in ("on 12 May 2025", "on 22 May", "2 June", "2025-05-12", "May 21"):
        assert not says(day, words), words
