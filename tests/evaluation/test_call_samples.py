"""Sets of calls: the draw, the freezing, and measures with a model whose errors are known."""

from __future__ import annotations

import asyncio
import io
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from eval.simulator.code_simulator import Corruption
from simia.cli import build_app
from simia.cli.call_samples import describe_outage
from simia.errors import UserError
from simia.evaluation.call_samples import (
    DELTA,
    STRATA,
    CallSample,
    count_strata,
    draw_samples,
    freeze_samples,
    list_candidates,
    name_bin,
    read_samples,
    share_out,
)
from simia.evaluation.change_fidelity import DEFINITION, split_rows
from simia.evaluation.fidelity import measure_fidelity
from simia.evaluation.sample_replies import SINGLE_ANSWER, compare_samples, load_packs
from simia.llm.engine import Engine, EngineLimits
from simia.llm.journals import MemoryJournal
from simia.llm.types import Request
from simia.pack import Pack
from simia.report.change_report import collect_change_figures, make_change_panels, print_changes
from simia.report.console import Terminal
from simia.task import Action
from tests.evaluation.several_packs_simulator import SeveralPacksSimulator
from tests.packs.small import small
from tests.properties import examples

FROZEN = Path(__file__).parents[2] / "eval" / "fidelity"


def make_sample(number: int, delta: int, *, failed: bool = False, arguments: int = 1, pack: str = "p") -> CallSample:
    call = Action(name=f"tool_{number % 3}", arguments={str(n): n for n in range(arguments)})
    return CallSample(
        id=f"{pack}/t/{number}", pack=pack, task="t", call=call, failed=failed, delta=delta, paths=min(delta, 1 + number % 4)
    )  # fmt: skip


def test_the_shares_are_those_of_envsimbench() -> None:
    assert list(share_out(400).values()) == [20, 40, 40, 50, 200, 50]
    assert share_out(120)["|Δ| 3 to 6"] == 60
    assert sum(STRATA.values()) == 1


@given(st.integers(1, 500))
@examples(100)
def test_all_samples_are_shared_out(count: int) -> None:
    found = share_out(count)
    assert sum(found.values()) == count
    assert all(abs(number - STRATA[name] * count) < 1 for name, number in found.items())


@pytest.mark.parametrize(
    ("delta", "name"), [(0, "0"), (1, "1 to 2"), (2, "1 to 2"), (3, "3 to 6"), (6, "3 to 6"), (7, "7 or more")]
)
def test_bins(delta: int, name: str) -> None:
    assert name_bin(delta) == name


CANDIDATES = [
    *(make_sample(n, n % 9, pack="pq"[n % 2]) for n in range(300)),
    *(make_sample(n, 0, failed=True) for n in range(300, 320)),
    *(make_sample(n, 0, arguments=3) for n in range(320, 350)),
]


def test_a_draw_is_stratified_even_and_repeatable() -> None:
    drawn = draw_samples(CANDIDATES, 80, seed=3)
    assert count_strata(drawn) == share_out(80)
    assert drawn == draw_samples(list(reversed(CANDIDATES)), 80, seed=3)
    assert drawn != draw_samples(CANDIDATES, 80, seed=4)
    assert len({sample.id for sample in drawn}) == 80
    middle = [sample for sample in drawn if sample.stratum == "|Δ| 3 to 6"]
    assert Counter(sample.pack for sample in middle) == {"p": 20, "q": 20}
    assert Counter(sample.paths > 2 for sample in middle) == {True: 20, False: 20}
    part = draw_samples(CANDIDATES, 20, seed=3)
    assert {sample.id for sample in part} < {sample.id for sample in drawn}


def test_what_a_stratum_lacks_comes_from_harder_ones() -> None:
    few = [sample for sample in CANDIDATES if sample.stratum != "|Δ| 1 to 2"]
    mix, wanted = count_strata(draw_samples(few, 80)), share_out(80)
    assert mix["|Δ| 1 to 2"] == 0
    assert mix["|Δ| 7 or more"] == wanted["|Δ| 7 or more"] + wanted["|Δ| 1 to 2"]
    with pytest.raises(UserError, match="found 2 different calls, fewer than 3"):
        draw_samples(few[:2], 3)


