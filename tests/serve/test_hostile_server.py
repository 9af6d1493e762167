"""A server of environments that sends what it should not: the command ends in one line, an episode is aborted, nothing waits for ever."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest
from aiohttp import WSMsgType, web

from simia.envs.opening import open_environment
from simia.envs.remote import session
from simia.errors import Code, UserError
from simia.trajectory import Message

TASK = {"id": "t", "instruction": "Do it."}
DESCRIPTION = {"protocol": 1, "name": "p", "tools": [], "tasks": [TASK], "lease": 1.0}
BEGINNING = {"head": {"pack": "p"}, "messages": [{"role": "user", "content": "Do it."}]}
Answer = Callable[[dict[str, Any]], Any]


@contextlib.asynccontextmanager
async def hostile(
    describe: Callable[[web.StreamResponse], Any] | bytes | None = None, answer: Answer | None = None
) -> AsyncIterator[str]:
    """The address of a server with this body at /environment, and this answer to each message."""

    async def environment(request: web.Request) -> web.StreamResponse:
        if callable(describe):
            response = web.StreamResponse()
            await response.prepare(request)
            with contextlib.suppress(ConnectionError):
                await describe(response)
            return response
        packed = {"Content-Encoding": "gzip"} if describe is not None and describe[:2] == b"\x1f\x8b" else {}
        return web.Response(body=describe or orjson.dumps(DESCRIPTION), headers=packed)

    async def play(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            if message.type is WSMsgType.TEXT and answer is not None:
                said = orjson.loads(message.data)
                for each in answer(said):
                    await socket.send_str(each if isinstance(each, str) else orjson.dumps(each).decode())
        return socket

    app = web.Application()
    app.add_routes([web.get("/environment", environment), web.get("/ws", play)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    try:
        yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[attr-defined]
    finally:
        await runner.cleanup()


async def say_nothing(response: web.StreamResponse) -> None:
    await asyncio.sleep(600)


async def flood(response: web.StreamResponse) -> None:
    while True:
        await response.write(b" " * (1 << 20))


@pytest.mark.attack("a server of environments never ends its description, or sends one that is none", where="outside")
@pytest.mark.parametrize(
    ("describe", "words"),
    [
        (say_nothing, "cannot be reached .no answer within"),
        (flood, "in more than"),
        (gzip.compress(b" " * (2 << 20)), "in more than"),
        (b'{"protocol": "2"}', "not an environment of simia"),
        (b"[1]", "not an environment of simia"),
        (b"[" * 5000, "not an environment of simia"),
    ],
    ids=["silent", "flood", "gzip", "protocol", "list", "deep"],
)
async def test_a_description_that_is_none_is_one_line(
    monkeypatch: pytest.MonkeyPatch, describe: Any, words: str
) -> None:
    monkeypatch.setattr(session, "CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(session, "LARGEST_REPLY", 1 << 20)
    async with hostile(describe) as url:
        with pytest.raises(UserError, match=words) as caught:
            await open_environment(url)
    assert "\n" not in str(caught.value)


def begin(**fields: Any) -> Answer:
    return lambda said: [
        {"type": "observation", "serial": said["serial"], "data": {"observation": {"record": {**BEGINNING, **fields}}}}
    ]


def refuse(**data: Any) -> Answer:
    return lambda said: [{"type": "error", "serial": said["serial"], "data": {"code": session.DRAINING, **data}}]


@pytest.mark.attack("a server of environments answers a reset with what is no beginning", where="outside")
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (begin(head={"system": "x"}), Code.BAD_REPLY_BODY),
        (begin(head={"extra": 5}), Code.BAD_REPLY_BODY),
        (begin(head=[]), Code.BAD_REPLY_BODY),
        (begin(messages=[{"role": "user", "content": [[]]}]), Code.BAD_REPLY_BODY),
        (begin(visible=[[]]), Code.BAD_REPLY_BODY),
        (begin(system=5, tools=[], user_tools=[]), Code.BAD_REPLY_BODY),
        (refuse(retry_after="soon"), Code.RATE_LIMITED),
        (refuse(retry_after={}), Code.RATE_LIMITED),
        (refuse(retry_after=-1e9), Code.RATE_LIMITED),
        (refuse(retry_after=1e300), Code.RATE_LIMITED),
        (lambda said: ["[" * 5000], Code.CONNECTION),
        (lambda said: ["{]"], Code.CONNECTION),
    ],
)
async def test_a_beginning_that_is_none_aborts_the_episode(
    monkeypatch: pytest.MonkeyPatch, answer: Answer, code: Code
) -> None:
    monkeypatch.setattr(session, "PATIENCE", 0.5)
    async with hostile(answer=answer) as url, await open_environment(url) as environment:
        environment.server.patience = 0.5  # type: ignore[attr-defined]
        episode = await environment.reset("t")
        assert episode.end is not None
        assert (episode.end.kind, episode.end.code) == ("aborted", code)
        assert episode.trajectory.to_row()["task_id"] == "t"


@pytest.mark.attack("a server of environments answers a step with what is no outcome", where="outside")
@pytest.mark.parametrize(
    "fields",
    [
        {"end": {"kind": "won"}},
        {"end": {"kind": "terminated"}, "reward": {"value": "much"}},
        {"end": {"kind": "terminated"}, "issues": [{}]},
        {"messages": 5},
        {"visible": 5},
    ],
)
async def test_an_outcome_that_is_none_aborts_the_episode(fields: dict[str, Any]) -> None:
    def answer(said: dict[str, Any]) -> Any:
        return begin(**({} if said["type"] == "reset" else fields))(said)

    async with hostile(answer=answer) as url, await open_environment(url) as environment:
        episode = await environment.reset("t")
        step = await episode.step(Message(role="assistant", content="Done."))
        assert step.end is not None
        assert (step.end.kind, step.end.code) == ("aborted", Code.BAD_REPLY_BODY)
        episode.trajectory.to_row()


@pytest.mark.attack("a server of environments floods a client that does not ask", where="outside")
async def test_messages_that_nobody_asked_for_end_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "LARGEST_REPLY", 1 << 20)

    def answer(said: dict[str, Any]) -> Any:
        if said["type"] == "reset":
            yield from begin()(said)
        yield from ['"' + "x" * (1 << 19) + '"'] * 50

    async with hostile(answer=answer) as url, await open_environment(url) as environment:
        episode = await environment.reset("t")
        held = episode.session  # type: ignore[attr-defined]
        await asyncio.wait_for(held.reading, 60)
        assert sum(len(each) for each in held.answers._queue if each) <= 1 << 20
        await episode.close()
