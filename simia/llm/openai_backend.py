"""Back ends for endpoints that speak OpenAI's chat completions: OpenAI, Azure, vLLM, SGLang, llama.cpp, routers.

One call of `complete` is one HTTP request. Every failure becomes an `LLMFault` whose code names the cause and tells the engine whether to
retry. The key is read from the environment at `start` and kept in the session's headers only. It is masked in every response body before
the body is parsed, since some endpoints repeat it. The size of a decompressed body is limited.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
from collections.abc import Mapping
from string import Template
from typing import TYPE_CHECKING, Any
from urllib.request import getproxies, proxy_bypass

import aiohttp
import orjson
from yarl import URL

from simia.config_secrets import has_secret_name, is_secret
from simia.errors import Code, MissingKeyError, UserError
from simia.llm.embeddings import read_vectors
from simia.llm.http_response import RateLimits, parse_body, read_fault, read_usage, receive_body, refuse_large_body
from simia.llm.openai_settings import DEFAULT_KEY_ENV, OpenAISettings
from simia.llm.types import LLMFault, Reply, Request
from simia.masking import hide, mask, mask_bytes
from simia.terminal import one_line

if TYPE_CHECKING:
    from openai import AsyncOpenAI

log = logging.getLogger(__name__)

QUOTED = re.compile(r"[:'\"]| b'")
QUICK = 1 << 16  # bytes that are masked at once; more are masked in a thread


class OpenAIBackend:
    """One shared session to one endpoint. `key`: for a server that simia started; otherwise the key is read from the environment."""

    def __init__(self, settings: OpenAISettings, *, key: str | None = None) -> None:
        self.settings = settings
        self.alias = settings.alias or settings.host
        self.model = settings.model
        self.structured = settings.takes_schema
        self.url = settings.url
        self._key = key
        self._session: aiohttp.ClientSession | None = None
        self._warned: set[str] = set()
        self.rates = RateLimits()

    def __repr__(self) -> str:
        return f"OpenAIBackend({self.alias}, {self.model})"

    async def start(self) -> None:
        if self._session is not None:
            return
        headers = {"Content-Type": "application/json", "User-Agent": "simia", "Accept-Encoding": "gzip"}
        for name, template in self.settings.headers.items():
            headers[name] = value = _read_header(name, template)
            if value != template:
                hide(value.rpartition(" ")[2])  # "Bearer …" may come back without its first word
        key = self._key or ""
        needs_none = self.settings.loopback and self.settings.key_env == DEFAULT_KEY_ENV
        if not key and not needs_none:
            key = os.environ.get(
                self.settings.key_env, ""
            ).strip()  # a local server is never sent a hosted endpoint's key
            refuse_unprintable(key, f"the variable {self.settings.key_env}")
        given = {name.lower() for name in headers} & {"authorization", "api-key", "x-api-key"}
        if key and not given:
            headers.update({"api-key": key} if self.settings.api_version else {"Authorization": f"Bearer {key}"})
            hide(key)
        elif not given and not needs_none:
            other = (
                "leave key_env out: a server on this machine needs none"
                if self.settings.loopback
                else "name another in key_env"
            )
            raise MissingKeyError(f"no key for {self.settings.host}: export {self.settings.key_env}=… (or {other})")
        proxy = _find_proxy(self.url)
        hide((URL(proxy).password or "") if proxy else "")
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),  # the engine limits the number of requests
            # `complete` limits the total time.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self.settings.connect_timeout),
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=proxy,
            auto_decompress=False,  # `receive_body` does it, within a limit
        )

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def complete(self, request: Request, *, draw: str) -> Reply:
        if self._session is None:
            raise RuntimeError("OpenAIBackend.start() was not awaited")
        # Copied, because what orjson returns occupies ten times its length until it is freed.
        body = bytes(memoryview(orjson.dumps(self.body(request))))
        url = self.url if request.input is None else self.settings.embeddings_url
        try:
            async with (
                asyncio.timeout(self.settings.timeout),
                self._session.post(url, data=body, allow_redirects=False) as response,
            ):
                status, headers = response.status, response.headers
                raw = await receive_body(response, self.settings.max_reply_bytes)
        # The faults are raised below, outside of these blocks, because aiohttp's exceptions carry the request's headers.
        except aiohttp.ConnectionTimeoutError:  # nothing was sent, so nothing is billed
            found: Reply | LLMFault = LLMFault(
                Code.CONNECTION, f"no connection within {self.settings.connect_timeout:g} s", retry=True
            )
        except TimeoutError:
            found = LLMFault(Code.TIMEOUT, f"no answer within {self.settings.timeout:g} s", retry=True)
        except aiohttp.ClientConnectorCertificateError as error:
            found = LLMFault(Code.CONNECTION, clean_text(f"certificate refused: {error}"), retry=False)
        except (aiohttp.ClientError, OSError) as error:
            found = LLMFault(Code.CONNECTION, clean_text(_explain_error(error)), retry=True)
        else:
            found = await self.read_reply(status, headers, raw, texts=len(request.input or ()))
        if isinstance(found, LLMFault):
            raise found
        return found

    async def read_reply(
        self, status: int, headers: Mapping[str, str], raw: bytes, *, texts: int = 0
    ) -> Reply | LLMFault:
        """Return the reply or the fault that a response contains. Keys in the body are masked before it is parsed.

        `texts`: how many vectors are expected; 0: the request was a chat completion."""
        raw = mask_bytes(raw) if len(raw) <= QUICK else await asyncio.to_thread(mask_bytes, raw)
        self.rates.note(headers)
        reply = (read_vectors(raw, texts) if texts else read_body(raw)) if status == 200 else None
        if reply is None:
            return read_fault(status, headers, raw, clean_text)
        if reply.body.get("usage") and not (reply.usage.prompt or reply.usage.completion):
            self._warn_once("usage", f"{self.alias} reports token usage without usable counts: treated as unknown")
        return reply

    def body(self, request: Request) -> dict[str, Any]:
        """The request as it is sent."""
        if request.input is not None:
            return {"model": self.model, "input": request.input} | self.settings.extra_body | request.extra_body
        body: dict[str, Any] = {"model": self.model, "messages": request.messages}
        for name in ("temperature", "top_p", "stop", "seed", "reasoning_effort", "response_format"):
            value = getattr(request, name)
            if value is None:
                continue
            if self.settings.is_reasoning and (name == "stop" or (name in ("temperature", "top_p") and value != 1)):
                left_out = f"{self.model} is a reasoning model and does not take {name}: left out"
                self._warn_once(name, f"{left_out} (reasoning_model: false sends it)")
                continue
            body[name] = value
        if request.max_tokens is not None:
            body[self.settings.limit_field] = request.max_tokens
        body.update(self.settings.extra_body)
        body.update(request.extra_body)
        return body

    def _warn_once(self, name: str, message: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            log.warning("%s", message)


UNSENT = ("ConnectTimeout", "PoolTimeout")
"""Time limits of a client's transport that end before anything is sent. The transport is the client's choice, so they are known by name."""


class OpenAIClientBackend(OpenAIBackend):
    """One endpoint, asked through an `openai.AsyncOpenAI` client of the caller: its transport, key, headers and timeout are used as they are.

    No config holds the client, and no store or log its key. The engine retries, so the client's own retries are off. `close` leaves the
    client open: it belongs to the caller.
    """

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
        texts = len(request.input or ())
        required = {name: body.pop(name) for name in ("model", "input" if texts else "messages")}
        required |= {"encoding_format": "float"} if texts else {}  # else the client asks for base64
        kind: Any = self._client.embeddings if texts else self._client.chat.completions
        create = kind.with_streaming_response.create
        try:
            async with asyncio.timeout(self.settings.timeout), create(**required, extra_body=body) as response:
                status, headers = response.status_code, response.headers
                raw = await receive_client_body(response, self.settings.max_reply_bytes)
            self._hide_key()
            found = await self.read_reply(status, headers, raw, texts=texts)
        # The faults are raised below, outside of these blocks, because the client's exceptions carry the request's headers.
        except openai.APIStatusError as error:
            self._hide_key()
            found = await self.read_reply(error.status_code, error.response.headers, error.response.content)
        except (TimeoutError, openai.APITimeoutError) as error:
            if type(error.__cause__).__name__ in UNSENT:
                found = LLMFault(Code.CONNECTION, "no connection within the client's time limit", retry=True)
            else:
                found = LLMFault(
                    Code.TIMEOUT, "no answer within the time limit of the client or of llm.timeout", retry=True
                )
        except openai.APIConnectionError as error:
            self._hide_key()
            found = LLMFault(Code.CONNECTION, clean_text(str(error.__cause__ or error)), retry=True)
        except openai.OpenAIError as error:  # no key, or none could be obtained
            found = LLMFault(Code.AUTH, clean_text(str(error)), retry=False)
        if isinstance(found, LLMFault):
            raise found
        return found

    def _hide_key(self) -> None:
        """Mask the key. A client that calls a function for its key has one after the first request only, and may change it."""
        hide(self._client.api_key or "")


async def receive_client_body(response: Any, limit: int) -> bytes:
    """Return the body, decompressed. Raises `LLMFault` for one that is larger than `limit` bytes or breaks off."""
    raw = bytearray()
    try:
        async for chunk in response.iter_bytes():
            raw += chunk
            if len(raw) > limit:
                raise refuse_large_body(limit)
    except (LLMFault, TimeoutError):
        raise
    except Exception as error:  # the transport's own kinds, which depend on the client
        detail = clean_text(f"the endpoint's body was cut off: {error}")
        raise LLMFault(Code.CONNECTION, detail, retry=True) from None
    return bytes(raw)


def clean_text(text: str) -> str:
    """An endpoint's text as one line without keys."""
    return one_line(mask(text))


