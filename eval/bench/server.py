"""Measure environments over the network: steps per second and latency of 64 sessions, with server and load generator on two cores.

    python eval/bench/server.py                  # two minutes, and the environment `adapters` once
    python eval/bench/server.py --seconds 2 --without-openenv

Every way has 64 sessions; each sends its next step as soon as the last is answered. Their first episodes of look-ups are cut to 1, 2, 3 …
steps, so that resets are spread over time, as after some time of use; 64 resets at once would be measured as one long wait. The ways:

- `simia, look-ups`: `simia serve customer_service --openenv` in a process of its own, played by simia's client: episodes of 100
  look-ups. `simia, solutions`: the same server, episodes of the tasks' reference solutions (5 steps on average): a reset and a reward
  for each are in the time.
- `local, …`: the same episodes without a server, in one process and its sandbox: the upper bound.
- `starlette echo`: a bare WebSocket route that parses a step and answers with a fixed observation, played by a bare aiohttp client.
- `openenv echo`: an environment that echoes, in OpenEnv's own server, played by OpenEnv's own client.

CPU is user and system time of each side with all its child processes; unlike the rates, it hardly depends on other load of the machine.
The last line is one JSON object; the exit code is 1 where `simia, look-ups` makes less than 4,000 steps/s or its 99th percentile is
20 ms or more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

SESSIONS, TURNS, CORES = 64, 100, 2
GOAL, P99_MS = 4_000, 20.0
LOOK = {"order_id": "ORD-20417", "email": "declan.obrien@example.com"}
ECHO = {"text": "x" * 600, "messages": [{"role": "tool", "content": "x" * 500}]}  # as large as the answer to a look-up
Goes = Callable[[], bool]
Play = Callable[[int, Goes, list[float]], Awaitable[None]]


def list_family(pid: int) -> dict[int, list[str]]:
    """A process and all below it, with the fields of their `stat` that follow the name."""
    stats, children = dict[int, list[str]](), dict[int, list[int]]()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        stats[int(name)] = stat
        children.setdefault(int(stat[1]), []).append(int(name))
    found, left = dict[int, list[str]](), [pid]
    while left:
        one = left.pop()
        found[one] = stats.get(one, [])
        left += children.get(one, [])
    return found


def measure_cpu(pid: int) -> float:
    """Seconds of CPU of a process and all below it."""
    return sum(sum(map(int, stat[11:15])) for stat in list_family(pid).values()) / os.sysconf("SC_CLK_TCK")


async def generate_load(play: Play, goes: Goes, times: list[float]) -> None:
    """Play all sessions, and append the seconds of every step to `times`."""
    await asyncio.gather(*(play(number, goes, times) for number in range(SESSIONS)))


def for_seconds(seconds: float) -> Goes:
    """Return a function that is True for the given seconds from its first call on."""
    first: list[float] = []

    def goes() -> bool:
        now = time.perf_counter()
        if not first:
            first.append(now)
        return now < first[0] + seconds

    return goes


# -- the players: each runs in a process of its own, and prints its figures ----------------------------------------------


async def play_environment(source: str, kind: str, goes: Goes, times: list[float]) -> None:
    """Play simia's environment: at an address, or here."""
    from simia.envs.opening import open_environment
    from simia.envs.play.baseline_agents import ReferenceAgent
    from simia.errors import Code
    from simia.pack import Pack
    from simia.trajectory import Message, ToolCall

    here: dict[str, Any] = {} if "://" in source else {"user": "scripted", "episode": {"turns": TURNS}}
    solutions = Pack.load("customer_service")
    look = Message(role="assistant", calls=[ToolCall(id="1", name="get_order", arguments=LOOK)])
    async with await open_environment(source, **here) as environment:
        tasks = environment.tasks

        async def play(number: int, goes: Goes, times: list[float]) -> None:
            turn = number
            steps = 1 + number * TURNS // SESSIONS  # of the first episode, so that episodes do not all end at once
            while goes():
                task = tasks[turn % len(tasks)]
                turn += SESSIONS
                episode = await environment.reset(task, seed=0)
                agent = ReferenceAgent(solutions.task(task.id))
                while episode.end is None and goes():
                    message = look if kind == "look-ups" else (await agent.act(episode.view))[0]
                    start = time.perf_counter()
                    step = await episode.step(message)
                    times.append(time.perf_counter() - start)
                    assert step.end is None or step.end.kind != "aborted", step
                    steps -= 1
                    if steps == 0:
                        break
                if episode.end is None:
                    await episode.stop(Code.MAX_TURNS)
                await episode.close()

        await generate_load(play, goes, times)