def test_a_frozen_set_is_read_back_and_never_changed(tmp_path: Path) -> None:
    samples, path = CANDIDATES[:5], tmp_path / "set.jsonl"
    head = freeze_samples(samples, path, seed=2)
    assert read_samples(path) == (head, samples)
    with pytest.raises(UserError, match="never changed"):
        freeze_samples(samples, path)
    path.write_text(path.read_text("utf-8").replace('"delta":3', '"delta":2'), "utf-8")
    with pytest.raises(UserError, match="was changed after it was frozen"):
        read_samples(path)
    path.write_text("{}\n")
    with pytest.raises(UserError, match="is not a frozen set"):
        read_samples(path)


async def test_candidates_are_what_the_code_does(tmp_path: Path) -> None:
    pack = small(tmp_path / "todos")
    found = await list_candidates(pack, others=6)
    assert {sample.source for sample in found} == {"solution", "other"}
    assert found == await list_candidates(pack, others=6)
    assert len({(sample.state, json.dumps(sample.call.model_dump())) for sample in found}) == len(found)
    for sample in found:
        assert (sample.delta == 0) == (not sample.changes)
        assert sample.source == "other" or sample.call == pack.task(sample.task).actions[len(sample.before)]
    pack.executable = None
    with pytest.raises(UserError, match="has no code"):
        await list_candidates(pack)


async def compare(
    samples: Sequence[CallSample], packs: dict[str, Pack], knowledge: str, corrupt: Corruption | None = None
) -> list[dict[str, Any]]:
    model = SeveralPacksSimulator(packs.values(), corrupt=corrupt)
    async with Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine:
        return await compare_samples(samples, packs, engine, {**SINGLE_ANSWER, "knowledge": knowledge})


async def test_the_frozen_sets_have_the_shares_by_delta_and_a_perfect_simulator_is_right_everywhere() -> None:
    head, samples = read_samples(FROZEN / "calls-120.jsonl")
    part, fewer = read_samples(FROZEN / "calls-40.jsonl")
    assert head.mix == share_out(120)
    assert part.mix == share_out(40)
    assert {sample.id for sample in fewer} < {sample.id for sample in samples}
    packs = load_packs(part)
    specs = {tool.name: tool for pack in packs.values() for tool in pack.tools}
    shop = [sample for sample in fewer if sample.pack == "customer_service"]
    for knowledge, asked in (("code", fewer), ("state", shop)):
        rows = await compare(asked, packs, knowledge)
        assert [row["sample"] for row in rows] == [sample.id for sample in asked]
        assert len(measure_fidelity(rows, specs).calls) == len(rows) > len({row["episode"] for row in rows})
        for axis in ("|Δ|", "outcome", "arguments"):
            for group, found in split_rows(rows, axis, specs).items():
                total = found.total
                assert (total.exact_share, total.rewarded_share, total.agreement) == (1, 1, 1), (axis, group)
                assert total.value_f1 in (1, None)
                assert (total.invented, total.forgotten, total.lost) == (0, 0, 0)
        for sample, row in zip(asked, rows, strict=True):
            assert row["transition"]["delta"] == sample.delta


def test_the_definition_names_what_is_counted() -> None:
    for word in ("leaf fields", "adds, removes or changes", "true state"):
        assert word in DEFINITION


def write_call(sample: CallSample) -> str:
    """A call as prompts write it."""
    return f"{sample.call.name} {json.dumps(sample.call.arguments, separators=(',', ':'), ensure_ascii=False)}"