def read_body(raw: bytes) -> Reply | None:
    """The body as a reply, or None if it is not a chat completion."""
    try:
        body = parse_body(raw)
        choice = body["choices"][0]
        if choice.get("finish_reason") == "error":
            return None  # a router's upstream failed on the way: what there is of the text is no reply
        message = choice["message"]
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(part.get("text") or "" for part in content if part.get("type", "text") == "text")
        if content and content is message["content"]:
            del message["content"]  # it is in `text`; a reply is stored once
        return Reply(
            text=content or message.get("refusal") or "",
            reasoning=take_text(message.get("reasoning_content")) or take_text(message.get("reasoning")),
            finish=take_text(choice.get("finish_reason")),
            usage=read_usage(body.get("usage")),
            model=take_text(body.get("model")),
            body=body,
        )
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):  # pydantic's refusals are ValueErrors too
        return None


def take_text(value: Any) -> str | None:
    """The value of a field that is not needed; None if it is no text, for which no paid reply is given up."""
    return value if isinstance(value, str) else None


def _explain_error(error: BaseException) -> str:
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the endpoint closed the connection without an answer"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the endpoint's body was cut off"
    if isinstance(error, aiohttp.ClientResponseError):
        # Without the quoted bytes: the HTTP library cuts them, and a part of a key is not found.
        return f"the endpoint does not speak HTTP: {re.split(QUOTED, error.message.strip())[0].strip()}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return explain_connector_error(error)
    return str(error) or type(error).__name__


