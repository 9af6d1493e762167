"""An exported package as verifiers loads it: built as a wheel, evaluated by verifiers' own command against scripted models."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from simia.llm.embedded_server import EmbeddedServer
from simia.search_path import cache_root
from simia.venvs import make_python_path
from tests.command import run_simia
from tests.fake_endpoint import FakeEndpoint
from tests.trainers.conftest import ROOT, Trainer

PROBE = Path(__file__).with_name("verifiers_probe.py")
MODULE = "simia_customer_service"


@pytest.fixture(scope="module")
def endpoints() -> Iterator[list[str]]:
    """Addresses of a scripted model, and of one that plays tools and judge."""
    names = ("reference_model:respond", "conformance:stage")
    served = [FakeEndpoint("--respond", f"tests.trainers.{name}") for name in names]
    yield [each.url for each in served]
    for each in served:
        each.stop()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of an exported pack."""
    work = tmp_path_factory.mktemp("package")
    done = run_simia("pack", "export", "customer_service", "--to", "verifiers", "--out", work / "project")
    assert done.returncode == 0, done.stderr
    built = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", work, work / "project"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr[-4000:]
    (found,) = work.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def trainer(environments: Callable[[str], Path], wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """verifiers' interpreter with simia and the exported package on its path."""
    work = tmp_path_factory.mktemp("verifiers")
    zipfile.ZipFile(wheel).extractall(work / "site")
    found = Trainer(environments("verifiers"), work)
    path = [make_python_path(found.python, print), str(work / "site"), str(ROOT)]
    found.env |= {"PYTHONPATH": os.pathsep.join(path), "SIMIA_CACHE": str(cache_root()), "HOME": str(work)}
    return found


@pytest.fixture(scope="module")
def told(trainer: Trainer, endpoints: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("evaluations")
    trainer.run(PROBE, *endpoints, out)
    return dict(json.loads((out / "told.json").read_text()))


def test_load_environment_takes_the_back_end_and_the_split(told: dict[str, Any]) -> None:
    for backend in ("executable", "simulated"):
        assert told["load"][backend] == {
            "env": "Environment",
            "is_env": True,
            "splits": ["test"],
            "stages": [{"backend": backend, "split": "test"}],
            "keys": told["load"]["executable"]["keys"],
        }
    assert told["load"]["executable"]["keys"][0].startswith("customer_service/cs-")


def test_a_wrong_setting_is_refused_before_anything_starts(told: dict[str, Any]) -> None:
    assert "unknown key 'usr': did you mean 'user'?" in told["refused"]


@pytest.mark.parametrize("label", ["reference", "hermes"])
def test_the_solution_has_reward_1(told: dict[str, Any], label: str) -> None:
    assert [row["task"] for row in sorted(told[label], key=lambda row: row["task"])] == ["cs-001", "cs-002"]
    for row in told[label]:
        assert row["ok"]
        assert row["rewards"] == {"pack_reward": {"score": 1.0, "weight": 1.0}}
        assert row["metrics"]["part_state"] == 1.0
        assert row["info"]["simia"]["end"] == "terminated"


def test_traces_hold_native_calls_or_text(told: dict[str, Any]) -> None:
    assert {tuple(row["roles"]) for row in told["reference"]} == {("system", "user", "assistant", "tool", "assistant")}
    assert {tuple(row["roles"]) for row in told["hermes"]} == {("system", "user", "assistant", "user", "assistant")}


def test_doing_nothing_has_reward_0(told: dict[str, Any]) -> None:
    assert [(row["ok"], row["rewards"]["pack_reward"]["score"]) for row in told["idle"]] == [(True, 0.0)] * 2


def test_a_limit_of_verifiers_truncates_and_scores(told: dict[str, Any]) -> None:
    for row in told["looping"]:
        assert (row["ok"], row["stop"]) == (True, "max_turns")
        assert row["info"]["simia"]["end"] == "truncated"
        assert row["metrics"]["truncated"] == 1.0
        assert row["rewards"]["pack_reward"]["score"] == 0.0


def test_an_episode_without_a_model_has_an_error_and_no_reward(told: dict[str, Any]) -> None:
    for row in told["lost"]:
        assert not row["ok"]
        assert row["errors"]
        assert row["rewards"] == {}
        assert "simia" not in row["info"]


def test_a_simulated_world_answers_and_a_judge_scores(told: dict[str, Any]) -> None:
    for row in told["simulated"]:
        assert row["ok"]
        assert row["rewards"]["pack_reward"]["score"] == 1.0
        assert "tool" in row["roles"]


def test_verifiers_command_runs_the_installed_package(trainer: Trainer, endpoints: list[str], tmp_path: Path) -> None:
    command = trainer.python.with_name("vf-eval")
    words = [MODULE.replace("_", "-"), "-m", "reference", "--client.base-url", endpoints[0], "-n", "1", "--no-push"]
    done = subprocess.run(
        [command, *words, "--no-rich", "-o", tmp_path],
        env=trainer.env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert '"score": 1.0' in done.stdout


@pytest.mark.all
async def test_a_local_model_plays_the_exported_package(trainer: Trainer, weights: Path, tmp_path: Path) -> None:
    server = EmbeddedServer(weights, log=tmp_path / "model.log")
    url = await server.start()
    try:
        words = [MODULE.replace("_", "-"), "-m", "local", "--client.base-url", url, "--client.api-key-var", "LOCAL_KEY"]
        words += ["--env.taskset.calls", "hermes", "--env.agent.max-turns", "2", "--sampling.max-tokens", "60"]
        words += ["-n", "1", "--no-push", "--no-rich", "-o", str(tmp_path), "--run.name", "local"]
        done = await asyncio.to_thread(
            subprocess.run,
            [trainer.python.with_name("vf-eval"), *words],
            env=trainer.env | {"LOCAL_KEY": server.api_key},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
    finally:
        await server.stop()
    assert done.returncode == 0, done.stderr[-4000:]
    (line,) = (tmp_path / "local" / "traces.jsonl").read_text().splitlines()
    episode = json.loads(line)
    (trace,) = episode["traces"]
    assert episode["ok"], trace["errors"]
    assert 0.0 <= trace["rewards"]["pack_reward"]["score"] <= 1.0
    assert [node["message"]["role"] for node in trace["nodes"]][:3] == ["system", "user", "assistant"]
    assert trace["nodes"][2]["message"]["content"], "the model wrote something"
