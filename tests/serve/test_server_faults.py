"""What a server of environments does with clients that vanish, read slowly, send nonsense, or have no token; and with its own end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Any

import aiohttp
import orjson
import pytest

pytest.importorskip("prometheus_client")

from simia.envs.opening import open_environment
from simia.envs.remote.environment import RemoteEnvironment
from simia.envs.remote.wire import SESSION_HEADER
from simia.errors import Code, UserError
from simia.serve.http_server import Deadlines
from simia.trajectory import Message, ToolCall
from tests.serve.environment_servers import Running, served, wait_until

TASK = "cs-009"
TOKEN = "correct-horse-battery-staple"
ARGUMENTS = {"order_id": "ORD-00001", "email": "a@example.com"}
LOOK = Message(role="assistant", calls=[ToolCall(id="1", name="get_order", arguments=ARGUMENTS)])


@contextlib.asynccontextmanager
async def socket_of(running: Running, **headers: str) -> Any:
    """A WebSocket of a client that is not simia's."""
    async with aiohttp.ClientSession() as http:
        yield await http.ws_connect(f"{running.url}/ws", headers=headers)


async def ask(client: Any, kind: str, **data: Any) -> dict[str, Any]:
    await client.send_str(orjson.dumps({"type": kind, "data": data}).decode())
    return dict(orjson.loads((await client.receive()).data))


