"""The published tables agree with themselves except where we say so, and rollouts fill the columns of their suites."""

from __future__ import annotations

import io
import math
import os
import re
from pathlib import Path

import pytest

from simia.authoring.scaffold import scaffold_pack
from simia.errors import UserError
from simia.evaluation.published.tables import (
    PAPERS,
    PublishedTable,
    find_discrepancies,
    find_place,
    measure_columns,
    measure_part,
    read_paper,
)
from simia.evaluation.suites import load_suite
from simia.report.console import Terminal
from simia.report.published_table import print_table
from simia.search_path import data_root
from tests.command import invoke

TABLES = [(paper, table) for paper in PAPERS for table in read_paper(paper).tables]
NAMES = [f"{paper}-{table.id}" for paper, table in TABLES]
# All printed averages, differences and stated leads that do not follow from the printed cells.
WRONG = {
    ("simia", "2", "Simia-OB (Llama-3.1-8B)", "Average", 33.8, 38.8),
    ("simia", "3", "Simia-AB (Qwen3-8B)", "Average", 42.6, 42.27),
    ("simia", "3", "Qwen2.5-Coder-7B-Instruct", "Average", 30.5, 30.67),
    ("simia", "3", "Simia-AB (Qwen2.5-3B)", "Average", 39.9, 39.67),
    ("simia", "3", "Qwen2.5-3B-Instruct", "Average", 29.5, 29.67),
    ("simia", "3", "Simia-AB (Qwen2.5-1.5B)", "Average", 28.5, 28.67),
    ("simia", "3", "Qwen2.5-1.5B-Instruct", "Average", 24.0, 24.33),
    ("envscaler", "main", "Qwen3-4B + SFT", "Tau overall", 38.2, 38.17),
    ("codegym", "4", "Qwen2.5-32B-CG-SFT", "Avg.", 41.3, 43.02),
    ("codegym", "4", "Qwen2.5-32B-CG-SFT", "difference of τ-airline", 2.8, 12.8),
}
TEXTS = os.environ.get("SIMIA_PAPERS")


def test_the_discrepancies_are_those_we_name() -> None:
    found = {
        (paper, table.id, each.model, each.what, each.printed, round(each.computed, 2))
        for paper, table in TABLES
        for each in find_discrepancies(table)
    }
    assert found == WRONG


@pytest.mark.parametrize(("paper", "table"), TABLES, ids=NAMES)
def test_rows_fit_their_columns(paper: str, table: PublishedTable) -> None:
    rows = [row for group in table.groups for row in group.rows]
    assert len(table.rows) == len(rows)
    for row in rows:
        assert len(row.values) == len(table.columns)
        assert not row.changes or row.base in table.rows
        assert {*row.changes, *row.likely} <= table.columns.keys()
        assert all(-100 <= value <= 100 for value in row.values)
        assert row.config is None or (row.checkpoint and (data_root() / "configs" / f"{row.config}.yaml").is_file())
    for column in table.columns.values():
        assert set(column.mean_of) <= table.columns.keys()


def test_a_likely_value_makes_the_row_agree() -> None:
    checked = 0
    for _, table in TABLES:
        for row in table.rows.values():
            if row.likely:
                values = [row.likely.get(name, value) for name, value in zip(table.columns, row.values, strict=True)]
                fixed = table.model_copy(deep=True)
                fixed.rows[row.model].values[:] = values
                assert any(each.model == row.model for each in find_discrepancies(table))
                assert not any(each.model == row.model for each in find_discrepancies(fixed))
                checked += 1
    assert checked == 3


def test_a_changed_cell_is_found() -> None:
    """Cells with an average or a printed difference are checked by it: a change of one point shows."""
    table = read_paper("codegym").find_table("1").model_copy(deep=True)
    assert not find_discrepancies(table)
    table.rows["Qwen2.5-32B-CodeGym"].values[1] += 1
    assert [each.what for each in find_discrepancies(table)] == [
        "Avg.",
        "difference of τ-retail",
        "the lead over Qwen2.5-32B-Instruct in section Abstract",
    ]


