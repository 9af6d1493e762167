"""Settings of where a job works: in this process, or on the nodes of a Ray cluster."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from simia.config import Config


class ClusterSettings(Config):
    """Where models are called and items are processed. All settings are operational: a resume may change them, and results do not depend on
    them."""

    kind: Literal["local", "ray"] = Field(
        "local", description="local: in this process. ray: on the nodes of a Ray cluster (needs the extra `ray`)."
    )
    address: str = Field(
        "auto",
        description="ray: address of the cluster's head node as HOST:PORT; auto: the cluster that runs on this machine; local: start "
        "a new one.",
    )
    workers: int = Field(1, ge=1, description="ray: number of worker processes on each node.")
    cpus: float = Field(1.0, ge=0, description="ray: number of CPUs that each worker reserves.")
    gpus: float = Field(0.0, ge=0, description="ray: number of GPUs that each worker reserves, for `llm.kind: vllm`.")
    nodes: int = Field(
        1,
        ge=1,
        description="ray: minimum number of nodes with these CPUs and GPUs. With fewer nodes, the run does not start.",
    )
    store: str | None = Field(
        None,
        description="ray: folder on a local disk of each node that keeps replies until the run has stored them. null: in simia's cache.",
    )
