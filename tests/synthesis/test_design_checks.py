"""Designs are checked by code; the state model and the schema of a design agree."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from simia.state_schema import StateSchema
from simia.synthesis.building.code_assembly import assemble_code, name_tools_class
from simia.synthesis.building.design_checks import find_table_faults, find_tool_faults, normalize_state
from simia.synthesis.building.example_states import find_state_faults
from simia.synthesis.building.state_model import fill_defaults, find_singular, name_row_classes, write_state_model
from simia.synthesis.design import EnvironmentDesign, ToolDesign
from tests.synthesis.build_fixtures import load_library

TEXT = {"required": True, "values": {"type": "string"}}


def make_schema(**tables: dict[str, Any]) -> StateSchema:
    return StateSchema.model_validate({"tables": {name: {"columns": columns} for name, columns in tables.items()}})


def load_state_class(schema: StateSchema) -> type[BaseModel]:
    """The state model, executed: its source is derived by code from a schema that this test wrote."""
    names: dict[str, Any] = {}
    head = "from typing import Any, Literal\nfrom pydantic import BaseModel, ConfigDict\n"
    exec(compile(head + write_state_model(schema), "state", "exec", dont_inherit=True), names)
    found: type[BaseModel] = names["State"]
    return found


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({}, "there is no table"),
        ({"Books": {"title": TEXT}}, "table 'Books'"),
        ({"class": {"title": TEXT}}, "table 'class'"),
        ({"books": {}}, "table books has no columns"),
        ({"books": {"copy": TEXT}}, "books.copy: choose another name"),
        ({"books": {"model_config": TEXT}}, "books.model_config: choose another name"),
        ({"books": {"title": {"required": True}}}, "`values` is missing"),
        ({"books": {"copies": {"values": {"type": "integer"}, "default": "one"}}}, "its default breaks its schema"),
        ({"a": {"b_id": TEXT | {"references": "b"}}, "b": {"a_id": TEXT | {"references": "a"}}}, "form a cycle"),
        ({"a": {"a_id": TEXT | {"references": "a"}}}, "form a cycle"),
    ],
)
def test_faults_of_tables(tables: dict[str, Any], words: str) -> None:
    assert any(words in fault for fault in find_table_faults(make_schema(**tables)))


def test_a_tree_of_rows_is_no_cycle() -> None:
    parent = {"references": "folders", "values": {"type": "string"}}
    assert find_table_faults(make_schema(folders={"name": TEXT, "parent_id": parent})) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "finish"}, "the name is taken"),
        ({"name": "new_id"}, "the name is taken"),
        ({"name": "state"}, "the name is taken"),
        ({"name": "return"}, "a word of Python"),
        ({"name": "lend_book"}, "two operations have this name"),
        ({"tables": []}, "`tables` is empty"),
        ({"tables": ["shelves"]}, "there is no table 'shelves'"),
        ({"parameters": {"type": "object", "properties": {"x": {}}}}, "argument x: give its type"),
        ({"parameters": {"type": "object", "properties": {"self": {"type": "string"}}}}, "argument 'self'"),
        ({"parameters": {"type": "object", "required": ["x"], "properties": {}}}, "required names 'x'"),
        ({"parameters": {"type": "object", "properties": {"x": {"type": "text"}}}}, "not a usable JSON Schema"),
        ({"parameters": {"type": "string"}}, "a JSON Schema of an object"),
    ],
)
def test_faults_of_operations(changes: dict[str, Any], words: str) -> None:
    design = load_library().design
    assert find_tool_faults(design.tools, design.state, 7) == []
    changed = ToolDesign.model_validate(design.tools[0].model_dump() | changes)
    faults = find_tool_faults([changed, *design.tools[1:]], design.state, 7)
    assert any(words in fault for fault in faults)


def test_a_design_needs_operations_of_both_kinds() -> None:
    design = load_library().design
    reading = [tool for tool in design.tools if not tool.writes]
    assert find_tool_faults(reading, design.state, 7) == [
        "3 operations, and at least 7 are needed",
        "no operation writes",
    ]


def test_a_key_column_is_removed_and_null_is_allowed() -> None:
    columns = {
        "book_id": TEXT,
        "title": TEXT,
        "genre": {"values": {"enum": ["a"]}},
        "note": {"values": {"type": "string"}},
    }
    given = StateSchema.model_validate({"tables": {"books": {"key": "book_id", "columns": columns}}})
    table = normalize_state(given).tables["books"]
    assert table.key is None
    assert list(table.columns) == ["title", "genre", "note"]
    assert table.columns["genre"].values == {"enum": ["a", None]}
    assert table.columns["note"].values == {"type": ["string", "null"]}


def test_the_state_model_and_the_schema_agree() -> None:
    """What the schema allows the classes read and write without a change; what it refuses is of other types there too."""
    library = load_library()
    model = load_state_class(library.design.state)
    assert model.model_validate(library.example).model_dump(mode="json") == library.example
    columns: dict[str, Any] = {
        "name": TEXT,
        "tags": {"required": True, "values": {"type": "array", "items": {"type": "string"}}},
        "limits": {"values": {"type": "object", "additionalProperties": {"type": "integer"}}, "default": {"a": 1}},
        "size": {"values": {"type": ["integer", "string"]}},
        "level": {"values": {"enum": [1, 2]}, "default": 1},
        "extra": {"values": {"anyOf": [{"type": "number"}, {"type": "boolean"}]}},
    }
    schema = normalize_state(make_schema(addresses=columns))
    given = {"addresses": {"A-1": {"name": "x", "tags": ["y"]}}}
    assert find_state_faults(schema, given) == []
    filled = fill_defaults(schema, given)
    assert load_state_class(schema).model_validate(given).model_dump(mode="json") == filled
    assert filled["addresses"]["A-1"] == {
        "name": "x", "tags": ["y"], "limits": {"a": 1}, "size": None, "level": 1, "extra": None,
    }  # fmt: skip
    for wrong in ({"name": 1}, {"tags": "y"}, {"level": 3}, {"size": [1]}, {"other": 1}):
        row = {"name": "x", "tags": [], **wrong}
        assert find_state_faults(schema, {"addresses": {"A-1": row}})
        with pytest.raises(ValueError, match=r"Address|addresses"):
            load_state_class(schema).model_validate({"addresses": {"A-1": row}})


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({}, "books: it must be an object"),
        ({"books": [], "members": {}, "loans": {}}, "books: it must be an object"),
        ({"books": {}, "members": {}, "loans": {}, "shelves": {}}, "shelves: there is no such table"),
        ({"books": {"BK.1": {}}, "members": {}, "loans": {}}, "'BK.1' cannot be an id"),
        ({"books": {"BK-1": {"title": "x"}}, "members": {}, "loans": {}}, "books.BK-1: "),
    ],
)
def test_faults_of_states(state: dict[str, Any], words: str) -> None:
    assert any(words in fault for fault in find_state_faults(load_library().design.state, state))


def test_names_of_classes_do_not_collide() -> None:
    schema = make_schema(
        tools={"x": TEXT}, state={"x": TEXT}, loan={"x": TEXT}, loans={"x": TEXT}, addresses={"x": TEXT}
    )
    assert list(name_row_classes(schema).values()) == ["Tool", "StateRow", "Loan", "LoanRow", "Address"]
    design = EnvironmentDesign(name="loan", title='A """title"""', description="Words\\", state=schema)
    assert name_tools_class(design) == "LoanTools"
    compile(assemble_code(design, write_state_model(schema), []), "tools.py", "exec")
    singulars = [find_singular(word) for word in ("bus", "boxes", "cities", "analysis", "classes")]
    assert singulars == ["bus", "box", "city", "analysis", "class"]


def test_more_than_twice_the_operations_are_too_many() -> None:
    design = load_library().design
    assert find_tool_faults(design.tools, design.state, 3) == [
        "7 operations are more than 6: leave out the least important ones"
    ]
