"""Requests through an `openai.AsyncOpenAI` client that the caller made: its transport, key, headers and timeout are used as they are.

No config holds the client, and no store or log its key. The engine retries, so the client's own retries are off.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from simia.config_secrets import has_secret_name, is_secret
from simia.errors import Code
from simia.llm.http_body import BodyRefused, refuse_large_body
from simia.llm.openai import OpenAIBackend, clean_text
from simia.llm.openai_settings import OpenAISettings
from simia.llm.types import LLMFault, Reply, Request
from simia.masking import hide

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class OpenAIClientBackend(OpenAIBackend):
    """One endpoint, asked through the caller's client. `close` leaves the client open: it belongs to the caller."""

    def __init__(self, settings: OpenAISettings, client: AsyncOpenAI) -> None:
        super().__init__(settings)
        self._client = client.with_options(max_retries=0)

    async def start(self) -> None:
        self._hide_key()
        for name, value in self._client.default_headers.items():
            if isinstance(value, str) and (has_secret_name(name) or is_secret(value, hexadecimal=True)):
                hide(value.rpartition(" ")[2])

    async def close(self) -> None:
        return

    async def complete(self, request: Request, *, draw: str) -> Reply:
        import openai

        body = self.body(request)
        required = {name: body.pop(name) for name in ("model", "messages")}
        create = self._client.chat.completions.with_streaming_response.create
        try:
            async with asyncio.timeout(self.settings.timeout), create(**required, extra_body=body) as response:
                status, headers = response.status_code, response.headers
                raw = await read_bounded(response, self.settings.max_reply_bytes)
            self._hide_key()
            found = await self.read_reply(status, headers, raw)
        # The faults are raised below, outside of these blocks, because the client's exceptions carry the request's headers.
        except openai.APIStatusError as error:
            self._hide_key()
            found = await self.read_reply(error.status_code, error.response.headers, error.response.content)
        except (TimeoutError, openai.APITimeoutError):
            found = LLMFault(
                Code.TIMEOUT, "no answer within the time limit of the client or of llm.timeout", retry=True
            )
        except openai.APIConnectionError as error:
            self._hide_key()
            found = LLMFault(Code.CONNECTION, clean_text(str(error.__cause__ or error)), retry=True)
        except openai.OpenAIError as error:  # no key, or none to be had
            found = LLMFault(Code.AUTH, clean_text(str(error)), retry=False)
        except BodyRefused as error:
            found = LLMFault(error.code, str(error), retry=error.code is not Code.TOO_LARGE)
        if isinstance(found, LLMFault):
            raise found
        return found

    def _hide_key(self) -> None:
        """Mask the key. A client that calls a function for its key has one after the first request only, and may change it."""
        hide(self._client.api_key or "")


async def read_bounded(response: Any, limit: int) -> bytes:
    """The body, decompressed. Raises `BodyRefused` for one that is larger than `limit` bytes or breaks off."""
    raw = bytearray()
    try:
        async for chunk in response.iter_bytes():
            raw += chunk
            if len(raw) > limit:
                raise refuse_large_body(limit)
    except (BodyRefused, TimeoutError):
        raise
    except Exception as error:  # the transport's own kinds, which depend on the client
        raise BodyRefused(Code.CONNECTION, clean_text(f"the endpoint's body was cut off: {error}")) from None
    return bytes(raw)
