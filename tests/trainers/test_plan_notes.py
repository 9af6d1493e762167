"""What a start of a trainer says of the planned episodes, or refuses: tasks whose solution nobody knows, checkpoints, who plays the user."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from simia.errors import UserError
from simia.trainers.launch import check_folder
from tests.trainers import lamps as packs
from tests.trainers.ragen_standin import config as ragen_config
from tests.trainers.test_dry_run import SIMULATED, dry_run, nothing

__all__ = ["nothing"]
LLM: dict[str, Any] = {"kind": "openai", "model": "o4-mini"}


def write_pack(folder: Path, unsolved: int) -> Path:
    """A pack of four tasks; so many of the first have no solution."""
    tasks = packs.errands()
    for task in tasks[:unsolved]:
        del task["script"]
    return packs.write(folder, tasks)


def write_ragen(folder: Path, pack: Path, **stage: Any) -> str:
    whole = json.loads(json.dumps(ragen_config(pack, backend="simulated", reward="oracle", llm=LLM, **stage)))
    whole["custom_envs"]["Lamps"]["env_config"]["val_environment"] = {"backend": "executable", "reward": "rules"}
    (folder / "run.yaml").write_text(yaml.safe_dump(whole))
    return "run.yaml"


def start_each(folder: Path, pack: Path) -> dict[str, tuple[str, str, list[str]]]:
    """The section of `stage` → trainer, config and settings of a run in a simulated world of this pack."""
    ours = [f"stage.pack={pack}", "stage.split=null", "stage.reward=oracle"]
    off = ["trainer.test_freq=-1", "trainer.val_before_train=false"]
    return {
        "stage": ("trl", "trl/seeds", [*ours, "evaluate=null", "grpo.eval_strategy=no"]),
        "simia.stage": ("verl", "verl/simia", [*(f"simia.{each}" for each in ours), "simia.data.train=null", *off]),
        "custom_envs.Lamps.env_config.stage": ("ragen", write_ragen(folder, pack), []),
    }


def test_a_simulator_that_is_to_see_solutions_needs_one(nothing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place, (trainer, config, settings) in start_each(nothing, write_pack(nothing / "unsolved", 4)).items():
        line = rf"none of 4 tasks has a reference: set {place}\.backend_settings\.knowledge=schema, or give the tasks a"
        with pytest.raises(UserError, match=line):
            dry_run(capsys, trainer, config, *settings)
        schema = f"{place}.backend_settings.knowledge=schema"
        assert not any("without a solution: " in line for line in dry_run(capsys, trainer, config, *settings, schema))


def test_tasks_without_a_solution_are_counted(nothing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pack, line = (
        write_pack(nothing / "some", 3),
        "training: 3 of 4 tasks without a solution: simulator and judge see the task alone",
    )
    for trainer, config, settings in start_each(nothing, pack).values():
        assert dry_run(capsys, trainer, config, *settings).count(line) == 1
    lines = dry_run(capsys, "ragen", "run.yaml", "custom_envs.Lamps.env_config.stage.reward=rules")
    assert "training: 3 of 4 tasks without a solution: the simulator sees the task alone" in lines
    trained = dry_run(capsys, "trl", "trl/grpo", *SIMULATED)
    assert not any("without a solution" in line for line in trained), "every task of customer_service has one"


def test_a_world_to_validate_in_needs_solutions_where_it_is_named(
    nothing: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = packs.errands()
    for task in tasks[2:]:
        del task["script"]
    pack = packs.write(
        nothing / "split", [{**t, "split": s} for t, s in zip(tasks, ("train", "train", "test", "test"), strict=True)]
    )
    config = write_ragen(nothing, pack)
    place = "custom_envs.Lamps.env_config"
    splits = (f"{place}.train=train", f"{place}.val=test")
    lines = dry_run(capsys, "ragen", config, *splits, f"{place}.val_environment=null")
    assert "validation: 2 of 2 tasks without a solution: simulator and judge see the task alone" in lines
    with pytest.raises(UserError, match=rf"set {place}\.val_environment\.backend_settings\.knowledge=schema"):
        dry_run(capsys, "ragen", config, *splits, f"{place}.val_environment={{reward: oracle}}")


# -- the model to train ---------------------------------------------------------------------------------------------------


MODELS = {"trl": "model", "verl": "actor_rollout_ref.model.path", "ragen": "model_path"}


def test_a_checkpoint_that_is_not_there_is_a_line(nothing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (nothing / "models").mkdir()
    each = start_each(nothing, write_pack(nothing / "house", 0)).values()
    for trainer, config, settings in each:
        setting = MODELS[trainer]
        for name in ("checkpoints/nope", "./nope", "/nope", "~/nope"):
            lines = dry_run(capsys, trainer, config, *settings, f"{setting}={name}")
            assert f"before the run: {setting}: there is no folder {name}: train it, or name another model" in lines
        lines = dry_run(capsys, trainer, config, *settings, f"{setting}=models/mine")
        assert f"warning: {setting}: models has no folder mine, so models/mine is looked up on the Hub" in lines
        for name in ("models", "Qwen/Qwen2.5-7B-Instruct", "gpt2"):
            lines = dry_run(capsys, trainer, config, *settings, f"{setting}={name}")
            assert not any(setting in line and "folder" in line for line in lines)
    with pytest.raises(UserError, match=r"^model: there is no folder checkpoints/nope$"):
        check_folder("checkpoints/nope", "model")


# -- the user -------------------------------------------------------------------------------------------------------------


def write_talk(folder: Path, user: str) -> Path:
    """A pack whose user is a model, as packs from seeds have it."""
    packs.write(folder, packs.conversations())
    head = yaml.safe_load((folder / "pack.yaml").read_text())
    (folder / "pack.yaml").write_text(yaml.safe_dump({**head, "user": user}))
    return folder


def find(lines: list[str], start: str) -> list[str]:
    return [line for line in lines if line.startswith(start)]


def test_who_plays_the_user_is_said(nothing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pack = write_talk(nothing / "talk", "llm")
    for place, (trainer, config, settings) in start_each(nothing, pack).items():
        lines = dry_run(capsys, trainer, config, *settings, f"{place}.user=llm")
        assert find(lines, "user: ")[0].startswith("user: o4-mini")
        assert not find(lines, "warning: pack")
        lines = dry_run(capsys, trainer, config, *settings, f"{place}.user=none")
        assert find(lines, "user: ")[0].startswith("user: none")
        assert find(lines, "warning: pack")[0] == (
            "warning: pack talk needs a model as its user, but training has none, so the task's text is the only message; "
            f"set {place}.user=llm"
        )
        assert find(dry_run(capsys, trainer, config, *settings, f"{place}.user=scripted"), "user: scripted")
    with pytest.raises(UserError, match=r"but none is chosen: set stage\.player, such as stage\.player\.kind=openai"):
        dry_run(capsys, "trl", "trl/grpo", "stage.pack=talk", "stage.user=null", "stage.split=null")


def test_an_executable_worlds_llm_plays_a_user_that_the_pack_wants(
    nothing: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    real = (
        "stage.split=null",
        "stage.user=null",
        "evaluate=null",
        "grpo.eval_strategy=no",
        "stage.llm.kind=openai",
        "stage.llm.model=o4-mini",
    )
    for user, who in (("llm", "o4-mini"), ("scripted", "scripted")):
        pack = write_talk(nothing / user, user)
        lines = dry_run(capsys, "trl", "trl/grpo", f"stage.pack={pack}", *real)
        assert find(lines, "user: ") == [f"user: {who}"]
        assert bool(find(lines, "price: nothing is asked of a model")) is (who == "scripted")
        assert find(dry_run(capsys, "trl", "trl/grpo", f"stage.pack={pack}", *real, "stage.user=llm"), "user: o4-mini")


# -- keys and paths in refusals -------------------------------------------------------------------------------------------


def test_a_refusal_names_the_key_of_its_section(nothing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pack = write_talk(nothing / "talk", "llm")
    head = yaml.safe_load((pack / "pack.yaml").read_text())
    for user in ("llm", "scripted"):
        (pack / "pack.yaml").write_text(
            yaml.safe_dump({**{k: v for k, v in head.items() if k != "executable"}, "user": user})
        )
        for place, (trainer, config, settings) in start_each(nothing, pack).items():
            code = f"{place}.backend=executable", f"{place}.user=null"
            with pytest.raises(UserError, match=rf"has no executable world.*: --set {place}\.backend=simulated$"):
                dry_run(capsys, trainer, config, *settings, *code)
        with pytest.raises(UserError, match=r"has no executable world.*: --set stage\.backend=simulated$"):
            dry_run(capsys, "trl", "trl/grpo", "stage.pack=talk", "stage.user=null", "stage.split=null")
        validated = "custom_envs.Lamps.env_config.val_environment"
        with pytest.raises(UserError, match=rf"has no executable world.*: --set {validated}\.backend=simulated$"):
            dry_run(capsys, "ragen", "run.yaml")
    on = ("simia.data.val=null", "simia.stage.pack=talk", "simia.stage.split=null", "simia.data.train=null")
    with pytest.raises(UserError, match=r"has no executable world.*: --set simia\.val_environment\.backend=simulated"):
        dry_run(capsys, "verl", "verl/simia", *on)


# -- the size of a step, room, price --------------------------------------------------------------------------------------


def test_a_base_config_names_the_runs_that_extend_it(nothing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(
        UserError, match=r"^paper\.yaml has no custom_envs, so it is only a base for other configs: use .*ragen/tau_s"
    ):
        dry_run(capsys, "ragen", "ragen/paper")


def test_trl_says_the_groups_of_a_step_and_a_low_concurrency(nothing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = dry_run(capsys, "trl", "trl/grpo", *SIMULATED)
    assert " 16 groups of 16 a step on 54 tasks of customer_service" in lines[0]
    assert not any("concurrency" in line for line in lines)
    line = "stage.limits.concurrency is 4, but 8 episodes run at once, so requests of the others wait; set it to 8, or leave it out"
    assert line in dry_run(capsys, "trl", "trl/grpo", *SIMULATED, "stage.limits.concurrency=4")


def test_a_prompt_that_nearly_fills_its_room_is_warned_of(nothing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = dry_run(capsys, "verl", "verl/simia")
    line = next(line for line in lines if "the longest opening has about" in line)
    size = int(line.split(" about ")[1].split()[0].replace(",", ""))
    for room, warned in ((int(size / 0.88), False), (int(size / 0.92), True)):
        lines = dry_run(capsys, "verl", "verl/simia", f"data.max_prompt_length={room}")
        assert any(line.strip().startswith("warning: the longest opening") for line in lines) is warned


def test_what_thinking_would_cost_is_said(nothing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    price = ("stage.llm.price={input: 0, cached: 0, output: 8}", "evaluate=null", "grpo.eval_strategy=no")
    lines = dry_run(capsys, "trl", "trl/grpo", *SIMULATED, *price)
    requests = sum(
        int(line.split(": ")[1].split()[0].replace(",", "")) for line in lines if " requests of about " in line
    )
    assert requests > 10_000
    [line] = find(lines, "price of thinking")
    assert f"${requests * 500 * 8 / 1e6:,.2f} more for each 500 tokens" in line
