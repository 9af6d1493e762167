"""A synthesis killed with -9 at ten random points and resumed: the same packs as undisturbed, and no reply paid for twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from simia.jobs import Run
from simia.llm.types import Request
from simia.trajectory import digest
from tests.fake_endpoint import FakeEndpoint
from tests.synthesis.build_fixtures import read_files
from tests.synthesis.chain_recipe import PROMPTS

ENVIRONMENT = {**os.environ, "SIMIA_PATH": str(PROMPTS)}
PROGRAM = [sys.executable, "-m", "tests.synthesis.chain_recipe"]


def start(folder: Path, url: str, *settings: str) -> list[str]:
    given = [f"llm.base_url={url}", "llm.model=gpt-5-mini", *settings]
    words = ["synth", "chain", "--out", str(folder / "out"), "--name", "killed", "--runs", str(folder / "runs")]
    return [*PROGRAM, *words, *(x for s in given for x in ("--set", s))]


def resume(folder: Path) -> list[str]:
    return [*PROGRAM, "runs", "resume", "killed", "--runs", str(folder / "runs")]


def finish(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:]


def stored_prompts(runs: Path) -> set[str]:
    if not (runs / "killed" / "ledger.db").exists():
        return set()
    run = Run.read_only(runs, "killed")
    try:
        return {digest(Request.model_validate(row["request"]).messages) for row in run.ledger.replies()}
    finally:
        run.close()


@pytest.mark.all
@pytest.mark.parametrize("faults", [{}, {"rate": 0.3, "mix": ["429:20ms", "500", "cut"]}], ids=["plain", "faults"])
def test_ten_kills_at_random_points(faults: dict[str, object], tmp_path: Path) -> None:
    endpoint = FakeEndpoint("--latency", "0.05", "--respond", "tests.synthesis.chain_recipe:respond")
    settings = ["items=150", "limits.concurrency=4", "limits.backoff=0.05"]
    moment = random.Random(5)
    try:
        endpoint.plan(**faults)
        command, held, again = start(tmp_path, endpoint.url, *settings), set[str](), list[str]()
        for _ in range(10):
            before = endpoint.log()["count"]
            child = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT
            )
            while endpoint.log()["count"] <= before and child.poll() is None:
                time.sleep(0.02)
            time.sleep(moment.uniform(0.0, 0.6))
            assert child.poll() is None, f"it ended before the kill: {child.communicate()[0][-800:]}"
            child.kill()
            child.wait()
            fresh = [digest(entry["body"]["messages"]) for entry in endpoint.requests[before:]]
            again += [prompt for prompt in fresh if prompt in held]
            held = stored_prompts(tmp_path / "runs")
            command = resume(tmp_path)
        before = endpoint.log()["count"]
        finish(command)
        again += [d for d in (digest(e["body"]["messages"]) for e in endpoint.requests[before:]) if d in held]
        assert again == [], "a reply that was received was asked for again"
        answered = Counter(digest(e["body"]["messages"]) for e in endpoint.requests if e["fault"] == "ok")
        run = Run.read_only(tmp_path / "runs", "killed")
        unanswered = run.ledger.spent()[1].get("sent", 0)
        run.close()
        twice = sum(answered.values()) - len(answered)
        assert twice <= unanswered, "what was sent twice is counted as possibly paid twice"

        endpoint.plan(latency=0.0)
        finish(start(tmp_path / "undisturbed", endpoint.url, *settings))
        assert len(read_files(tmp_path / "out")) == 2 * 150
        assert read_files(tmp_path / "out") == read_files(tmp_path / "undisturbed" / "out")
    finally:
        endpoint.stop()


def test_concurrency_changes_no_byte(tmp_path: Path) -> None:
    endpoint = FakeEndpoint("--respond", "tests.synthesis.chain_recipe:respond")
    try:
        found = []
        for concurrency in (1, 16):
            folder = tmp_path / str(concurrency)
            finish(start(folder, endpoint.url, "items=12", f"limits.concurrency={concurrency}", "limits.start=16"))
            found.append(read_files(folder / "out"))
        assert found[0] == found[1]
        assert len(found[0]) == 2 * 12
    finally:
        endpoint.stop()


def test_ctrl_c_stops_cleanly_and_the_last_line_goes_on(tmp_path: Path) -> None:
    endpoint = FakeEndpoint("--latency", "0.1", "--respond", "tests.synthesis.chain_recipe:respond")
    try:
        command = start(tmp_path, endpoint.url, "items=60", "limits.concurrency=4")
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        while endpoint.log()["count"] < 20 and child.poll() is None:
            time.sleep(0.02)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=120)
        assert child.returncode == 130, err
        assert "Traceback" not in out + err
        assert "nothing is lost" in out.strip().splitlines()[-2]
        assert out.strip().splitlines()[-1] == f"next: simia runs resume killed --runs {tmp_path / 'runs'}"
        run = Run.read_only(tmp_path / "runs", "killed")
        assert run.ledger.spent()[1].get("sent", 0) == 0, "what was on its way was waited for"
        assert "items decided, stopped (interrupted)" in str(run.verify())
        run.close()
        endpoint.plan(latency=0.0)
        finish(resume(tmp_path))
        assert len(read_files(tmp_path / "out")) == 2 * 60
    finally:
        endpoint.stop()