async def status_of(running: Running, path: str, method: str = "GET", **headers: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as http, http.request(method, running.root + path, headers=headers) as response:
        return response.status, response.headers


def metric(running: Running, name: str, **labels: str) -> float:
    return running.server.metrics.registry.get_sample_value(name, labels) or 0.0


async def cut(environment: RemoteEnvironment, episode: Any) -> None:
    """Cut the episode's connection, as a network does: no farewell."""
    transport = episode.session.socket._response.connection.transport
    raw = transport.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


# -- lost connections --------------------------------------------------------------------------------------------------


async def test_a_lost_connection_is_made_again_and_the_episode_goes_on() -> None:
    async with served() as running, await open_environment(running.url) as remote:
        episode = await remote.reset(TASK)
        first = await episode.step(LOOK)
        for _ in range(3):
            await cut(remote, episode)
            assert (await episode.step(LOOK)).messages[0].content == first.messages[0].content
        assert episode.end is None
        assert metric(running, "simia_resumed_total", pack="customer_service") == 3
        await episode.stop(Code.MAX_TOKENS)
        assert [row.task_id for row in running.kept] == [TASK]
        assert sum(message.role == "tool" for message in running.kept[0].messages) == 4, "no step was run twice"


async def test_a_policy_that_thinks_for_longer_than_pings_and_lease_keeps_its_episode() -> None:
    async with (
        served(deadlines=Deadlines(ping=1.0), lease=0.1) as running,
        await open_environment(running.url) as remote,
    ):
        episode = await remote.reset(TASK)
        await asyncio.sleep(3.0)
        step = await episode.step(LOOK)
        assert step.end is None
        assert metric(running, "simia_resumed_total", pack="customer_service") == 0, "the connection was never lost"
        await episode.close()


async def test_a_step_whose_answer_was_lost_is_answered_again_and_not_run_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served() as running, await open_environment(running.url) as remote:
        episode = await remote.reset(TASK)
        from simia.serve.openenv_session import SessionConnection

        answer, lost = SessionConnection._answer, []

        async def lose_first(self: Any, raw: Any) -> Any:
            found = await answer(self, raw)
            if not lost:
                lost.append(found)
                await cut(remote, episode)  # after the step was run, before its answer is read
            return found

        monkeypatch.setattr(SessionConnection, "_answer", lose_first)
        step = await episode.step(LOOK)
        assert lost
        assert step.end is None
        assert step.messages[0].role == "tool"
        [session] = running.server.table.sessions
        assert session.episodes.turns == 1
        await episode.close()


async def test_after_the_lease_the_episode_is_aborted_and_kept_by_the_server() -> None:
    async with served(lease=0.2) as running, await open_environment(running.url) as remote:
        episode = await remote.reset(TASK)
        await episode.step(LOOK)
        await cut(remote, episode)
        await wait_until(lambda: not running.server.table.sessions)
        step = await episode.step(LOOK)
        assert step.end is not None
        assert (step.end.kind, step.end.code) == ("aborted", Code.CONNECTION)
        assert step.reward is not None
        assert step.reward.value is None
        assert "the lease ended" in episode.issues[0].detail
        await wait_until(lambda: running.kept)
        assert [(row.end.kind, row.reward.value) for row in running.kept if row.reward] == [("truncated", 0.0)]
        assert metric(running, "simia_sessions_ended_total", pack="customer_service", reason="expired") == 1
        again = await remote.reset(TASK)
        assert again.end is None
        await again.close()


async def test_a_server_that_was_restarted_in_mid_episode_aborts_it_and_plays_the_next() -> None:
    environment = await open_environment("customer_service", user="scripted")
    from tests.serve.environment_servers import serving

    async with environment:
        async with serving(environment) as running:
            remote = await open_environment(running.url)
            port = running.port
            episode = await remote.reset(TASK)
            await episode.step(LOOK)
        assert [row.end.kind for row in running.kept] == ["truncated"]
        stepping = asyncio.ensure_future(episode.step(LOOK))
        await asyncio.sleep(0.5)  # nobody listens
        assert not stepping.done()
        async with serving(environment, port=port) as running, remote:
            step = await stepping
            assert step.end is not None
            assert (step.end.kind, step.end.code) == ("aborted", Code.CONNECTION)
            assert "restarted" in episode.issues[0].detail
            again = await remote.reset(TASK)
            assert (await again.step(LOOK)).messages[0].role == "tool"
            await again.close()


async def test_a_server_that_stays_away_aborts_the_episode_and_the_reset() -> None:
    async with served(lease=0.5) as running:
        remote = await open_environment(running.url)
        episode = await remote.reset(TASK)
    async with remote:
        step = await episode.step(LOOK)
        assert step.end is not None
        assert (step.end.kind, step.end.code) == ("aborted", Code.CONNECTION)
        assert isinstance(remote, RemoteEnvironment)
        remote.server.patience = 0.5
        lost = await remote.reset(TASK)
        assert lost.end is not None
        assert (lost.end.kind, lost.end.code) == ("aborted", Code.CONNECTION)
        await lost.close()


async def test_a_cancelled_step_frees_the_session() -> None:
    async with served() as running, await open_environment(running.url) as remote:
        episode = await remote.reset(TASK)
        stepping = asyncio.ensure_future(episode.step(LOOK))
        await asyncio.sleep(0)
        stepping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await stepping
        await wait_until(lambda: not running.server.table.sessions)
        assert (await episode.step(LOOK)).end is not None
        await episode.close()


@pytest.mark.attack("clients vanish in mid-episode and hold sessions for good", where="outside")
async def test_clients_without_a_lease_that_vanish_leave_a_scored_trajectory() -> None:
    async with served(most=3) as running:
        for _ in range(3):
            async with socket_of(running) as client:
                await ask(client, "reset", task=TASK)
                answer = await ask(client, "step", message="Hello.")
                assert answer["data"]["done"] is False
                client._response.connection.transport.abort()
        await wait_until(lambda: len(running.kept) == 3)
        assert not running.server.table.sessions
        assert {(row.end.kind, row.reward.value) for row in running.kept if row.reward} == {("truncated", 0.0)}


async def test_a_newer_connection_takes_a_session_over() -> None:
    async with served() as running:
        name = {SESSION_HEADER: "0123456789abcdef"}
        async with socket_of(running, **name) as old, socket_of(running, **name) as new:
            assert (await old.receive()).type is aiohttp.WSMsgType.CLOSE
            assert old.close_code == 4000
            assert (await ask(new, "reset", task=TASK))["type"] == "observation"
            assert len(running.server.table.sessions) == 1


# -- slow and hostile clients ------------------------------------------------------------------------------------------


def connect_raw(running: Running) -> socket.socket:
    """A WebSocket by hand, with a small buffer for what it receives."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.settimeout(240)
    made.connect(("127.0.0.1", running.port))
    head = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="
    made.sendall(f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}\r\n\r\n".encode())
    assert made.recv(4096).startswith(b"HTTP/1.1 101 ")
    return made


def make_frame(payload: bytes, *, opcode: int = 1, last: bool = True) -> bytes:
    """A frame of a client, masked with zeros."""
    first = bytes([(0x80 if last else 0) | opcode])
    size = len(payload)
    length = (
        bytes([0x80 | size])
        if size < 126
        else b"\xfe" + struct.pack(">H", size)
        if size < 65536
        else b"\xff" + struct.pack(">Q", size)
    )
    return first + length + bytes(4) + payload


@pytest.mark.attack("a client asks and never reads, so that the server holds its answers", where="outside")
async def test_a_client_that_never_reads_is_cut() -> None:
    deadlines = Deadlines(write=0.5, ping=60.0)
    async with served(deadlines=deadlines) as running:
        made = await asyncio.to_thread(connect_raw, running)
        reset = make_frame(orjson.dumps({"type": "reset", "data": {"task": TASK}}))

        def flood() -> bool:
            try:
                for _ in range(100_000):
                    made.sendall(reset)
            except OSError:
                return True
            return False

        assert await asyncio.to_thread(flood), "the server cut the connection"
        await wait_until(lambda: not running.server.table.sessions)
        made.close()


@pytest.mark.attack("oversize, cut and malformed frames", where="outside")
@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (make_frame(b"x" * 70_000), 1009),
        (make_frame(b"x" * 60_000, last=False) + make_frame(b"x" * 60_000, opcode=0), 1009),
        (make_frame(b"{}", opcode=3), 1002),
        (make_frame(b"\xff\xfe"), 1007),
        (b"\x81\x02{}", 1002),
        (make_frame(b"x", opcode=0), 1002),
    ],
    ids=["large", "large in parts", "unknown opcode", "no text", "not masked", "a part of nothing"],
)
async def test_a_frame_that_breaks_the_protocol_ends_its_connection_only(frames: bytes, code: int) -> None:
    async with served(largest_frame=65_536) as running, socket_of(running) as other:
        made = await asyncio.to_thread(connect_raw, running)
        made.sendall(frames)
        heard = await asyncio.to_thread(read_all, made)
        assert heard[0] == 0x88, "a close frame"
        assert struct.unpack(">H", heard[2:4])[0] == code
        made.close()
        assert (await ask(other, "reset", task=TASK))["type"] == "observation"
        await wait_until(lambda: len(running.server.table.sessions) == 1)


def read_all(made: socket.socket) -> bytes:
    heard = b""
    with contextlib.suppress(ConnectionResetError):
        while part := made.recv(4096):
            heard += part
    return heard


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("{", "INVALID_JSON"),
        ("", "INVALID_JSON"),
        ("NaN", "INVALID_JSON"),
        ("[" * 100_000, "INVALID_JSON"),
        pytest.param(
            r'{"type": "\ud800", "data": ' + "[" * 3000 + "]" * 3000 + "}", "INVALID_JSON", id="deep, half a character"
        ),
        ("[]", "VALIDATION_ERROR"),
        ("7", "VALIDATION_ERROR"),
        ("{}", "UNKNOWN_TYPE"),
        ('{"type": ["reset"]}', "UNKNOWN_TYPE"),
        ('{"type": "reset", "data": 3}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"tsk": "cs-009"}}', "USER_ERROR"),
        ('{"type": "reset", "data": {"task": "nope"}}', "USER_ERROR"),
        ('{"type": "step", "data": {"message": "Hello."}}', "USER_ERROR"),
        ('{"type": "step", "data": {"message": 3}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"record": {"role": "assistant"}}}', "NO_EPISODE"),
    ],
)
async def test_a_message_that_cannot_be_read_is_answered_and_the_session_goes_on(message: str, code: str) -> None:
    async with served() as running, socket_of(running) as client:
        await client.send_str(message)
        answer = orjson.loads((await client.receive()).data)
        assert (answer["type"], answer["data"]["code"]) == ("error", code)
        assert "\n" not in answer["data"]["message"]
        assert (await ask(client, "reset", task=TASK))["type"] == "observation"
        state = await ask(client, "state")
        assert (state["data"]["task"], state["data"]["step_count"]) == (TASK, 0)
        assert metric(running, "simia_errors_total", code=code) == 1


async def test_a_refused_reset_leaves_the_running_episode() -> None:
    async with served() as running, socket_of(running) as client:
        await ask(client, "reset", task=TASK, record=True)
        assert (await ask(client, "reset", task="nope"))["type"] == "error"
        state = await ask(client, "state")
        assert (state["data"]["task"], state["data"]["end"]) == (TASK, None)
        step = await ask(client, "step", record={"role": "assistant", "content": "Hello."})
        assert step["type"] == "observation"
        assert "record" in step["data"]["observation"], "still whole messages"


async def test_a_message_of_a_client_that_is_too_large_aborts_its_episode() -> None:
    async with served(largest_frame=65_536) as running, await open_environment(running.url) as remote:
        episode = await remote.reset(TASK)
        step = await episode.step(Message(role="assistant", content="x" * 70_000))
        assert step.end is not None
        assert (step.end.kind, step.end.code) == ("aborted", Code.TOO_LARGE)


async def test_what_json_cannot_hold_arrives_as_the_plain_environment_takes_it() -> None:
    odd = {"order_id": 2**70, "email": "a\ud800b", "more": [0.1, -(2**63), 12345678901234567890]}
    message = Message(role="assistant", calls=[ToolCall(id="1", name="get_order", arguments=odd)])
    plain = await open_environment("customer_service", user="scripted")
    async with plain, served() as running, await open_environment(running.url) as remote:
        answers = []
        for each in (plain, remote):
            episode = await each.reset(TASK)
            answers.append((await episode.step(message)).messages)
            await episode.close()
        assert answers[0] == answers[1]
    assert running.kept[0].messages[1].calls[0].raw is not None


# -- tokens, limits, the server's end ----------------------------------------------------------------------------------


@pytest.mark.attack("a client without the token, or with a wrong one", where="outside")
async def test_without_the_token_nothing_but_health_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(token=TOKEN) as running:
        wrong = [{}, {"Authorization": TOKEN}, {"Authorization": "Bearer "}, {"Authorization": f"Bearer {TOKEN}x"}]
        wrong += [{"Authorization": f"Basic {TOKEN}"}, {"Authorization": f"Bearer {TOKEN[:-1]}"}]
        for headers in wrong:
            for path in (
                "/metrics",
                "/list_environments",
                "/customer_service/environment",
                "/openapi.json",
                "/nothing",
            ):
                status, answered = await status_of(running, path, **headers)
                assert (status, answered["WWW-Authenticate"]) == (401, "Bearer")
            with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
                async with socket_of(running, **headers):
                    pass
        assert (await status_of(running, "/health"))[0] == 200
        assert (await status_of(running, "/metrics", Authorization=f"bearer {TOKEN}"))[0] == 200
        assert metric(running, "simia_refused_total", reason="token") == 6 * len(wrong)
        monkeypatch.setenv("SIMIA_TEST_TOKEN", TOKEN)
        monkeypatch.setenv("WRONG_TOKEN", TOKEN + "x")
        with pytest.raises(UserError, match=r"needs a token: name the variable that holds it in token_env$"):
            await open_environment(running.url)
        with pytest.raises(UserError, match=r"refused the token: check the variable that token_env names$"):
            await open_environment(running.url, token_env="WRONG_TOKEN")
        async with await open_environment(running.url, token_env="SIMIA_TEST_TOKEN") as remote:
            episode = await remote.reset(TASK)
            assert (await episode.step(LOOK)).end is None
            running.server.table.end(next(iter(running.server.table.sessions)), "closed")
            remote.server._http._default_headers["Authorization"] = "Bearer rotated"  # the server's token has changed
            await cut(remote, episode)
            step = await episode.step(LOOK)
            assert step.end is not None
            assert (step.end.kind, step.end.code) == ("aborted", Code.AUTH)
            assert TOKEN not in repr(episode.issues)


async def test_a_full_server_says_when_to_come_again_and_clients_wait() -> None:
    async with served(most=2) as running, await open_environment(running.url) as remote:
        held = [await remote.reset(TASK) for _ in range(2)]
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with socket_of(running):
                pass
        assert (refused.value.status, refused.value.headers["Retry-After"]) == (503, "1")
        waiting = asyncio.ensure_future(remote.reset(TASK))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await held[0].close()
        third = await waiting
        assert third.end is None
        remote.server.patience = 0.2
        lost = await remote.reset(TASK)
        assert lost.end is not None
        assert (lost.end.kind, lost.end.code) == ("aborted", Code.RATE_LIMITED)
        for each in (*held, third):
            await each.close()
        assert metric(running, "simia_refused_total", reason="full") >= 3


async def test_a_draining_server_ends_what_it_began_and_begins_nothing() -> None:
    async with served() as running, await open_environment(running.url) as remote:
        episode = await remote.reset(TASK)
        await episode.step(LOOK)
        async with socket_of(running) as client:
            draining = asyncio.ensure_future(running.server.table.drain(240))
            await asyncio.sleep(0)
            refused = await ask(client, "reset", task=TASK)
            assert (refused["data"]["code"], refused["data"]["retry_after"]) == ("DRAINING", 1)
        status, headers = await status_of(running, "/health")
        assert (status, headers["Retry-After"]) == (503, "1")
        with pytest.raises(aiohttp.WSServerHandshakeError, match="503"):
            async with socket_of(running):
                pass
        await cut(remote, episode)
        assert (await episode.step(LOOK)).end is None, "its session is still there"
        assert not draining.done()
        await episode.stop(Code.MAX_TOKENS)
        await draining
        assert [row.end.kind for row in running.kept] == ["truncated"]


async def test_idle_sessions_are_reaped() -> None:
    async with served(deadlines=Deadlines(first=0.2, idle=0.2)) as running:
        async with socket_of(running) as silent:
            closed = await silent.receive()
            assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 1008)
        await wait_until(lambda: not running.server.table.sessions)
        assert metric(running, "simia_sessions_ended_total", pack="customer_service", reason="idle") == 1


# -- several packs -----------------------------------------------------------------------------------------------------


async def test_one_server_has_several_packs_each_at_its_name() -> None:
    packs = {"packs": ["customer_service", "gyms/ferry-trip"], "user": "scripted"}
    async with served(packs, stage={"user": "scripted"}) as running:
        names = list(running.server.served)
        assert names[1:] == ["customer_service", running.server.environment.pack.members["ferry-trip"].name]
        async with (
            await open_environment(f"{running.root}/{names[1]}") as shop,
            await open_environment(running.root) as all_of_them,
        ):
            assert [task.id for task in shop.tasks][:2] == ["cs-001", "cs-002"]
            one = await shop.reset(TASK)
            assert one.view.system == shop.pack.policy
            other = await all_of_them.reset(f"customer_service/{TASK}")
            assert other.view.system == one.view.system
            assert [tool.name for tool in other.tools] == [tool.name for tool in one.tools]
            assert other.trajectory.pack == "customer_service"
            for episode in (one, other):
                assert (await episode.step(LOOK)).messages[0].role == "tool"
                await episode.close()
        with pytest.raises(UserError, match="the server has no environment at this address"):
            await open_environment(f"{running.root}/nothing")
        text = running.server.metrics.write().decode()
        assert 'simia_step_seconds_count{pack="customer_service"} 1.0' in text


async def test_settings_of_the_server_are_refused_at_an_address() -> None:
    async with served() as running:
        for settings in ({"backend": "simulated"}, {"user": "none"}, {"episode": {"turns": 3}}, {"llm": "m"}):
            with pytest.raises(
                UserError, match=f"{next(iter(settings))} is a setting of the server: leave it out here"
            ):
                await open_environment(running.url, **settings)
        async with await open_environment(running.url, split="test", limit=2) as remote:
            assert [task.split for task in remote.tasks] == ["test", "test"]
            with pytest.raises(UserError, match="no task 'nope'"):
                await remote.reset("nope")
    with pytest.raises(UserError, match="cannot be reached"):
        await open_environment(running.url)
    with pytest.raises(UserError, match=r"^no token: export NO_SUCH_TOKEN=…$"):
        await open_environment("https://host.invalid/pack", token_env="NO_SUCH_TOKEN")
    with pytest.raises(UserError, match=r"token_env must be the name of an environment variable"):
        await open_environment("https://host.invalid/pack", token_env="a-token-itself")


@pytest.mark.parametrize(
    "body", [b'{"id": "\\ud800"}', b'{"id": 1e999}', b"[" * 10_000, b"[]", b'{"id": ' + b"9" * 5000 + b"}"]
)
async def test_what_is_no_request_to_mcp_is_answered_without_an_id(body: bytes) -> None:
    async with (
        served() as running,
        aiohttp.ClientSession() as http,
        http.post(f"{running.root}/mcp", data=body) as answer,
    ):
        assert answer.status == 200
        found = await answer.json()
        assert (found["id"], found["error"]["code"]) == (None, -32601)
