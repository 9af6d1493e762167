"""The parts that sessions of amplification and of rollouts have in common: options, a resume's config, the result."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from simia.config import Config, apply_settings, parse_config
from simia.jobs.coordinator import Coordinator, Stop, stop_on_signals
from simia.jobs.run import Run, iterate_accepted, save_config
from simia.search_path import searching_from
from simia.trajectory import Trajectory

C = TypeVar("C", bound=Config)
OpenRun = Callable[[dict[str, Any]], Run]
"""Create or continue the run of a session, given the facts that identify it beyond its config."""


class SessionOptions(TypedDict, total=False):
    """How a session reports and stops."""

    say: Callable[[str], None]
    """Receives notes, such as the progress of a download."""
    on_progress: Callable[[Any], None] | None
    """Called with the current figures, the method's `Progress`."""
    handle_signals: bool
    """Stop on Ctrl-C and SIGTERM."""


@dataclass(slots=True)
class SessionResult:
    """The result of a session: the run's folder and the reason why the session stopped."""

    folder: Path
    stop: Stop

    @property
    def run_id(self) -> str:
        return self.folder.name

    def trajectories(self, *, partial: bool = False) -> Iterator[Trajectory]:
        """Yield the accepted trajectories of the run in order.

        Raises `UserError` unless the run is complete; `partial`: take what there is.
        """
        return iterate_accepted(self.folder, partial=partial)


@contextlib.contextmanager
def reopen_run(
    cls: type[C], runs: Path, run_id: str, changes: Mapping[str, Any] | None = None, *, say: Callable[[str], None]
) -> Iterator[tuple[Run, C]]:
    """Open a run to work on, with the config that it was made with. `changes`: settings of a resume by dotted name.

    Relative paths are found in the folder in which the run was started, or else in the working directory.
    """
    with contextlib.closing(Run.open(runs, run_id)) as run:
        if run.found is not None and run.found.findings:
            say(f"note: {run.found}")
        with searching_from(run.start_folder):
            yield run, read_run_config(cls, run, changes)


def read_run_config(cls: type[C], run: Run, changes: Mapping[str, Any] | None = None) -> C:
    """Return the config that a run was made with, with `changes` applied."""
    data = apply_settings(run.saved_config(), changes)
    return parse_config(cls, data, where=f"run {run.id}")


def continue_run(run: Run, config: Config, facts: dict[str, Any]) -> Run:
    """Save a resume's config. Raises `UserError` if the run would be another one with it."""
    run.refuse_other_identity(config, facts)
    save_config(run.folder, config)
    return run


async def coordinate(job: Coordinator[Any, Any], *, handle_signals: bool, say: Callable[[str], None]) -> Stop:
    with stop_on_signals(job, say) if handle_signals else contextlib.nullcontext():
        return await job.run()
