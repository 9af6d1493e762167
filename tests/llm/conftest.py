"""The weights of the smallest local model, fetched once."""

from pathlib import Path

import pytest

from simia.llm import local_models as models


@pytest.fixture(scope="session")
def weights() -> Path:
    """The file in the cache. Without a network this fails with the line that says so: a skip would hide it."""
    return models.fetch(models.FALLBACK, say=print)
