"""Sources of our own writing, the replies that they lead to, and a run of the recipe `envfactory` with them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from simia.config import parse_config
from simia.synthesis import session
from simia.synthesis.recipes.envfactory import EnvFactoryConfig
from tests.synthesis.scenario_fixtures import ServingBackend

FOLDER = Path(__file__).parent / "fixtures" / "sources"
DOCUMENTS, SERVER = FOLDER / "documents", FOLDER / "garden_server.py"
GOOD: dict[str, str] = yaml.safe_load((FOLDER / "good.yaml").read_text())
BAD: dict[str, dict[str, Any]] = yaml.safe_load((FOLDER / "bad.yaml").read_text())
SMALL = {
    "conversations": {"plans": {"number": 0}},
    "pool": ["customer_service"],
    "proposals": {"rounds": 2, "number": 5},
    "building": {"operations": 4, "kept": 3, "tests": 3, "debug_rounds": 3, "random_calls": 20},
}
PROPOSALS = "proposals1/all.proposals-0"


def add_proposals(reply: str, *names: str) -> str:
    """A reply of proposals with bad ones after its own."""
    rows = json.loads(reply.removeprefix("```json").strip().removesuffix("```"))
    return f"```json\n{json.dumps([*rows, *(BAD[name] for name in names)])}\n```"


def make_packs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, sources: Sequence[Path | str], replies: Mapping[str, str], *,
    slow: bool = False, **settings: Any,
) -> tuple[session.Synthesized, ServingBackend]:  # fmt: skip
    """Run the recipe on sources with these replies."""
    backend = ServingBackend(replies, slow=slow)
    monkeypatch.setattr(session, "open_backend", lambda *_, **__: backend)
    config = parse_config(EnvFactoryConfig, {**SMALL, "sources": list(map(str, sources)), **settings}, where="the test")
    done = asyncio.run(
        session.start_synthesis(config, folder / "packs", runs=folder / "runs", name="run", say=lambda _: None)
    )
    return done, backend
