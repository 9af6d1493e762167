"""Building trainer environments: what a half-built, killed or failing build leaves behind. No network: the recipes here need none."""

import subprocess
import threading
from pathlib import Path

import pytest

from simia.errors import UserError
from simia.venvs import RECIPES, Recipe, ensure_environment
from simia.venvs.__main__ import main


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIMIA_CACHE", str(tmp_path))
    return tmp_path / "envs"


def recipe(monkeypatch: pytest.MonkeyPatch, **changes: object) -> Recipe:
    fields: dict[str, object] = {
        "name": "toy",
        "size": "tiny",
        "steps": (),
        "stubs": ("toy_stub",),
        "probe": "import toy_stub",
    }
    made = Recipe(**{**fields, **changes})  # type: ignore[arg-type]
    monkeypatch.setitem(RECIPES, "toy", made)
    return made


@pytest.mark.usefixtures("environments")
def test_builds_once_and_works_where_it_ends_up(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    made = recipe(monkeypatch)
    said: list[str] = []
    python = ensure_environment("toy", said.append)
    assert python == cache / made.key / "bin" / "python"
    subprocess.run([python, "-c", "import toy_stub"], check=True)
    # Console scripts name their interpreter by path: it must be the final one.
    version = subprocess.run([python.parent / "pip", "--version"], check=True, capture_output=True, text=True)
    assert str(cache / made.key) in version.stdout
    assert said
    said.clear()
    assert ensure_environment("toy", said.append) == python
    assert said == []


@pytest.mark.usefixtures("environments")
def test_a_killed_build_never_counts(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    made = recipe(monkeypatch)
    leftover = cache / f".{made.key}.99999"
    leftover.mkdir(parents=True)
    (leftover / "half").write_text("a wheel")
    assert ensure_environment("toy").is_file()
    assert not leftover.exists()


@pytest.mark.usefixtures("environments")
def test_a_failing_step_gives_one_line_and_the_log(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    made = recipe(monkeypatch, steps=(("--no-index", "--find-links=/nowhere", "no-such-thing-as-this==1"),))
    with pytest.raises(UserError) as caught:
        ensure_environment("toy")
    log = cache / f"{made.key}.log"
    assert "\n" not in str(caught.value)
    assert str(log) in str(caught.value)
    assert "no-such-thing-as-this" in log.read_text()
    assert not (cache / made.key).exists()


@pytest.mark.usefixtures("environments")
def test_an_environment_that_does_not_import_is_not_kept(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    made = recipe(monkeypatch, probe="import not_there_at_all")
    with pytest.raises(UserError, match="not_there_at_all"):
        ensure_environment("toy")
    assert not (cache / made.key).exists()


@pytest.mark.usefixtures("environments")
def test_two_at_once_build_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe(monkeypatch)
    said: list[str] = []
    threads = [threading.Thread(target=ensure_environment, args=("toy", said.append)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(line.startswith("building") for line in said) == 1


def test_a_changed_pin_is_another_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert recipe(monkeypatch).key != recipe(monkeypatch, steps=(("a==1",),)).key


def test_an_unknown_trainer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lamafactory"]) == 1
    assert "llamafactory" in capsys.readouterr().err
    assert main([]) == 2
