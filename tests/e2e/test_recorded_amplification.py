"""The strong model's trajectories of the amplification experiment, accepted again from its recorded replies by today's checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from simia.jobs.run import iterate_accepted
from tests.command import run_simia
from tests.synthesis.test_recorded_envscaler import RECORDINGS

CONFIG = Path(__file__).parents[2] / "eval" / "loop" / "amplification.yaml"


@pytest.mark.parametrize(("count", "sequences"), [(110, 17), (215, 17)])
def test_all_replies_of_the_strong_model_are_accepted(count: int, sequences: int, tmp_path: Path) -> None:
    """The first round, and both rounds, whose plans begin with those of the first."""
    settings = (
        "llm.kind=replay", f"llm.path={RECORDINGS / 'amplification-lockers.jsonl'}", f"seeds.packs=[{CONFIG.with_name('pack')}]",
        f"n={count}", f"stop.attempts={count + 20}",
    )  # fmt: skip
    words = [word for setting in settings for word in ("--set", setting)]
    done = run_simia("amplify", "-c", str(CONFIG), "--name", "strong", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    accepted = list(iterate_accepted(tmp_path / "runs" / "strong", partial=False))
    assert len(accepted) == count
    assert (
        len({tuple(call.name for message in each.messages for call in message.calls) for each in accepted}) == sequences
    )
