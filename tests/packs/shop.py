"""The customer service pack driven in this process, as its worker drives it: a state from JSON, `begin` before each call."""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
from collections.abc import Iterable
from typing import Any

from simia.kit import ToolError
from simia.pack import Pack
from simia.state import merge_patch
from simia.task import Action

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
