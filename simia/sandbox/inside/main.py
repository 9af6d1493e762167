"""The process that loads a pack's code once and forks the workers (the zygote), and the workers' loop of requests.

Started as `python -s -P -B main.py DESCRIPTOR`. Orders come over the control socket: `fork` with a socket for the child, `kill`,
`status`. The zygote runs no episode, so workers share its memory until they write to it.
"""

# ruff: noqa: E402

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import os
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

COLLECTIONS = (
    20_000,
    20,
    50,
)  # a state is thousands of objects without cycles: with Python's default thresholds a reset would take twice the time
LIB = str(Path(__file__).resolve().parents[3])
if LIB not in sys.path:
    sys.path.insert(0, LIB)

from simia import kit
from simia.sandbox.inside import confine
from simia.sandbox.inside.frames import ChannelClosed, FrameReader, check_bounds, join_answers, make_frame, pack_json
from simia.sandbox.inside.loading import LoadedPack
from simia.sandbox.inside.sessions import WORDS, OutOfMemory, WorkerSessions, describe_error, run_checks

MEMORY_EXIT = 77


def main(descriptor: int, *processes: int) -> None:
    """Load the pack, then obey orders. `processes`: the descriptor of a /proc with all processes, if the programs' /proc hides some."""
    for each in processes:
        kit.show_processes(each)
    os.set_inheritable(descriptor, False)  # bubblewrap passed it on; programs of the pack's code must not get it
    control = socket.socket(fileno=descriptor)
    reader = FrameReader(control)
    order = reader.next()
    hand_over_folders(control, order["folders"])
    silence_output()
    os.umask(0o022)
    os.environ.update(order.get("variables", {}))  # not on a command line, which all users of the machine may read
    try:
        alone = order["spec"].get("root") is not None
        program = confine.build_filter_program() if order["seal"] and not alone else b""
        if order["seal"]:
            confine.hide_from_processes()  # programs that a worker starts are visible again: they may inspect each other, not the worker
            # The system call filter for loading holds already: bubblewrap installed it, also for process 1 of the sandbox.
            confine.set_loading_limits(memory=order["memory"], cpu=order["cpu"], size=order["size"])
        loaded = LoadedPack(Path(order["pack"]), order["spec"])
        if order["seal"]:
            confine.allow_workers()
        known = {"tools": loaded.tools, "declared": describe_tools(loaded), "by_convention": loaded.by_convention}
        control.sendall(make_frame({"ready": True, **known}))
    except BaseException as error:
        failed = {"ready": False, "error": describe_error(error), "where": find_error_place(error)}
        control.sendall(make_frame(failed))
        return
    gc.collect()
    gc.freeze()  # children share these pages as long as no reference count changes in them
    gc.set_threshold(*COLLECTIONS)
    children: dict[int, int] = {}
    exits: dict[int, int] = {}
    while True:
        try:
            order = reader.next()
        except ChannelClosed:
            for pid in children.values():
                os.kill(pid, signal.SIGKILL)
            return
        reap_children(children, exits)
        what, number = order["do"], order.get("id", 0)
        if what == "fork":
            channel = reader.descriptors.pop(0)
            try:
                pid = os.fork()
            except OSError:  # no process could be forked: the parent sees the closed channel, and other episodes go on
                os.close(channel)
                continue
            if pid == 0:
                control.close()
                serve_worker(channel, loaded, order, program)
            os.close(channel)
            children[number] = pid
        elif what == "kill":
            if number in children:
                os.kill(children[number], signal.SIGKILL)
        elif what == "status":
            deadline = time.monotonic() + 0.5
            while number in children and time.monotonic() < deadline:
                reap_children(children, exits)
                time.sleep(0.001)
            control.sendall(make_frame({"id": number, "exit": exits.pop(number, None)}))


