"""The driver of a Gymnasium environment whose observations are text or a few values. It has one tool, `act`.

It is copied into each imported pack as `tools.py` and runs with the interpreter of that pack: the standard library, gymnasium
and the environment's dependencies, nothing of simia. The state is the task's seed and the actions so far, with their rewards.
To restore a state, the driver resets the environment with that seed and replays the actions. The global generators of Python
and NumPy are seeded too. `textarena:NAME` plays a single-player game of TextArena, which has its own interface. While a pack
is being made, two more tools describe the environment to the importer.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import json
import os
import random
import sys
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("HOME", "/tmp")  # libraries look for their settings there
warnings.filterwarnings("ignore")

import gymnasium  # type: ignore[import-not-found]  # noqa: E402
import gymnasium_text as texts  # type: ignore[import-not-found]  # noqa: E402
from gymnasium import spaces  # noqa: E402

numpy: Any = importlib.import_module("numpy")
JSON = Any
WALK = 8
NOT_TAKEN = (ArithmeticError, AssertionError, LookupError, TypeError, ValueError, gymnasium.error.Error)


class GymnasiumRefusal(Exception):  # noqa: N818 - the tool's own word
    """The environment refuses an action."""

    __simia_refusal__ = True


class GymnasiumWorld:
    """One environment; the pack's `gymnasium.json` names it."""

    rolls_back = True  # by replaying the steps; False if the environment is not deterministic

    def __init__(self, pack: Path, root: Path | None = None) -> None:
        self.given: dict[str, Any] = json.loads((pack / "gymnasium.json").read_bytes())
        GymnasiumWorld.rolls_back = self.given["repeatable"]
        sys.path.insert(0, str(pack / "modules"))
        for name in self.given["modules"]:
            importlib.import_module(name)
        self.env = make_environment(self.given)
        self.names = texts.find_action_names(self.env, self.given.get("actions"))
        self.untouched = True
        self.shown: dict[str, JSON] = {}
        self._begin(0)

    def _begin(self, seed: int) -> None:
        self.seed, self.actions, self.total = seed, list[JSON](), 0.0
        self.terminated = self.truncated = self.ended = False

    def reset(self, initial: dict[str, Any], seed: int) -> None:
        """Begin an episode with the task's seed, in an environment that was not used before."""
        if not self.untouched:
            self.env.close()
            self.env = make_environment(self.given)
        self.untouched = False
        self._begin(int(initial.get("seed", seed)))
        seed_generators(self.seed)
        observation, _ = self.env.reset(seed=self.seed)
        self.shown = self._convert_observation(observation)

    def _convert_observation(self, observation: Any) -> dict[str, JSON]:
        """Convert an observation to JSON, with the environment's text rendering if it has one."""
        screen = texts.render_text(self.env)
        return {"observation": texts.observation_to_json(observation), **({"screen": screen} if screen else {})}

    def tools(self) -> dict[str, dict[str, bool]]:
        probe = {"describe": False, "look": False} if self.given.get("probe") else {}
        return {"agent": {"act": True, **probe}, "user": {}}

    def call(self, by: str, name: str, arguments: dict[str, Any], index: int) -> JSON:
        if name == "describe":
            return self.describe(arguments["first"], arguments["count"])
        if name == "look":
            return {**self.shown, "walk": self.walk()}
        return self.act(arguments["action"])

    def act(self, action: JSON) -> dict[str, JSON]:
        """Take one step. An error of the environment becomes a refusal that the agent reads."""
        if self.ended:
            raise GymnasiumRefusal("the episode is over")
        taken = texts.parse_action(self.env.action_space, action, self.names)
        try:
            observation, reward, terminated, truncated, _ = self.env.step(taken)
        except NOT_TAKEN as error:
            words = f"the environment does not take this action: {type(error).__name__}: {error}"
            raise GymnasiumRefusal(words[:500]) from None
        self.actions.append(action)
        self.total = round(self.total + float(reward), 9)
        self.terminated, self.truncated = bool(terminated), bool(truncated)
        self.ended = self.terminated or self.truncated
        self.shown = self._convert_observation(observation)
        return {**self.shown, "reward": round(float(reward), 9), **self._outcome()}

    def _outcome(self) -> dict[str, JSON]:
        return {"total_reward": self.total, "terminated": self.terminated, "truncated": self.truncated}

    def initial(self) -> dict[str, JSON]:
        """Return the state at the start of the episode, without a reset."""
        nothing = {"total_reward": 0.0, "terminated": False, "truncated": False, "steps": 0}
        return {"seed": self.seed, "actions": [], **nothing}

    def dump(self) -> dict[str, JSON]:
        steps = len(self.actions)
        return {"seed": self.seed, "actions": list(self.actions), **self._outcome(), "steps": steps}

    def restore(self, state: JSON) -> None:
        self.reset({"seed": state["seed"]}, 0)
        for action in state["actions"]:
            self.act(action)
        if self.dump() != state:
            raise RuntimeError("the environment does not repeat itself: the same seed and actions gave another state")

    def check(self, name: str, by: str, arguments: dict[str, Any]) -> object:
        raise ValueError("this world has no checks: its reward is a value of the final state")

    # -- for the importer -----------------------------------------------------------------------------------------

    def describe(self, first: int, count: int) -> dict[str, JSON]:
        """Describe the environment with the first observations of `count` seeds; `unfit` if it cannot be played by text."""
        try:
            texts.check_observation_space(self.env.observation_space, "observations")
            action = texts.make_action_schema(self.env.action_space, self.names)
        except texts.UnsupportedSpace as error:
            return {"unfit": str(error)}
        starts = []
        for seed in range(first, first + count):
            self.reset({"seed": seed}, 0)
            starts.append({**self.shown, "walk": self.walk()})
        return {
            "action": action,
            "about": texts.describe_environment(self.env),
            "limit": getattr(getattr(self.env, "spec", None), "max_episode_steps", None),
            "packages": sorted(f"{each.name}=={each.version}" for each in importlib.metadata.distributions()),
            "starts": starts,
        }

    def walk(self) -> str:
        """Return a digest of the results of a few random actions, which tests whether an environment is deterministic."""
        space = self.env.action_space
        space.seed(self.seed)
        results: list[JSON] = []
        for _ in range(WALK):
            if self.ended:
                break
            try:
                observation, reward, self.terminated, self.truncated, _ = self.env.step(space.sample())
            except Exception as error:
                if self.given["isolation"] == "process" and not isinstance(error, NOT_TAKEN):
                    raise  # may work in a sandbox
                results.append(f"{type(error).__name__}: {error}")
                break
            self.ended = bool(self.terminated or self.truncated)
            results.append([self._convert_observation(observation), float(reward), self.ended])
        return hashlib.sha256(json.dumps(results, sort_keys=True).encode()).hexdigest()


