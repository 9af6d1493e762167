"""eval/ablations: simia's own command line accepts every command of every arm, and a figure is drawn again from stored results."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval.ablations.ablation import PLANS, list_ablations, list_steps, load_ablation
from eval.ablations.command_checks import check_command
from eval.ablations.failure_messages import collect_refusals, count
from eval.ablations.gym_filters import OFF, ON, PROBLEMS, AcceptedGym, ArmResult, count_arm, replay_arm
from eval.ablations.judge_or_rule import count_verdicts
from eval.ablations.judge_or_rule import measure as measure_judge
from eval.ablations.outcomes import save_counts
from eval.ablations.recorded_checks import count_all, list_recordings, replay_all
from eval.ablations.recorded_fidelity import draw, make_body, measure
from eval.ablations.run import Runner, main, parse_pythons
from simia.errors import UserError
from simia.evaluation.benchmarks import list_benchmarks
from simia.search_path import data_root
from tests.command import run_simia
from tests.synthesis.source_fixtures import DOCUMENTS

CASES = [
    (name, size)
    for name in list_ablations()
    for size in ("accepted", "tiny", "full")
    if getattr(load_ablation(name), size) is not None
]
RESULTS = PLANS.parent / "results"


def test_every_ablation_of_the_papers_has_a_plan() -> None:
    papers = [load_ablation(name).source.partition(",")[0] for name in list_ablations()]
    assert {paper: papers.count(paper) for paper in sorted(set(papers))} == {
        "CodeGym": 3, "EnvFactory": 2, "EnvScaler": 5, "ScaleEnv": 4, "Simia": 5, "simia": 6,
    }  # fmt: skip


@pytest.mark.parametrize("name", [name for name in list_ablations() if name.startswith(("envscaler_", "envfactory_"))])
def test_full_sizes_play_each_benchmark_of_the_paper_that_runs(name: str, tmp_path: Path) -> None:
    plan = load_ablation(name)
    paper = plan.source.partition(",")[0]
    runs = {each.suite for each in list_benchmarks() if each.state == "runs" and paper in each.papers}
    assert runs
    assert plan.full is not None
    for arm in {step.arm.name for step in list_steps(plan.full, "full", tmp_path)}:
        steps = [step for step in list_steps(plan.full, "full", tmp_path) if step.arm.name == arm and step.result]
        assert runs <= {step.words[2] for step in steps if step.words[:2] == ("simia", "eval")}


@pytest.mark.parametrize(("name", "size"), CASES)
def test_every_command_is_one_of_simia(
    name: str, size: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-key")  # some synthesis choose the kind of model by it; nothing is asked
    main([name, "--size", size, "--dry-run", "--work", str(tmp_path / "work")])
    printed = capsys.readouterr().out.splitlines()
    assert printed
    assert not [line for line in printed if "{" in line.replace("'{", "").replace("{pack:", "").replace('{"', "")]
    assert not (tmp_path / "work").exists()
    if size == "accepted":
        return
    plan = load_ablation(name).size("tiny" if size == "tiny" else "full")
    steps = list(list_steps(plan, "tiny" if size == "tiny" else "full", tmp_path))
    evaluated = {(step.arm.name, step.seed) for step in steps if step.result}
    assert evaluated == {(arm.name, seed) for arm in plan.arms for seed in range(plan.seeds)}
    results = [step.result for step in steps if step.result]
    assert len(results) == len(set(results)), "no evaluation overwrites another"
    played = [(step.suite, step.words[2]) for step in steps if step.words[:2] == ("simia", "eval")]
    assert all(stored == suite for stored, suite in played), "rewards are stored under the suite that was played"


def write_sources(folder: Path) -> None:
    """What the commands of the plans read in their working directory."""
    shutil.copy(PLANS.parent / "discovery_tasks.jsonl", folder / "tasks.jsonl")
    shutil.copytree(data_root() / "seeds" / "problems", folder / "problems")
    shutil.copytree(DOCUMENTS, folder / "sources")


def test_syntheses_pass_their_own_dry_run(tmp_path: Path) -> None:
    """One of each recipe; the others differ in settings, which the test above loads."""
    write_sources(tmp_path)
    seen = set()
    for name in list_ablations():
        plan = load_ablation(name).full
        for step in list_steps(plan, "full", tmp_path) if plan else ():
            if step.words[:2] == ("simia", "synth") and step.words[2] not in seen:
                seen.add(step.words[2])
                done = run_simia(*step.words[1:], "--dry-run", cwd=tmp_path, env={"OPENAI_API_KEY": "not-a-key"})
                assert done.returncode == 0, (step.words, done.stderr)
                assert "price: " in done.stderr
    assert seen == {"codegym", "envfactory", "envscaler", "scaleenv"}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("simia amplify -c amplify/tau2-90k --set plan.eror=0", "unknown key 'plan.eror'"),
        ("simia amplify --nn 3", "No such option"),
        ("simia train verl verl/simia --set trainer.no_such=1", "its spelling cannot be checked"),
        ("simia train llamafactory simia-no-such", "no run of configs/llamafactory"),
        ("simia train trl trl/grpo --set stage.no_such=1", "unknown key 'stage.no_such'"),
        ("simia eval tau3", "tau3"),
        ("simia eval officebench --name a", "simia eval officebench needs its data: add --data FOLDER"),
        ("simia rollout customer_service --agent reference", "add --name NAME"),
        ("simia export eval/loop/pack office", "simia export office: no earlier command makes this run"),
        ("student learn a b --no-such c", "no option --no-such"),
        ("rm -rf out", "begins with simia, student or python -m"),
    ],
)
def test_a_wrong_command_is_refused(command: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        check_command(command.split())


def test_a_word_without_a_value_and_an_unknown_arm_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eval.ablations.ablation.PLANS", tmp_path)
    plan = {
        "title": "t",
        "source": "s",
        "full": {"train": ["simia export {nothing}"], "arms": [{"name": "a"}, {"name": "b"}]},
    }
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(plan))
    with pytest.raises(UserError, match=r"\{nothing\} has no value"):
        list(list_steps(load_ablation("wrong").size("full"), "full", tmp_path))
    plan["full"]["train"] = []
    plan["full"]["arms"] = [{"name": "a"}, {"name": "b", "of": "c"}]
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(plan))
    with pytest.raises(UserError, match="of: 'c' is not an arm"):
        list(list_steps(load_ablation("wrong").size("full"), "full", tmp_path))
    with pytest.raises(UserError, match="no size tiny; choose one of full"):
        load_ablation("wrong").size("tiny")


def test_a_suite_of_a_command_that_is_not_the_stored_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eval.ablations.ablation.PLANS", tmp_path)
    play = ["simia eval officebench --name {result}"]
    arms: list[dict[str, Any]] = [{"name": "a"}, {"name": "b", "suites": ["officebench"]}]
    plan = {"title": "t", "source": "s", "full": {"suites": ["tau2"], "train": [], "evaluate": play, "arms": arms}}
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(plan))
    with pytest.raises(UserError, match="arm 'a': simia eval officebench is stored as tau2: give the arm its suites"):
        list(list_steps(load_ablation("wrong").size("full"), "full", tmp_path))
    arms[0]["suites"] = ["officebench"]
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(plan))
    for step in list_steps(load_ablation("wrong").size("full"), "full", tmp_path):
        assert step.words[:5] == ("simia", "eval", "officebench", "--data", "data/benchmarks/officebench")
        assert step.suite == "officebench"


def test_no_command_names_a_folder_of_another_ablation(tmp_path: Path) -> None:
    for name in list_ablations():
        plan = load_ablation(name).full
        for step in list_steps(plan, "full", tmp_path) if plan else ():
            assert not any("out/ablations" in word for word in step.words), (name, step.words)


def test_the_interpreter_of_a_trainer_runs_its_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = load_ablation("simia_rl_worlds")
    runner = Runner("simia_rl_worlds", plan, "full", tmp_path, parse_pythons([f"verl={sys.executable}"]))
    runner.pythons["verl"] = Path("/verl/python")
    made = {step.words: runner.make_command(step.words) for step in runner.steps}
    merges = [words for each, words in made.items() if each[:3] == ("python", "-m", "verl.model_merger")]
    trainings = [words for each, words in made.items() if each[:2] == ("simia", "train")]
    others = [words for each, words in made.items() if each[:2] == ("simia", "eval")]
    assert {words[0] for words in merges} == {"/verl/python"}
    assert {tuple(words[-2:]) for words in trainings} == {("--python", "/verl/python")}
    assert {words[0] for words in [*trainings, *others]} == {sys.executable}
    assert not any("/verl/python" in words for words in others)
    monkeypatch.setattr("eval.ablations.run.find_spec", lambda name: None)
    with pytest.raises(UserError, match="has no vLLM, with which simia eval plays the checkpoints"):
        runner.run()
    monkeypatch.setattr("eval.ablations.run.find_spec", lambda name: name)
    monkeypatch.setattr("eval.ablations.run.ROOT", tmp_path)
    with pytest.raises(UserError, match=r"data/benchmarks/officebench is missing: docs/experiments/ablations.md says"):
        runner.run()
    (tmp_path / "data" / "benchmarks" / "officebench").mkdir(parents=True)
    runner.pythons["verl"] = Path(sys.executable)
    with pytest.raises(UserError, match=r"cannot run verl: .*; a clean environment: "):
        runner.run()
    assert {path.name for path in tmp_path.iterdir()} == {"data"}, "nothing was started"
    with pytest.raises(UserError, match="write TRAINER=PATH of an interpreter; trainers: "):
        parse_pythons(["verl"])


def test_a_figure_is_drawn_again_from_stored_rewards(tmp_path: Path) -> None:
    rows = [
        {"arm": f"{line} {x}", "line": line, "x": x, "seed": seed, "suite": "test", "tasks": {"a": 1.0, "b": value}}
        for line, value in (("real", 0.0), ("simulated", 1.0))
        for x in (4, 12)
        for seed in (0, 1)
    ]
    body = {"ablation": "n", "title": "Growth", "source": "s", "size": "tiny", "x": "trajectories", "rows": rows}
    (tmp_path / "results.json").write_text(json.dumps(body))
    main(["simia_real_or_simulated", "--draw", "--work", str(tmp_path)])
    drawn = (tmp_path / "figure.svg").read_text()
    assert drawn.count('<g id="line-') == 2
    assert "Growth: reward on test (tiny)" in drawn
    assert ">trajectories<" in drawn


def test_stored_counts_have_intervals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_counts("n", "Title", [{"arm": "on", "measure": "accepted", "count": 5, "of": 10}], tmp_path)
    assert "accepted; on (5 of 10): 0.500 [0.237, 0.763]" in capsys.readouterr().out
    assert "on (5 of 10)" in (tmp_path / "n.svg").read_text()


@pytest.mark.parametrize("name", [name for name in list_ablations() if load_ablation(name).stored])
def test_shipped_figures_are_those_of_the_stored_counts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--size accepted --draw` draws the figure again, and computes nothing."""
    stored = str(load_ablation(name).stored)
    shutil.copy(RESULTS / f"{stored}.json", tmp_path)
    monkeypatch.setattr("eval.ablations.run.RESULTS", tmp_path)
    monkeypatch.setattr("eval.ablations.run.subprocess.run", lambda *words, **options: pytest.fail("computed again"))
    main([name, "--size", "accepted", "--draw"])
    assert (tmp_path / f"{stored}.svg").read_text() == (RESULTS / f"{stored}.svg").read_text()
    assert {path.stem for path in tmp_path.iterdir()} == {stored}


