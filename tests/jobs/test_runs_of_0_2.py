"""Runs that simia 0.2.0 made open: they are shown, rechecked, exported and resumed, and no stored reply is asked for again.

data/runs-0.2.0.tar.xz was written by simia 0.2.0 with the fake endpoint: complete and unfinished amplifications and rollouts (`-part`),
one with scenarios, and one that waits for the answers of a batch.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from simia.cli.terminal_output import WAITS
from simia.jobs import Run
from tests.command import run_simia
from tests.fake_endpoint import FakeEndpoint
from tests.replies import trajectory

ARCHIVE = Path(__file__).with_name("data") / "runs-0.2.0.tar.xz"
RECHECKED = {
    "amplified": ["accepted: 3", "passed: 3", "rejected: 1"],
    "amplified-part": ["accepted: 2", "open: 4", "passed: 2", "rejected: 1"],
    "scenarios-part": ["accepted: 1", "open: 5", "passed: 1", "rejected: 2"],
    "batch": ["accepted: 0", "open: 3"],
    "played": ["scored: 3", "solved: 3", "accepted: 3"],
    "played-part": ["scored: 1", "solved: 0", "accepted: 0"],
}
"""What 0.2.0 had found, by run."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


@pytest.fixture
def endpoint(request: pytest.FixtureRequest) -> Iterator[FakeEndpoint]:
    server = FakeEndpoint("--respond", f"tests.replies:{request.param}")
    yield server
    server.stop()


def simia(folder: Path, *words: str, code: int = 0) -> str:
    done = run_simia(*words, cwd=folder, env={"OPENAI_API_KEY": "not-a-key"})
    assert done.returncode == code, f"{words}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def test_every_run_is_listed_and_rechecked_as_it_was(folder: Path) -> None:
    listed = simia(folder, "runs", "list")
    assert {path.name for path in (folder / "runs").iterdir()} == RECHECKED.keys()
    for name, lines in RECHECKED.items():
        assert name in listed
        assert simia(folder, "runs", "recheck", name).splitlines()[: len(lines)] == lines


def test_accepted_trajectories_are_shown_and_exported(folder: Path) -> None:
    for name, rows in (("amplified", 3), ("played", 3)):
        simia(folder, "runs", "show", name)
        simia(folder, "export", name, "--to", "openai", "--out", f"data/{name}")
        lines = (folder / "data" / name / "data.jsonl").read_bytes().splitlines()
        assert len(lines) == rows
        assert all(orjson.loads(line)["messages"] for line in lines)


@pytest.mark.parametrize(
    ("endpoint", "name", "requests"),
    [("trajectory", "amplified-part", 4), ("stage", "played-part", 3)],
    indirect=["endpoint"],
)
def test_an_unfinished_run_resumes_and_asks_only_for_what_is_missing(
    folder: Path, endpoint: FakeEndpoint, name: str, requests: int
) -> None:
    """Four trajectories lack one reply each; two of three episodes with two requests each lack three replies, since one is stored."""
    settings = ("--set", f"llm.base_url={endpoint.url}", "--set", "limits.max_requests=100")
    simia(folder, "runs", "resume", name, *settings)
    assert endpoint.log()["count"] == requests
    run = Run.read_only(folder / "runs", name)
    stored = [orjson.dumps(row["request"]["messages"]) for row in run.ledger.replies()]
    run.close()
    assert len(stored) == 3 + requests


def test_a_run_that_waits_for_a_batch_still_waits_for_the_same_questions(folder: Path) -> None:
    said = simia(folder, "runs", "resume", "batch", code=WAITS)
    assert "3 questions wait in the files written before in questions" in said


def test_answers_to_the_questions_of_0_2_are_used(folder: Path) -> None:
    rows = [orjson.loads(line) for line in (folder / "questions" / "requests-0001.jsonl").read_bytes().splitlines()]
    answers = [{"custom_id": row["custom_id"], "response": answer(row["body"])} for row in rows]
    (folder / "questions" / "results" / "answers.jsonl").write_bytes(b"\n".join(map(orjson.dumps, answers)))
    run_simia("runs", "resume", "batch", cwd=folder)
    recheck = simia(folder, "runs", "recheck", "batch").splitlines()
    assert recheck[0] == "accepted: 2"  # of three answers one is rejected, and asked for again


def answer(body: dict[str, Any]) -> dict[str, Any]:
    """A response of a batch with the reply of the fake endpoint."""
    message = {"role": "assistant", "content": trajectory(body)}
    usage = {"prompt_tokens": 10, "completion_tokens": 10}
    return {"status_code": 200, "body": {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}}
