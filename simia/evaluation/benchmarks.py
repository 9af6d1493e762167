"""The benchmarks of the five papers, and which of them `simia eval` plays: benchmarks.yaml as data."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

import yaml

State = Literal["runs", "data", "no"]
WORDS: dict[State, str] = {"runs": "runs", "data": "runs with its data", "no": "not supported"}


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark of an evaluation section. `papers`: the tables that contain it; `suite`: its name in `simia eval`; `why`: the data that
    it needs, or why it is not supported."""

    name: str
    papers: str
    state: State
    why: str
    suite: str | None = None


def list_benchmarks() -> list[Benchmark]:
    """List all benchmarks, in the order of the file."""
    text = (files("simia.evaluation") / "benchmarks.yaml").read_text(encoding="utf-8")
    return [Benchmark(**row) for row in yaml.safe_load(text)]
