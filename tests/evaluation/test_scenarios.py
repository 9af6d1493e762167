"""Tasks of one scenario, and variants with their original, count as one in the intervals of an evaluation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simia.authoring.scaffold import scaffold_pack
from simia.pack import Pack
from simia.task import Task, name_scenarios
from tests.command import invoke


def make_task(name: str, of: str | None = None, scenario: str | None = None) -> Task:
    return Task(id=name, scenario=scenario, extra={"variant_of": of} if of else {})


def list_scenarios(*tasks: Task) -> list[str | None]:
    return [task.scenario for task in name_scenarios(tasks)]


def test_a_variant_shares_the_scenario_of_its_original() -> None:
    assert list_scenarios(make_task("a"), make_task("b"), make_task("a-wait", "a")) == ["a", None, "a"]
    assert list_scenarios(make_task("a"), make_task("a-b", "a"), make_task("a-b-c", "a-b")) == ["a", "a", "a"]
    assert list_scenarios(make_task("a", scenario="s"), make_task("a-b", "a")) == ["s", "s"]
    assert list_scenarios(make_task("a-b", "gone"), make_task("a-c", "gone")) == ["gone", "gone"]
    assert list_scenarios(make_task("a", "a")) == [None]
    assert list_scenarios(make_task("a", "b"), make_task("b", "a")) == ["a", "a"]


def test_the_scenario_is_no_part_of_a_tasks_identity() -> None:
    assert make_task("a", scenario="s").identity == make_task("a").identity


def test_the_shipped_hotel_has_twelve_scenarios() -> None:
    assert len({task.scenario for task in Pack.load("hotel_front_desk").tasks}) == 12


def test_an_evaluation_of_variants_resamples_their_scenarios(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pack in which every task occurs four times has the figures of one without copies, and an interval that is as wide."""
    monkeypatch.chdir(tmp_path)
    for name, copies in (("plain", 1), ("copied", 4)):
        scaffold_pack(tmp_path / name)
        path = tmp_path / name / "tasks.jsonl"
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        copied = [
            {**row, "id": f"{row['id']}-{n}", "extra": {"variant_of": row["id"]}}
            for n in range(1, copies)
            for row in rows
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, *copied]), encoding="utf-8")
        invoke("eval", "packs", "--pack", f"./{name}", "--agent", "reference", "--trials", "1", "--name", name)
        invoke("eval", "packs", "--pack", f"./{name}", "--agent", "nothing", "--trials", "1", "--name", f"{name}-floor")
    reports = {name: json.loads(invoke("report", name, "--json")) for name in ("plain", "copied")}
    plain, copied = (next(iter(each["scores"]["parts"].values())) for each in reports.values())
    assert copied["tasks"] == 4 * plain["tasks"]
    assert copied["scenarios"] == plain["scenarios"] == plain["tasks"]
    assert copied["figures"]["avg@1"] == pytest.approx(plain["figures"]["avg@1"])
    assert reports["plain"]["notes"] == []
    assert f"{copied['tasks']} tasks of {plain['tasks']} scenarios" in reports["copied"]["notes"][0]
    differences = [
        json.loads(invoke("eval", "compare", f"{name}-floor", name, "--json"))["differences"][0] for name in reports
    ]
    assert differences[0]["p"] == pytest.approx(differences[1]["p"])
    assert "note: some tasks share a scenario" in invoke("eval", "compare", "copied-floor", "copied")
    assert "share a scenario" not in invoke("eval", "compare", "plain-floor", "plain")
