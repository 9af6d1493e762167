"""`simia pack score`: play the recorded messages of an agent again in the pack's own world, and score the episode."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from simia import event_loop
from simia.cli.options import PACK, UNSAFE
from simia.errors import UserError
from simia.pack import Pack
from simia.pack_files import read_lines
from simia.terminal import say, say_error

if TYPE_CHECKING:
    from simia.trajectory import Trajectory


def score_episode(
    pack: PACK,
    episodes: Annotated[Path, typer.Argument(help="JSONL file of trajectories. The last one of the task is scored.")],
    task: Annotated[str, typer.Option("--task", help="Task of the episode.")],
    turns: Annotated[
        int,
        typer.Option(
            "--turns", min=1, help="Maximum number of messages of the agent, after which the episode is truncated."
        ),
    ] = 100,
    out: Annotated[Path | None, typer.Option("--out", help="Also write the reward as a number to this file.")] = None,
    unsafe: UNSAFE = False,
) -> None:
    """Replay the agent's messages of a recorded episode and score the replay. If there is no recorded episode, the reward is 0.

    Only the agent's messages are read from the record, so edited results or rewards in it have no effect.
    """
    loaded = Pack.load(pack)
    chosen = loaded.task(task)
    recorded = read_last_episode(episodes, task)
    if recorded is None:
        say(f"{episodes} holds no episode of task {task}: the agent did nothing")
        value = 0.0
    else:
        value = event_loop.run_command(score_recorded(loaded, chosen.id, recorded, turns, unsafe))
    say(f"reward {value:g}")
    if out is not None:
        try:
            out.write_text(f"{value!r}\n")
        except OSError as error:
            raise UserError(f"{out} cannot be written: {error.strerror or error}") from None


async def score_recorded(pack: Pack, task: str, recorded: Trajectory, turns: int, unsafe: bool) -> float:
    """Replay a record and return its reward. Exits with code 1 where the episode was aborted and so has none."""
    from simia.envs.opening import open_environment
    from simia.envs.play.recorded_agent import replay

    options: dict[str, Any] = {"unsafe": True} if unsafe else {}
    async with await open_environment(
        pack, backend="executable", user="none", episode={"turns": turns}, **options
    ) as environment:
        played = await replay(environment, pack.task(task), recorded)
    if played.reward is None or played.reward.value is None:
        why = played.reward.rationale if played.reward else played.end and played.end.code
        say_error(f"the episode has no reward: {why}")
        raise typer.Exit(1)
    return played.reward.value


def read_last_episode(path: Path, task: str) -> Trajectory | None:
    """Return the last trajectory of the task in a file; None where there is none. Lines that are no trajectory are skipped: an
    untrusted program may have written them."""
    from simia.trajectory import Trajectory

    found = None
    for number, line in read_lines(path) if path.is_file() else ():
        try:
            row = Trajectory.from_row(orjson.loads(line))
        except (ValueError, TypeError, RecursionError):
            say_error(f"{path}:{number}: not a trajectory; skipped")
            continue
        if row.task_id == task:
            found = row
    return found
