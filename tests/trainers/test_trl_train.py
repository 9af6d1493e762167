"""GRPO as a user starts it: the example on one page, and `simia train trl` on a simulated world, killed halfway and gone on with."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from simia.cli.train import parse_settings
from simia.config import load_config
from simia.envs.environment import Episode
from simia.envs.opening import open_environment
from simia.errors import Aborted, Code, UserError
from simia.trainers.ranks import log_aborted
from simia.trainers.trl.resume import find_final_step, find_last_checkpoint
from simia.trainers.trl.settings import TrlConfig, check_fields, check_task_count, make_arguments
from simia.trainers.trl.start import launch
from simia.trainers.trl.train import find_reply_folder, limit_to_one_device
from tests.fake_endpoint import FakeEndpoint
from tests.trainers.conftest import ROOT, Trainer


def test_the_example_trains_on_an_executable_pack(
    trl: Trainer, taught_model: Path, lamps: Path, tmp_path: Path
) -> None:
    said = trl.run(ROOT / "examples" / "grpo.py", taught_model, lamps, "executable", tmp_path / "out", "1")
    episodes = [line.split() for line in said.splitlines() if line.startswith("lamps-")]
    rewards = [float(reward) for _, reward, *_ in episodes]
    assert len(rewards) == 8
    assert len({task for task, *_ in episodes}) == 2  # two groups of four episodes
    assert len(set(rewards)) > 1
    assert "'train_loss'" in said
    assert (tmp_path / "out" / "model.safetensors").stat().st_size > 1_000_000


def test_simia_train_trl_goes_on_where_it_was(trl: Trainer, taught_model: Path, errands: Path, tmp_path: Path) -> None:
    endpoint = FakeEndpoint("--respond", "tests.trainers.lamps:respond")
    config = {
        "model": str(taught_model),
        "stage": {
            "pack": str(errands),
            "backend": "simulated",
            "llm": {"kind": "openai", "base_url": endpoint.url, "model": "m"},
        },
        "max_turn_tokens": 64,
        "grpo": {
            "output_dir": str(tmp_path / "out"),
            "max_steps": 1,
            "per_device_train_batch_size": 8,
            "num_generations": 4,
            "max_completion_length": 200,
            "learning_rate": "1e-4",
            "save_steps": 1,
            "logging_steps": 1,
            "bf16": False,
            "use_cpu": True,
            "report_to": "none",
        },
    }
    (tmp_path / "grpo.yaml").write_text(yaml.safe_dump(config))
    try:
        first = train(trl, tmp_path / "grpo.yaml")
        kinds = [str(request["body"]["messages"][0]["content"])[:9] for request in endpoint.requests]
        assert kinds.count("You judge") == 8
        assert 0 < len(kinds) - 8 < 8, "a group shares what the simulator says to the same call"
        train(trl, tmp_path / "grpo.yaml", "--set", "grpo.max_steps=2")
        asked = [str(request["body"]["messages"][0]["content"])[:9] for request in endpoint.requests]
        assert asked.count("You judge") == 16, "the second start played the second step alone"
    finally:
        endpoint.stop()
    assert "GRPO of" in first
    logged = json.loads((tmp_path / "out" / "checkpoint-2" / "trainer_state.json").read_text())["log_history"]
    rewards = [row["rewards/environment_reward/mean"] for row in logged if "loss" in row]
    assert len(rewards) == 2
    assert all(0 <= reward <= 1 for reward in rewards)
    assert any(row["grad_norm"] > 0 for row in logged if "loss" in row)
    assert list((tmp_path / "out" / "replies").glob("*/replies.db"))


def test_a_field_that_trl_does_not_have() -> None:
    known = ["output_dir", "learning_rate", "beta"]
    with pytest.raises(
        UserError, match=r"grpo.lerning_rate: GRPOConfig has no such field; did you mean 'learning_rate'"
    ):
        check_fields({"lerning_rate": 1}, known)
    with pytest.raises(UserError, match=r"grpo.output_dir is not set"):
        check_fields({"beta": 0}, known)
    given = {"output_dir": "no", "learning_rate": "1e-6", "beta": 0}
    assert check_fields(given, known) == {"output_dir": "no", "learning_rate": 1e-6, "beta": 0}


def test_text_where_a_number_belongs() -> None:
    made = dataclasses.make_dataclass(
        "GRPO", [("output_dir", str | None, None), ("max_steps", int, 1), ("beta", float | None, None)]
    )
    config = TrlConfig(model="m", grpo={"output_dir": "o", "max_steps": 3, "beta": "1e-3"})
    assert make_arguments(config, made).beta == 0.001
    with pytest.raises(UserError, match=r"grpo.max_steps is 'two': it takes int"):
        make_arguments(TrlConfig(model="m", grpo={"output_dir": "o", "max_steps": "two"}), made)


async def test_a_step_in_which_all_is_lost_ends_the_run(lamps: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The last checkpoint is a better place to go on from than a schedule that has run out."""
    async with await open_environment(str(lamps), user="scripted") as environment:
        task = environment.tasks[0]
        lost = Episode.aborted(environment, task, 0, Aborted(Code.CONNECTION, "nobody listens"))
        fine = await environment.reset(task)
        await fine.stop(Code.MAX_TURNS)
        log_aborted([lost, fine], 7)
        assert "step 7: 1 of 2 episodes without a reward, mostly: nobody listens" in caplog.text
        with pytest.raises(UserError, match=r"step 8: 2 of 2 .*nobody listens; .*last checkpoint"):
            log_aborted([lost, lost], 8)
        log_aborted([fine], 9)
        spent = Episode.aborted(environment, task, 0, Aborted(Code.BUDGET, "max_cost is 1; raise it to go on"))
        with pytest.raises(UserError, match=r"step 9: 1 of 2 .*raise it to go on, from the last checkpoint"):
            log_aborted([spent, fine], 9)


