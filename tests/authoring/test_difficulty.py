"""`simia pack difficulty`, and the filter that reads it."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from simia.authoring.scaffold import scaffold_pack
from simia.cli import build_app
from simia.envs.opening import open_environment
from simia.errors import UserError
from simia.pack import Pack


def test_agents_are_measured_and_the_filter_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "todo"
    scaffold_pack(folder)
    before = Pack.load(folder)
    identities = [task.identity for task in before.tasks]
    rows = [orjson.loads(line) for line in (folder / "tasks.jsonl").read_bytes().splitlines()]
    arguments = ["pack", "difficulty", str(folder), "-a", "reference", "-a", "nothing", "-g", "2"]
    done = CliRunner().invoke(build_app(), arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "reference: " in done.output
    assert "never solved" in done.output
    pack = Pack.load(folder)
    assert {(m.n, m.solved) for task in pack.tasks for name, m in task.measured.items() if name == "reference"} == {
        (2, 2)
    }
    assert {(m.n, m.solved) for task in pack.tasks for name, m in task.measured.items() if name == "nothing"} == {
        (2, 0)
    }
    assert [task.identity for task in pack.tasks] == identities
    after = [orjson.loads(line) for line in (folder / "tasks.jsonl").read_bytes().splitlines()]
    assert [{k: v for k, v in row.items() if k != "measured"} for row in after] == rows


async def test_the_filter_keeps_tasks_within_its_bounds(tmp_path: Path) -> None:
    folder = tmp_path / "todo"
    scaffold_pack(folder)
    path = folder / "tasks.jsonl"
    rows = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    assert len(rows) >= 2
    for solved, row in enumerate(rows):
        row["measured"] = {"m": {"n": 4, "solved": min(4, 4 * solved)}}
    path.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    async with await open_environment(str(folder), difficulty={"agent": "m", "high": 0.5}) as environment:
        assert [task.id for task in environment.tasks] == [rows[0]["id"]]
    with pytest.raises(UserError, match=r"no task was measured with 'other'.*measured agents: m"):
        await open_environment(str(folder), difficulty={"agent": "other"})
    with pytest.raises(UserError, match=r"none of .* measured tasks? has a rate from 0.3 to 0.6"):
        await open_environment(str(folder), difficulty={"agent": "m", "low": 0.3, "high": 0.6})
