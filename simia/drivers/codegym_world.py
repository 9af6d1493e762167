"""The world of an imported CodeGym environment: a class `XEnv` with one method an action, `Done`, `get_ref_answer` and perhaps `solve`.

Runs in the sandbox only, on the pack's copy of this file. What it does differently from the environment's own `step`:

- inputs are JSON values and never pass through the string `XEnv@{…}`, whose readers fail on `true`, `null` and `@`;
- an action that raises is an error and is rolled back; `step` keeps what it had changed, and prints the error's text;
- `Done` answers `submitted` in place of the reference answer, and ends the episode: a second one does not count.

The state is the inputs with the calls so far, which are replayed to restore it.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import random
import sys
import types
from pathlib import Path
from typing import Any

JSON = Any


class CodeGymWorld:
    """One environment; the pack's `codegym.json` names its class, its actions and the one that submits the answer."""

    rolls_back = True

    def __init__(self, pack: Path) -> None:
        self.given: dict[str, Any] = json.loads((pack / "codegym.json").read_bytes())
        provide_gymnasium()
        self.kind = getattr(load_source(pack / "environment.py"), self.given["class"])
        self._begin({})

    def _begin(self, inputs: dict[str, JSON]) -> None:
        self.inputs, self.calls = inputs, list[JSON]()
        self.answer: JSON = None
        self.reward: float | None = None
        self.ended = False
        self._environment: Any = None

    @property
    def environment(self) -> Any:
        """The environment of the episode, made at the first call."""
        if self._environment is None:
            self._environment = make_environment(self.kind, self.inputs)
        return self._environment

    def reset(self, initial: dict[str, Any], seed: int) -> None:
        self._begin(initial.get("inputs", {}))

    def tools(self) -> dict[str, dict[str, bool]]:
        probe = {"describe": False} if self.given.get("probe") else {}
        return {"agent": {**dict.fromkeys(self.given["actions"], True), **probe}, "user": {}}

    def call(self, by: str, name: str, arguments: dict[str, Any], index: int) -> JSON:
        if name == "describe":
            return self.describe()
        kept = copy.deepcopy(arguments)  # the action may change its arguments
        value = getattr(self.environment, name)(**arguments)
        self.calls.append([name, kept])
        if name != self.given["done"]:
            return value if isinstance(value, str) else json.dumps(value)
        reward = self.environment.reward
        self.reward = float(reward() if callable(reward) else reward)
        self.answer, self.ended = kept, True
        return "submitted"

    def describe(self) -> dict[str, JSON]:
        """The reference answer of these inputs, and the calls of the environment's own solution; None where it has none or it fails."""
        answer = make_environment(self.kind, self.inputs).get_ref_answer()
        environment = make_environment(self.kind, self.inputs)
        calls: list[JSON] | None = []
        step = environment.step

        def record(action: str) -> Any:
            given = json.loads(action)
            assert calls is not None
            calls.append({"name": given["name"], "arguments": given.get("parameters", {})})
            return step(action)

        environment.step = record
        try:
            environment.solve()
        except Exception:
            calls = None
        return {"answer": json.loads(json.dumps(answer)), "calls": calls or None}

    def initial(self) -> dict[str, JSON]:
        return {"inputs": self.inputs, "calls": [], "answer": None, "reward": None}

    def dump(self) -> dict[str, JSON]:
        return {"inputs": self.inputs, "calls": list(self.calls), "answer": self.answer, "reward": self.reward}

    def restore(self, state: JSON) -> None:
        self._begin(state["inputs"])
        for name, arguments in state["calls"]:
            self.call("agent", name, copy.deepcopy(arguments), 0)


def make_environment(kind: Any, inputs: dict[str, JSON]) -> Any:
    """Make an environment with these inputs, by `reset(options)`; by its string where it cannot be made without one."""
    random.seed(0)
    options = copy.deepcopy(inputs)
    try:
        environment = kind()
    except TypeError:
        return kind.from_env_str(f"{kind.__name__}@{options!r}")
    environment.reset(options)
    return environment


def load_source(path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("codegym_environment", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def provide_gymnasium() -> None:
    """Provide a module `gymnasium` with an empty `Env`, which is all that these environments use of it, where there is none."""
    if importlib.util.find_spec("gymnasium") is None:
        module = types.ModuleType("gymnasium")
        module.Env = type("Env", (), {})  # type: ignore[attr-defined]
        sys.modules["gymnasium"] = module
