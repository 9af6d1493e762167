"""Fidelity: figures against numbers worked by hand, and the command against a fake endpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simia.cli import build
from simia.tool import ToolSpec
from simia.verify.fidelity import figures, shape
from simia.worlds.distance import distance
from tests.fake_endpoint import FakeEndpoint
from tests.packs.small import small


def row(
    real: Any, simulated: Any = None, *, name: str = "get", failed: tuple[bool, bool] = (False, False), **more: Any
) -> Any:
    found = {"step": 1, "name": name, "arguments": {}, "real": {"content": real, "failed": failed[0]}, **more}
    return found if "lost" in more else {**found, "simulated": {"content": simulated, "failed": failed[1]}}


def test_values_outcomes_and_shapes_are_counted() -> None:
    rows = [
        row({"id": "A", "n": 1, "tags": ["x", "y"]}, {"id": "a ", "n": 1.0, "tags": ["y", "z"]}),  # 3 of 4 leaves agree
        row(
            {"id": "B", "n": 2, "tags": []}, {"id": "B", "extra": True}
        ),  # 1 of 2 and 2; two keys of the shape are missing
        row({"error": "no"}, {"id": "C", "n": 3, "tags": []}, failed=(True, False)),
        row({"id": "D", "n": 4, "tags": []}, lost="server_error: 503"),
        row("done", {"error": "x"}, name="set", failed=(False, True), issue="contradicts"),
    ]
    found = figures(rows, {})
    get = found.tools["get"]
    assert (get.calls, get.lost, get.agree, get.answered) == (4, 1, 2, 3)
    assert (get.hits, get.real, get.simulated) == (4, 6, 6)
    assert get.value_f1 == pytest.approx(8 / 12)
    assert get.schema_validity == pytest.approx(2 / 3)
    assert found.tools["set"].value_f1 is None
    assert found.total.contradicting == 1
    assert found.total.agreement == pytest.approx(2 / 4)


def test_a_declared_schema_counts_before_the_shape_that_was_seen() -> None:
    spec = ToolSpec(
        name="get", extra={"returns": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}
    )
    rows = [row({"n": 1, "m": 2}, {"n": 5}), row({"n": 1, "m": 2}, {"m": 2})]
    assert figures(rows, {"get": spec}).tools["get"].schema_validity == 0.5
    assert figures(rows, {}).tools["get"].schema_validity == 0.0


def test_shape_of_results() -> None:
    assert shape([{"a": 1, "b": None}, {"a": 2.5}]) == {
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"type": "number"}},
    }
    assert shape([["x"], []]) == {"type": "array", "items": {"type": "string"}}


@pytest.mark.parametrize(
    ("named", "wanted"),
    [
        ([], 1.0),
        ([{"table": "orders", "key": "O-1", "set": {"status": "cancelled"}}], 1 - 2 * 1 / (4 + 1)),
        (
            [
                {"table": "orders", "key": "O-1", "set": {"status": "cancelled"}},
                {"table": "refunds", "key": "R-1", "set": {"order": "O-1", "amount": 5}},
                {"table": "carts", "key": "C-1", "set": None},
            ],
            0.0,
        ),
    ],
)
def test_distance_of_changes(named: list[Any], wanted: float) -> None:
    real = [
        {"path": ["orders", "O-1", "status"], "old": "pending", "new": "cancelled"},
        {"path": ["refunds", "R-1"], "new": {"order": "O-1", "amount": 5}},
        {"path": ["carts", "C-1"], "old": {"n": 1}},
    ]
    assert distance(real, named) == pytest.approx(wanted)
    assert distance([], []) == 0.0


def test_the_command_plays_each_kind_once_and_tells_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small(tmp_path / "todos")
    endpoint = FakeEndpoint("--respond", "tests.replies:stage")
    try:
        words = [
            "fidelity",
            "todos",
            "--limit",
            "1",
            "--set",
            "llm.kind=openai",
            "--set",
            f"llm.base_url={endpoint.url}",
            "--set",
            "llm.model=m",
        ]
        done = CliRunner().invoke(build(), words)
        assert done.exit_code == 0, (done.output, done.exception)
        for kind in ("schema", "reference", "state"):
            assert done.output.count(f"│ {kind} ") == 2
        asked = len(endpoint.requests)
        assert asked > 0
        again = CliRunner().invoke(build(), words)
        assert again.output == done.output
        assert len(endpoint.requests) == asked
        free = CliRunner().invoke(build(), [*words, "--no-forced", "--knowledge", "schema"])
        assert free.exit_code == 0, free.output
        assert "→" in free.output
    finally:
        endpoint.stop()
