"""Messages before a command begins: which run it resumes, which model it starts, which pack may have been meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from simia.amplification.settings import AmplifyConfig
from simia.authoring.scaffold import scaffold_pack
from simia.config import load_config
from simia.envs.opening import open_environment
from simia.errors import UserError
from simia.jobs import Run
from simia.jobs.cleanup import PAGE
from simia.llm.embedded import EmbeddedBackend
from tests.command import run_simia


async def stop(*_: object, **__: object) -> None:
    raise UserError("stopped here")


def test_resume_without_a_name_says_which_run_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "second"):
        Run.create(
            tmp_path / "runs", load_config(AmplifyConfig, "amplify/default", ["n=2"]), name=name, facts={}
        ).close()
    monkeypatch.setattr("simia.amplification.session.resume_amplification", stop)
    done = run_simia("runs", "resume", cwd=tmp_path)
    assert done.stderr.splitlines() == ["resuming second, the latest run in runs", "simia: stopped here"]
    assert run_simia("runs", "resume", "first", cwd=tmp_path).stderr.splitlines() == ["simia: stopped here"]


@pytest.mark.parametrize("protocol", ["--mcp", "--openenv"])
def test_a_wrong_pack_names_the_nearest(tmp_path: Path, protocol: str) -> None:
    done = run_simia("serve", "custmer_service", protocol, cwd=tmp_path)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("simia: no pack named 'custmer_service'; did you mean customer_service? (there are: ")


@pytest.mark.parametrize(
    ("config", "command"),
    [
        ("officebench_simulated", "simia import officebench FOLDER"),
        ("officebench_executable", "simia import officebench FOLDER"),
        ("tau_executable", "simia import tau2 retail"),
        ("tau_simulated", "simia pack new --from trajectories data/seeds/apigen-mt_5k.json --out apigen-mt"),
    ],
)
def test_a_config_whose_pack_is_made_by_an_import_names_the_command(tmp_path: Path, config: str, command: str) -> None:
    settings = "--set", "model_path=org/m", "--dry-run"
    done = run_simia("train", "ragen", f"ragen/{config}", *settings, cwd=tmp_path)
    [line] = done.stderr.splitlines()
    assert line.endswith(f"; make it by: {command} (or give a path)")


def test_a_config_whose_packs_have_other_names_is_told_what_there_is(tmp_path: Path) -> None:
    for name in ("1", "2"):
        scaffold_pack(tmp_path / "apigen-mt" / name)
    words = (
        "train",
        "ragen",
        "ragen/tau_simulated",
        "--set",
        "es_manager.val.env_configs.tags=[RetailSeeds,AirlineSeeds]",
        "--dry-run",
    )
    [line] = run_simia(*words, cwd=tmp_path).stderr.splitlines()
    assert line.endswith("; apigen-mt holds the packs apigen-mt/1, apigen-mt/2: name one of them")


def test_a_missing_file_is_no_pack_of_another_name(tmp_path: Path) -> None:
    words = "pack", "new", "--from", "trajectories", "data/seeds/apigen-mt_5k.json", "--out", "apigen-mt"
    [line] = run_simia(*words, cwd=tmp_path).stderr.splitlines()
    assert line == "simia: data/seeds/apigen-mt_5k.json does not exist"


def test_paths_with_spaces_are_quoted_in_commands_to_paste(tmp_path: Path) -> None:
    done = run_simia("pack", "new", "Neue Welt", cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "next: simia pack validate 'Neue Welt' && simia pack gate 'Neue Welt'"


def test_episodes_without_a_reward_are_for_mcp(tmp_path: Path) -> None:
    done = run_simia("serve", "customer_service", "--openenv", "--unscored", cwd=tmp_path)
    assert done.returncode == 2
    assert "--unscored is for --mcp" in done.stderr


def test_a_rollout_says_which_local_model_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EmbeddedBackend, "start", stop)
    lines = run_simia("rollout", "--unsafe", cwd=tmp_path).stderr.splitlines()
    assert lines[-2].startswith("agent: local model qwen2.5-coder-0.5b; for another: --set llm.base_url=URL")
    assert lines[-1] == "simia: stopped here"


async def test_an_environment_says_which_local_model_simulates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EmbeddedBackend, "start", stop)
    lines: list[str] = []
    with pytest.raises(UserError, match="stopped here"):
        await open_environment("customer_service", backend="simulated", user="none", llm="embedded", say=lines.append)
    assert lines == [
        "simulator, judge: local model qwen2.5-coder-0.5b; for another: --set llm.base_url=URL, in Python llm=…"
    ]


def test_the_command_that_frees_space_names_the_run_and_the_options_that_were_given(tmp_path: Path) -> None:
    Run.create(
        tmp_path / "runs", load_config(AmplifyConfig, "amplify/default", ["n=2"]), name="first", facts={}
    ).close()
    (tmp_path / "runs" / "first" / PAGE).write_text("a page that can be made again")
    for given, command in (
        ([], "simia runs gc --free"),
        (["first", "--replies"], "simia runs gc first --free --replies"),
        (["runs/first"], "simia runs gc runs/first --free"),
    ):
        done = run_simia("runs", "gc", *given, cwd=tmp_path)
        assert done.stdout.splitlines()[-1] == f"nothing was changed; to free it: {command}"
    done = run_simia("runs", "gc", "first", "--runs", tmp_path / "runs")
    assert done.stdout.splitlines()[-1].endswith(f"simia runs gc first --free --runs {tmp_path / 'runs'}")
