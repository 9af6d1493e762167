"""eval/simulator: the stand-in's replies are right but for the share that is asked for, and the table reads the stored outcomes."""

from __future__ import annotations

import importlib.util
import json
import random
import re
import shutil
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from eval.simulator.answer_errors import KINDS, corrupt_answer
from eval.simulator.stand_in import StandIn, serve
from simia.envs.opening import open_environment
from simia.envs.play.agent import Agent
from simia.envs.play.agent_kinds import AGENTS
from simia.envs.play.player import play
from simia.evaluation.call_samples import read_samples
from simia.evaluation.sample_replies import SINGLE_ANSWER, compare_samples
from simia.llm.batch_files import BatchBackend, BatchSettings
from simia.llm.engine import Engine, EngineLimits
from simia.llm.journals import MemoryJournal
from simia.pack import Pack
from simia.report.plots import render_svg
from simia.trajectory import Trajectory

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "eval" / "simulator"
PACK = FOLDER.parent / "loop" / "pack"
STATE = {
    "parcels": {"A100": {"owner": "Ada Fox", "locker": "10A", "days": 1}, "B200": {"owner": "Bo Gray", "locker": "20B", "days": 5}},
    "lockers": {"10A": {"size": "small", "works": True}, "20B": {"size": "small", "works": True}},
}  # fmt: skip