def test_equal_models_have_equal_figures_in_all_tables_of_a_paper() -> None:
    for paper in ("codegym", "scaleenv"):
        seen: dict[tuple[str, str, str], float] = {}
        for table in read_paper(paper).tables:
            for row in table.rows.values():
                for (name, column), value in zip(table.columns.items(), row.values, strict=True):
                    key = (row.also or row.model, f"{column.benchmark} {name}", str(column.metric))
                    if column.metric:
                        assert seen.setdefault(key, value) == value, (paper, table.id, key)


@pytest.mark.skipif(TEXTS is None, reason="SIMIA_PAPERS names no folder with the papers' texts")
@pytest.mark.parametrize("paper", ["simia", "scaleenv", "codegym"])
def test_every_row_stands_in_the_papers_text(paper: str) -> None:
    """A row's figures follow the model's name in order. Zeros and single digits are lost in one text, so they are left out."""
    text = (Path(TEXTS or "") / f"{paper}.txt").read_text("utf-8")
    for table in read_paper(paper).tables:
        if table.id.startswith("figure"):
            continue
        for model, row in table.rows.items():
            name = model
            if paper == "simia" and (table.id, model) == ("2", "Qwen3-8B"):
                name = "Qwen3-"
            if paper == "scaleenv":
                name = {"LLM as judge": "LLM-as-a-Judge", "Rules": "Rule-Based (Ours)"}.get(model, model)
                name = name.replace("4 domains", "4 Domains")
            figures = [rf"{value:g}(?:\.0)?" for value in row.values if abs(value) >= 10 or value != int(value)]
            gap = r"[^\n]*?(?<![\d.])" if paper != "simia" else r"\s(?:\d\n)*"
            start = r"(?m)^" + re.escape(name) + r"(?=\s)"
            assert re.search(start + "".join(gap + each + r"(?!\d|\.\d)" for each in figures), text), (table.id, model)


def test_an_episode_is_placed_by_its_suite_or_its_pack() -> None:
    assert find_place("tau2/retail/12") == find_place("/tau2-retail/12") == ("tau2", "retail")
    assert find_place("officebench/2-apps/2-1/0") == find_place("/officebench/2-1/0") == ("officebench", "2-apps")
    assert find_place("/officebench/1-1/0") is None
    assert find_place("agentbench_os/os/7") == find_place("/agentbench-os/7") == ("agentbench_os", "os")
    assert find_place("/bfcl/multi_turn_miss_func_3") == ("bfcl", "missing_function")
    assert find_place("/customer_service/cs-001") is None


def test_measures_are_those_of_the_papers() -> None:
    rewards: dict[str, list[float | None]] = {"a": [1.0, 1.0], "b": [1.0, 0.0], "c": [0.5, 0.0], "d": [None, None]}
    measures = (("avg@", 5), ("pass^", 1), ("pass^", 2), ("pass@", 2))
    figures = {name: [*measure_part(rewards, *name).values()] for name in measures}
    assert figures == {
        ("avg@", 5): [1.0, 0.5, 0.25], ("pass^", 1): [1.0, 0.5, 0.0], ("pass^", 2): [1.0, 0.0, 0.0], ("pass@", 2): [1.0, 1.0, 0.0],
    }  # fmt: skip
    assert measure_part(rewards, "pass^", 3) == measure_part({}, "avg@", 4) == {}


def test_means_of_columns_and_of_parts_have_intervals_that_resample_within_each_part() -> None:
    rewards = {
        ("tau2", "retail"): {f"r{n}": [float(n % 2)] * 4 for n in range(40)},
        ("tau2", "airline"): {f"a{n}": [float(n % 4 == 0)] * 4 for n in range(20)},
        ("tau2", "telecom"): {f"t{n}": [1.0] * 4 for n in range(20)},
    }
    of_columns = measure_columns(read_paper("simia").find_table("1"), rewards)
    assert round(of_columns["average"].value, 2) == 37.5
    widths = {name: each.high - each.low for name, each in of_columns.items()}
    assert 0 < widths["average"] < widths["airline"]
    of_parts = measure_columns(read_paper("codegym").find_table("1"), rewards)
    assert round(of_parts["tau2"].value, 2) == round((50 + 25 + 100) / 3, 2)
    assert of_parts["tau2"].low < of_parts["tau2"].value < of_parts["tau2"].high < 100
    del rewards["tau2", "telecom"]
    assert "tau2" not in measure_columns(read_paper("codegym").find_table("1"), rewards)


