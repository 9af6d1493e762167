"""Runs in the environment of OpenEnv's package: `openenv_folder_probe.py FOLDER URL OUT` checks an exported folder and plays its server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from openenv.cli._validation import get_deployment_modes, validate_running_environment
from openenv.core import GenericEnvClient
from openenv.validation import Level, run_validation

from simia.envs.play.baseline_agents import NOTHING, ReferenceAgent
from simia.formats.tagged_calls import write_tagged
from simia.pack import Pack

folder, url = Path(sys.argv[1]), sys.argv[2]
pack = Pack.load(folder / "pack")


def play(messages: list[str], task: str) -> list[Any]:
    """Play an episode by OpenEnv's own client and return its end and its reward."""
    with GenericEnvClient(base_url=url).sync() as env:
        result = env.reset(task=task)
        for message in messages:
            result = env.step({"message": message})
        return [result.done, result.observation["end"], result.reward]


def solve(task: str) -> list[str]:
    """The messages of the solution as text."""
    return [write_tagged(each.text, each.calls) for each in ReferenceAgent(pack.task(task))._messages]


report = run_validation(folder, max_level=Level.STATIC, skip_build=True)
tasks = [task.id for task in pack.tasks[:2]]
shown = subprocess.run(
    [sys.executable, folder / "client.py", url, tasks[0]], capture_output=True, text=True, check=False
)
told = {
    "static": report.verdict.value,
    "manifest": report.manifest.model_dump(mode="json"),
    "running": validate_running_environment(url),
    "modes": get_deployment_modes(folder),
    "solved": [play(solve(task), task) for task in tasks],
    "idle": [play([NOTHING], task) for task in tasks],
    "client": [shown.returncode, shown.stdout, shown.stderr],
}
Path(sys.argv[3]).write_text(json.dumps(told))
