"""Start workers as Ray actors, each bound to one node, and open the cluster that a config names."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from simia.errors import UserError
from simia.jobs.nodes.cluster import Cluster
from simia.jobs.nodes.node_worker import NodeWorker
from simia.jobs.nodes.settings import ClusterSettings
from simia.jobs.nodes.worker_channel import NodeLost, WorkerHandle

STARTING = 180.0  # seconds until a worker's process must be there
AT_ONCE = 1000  # calls of one worker; a batch of messages is one call


def open_cluster(
    settings: ClusterSettings, say: Callable[[str], None], *, needs_sandbox: bool = False
) -> Cluster | None:
    """Return the cluster of a config, not connected; None for a job that works in this process. Raises `UserError`."""
    if settings.kind == "local":
        return None
    try:
        import ray  # noqa: F401
    except ImportError:
        raise UserError("engine.kind is ray, and Ray is not installed: pip install 'simia[ray]' on all nodes") from None
    return Cluster(RayLauncher(settings), settings, say, needs_sandbox=needs_sandbox)


class RayLauncher:
    """A connection to a Ray cluster."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self._connected = False

    async def connect(self) -> None:
        import ray

        if ray.is_initialized():  # by the caller, who also ends it
            return
        try:
            ray.init(address=self._settings.address, log_to_driver=False, logging_level="WARNING", namespace="simia")
        except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
            why = str(error).splitlines()[0]
            raise UserError(
                f"engine.address={self._settings.address}: no Ray cluster answers ({why}): start one with `ray start --head`, or set "
                "engine.address=local"
            ) from None
        self._connected = True

    def list_nodes(self) -> list[tuple[str, str]]:
        import ray

        return [
            (node["NodeID"], node["NodeManagerAddress"])
            for node in ray.nodes()
            if node["Alive"]
            and node["Resources"].get("CPU", 0) >= self._settings.cpus * self._settings.workers
            and node["Resources"].get("GPU", 0) >= self._settings.gpus * self._settings.workers
        ]

    async def start_worker(self, node_id: str, node: str) -> WorkerHandle:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        actor = (
            ray.remote(NodeWorker)
            .options(
                num_cpus=self._settings.cpus,
                num_gpus=self._settings.gpus,
                max_concurrency=AT_ONCE,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
            )
            .remote()
        )
        worker = RayWorker(actor, node, node_id)
        try:
            await asyncio.wait_for(worker.call("__ray_ready__"), STARTING)
        except TimeoutError:
            worker.kill()
            raise UserError(
                f"node {node}: no worker started within {STARTING:g} s: other jobs may hold its CPUs or GPUs; set engine.cpus, engine.gpus "
                "or engine.workers lower, or wait for them"
            ) from None
        return worker

    def close(self) -> None:
        import ray

        if self._connected:
            self._connected = False
            ray.shutdown()


class RayWorker:
    """A worker that is a Ray actor."""

    def __init__(self, actor: Any, node: str, node_id: str) -> None:
        self._actor, self.node, self.node_id = actor, node, node_id

    async def call(self, method: str, *arguments: Any) -> Any:
        from ray.exceptions import RayError, RayTaskError

        try:
            return await getattr(self._actor, method).remote(*arguments)
        except RayTaskError:
            raise  # an exception of the worker's own code, which would be raised again
        except RayError as error:
            raise NodeLost(str(error).splitlines()[0]) from None

    def kill(self) -> None:
        import ray

        with contextlib.suppress(Exception):
            ray.kill(self._actor)
