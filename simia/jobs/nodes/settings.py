"""Settings of where a job works: in this process, or on the nodes of a Ray cluster."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from simia.config import Config


class ClusterSettings(Config):
    """Where models are asked and items are worked on. All operational: a resume may change them, and no result depends on them."""

    kind: Literal["local", "ray"] = Field(
        "local", description="local: in this process; ray: on the nodes of a Ray cluster (needs the extra `ray`)."
    )
    address: str = Field(
        "auto",
        description="ray: address of the cluster's head, as HOST:PORT; auto: the cluster of this machine; local: a new one.",
    )
    workers: int = Field(1, ge=1, description="ray: worker processes on each node.")
    cpus: float = Field(1.0, ge=0, description="ray: CPUs that each worker reserves.")
    gpus: float = Field(0.0, ge=0, description="ray: GPUs that each worker reserves, for `llm.kind: vllm`.")
    nodes: int = Field(
        1, ge=1, description="ray: refuse to start with fewer nodes that have these CPUs and GPUs than so many."
    )
    store: str | None = Field(
        None,
        description="ray: folder on each node, on a local disk, that keeps replies until they are in the run; unset: in simia's cache.",
    )
