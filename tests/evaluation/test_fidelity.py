"""Fidelity: figures against numbers worked by hand, and the command against a fake endpoint."""

from __future__ import annotations

import json
import random
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simia.cli import build_app
from simia.cli.fidelity import print_fidelity
from simia.envs.worlds.compare_worlds import change_distance
from simia.errors import UserError
from simia.evaluation import fidelity
from simia.evaluation.chained_tasks import chain_tasks, make_chained_pack
from simia.evaluation.fidelity import Fidelity, ToolFidelity, estimate_gain, infer_shape, measure_fidelity
from simia.pack import Pack
from simia.report.change_report import format_drift, make_change_panels
from simia.report.plots import PlotDot, PlotLine, PlotPanel, render_svg
from simia.statistics import compute_wilson_interval
from simia.task import Action, Task
from simia.tool import ToolSpec
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
    found = measure_fidelity(rows, {})
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
    assert measure_fidelity(rows, {"get": spec}).tools["get"].schema_validity == 0.5
    assert measure_fidelity(rows, {}).tools["get"].schema_validity == 0.0


def test_shape_of_results() -> None:
    assert infer_shape([{"a": 1, "b": None}, {"a": 2.5}]) == {
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"type": "number"}},
    }
    assert infer_shape([["x"], []]) == {"type": "array", "items": {"type": "string"}}


PENDING = {"id": "A", "status": "pending", "total": 9, "items": ["x", "y"]}
CANCELLED = {"id": "A", "status": "cancelled", "total": 9, "items": ["x"]}


@pytest.mark.parametrize(
    ("now", "kept", "held"),
    [
        (CANCELLED, 3, True),  # id, total and what is left of the items; status and y have changed
        ({**CANCELLED, "status": "pending"}, 3, True),  # wrong, as F1 tells, but nothing that stays is contradicted
        ({**CANCELLED, "total": 8}, 2, False),
        ({**CANCELLED, "items": ["z"]}, 2, False),
    ],
)
def test_a_look_up_made_again_is_held_to_what_the_history_says(now: Any, kept: int, held: bool) -> None:
    rows = [row(PENDING, {"id": "Q"}), row("ok", "ok", name="cancel"), row(CANCELLED, now)]
    total = measure_fidelity(rows, {}).total
    assert (total.again, total.past, total.kept, total.held) == (1, 3, kept, held)
    assert total.memory == kept / 3


def test_a_simulator_that_goes_on_from_its_own_answers_is_held_to_these() -> None:
    own = {"id": "A", "status": "pending", "total": 5, "items": ["v", "w"]}
    first = row(PENDING, own, distance=0.0)
    same, other = {**own, "status": "cancelled"}, {**own, "total": 9}  # `total` is the real one now, and not its own
    for now, kept in ((same, 2), (other, 1)):
        total = measure_fidelity([first, row(CANCELLED, now, distance=0.0)], {}).total
        # Of the items, which have changed for real, nothing says which of its own inventions stay.
        assert (total.past, total.kept, total.held) == (2, kept, kept == 2)


def test_what_cannot_be_compared_is_no_second_look_up() -> None:
    gone = row({"error": "none"}, {"id": "A"}, failed=(True, False))
    assert measure_fidelity([row(PENDING, PENDING), gone], {}).total.again == 0  # it is refused for real now
    assert (
        measure_fidelity([row(PENDING, PENDING), {**row(PENDING, PENDING), "arguments": {"id": 2}}], {}).total.again
        == 0
    )
    assert (
        measure_fidelity([row(PENDING, PENDING, episode="e"), row(PENDING, PENDING, episode="f")], {}).total.again == 0
    )  # another world
    refused = measure_fidelity([row(PENDING, PENDING), row(PENDING, {"error": "none"}, failed=(False, True))], {}).total
    assert (refused.again, refused.kept, refused.past, refused.held) == (1, 0, 5, 0)


