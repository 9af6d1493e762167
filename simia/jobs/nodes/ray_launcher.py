"""Start workers as Ray actors, each bound to one node, and open the cluster that a config names."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from collections.abc import Callable
from typing import Any

from simia.errors import UserError
from simia.jobs.nodes.cluster import Cluster
from simia.jobs.nodes.node_worker import NodeWorker
from simia.jobs.nodes.settings import ClusterSettings
from simia.jobs.nodes.worker_channel import NodeLost, WorkerHandle

STARTING = 180.0  # seconds until a worker's process must be there
ANSWERING = 20.0  # seconds until a cluster must answer: `ray.init` itself tries for minutes, and cannot be interrupted
AT_ONCE = 1000  # calls of one worker; a batch of messages is one call
REFUSED = re.compile(r"InvalidAuthToken|AuthenticationError|authentication token")
NO_IMPORT = re.compile(r"failed to import on the worker|ModuleNotFoundError")


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
        address = self._settings.address
        if address != "local":
            await try_cluster(address)
        try:
            ray.init(address=address, log_to_driver=False, logging_level="WARNING", namespace="simia")
        except (ConnectionError, ValueError, RuntimeError, TimeoutError, ray.exceptions.RayError) as error:
            raise UserError(explain_no_cluster(address, f"{type(error).__name__}: {error}")) from None
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
                f"node {node}: no worker started within {STARTING:g} s: the node or the first machine's Ray may be gone, or other jobs hold "
                "its CPUs or GPUs; see `ray status`, and set engine.cpus, engine.gpus or engine.workers lower, or wait for them"
            ) from None
        except NodeLost as lost:
            if (line := explain_no_import(node, str(lost.__cause__))) is not None:
                raise UserError(line) from None
            raise
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
            raise NodeLost(str(error).splitlines()[0]) from error

    def kill(self) -> None:
        import ray

        with contextlib.suppress(Exception):
            ray.kill(self._actor)


async def try_cluster(address: str) -> None:
    """Ask a cluster for its status in a process of its own. Raises `UserError` for one that does not answer in time or refuses the token."""
    command = [sys.executable, "-P", "-m", "ray.scripts.scripts", "status", "--address", address]
    out = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=asyncio.subprocess.STDOUT
    )
    try:
        printed, _ = await asyncio.wait_for(process.communicate(), ANSWERING)
    except TimeoutError:
        raise UserError(explain_no_cluster(address, f"no answer within {ANSWERING:g} s")) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    text = printed.decode(errors="replace")
    if process.returncode and REFUSED.search(text):  # what else is wrong, `ray.init` says
        raise UserError(explain_no_cluster(address, text))


def explain_no_cluster(address: str, text: str) -> str:
    """Return the line for a connection that failed. `text`: what Ray printed or raised."""
    if REFUSED.search(text):
        return (
            f"engine.address={address}: the Ray cluster refuses this shell's token, or it has none: export RAY_AUTH_MODE=token, and copy "
            "~/.ray/auth_token of the first machine here, or export it as RAY_AUTH_TOKEN"
        )
    why = (text.splitlines() or ["no reason given"])[0].removeprefix("ConnectionError: ")
    return (
        f"engine.address={address}: no Ray cluster answers ({why}): start one with `ray start --head`, give the HOST:PORT that it printed, "
        "or set engine.address=local"
    )


def explain_no_import(node: str, text: str) -> str | None:
    """Return the line for a worker that cannot import simia; None where the worker was lost for another reason. `text`: of Ray's error."""
    if not NO_IMPORT.search(text):
        return None
    return (
        f"node {node}: simia cannot be imported there ({text.strip().splitlines()[-1]}): install the same version of simia in the Python "
        "environment that runs `ray start`"
    )
