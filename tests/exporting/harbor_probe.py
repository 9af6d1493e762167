"""Runs in Harbor's environment: `harbor_probe.py FOLDER` reads every task in it by Harbor's own models and prints what they say.

Harbor is written for Python 3.12. What its models lack in Python 3.11 is `typing.override`, a decorator without an effect.
"""

import json
import sys
import typing
import warnings
from pathlib import Path

import typing_extensions

typing.override = typing_extensions.override  # type: ignore[attr-defined]

from harbor.models.task.task import Task  # type: ignore[import-not-found]  # noqa: E402
from harbor.models.task.verifier_mode import (  # type: ignore[import-not-found]  # noqa: E402
    resolve_verifier_environment_definition,
)

warnings.simplefilter("error")
found = {}
for folder in sorted(path.parent for path in Path(sys.argv[1]).glob("*/task.toml")):
    task = Task(folder)
    verifier = resolve_verifier_environment_definition(task.config, task.paths)
    found[folder.name] = {
        "name": task.name,
        "instruction": task.instruction,
        "metadata": task.config.metadata,
        "servers": [server.model_dump() for server in task.config.environment.mcp_servers],
        "healthcheck": task.config.environment.healthcheck.command,
        "solve": str(task.paths.discovered_solve_path.relative_to(folder)),
        "test": str(task.paths.discovered_test_path.relative_to(folder)),
        "verifier": str(verifier.directory.relative_to(folder)),
        "bundled": verifier.bundled_tests,
        "unknown": sorted(set(task.config.model_extra or {})),
    }
print(json.dumps(found))
