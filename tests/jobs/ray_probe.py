"""Work on one job with Ray's nodes in this process group, and lose some of them. Run by the environment `ray`; see `test_ray.py`.

    python ray_probe.py '{"method": "amplify", "config": {…}, "runs": "…", "name": "one", "nodes": 2, "kill": "worker", "at": 40}'

`kill`: what is lost once the run holds `at` more replies: a `worker`, a `node`, or `all` workers of a node one after the other.
`nodes` 0: no Ray. Prints the figures as one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

TOKEN = "SIMIA_RAY_PROBE"


def find_workers() -> list[int]:
    """The processes of workers that belong to this probe: their raylet has its environment."""
    token = f"{TOKEN}={os.environ[TOKEN]}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                name, environment = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
            except OSError:
                continue
            if name.startswith(b"ray::NodeWorker") and token in environment:
                found.append(int(folder.name))
    return sorted(found)


class Losses:
    """Ends workers or a node while a run works."""

    def __init__(self, kill: str | None, at: int, cluster: Any) -> None:
        self._kill, self._at, self._cluster = kill, at, cluster
        self._first: int | None = None
        self.lost: list[str] = []

    def __call__(self, progress: Any) -> None:
        self._first = progress.replies if self._first is None else self._first
        if self._kill is None or progress.replies - self._first < self._at * (1 + len(self.lost)):
            return
        if self._kill == "driver":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._kill == "node" and not self.lost:
            node = next(iter(self._cluster.worker_nodes))
            self._cluster.remove_node(node, allow_graceful=False)
            self.lost.append("node")
        elif self._kill == "worker" and len(self.lost) < 2:
            os.kill(find_workers()[0], signal.SIGKILL)
            self.lost.append("worker")


async def work(method: str, config: dict[str, Any], runs: Path, name: str, losses: Losses, said: list[str]) -> Any:
    options: Any = {"on_progress": losses, "say": said.append}
    resumes = (runs / name).exists()
    if method == "amplify":
        from simia.amplification.session import resume_amplification, start_amplification
        from simia.amplification.settings import AmplifyConfig

        if resumes:
            return await resume_amplification(name, runs=runs, **options)
        return await start_amplification(AmplifyConfig.model_validate(config), runs=runs, name=name, **options)
    if method == "rollout":
        from simia.rollouts.session import resume_rollout, start_rollout
        from simia.rollouts.settings import RolloutConfig

        if resumes:
            return await resume_rollout(name, runs=runs, **options)
        return await start_rollout(RolloutConfig.model_validate(config), runs=runs, name=name, **options)
    from simia.synthesis.recipes import find_recipe
    from simia.synthesis.session import start_synthesis

    parsed = find_recipe(config["recipe"]).config.model_validate(config)
    return await start_synthesis(parsed, runs.parent / f"{name}-packs", runs=runs, name=name, **options)


def main() -> None:
    given = json.loads(sys.argv[1])
    os.environ[TOKEN] = str(os.getpid())
    cluster: Any = None
    nodes = given.get("nodes", 0)
    if nodes:
        import ray
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
        for _ in range(nodes - 1):
            cluster.add_node(num_cpus=4)
        ray.init(address=cluster.address, log_to_driver=False)
    losses, said = Losses(given.get("kill"), given.get("at", 0), cluster), list[str]()
    try:
        runs = Path(given["runs"])
        done = asyncio.run(work(given["method"], given["config"], runs, given["name"], losses, said))
        figures = {"stop": [done.stop.kind, done.stop.detail], "lost": losses.lost, "said": said}
        print(json.dumps(figures), flush=True)
    finally:
        if cluster is not None:
            ray.shutdown()
            cluster.shutdown()


if __name__ == "__main__":
    main()
