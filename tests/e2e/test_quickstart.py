"""The newcomer's journey with the real local model: quickstart, export, report, recheck, the example and the README's words."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import run_simia

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("local_model")


def simia(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_simia(
        *arguments, cwd=cwd, env=dict.fromkeys(("OPENAI_API_KEY", "SIMIA_PATH", "SIMIA_RUNS")), patience=1800
    )


@pytest.fixture(scope="module")
def quickstart(
    local_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """What `make quickstart` runs, in an empty folder."""
    folder = tmp_path_factory.mktemp("newcomer")
    done = simia("amplify", "--name", "first", cwd=folder)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder, done


def test_eight_accepted_with_at_least_three_tools(quickstart: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    from simia.jobs import Run
    from simia.trajectory import Trajectory

    folder, done = quickstart
    run = Run.read_only(folder / "runs", "first")
    kept = [Trajectory.from_row(body["trajectory"]) for body in run.ledger.accepted()]
    facts = run.ledger.meta("facts")
    run.close()
    assert len(kept) == 8
    assert len({call.name for t in kept for _, _, call in t.calls()}) >= 3
    assert sum(len(list(t.calls())) >= 2 for t in kept) >= 2
    assert {t.pack for t in kept} == {"customer_service", "office"}
    assert facts["model"].startswith("qwen2.5-coder-0.5b@"), "the real model, not the fallback"
    lines = done.stdout.strip().splitlines()
    assert lines[-1] == "next: simia export first --to llamafactory --out data/first"
    events = [json.loads(line) for line in lines if line.startswith('{"')]
    assert events, "not on a terminal: progress as JSON lines"
    assert events[-1]["accepted"] == 8


def test_the_last_line_is_a_command_that_works(quickstart: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = quickstart
    command = done.stdout.strip().splitlines()[-1].removeprefix("next: simia ").split()
    exported = simia(*command, cwd=folder)
    assert exported.returncode == 0, exported.stderr
    assert exported.stdout.startswith("8 rows from 8 of 8 trajectories")
    names = {path.name for path in (folder / "data/first").iterdir()}
    assert {"dataset_info.json", "train.yaml", "README.md"} <= names


def test_report_recheck_and_list(quickstart: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = quickstart
    report = simia("report", "first", cwd=folder)
    assert report.returncode == 0, report.stderr
    page = (folder / "runs/first/report.html").read_text(encoding="utf-8")
    assert not re.search(r"(src|href)=[\"']https?://", page), "self-contained"
    recheck = simia("runs", "recheck", "first", cwd=folder)
    assert "accepted: 8" in recheck.stdout, recheck.stdout + recheck.stderr
    assert "first" in simia("runs", "list", cwd=folder).stdout
    again = simia("runs", "resume", "first", cwd=folder)
    assert again.returncode == 0, again.stderr


def test_a_second_start_of_the_same_name_says_what_to_do(
    quickstart: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, _ = quickstart
    second = simia("amplify", "--name", "first", cwd=folder)
    assert second.returncode == 0
    assert "run first is complete; to show it: simia report first" in second.stdout + second.stderr
    other = simia("amplify", "--name", "first", "--n", "9", cwd=folder)
    assert other.returncode == 2
    assert "simia runs resume first" in other.stderr
    assert "Traceback" not in second.stderr + other.stderr


def test_the_whole_path_on_one_page(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples/whole_path.py", "2", tmp_path / "out"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "complete: 2 accepted" in done.stdout
    assert "2 rows in" in done.stdout


def test_two_passes_at_temperature_one_are_two_different_replies(tmp_path: Path) -> None:
    """Same seed, same prompt (no hints): only the draw differs, and both replies are stored (law 2)."""
    from simia.jobs import Run

    seed = [
        "seeds.packs=[customer_service]",
        "seeds.tasks={customer_service: [cs-027]}",
    ]  # not copied twice, as cs-002 is
    settings = [*seed, "sampling.temperature=1.0", "prompt.hints=false"]
    options = [part for setting in [*settings, "stop.attempts=2"] for part in ("--set", setting)]
    done = simia("amplify", "--name", "two", "--n", "2", *options, cwd=tmp_path)
    assert "Traceback" not in done.stderr
    run = Run.read_only(tmp_path / "runs", "two")
    replies = list(run.ledger.replies())
    run.close()
    assert len(replies) == 2
    assert replies[0]["request"]["messages"] == replies[1]["request"]["messages"]
    assert replies[0]["reply"]["text"] != replies[1]["reply"]["text"]
