"""Runs inside the adapters' environment: the conformance suite over Gymnasium, OpenEnv and skyrl-gym, and what is each one's own.

python adapters_probe.py ENDPOINT OUT.json
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.error
import urllib.request
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import skyrl_gym
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from omegaconf import OmegaConf
from openenv.core import GenericEnvClient

import simia.trainers.gymnasium
import simia.trainers.skyrl
from simia.envs import text_episode
from simia.envs.play.baseline_agents import NOTHING
from simia.errors import UserError
from simia.serve.http_server import Deadlines
from tests.trainers.adapters import Gym, Net, Sky
from tests.trainers.conformance import cases, check

STAGE = {"pack": "customer_service"}
HELLO = "Hello."
LOOK = (
    '<tool_call>\n{"name": "get_order", "arguments": {"order_id": "ORD-00001", "email": "a@example.com"}}\n</tool_call>'
)


def gymnasium_takes_it_for_its_own(endpoint: str) -> dict[str, Any]:
    """Its checker, which warns of what it does not like; rendering, and tasks by seed."""
    env = gymnasium.make("simia/Pack-v0", stage=STAGE, render_mode="ansi")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        check_env(env.unwrapped)
    tasks = [env.reset(seed=seed)[1]["task"] for seed in (3, 3, 4, 81)]
    drawn = [[env.reset(seed=seed)[1]["task"], env.reset()[1]["task"], env.reset()[1]["task"]] for seed in (5, 5)]
    env.reset(options={"task": "cs-009"})
    env.step(LOOK)
    shown = env.render()
    said = []
    for wrong in (lambda: env.reset(options={"tasks": 1}), lambda: env.reset(options={"task": "nope"})):
        try:
            wrong()
        except UserError as error:
            said.append(str(error))
    store = Path(tempfile.mkdtemp())
    small = simia.trainers.gymnasium.ToolEnv(STAGE, max_characters=200, store=store)
    cut = small.reset(seed=0)[0]
    lease = text_episode.share_environment(STAGE)
    simia.trainers.gymnasium.register("simia/Open-v0", lease.environment)
    opened = [gymnasium.make("simia/Open-v0"), gymnasium.make("simia/Open-v0", max_characters=300)]
    known = [each.reset(options={"task": "cs-010"})[1]["task"] for each in opened]
    known += [each.unwrapped._most for each in opened]
    for each in (env, env, small, small, *opened):
        each.close()
    lease.close()
    return {
        "warned": [str(each.message) for each in warned],
        "tasks": tasks,
        "known": known,
        "stores": sorted(path.name for path in store.iterdir()),
        "drawn": drawn,
        "shown": shown,
        "said": said,
        "cut": [len(cut), cut in small.observation_space],
    }


def gymnasium_steps_many(endpoint: str) -> dict[str, Any]:
    """In this process, where they share one environment, and each in a forked one, where they cannot."""
    told: dict[str, Any] = {}
    for name, kind in (("sync", SyncVectorEnv), ("async", AsyncVectorEnv)):
        how = (
            {"shared_memory": False} if kind is AsyncVectorEnv else {}
        )  # shared memory holds a Text's own characters only
        envs = kind([lambda: gymnasium.make("simia/Pack-v0", stage=STAGE)] * 3, **how)
        seen, infos = envs.reset(seed=[7, 7, 8])
        _, rewards, ended, cut, _ = envs.step([LOOK] * 3)
        first = [rewards.tolist(), ended.tolist(), cut.tolist()]
        scores = None
        for _ in range(20):
            _, _, ended, _, after = envs.step([HELLO] * 3)
            if "score" in after:
                scores = [after["score"].tolist(), after["_score"].tolist(), ended.tolist()]
                break
        shared = len(text_episode._shared)
        envs.close()
        told[name] = {
            "tasks": infos["task"].tolist(),
            "same": [seen[0] == seen[1], seen[1] == seen[2]],
            "first": first,
            "scores": scores,
            "shared": shared,
        }
    told["left"] = len(text_episode._shared)
    plan(endpoint, log=True)
    model = {"llm": {"kind": "openai", "base_url": endpoint, "model": "m"}}
    stage = {**STAGE, "backend": "simulated", "user": "scripted", **model}
    store = Path(tempfile.mkdtemp())
    envs = SyncVectorEnv([lambda: gymnasium.make("simia/Pack-v0", stage=stage, store=store)] * 3)
    told["asked"] = []
    for how in (
        {"seed": [7, 7, 8]},
        {"seed": [9, 9, 9], "options": {"group": "mine"}},
        {"options": {"task": "cs-009"}},
    ):
        envs.reset(**how)
        envs.step([LOOK] * 3)
        told["asked"].append(simulated(endpoint))
    told["stores"] = sorted(path.name for path in store.glob("[0-9]*"))
    envs.close()
    return told


def openenv_seats_many_at_once(endpoint: str) -> dict[str, Any]:
    """Clients of one server on simulated worlds. Of the first round no one is answered before all have asked; those of a group share
    what they ask."""
    many, net = 24, Net()
    model = {"llm": {"kind": "openai", "base_url": endpoint, "model": "m"}, "limits": {"concurrency": 64, "start": 64}}
    net.open({**STAGE, "backend": "simulated", "user": "scripted", **model})

    async def one(task: str, group: str | None) -> list[Any]:
        async with GenericEnvClient(base_url=net.url) as client:
            await client.reset(task=task, group=group)
            result = await client.step({"message": LOOK})
            heard = result.observation["text"]
            state = await client.state()
            while not result.done:
                result = await client.step({"message": HELLO})
            return [heard, state["task"], result.reward, result.observation["end"]]

    async def all_of_them(grouped: bool) -> list[Any]:
        tasks = [f"cs-{n % 3 + 9:03}" for n in range(many)]
        return await asyncio.gather(*(one(task, f"0/{task}" if grouped else None) for task in tasks))

    plan(endpoint, barrier=many, log=True)
    apart = asyncio.run(all_of_them(False))
    asked = simulated(endpoint)
    plan(endpoint, log=True)
    grouped = asyncio.run(all_of_them(True))
    told = {"apart": apart, "grouped": grouped, "asked": [asked, simulated(endpoint)]}
    told["kept"] = sorted(row.task_id for row in net.kept)
    net.close()
    return told


def plan(endpoint: str, **plan: Any) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    opener.open(endpoint.removesuffix("/v1") + "/_plan", data=json.dumps(plan).encode(), timeout=240).close()


def simulated(endpoint: str) -> int:
    """How often a model was asked to be the tools."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(endpoint.removesuffix("/v1") + "/_log", timeout=240) as reply:
        rows = json.loads(reply.read())["requests"]
    return sum(str(row["body"]["messages"][0]["content"]).startswith("You are the computer system") for row in rows)


