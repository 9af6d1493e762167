"""Runs in Harbor's environment: `harbor_probe.py FOLDER` checks every task in it by Harbor's own models and lint, and prints what they say.

Harbor is written for Python 3.12. What these lack in Python 3.11 is `typing.override`, a decorator without an effect, and a `TypedDict` that
pydantic reads.
"""

import json
import sys
import typing
import warnings
from pathlib import Path

import typing_extensions

typing.override = typing_extensions.override  # type: ignore[attr-defined]
typing.TypedDict = typing_extensions.TypedDict  # type: ignore[assignment]

from harbor.lint import lint_task  # type: ignore[import-not-found]  # noqa: E402
from harbor.lint.models import DEFAULT_RULES  # type: ignore[import-not-found]  # noqa: E402
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
        "findings": [str(finding) for finding in lint_task(folder, selected_rules=set(DEFAULT_RULES))],
    }
print(json.dumps(found))
