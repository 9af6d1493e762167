"""Resource limits of a pack's code. The kernel and the parent process enforce them, never the code itself."""

from __future__ import annotations

from pydantic import Field

from simia.config import Config

MB = 1 << 20


class WorkerLimits(Config):
    """Limits of one worker process; the wall-clock limit applies to one call."""

    wall: float = Field(10.0, gt=0, description="Seconds that one call may take, watched from outside.")
    start: float = Field(60.0, gt=0, description="Seconds that loading the pack's code may take.")
    load: int = Field(8192 * MB, ge=64 * MB, description="Bytes that loading the pack's code may take.")
    memory: int = Field(512 * MB, ge=16 * MB, description="Bytes that a worker may use in addition to the loaded pack.")
    cpu: int = Field(3600, ge=1, description="CPU seconds of a worker process in all.")
    resident: int = Field(2048 * MB, ge=16 * MB, description="Bytes of real memory of a sandbox that loads the code.")
    total: int = Field(
        1024 * MB,
        ge=16 * MB,
        description="Bytes of memory that all processes of an episode's own sandbox may use together beyond what the loaded "
        "pack does; files in it count, since they lie in memory.",
    )
    inodes: int = Field(50_000, ge=64, description="Files and folders that an episode's own sandbox may hold.")
    files: int = Field(64, ge=8, description="Open files of a worker process.")
    output: int = Field(1 * MB, ge=1024, description="Bytes of JSON that one call may return.")
    state: int = Field(
        64 * MB, ge=1024, description="Bytes of JSON of an episode's state, or of its changes, when read."
    )
    values: int = Field(1_000_000, ge=1000, description="JSON values of one reply: results, a state, changes.")
    folder: int = Field(64 * MB, ge=MB, description="Bytes of an episode's private folder (isolation: sandbox).")
    processes: int = Field(64, ge=1, description="Processes and threads of an episode that has a sandbox of its own.")
    live: int = Field(
        192 * MB, ge=MB, description="Bytes of states that a shared worker keeps uncompressed as objects."
    )