def steps(*answers: Any, episode: str = "e") -> list[Any]:
    return [
        {**row({"n": 1}, {"n": each}), "arguments": {"id": n}, "step": n, "episode": episode}
        for n, each in enumerate(answers)
    ]


def test_intervals_hold_the_value_and_shrink_with_evidence() -> None:
    few, many = measure_fidelity(steps(1, 0, 1, 0), {}), measure_fidelity(steps(*[1, 0] * 50), {})
    one, two = few.interval("value_f1"), many.interval("value_f1")
    assert one is not None
    assert two is not None
    assert one.value == two.value == 0.5
    assert one.low < two.low < 0.5 < two.high < one.high
    assert few.interval("memory") is None
    alike = measure_fidelity([each for name in "abcdefgh" for each in steps(1, 0, episode=name)], {}).interval(
        "value_f1"
    )
    assert alike is not None
    assert alike.low == alike.high == 0.5


def test_what_one_way_buys_is_compared_call_by_call() -> None:
    worse, better = measure_fidelity(steps(1, 0, 1, 0, 0, 0), {}), measure_fidelity(steps(1, 0, 1, 1, 1, 0), {})
    bought = estimate_gain(better, worse, "value_f1")
    assert bought is not None
    assert bought.value == pytest.approx(2 / 6)
    assert 0 <= bought.low < bought.value < bought.high  # never worse on any call, so on none of the draws
    same = estimate_gain(worse, worse, "value_f1")
    assert same is not None
    assert same.value == 0
    assert -1 < same.low < 0 < same.high < 1, "six equal calls do not show that all others are equal"
    assert estimate_gain(better, measure_fidelity(steps(1, episode="f"), {}), "value_f1") is None


def test_a_call_that_one_side_lost_is_no_gain_of_the_other() -> None:
    both = measure_fidelity([row({"n": 1}, {"n": 1}), row({"n": 1}, {"n": 0}) | {"step": 2}], {})
    half = measure_fidelity([row({"n": 1}, {"n": 1}), row({"n": 1}, lost="timeout: none") | {"step": 2}], {})
    for one, other in ((half, both), (both, half)):
        bought = estimate_gain(one, other, "value_f1")
        assert bought is not None
        assert bought.value == 0


def test_tasks_are_joined_and_read_back() -> None:
    tools = [ToolSpec(name=name) for name in ("get_note", "set_note")]
    tasks = [
        Task(
            id=name,
            instruction=f"do {name}",
            initial={"patch": {"notes": {name: {"text": "old"}}}},
            reference=[
                Action(name="get_note", arguments={"id": name}),
                Action(name="set_note", arguments={"id": name, "text": "new"}),
                Action(name="get_note", arguments={"id": name}),
            ],
        )
        for name in ("a", "b")
    ]
    joined = chain_tasks(tasks, tools)
    assert (joined.id, joined.instruction) == ("a+b", "do a\ndo b")
    assert joined.initial == {"patch": {"notes": {"a": {"text": "old"}, "b": {"text": "old"}}}}
    assert [action.name for action in joined.reference] == ["get_note", "set_note", "get_note"] * 2 + ["get_note"] * 2
    assert [action.arguments["id"] for action in joined.reference[6:]] == ["a", "b"]
    with pytest.raises(ValueError, match="state of their own"):
        chain_tasks([Task(id="c", initial={"state": {}})], tools)


