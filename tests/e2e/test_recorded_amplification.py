"""The strong model's trajectories of the amplification experiment, accepted again from its recorded replies by today's checks."""

from __future__ import annotations

from pathlib import Path

from simia.jobs.run import iterate_accepted
from tests.command import run_simia
from tests.synthesis.test_recorded_envscaler import RECORDINGS

CONFIG = Path(__file__).parents[2] / "eval" / "loop" / "amplification.yaml"


def test_all_replies_of_the_strong_model_are_accepted(tmp_path: Path) -> None:
    settings = (
        "llm.kind=replay", f"llm.path={RECORDINGS / 'amplification-lockers.jsonl'}", f"seeds.packs=[{CONFIG.with_name('pack')}]",
    )  # fmt: skip
    words = [word for setting in settings for word in ("--set", setting)]
    done = run_simia("amplify", "-c", str(CONFIG), "--name", "strong", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    accepted = list(iterate_accepted(tmp_path / "runs" / "strong", partial=False))
    assert len(accepted) == 110
    assert len({tuple(call.name for message in each.messages for call in message.calls) for each in accepted}) == 17
