"""Resource limits of a pack's code. The kernel and the parent process enforce them, never the code itself."""

from __future__ import annotations

from pydantic import Field

from simia.config import Config

MB = 1 << 20


class WorkerLimits(Config):
    """Limits of one worker process. The limit `wall` applies to each call."""

    wall: float = Field(
        10.0, gt=0, description="Maximum duration of one call, in seconds, measured outside the sandbox."
    )
    start: float = Field(60.0, gt=0, description="Maximum duration of loading the pack's code, in seconds.")
    load: int = Field(8192 * MB, ge=64 * MB, description="Maximum memory for loading the pack's code, in bytes.")
    memory: int = Field(
        512 * MB, ge=16 * MB, description="Maximum memory of a worker in addition to the loaded pack, in bytes."
    )
    cpu: int = Field(3600, ge=1, description="Maximum total CPU time of a worker process, in seconds.")
    resident: int = Field(
        2048 * MB,
        ge=16 * MB,
        description="Maximum resident memory of a sandbox in which the pack's code is loaded, without its workers, in bytes.",
    )
    total: int = Field(
        1024 * MB,
        ge=16 * MB,
        description="Maximum memory of all processes of an episode's own sandbox together, in addition to the loaded pack, in bytes. "
        "Files in the sandbox count, because they are kept in memory.",
    )
    inodes: int = Field(50_000, ge=64, description="Maximum number of files and folders in an episode's own sandbox.")
    files: int = Field(64, ge=8, description="Maximum number of open files of a worker process.")
    output: int = Field(1 * MB, ge=1024, description="Maximum size of the JSON that one call returns, in bytes.")
    state: int = Field(
        64 * MB, ge=1024, description="Maximum size of the JSON of an episode's state, or of its changes, in bytes."
    )
    values: int = Field(
        1_000_000,
        ge=1000,
        description="Maximum number of JSON values in one reply of a worker (results, a state, changes).",
    )
    folder: int = Field(
        64 * MB, ge=MB, description="Maximum size of an episode's private folder (`isolation: sandbox`), in bytes."
    )
    processes: int = Field(
        64, ge=1, description="Maximum number of processes and threads of an episode that has its own sandbox."
    )
    live: int = Field(
        192 * MB,
        ge=MB,
        description="Maximum size of the states that a shared worker keeps as objects, in bytes. States of other idle episodes are "
        "compressed.",
    )
