"""A built environment becomes a valid pack, the same bytes each time, in which its tests pass and tasks are played."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from simia import Pack
from simia.authoring.validate import validate_pack
from simia.authoring.verification_gate import verify_tasks
from simia.errors import UserError
from simia.pack_provenance import PackProvenance
from simia.synthesis.building.pack_writing import open_built, write_environment
from simia.synthesis.pack_output import is_same_tree
from simia.task import Task
from tests.synthesis.build_fixtures import load_library

CHECKS = '''\
def is_free_of_fines(final, initial):
    """No member owes fines."""
    return all(member["fines"] == 0 for member in final["members"].values())
'''
TASKS = [
    Task.model_validate(
        {
            "id": "pay-1",
            "instruction": "You are Tomas Weber (MB-02) and want to pay all that you owe.",
            "reference": [{"name": "pay_fine", "arguments": {"member_id": "MB-02"}}],
            "reward": {"parts": [{"kind": "checklist", "functions": ["is_free_of_fines"]}, {"kind": "state"}]},
        }
    )
]


def test_the_pack_is_valid_and_its_tests_pass(tmp_path: Path) -> None:
    built = load_library()
    assert len(built.tools) >= 6
    assert len(built.design.state.tables) >= 3
    assert {test.call.name for test in built.tests} == set(built.tools)
    write_environment(tmp_path / "library", built)
    findings, facts = asyncio.run(validate_pack(Pack.load(tmp_path / "library")))
    assert findings == []
    assert facts == ["7 tools, 0 of the user's, 0 tasks, 26 tests, 0 seeds"]


def test_tasks_with_checks_pass_the_gate(tmp_path: Path) -> None:
    write_environment(tmp_path / "library", load_library(), tasks=TASKS, checks=CHECKS)

    async def verify() -> None:
        environment = await open_built(tmp_path / "library", say=lambda _: None)
        try:
            assert environment.pack.tasks == TASKS
            report = await verify_tasks(environment, environment.pack.tasks)
            faults = [finding for verdict in report.verdicts for finding in verdict.findings if finding.refuses]
            assert faults == []
        finally:
            await environment.close()

    asyncio.run(verify())


def test_equal_inputs_make_equal_bytes(tmp_path: Path) -> None:
    provenance = PackProvenance(recipe="envscaler", model="some-model")
    contents = []
    for name in ("first", "second"):
        write_environment(tmp_path / name, load_library(), tasks=TASKS, checks=CHECKS, provenance=provenance)
        contents.append({path.name: path.read_bytes() for path in sorted((tmp_path / name).iterdir())})
    assert contents[0] == contents[1]
    assert sorted(contents[0]) == [
        "checks.py", "pack.yaml", "policy.md", "state.json", "tasks.jsonl", "tests.jsonl", "tools.json", "tools.py",
    ]  # fmt: skip


def test_bytecode_beside_the_code_makes_no_other_pack(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tools.py").write_text("LIMIT = 1\n")
    (tmp_path / "second" / "__pycache__").mkdir()
    (tmp_path / "second" / "__pycache__" / "tools.cpython-311.pyc").write_bytes(b"compiled")
    assert is_same_tree(tmp_path / "first", tmp_path / "second")
    (tmp_path / "second" / "tools.py").write_text("LIMIT = 2\n")
    assert not is_same_tree(tmp_path / "first", tmp_path / "second")


def test_the_code_can_be_read(tmp_path: Path) -> None:
    write_environment(tmp_path / "library", load_library())
    code = (tmp_path / "library" / "tools.py").read_text()
    assert code.startswith('"""Lending library.\n')
    assert "from datetime import date, timedelta\nfrom typing import Any, Literal\n" in code
    assert "import re" not in code
    assert max(map(len, code.splitlines())) <= 120


def test_constraints_in_words_stay_out_of_the_schema(tmp_path: Path) -> None:
    built = load_library()
    built.design.state.constraints = ["is_free_of_fines", "Copies are never negative."]
    write_environment(tmp_path / "with", built, checks=CHECKS)
    write_environment(tmp_path / "without", built)
    assert Pack.load(tmp_path / "with").state_schema.constraints == ["is_free_of_fines"]  # type: ignore[union-attr]
    assert Pack.load(tmp_path / "without").state_schema.constraints == []  # type: ignore[union-attr]


def test_a_folder_with_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="exists and is not empty"):
        write_environment(tmp_path, load_library())
