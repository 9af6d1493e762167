"""Environments in words, for the tests of `simia import gymnasium`: it is copied into a pack and run there."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import gymnasium  # type: ignore[import-not-found]
import numpy
from gymnasium import spaces

COLOURS = ("red", "green", "blue")


class Guess(gymnasium.Env):  # type: ignore[misc]
    """Guess the colour that is thought of.

    ## Arguments
    tries: how many tries there are
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, tries: int = 3) -> None:
        self.tries = self.left = tries
        self.secret = ""
        self.observation_space = spaces.Text(200)
        self.action_space = spaces.Text(20)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.secret = COLOURS[self.np_random.integers(3)]
        self.left = self.tries
        return f"I think of a colour. You have {self.left} tries.", {"secret": self.secret}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not action.islower():
            raise ValueError("colours are written in small letters")
        self.left -= 1
        if action == self.secret:
            return "Yes!", 1.0, True, False, {}
        return f"No. {self.left} tries left.", -0.25, self.left == 0, False, {}


class Restless(Guess):
    """It draws from the machine."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return f"Number {os.urandom(8).hex()}", {}


class Shelf(Guess):
    """Several values at once."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict(
            {"place": spaces.Discrete(9), "marks": spaces.Box(0, 9, (2, 2), numpy.int64), "say": spaces.Text(50)}
        )
        self.action_space = spaces.Dict(
            {
                "arm": spaces.Discrete(3, start=1),
                "steps": spaces.MultiDiscrete([2, 5]),
                "lights": spaces.MultiBinary(3),
                "word": spaces.Text(9),
            }
        )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return {"place": numpy.int64(4), "marks": numpy.zeros((2, 2), numpy.int64), "say": "ready"}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        seen = {"place": numpy.int64(action["arm"]), "marks": numpy.ones((2, 2), numpy.int64), "say": action["word"]}
        return seen, float(action["steps"].sum()), False, bool(action["lights"].all()), {}


class Named(Guess):
    """Its actions have names."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Discrete(3)

    def get_action_meanings(self) -> list[str]:
        return list(COLOURS)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return super().step(COLOURS[action])


class Shell(Guess):
    """It starts a program at each step, which a process of one of many episodes may not."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        said = subprocess.run(["echo", str(action)], capture_output=True, text=True, check=True).stdout.strip()
        return said, 0.5, False, False, {}


class Film(Guess):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0, 255, (64, 64, 3), numpy.uint8)


class Steering(Guess):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(-1.0, 1.0, (2,), numpy.float32)


for made in (Guess, Restless, Shelf, Named, Shell, Film, Steering):
    gymnasium.register(f"{made.__name__}-v0", entry_point=made)
