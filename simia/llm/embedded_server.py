"""Serve a local language model from a child process, behind a loopback HTTP port that needs a key.

The native library can run out of memory, fail on a broken file or be killed; in a child process that is an outage to report and
`restart()` from, and not the end of a run. This file has both sides: the class is the parent's, `main` is the child's.

    parent --stdin: one line of JSON settings, then nothing; EOF means that the parent has ended--> child
    parent <--stdout: one line of JSON, the address, once the model answers--                        child
    the library's own output goes to the log file, by descriptor, so that none of it reaches the user's terminal

The API key is passed through stdin because every user of the machine may read argv. The child ends with its parent for two reasons: the
kernel's death signal, which also works while the library loads a model and holds Python's lock, and EOF on stdin, which also works where
there is no such signal. Linux sends that signal when the *thread* that started the child ends, so start a server from a thread that
lives as long as the server is needed (an event loop's own thread does).
"""

import asyncio
import contextlib
import importlib.util
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, Any

from simia.errors import UserError

METADATA = 16_000_000  # bytes at the beginning of a GGUF file that hold its metadata
START_SECONDS = 120.0  # for a cold disk and a busy machine; usually half a gigabyte loads in about a second
STOP_SECONDS = 3.0
PR_SET_PDEATHSIG = 1


class EmbeddedServer:
    """Start, restart and stop one child process. `start` and `stop` must not be called from several tasks at once."""

    def __init__(
        self,
        model_path: Path,
        *,
        threads: int | None = None,
        context: int = 8192,
        slots: int = 1,
        log: Path | None = None,
        embeddings: bool = False,
    ) -> None:
        self.model_path = Path(model_path)
        self.embeddings = embeddings  # vectors of texts, and no replies
        self.threads = threads or count_cores()
        self.context = context  # tokens that one slot can hold: prompt and answer together
        self.slots = slots
        self.log = log
        self.api_key = secrets.token_urlsafe(24)
        self.base_url = ""
        self.child: subprocess.Popen[bytes] | None = None
        self._log_file: IO[bytes] | None = None
        self._log_start = 0

    @property
    def alive(self) -> bool:
        return self.child is not None and self.child.poll() is None

    async def start(self) -> str:
        """Return the base URL, once the model is loaded and the server answers."""
        if self.alive:
            return self.base_url
        if importlib.util.find_spec("xllamacpp") is None:
            raise UserError("the embedded model needs xllamacpp: pip install 'simia[embedded]'")
        if not self.model_path.is_file():
            raise UserError(f"there is no model file {self.model_path}")
        await self.stop()  # a child that died leaves pipes behind
        try:
            self.base_url = await self._spawn()
        except BaseException:  # also when cancelled: never leave an orphaned child
            await asyncio.shield(self.stop())
            raise
        return self.base_url

    async def restart(self) -> str:
        await self.stop()
        return await self.start()

    async def stop(self) -> None:
        child, self.child = self.child, None
        if child is not None:
            child.terminate()
            try:
                await asyncio.to_thread(child.wait, STOP_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                await asyncio.to_thread(child.wait)
            for pipe in filter(None, (child.stdin, child.stdout)):
                with contextlib.suppress(OSError):
                    pipe.close()
        if self._log_file is not None:
            self._log_file.close()
            self._log_file = None

    async def _spawn(self) -> str:
        child = self._popen()
        assert child.stdin is not None
        assert child.stdout is not None
        settings = {
            "model": str(self.model_path),
            "threads": self.threads,
            "context": self.context,
            "slots": self.slots,
            "api_key": self.api_key,
            "embeddings": self.embeddings,
            "parent": os.getpid(),
        }
        with contextlib.suppress(BrokenPipeError):  # it died at once: the missing answer below reports it, with the log
            child.stdin.write(json.dumps(settings).encode() + b"\n")
            child.stdin.flush()
        try:
            line = await asyncio.wait_for(asyncio.to_thread(child.stdout.readline), START_SECONDS)
        except TimeoutError:
            raise self._failure(f"did not answer within {START_SECONDS:g} s") from None
        if not line:
            code = await asyncio.to_thread(child.wait)
            raise self._failure(f"ended while it started, with {f'signal {-code}' if code < 0 else code}")
        return str(json.loads(line)["address"]) + "/v1"

    def _popen(self) -> subprocess.Popen[bytes]:
        self._log_file = self._open_log()
        self._log_start = os.fstat(self._log_file.fileno()).st_size  # skip the errors of earlier starts
        path = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.child = subprocess.Popen(
            [sys.executable, "-P", "-m", "simia.llm.embedded_server"],  # -P: import nothing from the current folder
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},  # the child finds the simia that runs here
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log_file,
            start_new_session=True,  # Ctrl-C reaches the parent only, which then decides
        )
        return self.child

    def _open_log(self) -> IO[bytes]:
        if self.log is None:
            return tempfile.TemporaryFile()  # no name, so that nothing is left behind
        self.log.parent.mkdir(parents=True, exist_ok=True)
        return self.log.open("ab+")

    def _failure(self, what: str) -> UserError:
        lines = self._read_log_tail(self._log_start)
        errors = [line for line in lines if " E " in line]  # the first names the cause, a traceback follows at the end
        last = (errors or lines[-1:] or ["it wrote no log"])[0]
        return UserError(f"the embedded model server {what}: {last}" + (f" (log: {self.log})" if self.log else ""))

    def read_last_log_line(self) -> str:
        return (self._read_log_tail() or [""])[-1]

    def _read_log_tail(self, start: int = 0) -> list[str]:
        """Read by position: the child shares our file offset, and moving it would make it write over its own log."""
        if self._log_file is None:
            return []
        descriptor = self._log_file.fileno()
        end = os.fstat(descriptor).st_size
        start = max(start, end - 8192)
        tail = os.pread(descriptor, end - start, start).decode(errors="replace")
        return [line.strip() for line in tail.splitlines() if line.strip()]


