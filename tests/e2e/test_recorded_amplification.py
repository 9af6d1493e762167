"""The strong model's trajectories of the amplification experiment, accepted again from its recorded replies by today's checks."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from simia.jobs.run import iterate_accepted
from simia.pack import Pack
from tests.command import run_simia
from tests.synthesis.test_recorded_envscaler import RECORDINGS

sys.path.append(str(Path(__file__).parents[2] / "eval" / "loop"))
import amplification
import amplification_data
import amplification_tasks
import tasks as loop_tasks

CHANGES = ("move_parcel", "hold_parcel", "return_parcel")
CONFIG = Path(__file__).parents[2] / "eval" / "loop" / "amplification.yaml"


TEST_TASKS = {1: "0f45351d141771b0", 2: "871a26b78c6f6430"}
"""Try → digest of its test tasks."""
MOVE_AND_HOLD = ("find_parcel", "free_locker", "move_parcel", "hold_parcel")


def amplify(folder: Path, recording: str, count: int, *more: str) -> list[tuple[str, ...]]:
    """Amplify from a recording in an empty folder. Return the calls of each accepted trajectory."""
    settings = (
        "llm.kind=replay", f"llm.path={RECORDINGS / f'{recording}.jsonl'}", f"seeds.packs=[{CONFIG.with_name('pack')}]",
        f"n={count}", f"stop.attempts={count + 20}", *more,
    )  # fmt: skip
    words = [word for setting in settings for word in ("--set", setting)]
    done = run_simia("amplify", "-c", str(CONFIG), "--name", "strong", *words, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    accepted = iterate_accepted(folder / "runs" / "strong", partial=False)
    return [tuple(call.name for message in each.messages for call in message.calls) for each in accepted]


def rebuild(folder: Path, attempt: int) -> dict[str, list[tuple[str, ...]]]:
    """Make rows and tasks from the run in a folder. Check that they share nothing, and that the tasks are those that the stored outcomes name.
    Return the calls of each arm's rows that make two changes."""
    seeds = list(Pack.load(CONFIG.with_name("pack")).seeds)
    arms = amplification_data.draw_arms(
        folder / "runs" / "strong", seeds, folder / "pack", rows=amplification.Plan().rows, attempt=attempt
    )
    tasks = [json.loads(line) for line in (folder / "pack" / "tasks.jsonl").read_text().splitlines()]
    held = {split: [row for row in tasks if row["split"] == split] for split in ("test", "dev")}
    shared = amplification_tasks.check_apart(held, arms)
    assert {arm: len(rows) for arm, rows in arms.items()} == {"seeds": 10, "swapped": 80, "amplified": 80}
    assert {f"{split} and {arm}" for split in held for arm in arms} < set(shared)
    assert not any(each["entities"] or each["requests"] for each in shared.values())
    results = CONFIG.parent / ("amplification" if attempt == 1 else "amplification-2")
    stored = {
        json.loads(path.read_text())["test"] for arm in amplification.PRIMARY for path in results.glob(f"{arm}-*.json")
    }
    assert stored == {amplification.digest_tasks(held["test"])} == {TEST_TASKS[attempt]}
    if attempt == 1:
        trained = [task for task in tasks if task["split"] == "train"]
        assert amplification.read_result(results / "rollouts.json")["train"] == amplification.digest_tasks(trained)
        apart = set[str]().union(
            *(loop_tasks.entities(amplification_tasks.render_task(row)) for row in [*held["test"], *held["dev"]])
        )
        real = amplification_data.load_rollouts(results / "real.jsonl", 70)
        local = amplification_data.load_amplified(results / "local.jsonl", len(real), apart)
        shared = amplification_tasks.check_apart(held, {"real": real, "local": local})
        assert not any(each["entities"] or each["requests"] for each in shared.values())
    called = {arm: [amplification_data.list_calls(row) for row in rows] for arm, rows in arms.items()}
    return {arm: [calls for calls in found if count_changes(calls) > 1] for arm, found in called.items()}


def count_changes(calls: tuple[str, ...]) -> int:
    return sum(name in CHANGES for name in calls)


@pytest.mark.parametrize(("count", "sequences"), [(110, 17), (215, 17)])
def test_all_replies_of_the_strong_model_are_accepted(count: int, sequences: int, tmp_path: Path) -> None:
    """The first round, and both rounds, whose plans begin with those of the first."""
    accepted = amplify(tmp_path, "amplification-lockers", count)
    assert len(accepted) == count
    assert len(set(accepted)) == sequences
    if count == 110:  # the run from which the first try's rows and tasks were made
        two = rebuild(tmp_path, 1)
        assert [len(two[arm]) for arm in ("swapped", "amplified")] == [22, 22]
        assert [two[arm].count(MOVE_AND_HOLD) for arm in ("swapped", "amplified")] == [22, 2]


def test_conversations_of_two_goals_follow_the_seed_in_the_second_try(tmp_path: Path) -> None:
    accepted = amplify(tmp_path, "amplification-lockers-second", 78, "plan.seed_goals=1")
    assert len(accepted) == 78
    several = [calls for calls in accepted if count_changes(calls) > 1]
    assert several.count(MOVE_AND_HOLD) == len(several) == 21
    two = rebuild(tmp_path, 2)
    assert two["swapped"] == two["amplified"] == [MOVE_AND_HOLD] * 22
