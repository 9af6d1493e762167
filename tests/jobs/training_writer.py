"""One process of a training that adds episodes to a shared run: python -m tests.jobs.training_writer RUN START NAME FIRST LAST EACH.

It adds `EACH` episodes in each of the steps FIRST to LAST, writes `step N` when they are on disk, and reads a line before the next step.
"""

import sys
from pathlib import Path

from simia.jobs.shared_run import EpisodeFigures, EpisodeRow, SharedRun, TrainingRun
from simia.reward import Reward
from simia.tool import ToolSpec
from simia.trajectory import Message, Trajectory

LOOK = ToolSpec(name="look_up", description="Look something up.", parameters={"type": "object", "properties": {}})


def make_row(
    step: int, name: str, start: str, *, reward: float | None = 1.0, group: str = "t", text: str = "", **more: object
) -> EpisodeRow:
    said = [Message(role="user", content="hello"), Message(role="assistant", content=text or f"{start} {step} {name}")]
    t = Trajectory(pack="p", task_id="t", system="Be brief.", tools=[LOOK], messages=said, reward=Reward(value=reward))
    figures = EpisodeFigures(step=step, group=f"{step}/{group}", task="t", reward=reward, turns=1, start=start, **more)  # type: ignore[arg-type]
    return EpisodeRow(t, figures, name)


def join(folder: Path) -> SharedRun:
    return SharedRun.join(folder, TrainingRun(trainer="trl", folder="/checkpoints"), {"model": "m", "pack": "p"})


if __name__ == "__main__":
    folder, start, name, first, last, each = sys.argv[1:]
    run = join(Path(folder))
    print("joined", flush=True)
    for step in range(int(first), int(last) + 1):
        sys.stdin.readline()
        run.add([make_row(step, f"{name}.{n}", start) for n in range(int(each))])
        print(f"step {step}", flush=True)
    run.close()
