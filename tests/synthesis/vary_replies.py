"""Replies to `simia synth vary` for tests/fake_endpoint.py: a writer of one variant, and an agent that never solves a task."""

from __future__ import annotations

from typing import Any

from tests.synthesis.varying_fixtures import GIVES_UP, GOOD


def respond(body: dict[str, Any]) -> str:
    """The reply to a request of the writer or of the agent."""
    writes = str(body["messages"][0]["content"]).startswith("You rewrite a task")
    return GOOD["cs-010/easier"] if writes else GIVES_UP
