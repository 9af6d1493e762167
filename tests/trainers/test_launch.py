"""Settings on their way to a trainer: what YAML makes of them, and what the trainer reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from simia.cli.train import parse_settings
from simia.config import parse_config, parse_scalar, read_command_line_value
from simia.envs.config import EnvironmentConfig
from simia.errors import UserError
from simia.exporting import CardFacts, export
from simia.pack import Pack
from simia.trainers import llamafactory
from simia.trainers.launch import check_stage, check_writable, explain_misfit, format_setting
from simia.trainers.trl.settings import TrlConfig


@pytest.mark.parametrize("text", ["2026-11-21", "2026-11-21 10:00:00", "'64'", "no", "1e-6", "[1, 2026-11-21]", "null"])
def test_a_setting_is_read_back(text: str) -> None:
    once = parse_scalar(format_setting(parse_scalar(text)))
    assert once == (parse_scalar(text) if "2026" not in text else ([1, "2026-11-21"] if "[" in text else text))
    assert parse_scalar(format_setting(once)) == once


@pytest.mark.parametrize("text", ["2024-10-21", "123", "1e3", "true"])
def test_a_text_field_of_trls_config_takes_what_is_set_as_it_is_written(text: str) -> None:
    """Here, and in the process that trains, which reads the settings again."""
    once = parse_settings([f"model={text}"], read_command_line_value)["model"]
    again = read_command_line_value(format_setting(once))
    assert [parse_config(TrlConfig, {"model": value}, where="test").model for value in (once, again)] == [text, text]


def test_a_date_reaches_llamafactory_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(llamafactory, "interpreter", lambda trainer, python: Path("/there/python"))
    monkeypatch.setattr(llamafactory, "check_extras", lambda whole, python: ([], {}))
    export(Pack.load("office").seeds[:2], tmp_path / "out", to="llamafactory", template="qwen", facts=CardFacts())
    changes = parse_settings(["run_name=2026-11-21", "max_steps=5"])
    assert llamafactory.launch(tmp_path / "out", changes).command[-2:] == ['run_name="2026-11-21"', "max_steps=5"]
    (tmp_path / "mine.jsonl").touch()
    joint = llamafactory.launch(Path("simia-joint"), {**changes, "model": "qwen3-8b", "data": "mine.jsonl"})
    assert 'run_name="2026-11-21"' in joint.command
    assert not (tmp_path / "data").exists()


def test_runs_are_sought_where_all_commands_seek_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llamafactory, "interpreter", lambda trainer, python: Path("/there/python"))
    monkeypatch.setenv("SIMIA_RUNS", str(tmp_path / "nights"))
    with pytest.raises(UserError, match=f"expected a run in {tmp_path}/nights, a file"):
        llamafactory.launch(Path("simia-joint"), {"model": "qwen3-8b", "data": "mine"})
    with pytest.raises(UserError, match="expected a run in here, a file"):
        llamafactory.launch(Path("simia-joint"), {"model": "qwen3-8b", "data": "mine", "runs": "here"})


@pytest.mark.parametrize(
    "value", ["64", "5e-6", "2026-11-21", "null", "true", "[1]", "a:b", "plain", "/a/path", "${HOME}"]
)
def test_text_is_still_text_for_llamafactory(value: str) -> None:
    """It reads `name=value` as YAML."""
    (made,) = llamafactory.format_arguments({"run_name": value})
    assert yaml.safe_load(made.removeprefix("run_name=")) == value


def test_what_llamafactory_would_split_is_refused() -> None:
    """It joins its arguments by blanks for torchrun and splits them again."""
    (made,) = llamafactory.format_arguments({"lr_scheduler_kwargs": {"min_lr": 1e-07, "names": ["a", "b"]}})
    assert yaml.safe_load(made.partition("=")[2])["names"] == ["a", "b"]
    with pytest.raises(UserError, match=r"split this value at the space: set output_dir in train.yaml instead"):
        llamafactory.format_arguments({"output_dir": "my runs"})


@pytest.mark.parametrize(
    ("info", "whole", "said"),
    [
        ("[]", {}, "is not a mapping of data sets"),
        ('{"simia": 3}', {}, "is not a mapping of data sets"),
        ("{", {}, "is not JSON"),
        ('{"mine": {"file_name": "rows.jsonl"}}', {}, "dataset 'simia' is not in .*; there are: mine"),
        ('{"simia": {"file_name": "rows.jsonl"}}', {}, "rows.jsonl is missing"),
        ('{"simia": {"file_name": "folder"}}', {}, "folder is empty"),
        ('{"simia": {"hf_hub_url": "a/b"}}', {}, None),
        ('{"simia": {"hf_hub_url": "a/b"}}', {"dataset": ["simia"]}, None),
        ('{"simia": {"hf_hub_url": "a/b"}}', {"eval_dataset": "other"}, "eval_dataset 'other' is not in"),
        ("{", {"dataset_dir": "ONLINE"}, None),
    ],
)
def test_data_sets_as_llamafactory_lists_them(
    info: str, whole: dict[str, Any], said: str | None, tmp_path: Path
) -> None:
    (tmp_path / "dataset_info.json").write_text(info)
    (tmp_path / "folder").mkdir()
    whole = {"dataset": "simia", "dataset_dir": ".", **whole}
    if said is None:
        llamafactory.check_data(tmp_path, whole)
    else:
        with pytest.raises(UserError, match=said):
            llamafactory.check_data(tmp_path, whole)


@pytest.mark.parametrize(
    ("value", "known", "said"),
    [
        ("many", 3, "a number"),
        (True, 3, "a number"),
        ("5e-6", 0.1, None),
        (2, 0.1, None),
        ("${a.b}", 3, None),
        ("x", "${mul:1,2}", None),
        (None, 3, None),
        ("x", None, None),
        ("yes", False, "true or false"),
        (1, False, "true or false"),
        ([1], {"a": 1}, "a section of settings"),
        ("console", ["console"], None),
    ],
)
def test_types_as_the_trainers_own_settings_have_them(value: Any, known: Any, said: str | None) -> None:
    assert explain_misfit(value, known) == said


def test_folders_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_writable(tmp_path / "a" / "b", "out")
    assert not (tmp_path / "a").exists()
    (tmp_path / "file").touch()
    with pytest.raises(
        UserError, match=r"^out: .*file/b cannot be created, because .*/file is a file: name another folder$"
    ):
        check_writable(tmp_path / "file" / "b", "out")
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(UserError, match=r"^out: .* is not writable"):
        check_writable(tmp_path / "a", "out")


REMOTE = {"kind": "openai", "model": "m", "key_env": "NOT_EXPORTED"}


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        ({}, None),
        ({"llm": REMOTE}, None),  # of no role that is played here
        ({"llm": REMOTE, "user": "llm"}, "no key for api.openai.com: export NOT_EXPORTED="),
        ({"judge": REMOTE, "reward": "oracle"}, "export NOT_EXPORTED="),
        ({"simulator": {"kind": "pool", "endpoints": [REMOTE]}, "backend": "simulated"}, "export NOT_EXPORTED="),
        ({"llm": {**REMOTE, "base_url": "http://localhost:1/v1", "key_env": "OPENAI_API_KEY"}, "user": "llm"}, None),
        ({"backend": "simulatd"}, "no back end named 'simulatd'; did you mean 'simulated'"),
        ({"user": "nobody"}, "no user named 'nobody'; there are"),
        ({"backend_settings": {"isolaton": "x"}}, "the executable back end: unknown key 'isolaton'"),
    ],
)
def test_a_stage_is_checked_before_workers_open_it(
    stage: dict[str, Any], said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_EXPORTED", raising=False)
    config = EnvironmentConfig.model_validate(stage)
    if said is None:
        check_stage(config, Pack.load(config.pack))
    else:
        with pytest.raises(UserError, match=said):
            check_stage(config, Pack.load(config.pack))
    monkeypatch.setenv("NOT_EXPORTED", "k")
    if said is not None and "NOT_EXPORTED" in said:
        check_stage(config, Pack.load(config.pack))
