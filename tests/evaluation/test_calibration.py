"""Calibration of the oracle: figures by hand, a strong model's recorded verdicts, and the command."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from simia.cli import build_app
from simia.errors import Code, UserError
from simia.evaluation.calibration import calibrate_judge
from simia.importers import tau2
from simia.jobs import Run
from simia.pack import Pack
from simia.reward import Reward
from simia.task import Task
from simia.trajectory import End, Trajectory
from tests.evaluation import labelled
from tests.evaluation.judged import judged
from tests.evaluation.labelled_office import UNSEEN, labelled_office
from tests.evaluation.labelled_tau import labelled_tau
from tests.evaluation.spoiling import value
from tests.fake_endpoint import FakeEndpoint
from tests.importers.officebench.conftest import plain
from tests.importers.officebench.play import BENCHMARK, SOLUTIONS, benchmark, walls
from tests.packs.small import small


def test_figures_by_hand() -> None:
    yes, no, none = Reward(value=1.0), Reward(value=0.0), Reward(error=Code.UNPARSABLE)
    rows = (
        [("ref", 1.0, yes)] * 4
        + [("ref", 1.0, no)]
        + [("idle", 0.0, no)] * 3
        + [("idle", 0.0, yes), ("idle", 0.0, none)]
    )
    found = calibrate_judge([*rows, ("ref", None, yes)])
    assert (found.judged, found.errors, found.solved, found.agreed) == (9, 1, 5, 7)
    assert (found.false_passes, found.false_fails) == (Counter(idle=1), Counter(ref=1))
    # Observed 7/9; by chance 5/9 · 5/9 + 4/9 · 4/9 = 41/81.
    assert found.kappa == pytest.approx((7 / 9 - 41 / 81) / (1 - 41 / 81))


async def test_a_strong_judge_sees_subtle_faults(tmp_path: Path) -> None:
    """91 episodes, judged by a strong model from the rendered prompts: it and the rules part only where the rules are blind."""
    cases = await labelled.labelled()
    found = await judged(cases, Pack.load(labelled.PACK), "shop", tmp_path)
    assert (found.judged, found.errors) == (len(cases), 0)
    assert 30 <= found.solved <= 50
    assert found.kappa is not None
    assert found.kappa >= 0.9
    assert not found.false_passes
    assert set(found.false_fails) <= {labelled.UNSEEN}
    wrong = {kind for kind, _, episode in cases if value(episode) == 0.0}
    assert len(wrong) == 10


@pytest.mark.usefixtures("environments")
@pytest.mark.parametrize("domain", [pytest.param("retail", marks=pytest.mark.all), "airline"])
async def test_a_strong_judge_of_tau2(domain: str, tmp_path: Path) -> None:
    tau2.import_domain(domain, tmp_path / domain)
    cases = await labelled_tau(tmp_path / domain, domain)
    found = await judged(cases, Pack.load(tmp_path / domain), "tau", tmp_path)
    assert (found.judged, found.errors) == (len(cases), 0)
    assert found.judged == {"retail": 32, "airline": 18}[domain]
    assert found.share == 1.0


@pytest.mark.all
@pytest.mark.usefixtures("environments")
@walls
@benchmark
async def test_a_strong_judge_of_officebench(tmp_path: Path) -> None:
    """What no check sees (a deleted folder, a mail too many) the judge fails, and the checks pass."""
    pack = plain(BENCHMARK, tmp_path / "pack", SOLUTIONS)
    cases = await labelled_office(pack)
    found = await judged(cases, Pack.load(pack), "office", tmp_path)
    assert (found.judged, found.errors) == (len(cases), 0)
    assert not found.false_passes
    assert found.false_fails == Counter({UNSEEN[0]: 3})


async def test_a_prompt_that_changed_has_no_verdict(tmp_path: Path) -> None:
    task = Task(id="t", instruction="Nobody was ever asked this.")
    case = ("none", task, Trajectory(end=End(kind="terminated")))
    with pytest.raises(AssertionError, match="not the one that was answered"):
        await judged([case], Pack(name="tau2-none"), "tau", tmp_path)


def test_the_command_compares_rollouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small(tmp_path / "todos")
    runner, app = CliRunner(), build_app()
    for agent in ("reference", "nothing"):
        assert runner.invoke(app, ["rollout", "todos", "--agent", agent, "--name", agent]).exit_code == 0
    endpoint = FakeEndpoint("--respond", "tests.replies:stage")  # it passes everything
    endpoint.plan(usage={"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100})
    try:
        words = [
            "reward",
            "calibrate",
            "reference",
            "nothing",
            "--set",
            f"llm.base_url={endpoint.url}",
            "--set",
            "llm.model=m",
            "--set",
            'llm.price={"input": 2.0, "cached": 1.0, "output": 4.0}',
        ]
        done = runner.invoke(app, words)
        assert done.exit_code == 0, (done.output, done.exception)
        assert "4 judged (2 solved by the rules), 0 without a verdict; agreement 0.500" in done.output
        assert "kappa 0.000" in done.output
        assert "cost of the verdicts: 0.0096 dollars, 0.00240 each" in done.output
        asked = len(endpoint.requests)
        assert runner.invoke(app, words).output == done.output
        assert len(endpoint.requests) == asked
    finally:
        endpoint.stop()


def test_one_cap_holds_for_all_rollouts_and_a_stop_by_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small(tmp_path / "todos")
    runner, app = CliRunner(), build_app()
    agents = ("reference", "nothing", "canned")
    for agent in agents:
        assert runner.invoke(app, ["rollout", "todos", "--agent", agent, "--name", agent]).exit_code == 0
    endpoint = FakeEndpoint("--respond", "tests.replies:stage")
    words = ["reward", "calibrate", *agents, "--set", f"llm.base_url={endpoint.url}", "--set", "llm.model=m"]
    try:
        none = runner.invoke(app, [*words, "--set", "limits.max_requests=0"])
        assert isinstance(none.exception, UserError)
        assert "no episode was judged: the budget ended with 6 episodes unasked" in str(none.exception)
        capped = runner.invoke(app, [*words, "--set", "limits.max_requests=3"])
        assert capped.exit_code == 1, (capped.output, capped.exception)
        assert len(endpoint.requests) == 3
        assert "3 judged (2 solved by the rules), 0 without a verdict" in capped.output
        assert "not judged: budget (3 episodes)" in capped.output
        whole = runner.invoke(app, words)
        assert whole.exit_code == 0, (whole.output, whole.exception)
        assert "6 judged" in whole.output
        assert len(endpoint.requests) == 6
    finally:
        endpoint.stop()


def test_what_the_rules_left_open_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small(tmp_path / "todos")
    runner, app = CliRunner(), build_app()
    assert runner.invoke(app, ["rollout", "todos", "--agent", "reference", "--name", "r"]).exit_code == 0
    run = Run.open(Path("runs"), "r")
    item = next(iter(run.ledger.items()))
    body = run.ledger.result(item.id)
    assert body is not None
    body["trajectory"]["reward"] = {"error": "unscored"}
    run.ledger.conclude(item, None, body)
    run.ledger.flush()
    run.close()
    endpoint = FakeEndpoint("--respond", "tests.replies:stage")
    try:
        done = runner.invoke(
            app, ["reward", "calibrate", "r", "--set", f"llm.base_url={endpoint.url}", "--set", "llm.model=m"]
        )
        assert done.exit_code == 0, (done.output, done.exception)
        assert "1 judged" in done.output
        assert len(endpoint.requests) == 1
    finally:
        endpoint.stop()


def test_a_shadow_rollout_is_rewarded_by_rules_and_a_dead_judge_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small(tmp_path / "todos")
    runner, app = CliRunner(), build_app()
    endpoint = FakeEndpoint("--respond", "tests.replies:stage")
    model = ["--set", "llm.model=m", "--set", "limits.retries=0", "--set"]
    try:
        words = ["rollout", "todos", "--agent", "reference", *model, f"llm.base_url={endpoint.url}", "--set"]
        assert runner.invoke(app, [*words, "backend=shadow", "--name", "shadow"]).exit_code == 0
        assert runner.invoke(app, [*words, "reward=oracle", "--name", "judged"]).exit_code == 0
        dead = runner.invoke(app, ["reward", "calibrate", "shadow", *model, "llm.base_url=http://127.0.0.1:9/v1"])
        assert dead.exit_code == 1, (dead.output, dead.exception)
        assert "no verdict was received: connection: " in dead.output
        done = runner.invoke(app, ["reward", "calibrate", "shadow", *model, f"llm.base_url={endpoint.url}"])
        assert done.exit_code == 0, (done.output, done.exception)
        assert "shadow: 2 judged, 0 without a verdict" in done.output
        refused = runner.invoke(app, ["reward", "calibrate", "judged", *model, f"llm.base_url={endpoint.url}"])
        assert isinstance(refused.exception, UserError)
        assert "judged has no rule-based rewards" in str(refused.exception)
    finally:
        endpoint.stop()
