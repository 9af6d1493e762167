"""Runs in verifiers' environment, where the exported package is on the path: evaluations by verifiers' own command.

python verifiers_probe.py MODEL-ENDPOINT SIMULATOR-ENDPOINT OUT
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import simia_customer_service as exported
import verifiers.v1 as vf
from verifiers.v1.cli.eval.main import main as evaluate

NAME = "simia-customer-service"
OUT = Path(sys.argv[3])


def run_evaluation(label: str, model: str, *more: str, url: str = sys.argv[1]) -> list[dict[str, Any]]:
    """Run `vf-eval` in this process and return the traces that it wrote."""
    words = [NAME, "-m", model, "--client.base-url", url, "--client.api-key-var", "NO_KEY"]
    words += ["--no-push", "--no-rich", "-o", str(OUT), "--run.name", label, "-n", "2", *more]
    with contextlib.redirect_stdout(io.StringIO()):
        evaluate(words)
    found = []
    for line in (OUT / label / "traces.jsonl").read_text().splitlines():
        episode = json.loads(line)
        (trace,) = episode["traces"]
        row = {"ok": episode["ok"], "task": episode["task"]["data"]["id"], "stop": trace["stop_condition"]}
        row |= {name: trace[name] for name in ("rewards", "metrics", "info", "errors")}
        found.append(row | {"roles": [node["message"]["role"] for node in trace["nodes"]]})
    return found


def refuse() -> str:
    """What a wrong setting says."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        evaluate([NAME, "-m", "x", "--no-push", "--env.taskset.settings", '{"usr": "llm"}'])
    return " ".join(said.getvalue().split())


def load() -> dict[str, Any]:
    """What `load_environment` returns for arguments."""
    found = {}
    for backend in ("executable", "simulated"):
        env = exported.load_environment(backend=backend, split="test")
        tasks = list(env.taskset)
        found[backend] = {
            "env": type(env).__name__,
            "is_env": isinstance(env, vf.Env),
            "splits": sorted({task.data.split for task in tasks}),
            "stages": [task.data.stage for task in tasks[:1]],
            "keys": [task.key for task in tasks[:1]],
        }
    return found


simulator = {
    "reward": "oracle",
    "llm": {"kind": "openai", "base_url": sys.argv[2], "model": "fake"},
}
told = {
    "load": load(),
    "refused": refuse(),
    "reference": run_evaluation("reference", "reference"),
    "idle": run_evaluation("idle", "idle"),
    "hermes": run_evaluation("hermes", "hermes", "--env.taskset.calls", "hermes"),
    "looping": run_evaluation("looping", "looping", "--env.agent.max-turns", "3"),
    "lost": run_evaluation("lost", "lost", url="http://127.0.0.1:9/v1"),
    "simulated": run_evaluation(
        "simulated", "reference", "--env.taskset.backend", "simulated", "--env.taskset.settings", json.dumps(simulator)
    ),
}
(OUT / "told.json").write_text(json.dumps(told))
