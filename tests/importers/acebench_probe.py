"""ACEBench's own verdict over calls, given as JSON on stdin: `acebench_probe.py FOLDER`. Its code runs here, outside of simia.

Rows: `id`, and `calls` as `[name, arguments]`. Prints a list of booleans: the end-to-end accuracy of each row, by the functions that run
calls and compare classes, and the rules of `agent_eval` around them.
"""

from __future__ import annotations

import ast
import importlib
import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
sys.path.insert(0, str(FOLDER))
run_calls = importlib.import_module("model_inference.multi_step.multi_step_utils").execute_agent_func_call


def read_function(path: Path, name: str) -> Any:
    """One function of a module whose other parts need packages."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    wanted = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == name]
    space: dict[str, Any] = {}
    exec(compile(ast.Module(wanted, []), str(path), "exec"), space)
    return space[name]


def read_saved() -> dict[str, list[str]]:
    tree = ast.parse((FOLDER / "model_inference" / "apimodel_inference.py").read_text(encoding="utf-8"))
    found = next(
        each for each in tree.body if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "SAVED_CLASS"
    )
    return dict(ast.literal_eval(found.value))


def judge(task: dict[str, Any], expected: Any, calls: list[Any], number: int) -> bool:
    instances: dict[str, Any] = {}
    for name, arguments in calls:
        text = f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
        _, instances = run_calls([text], task["initial_config"], task["involved_classes"], "m", f"t{number}", "en")
    saved = read_saved()
    states = [{n: {k: v for k, v in vars(each).items() if k in saved[n]}} for n, each in instances.items()]
    states = json.loads(json.dumps(states))
    expected = expected if isinstance(expected, list) else [expected]
    if len(expected) != len(states):
        return False
    compare, good = read_function(FOLDER / "model_eval" / "checker.py", "agent_checker"), True
    for part in expected:
        match = next((state for state in states if set(state) == set(part)), None)
        good = good and (match is None or compare(match, part)["valid"])
    return good


def main() -> None:
    data, tasks, truths = FOLDER / "data_all" / "data_en", {}, {}
    for category in ("multi_step", "multi_turn"):
        for path, found in ((data, tasks), (data / "possible_answer", truths)):
            for line in (path / f"data_agent_{category}.json").read_text(encoding="utf-8").splitlines():
                found[json.loads(line)["id"]] = json.loads(line)
    rows = json.load(sys.stdin)
    verdicts = [
        judge(tasks[row["id"]], truths[row["id"]]["ground_truth"], row["calls"], n) for n, row in enumerate(rows)
    ]
    json.dump(verdicts, sys.stdout)


if __name__ == "__main__":
    main()
