"""Rollouts on the nodes of a cluster: each worker opens the environment, with its sandbox and its processes, and plays episodes in it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from simia.envs.opening import prepare_environment
from simia.envs.remote.remote_pack import plays_remotely
from simia.envs.worlds.executable import raise_descriptor_limit
from simia.errors import UserError
from simia.jobs.nodes.node_worker import Node, Produce
from simia.llm.journals import PassingJournal
from simia.rollouts.contents import hash_contents, hash_worlds
from simia.rollouts.job import EpisodePlayer
from simia.rollouts.settings import RolloutConfig

CODE = ("executable", "mixed", "shadow")  # back ends that run a pack's code


@dataclass(frozen=True)
class RolloutNodeWork:
    """The data that a worker needs to play a run's episodes. `contents`, `world`: hashes of the packs and tasks that the job's process read."""

    config: RolloutConfig
    run_id: str
    contents: str
    world: str

    async def open(self, node: Node, stack: contextlib.AsyncExitStack) -> Produce:
        """Open the environment. Raises `UserError`, also for packs that differ from those of the job's process."""
        raise_descriptor_limit()  # for requests and workers of the sandbox
        prepared = await prepare_environment(self.config, stack, engines=node.engines, say=lambda line: None)
        if (hash_contents(prepared.pack, prepared.tasks), hash_worlds(prepared.pack)) != (self.contents, self.world):
            raise UserError(
                f"the pack {prepared.pack.name} or its tasks differ from those of the job: copy the same packs to all nodes"
            )
        environment = prepared.connect(PassingJournal())
        player = EpisodePlayer(self.run_id, self.config, environment, prepared.tasks, prepared.models.engine("agent"))
        return player.produce


def runs_code(config: RolloutConfig) -> bool:
    """Check whether episodes run code in the sandbox of this machine or of the nodes."""
    if plays_remotely(config):
        return False
    backends = [config.backend] if isinstance(config.backend, str) else list(config.backend.values())
    return any(name in CODE for name in backends) and not config.backend_settings.get("unsafe")
