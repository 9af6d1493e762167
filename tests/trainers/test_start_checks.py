"""What a start of a trainer refuses, warns of, or leaves out, with the line that says what to do; no trainer is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from simia.config import load_config
from simia.envs.config import EnvironmentConfig
from simia.errors import UserError
from simia.trainers.concurrency import fit_concurrency
from simia.trainers.launch import Launch, assign_settings, list_extras
from simia.trainers.ragen.start import launch as launch_ragen
from simia.trainers.trl.settings import TrlConfig
from simia.trainers.trl.start import launch as launch_trl
from simia.trainers.verl.start import launch as launch_verl
from tests.trainers.ragen_standin import config as ragen_config


@pytest.fixture(autouse=True)
def _nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory without trainers or their environments."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIMIA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-key")
    monkeypatch.delenv("RAGEN_HOME", raising=False)


def verl(name: str = "verl/simia", **changes: Any) -> Launch:
    return launch_verl(Path(name), {key.replace("__", "."): value for key, value in changes.items()}, dry_run=True)


@pytest.mark.parametrize("estimator", ["grpo", "rloo", "opo", "reinforce_plus_plus_baseline", "grpo_passk", "gpg"])
def test_groups_of_one_are_refused_where_episodes_are_compared(estimator: str) -> None:
    line = rf"^actor_rollout_ref\.rollout\.n is 1: set it to 2 or more, since {estimator} compares the episodes of a group$"
    with pytest.raises(UserError, match=line):
        verl(algorithm__adv_estimator=estimator, actor_rollout_ref__rollout__n=1)
    assert verl(algorithm__adv_estimator=estimator, actor_rollout_ref__rollout__n=2).plan


@pytest.mark.parametrize("estimator", ["gae", "reinforce_plus_plus", "remax"])
def test_groups_of_one_train_where_each_episode_counts_alone(estimator: str) -> None:
    assert verl(algorithm__adv_estimator=estimator, actor_rollout_ref__rollout__n=1).plan


def test_another_back_end_on_the_command_line_drops_the_settings_of_the_old_one(lamps: Path, tmp_path: Path) -> None:
    changes = {"simia__stage__backend": "executable", "simia__stage__reward": "rules"}
    (training, _) = verl(**changes).plan
    assert (training.stage.backend, training.stage.backend_settings) == ("executable", {})
    (training, _) = verl(**changes, simia__stage__backend_settings__workers=7).plan
    assert training.stage.backend_settings == {"workers": 7}, "those of the command line stay"
    (training, _) = verl(simia__stage__backend="simulated").plan
    assert training.stage.backend_settings["knowledge"] == "reference"
    # TRL reads its config here and once more in its own environment.
    (tmp_path / "trl.yaml").write_text(
        "extends: trl/grpo\nstage: {backend: simulated, llm: {kind: openai, model: m}, backend_settings: {knowledge: reference}}\n"
    )
    trl = {"stage.backend": "executable", "stage.reward": "rules"}
    assert launch_trl(Path("trl.yaml"), trl, dry_run=True).plan[0].stage.backend_settings == {}
    loaded = load_config(TrlConfig, "trl.yaml", [f"{name}={value}" for name, value in trl.items()])
    assert loaded.stage.backend_settings == {}
    mine: dict[str, Any] = {"stage": {"backend": "simulated", "backend_settings": {"knowledge": "state"}}}
    assign_settings(mine, {"stage.backend_settings.workers": 7, "stage.backend": "executable"})
    assert mine["stage"]["backend_settings"] == {"workers": 7}, "in any order"


def test_a_setting_of_another_back_end_is_named_with_its_path_and_the_remedy(lamps: Path, tmp_path: Path) -> None:
    line = r"^{0}\.backend_settings\.knowledge is not a setting of the executable back end: remove it, or set {0}\.backend_settings=\{{\}}$"
    with pytest.raises(UserError, match=line.format(r"simia\.stage")):
        verl(
            simia__stage__backend="executable",
            simia__stage__reward="rules",
            simia__stage__backend_settings__knowledge="state",
        )
    with pytest.raises(UserError, match=line.format("stage")):
        launch_trl(Path("trl/grpo"), {"stage.backend_settings.knowledge": "state"}, dry_run=True)
    whole = ragen_config(lamps)
    whole.custom_envs.Lamps.env_config["stage"]["backend_settings"] = {"knowledge": "state"}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(whole))))
    with pytest.raises(UserError, match=line.format(r"custom_envs\.Lamps\.env_config\.stage")):
        launch_ragen(Path("run.yaml"), {}, dry_run=True)


def test_a_pack_without_the_split_to_validate_on_trains_without_validation(lamps: Path) -> None:
    pack: dict[str, Any] = {"simia__stage__pack": str(lamps)}
    line = (
        r"^val_environment: pack lamps has no task of split 'test'; its splits: train; set simia\.val_environment or simia\.data\.val, "
        r"or validate nothing: trainer\.test_freq=-1 and trainer\.val_before_train=false$"
    )
    off: dict[str, Any] = {"trainer__test_freq": -1, "trainer__val_before_train": False}
    for some in (
        {},
        {"trainer__test_freq": -1},
        {"trainer__val_before_train": False},
        {**off, "trainer__val_only": True},
    ):
        with pytest.raises(UserError, match=line):
            verl(**pack, **some)
    (training,) = verl(**pack, **off).plan
    assert training.what == "training"


def test_tasks_that_are_also_trained_on_are_counted(lamps: Path, tmp_path: Path) -> None:
    """By their pack's folder and their ids, also for several packs."""

    def find(launch: Launch) -> list[str]:
        return [note for note in launch.notes if "also trained on" in note]

    (tmp_path / "trl.yaml").write_text("extends: trl/grpo\nmodel: m\nstage: {split: null}\n")
    line = "validation: {} of {} also trained on: set {} and {} to different splits"
    splits = ("stage.split", "evaluate")
    assert find(launch_trl(Path("trl.yaml"), {}, dry_run=True)) == [line.format(24, "24 tasks", *splits)]
    assert find(launch_trl(Path("trl.yaml"), {"stage.split": "train"}, dry_run=True)) == []
    assert find(launch_trl(Path("trl.yaml"), {"evaluate": None, "grpo.eval_strategy": "no"}, dry_run=True)) == []
    several: dict[str, Any] = {"packs": [{"pack": "customer_service"}, {"pack": str(lamps)}], "user": "scripted"}
    changes = {"stage": several, "val_environment": {"packs": None, "pack": str(lamps)}, "evaluate": "train"}
    assert find(launch_trl(Path("trl.yaml"), changes, dry_run=True)) == [line.format(4, "4 tasks", *splits)]
    own = {"simia__val_environment": None, "simia__data__val": "test"}
    splits = ("simia.data.train", "simia.data.val")
    assert find(verl(simia__data__train=None, **own)) == [line.format(24, "24 tasks", *splits)]
    assert find(verl(**own)) == []
    whole = ragen_config(lamps)
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(whole))))
    place = "custom_envs.Lamps.env_config"
    splits = (f"{place}.train", f"{place}.val")
    assert find(launch_ragen(Path("run.yaml"), {}, dry_run=True)) == [line.format(4, "4 tasks", *splits)]
    whole["custom_envs"]["Test"] = whole["custom_envs"]["Lamps"]
    judged = {"es_manager.val.env_configs.tags": ["Test"]}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(whole))))
    splits = (f"{place}.train", "custom_envs.Test.env_config.val")
    assert find(launch_ragen(Path("run.yaml"), judged, dry_run=True)) == [line.format(4, "4 tasks", *splits)]


