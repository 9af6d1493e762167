"""The lending library: written by hand as a strong model would, as replies and as the environment that they lead to."""

from __future__ import annotations

from pathlib import Path

from simia.synthesis.design import BuiltEnvironment

FIXTURES = Path(__file__).parent / "fixtures"
REPLIES = FIXTURES / "build"


def load_library() -> BuiltEnvironment:
    """The library with its seven tools, as stage `environments` hands it on."""
    return BuiltEnvironment.model_validate_json((FIXTURES / "library.json").read_bytes())
