"""Exported tasks by Harbor's own models and lint, in an environment of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.exporting.test_harbor_tasks import export, make_pack

PROBE = Path(__file__).with_name("harbor_probe.py")


def test_harbors_models_and_lint_accept_every_exported_task(
    tmp_path: Path, environments: Callable[[str], Path]
) -> None:
    export(make_pack(tmp_path / "my_pack", lambda head: head.update(evaluation=True)), tmp_path / "out")
    done = subprocess.run(
        [environments("harbor"), "-P", PROBE, tmp_path / "out"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    assert set(found) == {"todo-1", "todo-2"}
    for name, task in found.items():
        assert task["name"] == f"my_pack/{name}"
        assert task["findings"] == [], "Harbor's lint by its default rules"
        assert task["metadata"]["evaluation_only"] is True
        assert [(each["transport"], each["command"], each["args"]) for each in task["servers"]] == [
            ("stdio", "sh", ["/opt/simia/serve.sh"])
        ]
        assert (task["solve"], task["test"]) == ("solution/solve.sh", "tests/test.sh")
        assert (task["verifier"], task["bundled"]) == ("tests", True), "the verifier has an image of its own"
    assert "What is left" in found["todo-2"]["instruction"] or "still open" in found["todo-2"]["instruction"]
