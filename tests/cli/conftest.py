"""Environments with made-up contents: a folder of distributions that says what is installed, as a real site-packages does."""

from collections.abc import Callable
from pathlib import Path

import pytest

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """`install(torch="2.13.0+cpu")`: what importlib.metadata finds from now on."""
    packages = tmp_path / "site-packages"
    packages.mkdir()
    monkeypatch.syspath_prepend(str(packages))

    def put(**versions: str) -> None:
        for name, version in versions.items():
            folder = packages / f"{name}-{version}.dist-info"
            folder.mkdir()
            text = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
            (folder / "METADATA").write_text(text)

    return put


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache in which no environment is built."""
    monkeypatch.setenv("SIMIA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