def hand_over_folders(control: socket.socket, folders: list[str]) -> None:
    """Pass the parent a descriptor of each writable file system before any code of the pack runs, so that it can measure their content."""
    opened = []
    for folder in folders:
        with contextlib.suppress(OSError):
            opened.append(os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
    socket.send_fds(control, [make_frame({"folders": len(opened)})], opened)
    for each in opened:
        os.close(each)


def serve_worker(descriptor: int, loaded: LoadedPack, order: dict[str, Any], program: bytes) -> None:
    """Confine this worker process, then answer its requests, frame by frame. Never returns."""
    code = 1
    try:
        close_descriptors({descriptor} | ({kit.PROCESSES} if isinstance(kit.PROCESSES, int) else set()))
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        keep_from_children(descriptor)
        channel = socket.socket(fileno=descriptor)
        confine.set_worker_limits(**order["limits"])
        if program:
            confine.install_filter(program)
        sessions = WorkerSessions(loaded, order["isolated"], order["live"])
        answer_frames(channel, sessions, loaded, order["most"], order["state"])
    except (OutOfMemory, MemoryError):
        code = MEMORY_EXIT
    except ChannelClosed:
        code = 0
    finally:
        os._exit(code)


def close_descriptors(keep: set[int]) -> None:
    """Close all descriptors except for the standard ones and these."""
    first = 3
    for each in sorted(keep):
        os.closerange(first, each)
        first = each + 1
    os.closerange(first, 4096)


def keep_from_children(descriptor: int) -> None:
    """Keep the channel of answers from programs that the code starts, and from forks of this process."""
    os.set_inheritable(descriptor, False)
    os.register_at_fork(after_in_child=functools.partial(replace_descriptor, descriptor))


def replace_descriptor(descriptor: int) -> None:
    """Replace a descriptor by standard input (the null device), since the number of a closed one could be reused for another file."""
    try:
        os.dup2(0, descriptor, inheritable=False)
    except OSError:
        os.close(descriptor)


def answer_frames(channel: socket.socket, sessions: WorkerSessions, loaded: LoadedPack, most: int, state: int) -> None:
    """Answer frame after frame. Small answers are sent together, large ones alone, so that the parent holds few large ones."""
    reader = FrameReader(channel)
    largest = max(state, most) + len("[]") + WORDS
    while True:
        held: list[bytes] = []
        size = 0
        for each in reader.next():
            if hasattr(loaded.template, "simia_exchange"):
                loaded.template.simia_exchange = functools.partial(exchange_value, channel, reader, each)
            row = answer_request(each, sessions, loaded, most)
            body = pack_json(row) if each[1] == "call" else pack_answer(row, largest)  # a call checked its result
            if held and size + len(body) > most:
                channel.sendall(join_answers(held))
                held, size = [], 0
            held.append(body)
            size += len(body) + 1
        channel.sendall(join_answers(held))


def exchange_value(channel: socket.socket, reader: FrameReader, request: list[Any], value: Any) -> Any:
    """Answer the request in progress before its call has returned, and wait for the next request, which takes its place.

    A world with an attribute `simia_exchange` (`simia.drivers.function_world`) gets this, so that code inside can ask the parent process for
    something. Frames must hold one request. Returns the arguments of the next request.
    """
    channel.sendall(make_frame([[request[0], [0, value]]]))
    (following,) = reader.next()
    request[0] = following[0]
    return following[3][2]


def pack_answer(row: list[Any], most: int) -> bytes:
    """Encode an answer as JSON. If it is not JSON (a state can be anything) or too large to be sent, encode an error instead."""
    try:
        check_bounds(row, most)  # before it is encoded: out of memory, orjson ends the process by a signal
        body = pack_json(row)
        if len(body) > most:
            raise ValueError(f"{len(body):,} bytes are more than {most:,}")
    except (TypeError, ValueError, RecursionError) as error:
        return pack_json([row[0], [2, describe_error(error, "the state cannot be sent as JSON: ")]])
    return body


def answer_request(request: list[Any], sessions: WorkerSessions, loaded: LoadedPack, most: int) -> list[Any]:
    number, what, session, detail = request
    if what == "call":
        by, name, arguments, index = detail
        answer = sessions.get(session).call(by, name, arguments, index, most)
        return [request[0], answer]  # after an exchange this is the number of the last request
    value = None
    try:
        match what:
            case "open":
                sessions.open(session, detail)
            case "close":
                sessions.close(session)
            case "state":
                value = sessions.get(session).driver.dump()
            case "changes":
                value = sessions.get(session).changes()
            case "initial":
                value = sessions.get(session).driver.beginning()
            case "restore":
                value = sessions.get(session).restore(detail)
            case "checks":
                value = run_checks(loaded, detail)
            case _:
                raise ValueError(f"no such request: {what}")
    except (MemoryError, OutOfMemory):
        raise
    except BaseException as error:
        return [number, [2, describe_error(error)]]
    return [number, [0, value]]


def describe_tools(loaded: LoadedPack) -> dict[str, Any]:
    """Return the tools' signatures, to be compared with the pack's tools.json; a foreign world has only names."""
    found: dict[str, Any] = {}
    for by, tools in loaded.tools.items():
        found[by] = {name: {"writes": writes} for name, writes in tools.items()}
        for name in tools if loaded.by_convention else ():
            parameters = list(inspect.signature(getattr(loaded.object, name)).parameters.values())[1:]
            needed = [p.name for p in parameters if p.default is p.empty]
            found[by][name] |= {"parameters": [p.name for p in parameters], "required": needed}
    return found


def reap_children(children: dict[int, int], exits: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            for number, child in list(children.items()):
                if child == found[0]:
                    del children[number]
                    exits[number] = os.waitstatus_to_exitcode(found[1])


def silence_output() -> None:
    """Discard everything that a pack prints; answers are sent on a separate descriptor."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    with contextlib.suppress(OSError):
        os.close(nowhere)


def find_error_place(error: BaseException) -> str:
    """Return file and line of the pack's code where an error was raised."""
    places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [place for place in places if "sandbox/inside" not in place[0] and "importlib" not in place[0]]
    return f"{Path(own[-1][0]).name}, line {own[-1][1]}" if own else ""


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
