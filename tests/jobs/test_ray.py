"""Runs over Ray's nodes accept what a single process accepts, byte by byte, whatever is lost on the way, and pay for nothing twice."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from simia.config import load_config
from simia.jobs import Run
from simia.pack import Pack
from simia.rollouts.settings import RolloutConfig
from simia.search_path import data_root
from simia.synthesis.recipes.codegym import CodeGymConfig
from tests.fake_endpoint import FakeEndpoint

PROBE = Path(__file__).with_name("ray_probe.py")
ROOT = PROBE.parents[2]
RECORDINGS = ROOT / "tests" / "recordings"
LATENCY = 0.3
AT_ONCE = 32
RAY = {
    "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32),  # nobody else may use the tests' clusters
    "RAY_worker_niceness": "0",  # else workers starve beside other tests, and limits on the clock refuse sound gyms
}  # fmt: skip


class Jobs:
    """Works on jobs by the environment `ray`."""

    def __init__(self, python: Path, root: Path) -> None:
        self._python, self.root = python, root

    def start(self, where: str, method: str, config: dict[str, Any], **probe: Any) -> subprocess.CompletedProcess[str]:
        folder = self.root / where
        if probe.get("nodes"):
            config = {**config, "engine": {"kind": "ray", "store": str(folder / "stores"), **probe.pop("engine", {})}}
        given = {"method": method, "config": config, "runs": str(folder / "runs"), "name": "one", **probe}
        return subprocess.run(
            [self._python, PROBE, json.dumps(given)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "OPENAI_API_KEY": "not-a-key", **RAY},
            cwd=self.root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    def work(self, where: str, method: str, config: dict[str, Any], **probe: Any) -> dict[str, Any]:
        """Work on a job to its end. Returns what the probe printed."""
        done = self.start(where, method, config, **probe)
        assert done.returncode == 0, done.stderr[-4000:]
        figures: dict[str, Any] = next(
            json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"stop"')
        )
        assert figures["stop"][0] == "complete", figures
        left = self.root / where / "stores"
        assert not left.exists() or not list(left.iterdir()), (
            "the nodes' stores are removed once the run has their replies"
        )
        return figures

    def command(self, where: str, *words: str) -> str:
        """Run `simia` with these words, and its run in the folder of `where`. Returns what it printed."""
        done = subprocess.run(
            [self._python, "-m", "simia", *words, "--name", "one", "--runs", str(self.root / where / "runs")],
            env={**os.environ, "PYTHONPATH": str(ROOT), "OPENAI_API_KEY": "not-a-key", **RAY},
            cwd=self.root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout

    def accepted(self, where: str) -> list[bytes]:
        """The accepted results, and the verdicts of all items up to the last one, as they are stored."""
        with closing(Run.read_only(self.root / where / "runs", "one")) as run:
            assert not run.verify().findings
            rows = run.ledger.db.ledger.execute(
                "SELECT accepted.ord, item.id, item.spec, item.status, item.reason, item.detail, result.content_hash FROM item"
                " LEFT JOIN accepted USING (ord) LEFT JOIN result ON result.item = item.id"
                " WHERE item.ord <= (SELECT MAX(ord) FROM accepted) ORDER BY item.ord"
            ).fetchall()
            bodies = [run.ledger.result(row[1]) for row in rows]
        return [json.dumps([row, body], default=str).encode() for row, body in zip(rows, bodies, strict=True)]

    def count_replies(self, where: str) -> Counter[str]:
        """How many attempts ended how."""
        with closing(Run.read_only(self.root / where / "runs", "one")) as run:
            return Counter(run.ledger.spent()[1])


@pytest.fixture
def jobs(environments: Callable[[str], Path], tmp_path: Path) -> Jobs:
    return Jobs(environments("ray"), tmp_path)


@pytest.fixture(scope="module")
def shop() -> Iterator[FakeEndpoint]:
    """An endpoint that writes a trajectory for each prompt."""
    endpoint = FakeEndpoint("--respond", "tests.replies:trajectory")
    yield endpoint
    endpoint.stop()


def amplification(endpoint: FakeEndpoint, n: int) -> dict[str, Any]:
    endpoint.plan(latency=LATENCY)
    return {
        "n": n,
        "llm": {"kind": "openai", "base_url": endpoint.url, "model": "fake"},
        "seeds": {"packs": ["customer_service"]},
        "limits": {"start": AT_ONCE, "concurrency": AT_ONCE},
    }


def amplify_with_losses(jobs: Jobs, shop: FakeEndpoint, n: int) -> None:
    """Amplify in one process and on Ray's nodes, where nothing, two workers and a node are lost."""
    alone = jobs.work("alone", "amplify", amplification(shop, n))
    asked = shop.log()["count"]
    assert jobs.count_replies("alone") == {"got": asked}
    expected = jobs.accepted("alone")
    assert alone["lost"] == []
    ways: dict[str, dict[str, Any]] = {
        "undisturbed": {"nodes": 1, "engine": {"workers": 3}},
        "workers": {"nodes": 2, "kill": "worker", "at": n // 4},
        "node": {"nodes": 2, "kill": "node", "at": n // 3},
    }
    for way, probe in ways.items():
        figures = jobs.work(way, "amplify", amplification(shop, n), **probe)
        log = shop.log()
        assert len(figures["lost"]) == {"undisturbed": 0, "workers": 2, "node": 1}[way], figures
        assert jobs.accepted(way) == expected, way
        assert jobs.count_replies(way) == {"got": asked}, way
        assert log["most_in_flight"] <= AT_ONCE + 2 * AT_ONCE * bool(figures["lost"]), "one pace over all workers"
        assert log["count"] - asked <= AT_ONCE * len(figures["lost"]), "only what was in flight is asked again"


@pytest.mark.all
def test_an_amplification_accepts_what_one_process_accepts(jobs: Jobs, shop: FakeEndpoint) -> None:
    amplify_with_losses(jobs, shop, 150)


@pytest.mark.all
def test_a_long_amplification_accepts_what_one_process_accepts(jobs: Jobs, shop: FakeEndpoint) -> None:
    amplify_with_losses(jobs, shop, 3000)


@pytest.mark.all
def test_replies_that_a_killed_job_left_on_its_nodes_are_not_asked_for_again(jobs: Jobs, shop: FakeEndpoint) -> None:
    jobs.work("alone", "amplify", amplification(shop, 100))
    asked = shop.log()["count"]
    config = amplification(shop, 100)
    killed = jobs.start("killed", "amplify", config, nodes=2, kill="driver", at=30)
    assert killed.returncode == -9, killed.stderr[-4000:]
    jobs.work("killed", "amplify", config, nodes=2)
    assert jobs.accepted("killed") == jobs.accepted("alone")
    assert jobs.count_replies("killed")["got"] == asked
    assert shop.log()["count"] - asked <= AT_ONCE


def play(jobs: Jobs, ways: Sequence[str], at: int, *settings: str, **fields: Any) -> None:
    """Play a rollout in one process and on Ray's nodes, where each of `ways` is lost once `at` replies are there."""
    config = load_config(RolloutConfig, "rollout/default", settings, **fields).model_dump(mode="json")
    jobs.work("alone", "rollout", config)
    expected = jobs.accepted("alone")
    assert expected
    for way in ways:
        figures = jobs.work(way, "rollout", config, nodes=2, kill=way, at=at)
        assert figures["lost"], figures
        assert jobs.accepted(way) == expected, way
        assert jobs.count_replies(way) == jobs.count_replies("alone")


@pytest.mark.all
def test_a_rollout_accepts_what_one_process_accepts(jobs: Jobs) -> None:
    """A strong model's recorded episodes in the customer service."""
    tasks = list(json.loads((RECORDINGS / "rollout-shop.rewards.json").read_text()))
    recording = RECORDINGS / "rollout-shop.jsonl"
    settings = ["llm.kind=replay", f"llm.path={recording}", "sampling.bare=false", "sampling.temperature=1.0"]
    play(jobs, ["worker"], 8, *settings, tasks=tasks)


@pytest.mark.all
def test_a_long_rollout_accepts_what_one_process_accepts(jobs: Jobs, environments: Callable[[str], Path]) -> None:
    """500 and more episodes, in which the model answers with words alone."""
    endpoint = FakeEndpoint("--latency", str(LATENCY))
    try:
        settings = ["llm.kind=openai", f"llm.base_url={endpoint.url}", "llm.model=fake", "accept=0"]
        play(
            jobs,
            ["worker", "node"],
            100,
            *settings,
            pack="customer_service",
            group=-(-500 // len(Pack.load("customer_service").tasks)),
        )
    finally:
        endpoint.stop()


def test_the_option_plays_an_evaluation_on_ray(jobs: Jobs) -> None:
    """`simia eval … --engine ray` and the same line without the option."""
    endpoint = FakeEndpoint()
    try:
        words = ["eval", "packs", "--pack", "customer_service", "--limit", "4", "--trials", "2"]
        words += ["--set", f"llm.base_url={endpoint.url}", "--set", "llm.model=fake", "--set", "accept=0"]
        alone = jobs.command("alone", *words)
        store = jobs.root / "stores"
        told = jobs.command(
            "nodes", *words, "--engine", "ray", "--set", "engine.address=local", "--set", f"engine.store={store}"
        )
    finally:
        endpoint.stop()
    with closing(Run.read_only(jobs.root / "nodes" / "runs", "one")) as run:
        assert run.saved_config()["engine"]["kind"] == "ray"
    assert not list(store.iterdir()), "the workers' stores were there, and are removed"
    assert jobs.accepted("alone")
    assert jobs.accepted("nodes") == jobs.accepted("alone")
    assert jobs.count_replies("nodes") == jobs.count_replies("alone")
    assert "customer_service" in told
    assert find_scores(told) == find_scores(alone)


def find_scores(told: str) -> list[str]:
    """The lines of an evaluation that hold scores."""
    return [line for line in told.splitlines() if "customer_service" in line and "--runs" not in line]


@pytest.mark.all
def test_a_synthesis_makes_the_packs_that_one_process_makes(jobs: Jobs) -> None:
    """Two workers, and a node, are lost between recorded replies, where gyms are built and solutions executed."""
    settings = [
        "llm.kind=replay", f"llm.path={RECORDINGS / 'codegym.jsonl'}", "llm.match=draw", "solutions.k=4", "difficulty.agent=null",
        "problems=1",
    ]  # fmt: skip
    config = load_config(CodeGymConfig, "synth/codegym", settings).model_dump(mode="json")
    jobs.work("alone", "synth", config)
    expected = read_packs(jobs, "alone")
    assert expected
    for way, probe in {
        "undisturbed": {},
        "worker": {"kill": "worker", "at": 3},
        "node": {"kill": "node", "at": 4},
    }.items():
        figures = jobs.work(way, "synth", config, nodes=2, **probe)
        assert len(figures["lost"]) == {"undisturbed": 0, "worker": 2, "node": 1}[way], figures
        assert jobs.accepted(way) == jobs.accepted("alone"), way
        assert jobs.count_replies(way) == jobs.count_replies("alone"), way
        assert read_packs(jobs, way) == expected, way


def read_packs(jobs: Jobs, where: str) -> dict[str, bytes]:
    """The files of the packs that a synthesis wrote."""
    folder = jobs.root / where / "one-packs"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_node_without_what_the_job_needs_is_named_before_work_begins(jobs: Jobs) -> None:
    config = {"n": 3, "llm": {"kind": "openai", "model": "fake", "key_env": "NO_SUCH_KEY"}}
    done = jobs.start("keyless", "amplify", config, nodes=1)
    assert done.returncode == 1
    assert "node " in done.stderr
    assert "NO_SUCH_KEY" in done.stderr
    assert not (jobs.root / "keyless" / "runs").exists()


def test_a_wrong_port_ends_with_a_line(jobs: Jobs) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        config = {"n": 3, "llm": {"kind": "openai", "model": "fake"}, "engine": {"kind": "ray", "address": address}}
        done = jobs.start("silent", "amplify", config)
    assert done.returncode == 1
    assert f"engine.address={address}: no Ray cluster answers (no answer within 20 s)" in done.stderr
    assert not (jobs.root / "silent" / "runs").exists()


@pytest.mark.parametrize(("name", "workers"), [("two-cpu-nodes", 1), ("8xh100", 0)])
def test_the_clusters_of_configs_are_what_ray_up_reads(
    environments: Callable[[str], Path], name: str, workers: int
) -> None:
    code = (
        "import sys, yaml; from ray.autoscaler._private.util import prepare_config, validate_config;"
        "config = prepare_config(yaml.safe_load(open(sys.argv[1]))); validate_config(config); print(config['max_workers'])"
    )
    file = data_root() / "configs" / "ray" / f"{name}.yaml"
    done = subprocess.run([environments("ray"), "-c", code, file], capture_output=True, text=True, check=True)
    assert int(done.stdout) == workers
    assert "RAY_AUTH_MODE=token" in file.read_text()
