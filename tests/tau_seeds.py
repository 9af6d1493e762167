"""Our seeds in the form of APIGen-MT's file: retail and airline in turn, each with its system text and the tools that mark the domain."""

from __future__ import annotations

import json
from pathlib import Path

from simia import formats
from simia.pack import Pack
from simia.quality.suites import MARKS
from simia.tool import ToolSpec
from simia.trajectory import Trajectory

DOMAINS = ("retail", "airline")
EMPTY = {"type": "object", "properties": {}}


def write_apigen_seeds(path: Path) -> None:
    """Write the file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    seeds = [move_to_domain(seed, DOMAINS[n % 2]) for n, seed in enumerate(Pack.load("customer_service").seeds)]
    path.write_text(json.dumps([formats.get("apigen").write(seed) for seed in seeds]), encoding="utf-8")


def move_to_domain(seed: Trajectory, domain: str) -> Trajectory:
    """Return the seed with a system text of the domain, and with its tools."""
    marks = [ToolSpec(name=name, description="A change.", parameters=EMPTY) for name in sorted(MARKS[f"tau_{domain}"])]
    return seed.model_copy(update={"system": f"# {domain}\n{seed.system}", "tools": [*seed.tools, *marks]})