def test_a_low_limit_of_open_files_is_a_warning_with_the_number_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 256))
    (line,) = fit_concurrency(EnvironmentConfig(), 100_000)
    assert line == (
        "warning: 100000 episodes need 100256 open files, and this process may have 256: raise it with ulimit -n 100256, or requests wait"
    )


def test_checkpoints_of_another_pack_are_not_gone_on_with(
    lamps: Path, errands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simia.trainers.verl.start.interpreter", lambda *_: Path("/here/python"))
    monkeypatch.setattr("simia.trainers.verl.start.read_verl_config", lambda _: {})
    monkeypatch.setattr("simia.trainers.verl.start.list_installed", lambda _: {"vllm": "1"})
    monkeypatch.setattr("simia.trainers.verl.start.make_python_path", lambda *_, **__: "")
    monkeypatch.setattr("simia.trainers.trl.start.interpreter", lambda *_: Path("/here/python"))
    monkeypatch.setattr("simia.trainers.trl.start.make_python_path", lambda *_, **__: "")

    def start_verl(pack: Path, **changes: Any) -> None:
        prepare = verl(simia__stage__pack=str(pack), simia__data__val="train", **changes).prepare
        assert prepare is not None
        prepare()

    def start_trl(pack: Path, **changes: Any) -> None:
        given = {"stage.pack": str(pack), "stage.split": "train", "evaluate": None, "grpo.output_dir": "out", **changes}
        prepare = launch_trl(Path("trl/grpo"), given, dry_run=True).prepare
        assert prepare is not None
        prepare()

    line = r"^{0}: .*{1} holds checkpoints of a training on lamps: name another folder for one on errands$"
    start_verl(errands)
    start_verl(lamps)  # nothing was trained yet
    Path("checkpoints/simia/simia/global_step_1").mkdir()
    start_verl(lamps, simia__stage__reward="rules", simia__stage__backend="executable")
    with pytest.raises(UserError, match=line.format(r"trainer\.default_local_dir", "checkpoints/simia/simia")):
        start_verl(errands)
    start_verl(errands, trainer__default_local_dir="checkpoints/other")
    start_trl(errands)
    start_trl(lamps)
    Path("out/checkpoint-1").mkdir()
    start_trl(lamps)
    for changes in ({}, {"resume": False}):
        with pytest.raises(UserError, match=line.format(r"grpo\.output_dir", "out")):
            start_trl(errands, **changes)
    start_trl(errands, **{"grpo.output_dir": "other"})


def test_a_local_model_needs_its_library_beside_the_trainer() -> None:
    def list_needs(**settings: Any) -> list[str]:
        return list_extras(
            EnvironmentConfig.model_validate({"pack": "customer_service", "user": "scripted", **settings})
        )

    assert list_needs() == []  # code answers the calls and scores the episodes
    assert list_needs(backend="simulated") == ["embedded"]
    assert list_needs(judge={"kind": "embedded"}, reward="oracle") == ["embedded"]
    hosted = {"kind": "openai", "model": "m", "base_url": "http://127.0.0.1:9/v1"}
    assert list_needs(backend="simulated", llm=hosted) == []
    assert list_extras(
        EnvironmentConfig(pack="customer_service", user="scripted"), EnvironmentConfig(backend="simulated")
    ) == ["embedded"]
