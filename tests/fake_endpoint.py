"""A fake OpenAI-compatible endpoint in a process of its own, for load and for everything that goes wrong on the way to a model.

By hand (`--help` lists the options), or as the fixture `fake_endpoint` of tests/conftest.py, which hands out one server for a module, reset
before each test. Its process does not import pytest, which would take a third of its start.

    python -m tests.fake_endpoint --port 0 --latency 0.2 --each 429:300ms,500
    fake_endpoint.plan(script=["500", "429:0.3"], latency=0.05)

What each request meets is a fault, by name, and `ok` where nothing is planned:

    script  the n-th request meets the n-th fault
    each    a prompt's n-th try meets the n-th fault, so every prompt fails the same way before it is answered
    rate    a share of all requests, chosen by prompt and try, meets a fault out of `mix`

    ok  401  403  404  400  408  418  500  503 … a status   quota  a 429 that will not pass   filter  a content filter's 400
    429:2  with Retry-After: 2      429:150ms  with retry-after-ms       429:date2  with a date 2 s after its Date; 503:… likewise
    stall  no answer, ever          slow:3  an answer after 3 s          reset  the connection breaks before the answer
    cut  half of the body           garbage  200 and no JSON             nochoice  200 and JSON without a completion
    error200:502  200 with an error object in it                        redirect  a 307        echokey  a 401 that repeats the key
    choice200:502  200 and a completion that an error ended, with its status or none
    parrot:FORM  200, a completion that repeats the key in a form of tests/key_forms.py        parrot401:FORM  a 401 that does
    bomb:400  200, 400 MB as gzip                                       flood:40  200, 40 MB as they are

The log (`/_log`) tells what arrived: number, path, headers, body, the fault met, and `early`, which is true if a request came before a
Retry-After given earlier had passed by the server's own clock. Tests count in it, and never measure time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import hashlib
import importlib
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
import zlib
from collections import Counter
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from tests.key_forms import FORMS

Respond = Callable[[dict[str, Any]], "str | dict[str, Any]"]
DEFAULTS: dict[str, Any] = {
    "script": [],
    "each": [],
    "rate": 0.0,
    "mix": ["500", "429:50ms", "reset", "cut", "garbage"],
    "latency": 0.0,  # seconds before every answer
    "barrier": 0,  # the first n requests are answered only when all n are there
    "message": {},  # merged into the answer's message
    "usage": None,  # in place of the counted one
    "finish": "stop",
    "vectors": {},  # text to its embedding, in place of one of its letters
    "log": True,
}


def echo(body: dict[str, Any]) -> str:
    """The default answer: a function of the prompt, so that a test can tell which prompt a reply belongs to."""
    return f"echo: {body['messages'][-1]['content']}"


class Server:
    """The child's side."""

    def __init__(self, respond: Respond, plan: dict[str, Any]) -> None:
        self.respond = respond
        self.base_plan = DEFAULTS | plan
        self.epoch = 0
        self.reset({})

    def reset(self, plan: dict[str, Any]) -> None:
        self.plan = self.base_plan | plan
        self.epoch += 1  # a stalled answer of an earlier plan must not count in this one
        self.log: list[dict[str, Any]] = []
        self.count = 0
        self.in_flight = 0
        self.most_in_flight = 0
        self.faults: Counter[str] = Counter()
        self.tries: Counter[str] = Counter()
        self.closed_until = 0.0
        self.arrived = asyncio.Event()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/_plan", self.on_plan)
        app.router.add_get("/_log", self.on_log)
        app.router.add_post("/{tail:.*chat/completions}", self.on_chat)
        app.router.add_post("/{tail:.*/embeddings}", self.on_chat)
        return app

    async def on_plan(self, request: web.Request) -> web.Response:
        self.reset(await request.json())
        return web.Response()

    async def on_log(self, request: web.Request) -> web.Response:
        summary = {
            "count": self.count,
            "in_flight": self.in_flight,
            "most_in_flight": self.most_in_flight,
            "faults": self.faults,
            "requests": self.log,
        }
        return web.Response(body=orjson.dumps(summary, default=dict))

    async def on_chat(self, request: web.Request) -> web.StreamResponse:
        early = time.monotonic() < self.closed_until
        body = orjson.loads(await request.read())
        self.count += 1
        fault = self.choose(body)
        self.faults[fault] += 1
        if self.plan["log"]:
            headers = {name.lower(): value for name, value in request.headers.items()}
            self.log.append(
                {
                    "n": self.count,
                    "path": request.path,
                    "query": dict(request.query),
                    "headers": headers,
                    "body": body,
                    "fault": fault,
                    "early": early,
                }
            )
        epoch = self.epoch
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            if self.count >= self.plan["barrier"]:
                self.arrived.set()
            await self.arrived.wait()
            if self.plan["latency"]:
                await asyncio.sleep(self.plan["latency"])
            return await self.answer(request, body, fault)
        finally:
            self.in_flight -= epoch == self.epoch

    def choose(self, body: dict[str, Any]) -> str:
        plan, n = self.plan, self.count - 1
        if n < len(plan["script"]):
            return str(plan["script"][n])
        if not plan["each"] and not plan["rate"]:
            return "ok"
        prompt = hashlib.blake2b(orjson.dumps(body.get("messages", body.get("input"))), digest_size=8).hexdigest()
        tried = self.tries[prompt]
        self.tries[prompt] += 1
        if tried < len(plan["each"]):
            return str(plan["each"][tried])
        dice = int.from_bytes(hashlib.blake2b(f"{prompt}:{tried}".encode(), digest_size=8).digest())
        if (dice % 10_000) / 10_000 < plan["rate"]:
            return str(plan["mix"][dice // 10_000 % len(plan["mix"])])
        return "ok"

    async def answer(self, request: web.Request, body: dict[str, Any], fault: str) -> web.StreamResponse:
        name, _, detail = fault.partition(":")
        if name == "stall":
            await asyncio.Event().wait()
        if name == "slow":
            await asyncio.sleep(float(detail))
        if name == "reset":
            self.break_connection(request)
            return web.Response()
        if name == "garbage":
            return web.Response(body=b'{"id": "cut here, choices: [', content_type="application/json")
        if name == "nochoice":
            return as_json({"id": "x", "object": "chat.completion", "choices": []})
        if name == "error200":
            return as_json({"error": {"code": int(detail), "message": "the upstream failed"}})
        if name == "choice200":
            why = {"error": {"code": int(detail), "message": "the upstream failed"}} if detail else {}
            half = {"finish_reason": "error", "message": {"role": "assistant", "content": "hal"}}
            return as_json({"id": "x", "object": "chat.completion", "choices": [half | why]})
        if name == "redirect":
            return web.Response(status=307, headers={"Location": "https://elsewhere.example/v1/chat/completions"})
        if name == "quota":
            return as_json({"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}, 429)
        if name == "filter":
            inner = {"code": "ResponsibleAIPolicyViolation"}
            return as_json({"error": {"message": "filtered", "code": "content_filter", "innererror": inner}}, 400)
        if name == "echokey":
            keys = " ".join(request.headers.get(name, "") for name in ("Authorization", "api-key", "X-Gateway"))
            return as_json(
                {"error": {"message": f"Incorrect API key\nprovided: {keys}", "code": "invalid_api_key"}}, 401
            )
        if name in ("parrot", "parrot401"):
            words = f"You sent {FORMS[detail](sent_key(request))}, thanks"
            if name == "parrot401":
                return as_json({"error": {"message": words, "code": "invalid_api_key"}}, 401)
            call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": json.dumps({"a": words})}}
            reply = self.completion(body)
            reply["choices"][0]["message"] |= {"content": words, "reasoning_content": words, "tool_calls": [call]}
            return as_json(reply | {"system_fingerprint": words})
        if name == "bomb":
            headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
            return web.Response(body=bomb(int(detail)), headers=headers)
        if name == "flood":
            return web.Response(body=b" " * (int(detail) << 20), content_type="application/json")
        if name.isdigit():
            return as_json({"error": {"message": f"planned {name}"}}, int(name), self.closing(detail))
        payload = orjson.dumps(self.embeddings(body) if "input" in body else self.completion(body))
        if name == "cut":
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            response.content_length = len(payload)
            await response.prepare(request)
            await response.write(payload[: len(payload) // 2])
            self.break_connection(request)
            return response
        return web.Response(body=payload, content_type="application/json")

    def closing(self, detail: str) -> dict[str, str]:
        """The header that says when to come back; from now until then, requests are early."""
        if not detail:
            return {}
        if detail.startswith("date"):
            seconds = int(detail.removeprefix("date"))
            now = time.time()
            headers = {"Date": formatdate(now, usegmt=True), "Retry-After": formatdate(now + seconds, usegmt=True)}
        elif detail.endswith("ms"):
            seconds = float(detail.removesuffix("ms")) / 1000
            headers = {"retry-after-ms": detail.removesuffix("ms")}
        else:
            seconds = float(detail)
            headers = {"Retry-After": detail}
        self.closed_until = max(self.closed_until, time.monotonic() + seconds)
        return headers

    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.respond(body)
        message = {"role": "assistant"} | (answer if isinstance(answer, dict) else {"content": answer})
        finish = message.pop("finish_reason", self.plan["finish"])
        message |= self.plan["message"]
        usage = self.plan["usage"]
        if usage is None:
            prompt = sum(len(str(m.get("content") or "")) for m in body["messages"]) // 4
            written = len(str(message.get("content") or "")) // 4
            usage = {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
        return {
            "id": f"chatcmpl-{self.count}",
            "object": "chat.completion",
            "created": 0,
            "model": body.get("model", "fake"),
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": usage,
        }

    def embeddings(self, body: dict[str, Any]) -> dict[str, Any]:
        """A vector for each text, in reverse order, as the protocol allows: what the plan says, or how often each letter occurs."""
        known = self.plan["vectors"]
        letters = [[float(text.lower().count(chr(97 + n))) for n in range(26)] for text in body["input"]]
        vectors = [known.get(text, counts) for text, counts in zip(body["input"], letters, strict=True)]
        data = [{"object": "embedding", "index": n, "embedding": vector} for n, vector in enumerate(vectors)]
        tokens = sum(len(text) for text in body["input"]) // 4
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": data[::-1], "model": body.get("model", "fake"), "usage": usage}

    @staticmethod
    def break_connection(request: web.Request) -> None:
        if request.transport is not None:
            request.transport.abort()


def sent_key(request: web.Request) -> str:
    return request.headers.get("api-key") or request.headers["Authorization"].removeprefix("Bearer ")


@functools.cache
def bomb(megabytes: int) -> bytes:
    """So many megabytes of spaces as gzip: a thousandth of them."""
    packer = zlib.compressobj(9, wbits=zlib.MAX_WBITS | 16)
    return b"".join([packer.compress(b" " * (1 << 20)) for _ in range(megabytes)]) + packer.flush()


def as_json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=orjson.dumps(value), status=status, headers=headers, content_type="application/json")


class FakeEndpoint:
    """The test's side: start the child, plan faults, read its log, stop it."""

    def __init__(self, *options: str) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tests.fake_endpoint", "--port", "0", "--with-parent", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parent.parent,
            text=True,
        )
        assert self._child.stdout is not None
        self.url = self._child.stdout.readline().strip()  # ends in /v1: a base_url
        assert self.url, "the fake endpoint did not start"

    def plan(self, **plan: Any) -> None:
        """Forget everything so far and follow this plan (see DEFAULTS)."""
        self._call("/_plan", json.dumps(plan).encode())

    def log(self) -> dict[str, Any]:
        return dict(json.loads(self._call("/_log")))

    @property
    def requests(self) -> list[dict[str, Any]]:
        return list(self.log()["requests"])

    def _call(self, path: str, data: bytes | None = None) -> bytes:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self.url.removesuffix("/v1") + path, data=data, timeout=240) as reply:
            return bytes(reply.read())

    def stop(self) -> None:
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()


async def serve(arguments: argparse.Namespace) -> None:
    respond: Respond = echo
    if arguments.respond:
        module, _, name = arguments.respond.partition(":")
        respond = getattr(importlib.import_module(module), name)
    plan = {name: getattr(arguments, name) for name in ("latency", "rate") if getattr(arguments, name) is not None}
    plan |= {name: getattr(arguments, name).split(",") for name in ("each", "mix") if getattr(arguments, name)}
    plan["log"] = not arguments.no_log
    runner = web.AppRunner(Server(respond, plan).app(), access_log=None, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, arguments.host, arguments.port, backlog=4096)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    print(f"http://{arguments.host}:{port}/v1", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        description="A fake OpenAI-compatible endpoint. Prints its base URL and serves until it is stopped."
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--latency", type=float, help="seconds before each answer")
    parser.add_argument("--each", help="faults that every prompt meets in turn, such as 429:300ms,500")
    parser.add_argument("--rate", type=float, help="share of requests that meet a fault out of --mix")
    parser.add_argument("--mix", help="faults for --rate, with commas")
    parser.add_argument("--respond", help="module:function, from the request's body to the reply's text or message")
    parser.add_argument("--no-log", action="store_true", help="keep no requests, for load")
    parser.add_argument("--with-parent", action="store_true", help="end when stdin ends")
    arguments = parser.parse_args()
    if arguments.with_parent:
        threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(arguments))


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