async def play_echo(url: str, goes: Goes, times: list[float]) -> None:
    """Play the bare route with a bare client."""
    import aiohttp
    import orjson

    frame = orjson.dumps(
        {"type": "step", "data": {"message": "", "calls": [{"name": "get_order", "arguments": LOOK}]}}
    ).decode()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

        async def play(number: int, goes: Goes, times: list[float]) -> None:
            async with http.ws_connect(f"{url}/ws") as client:
                while goes():
                    start = time.perf_counter()
                    await client.send_str(frame)
                    orjson.loads((await client.receive()).data)
                    times.append(time.perf_counter() - start)

        await generate_load(play, goes, times)


async def play_openenv(url: str, goes: Goes, times: list[float]) -> None:
    """Play OpenEnv's echo with OpenEnv's client."""
    from openenv.core import GenericEnvClient  # type: ignore[import-not-found, unused-ignore]

    async def play(number: int, goes: Goes, times: list[float]) -> None:
        async with GenericEnvClient(base_url=url) as client:
            await client.reset()
            while goes():
                start = time.perf_counter()
                await client.step({"message": "Hello."})
                times.append(time.perf_counter() - start)

    await generate_load(play, goes, times)


# -- the echoing servers -----------------------------------------------------------------------------------------------


def serve_starlette(port: int) -> None:
    import orjson
    import uvicorn
    from starlette.applications import Starlette
    from starlette.routing import WebSocketRoute
    from starlette.websockets import WebSocket, WebSocketDisconnect

    async def echo(client: WebSocket) -> None:
        await client.accept()
        try:
            while True:
                orjson.loads(await client.receive_text())
                answer = {"type": "observation", "data": {"observation": ECHO, "reward": None, "done": False}}
                await client.send_text(orjson.dumps(answer).decode())
        except WebSocketDisconnect:
            pass

    app = Starlette(routes=[WebSocketRoute("/ws", echo)])
    uvicorn.run(app, port=port, ws="websockets-sansio", ws_per_message_deflate=False, log_level="error", loop="uvloop")


def serve_openenv(port: int) -> None:
    import uvicorn
    from openenv.core.env_server import (  # type: ignore[import-not-found, unused-ignore]
        Action,
        ConcurrencyConfig,
        Environment,
        Observation,
        State,
        create_app,
    )

    class EchoAction(Action):  # type: ignore[misc, unused-ignore]
        message: str

    class EchoObservation(Observation):  # type: ignore[misc, unused-ignore]
        text: str = ""

    class Echo(Environment):  # type: ignore[misc, unused-ignore]
        SUPPORTS_CONCURRENT_SESSIONS = True
        state = State()

        def reset(self, *_: Any, **__: Any) -> EchoObservation:
            return EchoObservation()

        def step(self, action: EchoAction, *_: Any, **__: Any) -> EchoObservation:
            return EchoObservation(text=action.message)

        async def reset_async(self, *_: Any, **__: Any) -> EchoObservation:
            return self.reset()

        async def step_async(self, action: EchoAction, *_: Any, **__: Any) -> EchoObservation:
            return self.step(action)

    limits = ConcurrencyConfig(max_concurrent_envs=2 * SESSIONS, session_timeout=None)
    app = create_app(Echo, EchoAction, EchoObservation, env_name="echo", concurrency_config=limits)
    uvicorn.run(app, port=port, log_level="error")


# -- the whole -----------------------------------------------------------------------------------------------------------


def find_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server did not start")


def run_player(python: str, words: list[str], server: int | None) -> dict[str, float]:
    """Run a player, and return its figures with the CPU of the server in its time."""
    before = measure_cpu(server) if server is not None else 0.0
    done = subprocess.run([python, __file__, "--play", *words], stdout=subprocess.PIPE, check=True, text=True)
    found = dict(json.loads(done.stdout.splitlines()[-1]))
    after = measure_cpu(server) if server is not None else 0.0
    found["server_us"] = (after - before) / found["steps"] * 1e6
    return found