def seed_generators(seed: int) -> None:
    """Seed the global generators of Python and NumPy."""
    random.seed(seed)
    numpy.random.seed(seed % 2**32)


def make_environment(given: dict[str, Any]) -> Any:
    seed_generators(0)
    name, kwargs = str(given["id"]), dict(given["kwargs"])
    if name.startswith("textarena:"):
        return TextArenaGame(name.partition(":")[2], kwargs)
    env = gymnasium.make(name, disable_env_checker=True, **kwargs)
    if "render_mode" not in kwargs and env.render_mode is None and "ansi" in env.metadata.get("render_modes", ()):
        env.close()
        env = gymnasium.make(name, disable_env_checker=True, render_mode="ansi", **kwargs)
    return env


class TextArenaGame:
    """A single-player game of TextArena with Gymnasium's methods. An observation is the new part of the game's log."""

    render_mode = None

    def __init__(self, name: str, kwargs: dict[str, Any]) -> None:
        self.inner = importlib.import_module("textarena").make(name, **kwargs)
        self.observation_space = spaces.Text(100_000)
        self.action_space = spaces.Text(2_000)
        self.log = ""

    @property
    def unwrapped(self) -> Any:
        inner = self.inner
        while hasattr(inner, "env"):
            inner = inner.env
        return inner

    def read_news(self) -> str:
        before, (_, log) = self.log, self.inner.get_observation()
        self.log = log if isinstance(log, str) else "\n".join(str(each[1]) for each in log)
        continued = self.log.startswith(before)
        return self.log[len(before) :].strip("\n") if continued else self.log

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        self.inner.reset(num_players=1, seed=seed)
        self.log = ""
        return self.read_news(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        done, _ = self.inner.step(action)
        if not done:
            return self.read_news(), 0.0, False, False, {}
        rewards, facts = self.inner.close()
        return str(facts.get(0, {}).get("reason", "The game is over.")), float(rewards[0]), True, False, {}

    def close(self) -> None:
        return None
