"""What the doctor says of environments with made-up versions in them."""

import platform
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import simia
from simia.cli import build_app
from simia.cli.doctor import describe_extra
from simia.errors import UserError
from simia.trainers.versions import NEEDS, is_in_range
from simia.venvs import RECIPES
from tests.cli.conftest import Install

LLAMAFACTORY = {
    "llamafactory": "0.9.5",
    "torch": "2.13.0+cpu",
    "transformers": "5.6.0",
    "datasets": "4.0.0",
    "accelerate": "1.11.0",
    "peft": "0.18.1",
    "trl": "0.24.0",
}


def doctor(*arguments: str) -> str:
    done = CliRunner().invoke(build_app(), ["doctor", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_an_environment_for_one_trainer_clashes_with_another(install: Install, cache: Path) -> None:
    install(**LLAMAFACTORY)
    assert "trainer llamafactory: can run in this environment" in doctor("--trainer", "llamafactory")
    first, second = doctor("--trainer", "trl").splitlines()
    assert first == (
        "trainer trl: not in this environment: trl 0.24.0 (trl needs >=1.16.0,<2), datasets 4.0.0 (trl needs >=4.7.0)"
    )
    assert second == f"  a clean environment ({RECIPES['trl'].size}): {sys.executable} -P -m simia.venvs trl"


def test_the_edges_of_a_range(install: Install, cache: Path) -> None:
    install(**{**LLAMAFACTORY, "transformers": "5.6.1", "datasets": "2.16.0"})
    said = doctor("--trainer", "llamafactory").splitlines()[0]
    assert said.endswith("not in this environment: transformers 5.6.1 (llamafactory needs >=4.55.0,!=4.57.0,<=5.6.0)")


def test_what_is_missing_is_told_from_what_clashes(install: Install, cache: Path) -> None:
    install(verl="0.9.1", torch="2.11.0", transformers="5.6.0", ray="2.60.0", transferqueue="0.1.10")
    said = doctor("--trainer", "verl").splitlines()[0]
    assert "transformers 5.6.0 (verl needs >=5.5.3,!=5.6.0,<5.11)" in said
    assert "transferqueue" not in said.lower()
    assert "torch" not in said


def test_an_environment_of_its_own_is_named_when_it_is_built(install: Install, cache: Path) -> None:
    python = cache / "envs" / RECIPES["trl"].key / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert doctor("--trainer", "trl").splitlines()[1] == f"  its own environment: {python}"


def test_the_whole_table(install: Install, cache: Path) -> None:
    install(torch="2.13.0+cpu", vllm="0.32.0")
    said = doctor()
    for name in NEEDS:
        assert f"trainer {name}: " in said
        assert any(f"trainer {name}" in line for line in said.splitlines())
    assert "extra embedded" in said
    assert "torch 2.13.0+cpu" in said
    assert "vllm 0.32.0" in said
    assert "vllm 0.32.0 (ragen needs ==0.8.2)" in said
    assert "git clone https://github.com/RAGEN-AI/RAGEN" in said


def write_metadata(folder: Path, *requirements: str) -> None:
    """Let simia's own metadata name these requirements."""
    own = folder / "site-packages" / f"simia-{simia.__version__}.dist-info"
    own.mkdir()
    lines = "".join(f"Requires-Dist: {each}\n" for each in requirements)
    (own / "METADATA").write_text(f"Metadata-Version: 2.1\nName: simia\nVersion: {simia.__version__}\n{lines}")


def test_the_report_for_a_bug(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(aiohttp="3.99.1", made_up_bench="1.2", torch="2.13.0+cpu")
    write_metadata(
        tmp_path,
        "aiohttp>=3.11",
        "no-such-package[x]>=1",
        'Made.Up_Bench>=1; extra == "bench"',
        "other-thing; sys_platform == 'linux' and extra == 'other'",
        "trl>=1; extra == 'trl'",
    )
    monkeypatch.setenv("SIMIA_TOKEN", "a-secret")
    lines = doctor("--report").splitlines()
    assert lines[0] == f"simia {simia.__version__}"
    assert lines[1].startswith(f"Python {platform.python_version()} (")
    assert lines[2].startswith(f"system: {platform.system()} {platform.release()}")
    facts = dict(line.split(": ", 1) for line in lines[2:])
    assert facts["sandbox"].startswith(("yes: bubblewrap", "no: "))
    assert facts["packages"] == "aiohttp 3.99.1, no-such-package missing"
    assert facts["extra bench"] == "made-up-bench 1.2"
    assert facts["extras not installed"] == "other"
    assert "torch 2.13.0+cpu" in facts["of trainers"]
    assert "SIMIA_TOKEN" in facts["variables set"]
    text = "\n".join(lines)
    assert "a-secret" not in text
    assert str(Path.home()) not in text
    assert sys.prefix not in text


def test_a_missing_extra_says_what_it_means(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert describe_extra("languages", ["py3langid"]) == (
        "not installed: pip install 'simia[languages]'; without it, results in another language of a seed's script can be accepted"
        " (simia amplify names such seeds)"
    )
    assert describe_extra("ray", ["ray"]) == "not installed: pip install 'simia[ray]'"


def test_an_unknown_trainer(cache: Path) -> None:
    with pytest.raises(UserError, match="no trainer named 'tlr'; there are: llamafactory, trl, verl, ragen"):
        doctor("--trainer", "tlr")


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("5.6.0", "<=5.6.0", True),
        ("5.6", "<=5.6.0", True),
        ("5.6.0.post1", "<=5.6.0", True),
        ("5.10.1", ">=5.5.3,<5.11", True),
        ("5.11.0", ">=5.5.3,<5.11", False),
        ("5.6.0", ">=5.5.3,!=5.6.0", False),
        ("2.13.0+cpu", "==2.13.0", True),
        ("1.9", ">=1.16.0", False),
        ("10.0", ">=9.1,<10", False),
        ("anything", "", True),
    ],
)
def test_ranges_compare_numbers(version: str, wanted: str, fits: bool) -> None:
    assert is_in_range(version, wanted) is fits


def test_an_extra_is_installed_when_all_of_its_modules_are() -> None:
    assert describe_extra("serve", ["json", "typer"]) == "installed"
    assert describe_extra("serve", ["no_such_a", "json", "no_such_b"]) == (
        "not installed (no_such_a, no_such_b missing): pip install 'simia[serve]'"
    )
    assert describe_extra("serve", ["no_such_a"]) == "not installed: pip install 'simia[serve]'"
