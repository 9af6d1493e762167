"""What `simia train --dry-run` says besides requests: rewards, the pack to validate on, the cap, keys, and TRL's own loop."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from simia.cli import build_app
from simia.cli.train import train
from simia.envs.config import EnvironmentConfig
from simia.envs.opening import load_tasks
from simia.errors import UserError
from simia.importers.trajectories import import_trajectories
from simia.trainers.episode_plan import EpisodePlan
from simia.trainers.launch import check_stage
from simia.trainers.training_cost import describe_training
from tests.trainers.ragen_standin import config as ragen_config
from tests.trainers.test_dry_run import SIMULATED, dry_run, nothing

__all__ = ["nothing"]


def find(lines: list[str], start: str) -> str:
    (line,) = [each for each in lines if each.strip().startswith(start)]
    return line.strip()


def test_a_missing_key_is_a_line(
    nothing: Path, lamps: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    for trainer, config, settings in (("trl", "trl/grpo", SIMULATED), ("verl", "verl/simia", ())):
        lines = dry_run(capsys, trainer, config, *settings)
        line = find(lines, "before the run: no key for api.openai.com: export OPENAI_API_KEY=…")
        assert lines.count(line) == 1
        assert any(each.startswith("price: about $") for each in lines)
    llm = {"kind": "openai", "model": "o4-mini"}
    whole = json.loads(json.dumps(ragen_config(lamps, backend="simulated", llm=llm)))
    (nothing / "run.yaml").write_text(yaml.safe_dump(whole))
    assert find(dry_run(capsys, "ragen", "run.yaml"), "before the run: no key for api.openai.com: export ")
    for trainer, config, settings in (("trl", "trl/grpo", SIMULATED), ("ragen", "run.yaml", ())):
        with pytest.raises(UserError, match=r"no key for api.openai.com|RAGEN is not here"):
            train(trainer, config, list(settings))
    stage = EnvironmentConfig.model_validate({"pack": str(lamps), "backend": "simulated", "llm": llm})
    with pytest.raises(UserError, match=r"^no key for api.openai.com: export OPENAI_API_KEY"):
        check_stage(stage, load_tasks(stage)[0])


def test_the_reward_of_training_and_validation_is_named(nothing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = dry_run(capsys, "trl", "trl/grpo", *SIMULATED)
    assert find(lines, "reward:") == "reward: a model judges; validation: the tasks' rules"
    Path("mine.py").write_text("def brief(episode):\n    return 1.0\n")
    named = ("stage.reward_function=mine.py:brief", "stage.step_rewards.by=calls", "evaluate=null")
    lines = dry_run(capsys, "trl", "trl/grpo", *named, "stage.reward=rules")
    assert find(lines, "reward:") == "reward: the tasks' rules, then mine.py:brief, and step rewards by calls up to 0.5"
    lines = dry_run(capsys, "trl", "trl/grpo", *named[:1], *named[2:], "stage.reward=function")
    assert find(lines, "reward:") == "reward: mine.py:brief alone"
    judged = ("stage.step_rewards.by=judge", "stage.reward_function=mine.py:brief")
    lines = dry_run(capsys, "trl", "trl/grpo", *SIMULATED, *judged)
    assert find(lines, "reward:").endswith("step rewards by judge up to 0.5; validation: the tasks' rules")
    assert not any("judge in validation" in line for line in lines), "nothing reads its steps"
    lines = dry_run(capsys, "verl", "verl/simia")
    assert find(lines, "reward:") == "reward: a model judges; validation: the tasks' rules"


def test_a_cap_below_the_price_is_compared(nothing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = dry_run(capsys, "trl", "trl/grpo", *SIMULATED, "stage.limits.max_cost=5")
    served, whole = map(float, re.findall(r"\$([\d.]+)", find(lines, "price: about"))[:2])
    found = re.fullmatch(r"limits.max_cost of \$5.00 ends the run after about (\d+)% to (\d+)% of it: .*", lines[-1])
    assert found is not None, lines[-1]
    assert [int(each) for each in found.groups()] == pytest.approx([500 / whole, 500 / served], abs=0.6)
    lines = dry_run(capsys, "trl", "trl/grpo", *SIMULATED, f"stage.limits.max_cost={whole + 1}")
    assert not any("max_cost" in line for line in lines)


def test_trl_says_where_episodes_go_and_how_long_the_opening_is(
    nothing: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = dry_run(capsys, "trl", "trl/grpo", "evaluate=null")
    assert re.fullmatch(r"episodes are kept in .*/grpo-\w{6}", find(lines, "episodes are kept in "))
    line = find(lines, "the longest opening has about ")
    found = re.fullmatch(
        r".*about ([\d,]+) tokens; with the 12,000 of grpo.max_completion_length the model needs a context of ([\d,]+)",
        line,
    )
    assert found is not None, line
    size, whole = (int(each.replace(",", "")) for each in found.groups())
    assert whole == size + 12_000
    lines = dry_run(capsys, "trl", "trl/grpo", "evaluate=null", "episodes=null")
    assert not any(line.startswith("episodes are kept") for line in lines)


def test_the_pack_to_validate_on_is_compared_with_that_of_training(errands: Path, tmp_path: Path) -> None:
    stage = EnvironmentConfig(pack=str(errands), user="none")
    other = EnvironmentConfig(pack="customer_service", user="none")
    import_trajectories("customer_service", tmp_path / "seeds")
    seeds = EnvironmentConfig(pack=str(tmp_path / "seeds"), backend="simulated", reward="rules", user="none")

    def compare(one: EnvironmentConfig, two: EnvironmentConfig) -> list[str]:
        plans = [EpisodePlan(w, s, *load_tasks(s), episodes=4) for w, s in (("training", one), ("validation", two))]
        return describe_training(plans)

    name = load_tasks(stage)[0].name
    warned = find(compare(stage, other), "warning:")
    assert warned.startswith(
        f"warning: customer_service has other tools than {name}, the pack of training: set val_env"
    )
    assert find(compare(seeds, other), "another pack") == "another pack than in training, with the tools of seeds"
    assert not any("pack" in line.replace("-packs", "") and "than" in line for line in compare(stage, stage))


def test_trls_own_loop_asks_the_user_once(errands: Path) -> None:
    llm = {"kind": "openai", "model": "o4-mini"}
    stage = EnvironmentConfig.model_validate({"pack": str(errands), "user": "llm", "llm": llm})
    pack, tasks = load_tasks(stage)
    asked = []
    for dialogue in (True, False):
        lines = describe_training([EpisodePlan("training", stage, pack, tasks, 100, dialogue=dialogue)])
        found = re.search(r"o4-mini: ([\d,]+) requests", find(lines, "user in training"))
        assert found is not None
        asked.append(int(found[1].replace(",", "")))
        assert any("environment_factory hears no answer" in line for line in lines) is not dialogue
    without = sum(not task.opening for task in tasks) / len(tasks)
    assert asked[1] == 100 * (1 + without) <= asked[0]


@pytest.mark.parametrize("command", ["train", "amplify"])
def test_ctrl_c_ends_a_dry_run_with_one_line(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("simia.cli.train.describe_training", interrupt)
    monkeypatch.setattr("simia.cli.amplify.show_dry_run", interrupt)
    words = {"train": ["trl", "trl/grpo"], "amplify": ["--seeds", "customer_service"]}[command]
    done = CliRunner().invoke(build_app(), [command, *words, "--dry-run"])
    assert done.exit_code == 130
    assert done.output.splitlines()[-1] == "simia: the dry run was stopped; it has written nothing"
