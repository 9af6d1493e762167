"""`simia pack upgrade`, and the schema of a state."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from simia.authoring.upgrade import infer_schema, upgrade_pack
from simia.cli import build_app
from simia.errors import UserError
from simia.pack import Pack
from simia.state_schema import StateSchema

STATE = {
    "customers": {"C-1": {"name": "Ann"}, "C-2": {"name": "Bo"}},
    "orders": {"O-1": {"customer": "C-1", "total": 3}, "O-2": {"customer": "C-2", "total": 4}},
    "log": [{"id": 1, "order": "O-1"}, {"id": 2, "order": "O-2"}],
}


def test_a_pack_of_format_1_loads_and_is_rewritten(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    shutil.copytree(Pack.load("customer_service").root or "", folder)
    path = folder / "pack.yaml"
    kept = [line for line in path.read_text().splitlines() if not line.startswith("format")]
    path.write_text(
        "format: 1\n" + "\n".join(line for line in kept if not line.startswith(("references", "graph"))) + "\n"
    )
    if "schema:" in path.read_text():
        path.write_text(path.read_text().split("schema:")[0])
    before = Pack.load(folder)
    done = CliRunner().invoke(build_app(), ["pack", "upgrade", str(folder)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "format: 2" in done.output
    after = Pack.load(folder)
    assert after.file is not None
    assert after.file.format == 2
    assert after.state_schema is not None
    assert after.state_schema.tables["orders"].columns["customer_id"].references == "customers"
    assert [task.identity for task in after.tasks] == [task.identity for task in before.tasks]
    assert before.match.items() <= after.match.items()
    assert upgrade_pack(after) == []


def test_keys_of_format_2_are_refused_in_format_1(tmp_path: Path) -> None:
    (tmp_path / "pack.yaml").write_text("format: 1\nname: x\nschema: {tables: {}}\n")
    with pytest.raises(UserError, match="schema belongs to format 2: write format: 2"):
        Pack.load(tmp_path)


def test_a_schema_finds_dangling_keys_and_wrong_values() -> None:
    schema = infer_schema(STATE)
    assert schema.tables["orders"].columns["customer"].references == "customers"
    assert schema.tables["log"].key == "id"
    assert schema.tables["log"].columns["order"].references == "orders"
    assert schema.find_violations(STATE) == []
    broken = {**STATE, "orders": {"O-1": {"customer": "C-9"}, "O-2": {"customer": None}}}
    assert schema.find_violations(broken) == [
        "orders.customer: row O-1 refers to 'C-9', which is not in customers",
    ]
    twice = {**STATE, "log": [{"id": 1, "order": "O-1"}, {"id": 1, "order": "O-2"}]}
    assert schema.find_violations(twice) == ["log: 1 rows have a key that another row has"]
    del twice["log"]
    assert "log: the state has no such table" in schema.find_violations(twice)
    strict = StateSchema.model_validate(
        {
            "tables": {
                "orders": {
                    "columns": {
                        "total": {"required": True, "unique": True, "values": {"type": "integer", "minimum": 4}}
                    }
                }
            }
        }
    )
    assert strict.find_violations(STATE) == ["orders.total: row O-1: 3 is less than the minimum of 4"]
    assert strict.find_violations({"orders": {"a": {"total": 4}, "b": {"total": 4}, "c": {}}}) == [
        "orders.total: rows a and b have the same value",
        "orders.total: row c lacks it",
    ]
    with pytest.raises(ValueError, match=r"orders.x references 'nothing', which is no table"):
        StateSchema.model_validate({"tables": {"orders": {"columns": {"x": {"references": "nothing"}}}}})
