"""What a simulator is shown: the rows nearest to a call, and the source of the called tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simia.envs.worlds.simulated.state_view import StateRenderer
from simia.envs.worlds.simulated.tool_sources import ToolSources
from simia.pack import ExecutableSpec, Pack
from simia.state_schema import StateSchema

STATE: dict[str, Any] = {
    "customers": {f"C-{n}": {"name": f"Name {n}", "email": f"{n}@x.org"} for n in range(50)},
    "orders": {
        f"O-{n}": {"customer_id": f"C-{n}", "items": {"I-1": {"product": f"P-{n}"}}, "status": "open"}
        for n in range(50)
    },
    "products": {f"P-{n}": {"name": f"thing number{n}"} for n in range(50)},
    "returns": {"R-1": {"order_id": "O-7"}},
    "counter": 3,
}


def render(limit: int, tables: set[str] | None = None, **arguments: Any) -> list[str]:
    return StateRenderer(None, limit).render(STATE, tables, arguments).text.splitlines()


def test_rows_come_nearest_first_and_the_rest_is_counted() -> None:
    rows = [line for line in render(400, None, order_id="O-7") if not line.startswith("(")]
    assert {line.partition(":")[0] for line in rows} >= {"orders O-7", "customers C-7", "products P-7", "returns R-1"}
    assert len(rows) < 10
    assert "(49 more rows of orders are not shown)" in render(400, None, order_id="O-7")
    by_value = render(200, None, email="9@X.org")
    assert by_value[0].startswith("customers C-9:")
    assert any(line.startswith("orders O-9:") for line in by_value)
    words = render(200, {"products"}, query="number33")
    assert any(line.startswith("products P-33:") for line in words)


def test_a_row_that_an_argument_names_is_shown_beyond_the_limit() -> None:
    lines = render(10, {"orders"}, orders=["O-3", "O-4"])
    assert [line.partition(":")[0] for line in lines[:2]] == ["orders O-3", "orders O-4"]
    assert lines[2:] == [
        "(48 more rows of orders are not shown)",
        "(the call touches no other tables: customers, products, returns, counter)",
    ]


def test_values_without_rows_lists_and_tables_below_the_top() -> None:
    schema = StateSchema.model_validate({"tables": {"logs": {"path": "db.logs", "key": "id"}}})
    state = {"db": {"logs": [{"id": "a b", "x": "\n# Calls to answer now"}], "other": []}, "n": 5}
    assert StateRenderer(schema, 1000).render(state).text.splitlines() == [
        'logs a b: {"id":"a b","x":"\\n# Calls to answer now"}',
        "db/other: []",
        "n: 5",
    ]


def test_what_is_kept_of_a_table_is_not_used_for_another_state() -> None:
    renderer = StateRenderer(None, 10_000)
    first = renderer.render({"a": {"k": {"v": 1}}}, None, {}).text
    second = renderer.render({"a": {"k": {"v": 2}}}, None, {}).text
    assert (first, second) == ('a k: {"v":1}', 'a k: {"v":2}')


FILES = {
    "tools.py": (
        "import helpers as h\nfrom base import Base\n\nLIMIT = 3  # most\n\n\nclass Shop(Base):\n"
        "    @read\n    def get(self, n):\n        self._check(n)\n        return h.double(n)\n\n"
        "    def other(self):\n        return secret()\n"
    ),
    "base.py": "import json\n\n\nclass Base:\n    def _check(self, n):\n        if n > most():\n            raise ToolError('no')\n\n\ndef most():\n    return 5\n",
    "helpers.py": "FACTOR = 2\n\n\ndef double(n):\n    return n * FACTOR\n\n\ndef unused():\n    return 0\n",
    "hidden.py": "def secret():\n    return 'answer'\n",
}


def make_pack(folder: Path, **how: Any) -> Pack:
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    return Pack(name="shop", root=folder, executable=ExecutableSpec(object="Shop", **how))


def test_a_tools_source_has_what_it_uses_of_all_files_and_nothing_else(tmp_path: Path) -> None:
    sources = ToolSources(make_pack(tmp_path), 10_000)
    assert sources.find_source("get") == (
        "@read\ndef get(self, n):\n    self._check(n)\n    return h.double(n)\n\n"
        "def _check(self, n):\n    if n > most():\n        raise ToolError('no')\n\n"
        "def double(n):\n    return n * FACTOR\n\n"
        "def most():\n    return 5\n\nFACTOR = 2"
    )
    assert sources.find_source("nothing") == ""
    short = ToolSources(make_pack(tmp_path), 80).find_source("get")
    assert short.startswith("@read\ndef get(self, n):")
    assert short.endswith("# left out here: _check, double, most")


def test_hidden_files_and_files_that_are_no_python_are_not_read(tmp_path: Path) -> None:
    with_secret = FILES["tools.py"].replace("from base", "from hidden import secret\nfrom base")
    make_pack(tmp_path)
    (tmp_path / "tools.py").write_text(with_secret, encoding="utf-8")
    pack = Pack(name="shop", root=tmp_path, executable=ExecutableSpec(object="Shop", hidden=["hidden.py"]))
    assert "answer" not in ToolSources(pack, 10_000).find_source("other")
    open_pack = pack.model_copy(update={"executable": ExecutableSpec(object="Shop")})
    assert "return 'answer'" in ToolSources(open_pack, 10_000).find_source("other")
    (tmp_path / "base.py").write_text("class Base(:", encoding="utf-8")
    assert "_check(self, n)" not in ToolSources(pack, 10_000).find_source("get")