async def test_a_known_share_of_corrupted_answers_is_what_is_measured() -> None:
    """Each kind of error on calls of its own, so that every figure is known."""
    _, found = read_samples(FROZEN / "calls-120.jsonl")
    tables = {"hotel_front_desk": "rooms", "job_seeking": "companies"}
    by_call = {write_call(sample): sample for sample in found if sample.pack in tables}
    samples = [sample for sample in by_call.values() if sample.paths > 1 or not sample.changes][:20]
    changing = [sample for sample in samples if sample.changes]
    still = [sample for sample in samples if not sample.changes and not sample.failed]
    kinds = {sample.id: kind for sample, kind in zip(changing, ["dropped", "partial", "unknown"], strict=False)}
    kinds |= {sample.id: kind for sample, kind in zip(still, ["extra", "refused"], strict=False)}

    def corrupt(answer: dict[str, Any], request: Request) -> dict[str, Any]:
        sample = by_call[str(request.messages[1]["content"]).rpartition("1. agent: ")[2].strip()]
        kind = kinds.get(sample.id)
        if kind == "dropped":
            return {**answer, "changes": []}
        if kind == "partial":
            first = answer["changes"][0]
            return {**answer, "changes": [{**first, "set": dict([*(first["set"] or {}).items()][:1])}]}
        if kind == "unknown":
            return {**answer, "changes": [{"table": "no such table", "key": "X-1", "set": {"a": 1}}]}
        if kind == "extra":
            return {**answer, "changes": [{"table": tables[sample.pack], "key": "ZZ-99", "set": {"name": "new"}}]}
        if kind == "refused":
            return {"outcome": "error", "content": "no", "changes": []}
        return answer

    rows = await compare(samples, {name: Pack.load(name) for name in tables}, "code", corrupt)
    steps = {row["sample"]: row["transition"] for row in rows}
    wrong = {name for name, kind in kinds.items() if kind != "refused"}
    assert len(kinds) == 5
    assert {name for name, step in steps.items() if not step["exact"]} == wrong
    total = measure_fidelity(rows, {}).total
    assert total.exact_share == 1 - 4 / len(samples)
    assert total.agree == len(samples) - 1
    assert {name: step["invented"] for name, step in steps.items() if step["invented"]} == {
        next(name for name, kind in kinds.items() if kind == "extra"): ["ZZ-99"]
    }
    assert total.forgotten > 0
    assert [kinds[name] for name, step in steps.items() if "fault" in step] == ["unknown"]
    shares = {name: each.total.exact_share for name, each in split_rows(rows, "|Δ|", {}).items()}
    members = {name: [s for s in samples if name_bin(s.delta) == name] for name in shares}
    assert shares == {name: 1 - sum(s.id in wrong for s in each) / len(each) for name, each in members.items()}
    out = Terminal(width=120, record=True, file=io.StringIO())
    print_changes({"code": rows}, {}, out)
    said = " ".join(out.export_text().split())
    assert DEFINITION in said
    assert f"{total.exact_share:.2f} [" in said
    body = collect_change_figures({"code": rows}, {})
    assert body["code"]["all"]["exact"] == len(samples) - 4
    assert body["code"]["by"]["outcome"].keys() == {"ok", "error"}
    panels = make_change_panels({"code": rows}, {})
    assert [panel.title for panel in panels] == ["Exact changes, by |Δ|", "F1 of the observations, by |Δ|"]
    assert {dot.label: dot.value for dot in panels[0].dots} == {
        f"code, {name}": share for name, share in shares.items()
    }


async def test_code_that_does_something_else_is_refused() -> None:
    _, samples = read_samples(FROZEN / "calls-40.jsonl")
    sample = next(each for each in samples if each.pack == "hotel_front_desk" and each.changes)
    packs = {"hotel_front_desk": Pack.load("hotel_front_desk")}
    for update in ({"result": {"forged": True}}, {"changes": []}, {"failed": True}, {"state": "another"}):
        with pytest.raises(UserError, match="gives another answer than the frozen one"):
            await compare([sample.model_copy(update=update)], packs, "code")