def count_cores() -> int:
    """The cores that this process may use: a container's share, and not the machine's count."""
    affinity = getattr(os, "sched_getaffinity", None)  # not everywhere
    return len(affinity(0)) if affinity else os.cpu_count() or 1


# --- the child ---


def main() -> None:
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # from here on, whatever the library prints lands in the log
    settings = json.loads(sys.stdin.readline())
    _die_with(settings["parent"])
    server = _serve(settings)
    print(json.dumps({"address": server.listening_address}), file=answer, flush=True)
    answer.close()
    threading.Event().wait()


def _serve(settings: dict[str, Any]) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    # The name in replies; without it they show a path of this machine.
    params.model_alias = {Path(settings["model"]).stem}
    params.hostnames = ["127.0.0.1"]
    params.port = 0  # the kernel picks a free one, so there is no race for it
    params.api_keys = [settings["api_key"]]
    params.n_gpu_layers = 0
    params.fit_params = False  # do what we say and do not measure the device first
    params.cache_ram_mib = 0  # the host prompt cache grew by more than a gigabyte
    params.n_parallel = settings["slots"]
    params.n_ctx = settings["context"] * settings["slots"]  # the library splits it evenly over the slots
    params.cpuparams.n_threads = settings["threads"]
    params.cpuparams_batch.n_threads = settings["threads"]
    if settings["embeddings"]:
        params.embedding = True
        if not declares_pooling(Path(settings["model"])):  # a text model: use the mean of its token vectors
            params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    params.ui = False
    params.verbosity = 2  # warnings; at 3 it writes several lines for each request
    return xllamacpp.Server(params)  # returns when the model is loaded and the port answers


def declares_pooling(weights: Path) -> bool:
    """Whether a GGUF file is an embedding model, whose metadata say how vectors of tokens become one."""
    with weights.open("rb") as file:
        return b".pooling_type" in file.read(METADATA)


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before we asked for the signal
            os._exit(0)

    def watch() -> None:
        while sys.stdin.buffer.read(4096):
            pass
        os._exit(0)  # no clean-up: it would wait for the library's threads

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    main()
