"""Run the scripts of an exported Harbor task without a container engine: each container is one of simia's sandboxes.

The agent's sandbox has `environment/` at /opt/simia and `solution/` at /solution; the verifier's has `tests/` at /tests and the artifacts
of the agent's. As in Harbor nothing else passes from one to the other.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import simia
from simia.sandbox.bubblewrap import (
    ENVIRONMENT,
    Bind,
    BubblewrapSandbox,
    PrivateFolder,
    list_interpreter_paths,
    list_system_binds,
)
from simia.sandbox.capabilities import require_isolation
from simia.search_path import data_root

EPISODES = "/logs/artifacts/episodes.jsonl"
SIZE = 64 << 20


def run_container(binds: list[Bind], script: str, *, patience: int = 300) -> subprocess.CompletedProcess[str]:
    """Run a shell script in a sandbox with a writable root, without a network, with simia's interpreter and these files."""
    isolation = require_isolation()
    assert isolation.bwrap is not None
    package = Path(simia.__file__).parent
    shown = {str(package), str(data_root()), sys.prefix, *list_interpreter_paths(sys.executable)}
    shown -= {str(package)} if package.is_relative_to(data_root()) else set()
    found = (*list_system_binds(isolation.bwrap), *((path, path) for path in sorted(shown)), *binds)
    variables = {**ENVIRONMENT, "PATH": f"{sys.prefix}/bin:/usr/bin:/bin", "HOME": "/root"}
    sandbox = BubblewrapSandbox(isolation, found, variables, PrivateFolder("/", SIZE))
    command = sandbox.command(["/bin/sh", "-c", script])
    return subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=patience, check=False
    )


def run_agent(task: Path, script: str = "sh /solution/solve.sh") -> str:
    """Run a script in the agent's container and return what it recorded. A script that fails fails the test."""
    binds = [(str(task / "environment"), "/opt/simia"), (str(task / "solution"), "/solution")]
    prepared = "mkdir -p /work /logs/artifacts && cd /work"
    done = run_container(binds, f"{prepared} && {{ {script}; }} >&2 && if test -f {EPISODES}; then cat {EPISODES}; fi")
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def run_verifier(task: Path, recorded: str, work: Path) -> float:
    """Run tests/test.sh in the verifier's container with what the agent's recorded, and return the reward that it wrote."""
    artifacts = work / "episodes.jsonl"
    artifacts.write_text(recorded)
    binds = [(str(task / "tests"), "/tests"), *([(str(artifacts), EPISODES)] if recorded else [])]
    done = run_container(binds, "mkdir -p /work && cd /work && sh /tests/test.sh >&2; cat /logs/verifier/reward.txt")
    assert done.returncode == 0, done.stderr[-4000:]
    return float(done.stdout)