def measure(
    python: str, serve: list[str] | None, players: dict[str, list[str]], port: int
) -> dict[str, dict[str, float]]:
    """Start a server, play all players against it one after the other, and stop it."""
    if serve is None:
        return {name: run_player(python, words, None) for name, words in players.items()}
    process = subprocess.Popen(serve, stderr=subprocess.DEVNULL)
    try:
        await_port(port, process)
        return {name: run_player(python, words, process.pid) for name, words in players.items()}
    finally:
        process.terminate()
        process.wait()


def play_and_print(words: list[str]) -> None:
    """One player's run; prints its figures."""
    from simia import event_loop
    from simia.garbage_collection import raise_thresholds

    raise_thresholds()  # as trainers do
    kind, source, seconds = words[0], words[1], float(words[2])
    work, goes, times = {"echo": play_echo, "openenv": play_openenv}.get(kind), for_seconds(seconds), list[float]()
    event_loop.run_command(work(source, goes, times) if work else play_environment(source, kind, goes, times))
    times.sort()
    print(
        json.dumps(
            {
                "steps": len(times),
                "per_s": len(times) / seconds,
                "p50_ms": times[len(times) // 2] * 1e3,
                "p99_ms": times[int(len(times) * 0.99)] * 1e3,
                "client_us": measure_cpu(os.getpid()) / len(times) * 1e6,
            }
        )
    )


def serve_words(port: int, folder: str) -> list[str]:
    """The command of a server of customer service, whose trajectories go to a folder."""
    words = [sys.executable, "-m", "simia", "serve", "customer_service", "--openenv", "--port", str(port)]
    return [*words, "--turns", str(TURNS), "--set", "user=scripted", "--out", f"{folder}/trajectories.jsonl"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each way")
    parser.add_argument(
        "--without-openenv", action="store_true", help="leave out what needs the environment `adapters`"
    )
    parser.add_argument("--play", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.play:
        play_and_print(given.play)
        return 0
    if given.serve:
        {"starlette": serve_starlette, "openenv": serve_openenv}[given.serve[0]](int(given.serve[1]))
        return 0
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    seconds, figures = str(given.seconds), dict[str, dict[str, float]]()
    with tempfile.TemporaryDirectory() as folder:
        port = find_port()
        url = f"http://127.0.0.1:{port}"
        kinds = ("look-ups", "solutions")
        figures |= measure(
            sys.executable, serve_words(port, folder), {f"simia, {kind}": [kind, url, seconds] for kind in kinds}, port
        )
    local = {f"local, {kind}": [kind, "customer_service", seconds] for kind in kinds}
    figures |= measure(sys.executable, None, local, 0)
    port = find_port()
    serve = [sys.executable, __file__, "--serve", "starlette", str(port)]
    figures |= measure(sys.executable, serve, {"starlette echo": ["echo", f"http://127.0.0.1:{port}", seconds]}, port)
    if not given.without_openenv:
        from simia.venvs import ensure_environment, make_python_path

        python = str(ensure_environment("adapters", print))
        os.environ["PYTHONPATH"] = make_python_path(Path(python), print)
        port = find_port()
        serve = [python, __file__, "--serve", "openenv", str(port)]
        figures |= measure(python, serve, {"openenv echo": ["openenv", f"http://127.0.0.1:{port}", seconds]}, port)
    print(f"{'':<20}{'steps/s':>10}{'p50 ms':>9}{'p99 ms':>9}{'server µs':>12}{'client µs':>12}   (CPU for each step)")
    for name, each in figures.items():
        print(
            f"{name:<20}{each['per_s']:>10,.0f}{each['p50_ms']:>9.1f}{each['p99_ms']:>9.1f}"
            f"{each['server_us']:>12.0f}{each['client_us']:>12.0f}"
        )
    first = figures["simia, look-ups"]
    ok = first["per_s"] >= GOAL and first["p99_ms"] < P99_MS
    print(f"goal: {GOAL:,} steps/s one by one, p99 below {P99_MS:g} ms: {'kept' if ok else 'MISSED'}")
    rounded = {name: {key: round(value, 1) for key, value in each.items()} for name, each in figures.items()}
    print(json.dumps({"bench": "server", "ok": ok, "sessions": SESSIONS, "load": os.getloadavg()[0], **rounded}))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
