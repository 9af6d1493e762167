"""The driver of a Gymnasium environment whose observations are text or a few values: it stands behind one tool, `act`.

It is copied into each imported pack as `tools.py` and runs with the interpreter of that pack: the standard library, gymnasium
and what the environment needs, nothing of simia. The state is the task's seed and the actions since, with what they earned;
to set a state back, the environment is reset with that seed and the actions are played again. What an environment draws from
Python's or NumPy's common generators follows from the seed too. `textarena:NAME` plays a game of TextArena for one player,
which has methods of its own. While a pack is made, a second tool tells the importer what it needs to know.
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
from gymnasium import spaces  # noqa: E402
from gymnasium_text import (  # type: ignore[import-not-found]  # noqa: E402
    UnsupportedSpace,
    check_observation_space,
    describe_environment,
    find_action_names,
    make_action_schema,
    observation_to_json,
    parse_action,
    render_text,
)

numpy: Any = importlib.import_module("numpy")
JSON = Any
WALK = 8
NOT_TAKEN = (ArithmeticError, AssertionError, LookupError, TypeError, ValueError, gymnasium.error.Error)


class GymnasiumRefusal(Exception):  # noqa: N818 - the tool's own word
    """What the environment says of an action that it does not take."""

    __simia_refusal__ = True


class GymnasiumWorld:
    """One environment; the pack's `gymnasium.json` names it."""

    rolls_back = True  # by playing the steps again; not where the environment does not repeat itself

    def __init__(self, pack: Path, root: Path | None = None) -> None:
        self.given: dict[str, Any] = json.loads((pack / "gymnasium.json").read_bytes())
        GymnasiumWorld.rolls_back = self.given["repeatable"]
        sys.path.insert(0, str(pack / "modules"))
        for name in self.given["modules"]:
            importlib.import_module(name)
        self.env = make_environment(self.given)
        self.names = find_action_names(self.env, self.given.get("actions"))
        self.untouched = True
        self.shown: dict[str, JSON] = {}
        self._begin(0)

    def _begin(self, seed: int) -> None:
        self.seed, self.actions, self.total = seed, list[JSON](), 0.0
        self.terminated = self.truncated = self.ended = False

    def reset(self, initial: dict[str, Any], seed: int) -> None:
        """Begin an episode with the task's seed, in an environment that no earlier episode has used."""
        if not self.untouched:
            self.env.close()
            self.env = make_environment(self.given)
        self.untouched = False
        self._begin(int(initial.get("seed", seed)))
        seed_generators(self.seed)
        observation, _ = self.env.reset(seed=self.seed)
        self.shown = self._convert_observation(observation)

    def _convert_observation(self, observation: Any) -> dict[str, JSON]:
        """An observation as JSON, and the environment's own picture of it in characters where it draws one."""
        screen = render_text(self.env)
        return {"observation": observation_to_json(observation), **({"screen": screen} if screen else {})}

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
        """One step. What the environment does not take, it says in an error: the agent reads it."""
        if self.terminated or self.truncated:
            raise GymnasiumRefusal("the episode is over")
        taken = parse_action(self.env.action_space, action, self.names)
        try:
            observation, reward, terminated, truncated, _ = self.env.step(taken)
        except NOT_TAKEN as error:
            raise GymnasiumRefusal(
                f"the environment does not take this action: {type(error).__name__}: {error}"[:500]
            ) from None
        self.actions.append(action)
        self.total = round(self.total + float(reward), 9)
        self.terminated, self.truncated = bool(terminated), bool(truncated)
        self.ended = self.terminated or self.truncated
        self.shown = self._convert_observation(observation)
        return {
            **self.shown,
            "reward": round(float(reward), 9),
            "total_reward": self.total,
            "terminated": self.terminated,
            "truncated": self.truncated,
        }

    def initial(self) -> dict[str, JSON]:
        """The state at the start of the episode, which needs no second reset."""
        nothing = {"actions": [], "total_reward": 0.0, "terminated": False, "truncated": False, "steps": 0}
        return {"seed": self.seed, **nothing}

    def dump(self) -> dict[str, JSON]:
        return {
            "seed": self.seed,
            "actions": list(self.actions),
            "total_reward": self.total,
            "terminated": self.terminated,
            "truncated": self.truncated,
            "steps": len(self.actions),
        }

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
        """What it is, and the first observations of `count` seeds; `unfit` where it cannot be played by text."""
        try:
            check_observation_space(self.env.observation_space, "observations")
            action = make_action_schema(self.env.action_space, self.names)
        except UnsupportedSpace as error:
            return {"unfit": str(error)}
        starts = []
        for seed in range(first, first + count):
            self.reset({"seed": seed}, 0)
            starts.append({**self.shown, "walk": self.walk()})
        return {
            "action": action,
            "about": describe_environment(self.env),
            "limit": getattr(getattr(self.env, "spec", None), "max_episode_steps", None),
            "packages": sorted(f"{each.name}=={each.version}" for each in importlib.metadata.distributions()),
            "starts": starts,
        }

    def walk(self) -> str:
        """A digest of what a few random actions bring about: it shows whether an environment repeats itself."""
        space = self.env.action_space
        space.seed(self.seed)
        told: list[JSON] = []
        for _ in range(WALK):
            if self.ended:
                break
            try:
                observation, reward, self.terminated, self.truncated, _ = self.env.step(space.sample())
            except Exception as error:
                if self.given["isolation"] == "process" and not isinstance(error, NOT_TAKEN):
                    raise  # what a process may not do, a sandbox may
                told.append(f"{type(error).__name__}: {error}")
                break
            self.ended = bool(self.terminated or self.truncated)
            told.append([self._convert_observation(observation), float(reward), self.ended])
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def seed_generators(seed: int) -> None:
    """The generators that all code of the process shares."""
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
    """A game of TextArena for one player with Gymnasium's methods. An observation is what is new in the game's record."""

    render_mode = None

    def __init__(self, name: str, kwargs: dict[str, Any]) -> None:
        self.inner = importlib.import_module("textarena").make(name, **kwargs)
        self.observation_space = spaces.Text(100_000)
        self.action_space = spaces.Text(2_000)
        self.told = ""

    @property
    def unwrapped(self) -> Any:
        inner = self.inner
        while hasattr(inner, "env"):
            inner = inner.env
        return inner

    def read_news(self) -> str:
        before, (_, told) = self.told, self.inner.get_observation()
        self.told = told if isinstance(told, str) else "\n".join(str(each[1]) for each in told)
        fresh = self.told.startswith(before)
        return self.told[len(before) :].strip("\n") if fresh else self.told

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        self.inner.reset(num_players=1, seed=seed)
        self.told = ""
        return self.read_news(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        done, _ = self.inner.step(action)
        if not done:
            return self.read_news(), 0.0, False, False, {}
        rewards, facts = self.inner.close()
        return str(facts.get(0, {}).get("reason", "The game is over.")), float(rewards[0]), True, False, {}

    def close(self) -> None:
        return None
