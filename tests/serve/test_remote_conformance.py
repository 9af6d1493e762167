"""The adapters' conformance suite on a remote environment: a server with the case's settings, and its address."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client")

from simia import event_loop
from simia.envs.opening import open_environment
from tests.fake_endpoint import FakeEndpoint
from tests.serve.environment_servers import PortalServer
from tests.trainers.conformance import Plain, check


class Remote(Plain):
    """The plain environment, opened by its address."""

    shares = True

    def open(self, stage: dict[str, Any]) -> None:
        self.portal = PortalServer(stage)
        self.environment = event_loop.run(open_environment(self.portal.running.url))
        self.episode = None
        self.contents: list[str] = []

    def close(self) -> None:
        super().close()
        self.portal.close()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[FakeEndpoint]:
    served = FakeEndpoint("--respond", "tests.trainers.conformance:stage")
    yield served
    served.stop()


@pytest.mark.parametrize(
    ("pack", "kind", "checks"),
    [
        ("customer_service", "executable", 8),
        pytest.param("customer_service", "simulated", 9, marks=pytest.mark.all),
        ("office", "simulated", 9),
    ],
)
def test_a_remote_environment_shows_what_the_plain_one_shows(
    endpoint: FakeEndpoint, pack: str, kind: str, checks: int
) -> None:
    compare(endpoint, pack, kind, checks)


def test_the_code_of_the_office_needs_its_environment(
    endpoint: FakeEndpoint, environments: Callable[[str], Path]
) -> None:
    environments("office")
    compare(endpoint, "office", "executable", 1)


def compare(endpoint: FakeEndpoint, pack: str, kind: str, checks: int) -> None:
    found = check(Remote, endpoint.url, [pack], [kind])
    assert {name: why for name, why in found.items() if why} == {}
    assert len(found) == checks