@pytest.mark.parametrize("path", sorted(PLANS.parent.glob("*.py")), ids=lambda path: path.stem)
def test_every_module_can_be_imported(path: Path) -> None:
    """A name that it imports from simia may have been renamed."""
    import_module(f"eval.ablations.{path.stem}")


def test_every_shipped_figure_is_drawn_again_in_a_test() -> None:
    drawn = {load_ablation(name).stored for name in list_ablations()} | {"own_knowledge", "own_ledger"}
    assert {path.stem for path in RESULTS.glob("*.svg")} == drawn - {None}


@pytest.mark.all
@pytest.mark.parametrize("what", ["knowledge", "ledger"])
def test_stored_fidelity_is_that_of_the_recordings(what: str, tmp_path: Path) -> None:
    chosen, arms, gains = measure(what)
    assert json.loads((RESULTS / f"own_{what}.json").read_text()) == make_body(arms, gains)
    draw(chosen, gains, tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").read_text() == (RESULTS / f"own_{what}.svg").read_text()
    with pytest.raises(UserError, match="the figure shows more than the stored result: omit --draw"):
        main([f"own_{what}", "--size", "accepted", "--draw"])


@pytest.mark.all
@pytest.mark.parametrize("knows", ["results", "schema", "calls"])
def test_stored_refusals_are_those_of_the_recordings(knows: str) -> None:
    rows = json.loads((RESULTS / "failure_messages_calls.json").read_text())
    assert {row["knows"] for row in rows} == {"results", "schema", "calls"}
    assert asyncio.run(collect_refusals(knows)) == [row for row in rows if row["knows"] == knows]
    assert json.loads((RESULTS / "failure_messages.json").read_text())["rows"] == count(rows)


def test_stored_verdicts_give_the_stored_counts() -> None:
    found = measure_judge(json.loads((RESULTS / "judge_or_rule.json").read_text()))
    assert json.loads((RESULTS / "scaleenv_judge.json").read_text())["rows"] == count_verdicts(found)


def test_stored_gyms_give_the_stored_counts() -> None:
    stored = json.loads((RESULTS / "codegym_gyms.json").read_text())
    results = [ArmResult(**{**row, "gyms": [AcceptedGym(**gym) for gym in row["gyms"]]}) for row in stored]
    filtered = next(result for result in results if result.arm == ON)
    rows = [row for result in results for row in count_arm(result, filtered)]
    assert json.loads((RESULTS / "codegym_accepted.json").read_text())["rows"] == rows
    assert {row["arm"] for row in rows} == {ON, OFF}


def test_recorded_replies_are_read_again_with_checks_on_and_off() -> None:
    """One reply of the small model names an identifier that nobody gave; a strong model's three are accepted either way."""
    chosen = [each for each in list_recordings() if each.name in ("quickstart", "blind-json")]
    found = replay_all(chosen)
    changed = {
        (arm, name, item): (verdict, found[arm][name][item])
        for arm in found
        for name, items in found["checks"].items()
        for item, verdict in items.items()
        if found[arm][name][item] != verdict
    }
    assert set(changed.values()) == {("ungrounded_id", "passed")}
    assert {(name, item) for _, name, item in changed} == {("quickstart", "i000011")}
    counts = {(row["arm"], row["measure"]): (row["count"], row["of"]) for row in count_all(chosen, found)}
    assert counts["checks", "accepted, of the replies of small models"] == (20, 25)
    assert counts["without both", "accepted, of the replies of small models"] == (21, 25)
    assert counts["checks", "accepted, of the replies of a strong model"] == (3, 3)


def test_stored_counts_of_checks_are_over_all_recorded_replies() -> None:
    rows = json.loads((RESULTS / "own_checks_accepted.json").read_text())["rows"]
    for model in ("small models", "a strong model"):
        items = sum(len(each.list_items()) for each in list_recordings() if each.model == model)
        assert {row["of"] for row in rows if row["measure"] == f"accepted, of the replies of {model}"} == {items}


@pytest.mark.all
def test_the_filters_refuse_a_gym_that_needs_too_few_tools(tmp_path: Path) -> None:
    terraces = PROBLEMS[1:]
    filtered, all_of_it = (replay_arm(arm, terraces, tmp_path) for arm in (ON, OFF))
    assert (filtered.gyms, filtered.refused) == ([], {"terrace-path": "few_tools_used"})
    (gym,) = all_of_it.gyms
    assert (gym.gym, gym.has_tools, all_of_it.refused) == ("terrace-path", False, {})
    counts = {row["measure"]: (row["count"], row["of"]) for row in count_arm(all_of_it, filtered)}
    tasks = len(gym.calls)
    assert counts["gyms accepted, of the problems"] == (1, 1)
    assert counts["tasks of gyms with fewer than 4 tools, of those accepted"] == (tasks, tasks)
    assert replay_arm(OFF, terraces, tmp_path) == all_of_it, "a run that has ended is read again"
