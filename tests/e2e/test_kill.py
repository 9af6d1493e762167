"""A 500-item run killed with -9 at random points: exact count, nothing received asked for again, the same accepted set."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from simia.jobs import Run
from simia.llm.types import Request
from simia.trajectory import digest
from tests.fake_endpoint import FakeEndpoint

N = 500


def command(url: str, runs: Path, n: int = N, *more: str) -> list[str]:
    settings = [
        f"llm.base_url={url}",
        "llm.model=fake",
        "seeds.limit=3",
        "limits.concurrency=16",
        "llm.structured=true",
        *more,
    ]
    return [
        sys.executable, "-m", "simia", "amplify", "--config", "amplify/default", "--seeds", "customer_service",
        "--n", str(n), "--name", "killed", "--runs", str(runs), *(x for s in settings for x in ("--set", s)),
    ]  # fmt: skip


def resume(runs: Path) -> list[str]:
    return [sys.executable, "-m", "simia", "runs", "resume", "killed", "--runs", str(runs)]


def accepted(runs: Path) -> list[str]:
    run = Run.read_only(runs, "killed")
    try:
        return [digest(body["trajectory"]["messages"]) for body in run.ledger.accepted()]
    finally:
        run.close()


def asked_for(log: list[dict[str, object]]) -> Counter[str]:
    return Counter(digest(entry["body"]["messages"]) for entry in log)  # type: ignore[index]


# Of all requests 30 % are told to wait, 5 % fail, 5 % are never answered, and 5 % are answered by half.
FAULTS = {"rate": 0.45, "mix": ["429:20ms"] * 12 + ["500"] * 2 + ["stall"] * 2 + ["cut"] * 2, "latency": 0.05}
FEW = ["limits.backoff=0.05", "llm.timeout=2", "limits.concurrency=4"]  # so that twenty kills come before the end


@pytest.mark.parametrize(
    ("kills_wanted", "n", "plan", "more"),
    [
        pytest.param(2, N, {}, [], id="two"),
        pytest.param(20, 2400, {}, ["prompt.scenarios=true"], id="twenty", marks=pytest.mark.all),
        pytest.param(20, 160, FAULTS, FEW, id="twenty-and-faults", marks=pytest.mark.all),
    ],
)
def test_kill_minus_nine_at_random_points(
    kills_wanted: int, n: int, plan: dict[str, Any], more: list[str], tmp_path: Path
) -> None:
    endpoint = FakeEndpoint("--latency", "0.12", "--respond", "tests.replies:trajectory")
    if plan:
        endpoint.plan(**plan)
    dice = random.Random(11)
    try:
        kills = 0
        held: set[str] = set()
        again: list[str] = []
        line = command(endpoint.url, tmp_path, n, *more)
        while kills < kills_wanted:
            before = endpoint.log()["count"]
            child = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            while endpoint.log()["count"] <= before and child.poll() is None:
                time.sleep(0.02)
            time.sleep(dice.uniform(0.0, 0.7))
            assert child.poll() is None, f"the run ended before kill {kills + 1}: {child.communicate()[0][-800:]}"
            child.kill()
            child.wait()
            kills += 1
            fresh = [entry["body"]["messages"] for entry in endpoint.requests[before:]]
            # Prompts of this session against the replies that were on disk before it began.
            again += [d for d in map(digest, fresh) if d in held]
            held = stored_prompts(tmp_path)
            line = resume(tmp_path)
        before = endpoint.log()["count"]
        done = subprocess.run(line, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:]
        again += [d for d in map(digest, (e["body"]["messages"] for e in endpoint.requests[before:])) if d in held]
        assert again == [], "a reply that was received was asked for again"
        kept = accepted(tmp_path)
        assert len(kept) == len(set(kept)) == n
        run = Run.read_only(tmp_path, "killed")
        unanswered = run.ledger.spent()[1].get("sent", 0)
        run.close()
        answered = [entry for entry in endpoint.requests if entry["fault"] == "ok"]  # any other costs nothing
        twice = sum(count - 1 for count in asked_for(answered).values())
        assert twice <= unanswered, "what was sent twice is counted as possibly paid twice"

        undisturbed = tmp_path / "undisturbed"
        endpoint.plan(latency=0.0)
        done = subprocess.run(command(endpoint.url, undisturbed, n, *more), capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:]
        assert accepted(undisturbed) == kept
    finally:
        endpoint.stop()


def stored_prompts(runs: Path) -> set[str]:
    run = Run.read_only(runs, "killed")
    try:
        return {digest(Request.model_validate(row["request"]).messages) for row in run.ledger.replies()}
    finally:
        run.close()


def test_ctrl_c_stops_cleanly_and_the_last_line_goes_on(tmp_path: Path) -> None:
    endpoint = FakeEndpoint("--latency", "0.12", "--respond", "tests.replies:trajectory")
    try:
        child = subprocess.Popen(
            command(endpoint.url, tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        while endpoint.log()["count"] < 40 and child.poll() is None:
            time.sleep(0.02)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=240)
        assert child.returncode == 130, err
        assert "Traceback" not in out + err
        lines = out.strip().splitlines()
        assert "nothing is lost" in lines[-2]
        assert lines[-1] == f"next: simia runs resume killed --runs {tmp_path}"
        run = Run.read_only(tmp_path, "killed")
        assert run.ledger.spent()[1].get("sent", 0) == 0, "what was on its way was waited for"
        assert run.ledger.answered_count() == endpoint.log()["count"]
        run.close()
        done = subprocess.run([sys.executable, "-m", *lines[-1].split()[1:]], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert len(accepted(tmp_path)) == N
    finally:
        endpoint.stop()
