"""Fixtures that several rooms' tests share."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests import properties

settings.load_profile(properties.REPEATABLE)  # --hypothesis-profile=thorough replaces it

pytest_plugins = ["tests.fake_endpoint", "tests.attack_table"]


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own key must not turn a test into a paid call."""
    for name in ("OPENAI_API_KEY", "AZURE_OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