def test_a_chained_pack_is_a_copy_whose_tasks_are_long_enough(tmp_path: Path) -> None:
    pack = Pack.load("customer_service")
    folder = make_chained_pack(pack, tmp_path / "long", calls=12, split="test")
    made = Pack.load(folder)
    assert len(made.tasks) > 1
    for task in made.tasks:
        parts = [pack.task(name) for name in task.id.split("+")]
        assert {part.split for part in parts} == {"test"}
        calls = sum(len(part.actions) for part in parts)
        assert calls >= 12 > calls - len(parts[-1].actions)
        assert len(task.reference) > calls
    before = (folder / "tasks.jsonl").stat().st_mtime_ns
    assert make_chained_pack(pack, tmp_path / "long", calls=12, split="test") == folder
    assert (folder / "tasks.jsonl").stat().st_mtime_ns == before
    assert list((tmp_path / "long").iterdir()) == [folder], "no draft is left"
    with pytest.raises(UserError, match="fewer than 5000 calls"):
        make_chained_pack(pack, tmp_path / "longer", calls=5000)
    assert not (tmp_path / "longer").exists()


def test_a_chained_pack_is_of_the_pack_as_it_is_now_and_never_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = small(tmp_path / "todos")
    first = make_chained_pack(pack, tmp_path / "long", calls=3)
    (tmp_path / "todos" / "policy.md").write_text("Say please.", encoding="utf-8")
    pack = Pack.load(tmp_path / "todos")
    second = make_chained_pack(pack, tmp_path / "long", calls=3)
    assert first != second
    assert Pack.load(second).policy == pack.policy
    assert Pack.load(first).policy != pack.policy, "the runs that name it stay comparable"

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("simia.evaluation.chained_tasks.replace_file", killed)
        with pytest.raises(KeyboardInterrupt):
            make_chained_pack(pack, tmp_path / "killed", calls=3)
    again = Pack.load(make_chained_pack(pack, tmp_path / "killed", calls=3))
    assert again.tasks == Pack.load(second).tasks != pack.tasks
    with pytest.raises(UserError, match="is inside the pack"):
        make_chained_pack(pack, tmp_path / "todos" / "runs" / "fidelity", calls=3)
    assert not (tmp_path / "todos" / "runs").exists()


def test_a_call_that_ends_the_episode_is_made_last() -> None:
    tools = [ToolSpec(name=name) for name in ("get_note", "finish")]
    tasks = [
        Task(
            id=name,
            instruction=name,
            reference=[Action(name="get_note", arguments={"id": name}), Action(name="finish")],
        )
        for name in ("a", "b")
    ]
    joined = chain_tasks(tasks, tools, ["finish"])
    assert [action.name for action in joined.reference] == ["get_note"] * 4 + ["finish"]


