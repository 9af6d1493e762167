"""The zygote: loads a pack's code once, then forks a process for each worker that is asked for.

`python -s -P -B main.py DESCRIPTOR`. Over the control socket it gets orders: `fork` with a socket for the child, `kill`,
`status`. It runs no episode itself, so its memory is what all episodes start from, shared until they write to it.
"""

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
from pathlib import Path
from typing import Any

LIB = str(Path(__file__).resolve().parents[3])
if LIB not in sys.path:
    sys.path.insert(0, LIB)

from simia.sandbox.inside import confine  # noqa: E402
from simia.sandbox.inside.drivers import LoadedPack  # noqa: E402
from simia.sandbox.inside.frames import (  # noqa: E402
    HEAD,
    MOST_LEVELS,
    ChannelClosed,
    FrameReader,
    make_frame,
    pack_json,
)
from simia.sandbox.inside.sessions import WORDS, OutOfMemory, WorkerSessions, read_error_text, run_checks  # noqa: E402

MEMORY_EXIT = 77


def main(descriptor: int) -> None:
    os.set_inheritable(descriptor, False)  # bubblewrap passed it on; what the pack's code starts must not have it
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
            confine.hide_from_processes()  # programs that it starts are visible again: they may look at each other, not at the worker
            # The system call filter for loading holds already: bubblewrap installed it, also for process 1 of the sandbox.
            confine.set_loading_limits(memory=order["memory"], cpu=order["cpu"], size=order["size"])
        loaded = LoadedPack(Path(order["pack"]), order["spec"])
        if order["seal"]:
            confine.allow_workers()
        known = {"tools": list_tools(loaded), "declared": describe_tools(loaded), "by_convention": loaded.by_convention}
        control.sendall(make_frame({"ready": True, **known}))
    except BaseException as error:
        control.sendall(
            make_frame(
                {
                    "ready": False,
                    "error": f"{type(error).__name__}: {read_error_text(error)}",
                    "where": find_error_place(error),
                }
            )
        )
        return
    gc.collect()
    gc.freeze()  # children share these pages as long as no reference count changes in them
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
            except OSError:  # no process to be had: the channel's other end hears it, and other episodes go on
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
    """Give the parent a descriptor of each writable file system, before any code of the pack runs: it counts what they hold."""
    opened = []
    for folder in folders:
        with contextlib.suppress(OSError):
            opened.append(os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
    socket.send_fds(control, [make_frame({"folders": len(opened)})], opened)
    for each in opened:
        os.close(each)


def serve_worker(descriptor: int, loaded: LoadedPack, order: dict[str, Any], program: bytes) -> None:
    """A worker's life: confine itself, then answer one frame of requests after the other. Never returns."""
    code = 1
    try:
        os.closerange(3, descriptor)
        os.closerange(descriptor + 1, 4096)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        keep_from_children(descriptor)
        channel = socket.socket(fileno=descriptor)
        confine.set_worker_limits(**order["limits"])
        if program:
            confine.install_filter(program)
        answer_frames(
            channel, WorkerSessions(loaded, order["isolated"], order["live"]), loaded, order["most"], order["state"]
        )
        code = 0
    except (OutOfMemory, MemoryError):
        code = MEMORY_EXIT
    except ChannelClosed:
        code = 0
    finally:
        os._exit(code)


def keep_from_children(descriptor: int) -> None:
    """Answers are this process's alone: a program that the code starts does not inherit the channel, and a fork loses it."""
    os.set_inheritable(descriptor, False)
    os.register_at_fork(after_in_child=functools.partial(replace_descriptor, descriptor))


def replace_descriptor(descriptor: int) -> None:
    """Put standard input (the null device) in its place: a closed number could become another file's."""
    try:
        os.dup2(0, descriptor, inheritable=False)
    except OSError:
        os.close(descriptor)


def answer_frames(channel: socket.socket, sessions: WorkerSessions, loaded: LoadedPack, most: int, state: int) -> None:
    """Answer frame after frame. Answers travel together as long as they are small, so that the parent need not hold many large."""
    reader = FrameReader(channel)
    largest = max(state, most) + len("[]") + WORDS
    while True:
        held: list[bytes] = []
        size = 0
        for each in reader.next():
            row = answer_request(each, sessions, loaded, most)
            body = pack_json(row) if each[1] == "call" else pack_answer(row, largest)  # a call has checked its result
            if held and size + len(body) > most:
                channel.sendall(join_answers(held))
                held, size = [], 0
            held.append(body)
            size += len(body) + 1
        channel.sendall(join_answers(held))


def pack_answer(row: list[Any], most: int) -> bytes:
    """An answer as JSON; an error where it is none (a state can be anything), or too large to be sent."""
    try:
        size = measure_texts(row, MOST_LEVELS + 2)
        if size > most:  # before it is written: without memory orjson ends by a signal
            raise ValueError(f"it takes at least {size:,} bytes, more than {most:,}")
        body = pack_json(row)
        if len(body) > most:
            raise ValueError(f"{len(body):,} bytes are more than {most:,}")
    except (TypeError, ValueError, RecursionError) as error:
        return pack_json(
            [row[0], [2, f"{type(error).__name__}: the state cannot be sent as JSON: {read_error_text(error)}"]]
        )
    return body


def measure_texts(value: Any, levels: int) -> int:
    """Count the characters of all texts in a JSON value: as JSON it takes at least as many bytes.

    Raises `ValueError` where lists and objects nest deeper than `levels`; a value that contains itself does.
    """
    size, level = 0, [value]
    for _ in range(levels):
        size += sum(len(each) for each in level if isinstance(each, str))
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return size
    if any(isinstance(each, dict | list) for each in level):
        raise ValueError(f"it nests deeper than {MOST_LEVELS} levels")
    return size + sum(len(each) for each in level if isinstance(each, str))


def join_answers(rows: list[bytes]) -> bytes:
    """A frame of answers. One that needs the slow reader says so by a space before it, and then the frame does."""
    space = b" " if any(row[:1] == b" " for row in rows) else b""
    body = space + b"[" + b",".join(rows) + b"]"
    return HEAD.pack(len(body)) + body


def answer_request(request: list[Any], sessions: WorkerSessions, loaded: LoadedPack, most: int) -> list[Any]:
    number, what, session, detail = request
    if what == "call":
        by, name, arguments, index = detail
        return [number, sessions.get(session).call(by, name, arguments, index, most)]
    try:
        return [number, [0, answer_other(what, session, detail, sessions, loaded)]]
    except (MemoryError, OutOfMemory):
        raise
    except BaseException as error:
        return [number, [2, f"{type(error).__name__}: {read_error_text(error)}"]]


def answer_other(what: str, session: int, detail: Any, sessions: WorkerSessions, loaded: LoadedPack) -> Any:
    if what == "open":
        sessions.open(session, detail)
        return None
    if what == "close":
        return sessions.close(session)
    if what == "state":
        return sessions.get(session).driver.dump()
    if what == "changes":
        return sessions.get(session).changes()
    if what == "initial":
        return sessions.get(session).initial()
    if what == "checks":
        return run_checks(loaded, detail)
    raise ValueError(f"no such request: {what}")


def list_tools(loaded: LoadedPack) -> dict[str, dict[str, bool]]:
    if loaded.by_convention:
        return loaded.names
    return dict(loaded.template.tools())


def describe_tools(loaded: LoadedPack) -> dict[str, Any]:
    """The tools' signatures, to be compared with the pack's tools.json; a foreign world has only names."""
    found: dict[str, Any] = {}
    for by, tools in list_tools(loaded).items():
        found[by] = {}
        for name, writes in tools.items():
            found[by][name] = {"writes": writes}
            if loaded.by_convention:
                parameters = list(inspect.signature(getattr(loaded.object, name)).parameters.values())[1:]
                needed = [p.name for p in parameters if p.default is p.empty]
                found[by][name] |= {"parameters": [p.name for p in parameters], "required": needed}
    return found


def reap_children(children: dict[int, int], exits: dict[int, int]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        for number, child in list(children.items()):
            if child == pid:
                del children[number]
                exits[number] = os.waitstatus_to_exitcode(status)


def silence_output() -> None:
    """What a pack prints goes nowhere: answers travel on a descriptor of their own."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    with contextlib.suppress(OSError):
        os.close(nowhere)


def find_error_place(error: BaseException) -> str:
    trace = error.__traceback__
    place = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if "sandbox/inside" not in code.co_filename and "importlib" not in code.co_filename:
            place = f"{Path(code.co_filename).name}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return place


if __name__ == "__main__":
    main(int(sys.argv[1]))