def explain_connector_error(error: aiohttp.ClientConnectorError) -> str:
    """Describe a connection that was not made in one sentence: the host, the port and the system's reason."""
    cause = error.os_error
    if isinstance(cause, socket.gaierror):
        why = cause.strerror
    else:  # for a host with several addresses, the numbers are in the text alone
        number = cause.errno or next((int(each) for each in re.findall(r"\[Errno (\d+)\]", str(cause))), None)
        why = os.strerror(number) if number else cause.strerror
    return f"Cannot connect to host {error.host}:{error.port} ({why or 'no reason given'})"


def _read_header(name: str, template: str) -> str:
    try:
        value = Template(template).substitute(os.environ)
        refuse_unprintable(value, f"header {name}")
        return value
    except KeyError as error:
        raise UserError(f"header {name} needs the environment variable {error.args[0]}: export it") from None
    except ValueError:
        raise UserError(f"header {name}: write ${{NAME}} for a variable and $$ for a dollar sign") from None


def refuse_unprintable(value: str, where: str) -> None:
    """Refuse a value that no header can hold: line breaks, control characters, invisible spaces, broken text. The error does not repeat it."""
    if not value.isprintable():
        raise UserError(
            f"{where} holds a line break, a control or an invisible character: export the key alone, as one line"
        )


def _find_proxy(url: URL) -> str | None:
    """The user's proxy, looked up once: aiohttp's own look-up would run for every request, and read ~/.netrc too."""
    host = url.host or ""
    if host in ("localhost", "127.0.0.1", "::1") or proxy_bypass(host):
        return None
    return getproxies().get(url.scheme)
