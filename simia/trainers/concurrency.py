"""Raise the number of requests in flight to the number of episodes that a trainer plays at once. Each waits for at most one reply.

With a lower limit, episodes wait for each other and a step takes longer in proportion: 1,024 episodes with a limit of 256 take four times
as long.
"""

from __future__ import annotations

import resource

from simia.envs.config import EnvironmentConfig
from simia.envs.remote.remote_pack import plays_remotely

OTHER_FILES = 256  # descriptors that a process needs besides its connections


def fit_concurrency(stage: EnvironmentConfig, episodes: int, where: str = "stage") -> list[str]:
    """Raise the stage's `limits.concurrency` to the number of episodes, unless the config sets it. Returns lines of warning.

    Does nothing if servers play, since they make the requests. `where`: name of the stage's section, for the lines.
    """
    limits, notes = stage.limits, []
    here = not plays_remotely(stage)
    if here and limits.concurrency < episodes and "concurrency" not in limits.model_fields_set:
        stage.limits = limits = limits.model_copy(update={"concurrency": episodes})  # now set, so that a dump has it
    elif here and limits.concurrency < episodes:
        notes.append(
            f"{where}.limits.concurrency is {limits.concurrency}, but {episodes} episodes run at once, so requests of the others wait; "
            f"set it to {episodes}, or leave it out"
        )
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    if (
        files != resource.RLIM_INFINITY
        and files < (min(limits.concurrency, episodes) if here else episodes) + OTHER_FILES
    ):
        notes.append(
            f"warning: {episodes} episodes need {episodes + OTHER_FILES} open files, and this process may have {files}: raise it with "
            f"ulimit -n {episodes + OTHER_FILES}, or requests wait"
        )
    return notes
