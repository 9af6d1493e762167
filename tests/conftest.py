"""Fixtures for all tests, and the groups that `make test`, `make test-models` and `make test-trainers` run.

A test belongs to a group because of the fixtures that it requests, itself or through other fixtures:

- `environments` builds virtual environments or downloads packages: the test is marked `trainers`;
- `weights` or `local_model` fetches a model for this machine: the test is marked `models`, unless it is marked `trainers`;
- `all` is set by hand on tests that take minutes.

Every other test runs in `make test`, which offers neither a package index nor a cache, so that a test without its fixture fails.

A test that hangs fails after `MOST_SECONDS`, with the stacks of its threads.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from typer import testing

from simia.llm import local_models
from simia.venvs import ensure_environment
from tests import properties
from tests.fake_endpoint import FakeEndpoint

settings.load_profile(properties.REPEATABLE)  # --hypothesis-profile=thorough replaces it

pytest_plugins = ["tests.attack_table"]

build_command = functools.cache(testing._get_command)
testing._get_command = (
    build_command  # typer's runner reads all signatures at each call, which takes longer than most commands
)

SHARED = ("trl", "trainer", "notes", "state_shop", "packs", "small_pack", "whole_pack")
"""Fixtures of a session that are costly: the tests that request one run in one worker, in this order of preference."""
MOST_SECONDS = {"all": 7_200, "trainers": 1_800, "models": 1_800, "": 600}
"""Of a test by its group, on a busy machine: ten times what the slowest takes on an idle one. The first that applies counts."""


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own key must not turn a test into a paid call, nor their folder of runs receive a test's."""
    for name in ("OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "SIMIA_RUNS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def environments() -> Callable[[str], Path]:
    """Return the interpreter of the environment of that name, which is built in the cache if it is not there."""
    return lambda name: ensure_environment(name, say=print)


@pytest.fixture(scope="session")
def weights() -> Path:
    """The file of the smallest model in the cache. Without a network this fails with a line that says so: a skip would hide it."""
    return local_models.fetch_model(local_models.FALLBACK, say=print)


@pytest.fixture(scope="session")
def local_model() -> Path:
    """The file of the model that `simia amplify` starts with, in the cache."""
    return local_models.fetch_model(local_models.DEFAULT, say=print)


@pytest.fixture(scope="module")
def _fake_endpoint_process() -> Iterator[FakeEndpoint]:
    endpoint = FakeEndpoint()
    yield endpoint
    endpoint.stop()


@pytest.fixture
def fake_endpoint(_fake_endpoint_process: FakeEndpoint) -> FakeEndpoint:
    _fake_endpoint_process.plan()
    return _fake_endpoint_process


def pytest_configure() -> None:
    gc.disable()  # collecting makes a million objects and no garbage


def pytest_collection_finish() -> None:
    """Exempt what collecting has made from garbage collection: every full collection of a worker would look at all of it."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its group, before `-m` chooses, and with the worker's group of its costly fixtures."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        if "environments" in names:
            item.add_marker("trainers")
        elif "weights" in names or "local_model" in names:
            item.add_marker("models")
        if not item.get_closest_marker("timeout"):
            most = next(most for name, most in MOST_SECONDS.items() if not name or item.get_closest_marker(name))
            item.add_marker(pytest.mark.timeout(most))
        group = worker_group(item)
        if group and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(group))


def worker_group(item: pytest.Item) -> str | None:
    """The costly fixture that the test shares with tests of other modules, or its module when it has a fixture for the module."""
    info = getattr(item, "_fixtureinfo", None)
    definitions = info.name2fixturedefs if info else {}
    ours = {name: each[-1].scope for name, each in definitions.items() if each and each[-1].baseid.startswith("tests")}
    for name in SHARED:
        if ours.get(name) == "session":
            return name
    return item.nodeid.partition("::")[0] if "module" in ours.values() else None
