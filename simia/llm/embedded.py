"""Back end for a small model in a child process: no key, no network, no cost.

The child speaks OpenAI's protocol on a loopback port, so this back end is an `OpenAIBackend` with a life cycle: fetch the weights, start
the child, and start it again when it dies. The fault of the broken call still goes to the engine, whose retry is sent to the new child.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pydantic import Field

from simia.config import Config, Operational
from simia.errors import Code, UserError
from simia.llm import local_models
from simia.llm.embedded_server import EmbeddedServer
from simia.llm.openai_backend import OpenAIBackend
from simia.llm.openai_settings import OpenAISettings
from simia.llm.prompt_slots import PromptSlots
from simia.llm.types import LLMFault, Reply, Request
from simia.search_path import locate
from simia.terminal import say_error, write_count

log = logging.getLogger(__name__)

DEATH_SECONDS = 2.0  # a killed process closes its sockets a moment before its parent can see it dead
LOOK_SECONDS = 0.02


class EmbeddedSettings(Config):
    """A local model, which is started and stopped with the run."""

    kind: Literal["embedded"] = "embedded"
    """A small model on this machine."""
    model: str = Field(
        local_models.DEFAULT, description="Name of a known model (see `simia model list`), or path of a GGUF file."
    )
    context: int = Field(
        8192, ge=256, description="Maximum number of tokens of one request, prompt and completion together."
    )
    threads: Operational[int | None] = Field(
        None,
        ge=1,
        description="Number of threads. null: that of `llm` if it is a local model too, else the number of cores.",
    )
    parallel: Operational[int] = Field(1, ge=1, description="Maximum number of concurrent requests.")
    slots: Operational[int] = Field(
        4,
        ge=1,
        description="Number of prompts whose prefix is kept in memory: the static part of a pack's prompts, or the messages of an "
        "episode so far.",
    )
    timeout: Operational[float] = Field(1200, gt=0, description="Timeout of one attempt, in seconds.")
    restarts: Operational[int] = Field(3, ge=0, description="Maximum number of restarts if the model's process dies.")
    log: Operational[Path | None] = Field(
        None, description="File for the log of the model library. null: the log is not kept."
    )
    embeddings: bool = Field(
        False, description="Whether the model only computes embeddings, for the role `embeddings`."
    )


class EmbeddedBackend:
    """The embedded model. `model` is final after `start`: the name and a short hash of the weights that were found."""

    alias = "embedded"
    structured = True

    def __init__(self, settings: EmbeddedSettings, *, say: Callable[[str], None] | None = None) -> None:
        self.settings = settings
        known = local_models.KNOWN.get(settings.model)
        self.model = known.identity if known else Path(settings.model).stem
        self.restarts = 0
        self._say = say or say_error
        self.server: EmbeddedServer | None = None
        self._client: OpenAIBackend | None = None
        self._room = asyncio.Semaphore(settings.parallel)  # waiting for room must not count against the attempt's time
        self._slots = PromptSlots(settings.slots)
        self._reviving = asyncio.Lock()

    async def start(self) -> None:
        if self._client is not None:
            return
        path, self.model = await asyncio.to_thread(_find_weights, self.settings.model, self._say)
        self.server = EmbeddedServer(
            path,
            threads=self.settings.threads,
            context=self.settings.context,
            slots=max(self.settings.slots, self.settings.parallel),
            log=self.settings.log,
            embeddings=self.settings.embeddings,
        )
        try:
            await self._connect(await self.server.start())
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        client, self._client = self._client, None
        server, self.server = self.server, None
        if client is not None:
            await client.close()
        if server is not None:
            await server.stop()

    async def complete(self, request: Request, *, draw: str) -> Reply:
        async with self._room:
            client = self._client
            if client is None:
                raise RuntimeError("EmbeddedBackend.start() was not awaited")
            try:
                return await client.complete(self._place_in_slot(request), draw=draw)
            except LLMFault as fault:
                if fault.code is Code.CONNECTION:
                    await self._restart_server(client)
                if fault.exceeds_context:
                    said = fault.detail.replace(", try increasing it", "")
                    hint = "raise `context` of the local model, as --set llm.context=16384, or shorten the prompts, as --set backend_settings.state_tokens=2000"
                    raise LLMFault(fault.code, f"{said}: {hint}", retry=False, status=fault.status) from None
                raise

    def _place_in_slot(self, request: Request) -> Request:
        """The request with the slot that holds its beginning. The reply's key is made before this and holds no slot."""
        if self.settings.parallel > 1 or self.settings.embeddings:
            return request
        extra = {"cache_prompt": True, "id_slot": self._slots.choose(request.messages)} | request.extra_body
        return request.model_copy(update={"extra_body": extra})

    async def _connect(self, url: str) -> None:
        assert self.server is not None
        name = self.model.partition("@")[0]
        settings = OpenAISettings(model=name, base_url=url, timeout=self.settings.timeout, reasoning_model=False)
        client = OpenAIBackend(settings, key=self.server.api_key)
        await client.start()
        self._client = client

    async def _restart_server(self, broken: OpenAIBackend) -> None:
        """Start the child again, once for all the calls that its death broke."""
        async with self._reviving:
            server = self.server
            if server is None or self._client is not broken:
                return
            for _ in range(round(DEATH_SECONDS / LOOK_SECONDS)):
                if not server.alive:
                    break
                await asyncio.sleep(LOOK_SECONDS)
            else:
                return  # it is alive: only the connection broke
            last = server.read_last_log_line()
            if self.restarts >= self.settings.restarts:
                raise LLMFault(
                    Code.CONNECTION,
                    f"the embedded model died {write_count(self.restarts + 1, 'time')}, its last output: {last or 'none'}",
                    retry=False,
                )
            self.restarts += 1
            log.warning(
                "the embedded model died (%s): starting it again, %d of %d", last, self.restarts, self.settings.restarts
            )
            try:
                url = await server.restart()
            except UserError as error:
                raise LLMFault(Code.CONNECTION, str(error), retry=False) from error
            await self._connect(url)
            await broken.close()


def _find_weights(name: str, say: Callable[[str], None]) -> tuple[Path, str]:
    """The file, and the model's identity: its name and a short hash of the bytes."""
    if name == local_models.DEFAULT:
        path, known = local_models.fetch_best_model(say)
        return path, known.identity
    path = local_models.fetch_model(name, say=say)
    if name in local_models.KNOWN and not locate(name).is_file():
        return path, local_models.KNOWN[name].identity
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    same = next((model.name for model in local_models.KNOWN.values() if model.sha256 == sha256), path.stem)
    return path, f"{same}@{sha256[: local_models.HASH_SHOWN]}"