def test_the_command_draws_a_set_and_measures_it_by_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pack = small(tmp_path / "todos")
    draw = ["fidelity", "todos", "--sample", "set.jsonl", "--n", "4", "--seed", "5"]
    done = CliRunner().invoke(build_app(), draw)
    assert done.exit_code == 0, (done.output, done.exception)
    for said in ("EnvSimBench", "|Δ| 3 to 6", DELTA, "frozen in set.jsonl: 4 calls, digest", "by changed paths"):
        assert said in done.output
    assert isinstance(CliRunner().invoke(build_app(), draw).exception, UserError)
    batch = ["--set", "llm.kind=batch", "--set", "llm.model=m", "--set", "llm.folder=asked"]
    words = ["fidelity", "todos", "--frozen", "set.jsonl", "--knowledge", "code", *batch]
    waiting = CliRunner().invoke(build_app(), words)
    assert waiting.exit_code == 3, (waiting.output, waiting.exception)
    assert "code: 0 of 4 calls answered" in waiting.output
    assert "4 questions wait" in waiting.output
    rows = [orjson.loads(line) for line in Path("asked/requests-0001.jsonl").read_bytes().splitlines()]
    model = SeveralPacksSimulator([pack])

    def answer(some: list[Any], name: str) -> None:
        replies = [asyncio.run(model.complete(Request(messages=row["body"]["messages"]), draw="")) for row in some]
        lines = [{"custom_id": row["custom_id"], "text": reply.text} for row, reply in zip(some, replies, strict=True)]
        Path("asked/results").mkdir(exist_ok=True)
        Path("asked/results", name).write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))

    written = CliRunner().invoke(build_app(), ["runs", "questions", "asked", "texts"])
    assert written.output.startswith("4 questions: "), (written.output, written.exception)
    answer(rows[:3], "one.jsonl")
    assert "code: 3 of 4 calls answered" in CliRunner().invoke(build_app(), words).output
    answer(rows[3:], "two.jsonl")
    done = CliRunner().invoke(build_app(), [*words, "--record", "recording.jsonl"])
    assert done.exit_code == 0, (done.output, done.exception)
    kept = json.loads(Path("runs/fidelity-set/fidelity.json").read_text())
    assert kept["code"]["all"]["exact"] == kept["code"]["all"]["steps"] == 4
    assert kept["set"]["digest"] in done.output
    assert kept["asked"]["model"] == "m"
    assert "Exact changes, by |Δ| (m)" in Path("runs/fidelity-set/fidelity.svg").read_text()
    assert "no question waits" in CliRunner().invoke(build_app(), ["runs", "questions", "asked", "texts"]).output
    other = CliRunner().invoke(build_app(), [*words[:-3], "llm.model=other", *words[-2:]])
    assert "has the figures of another model, m: choose another --name for other" in str(other.exception)
    assert json.loads(Path("runs/fidelity-set/fidelity.json").read_text()) == kept
    replay = ["--set", "llm.kind=replay", "--set", "llm.path=recording.jsonl", "--name", "again"]
    again = CliRunner().invoke(build_app(), [*words[:-6], *replay])
    assert again.exit_code == 0, (again.output, again.exception)
    assert json.loads(Path("runs/again-set/fidelity.json").read_text())["code"] == kept["code"]


def test_mistakes_of_the_command_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words, said in (
        ([], "name exactly one pack"),
        (["todos", "office"], "name exactly one pack"),
        (["--sample", "new.jsonl"], "name the packs"),
        (["office", "--sample", "new.jsonl"], "not a JSON file"),
        (["--frozen", "none.jsonl"], "cannot read none.jsonl"),
        (["--frozen", "none.jsonl", "--no-forced"], "--no-forced does not apply to --sample and --frozen"),
    ):
        done = CliRunner().invoke(build_app(), ["fidelity", *words])
        assert isinstance(done.exception, UserError), done.output
        assert said in str(done.exception)


def test_an_outage_is_told_by_its_most_frequent_reason_and_without_final_answers() -> None:
    lost = {"unparsable": 9, "timeout": 1, "server_error": 5}
    assert describe_outage(lost) == "6 calls lost, mostly: server_error"
    assert describe_outage({"unparsable": 2}) == ""
