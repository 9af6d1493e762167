"""Any endpoint that speaks OpenAI's chat completions: OpenAI, Azure, vLLM, SGLang, llama.cpp, routers.

One call of `complete` is one HTTP request. Whatever goes wrong becomes an `LLMFault` whose code says whose fault it is and whether to
try again; the engine does the trying. The key is read from the environment at `start`, lives in the session's headers only, and is
cut out of every text that an endpoint sends back, since some repeat it in their error messages.
"""

from __future__ import annotations

import logging
import os
from string import Template
from typing import Any
from urllib.request import getproxies, proxy_bypass

import aiohttp
import orjson
from yarl import URL

from simia.errors import Code, UserError
from simia.llm.http_faults import fault_of, one_line
from simia.llm.openai_settings import DEFAULT_KEY_ENV, OpenAISettings
from simia.llm.rates import Rates
from simia.llm.types import LLMFault, Reply, Request
from simia.trajectory import Usage

__all__ = ["OpenAIBackend", "OpenAISettings"]

log = logging.getLogger(__name__)


class OpenAIBackend:
    """One shared session to one endpoint. `key` is for a server that we started ourselves; users export theirs."""

    def __init__(self, settings: OpenAISettings, *, key: str | None = None) -> None:
        self.settings = settings
        self.alias = settings.alias or settings.host
        self.model = settings.model
        self.structured = settings.takes_schema
        self._reasoning, self._limit_field = settings.is_reasoning, settings.limit_field
        self._url = settings.url
        self._key = key
        self._secrets: list[str] = []
        self._session: aiohttp.ClientSession | None = None
        self._told: set[str] = set()
        self.rates = Rates()

    def __repr__(self) -> str:
        return f"OpenAIBackend({self.alias}, {self.model})"

    async def start(self) -> None:
        if self._session is not None:
            return
        headers = {"Content-Type": "application/json", "User-Agent": "simia"}
        for name, template in self.settings.headers.items():
            headers[name] = value = _from_environment(name, template)
            if value != template:
                self._secrets += [value, value.rpartition(" ")[2]]  # "Bearer …" may come back without its first word
        key = self._key or ""
        if not key and not (self.settings.loopback and self.settings.key_env == DEFAULT_KEY_ENV):
            key = os.environ.get(self.settings.key_env, "").strip()  # a local server never sees a key not meant for it
        given = {name.lower() for name in headers} & {"authorization", "api-key", "x-api-key"}
        if key and not given:
            headers.update({"api-key": key} if self.settings.api_version else {"Authorization": f"Bearer {key}"})
            self._secrets.append(key)
        elif not given and not self.settings.loopback:
            raise UserError(
                f"no key for {self.settings.host}: export {self.settings.key_env}=… (or name another in key_env)"
            )
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),  # how many at once is the engine's decision
            timeout=aiohttp.ClientTimeout(total=self.settings.timeout, sock_connect=self.settings.connect_timeout),
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=_proxy(self._url),
        )

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def complete(self, request: Request, *, draw: str) -> Reply:
        if self._session is None:
            raise RuntimeError("OpenAIBackend.start() was not awaited")
        fault: LLMFault
        try:
            async with self._session.post(
                self._url, data=orjson.dumps(self.body(request)), allow_redirects=False
            ) as response:
                raw = await response.read()
                status, headers = response.status, response.headers
        # The faults are raised below, outside of these blocks, because aiohttp's exceptions carry the request's headers.
        except TimeoutError:
            fault = LLMFault(Code.TIMEOUT, f"no answer within {self.settings.timeout:g} s", retry=True)
        except aiohttp.ClientConnectorCertificateError as error:
            fault = LLMFault(Code.CONNECTION, self._clean(f"certificate refused: {error}"), retry=False)
        except (aiohttp.ClientError, OSError) as error:
            fault = LLMFault(Code.CONNECTION, self._clean(_reason(error)), retry=True)
        else:
            self.rates.note(headers)
            if status == 200:
                reply = read_body(raw)
                if reply is not None:
                    return reply
            fault = fault_of(status, headers, raw, self._clean)
        raise fault

    def body(self, request: Request) -> dict[str, Any]:
        """The request as it is sent."""
        body: dict[str, Any] = {"model": self.model, "messages": request.messages}
        for name in ("temperature", "top_p", "stop", "seed", "reasoning_effort", "response_format"):
            value = getattr(request, name)
            if value is None:
                continue
            if self._reasoning and (name == "stop" or (name in ("temperature", "top_p") and value != 1)):
                self._tell_once(name)
                continue
            body[name] = value
        if request.max_tokens is not None:
            body[self._limit_field] = request.max_tokens
        body.update(self.settings.extra_body)
        body.update(request.extra_body)
        return body

    def _tell_once(self, name: str) -> None:
        if name not in self._told:
            self._told.add(name)
            log.warning(
                "%s is a reasoning model and takes no %s: left out (reasoning_model: false sends it)", self.model, name
            )

    def _clean(self, text: str) -> str:
        for secret in self._secrets:
            if secret:
                text = text.replace(secret, "***")
        return one_line(text)


def read_body(raw: bytes) -> Reply | None:
    """The body as a reply, or None if it is not a chat completion."""
    try:
        body = orjson.loads(raw)
        choice = body["choices"][0]
        message = choice["message"]
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(part.get("text") or "" for part in content if part.get("type", "text") == "text")
        if content and content is message["content"]:
            del message["content"]  # it stands in `text`; a reply is kept once
        return Reply(
            text=content or message.get("refusal") or "",
            reasoning=message.get("reasoning_content") or message.get("reasoning"),
            finish=choice.get("finish_reason"),
            usage=_usage(body.get("usage") or {}),
            model=body.get("model"),
            body=body,
        )
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):  # pydantic's refusals are ValueErrors too
        return None


def _usage(usage: dict[str, Any]) -> Usage:
    of_prompt = usage.get("prompt_tokens_details") or {}
    of_completion = usage.get("completion_tokens_details") or {}
    return Usage(
        prompt=usage.get("prompt_tokens") or 0,
        completion=usage.get("completion_tokens") or 0,
        cached=of_prompt.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or 0,
        reasoning=of_completion.get("reasoning_tokens") or 0,
        cost=usage.get("cost"),  # routers say what they charged
    )


def _reason(error: BaseException) -> str:
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the endpoint closed the connection without an answer"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the endpoint's body was cut off"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"the endpoint does not speak HTTP: {error.message}"
    return str(error) or type(error).__name__


def _from_environment(name: str, template: str) -> str:
    try:
        return Template(template).substitute(os.environ)
    except KeyError as error:
        raise UserError(f"header {name} needs the environment variable {error.args[0]}: export it") from None
    except ValueError:
        raise UserError(f"header {name}: write ${{NAME}} for a variable and $$ for a dollar sign") from None


def _proxy(url: URL) -> str | None:
    """The user's proxy, looked up once: aiohttp's own look-up would run for every request, and read ~/.netrc too."""
    host = url.host or ""
    if host in ("localhost", "127.0.0.1", "::1") or proxy_bypass(host):
        return None
    return getproxies().get(url.scheme)