def test_a_plot_is_well_formed_and_shows_what_it_was_given() -> None:
    panels = [
        PlotPanel("F1 & more", dots=[PlotDot("a < b", 0.5, 0.25, 1.5), PlotDot("c", 0.0, 0.0, 0.0, 7)]),
        PlotPanel("astray", lines=[PlotLine("x", [(1, 0.0), (2, 1.0)]), PlotLine("y", [(1, 0.5)], 1)]),
    ]
    drawn = render_svg(panels)
    assert drawn == render_svg(panels)
    root = ElementTree.fromstring(drawn)
    name = "{http://www.w3.org/2000/svg}"
    words = [each.text for each in root.iter(f"{name}text")]
    assert {"F1 & more", "a < b", "0.50", "astray", "x"} <= set(words)
    assert [each.get("x") for each in root.iter(f"{name}use")][:2] == ["440", "230"]  # the middle, and the left edge
    assert [each.get("id") for each in root.iter(f"{name}g") if (each.get("id") or "").startswith("line-")] == [
        "line-1",
        "line-2",
    ]
    places = [float(x) for path in root.iter(f"{name}path") for x in re.findall(r"[ML] (\S+) \S+", path.get("d") or "")]
    assert max(places) == 720.0  # of the background
    assert 650.0 in places  # what is too much ends at 1
    assert not [x for x in places if 650.0 < x < 720.0]


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
    assert change_distance(real, named) == pytest.approx(wanted)
    assert change_distance([], []) == 0.0


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
        done = CliRunner().invoke(build_app(), words)
        assert done.exit_code == 0, (done.output, done.exception)
        for kind, ledgers in (("schema", "yes no"), ("reference", "yes no"), ("state", "no"), ("code", "no")):
            assert re.findall(rf"^│ {kind} +│ (yes|no) ", done.output, re.M) == ledgers.split()
        assert "|Δ|: leaf fields" in done.output
        asked = len(endpoint.requests)
        assert asked > 0
        again = CliRunner().invoke(build_app(), words)
        assert again.output == done.output
        assert len(endpoint.requests) == asked
        other = CliRunner().invoke(build_app(), [*words, "--set", "backend_settings.context=9000"])
        assert isinstance(other.exception, UserError)
        assert "context: None → 9000: choose another --name" in str(other.exception)
        free = CliRunner().invoke(build_app(), [*words, "--no-forced", "--knowledge", "schema"])
        assert free.exit_code == 0, free.output
        assert re.search(r"^│ schema *│ *no *│.*[01]\.\d{3} *│$", free.output, re.M), (
            free.output
        )  # the last column is `distance`
        kept = json.loads((tmp_path / "runs/fidelity-todos/fidelity.json").read_text())
        assert [(each["knows"], each["ledger"]) for each in kept["rows"]] == [
            *((kind, ledger) for kind in ("schema", "reference") for ledger in (True, False)),
            ("state", False),
            ("code", False),
        ]
        assert kept["changes"].keys() == {"definition", "schema", "reference", "state", "code"}
        shown = CliRunner().invoke(build_app(), ["runs", "show", "fidelity-todos-code"]).output
        assert "shadow: 2 calls" in shown
        assert "by |Δ|" in shown
        for manner, panels in (("", 1), ("-free", 2)):
            drawn = (tmp_path / f"runs/fidelity-todos{manner}/fidelity.svg").read_text()
            assert len(re.findall(r"<text [^>]*\b700\b", drawn)) >= panels
            assert "schema, no ledger" in drawn
        held = CliRunner().invoke(build_app(), [*words, "--no-forced", "--knowledge", "code", "--name", "held"])
        assert held.exit_code == 0, held.output
        saved = json.loads((tmp_path / "runs/held-todos-free/fidelity.json").read_text())["rewards"]["code"]
        told = f"code: rules on the held state agree with the reward in {saved['agreed']} of {saved['episodes']}: "
        assert saved["episodes"] == 1
        assert told in " ".join(held.output.split())
        assert kept["rewards"] == {}, "forced calls leave no state to judge"
        long = CliRunner().invoke(build_app(), [*words, "--chain", "3", "--knowledge", "schema"])
        assert long.exit_code == 0, long.output
        kept = json.loads((tmp_path / "runs/fidelity-todos-chain3/fidelity.json").read_text())
        assert all(each["again"] > 0 for each in kept["rows"])
    finally:
        endpoint.stop()


def test_a_lost_call_is_asked_again_and_a_raised_budget_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small(tmp_path / "todos")
    endpoint = FakeEndpoint("--respond", "tests.replies:stage")

    def played(*settings: str, name: str = "fidelity") -> Any:
        words = ["fidelity", "todos", "--knowledge", "schema", "--name", name]
        for each in (f"llm.base_url={endpoint.url}", "llm.model=m", "limits.retries=0", *settings):
            words += ["--set", each]
        return CliRunner().invoke(build_app(), words)

    def lost() -> int:
        rows = json.loads((tmp_path / "runs/fidelity-todos/fidelity.json").read_text())["rows"]
        return sum(row["lost"] for row in rows)

    try:
        endpoint.plan(script=["ok", "500"])
        done = played("limits.max_requests=2")
        assert done.exit_code == 1, done.output
        assert "not complete: fidelity-todos-schema: " in done.output
        assert "budget reached: max_requests is 2" in done.output
        assert lost() > 0
        asked = len(endpoint.requests)
        assert played().exit_code == 1
        assert len(endpoint.requests) == asked, "a cap that is not named again stays"
        done = played("limits.max_requests=1000")
        assert done.exit_code == 0, done.output
        assert lost() == 0
        asked = len(endpoint.requests)
        assert played().exit_code == 0
        assert len(endpoint.requests) == asked
        assert played(name="undisturbed").exit_code == 0
        undisturbed = len(endpoint.requests) - asked
        assert asked == undisturbed + 1, "one was lost, and nothing that was answered was asked twice"
    finally:
        endpoint.stop()


