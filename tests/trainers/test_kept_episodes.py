"""GRPO in TRL leaves a run with all its episodes, also when it is killed and goes on: the report and the training data that are made of it."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from simia.jobs import Run
from tests.command import run_simia
from tests.trainers.conftest import ROOT, Trainer
from tests.trainers.test_trl_ranks import TEMPLATE

PROBE = Path(__file__).with_name("ranks_probe.py")
STEPS, EACH, KILLED_AT = 5, 8, 3


def simia(*words: object) -> str:
    done = run_simia(*map(str, words))
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def start(
    trl: Trainer, root: Path, config: dict[str, Any], *, ranks: int = 1, killed_at: int = -1, told: str = "told"
) -> tuple[int, str]:
    path = root / "grpo.yaml"
    path.write_text(yaml.safe_dump(config))
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    command = [trl.python, *launcher, PROBE, root / told, path]
    env = {**trl.env, "KILLED_AT": str(killed_at)}
    done = subprocess.run(
        [str(part) for part in command], env=env, cwd=root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    return done.returncode, done.stdout


def make_config(model: Path, pack: Path, root: Path, **more: Any) -> dict[str, Any]:
    grpo = {
        "output_dir": str(root / "out"),
        "max_steps": STEPS,
        "per_device_train_batch_size": EACH,
        "num_generations": 4,
        "max_completion_length": 160,
        "learning_rate": 1e-4,
        "temperature": 1.0,
        "save_steps": 2,
        "logging_steps": 1,
        "bf16": False,
        "use_cpu": True,
        "report_to": "none",
    }
    stage = {"pack": str(pack), "user": "scripted"}
    return {"model": str(model), "stage": stage, "episodes": {"run": str(root / "runs" / "grpo"), "tokens": True}, "grpo": grpo, **more}  # fmt: skip


def read_told(root: Path, ranks: int, told: str = "told") -> dict[int, list[dict[str, Any]]]:
    """What the trainer trained on: by step (from 1) a row for each rank."""
    found = defaultdict(list)
    for rank in range(ranks):
        for line in (root / f"{told}.{rank}").read_text().splitlines():
            row = json.loads(line)
            found[row["step"] + 1].append(row)
    return dict(found)


def read_bodies(root: Path) -> dict[int, list[dict[str, Any]]]:
    """The kept episodes that count: by step their bodies, without the figures beside them."""
    found = defaultdict(list)
    with contextlib.closing(Run.read_only(root / "runs", "grpo")) as run:
        assert run.verify().complete
        for item in run.ledger.items():
            body = run.ledger.result(item.id)
            assert body is not None
            if item.reason != "superseded":
                found[int(item.id.partition(".")[0])].append(body)
    return dict(found)


@pytest.fixture(scope="module")
def trained(
    trl: Trainer, taught_model: Path, lamps: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[int, list[dict[str, Any]]]]:
    """The folder of a training that was killed in its fourth step, on two ranks, and went on in one process from its second step."""
    root = tmp_path_factory.mktemp("kept")
    config = make_config(taught_model, lamps, root)
    config["grpo"]["per_device_train_batch_size"] = EACH // 2
    code, said = start(trl, root, config, ranks=2, killed_at=KILLED_AT, told="killed")
    assert code != 0, said[-2000:]
    assert "episodes are kept in" in said
    before = read_told(root, 2, "killed")
    assert sorted(before) == [1, 2, 3, 4]
    with contextlib.closing(Run.read_only(root / "runs", "grpo")) as run:
        steps = Counter(item.spec["step"] for item in run.ledger.items())
        assert steps == {1: EACH, 2: EACH, 3: EACH, 4: EACH}, "the killed rank lost nothing"
    code, said = start(trl, root, make_config(taught_model, lamps, root), told="resumed")
    assert code == 0, said[-3000:]
    after = read_told(root, 1, "resumed")
    assert sorted(after) == [3, 4, 5]
    return root, {**{step: before[step] for step in (1, 2)}, **after}


def test_every_episode_is_kept_and_none_is_counted_twice(
    trained: tuple[Path, dict[int, list[dict[str, Any]]]],
) -> None:
    root, told = trained
    bodies = read_bodies(root)
    assert sorted(bodies) == sorted(told) == list(range(1, STEPS + 1))
    for step, rows in told.items():
        ids = [tuple(each) for row in rows for each in row["ids"]]
        kept = {tuple(body["tokens"]["completion_ids"]): body for body in bodies[step]}
        assert len(bodies[step]) == len(ids) == EACH
        assert Counter(tuple(body["tokens"]["completion_ids"]) for body in bodies[step]) == Counter(ids)
        rewards = [
            (tuple(each), reward) for row in rows for each, reward in zip(row["ids"], row["rewards"], strict=True)
        ]
        for each, reward in rewards:
            body = kept[each]
            assert body["trajectory"]["reward"]["value"] == pytest.approx(reward)
            assert body["trajectory"]["reward"]["parts"].keys() == {"state"}
            tokens = body["tokens"]
            assert len(tokens["completion_ids"]) == len(tokens["mask"]) == len(tokens["logprobs"])
            assert all((value == 0.0) == (not mine) or value <= 0 for value, mine in zip(tokens["logprobs"], tokens["mask"], strict=True))  # fmt: skip
            assert any(value < 0 for value in tokens["logprobs"])


def test_the_report_is_what_its_rows_say(trained: tuple[Path, dict[int, list[dict[str, Any]]]]) -> None:
    root, told = trained
    bodies = read_bodies(root)
    report = json.loads(simia("report", "grpo", "--json", "--runs", root / "runs"))
    assert report["superseded"] == 2 * EACH, "of steps 3 and 4"
    assert not report["in_progress"]
    assert [row["first"] for row in report["steps"]] == sorted(bodies)
    for row in report["steps"]:
        episodes = [body["trajectory"] for body in bodies[row["first"]]]
        rewards = [each["reward"]["value"] for each in episodes]
        assert row["episodes"] == row["scored"] == EACH
        assert row["groups"] == len({task for ranks in told[row["first"]] for task in ranks["tasks"]})
        assert row["reward"] == pytest.approx(sum(rewards) / EACH)
        assert row["solved"] == pytest.approx(sum(reward == 1 for reward in rewards) / EACH)
        turns = [sum(m["role"] == "assistant" for m in each["messages"]) for each in episodes]
        assert row["turns"] == pytest.approx(sum(turns) / EACH)
        tokens = [sum(body["tokens"]["mask"]) for body in bodies[row["first"]]]
        assert row["tokens"] == pytest.approx(sum(tokens) / EACH)
        ends = Counter(
            f"{(end := each.get('end') or {}).get('kind', 'terminated')}: {end.get('code')}" for each in episodes
        )
        assert row["ends"] == ends
    logged = json.loads((root / "out" / f"checkpoint-{STEPS}" / "trainer_state.json").read_text())["log_history"]
    trainers = {row["step"]: row["rewards/environment_reward/mean"] for row in logged if "loss" in row}
    assert trainers == pytest.approx({row["first"]: row["reward"] for row in report["steps"]}, abs=1e-6)
    printed = simia("report", "grpo", "--runs", root / "runs")
    assert f"{STEPS * EACH} in {STEPS} steps (1 to {STEPS})" in printed
    assert f"{2 * EACH} more of steps that were played again" in printed
    page = (root / "runs" / "grpo" / "report.html").read_text()
    assert "Share of solved episodes" in page
    assert page.count('<g id="line-') >= 5
    listed = simia("runs", "list", "--runs", root / "runs")
    assert f"{STEPS * EACH} episodes" in listed
    assert "not running" in listed
    shown = simia("runs", "show", "grpo", "--item", "5.0.0", "--runs", root / "runs")
    assert "lamp" in shown


def test_the_best_of_each_group_becomes_training_data(
    trained: tuple[Path, dict[int, list[dict[str, Any]]]], tmp_path: Path
) -> None:
    root, _ = trained
    groups: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for step, bodies in read_bodies(root).items():
        for body in bodies:
            if body["trajectory"].get("end", {}).get("kind", "terminated") == "terminated":
                groups[step, body["trajectory"]["task_id"]].append(body)
    best = [max(body["trajectory"]["reward"]["value"] for body in group) for group in groups.values()]
    said = simia("export", "grpo", "--to", "trl", "--out", tmp_path, "--least-reward", 0, "--runs", root / "runs")
    rows = [json.loads(line) for line in (tmp_path / "data.jsonl").read_text().splitlines()]
    assert 0 < len(rows) <= len(groups)
    lines = said.splitlines()
    duplicates = sum(int(line.split()[0]) for line in lines if "are duplicates" in line)
    refused = sum(int(line.split()[1].rstrip(":")) for line in lines if line.startswith("refused "))
    assert len(rows) == len(best) - duplicates - refused
    cut = sum(
        body["trajectory"].get("end", {}).get("kind") == "truncated"
        for bodies in read_bodies(root).values()
        for body in bodies
    )
    assert (f"{cut} episodes that were cut, aborted" in said) == (cut > 0)


@pytest.mark.all
def test_trls_own_loop_keeps_its_episodes(trl: Trainer, taught_model: Path, errands: Path, tmp_path: Path) -> None:
    model = tmp_path / "model-qwen"
    shutil.copytree(taught_model, model)
    trl.run("-c", TEMPLATE, model)
    config = make_config(model, errands, tmp_path, through="environment_factory")
    config["episodes"]["tokens"] = False
    config["stage"]["user"] = None
    config["grpo"] |= {"max_steps": 2, "save_steps": 2}
    code, said = start(trl, tmp_path, config)
    assert code == 0, said[-3000:]
    bodies, told = read_bodies(tmp_path), read_told(tmp_path, 1)
    assert {step: len(each) for step, each in bodies.items()} == {1: EACH, 2: EACH}
    for step, rows in told.items():
        kept = [body["trajectory"]["reward"]["value"] for body in bodies[step]]
        assert sorted(kept) == pytest.approx(sorted(rows[0]["rewards"]))


def test_a_run_that_cannot_be_written_is_one_line_before_the_trainer_starts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    command = [
        "train",
        "trl",
        "trl/grpo",
        "--dry-run",
        "--set",
        "grpo.bf16=false",
        "--set",
        f"episodes.run={tmp_path}/file/run",
    ]
    done = run_simia(*command, cwd=ROOT)
    assert done.returncode != 0
    assert done.stderr.count("\n") == 1
    assert "episodes.run: " in done.stderr