def openenv_keeps_what_a_client_left(endpoint: str) -> dict[str, Any]:
    """One that goes in the middle, and one that only looked."""
    net = Net()
    net.open(STAGE)
    looked = GenericEnvClient(base_url=net.url).sync()
    looked.reset(seed=0)
    looked.close()
    net.reset("cs-009")
    net.act(LOOK)
    net.client.close()
    net.portal.close()
    kept = [row.model_dump(mode="json") for row in net.kept]
    return {"ends": [(row["task_id"], row["end"], row["reward"]["value"]) for row in kept]}


def openenv_ends_who_is_silent(endpoint: str) -> dict[str, Any]:
    """A server of three seats: sessions by /mcp, silent WebSockets, one that answers no ping, and then three clients that play."""
    net = Net()
    net.open(STAGE, most=3, deadlines=Deadlines(first=8.0, idle=8.0, ping=3.0))
    create = {"jsonrpc": "2.0", "id": 7, "method": "openenv/session/create", "params": {}}
    told: dict[str, Any] = {"mcp": [fetched(f"{net.url}/mcp", create) for _ in range(20)]}
    told["odd"] = [fetched(f"{net.url}/mcp", body) for body in ([], {"id": {}}, "x")]
    address = ("127.0.0.1", net.port)
    silent = [upgraded(address, "/ws") for _ in range(3)]  # raw sockets: they answer no ping and say nothing
    told["full"] = refused_for_seats(net.url)
    told["upgrade"] = [first.startswith(b"HTTP/1.1 101 ") for first, _ in silent]
    told["at_mcp"] = upgraded(address, "/mcp")[0].split(b" ")[1].decode()
    told["ended"] = [ends(each) for _, each in silent]
    told["played"] = []
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(3):
            clients.append(stack.enter_context(GenericEnvClient(base_url=net.url).sync()))
            clients[-1].reset(task="cs-009")
            told["played"].append(clients[-1].step({"message": LOOK}).done)
        deadline = time.monotonic() + 240
        while (net.server.table.sessions or len(net.kept) < 3) and time.monotonic() < deadline:
            time.sleep(0.1)  # a session's seat is free before its episode is scored and kept
        told["taken"] = len(net.server.table.sessions)
        try:  # a client that connects anew by itself has another seat, without an episode
            clients[0].step({"message": LOOK})
            told["idle"] = "it went on"
        except Exception as error:
            told["idle"] = type(error).__name__
    told["kept"] = [[row.task_id, row.end.kind] for row in net.kept]
    net.close()
    return told