def test_means_are_of_columns_with_one_part() -> None:
    for _, table in TABLES:
        for column in table.columns.values():
            averaged = [table.columns[name] for name in column.mean_of]
            assert not all(each.suite for each in averaged) or all(isinstance(each.part, str) for each in averaged)


def test_our_rollouts_are_printed_below_the_published_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    for domain in ("retail", "airline"):
        scaffold_pack(tmp_path / f"tau2-{domain}")
    scaffold_pack(tmp_path / "todos")
    both = ["--set", "packs=[./tau2-retail, ./tau2-airline]"]
    invoke("rollout", *both, "--agent", "reference", "--name", "right")
    invoke("rollout", "./tau2-retail", "--agent", "nothing", "--name", "wrong")
    invoke("rollout", "./todos", "--agent", "nothing", "--name", "other")
    printed = invoke("eval", "table", "simia", "1", "--run", "right", "--run", "wrong", "--run", "other")
    lines = {line.partition("  ")[0]: line.split()[-3:] for line in printed.splitlines()}
    assert lines["right (reference)"] == ["100.0", "100.0", "100.0"]
    assert lines["wrong (nothing)"][-1] == "0.0"
    assert lines["GPT-5"] == ["58.0", "77.2", "67.6"]
    assert re.search(r"right: 95 % intervals: Airline .*, Retail .*, Average ", printed)
    assert "other: no column of this table is measured: it has no episode of the table's suites yet" in printed
    assert invoke("eval", "table", "simia", "1", "--run", "right", "--run", "wrong", "--run", "other") == printed


def test_every_table_is_printed_without_our_rows() -> None:
    for paper, table in TABLES:
        printed = invoke("eval", "table", paper, table.id)
        assert f"{paper}, table {table.id}" in printed
        assert "nan" not in printed
    assert "33.8 (38.80)" in invoke("eval", "table", "simia", "2")
    assert "no results" in invoke("eval", "table", "simia")


@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
@pytest.mark.parametrize(("paper", "table"), TABLES, ids=NAMES)
def test_no_name_and_no_number_is_cut_at_80_columns(paper: str, table: PublishedTable, terminal: bool) -> None:
    to = Terminal(width=80, file=io.StringIO(), force_terminal=terminal, color_system=None, no_color=True)
    print_table(read_paper(paper), table, [], to)
    lines = to.file.getvalue().splitlines()  # type: ignore[attr-defined]
    digits = max(0, -round(math.log10(table.unit)))
    for model, row in table.rows.items():
        figures = [f"{value:.{digits}f}" for value in row.values]
        found = [
            re.sub(r" \([\d.]+\)", "", line.removeprefix(model)).split() for line in lines if line.startswith(model)
        ]
        assert figures in found, (model, found)
    heading = " ".join(lines[1].split())
    assert heading == " ".join(["model", *(" ".join(column.title.split()) for column in table.columns.values())])


def test_unknown_papers_and_tables_are_one_clear_line() -> None:
    with pytest.raises(UserError, match="there are: simia, scaleenv"):
        read_paper("react")
    with pytest.raises(UserError, match="has no table '9'; there are: 1, 2, 3"):
        read_paper("simia").find_table("9")
    with pytest.raises(UserError, match="holds no results: hyper-parameters"):
        read_paper("simia").find_table("4")


def test_the_configs_of_rows_name_a_checkpoint_of_a_row() -> None:
    checkpoints = {
        (row.config, row.checkpoint) for _, table in TABLES for row in table.rows.values() if row.config is not None
    }
    configs = sorted(f"eval/rows/{path.stem}" for path in (data_root() / "configs/eval/rows").glob("*.yaml"))
    assert configs == sorted({name for name, _ in checkpoints})
    for name in configs:
        config = load_suite(name)
        assert config.llm is not None
        assert (name, config.llm.model) in checkpoints  # type: ignore[union-attr]
        assert config.sampling.temperature == 0.0
        assert config.packs == load_suite(config.suite).packs