def test_machines_do_not_share_files_of_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert find_reply_folder(Path("out")) == Path("out/replies")
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("GROUP_RANK", "1")
    assert find_reply_folder(Path("out")) == Path("out/replies"), "a launcher that does not say how many are here"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert find_reply_folder(Path("out")) == Path("out/replies")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert find_reply_folder(Path("out")) == Path("out/replies-1")


def test_one_process_trains_on_one_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    class Arguments:
        _n_gpu = 4

        @property
        def n_gpu(self) -> int:
            return self._n_gpu

    assert limit_to_one_device(Arguments()).n_gpu == 1
    assert capsys.readouterr().out == "one of 4 GPUs is used; set processes=4 for all\n"
    assert limit_to_one_device(SimpleNamespace(n_gpu=0)).n_gpu == 0


def test_what_is_finished_and_what_can_be_gone_on_from(tmp_path: Path) -> None:
    said: list[str] = []
    assert find_last_checkpoint(tmp_path / "none", said.append) is None
    for step, state in ((9, '{"global_step": 9, "epoch": 2.0}'), (10, '{"global_step": 10, "ep'), (11, "")):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if state:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    (tmp_path / "checkpoint-best").mkdir()
    last = find_last_checkpoint(tmp_path, said.append)
    assert last == tmp_path / "checkpoint-9", "by number, and whole"
    assert [line.split(" is incomplete")[0][-2:] for line in said] == ["11", "10"]
    for steps, epochs, done in ((9, 3, True), (8, 3, True), (10, 1, False), (-1, 2, True), (-1, 2.5, False)):
        arguments = SimpleNamespace(max_steps=steps, num_train_epochs=epochs)
        assert find_final_step(last, arguments) == (9 if done else None)


def test_more_groups_than_tasks() -> None:
    """The trainer itself would find no batch, and end at step 0 as if all were done."""
    check_task_count(SimpleNamespace(generation_batch_size=32, num_generations=8), 4)
    with pytest.raises(UserError, match=r"a step plays 5 groups, each of another task, and there are 4 tasks"):
        check_task_count(SimpleNamespace(generation_batch_size=40, num_generations=8), 4)


def test_text_stays_text_and_a_date_becomes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    known = ["output_dir", "run_name", "hub_revision", "epsilon"]
    given = yaml.safe_load("{output_dir: '64', run_name: '2026-11-21', hub_revision: '0x10', epsilon: 2e-1}")
    assert check_fields(given, known) == {
        "output_dir": "64",
        "run_name": "2026-11-21",
        "hub_revision": "0x10",
        "epsilon": 0.2,
    }
    monkeypatch.setattr("simia.trainers.trl.start.interpreter", lambda trainer, python: Path("/there/python"))
    monkeypatch.setattr("simia.trainers.trl.start.make_python_path", lambda python, **_: "")
    changes = parse_settings(["grpo.run_name=2026-11-21", "grpo.output_dir='64'", "grpo.epsilon=0.1"])
    settings = launch(Path("trl/grpo"), changes).command[5::2]
    read_back = load_config(TrlConfig, "trl/grpo", settings).grpo
    assert [read_back[name] for name in ("run_name", "output_dir", "epsilon")] == ["2026-11-21", "64", 0.1]


def started(trl: Trainer, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """`simia train trl` from this environment; it finds TRL's own."""
    env = {name: value for name, value in trl.env.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", "simia", "train", "trl", *map(str, arguments)]
    return subprocess.run(command, env=env, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def train(trl: Trainer, *arguments: str | Path) -> str:
    done = started(trl, *arguments)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout + done.stderr