def upgraded(address: tuple[str, int], path: str) -> tuple[bytes, socket.socket]:
    """A WebSocket by hand, and the answer to its handshake."""
    made = socket.create_connection(address, timeout=240)
    head = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="
    made.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}\r\n\r\n".encode())
    return made.recv(4096), made


def ends(made: socket.socket) -> bool:
    """Whether the server ends it, who never does so himself."""
    try:
        while made.recv(4096):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


def refused_for_seats(url: str) -> bool:
    try:
        with GenericEnvClient(base_url=url).sync() as client:
            client.reset(task="cs-009")
    except Exception:
        return True
    return False


def a_command_serves_it(endpoint: str) -> dict[str, Any]:
    """`simia serve` in a process of its own, and OpenEnv's client: the reference, nothing, what is wrong, and a page's request."""
    out = Path(tempfile.mkdtemp()) / "played.jsonl"
    command = [
        sys.executable,
        "-m",
        "simia",
        "serve",
        "customer_service",
        "--openenv",
        "--port",
        "0",
        "--out",
        str(out),
        "--store",
        str(out.parent / "replies"),
    ]
    process = subprocess.Popen([*command, "--set", "user=scripted"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    url = process.stderr.readline().split()[2].rstrip(";")
    case = cases(endpoint)[0]
    told: dict[str, Any] = {"said": []}
    with GenericEnvClient(base_url=url).sync() as client:
        for wrong in ({"task": "nope"}, {"tsk": "cs-009"}, {"seed": "one"}, {"split": "train", "index": 999}):
            try:
                client.reset(**wrong)
            except RuntimeError as error:
                told["said"].append(str(error))
        try:
            client.step({"message": HELLO})
        except RuntimeError as error:
            told["said"].append(str(error))
        opening = client.reset(task=case.task)
        told["opening"] = [opening.observation["task"], len(opening.observation["tools"]), opening.done, opening.reward]
        results = [client.step({"message": text}) for text in case.solution()]
        told["solved"] = [[result.done, result.reward] for result in results]
        client.reset(split="train", index=0)
        given = client.step({"message": "", "calls": [{"name": "get_order", "arguments": {"order_id": "ORD-1"}}]})
        told["calls"] = given.observation["text"]
        client.reset(task=case.task)
        result = client.step({"message": NOTHING})
        while not result.done:
            result = client.step({"message": NOTHING})
        told["nothing"] = [result.reward, result.observation["end"], result.observation["code"]]
        told["state"] = client.state()
    told["tasks"] = [
        fetched(f"{url}/customer_service/splits"),
        fetched(f"{url}/customer_service/task", {"split": "test", "index": 0}),
        fetched(f"{url}/customer_service/num_tasks", {"split": "test"}),
    ]
    told["refused"] = [
        fetched(f"{url}/reset", {}),
        fetched(f"{url}/health", Origin="https://page.example.com"),
        fetched(f"{url}/health", Host="page.example.com"),
    ]
    stays = GenericEnvClient(base_url=url).sync()
    stays.reset(task="cs-010")
    stays.step({"message": LOOK})
    process.send_signal(signal.SIGINT)
    told["stores"] = sorted(path.name for path in (out.parent / "replies").glob("*"))
    told["left"] = [process.wait(60), process.stderr.read()]
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    told["rows"] = [[row["task_id"], row["end"].get("kind", "terminated"), row["reward"]["value"]] for row in rows]
    with contextlib.suppress(Exception):
        stays.close()
    return told


def fetched(url: str, body: Any = None, **headers: str) -> Any:
    """The JSON there, or the status where it is an error."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=240) as reply:
            return json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code


def the_page_runs_to_the_letter(endpoint: str) -> dict[str, Any]:
    """Every Python block of docs/adapters.md, in a process of its own, beside a server."""
    net = Net()
    net.open(STAGE)
    page = (Path(__file__).parents[2] / "docs" / "adapters.md").read_text()
    told = []
    for block in re.findall(r"```python\n(.*?)```", page, re.S):
        code = block.replace("http://127.0.0.1:8000", net.url)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=480)
        told.append([done.returncode, done.stdout, done.stderr])
    net.close()
    return {"blocks": told}


def skyrl_makes_and_cuts(endpoint: str) -> dict[str, Any]:
    """By its own registry, with a setting of OmegaConf's kind; its limit of turns scores."""
    store = Path(tempfile.mkdtemp())
    simia.trainers.skyrl.register(OmegaConf.create({**STAGE, "tasks": ["cs-009", "cs-012"]}), store=store)
    rows = simia.trainers.skyrl.task_rows(STAGE | {"tasks": ["cs-009", "cs-012"]}, store=store)
    env = skyrl_gym.make("simia", env_config={}, extras={**rows[0], "max_turns": 2})
    prompt, _ = env.init(rows[0]["prompt"])
    first, second = env.step(LOOK), env.step(LOOK)
    metrics, shared = env.get_metrics(), len(text_episode._shared)
    env.close()
    try:
        skyrl_gym.make("simia", env_config={}, extras={})
        said = ""
    except UserError as error:
        said = str(error)
    groups = simia.trainers.skyrl.TaskGroups()
    first_two, other = [groups.join("a/b"), groups.join("a/b")], groups.join("c")
    groups.leave(first_two[0])
    third = groups.join("a/b")
    for group in (third, first_two[1], other):
        groups.leave(group)
    joined = [*first_two, third, groups.join("a/b"), groups.join("c")]
    added = type(env).aggregate_metrics([metrics, {"turns": 4, "aborted": True}])
    return {
        "rows": rows,
        "roles": [row["role"] for row in prompt],
        "stores": sorted(path.name for path in store.iterdir()),
        "shared": shared,
        "observed": first["observations"][0]["role"],
        "done": [first["done"], second["done"]],
        "rewards": [first["reward"], second["reward"]],
        "metrics": metrics,
        "added": added,
        "groups": joined,
        "said": said,
    }


OWN = [
    gymnasium_takes_it_for_its_own,
    gymnasium_steps_many,
    openenv_seats_many_at_once,
    openenv_keeps_what_a_client_left,
    openenv_ends_who_is_silent,
    a_command_serves_it,
    the_page_runs_to_the_letter,
    skyrl_makes_and_cuts,
]


def main(endpoint: str, out: str) -> None:
    told: dict[str, Any] = {}
    for name, driver in (("gymnasium", Gym), ("skyrl", Sky), ("openenv", Net)):
        started = time.monotonic()
        told[name] = check(driver, endpoint)
        print(name, round(time.monotonic() - started, 1), "s", sum(map(bool, told[name].values())), "failed")
    for own in OWN:
        try:
            told[own.__name__] = own(endpoint)
        except Exception:
            told[own.__name__] = {"error": traceback.format_exc()}
    Path(out).write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