def test_an_answer_that_cannot_be_read_is_final(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small(tmp_path / "todos")
    endpoint = FakeEndpoint()  # it echoes
    try:
        words = ["fidelity", "todos", "--limit", "1", "--knowledge", "schema"]
        words += ["--set", f"llm.base_url={endpoint.url}", "--set", "llm.model=m"]
        done = CliRunner().invoke(build_app(), words)
        assert done.exit_code == 0, done.output
        assert "without an answer: no figure counts" in done.output
        assert re.search(r"lost; an answer that cannot be used is final: unparsable: .*cannot be read", done.output), (
            done.output
        )
        assert not re.search(r"F1 *$|\b1 calls", done.output, re.M), done.output
        asked = len(endpoint.requests)
        assert CliRunner().invoke(build_app(), words).exit_code == 0
        assert len(endpoint.requests) == asked
    finally:
        endpoint.stop()


def test_a_dead_endpoint_is_said_after_the_first_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small(tmp_path / "todos")
    words = ["fidelity", "todos", "--limit", "1", "--set", "llm.model=m", "--set", "limits.retries=0"]
    done = CliRunner().invoke(build_app(), [*words, "--set", "llm.base_url=http://127.0.0.1:9/v1"])
    assert done.exit_code == 1, (done.output, done.exception)
    assert "schema, ledger: no call was answered: " in done.output
    assert "connection" in done.output
    assert "│" not in done.output, "an empty table"
    assert [path.parent.name for path in (tmp_path / "runs").glob("*/ledger.db")] == ["fidelity-todos-schema"]
    endpoint = FakeEndpoint("--respond", "tests.replies:stage")
    try:
        again = CliRunner().invoke(build_app(), [*words, "--set", f"llm.base_url={endpoint.url}"])
        assert again.exit_code == 0, (again.output, again.exception)
        assert "schema, ledger: " in again.output
        assert ", 0 lost, F1 " in again.output
        listed = CliRunner().invoke(build_app(), ["runs", "list"])
        assert "not shown: 6 of simia fidelity" in listed.output
        assert CliRunner().invoke(build_app(), ["runs", "list", "--all"]).output.count("complete") == 6
    finally:
        endpoint.stop()


def test_the_best_row_is_one_that_was_answered(capsys: pytest.CaptureFixture[str]) -> None:
    lost = measure_fidelity([row({"id": 1}, lost="connection: no", name="get_lost")], {})
    answered = measure_fidelity([row({"id": 1}, {"id": 2}, name="get_answered")], {})  # F1 is 0 in both
    print_fidelity("p", {("schema", True): lost, ("schema", False): answered})
    said = capsys.readouterr().out.partition("best row")[2]
    assert "get_answered" in said
    assert "get_lost" not in said


@pytest.mark.parametrize("free", [False, True])
def test_the_table_fits_80_columns_and_every_heading_is_explained(
    free: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    more = {"distance": 0.5} if free else {}
    found = measure_fidelity([row(PENDING, PENDING, issue="refused by the schema", **more)], {})
    print_fidelity("p", {("reference", True): found})
    printed = capsys.readouterr().out.splitlines()
    heads = [word.strip() for word in printed[2].strip("┃").split("┃")]
    wanted = ["knows", "ledger", "calls", "shape", "outcome", "F1", "again", "refused"]
    assert heads == [*wanted, *(["distance"] if free else [])]
    assert max(map(len, printed)) <= 80
    page = (Path(__file__).parents[2] / "docs" / "simulator-fidelity.md").read_text()
    assert [each for each in heads if f"| {each} |" not in page] == []


def test_lost_calls_have_no_f1_and_one_call_is_no_plural(capsys: pytest.CaptureFixture[str]) -> None:
    lost = measure_fidelity([row({"id": 1}, lost="connection: no")], {})
    print_fidelity("p", {("schema", True): lost})
    assert "1 call without an answer: no figure counts it\n" in capsys.readouterr().out


@pytest.mark.parametrize("value", [1, 0])
def test_a_measure_of_0_or_1_has_an_interval_with_width(value: int) -> None:
    found = measure_fidelity([each for name in "abcdefgh" for each in steps(value, value, episode=name)], {})
    estimate = found.interval("value_f1")
    assert estimate is not None
    assert (estimate.low, estimate.high) == pytest.approx(compute_wilson_interval(8 * value, 8))


def drifts(*values: int) -> list[Any]:
    return [row({"n": 1}, {"n": 1}, episode=f"e{n}", drift=value) for n, value in enumerate(values)]


def test_the_interval_of_five_episodes_holds_nine_of_ten_truths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain quantiles of the resamples hold 0.85 of these."""
    monkeypatch.setattr(fidelity, "RESAMPLES", 300)
    source, hits = random.Random(2), 0
    for _ in range(200):
        found = Fidelity()
        for episode in "abcde":
            chance = source.betavariate(4, 1.5)
            for step in range(8):
                call = ToolFidelity(calls=1, agree=int(source.random() < chance))
                found.calls[episode, step] = call
                found.tools.setdefault("tool", ToolFidelity()).add(call)
        each = found.interval("agreement")
        assert each is not None
        hits += each.low <= 4 / 5.5 <= each.high
    assert hits / 200 >= 0.89


def test_a_group_counts_by_its_weight_in_wilsons_interval() -> None:
    found = Fidelity()
    for episode in range(10):
        calls = 100 if episode == 0 else 1
        for step in range(calls):
            call = ToolFidelity(calls=1, agree=int(episode > 0))
            found.calls[str(episode), step] = call
            found.tools.setdefault("tool", ToolFidelity()).add(call)
    each = found.interval("agreement")
    assert each is not None
    assert each.low < each.value == 9 / 109 < 0.75 < each.high, "one episode decides: nearly nothing is known"


def test_drift_is_a_count_and_has_an_interval_only_where_it_varies_over_ten_episodes() -> None:
    for alike in (drifts(2, 2, 2), drifts(0, 0), drifts(*[3] * 12), drifts(0, 9)):
        found = measure_fidelity(alike, {})
        values = [each["drift"] for each in alike]
        assert found.drift[1].value == pytest.approx(sum(values) / len(values))
        assert format_drift(found.drift[1]) == f"{sum(values) / len(values):.1f}"
        panels = make_change_panels({"code": alike}, {})
        assert panels[-1].top == max(1.0, found.drift[1].value)
        assert "line-1" in render_svg(panels)
    varied = measure_fidelity(drifts(*[0, 4] * 6), {}).drift[1]
    assert 0.5 < varied.low < varied.value == 2 < varied.high < 3.5


def test_the_calls_of_a_frozen_set_that_are_of_one_task_all_count_in_its_intervals() -> None:
    """Each is the first compared call of its own play of the task, and none is the history of another."""
    rows = [
        row({"n": 1}, {"n": int(n == task)}, episode=f"e{task}", sample=f"e{task}/{n}")
        for task in range(6)
        for n in range(8)
    ]
    found = measure_fidelity(rows, {})
    assert len(found.calls) == 48
    assert found.total.again == 0
    estimate = found.interval("value_f1")
    assert estimate is not None
    assert estimate.low <= estimate.value == 6 / 48 <= estimate.high < 0.2