def load(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER.parent / "loop"))
    spec = importlib.util.spec_from_file_location("simulator_error", FOLDER / "simulator_error.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "simulator_error", module)
    spec.loader.exec_module(module)
    return module


async def play_all(stand_in: StandIn, agent: str, *, reward: str) -> list[Trajectory]:
    """The pack's tasks in the simulated world that the stand-in plays, asked over HTTP."""
    with serve(stand_in) as url:
        model = {"kind": "openai", "base_url": url, "model": "stand-in", "reasoning_model": False}
        settings = {
            "pack": str(PACK), "backend": "simulated", "backend_settings": {"knowledge": "state"}, "simulator": model,
            "reward": reward, "user": "scripted", "seed": 1,
        }  # fmt: skip
        async with await open_environment(settings) as environment:
            made: dict[str, Agent] = {task.id: AGENTS[agent](task) for task in environment.tasks}
            return [await play(await environment.reset(task), made[task.id]) for task in environment.tasks]


def rewards(trajectories: list[Trajectory]) -> list[float | None]:
    return [trajectory.reward and trajectory.reward.value for trajectory in trajectories]


@pytest.mark.parametrize("reward", ["rules", "oracle"])
async def test_without_errors_the_solutions_are_rewarded_and_nothing_else_is(reward: str) -> None:
    stand_in = StandIn(Pack.load(PACK))
    assert set(rewards(await play_all(stand_in, "reference", reward=reward))) == {1.0}
    assert set(rewards(await play_all(stand_in, "nothing", reward=reward))) == {0.0}
    assert stand_in.counts.keys() == ({"answers"} if reward == "rules" else {"answers", "verdicts"})


async def test_all_verdicts_are_turned_round() -> None:
    stand_in = StandIn(Pack.load(PACK), verdicts=1.0)
    assert set(rewards(await play_all(stand_in, "reference", reward="oracle"))) == {0.0}
    assert set(rewards(await play_all(stand_in, "nothing", reward="oracle"))) == {1.0}
    assert stand_in.counts["flipped"] == stand_in.counts["verdicts"]


async def test_wrong_answers_are_taken_and_counted() -> None:
    stand_in = StandIn(Pack.load(PACK), answers=1.0)
    played = await play_all(stand_in, "reference", reward="rules")
    kinds = {kind: stand_in.counts[kind] for kind in KINDS}
    assert sum(kinds.values()) == stand_in.counts["answers"] == sum(len(list(t.calls())) for t in played)
    assert all(kinds[kind] for kind in ("forgotten", "other value", "refused"))
    assert sum(value or 0.0 for value in rewards(played)) < len(played) / 2


async def test_a_share_is_wrong_and_the_same_question_has_the_same_answer() -> None:
    found = []
    for _ in range(2):
        stand_in = StandIn(Pack.load(PACK), answers=0.3)
        found.append(
            ([each.messages for each in await play_all(stand_in, "reference", reward="rules")], stand_in.counts)
        )
    assert found[0] == found[1]
    wrong = sum(found[0][1][kind] for kind in KINDS)
    assert 0 < wrong < found[0][1]["answers"]


def test_each_kind_of_error_makes_an_answer_wrong() -> None:
    change = {"table": "parcels", "key": "A100", "set": {"days": 3}}
    right = {"outcome": "result", "content": {"parcel": "A100", "days": 3}, "changes": [change]}
    seen: Counter[str] = Counter()
    for number in range(200):
        wrong, kind = corrupt_answer(right, STATE, {"parcel": "A100", "days": 3}, random.Random(number))
        assert wrong != right
        seen[kind] += 1
        if kind == "other value":
            assert wrong["content"]["parcel"] in STATE["parcels"]
            (changed,) = wrong["changes"]
            assert changed["set"]["days"] == wrong["content"]["days"], "result and changes agree"
    assert min(seen.values()) > 40
    assert seen.keys() == {"forgotten", "other value", "refused"}
    refusal = {"outcome": "error", "content": "there is no parcel Z1", "changes": []}
    wrong, kind = corrupt_answer(refusal, STATE, {"parcel": "Z1"}, random.Random(0))
    assert (kind, wrong["outcome"], wrong["changes"]) == ("let through", "result", [])


def test_the_table_compares_with_the_start_and_with_the_exact_simulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = load(monkeypatch)
    results = tmp_path / "error.json"
    monkeypatch.setattr(experiment, "MARKS", tmp_path / "none.json")
    monkeypatch.setattr(sys, "argv", ["simulator_error.py", "report", "--results", str(results)])
    with pytest.raises(experiment.UserError, match="run the experiment first"):
        experiment.main()
    found: dict[str, Any] = {
        "plan": {"seeds": 2, "steps": 20, "groups": 8},
        "kinds": {f"test-{n:03d}": "hold" for n in range(4)},
        "wordings": {f"test-{n:03d}": f"hold-{n // 2}" for n in range(4)},
    }
    found["test"] = {"start-0": "1000", "start-1": "1000", "exact-0": "1111", "exact-1": "1111", "answers-30-0": "1100"}
    results.write_text(json.dumps(found))
    with pytest.raises(experiment.UserError, match="not played yet: answers-30-1;"):
        experiment.main()
    found["test"]["answers-30-1"] = "1100"
    found["training"] = {"exact-0": {"reward": [0.5] * 10 + [0.75] * 10, "mixed": [2] * 20}}
    results.write_text(json.dumps(found))
    experiment.main()
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    assert rows[2][1:3] == ["25.0, 25.0", "25.0"]
    assert rows[3][3].startswith("+75.0 [")
    assert rows[4][2] == "50.0"
    assert rows[4][3].startswith("+25.0 [")
    assert rows[4][4].startswith("-50.0 [")
    assert rows[5][1].startswith("not played")
    assert rows[-1] == ["| exact", "0.50, 0.75", "40 |"]


def test_the_page_has_the_rows_of_the_stored_results(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = load(monkeypatch)
    found = json.loads(experiment.RESULTS.read_text())
    page = (ROOT / "docs" / "experiments" / "simulator-error.md").read_text().replace("−", "-").splitlines()
    tables = (experiment.write_table, experiment.write_wordings, experiment.write_signals)
    rows = [row for write in tables for row in write(found).splitlines()]
    assert len(rows) == 19
    assert [row for row in rows if row not in page] == []


def test_the_figure_has_a_line_for_each_training_seed_and_a_mark_for_each_simulator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    experiment = load(monkeypatch)
    found, marks = (json.loads(path.read_text()) for path in (experiment.RESULTS, experiment.MARKS))
    success, real = experiment.draw(found, marks)
    assert [line.label for line in success.lines] == ["training seed 0", "training seed 1", "start, no GRPO"]
    assert [place for place, _ in success.lines[0].points] == [0, 10, 30]
    assert [dot.label for dot in real.dots] == list(marks)
    assert all(dot.low <= dot.value <= dot.high + 1e-9 for dot in real.dots)
    assert render_svg([success, real]) == (ROOT / "docs" / "experiments" / "simulator-error.svg").read_text()


def test_the_mark_of_a_simulator_counts_wrong_outcomes_values_and_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = load(monkeypatch)
    real = {"content": {"locker": "10A", "days": 2}, "failed": False}
    refused = {"content": {"error": "no such parcel"}, "failed": True}
    rows = [
        (real, {"content": {"days": 2, "locker": "10A"}, "failed": False}, True),
        (real, {"content": {"days": 2, "locker": "20B"}, "failed": False}, True),
        (real, {"content": real["content"], "failed": False}, False),
        (real, refused, True),
        (refused, {"content": {"error": "there is none"}, "failed": True}, True),
        (real, None, True),
    ]
    told: list[dict[str, Any]] = [
        {"real": one, "simulated": other, "transition": {"exact": exact, "simulated": []}} for one, other, exact in rows
    ]
    told[-1] = {"real": real, "lost": "unparsable"}
    told.append({**told[2], "transition": {"exact": False, "simulated": [{"table": "lockers"}]}})
    told.append({**told[4], "simulated": real})
    (tmp_path / "differences.jsonl").write_text("".join(json.dumps(row) + "\n" for row in told))
    marks = tmp_path / "marks.json"
    experiment.mark("small", tmp_path / "differences.jsonl", marks)
    kinds = {"other value": 1, "forgotten": 1, "refused": 1, "unreadable": 1, "other changes": 1, "let through": 1}
    assert json.loads(marks.read_text()) == {"small": {"calls": 8, "wrong": 6, "kinds": kinds}}
    assert "| small | 6 of 8 [0.41, 0.93]: 1 other value, " in experiment.write_marks(json.loads(marks.read_text()))


PHRASES = {
    "refused calls let through": ("let through",),
    "valid calls refused": ("refused",),
    "other values": ("other value",),
    "without their changes": ("forgotten",),
    "wrong changes": ("forgotten", "other changes"),
    "unreadable": ("unreadable",),
}
"""How the page names kinds of wrong answers."""


def test_the_page_has_the_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = load(monkeypatch)
    page = (FOLDER.parents[1] / "docs" / "experiments" / "simulator-error.md").read_text(encoding="utf-8")
    table = page.partition("| simulator | wrong answers to the frozen calls |")[2].partition("\n\n")[0]
    marks = json.loads((FOLDER / "marks.json").read_text())
    assert table.count("\n") == len(marks) + 1
    printed = experiment.write_marks(marks).splitlines()[2:]
    for (name, told), line in zip(marks.items(), printed, strict=True):
        count = line.split(" | ")[1].partition(":")[0].removesuffix(" |")
        (row,) = [row for row in table.splitlines() if count in row]
        found = re.findall(rf"(\d+) ({'|'.join(PHRASES)})", row)
        wanted = {phrase: sum(told["kinds"].get(kind, 0) for kind in PHRASES[phrase]) for _, phrase in found}
        assert {phrase: int(number) for number, phrase in found} == wanted, name
        assert sum(wanted.values()) == told["wrong"] or told["wrong"] == 1, name
        assert sum(told["kinds"].values()) == told["wrong"], name


async def test_the_mark_of_the_strong_model_follows_from_its_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = load(monkeypatch)
    (tmp_path / "results").mkdir()
    shutil.copy(FOLDER / "locker-answers.jsonl", tmp_path / "results")
    _, samples = read_samples(FOLDER / "locker-calls.jsonl")
    pack, model = Pack.load(PACK), BatchBackend(BatchSettings(model="strong", folder=tmp_path))
    async with Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine:
        settings = {**SINGLE_ANSWER, "knowledge": "state"}
        rows = await compare_samples(samples, {pack.name: pack}, engine, settings)
    assert experiment.count_errors(rows) == json.loads((FOLDER / "marks.json").read_text())["strong"]


def test_environments_of_the_arms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = load(monkeypatch)
    monkeypatch.setattr(experiment.control, "Loop", lambda *_, **__: None)
    made = experiment.SimulatorError(tmp_path, experiment.PLANS["tiny"], None, results=tmp_path / "r.json", workers=1)
    made.environment("start").write_text(json.dumps({"pack": "p", "backend": "executable", "reward": "rules"}))
    with ExitStack() as stack:
        for arm, shares in experiment.ARMS.items():
            made.write_environment(arm, stack.enter_context(serve(StandIn(Pack.load(PACK), **shares))))
    told = {arm: json.loads(made.environment(arm).read_text()) for arm in experiment.ARMS}
    assert {given["backend"] for given in told.values()} == {"simulated"}
    assert len({given["simulator"]["base_url"] for given in told.values()}) == len(told)
    assert [arm for arm, given in told.items() if given["reward"] == "oracle"] == ["verdicts-20"]
    assert json.loads(made.environment("test").read_text())["backend"] == "executable"
