"""The strong model's trajectories of the amplification experiment, accepted again from its recorded replies by today's checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from simia.jobs.run import iterate_accepted
from tests.command import run_simia
from tests.synthesis.test_recorded_envscaler import RECORDINGS

CHANGES = ("move_parcel", "hold_parcel", "return_parcel")
CONFIG = Path(__file__).parents[2] / "eval" / "loop" / "amplification.yaml"


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


@pytest.mark.parametrize(("count", "sequences"), [(110, 17), (215, 17)])
def test_all_replies_of_the_strong_model_are_accepted(count: int, sequences: int, tmp_path: Path) -> None:
    """The first round, and both rounds, whose plans begin with those of the first."""
    accepted = amplify(tmp_path, "amplification-lockers", count)
    assert len(accepted) == count
    assert len(set(accepted)) == sequences


def test_conversations_of_two_goals_follow_the_seed_in_the_second_try(tmp_path: Path) -> None:
    accepted = amplify(tmp_path, "amplification-lockers-second", 78, "plan.seed_goals=1")
    assert len(accepted) == 78
    several = [calls for calls in accepted if sum(name in CHANGES for name in calls) > 1]
    assert several.count(MOVE_AND_HOLD) == len(several) == 21
