"""Fixtures that several rooms' tests share."""

from __future__ import annotations

import pytest

pytest_plugins = ["tests.fake_endpoint"]


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own key must not turn a test into a paid call."""
    for name in ("OPENAI_API_KEY", "AZURE_OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
