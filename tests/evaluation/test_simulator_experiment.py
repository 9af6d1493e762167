"""eval/simulator: wandering tasks name nothing that a test task names, and the report counts what the replies are worth."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from simia.evaluation.simulator_score import make_truth
from simia.pack import Pack

FOLDER = Path(__file__).parents[2] / "eval" / "simulator"


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for folder in (FOLDER, FOLDER.parent / "loop"):
        monkeypatch.syspath_prepend(str(folder))
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["customer_service", "hotel_front_desk"])
def test_wandering_tasks(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = load("wandering_tasks", monkeypatch)
    own = tasks.copy_pack(name, tmp_path / "one", wandering=20, test_share=0.25)
    tasks.copy_pack(name, tmp_path / "two", wandering=20, test_share=0.25)
    assert (tmp_path / "one" / "tasks.jsonl").read_text() == (tmp_path / "two" / "tasks.jsonl").read_text()
    pack = Pack.load(tmp_path / "one")
    assert own == len(Pack.load(name).tasks) == len(pack.tasks) - 20
    held = [task for task in pack.tasks if task.split == "test"]
    assert 0 < len(held) < own / 2
    tested = {v for task in held for a in task.actions for k, v in a.arguments.items() if k.endswith("_id")}
    calls = [action for task in pack.tasks[own:] for action in task.actions]
    assert len(calls) == 160
    specs = {tool.name: tool for tool in pack.tools}
    assert not any(specs[call.name].argument_errors(call.arguments) for call in calls)
    assert not tested & {str(value) for call in calls for value in call.arguments.values()}
    assert len({call.name for call in calls}) > len(pack.tools) / 2


def test_the_page_has_the_figures_of_the_stored_replies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = load("simulator", monkeypatch)
    page = (FOLDER.parents[1] / "docs" / "experiments" / "simulator.md").read_text(encoding="utf-8")
    text = experiment.Experiment(tmp_path, FOLDER / "results", experiment.PLANS["full"]).report()
    observations, primary, changes = text.split("\n\n")
    names = {"base": "untrained", "trained-0": "training seed 0", "trained-1": "training seed 1"}
    for table in (observations, changes):
        rows = [line for line in table.splitlines() if line.split(" | ")[0].removeprefix("| ") in names]
        assert len(rows) == len(names)
        for row in rows:
            name = row.split(" | ")[0].removeprefix("| ")
            assert row.replace(name, names[name], 1) in page.splitlines()
        assert table.splitlines()[0] in page.splitlines()
    before, after, gain, low, high = map(float, re.findall(r"[+-]?\d\.\d+", primary))
    assert f"rises from {before:.2f} to {after:.2f}: {gain:+.2f} [{low:+.2f}, {high:+.2f}]" in page
    asked = experiment.read_rows(FOLDER / "results" / "asked.jsonl")
    exact = []
    for seed in (0, 1):
        replies = [each["reply"] for each in experiment.read_rows(FOLDER / "results" / f"trained-{seed}.jsonl")]
        counts: Counter[str] = Counter()
        for row, score in zip(asked, experiment.score_all(asked, replies), strict=True):
            counts[experiment.find_class(row["delta"])] += score.exact
        exact.append((counts["1-2"], counts["3-6"] + counts["7+"]))
    assert exact == [(2, 0), (5, 1)]
    said = "seed 0 has 2 exact and seed 1 has 5; of the 40 changes of three or more fields none and 1"
    assert said in " ".join(page.split())


def make_row(n: int, use: str, pack: str, *, failed: bool = False) -> tuple[dict[str, Any], str]:
    """A row, and the reply that is right."""
    content: Any = {"error": "no such thing"} if failed else {"n": n, "m": 2}
    truth = make_truth(content, failed, {}, {}, None)
    outcome = "error" if failed else "result"
    good = json.dumps({"answers": [{"call": 1, "outcome": outcome, "content": content, "changes": []}]})
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": f"x\nget {n}"},
        {"role": "assistant", "content": good},
    ]
    row = {"messages": messages, "pack": pack, "task": f"t{n}", "tool": "get", "outcome": outcome, "delta": 0}
    return {**row, "truth": truth.model_dump_json(), "held_out": use}, good


def test_the_report_is_of_the_rows_that_succeeded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = load("simulator", monkeypatch)
    pairs = [make_row(n, use, pack) for pack in experiment.PACKS for use in ("task", "tool") for n in range(2)]
    pairs.append(make_row(9, "task", experiment.PACKS[0], failed=True))
    results, work = tmp_path / "results", tmp_path / "work"
    results.mkdir()
    (work / "rows").mkdir(parents=True)
    (results / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row, _ in pairs))
    right = [good for _, good in pairs]
    half = [good.replace('"m": 2', '"m": 3') for good in right]
    for name, replies in (("base", ["what?"] * len(pairs)), ("trained-0", right), ("trained-1", half)):
        (results / f"{name}.jsonl").write_text("".join(json.dumps({"reply": reply}) + "\n" for reply in replies))
    (work / "rows" / "data.jsonl").write_text(json.dumps(pairs[1][0]) + "\n")
    text = experiment.Experiment(work, results, experiment.PLANS["tiny"]).report()
    assert "Held-out tasks: 0.000 before, 0.750 after: +0.750 [+0.500, +1.000]" in text
    rows = {line.split(" | ")[0]: line for line in text.split("\n\n")[0].splitlines()}
    assert rows["| base"].endswith("| 0.00 (2) | 0.00 (2) | 0.00 (2) | 0.00 (2) | 0.00 | 0.00 |")
    assert rows["| trained-1"].endswith("| 0.50 (2) | 0.50 (2) | 0.50 (2) | 0.50 (2) | 1.00 | 1.00 |")
    assert rows["| nearest"].startswith("| nearest | 0.75 (2) | 0.00 (2)"), (
        "the row of n = 1, which the other pack does not have"
    )
    assert "| exact changes by \\|Δ\\| | 0 (9) | 1-2 (0) |" in text
