"""The report of a pack: with and without a record of its synthesis, of a folder of packs, and of packs that lie."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest

from simia.pack import Pack
from simia.report.graph_drawing import GraphEdge, GraphNode, assign_layers, draw_graph
from simia.report.pack_rows import list_gym_rows, list_price_rows, list_stage_cells
from simia.report.pack_statistics import PackStatistics, count_histogram
from simia.report.synthesis_record import MOST_REFUSALS, RECORD, read_record
from simia.statistics import compute_wilson_interval
from tests.command import run_simia
from tests.packs.small import small

FIXTURES = Path(__file__).parents[1] / "synthesis" / "fixtures" / "report"
SCRIPT = "<script>alert(1)</script>"


def add_record(folder: Path, name: str = "synthesis.json") -> None:
    shutil.copy(FIXTURES / name, folder / RECORD)


def make_gym(folder: Path, tools: int, calls: list[int]) -> None:
    """A pack with the tools of a gym, without code: solutions of so many calls."""
    folder.mkdir(parents=True)
    names = ["observe", "done", *(f"look_{n}" for n in range(tools - 2))]
    (folder / "pack.yaml").write_text(f"format: 2\nname: {folder.name}\ntools: tools.json\ntasks: tasks.jsonl\n")
    (folder / "tools.json").write_bytes(orjson.dumps([{"name": name} for name in names]))
    rows = [
        {
            "id": f"t{n}",
            "instruction": "Solve it.",
            "reference": [{"name": "observe"}] * (count - 1) + [{"name": "done"}],
        }
        for n, count in enumerate(calls)
    ]
    (folder / "tasks.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))


def test_a_synthesized_pack(tmp_path: Path) -> None:
    small(tmp_path / "todo")
    add_record(tmp_path / "todo")
    done = run_simia("pack", "report", tmp_path / "todo", "--html", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    out = " ".join(done.stdout.split())
    assert "recipe envscaler, model example-model" in out
    assert "1 dropped" in out
    assert re.search(r"todo/burn_all +tool_fails +KeyError in 3 of 4 tests", out)
    assert "in the synthesis: 5 success, 2 anticipated refusal, 5 unexpected failure" in out
    assert "debug rounds 7 in 2 tools" in out
    assert "2 refused by the gate: nothing_scores 1, reference_fails 1" in out
    assert "assessment todo: 0.917 [0.646, 0.985] in 12 rounds: passed 11, failed 1" in out
    assert re.search(r"tools +5 +4 +1 +12 +~30,000 +~9,000 +\$0\.30", out)
    assert "refused by stage themes unreadable_reply 1, not_stateful 1 tools tool_fails 1" in out
    assert re.search(r"assessment +1 +1 +0 +24 +12,000 +2,000", out), "counted tokens have no mark"
    # (5 + 12 + 24) questions and 58,000 tokens for 4 tools; 9 questions and 26,000 tokens for 2 tasks
    assert "10.2 questions, ~14,500 tokens, 4 made (ScaleEnv: 546,000 tokens a domain; here ~58,000, 1 made)" in out
    assert "4.5 questions, ~13,000 tokens, 2 made (with all stages ~42,000; ScaleEnv: 93,200 tokens a task)" in out
    page = (tmp_path / "page.html").read_text()
    for words in ("Dropped tools", "burn_all", "Refused tasks", "unexpected failure", "~30,000"):
        assert words in page


@pytest.mark.parametrize("name", ["customer_service", "office"])
def test_a_pack_written_by_hand(tmp_path: Path, name: str) -> None:
    done = run_simia("pack", "report", name, "--no-run", "--html", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    assert "written by hand" in done.stdout
    assert "as recorded in the pack: reward 1" in done.stdout
    page = (tmp_path / "page.html").read_text()
    assert "One task as a conversation" in page
    assert page.count('class="turn') >= 3
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "src=" not in page
    if name == "customer_service":
        assert page.count('<svg class="graph"') == 3, "tables, tools with their tables, and the tool graph"
        assert page.count('<path class="reference"') == 10
        assert "orders → customers: customer_id" in page


def test_tests_are_run_and_a_solution_without_a_recording_is_played(tmp_path: Path) -> None:
    pack = small(tmp_path / "todo")
    rows = [orjson.loads(line) for line in (tmp_path / "todo" / "tests.jsonl").read_bytes().splitlines()]
    rows[0]["expect"] = {"result": {"nothing": "like this"}}
    (tmp_path / "todo" / "tests.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    done = run_simia("pack", "report", tmp_path / "todo")
    out = " ".join(done.stdout.split())
    outcomes = re.search(r"run now: (\d+) success, (\d+) anticipated refusal, (\d+) unexpected failure", out)
    assert outcomes is not None
    assert not pack.references
    assert sum(map(int, outcomes.groups())) == len(rows)
    assert outcomes[3] == "1", "the test that expects something else"
    assert "played now in the sandbox: reward 1" in out


def test_difficulty_names_the_agent(tmp_path: Path) -> None:
    pack = small(tmp_path / "todo")
    rows = [orjson.loads(line) for line in (tmp_path / "todo" / "tasks.jsonl").read_bytes().splitlines()]
    for n, row in enumerate(rows):
        row["measured"] = {"qwen-1.5b": {"n": 4, "solved": 4 * (n == 0)}}
    (tmp_path / "todo" / "tasks.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    done = run_simia("pack", "report", tmp_path / "todo", "--no-run", "--html", tmp_path / "page.html")
    tasks = len(pack.tasks)
    low, high = compute_wilson_interval(1, tasks)
    assert re.search(rf"qwen-1\.5b +{tasks} +{4 * tasks} +4 +0\.\d+ +{low:.3f} to {high:.3f}", done.stdout)
    assert "0.51 to 1.00" in (tmp_path / "page.html").read_text(), "Wilson's interval of 4 of 4"


def test_a_hostile_record_is_read_as_data(tmp_path: Path) -> None:
    tasks = [{"id": SCRIPT, "instruction": SCRIPT, "tags": [SCRIPT], "measured": {SCRIPT: {"n": 1, "solved": 1}}}]
    table = {
        "customers</text><script>x()</script>": {"columns": {"a": {"references": 'b" onload="y()'}}},
        'b" onload="y()': {},
    }
    small(tmp_path / "todo", tasks_jsonl=tasks)
    head = (tmp_path / "todo" / "pack.yaml").read_text().split("schema:")[0]
    tool = {"name": "x<y>", "description": f"{SCRIPT}\u001b[2J", "writes": list(table), "reads": []}
    (tmp_path / "todo" / "tools.json").write_bytes(orjson.dumps([tool]))
    (tmp_path / "todo" / "pack.yaml").write_text(f"{head}schema: {orjson.dumps({'tables': table}).decode()}\n")
    (tmp_path / "todo" / "graph.jsonl").write_bytes(orjson.dumps({"source": SCRIPT, "target": "x<y>", "kind": SCRIPT}))
    with (tmp_path / "todo" / "pack.yaml").open("a") as file:
        file.write("graph: graph.jsonl\n")
    add_record(tmp_path / "todo", "hostile_synthesis.json")
    done = run_simia("pack", "report", tmp_path / "todo", "--no-run", "--html", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    page = (tmp_path / "page.html").read_text()
    for markup in ("<script", "<img", "<b>", 'onload="y()', "</style><", "\x1b", "\u202e"):
        assert markup not in page.partition("</head>")[2], markup
    assert page.count("</style>") == 1
    assert "default-src 'none'" in page
    assert "script-src" not in page
    record = read_record(tmp_path / "todo")
    assert record is not None
    first = record.stages[0]
    assert (first.inputs, first.made, first.questions, first.tokens, first.estimated, first.cost) == (
        0,
        0,
        0,
        0,
        False,
        None,
    )
    assert len(record.stages) == 2
    assert record.model == ""
    assert record.sum_tests() == {"success": 0, "refusal": 0, "failure": 2}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"recipe": ', "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b"[]", "is not an object"),
        (b'{"stages": {"a": 1}, "refusals": 5, "notes": [1]}', ""),
    ],
)
def test_a_broken_record_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    pack = small(tmp_path / "todo")
    (tmp_path / "todo" / RECORD).write_bytes(content)
    record = read_record(tmp_path / "todo")
    assert record is not None
    assert (words in record.fault) if words else not record.fault
    assert list_stage_cells(PackStatistics(pack, record)) == []


def test_a_record_that_is_a_link_to_another_file_is_not_read(tmp_path: Path) -> None:
    small(tmp_path / "todo")
    (tmp_path / "secret.json").write_text('{"recipe": "secret"}')
    (tmp_path / "todo" / RECORD).symlink_to(tmp_path / "secret.json")
    record = read_record(tmp_path / "todo")
    assert record is not None
    assert record.recipe == ""
    assert "not a file in the pack" in record.fault


def test_a_record_with_too_many_refusals_is_cut(tmp_path: Path) -> None:
    small(tmp_path / "todo")
    row = {"stage": "tools", "key": "a", "reason": "b", "detail": "c" * 1_000}
    (tmp_path / "todo" / RECORD).write_bytes(orjson.dumps({"refusals": [row] * (MOST_REFUSALS + 3)}))
    record = read_record(tmp_path / "todo")
    assert record is not None
    assert (len(record.refusals), record.left_out) == (MOST_REFUSALS, 3)
    assert max(len(refusal.detail) for refusal in record.refusals) <= 300


def test_a_folder_of_gyms(tmp_path: Path) -> None:
    make_gym(tmp_path / "gyms" / "closest", 3, [10, 20])
    make_gym(tmp_path / "gyms" / "sorting", 7, [30, 60, 60])
    add_record(tmp_path / "gyms" / "closest")
    add_record(tmp_path / "gyms" / "sorting")
    (tmp_path / "gyms" / "broken").mkdir()
    (tmp_path / "gyms" / "broken" / "pack.yaml").write_text("format: 9\n")
    done = run_simia("pack", "report", tmp_path / "gyms", "--html", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    assert "left out" in done.stderr
    assert "broken" in done.stderr
    out = " ".join(done.stdout.split())
    assert "sorting 7 1 0 0 3 2 50.00 ~84,000 $0.62" in out
    assert "all 10 2 0 0 5 4 36.00 ~84,000 $0.62" in out, "a record that both packs have counts once"
    single = run_simia("pack", "report", tmp_path / "gyms" / "sorting").stdout
    assert "CodeGym" not in single, "the record names another recipe"
    (tmp_path / "gyms" / "sorting" / RECORD).unlink()
    (tmp_path / "gyms" / "closest" / RECORD).unlink()
    out = " ".join(run_simia("pack", "report", tmp_path / "gyms", "--html", tmp_path / "page.html").stdout.split())
    assert "tools 5.00 on average over 2 (CodeGym: 6.52), 3 to 7" in out
    assert "calls to solve 36.00 on average over 5 (CodeGym: 44.07), 10 to 60" in out
    assert "Fig. 4" in (tmp_path / "page.html").read_text()


def test_a_run_that_made_several_packs(tmp_path: Path) -> None:
    """Each pack has the record of the whole run: a pack's report lists what was refused for it, with the run's prices."""
    record = {
        "recipe": "envscaler",
        "stages": [
            {"name": "tools", "inputs": 5, "made": 3, "refused": {"a": 2}, "tokens": {"prompt": 9, "completion": 1}}
        ],
        "refusals": [{"stage": "tools", "key": f"{name}/burn", "reason": "a"} for name in ("todo", "hotel")],
        "notes": {
            "tools": {"todo/add_todo": {"rounds": 1}, "hotel/book": {"rounds": 4}},
            "assessment": {"todo": {"score": 0.9}, "hotel": {"score": 0.8}},
        },
    }
    for name in ("todo", "other"):
        small(tmp_path / "packs" / name)
        (tmp_path / "packs" / name / RECORD).write_bytes(orjson.dumps(record))
    out = " ".join(run_simia("pack", "report", tmp_path / "packs" / "todo", "--no-run").stdout.split())
    assert "1 dropped" in out
    assert "debug rounds 1 in 1 tool" in out
    assert "assessment todo: 0.900" in out
    assert "hotel" not in out
    out = " ".join(run_simia("pack", "report", tmp_path / "packs", "--no-run").stdout.split())
    assert re.search(r"all \d+ \d+ \d+ 0 \d+ 0 \d\.\d\d 10\b", out), "the run's tokens count once"


def test_what_is_no_pack_is_one_line(tmp_path: Path) -> None:
    done = run_simia("pack", "report", tmp_path)
    assert done.returncode == 2
    assert "name a pack or a folder of packs" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_histogram_and_gym_rows() -> None:
    assert count_histogram([3, 3, 5]) == [("3", 2), ("4", 0), ("5", 1)]
    bins = count_histogram(list(range(10, 257)))
    assert len(bins) <= 12
    assert sum(count for _, count in bins) == 247
    assert bins[0][0].startswith("10–")
    assert count_histogram([]) == []
    assert list_gym_rows([], []) == []


def test_pages_are_the_same_each_time(tmp_path: Path) -> None:
    small(tmp_path / "todo")
    add_record(tmp_path / "todo")
    for name in ("one", "two"):
        run_simia("pack", "report", tmp_path / "todo", "--html", tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_layers_follow_references_and_survive_cycles() -> None:
    edges = [GraphEdge("orders", "customers"), GraphEdge("refunds", "orders"), GraphEdge("refunds", "customers")]
    assert assign_layers(["refunds", "customers", "orders"], edges) == [["customers"], ["orders"], ["refunds"]]
    ring = [GraphEdge("a", "b"), GraphEdge("b", "c"), GraphEdge("c", "a"), GraphEdge("a", "a")]
    assert sorted(name for layer in assign_layers(["a", "b", "c"], ring) for name in layer) == ["a", "b", "c"]
    nodes = [GraphNode(name) for name in "abc"]
    drawing = draw_graph(nodes, ring)
    assert drawing.count("<rect") == 3
    assert drawing.count("marker-end") == 4
    assert draw_graph([], []).startswith("<svg")
    chain = [GraphEdge(str(n), str(n + 1)) for n in range(5000)]
    assert len(assign_layers([str(n) for n in range(5001)], chain)) == 5001, "no recursion"


def test_boxes_do_not_overlap() -> None:
    pack = Pack.load("customer_service")
    from simia.report.pack_statistics import make_access_graph, make_table_graph

    for nodes, edges in (make_table_graph(pack), make_access_graph(pack)):
        boxes: list[tuple[float, ...]] = [
            tuple(map(float, found))
            for found in re.findall(
                r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', draw_graph(nodes, edges)
            )
        ]
        assert len(boxes) == len(nodes)
        for n, (x, y, w, h) in enumerate(boxes):
            for x2, y2, w2, h2 in boxes[n + 1 :]:
                assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y


def test_prices_need_a_record() -> None:
    found: Any = list_price_rows(PackStatistics(Pack.load("customer_service"), None))
    assert found == []
