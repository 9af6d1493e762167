"""How a RAGEN run is checked and started: configurations, the paper's runs, a checkout, an environment, what is said at the end."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from simia.config import read_config_file
from simia.errors import UserError
from simia.trainers.launch import check_settings
from simia.trainers.ragen.settings import check_ragen_config
from simia.trainers.ragen.start import (
    FREE,
    check_versions,
    format_error,
    launch,
    read_base_config,
    resolve_references,
)
from simia.trainers.versions import compare_versions
from tests.trainers.ragen_standin import config, write_checkout

RUNS = ("tau_simulated", "tau_executable", "officebench_simulated", "officebench_executable")


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("agent_proxy.reward_normalization.method", "identity", "GRPO would not be GRPO"),
        ("agent_proxy.reward_normalization.grouping", "batch", "set grouping=state and method=mean_std"),
        ("es_manager.train.group_size", 1, "group_size is 1: GRPO compares"),
        (
            "agent_proxy.use_turn_scores",
            True,
            "grpo has one advantage for a whole episode: set algorithm.adv_estimator=gae",
        ),
        (
            "algorithm.bi_level_gae",
            True,
            "bi_level_gae is True: set it to False, because RAGEN has it for rewards of whole",
        ),
        ("agent_proxy.max_context_window", 5, "it is never cut; set it to -1"),
        ("actor_rollout_ref.rollout.n", 4, "rollout.n is 4: set it to 1"),
        ("actor_rollout_ref.actor", {"loss_agg_mode": "seq-mean-token-mean"}, "an aborted episode has none"),
        ("actor_rollout_ref.rollout.max_model_len", 100, "it must hold the whole episode"),
        ("algorithm.adv_estimator", "gae", "set it to identity, or for grpo to mean_std"),
        ("custom_envs.Lamps.env_type", "sokoban", "a run with simia environments cannot train other types"),
        (
            "custom_envs.Lamps.env_config.stages",
            {},
            "custom_envs.Lamps.env_config: unknown key 'stages': did you mean 'stage'",
        ),
        ("custom_envs.Lamps.env_config.stage.backnd", "x", "did you mean 'stage.backend'"),
        ("custom_envs.Lamps.env_config.stage.limits", {"max_cost": 1.0}, "a cap, which starts from zero at each start"),
        ("es_manager.val.env_configs.tags", ["Lamp"], "custom_envs.Lamp does not exist, but es_manager names it"),
        ("es_manager.val.env_configs.tags", None, "es_manager.val.env_configs.tags is None: name one or more"),
        ("es_manager.train.env_configs.n_groups", [1, 2], "has 1 tags and 2 n_groups: give each tag its number"),
        (
            "es_manager.train.env_groups",
            20000,
            r"n_groups is \[2\], and es_manager.train.env_groups is 20000: groups of all",
        ),
        ("es_manager.val.env_configs.n_groups", ["2"], r"n_groups is \['2'\], and es_manager.val.env_groups is 2"),
        ("custom_envs.Lamps.env_config", 5, "custom_envs.Lamps.env_config is 5: write a section"),
        ("custom_envs.Lamps.env_config.at_once", 0, "env_config: at_once: expected a number of at least 1, got 0"),
        ("custom_envs.Lamps.env_config.at_once", "all", "env_config: at_once: expected an integer, got 'all'"),
        (
            "custom_envs.Lamps.env_config.world_seconds",
            0,
            "env_config: world_seconds: expected a number above 0.0, got 0",
        ),
        ("custom_envs.Lamps.env_config.stage", 7, "env_config: stage: expected a mapping of names to values, got 7"),
        ("es_manager.train.group_size", None, "^es_manager.train.group_size is null: set it to a whole number$"),
        ("es_manager.val.group_size", "few", '^es_manager.val.group_size is "few": set it to a whole number$'),
        ("es_manager.train.env_groups", "x", '^es_manager.train.env_groups is "x": set it to a whole number$'),
        ("agent_proxy.max_context_window", 1.5, "^agent_proxy.max_context_window is 1.5: set it to a whole number$"),
        ("actor_rollout_ref.rollout.max_model_len", "x", '^actor_rollout_ref.rollout.max_model_len is "x": set it'),
        ("actor_rollout_ref.rollout.response_length", None, "response_length is None: set the most tokens of a turn"),
    ],
)
def test_a_configuration_that_would_not_train_what_it_says_is_refused(
    lamps: Path, path: str, value: Any, line: str
) -> None:
    wrong = config(lamps)
    check_ragen_config(wrong)
    *place, name = path.split(".")
    section = wrong
    for step in place:
        section = section[step]
    section[name] = value
    with pytest.raises(UserError, match=line) as caught:
        check_ragen_config(wrong)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", RUNS)
def test_ragen_has_the_settings_of_our_runs(name: str, tmp_path: Path) -> None:
    check_settings(read_config_file(f"ragen/{name}"), read_base_config(write_checkout(tmp_path)), "RAGEN", free=FREE)
    with pytest.raises(
        UserError, match=r"RAGEN has no setting trainer\.test_frequency: did you mean trainer\.test_freq\?"
    ):
        check_settings({"trainer": {"test_frequency": 1}}, read_base_config(tmp_path), "RAGEN")


@pytest.mark.parametrize("name", RUNS)
def test_the_papers_runs_are_grpo(name: str) -> None:
    values = resolve_references(read_config_file(f"ragen/{name}"))
    check_ragen_config(values)
    train = values["es_manager"]["train"]
    assert sum(train["env_configs"]["n_groups"]) == train["env_groups"] == 16
    assert sum(values["es_manager"]["val"]["env_configs"]["n_groups"]) == values["es_manager"]["val"]["env_groups"]
    stages = [env["env_config"]["stage"] for env in values["custom_envs"].values()]
    assert {stage["backend"] for stage in stages} == {name.split("_")[1]}
    assert {stage["reward"] for stage in stages} == {"oracle" if "simulated" in name else "rules"}


def test_names_that_ragen_does_not_know_are_refused() -> None:
    known = {"agent_proxy": {"max_turn": 5}, "custom_envs": {"Game": {}}, "model_path": "x"}
    check_settings({"agent_proxy": {"max_turn": 1}, "custom_envs": {"Mine": {"any": 1}}}, known, "RAGEN", free=FREE)
    with pytest.raises(
        UserError, match=r"RAGEN has no setting agent_proxy.max_turns: did you mean agent_proxy.max_turn\?"
    ):
        check_settings({"agent_proxy": {"max_turns": 1}}, known, "RAGEN")
    with pytest.raises(UserError, match=r"^agent_proxy.max_turn is 'many': RAGEN takes a number$"):
        check_settings({"agent_proxy": {"max_turn": "many"}}, known, "RAGEN")
    with pytest.raises(UserError, match=r"RAGEN has no setting zzz: there are: agent_proxy, custom_envs, model_path; "):
        check_settings({"zzz": 1}, known, "RAGEN")
    assert check_settings({"model_path": "y", "+mine": 1}, known, "RAGEN") == {"model_path": "y", "mine": 1}
    tree = {"a": {"b": "${c}", "d": "x/${c}/${a.b}"}, "c": 5}
    assert resolve_references(tree) == {"a": {"b": 5, "d": "x/5/5"}, "c": 5}


def test_what_stops_a_run_in_one_of_rays_workers_is_one_line() -> None:
    class AsRayHasItError(UserError):
        """Ray's own kind of it, whose text is the worker's traceback."""

        def __init__(self, cause: UserError) -> None:
            self.cause = cause

    assert format_error(UserError("set a.b")) == "set a.b"
    assert format_error(AsRayHasItError(UserError("step 3: all is lost"))) == "step 3: all is lost"


def checkout_at(folder: Path) -> Path:
    """The files of a checkout that a launch reads."""
    for name in ("train.py", "verl/verl/protocol.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (folder / "config").mkdir()
    (folder / "config" / "base.yaml").write_text(
        "defaults: [ppo_trainer, envs]\nmodel_path: x\nagent_proxy: {max_turn: 5, reward_normalization: {grouping: state, method: identity}}\n"
        "es_manager:\n  train: &part {env_groups: 8, group_size: 16, env_configs: {tags: [Game], n_groups: [8]}}\n  val: *part\n"
    )
    (folder / "config" / "ppo_trainer.yaml").write_text(
        "algorithm: {adv_estimator: gae}\ntrainer: {experiment_name: x, default_local_dir: 'runs/${trainer.experiment_name}'}\n"
        "actor_rollout_ref: {rollout: {max_model_len: null, prompt_length: 1, response_length: 400, n: 1}}\n"
    )
    (folder / "config" / "envs.yaml").write_text("custom_envs: {Game: {env_type: sokoban}}\n")
    return folder


INSTALLED = {
    "torch": "2.6.0+cu124",
    "vllm": "0.8.2",
    "flash_attn": "2.7.4.post1",
    "tensordict": "0.8.3",
    "ray": "2.46.0",
    "hydra-core": "1.3.2",
}


def python_with(folder: Path, found: dict[str, str]) -> Path:
    """An interpreter in whose environment these are."""
    python = folder / "python"
    python.write_text(f"#!/bin/sh\necho '{json.dumps(found)}'\n")
    python.chmod(0o755)
    return python


@pytest.mark.parametrize("flash", [None, "2.6.3", "2.7.4.post1", "2.7.5", "2.8.0"])
def test_the_doctor_and_the_launch_agree(flash: str | None, tmp_path: Path) -> None:
    found = {name: version for name, version in INSTALLED.items() if name != "flash_attn"}
    found |= {"flash-attn": flash} if flash else {}
    fits = not compare_versions("ragen", found)
    assert fits is (flash is not None and flash.startswith("2.7"))
    python = python_with(tmp_path, found)
    if fits:
        assert "RAGEN 5eb79b8 with torch 2.6.0" in check_versions(python)
        return
    with pytest.raises(UserError, match="flash-attn"):
        check_versions(python)


def test_a_launch_checks_and_says_how(lamps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIMIA_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "run.yaml"
    values = json.loads(json.dumps(config(lamps)))
    values["actor_rollout_ref"]["rollout"]["max_model_len"] = 9000
    del values["es_manager"]["format_penalty"]
    file.write_text(json.dumps(values))
    monkeypatch.delenv("RAGEN_HOME", raising=False)
    with pytest.raises(UserError, match=r"^RAGEN is not here: git clone .* and set RAGEN_HOME to that folder$"):
        launch(file, {})
    monkeypatch.setenv("RAGEN_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"has no train\.py: git clone"):
        launch(file, {})
    home = checkout_at(tmp_path / "RAGEN")
    monkeypatch.setenv("RAGEN_HOME", str(home))
    assert read_base_config(home)["custom_envs"] == {"Game": {"env_type": "sokoban"}}
    with pytest.raises(UserError, match=r"cannot run ragen: .*not installed: .*vllm.*setup_ragen.sh"):
        launch(file, {}, python=Path(sys.executable))
    python = python_with(tmp_path, INSTALLED)
    monkeypatch.setattr("simia.trainers.ragen.start.make_python_path", lambda given, **_: f"/beside/{given.name}")
    done = launch(file, {"trainer.experiment_name": "mine", "es_manager.train.group_size": 6}, python=python)
    written = tmp_path / "runs" / "mine" / "simia.yaml"
    assert not (tmp_path / "runs").exists(), "who only looks writes nothing"
    assert done.prepare is not None
    done.prepare()
    assert done.command == [str(python), "-m", "simia.trainers.ragen.start", str(written.relative_to(tmp_path))]
    assert read_config_file(written)["es_manager"]["train"]["group_size"] == 6
    path = f"{home}:{home}/verl:/beside/python"
    assert done.env == {"RAGEN_HOME": str(home), "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
    assert done.notes[0] == "train: 2 groups of 6 a step on 4 tasks of lamps (executable)"
    unnamed = launch(file, {}, python=python)
    assert unnamed.command[-1] == "runs/run/simia.yaml", "RAGEN's own name is the same for all runs"
    (tmp_path / "file").touch()
    for name, value, said in (
        ("trainer.default_local_dir", "file/x", "trainer.default_local_dir: file/x cannot be created"),
        ("model_path", "./nowhere", "model_path: there is no folder ./nowhere"),
        ("custom_envs.Lamps.env_config.stage.backend", "simulatd", "no back end named 'simulatd'"),
    ):
        with pytest.raises(UserError, match=said):
            launch(file, {name: value}, python=python)
    with pytest.raises(UserError, match="group_size is 1"):
        launch(file, {"es_manager.train.group_size": 1}, python=python)
    with pytest.raises(UserError, match="no task of split 'dev' for train"):
        launch(file, {"custom_envs.Lamps.env_config.train": "dev"}, python=python)
