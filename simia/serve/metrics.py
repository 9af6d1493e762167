"""Prometheus metrics of a server of environments, in a registry of its own."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from simia.serve.session_table import SessionTable, is_playing

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
CONTENT_TYPE = CONTENT_TYPE_LATEST


class ServerMetrics:
    """Counts of sessions, episodes, steps and refusals, by pack."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        pack = ("pack",)
        self._sessions = Gauge("simia_sessions", "Sessions now.", ("pack", "state"), registry=registry)
        self._playing = Gauge("simia_episodes_playing", "Episodes in progress.", pack, registry=registry)
        self._draining = Gauge("simia_draining", "1 while the server begins no episodes.", registry=registry)
        self._most = Gauge("simia_sessions_limit", "Sessions that the server admits.", registry=registry)
        self._resets = Histogram("simia_reset_seconds", "Time of a reset.", pack, registry=registry, buckets=SECONDS)
        self._steps = Histogram("simia_step_seconds", "Time of a step.", pack, registry=registry, buckets=SECONDS)
        self.episodes = Counter("simia_episodes", "Episodes that ended.", ("pack", "end"), registry=registry)
        self.refused = Counter("simia_refused", "Connections that were refused.", ("reason",), registry=registry)
        self.resumed = Counter("simia_resumed", "Sessions that a new connection continued.", pack, registry=registry)
        self.ended = Counter("simia_sessions_ended", "Sessions that ended.", ("pack", "reason"), registry=registry)
        self.errors = Counter(
            "simia_errors", "Messages that were answered with an error.", ("code",), registry=registry
        )

    def watch(self, table: SessionTable, packs: list[str]) -> None:
        """Read the gauges from the table of sessions whenever metrics are requested."""

        def count(name: str, connected: bool) -> Callable[[], float]:
            return lambda: sum(
                each.served.name == name and (each.detach is not None) is connected for each in table.sessions
            )

        def playing(name: str) -> Callable[[], float]:
            return lambda: sum(each.served.name == name and is_playing(each) for each in table.sessions)

        for name in packs:
            self._sessions.labels(name, "connected").set_function(count(name, True))
            self._sessions.labels(name, "leased").set_function(count(name, False))
            self._playing.labels(name).set_function(playing(name))
        self._draining.set_function(lambda: float(table.draining))
        self._most.set_function(lambda: table.most)

    def time_resets(self, pack: str) -> Callable[[float], None]:
        """Return the function that records the seconds of a reset."""
        return self._resets.labels(pack).observe

    def time_steps(self, pack: str) -> Callable[[float], None]:
        """Return the function that records the seconds of a step."""
        return self._steps.labels(pack).observe

    def write(self) -> bytes:
        """Write all metrics in Prometheus' text format."""
        return generate_latest(self.registry)
