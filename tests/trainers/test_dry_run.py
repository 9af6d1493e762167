"""`simia train --dry-run` on a machine without the trainer: what is checked, what the run asks its models, and what it costs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from simia.cli.train import train
from simia.envs.config import EnvironmentConfig
from simia.envs.opening import load_tasks, open_environment
from simia.envs.play.baseline_agents import ReferenceAgent
from simia.envs.play.player import play
from simia.errors import UserError
from simia.pack import Pack
from simia.quality.fast_tokens import estimate_text_tokens
from simia.trainers.episode_plan import EpisodePlan, count_validations
from simia.trainers.ragen.episode_plan import check_one_node
from simia.trainers.ragen.episode_plan import plan_episodes as plan_ragen
from simia.trainers.training_cost import (
    count_same,
    describe_training,
    estimate_requests,
    sample_episodes,
    write_outline,
)
from simia.trainers.trl.episode_plan import count_batch, count_evaluations, describe_step
from simia.trainers.trl.episode_plan import plan_episodes as plan_trl
from simia.trainers.trl.settings import TrlConfig
from tests.fake_endpoint import FakeEndpoint
from tests.trainers import lamps as packs
from tests.trainers.ragen_standin import config as ragen_config

PRICE = {"input": 2.0, "cached": 0.5, "output": 8.0}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[FakeEndpoint]:
    found = FakeEndpoint("--respond", f"{__name__}:respond")
    yield found
    found.stop()


def respond(body: dict[str, Any]) -> str:
    """For the fake endpoint: the lamps' computer, a judge, and a user who says the task's words and then leaves."""
    system = str(body["messages"][0]["content"])
    if "# Calls to answer now" in str(body["messages"][-1]["content"]) or system.startswith("You judge"):
        return packs.respond(body)
    said = sum(message["role"] == "assistant" for message in body["messages"])
    return "###STOP###" if said else "Switch the hall lamp on."


async def played(stage: dict[str, Any], endpoint: FakeEndpoint) -> list[tuple[str, int]]:
    """Role and tokens of each prompt of the tasks' solutions."""
    endpoint.plan()
    config = EnvironmentConfig.model_validate(stage)
    async with await open_environment(config, say=lambda _: None) as environment:
        for task in environment.tasks:
            await play(await environment.reset(task.id, group=task.id), ReferenceAgent(task))
    found = []
    for request in endpoint.requests:
        messages = request["body"]["messages"]
        text = "\n".join(str(message["content"]) for message in messages)
        role = "judge" if text.startswith("You judge") else "tools" if "# Calls to answer now" in text else "user"
        found.append((role, estimate_text_tokens(text)))
    return found


@pytest.mark.parametrize(("pack", "user"), [("lamps", "scripted"), ("errands", "llm"), ("todo", "scripted")])
async def test_the_estimate_is_what_the_solutions_episodes_ask_for(
    pack: str,
    user: str,
    lamps: Path,
    errands: Path,
    endpoint: FakeEndpoint,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Requests and prompt tokens of each role: the reference agent plays for real, and the estimate is of as many episodes."""
    from simia.authoring.scaffold import scaffold_pack

    if pack == "todo":
        scaffold_pack(tmp_path / "todo")
    path = {"lamps": lamps, "errands": errands, "todo": tmp_path / "todo"}[pack]
    llm = {"kind": "openai", "base_url": endpoint.url, "model": "m", "price": PRICE}
    stage = {"pack": str(path), "backend": "simulated", "user": user, "reward": "oracle", "llm": llm}
    monkeypatch.setattr("simia.trainers.training_cost.UNKNOWN_RESULT", '{"ok":true}')  # as the endpoint's
    monkeypatch.setattr("simia.trainers.training_cost.write_outline", lambda task, _: write_outline(task, {}))
    asked = await played(stage, endpoint)
    config = EnvironmentConfig.model_validate(stage)
    loaded, tasks = load_tasks(config)
    plan = EpisodePlan("training", config, loaded, tasks, episodes=len(tasks))
    groups = {each.what.split()[0]: each for each in estimate_requests(plan, sample_episodes(plan))}
    assert groups.keys() == {role for role, _ in asked}
    for role, group in groups.items():
        sizes = [size for each, size in asked if each == role]
        assert group.requests == len(sizes)
        assert group.prompt == pytest.approx(sum(sizes) / len(sizes), rel=0.03)
        assert 0 < group.static <= group.prompt


def test_longer_episodes_cost_more_up_to_the_context() -> None:
    llm = {"kind": "openai", "model": "o4-mini"}
    settings = {"knowledge": "reference", "context": 7_000}
    stage = EnvironmentConfig.model_validate(
        {"pack": "customer_service", "backend": "simulated", "backend_settings": settings, "llm": llm, "user": "none"}
    )
    pack, tasks = load_tasks(stage)
    plan = EpisodePlan("training", stage, pack, tasks, episodes=1000)
    sampled = sample_episodes(plan)
    usual, double, long = ({g.what: g for g in estimate_requests(plan, sampled, n)} for n in (1.0, 2.0, 500.0))
    tools, judge = "tools in training", "judge in training"
    assert double[tools].requests == pytest.approx(2 * usual[tools].requests, rel=0.001)
    assert usual[tools].prompt < double[tools].prompt < long[tools].prompt == 7_000
    assert double[judge].requests == usual[judge].requests == 1000
    assert usual[judge].prompt < double[judge].prompt < long[judge].prompt <= stage.oracle.context
    assert usual[tools].cost(cached=True) < usual[tools].cost(cached=False) < double[tools].cost(cached=False) / 2
    lines = describe_training([plan])
    assert lines[0].startswith(f"training: 1,000 episodes on {len(tasks)} tasks of customer_service, about ")
    assert re.fullmatch(
        r"price: about \$[\d.]+ to \$[\d.]+, depending on the prefix cache; reasoning tokens, .* not counted", lines[-3]
    )
    assert lines[-1].startswith("price if every episode goes on to its last turn: $")


def test_prompts_that_cannot_be_written_end_a_dry_run(tmp_path: Path) -> None:
    pack = packs.write(tmp_path / "house", packs.errands())
    settings = {"knowledge": "state", "stateful": False, "context": 2_000}
    (pack / "state.json").write_text(json.dumps({"lamps": {f"lamp {n}": False for n in range(1000)}}))
    stage = EnvironmentConfig.model_validate({"pack": str(pack), "backend": "simulated", "backend_settings": settings})
    loaded, tasks = load_tasks(stage)
    with pytest.raises(UserError, match="does not fit a prompt of 2,000 tokens: raise `context`"):
        describe_training([EpisodePlan("training", stage, loaded, tasks, 4)])


def test_an_opening_longer_than_the_trainers_limit_is_said(errands: Path) -> None:
    stage = EnvironmentConfig(pack=str(errands))
    pack, tasks = load_tasks(stage)
    for most, says in (
        (50, "longer, and left out: 4 of 4 tasks; raise it"),
        (5_000, "of the 5,000 that x.y"),
    ):
        lines = describe_training([EpisodePlan("training", stage, pack, tasks, 4, ("x.y", most))])
        assert says in lines[1]
        assert lines[-1] == "price: nothing is asked of a model"


def test_a_price_that_is_not_known_is_said(errands: Path) -> None:
    llm = {"kind": "openai", "model": "of-my-own"}
    stage = EnvironmentConfig.model_validate({"pack": str(errands), "backend": "simulated", "llm": llm})
    judged = stage.model_copy(
        update={"judge": EnvironmentConfig.model_validate({"llm": {**llm, "model": "o4-mini"}}).llm}
    )
    pack, tasks = load_tasks(stage)
    (line,) = [each for each in describe_training([EpisodePlan("training", stage, pack, tasks, 4)]) if "price:" in each]
    assert line == "price: unknown for of-my-own, set price in its settings"
    lines = describe_training([EpisodePlan("training", judged, pack, tasks, 4)])
    assert lines[-3].startswith("price: unknown for of-my-own, set price in its settings; about $")


def test_the_common_beginning_of_two_prompts() -> None:
    for before, text in (("", "abc"), ("abc", ""), ("abc", "abd"), ("abc", "abc"), ("abc", "abcd"), ("xbc", "abc")):
        same = next(
            (i for i, (a, b) in enumerate(zip(before, text, strict=False)) if a != b), min(len(before), len(text))
        )
        assert count_same(before, text) == same


# -- how many episodes ----------------------------------------------------------------------------------------------------


def test_episodes_of_trl() -> None:
    stage = TrlConfig(model="m")
    pack = Pack.load("customer_service")
    tasks = pack.tasks[:24]

    def count(processes: int = 1, **grpo: Any) -> list[int]:
        return [each.episodes for each in plan_trl(stage, grpo, processes, (pack, pack.tasks[:54]), (pack, tasks))]

    paper = {
        "max_steps": 64,
        "num_generations": 16,
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 256,
    }
    evaluated = {"eval_strategy": "steps", "eval_steps": 16, "num_generations_eval": 1}
    assert count(**paper) == [64 * 256, 0]
    assert count(**paper, **evaluated) == [64 * 256, 4 * 24]
    assert count(8, **{**paper, "gradient_accumulation_steps": 32}) == [64 * 256, 0]
    assert count(**paper, steps_per_generation=512) == [64 * 256, 0]
    assert count(**paper, num_iterations=2) == [32 * 256, 0]
    large = {**paper, "gradient_accumulation_steps": 16, "generation_batch_size": 64}
    assert count(**large) == [64 * 16, 0], "one batch of 64 episodes serves four steps"
    assert count(2, **large) == [64 * 32, 0]
    assert count_batch(large, 1) == count_batch(large, 2) == 64
    assert describe_step(large, 2) == "2 groups of 16 a step"
    assert count(num_train_epochs=2, num_generations=8, per_device_train_batch_size=8) == [2 * 54 * 8, 0]
    for given, times in (({"eval_steps": 0.25}, 4), ({"eval_steps": 16, "eval_on_start": True}, 5), ({}, 6)):
        assert count_evaluations({"eval_strategy": "steps", **given}, 64, 1) == times


def test_validations_of_verls_trainers() -> None:
    assert count_validations(64, 16, before=True) == 5
    assert count_validations(64, 10, before=False) == 7, "the last step too"
    assert count_validations(64, 10_000, before=False) == 1
    assert count_validations(64, -1, before=True) == 1


@pytest.mark.parametrize("name", ["total_training_steps", "test_freq", "validation_steps"])
def test_a_count_of_ragen_that_is_no_number_is_named(lamps: Path, name: str) -> None:
    whole = ragen_config(lamps)
    for value, shown in ((None, "null"), ("${x}", '"${x}"')):
        whole["trainer"] = {name: value}
        with pytest.raises(UserError, match=f"^trainer.{name} is {re.escape(shown)}: set it to a whole number$"):
            plan_ragen(whole)


def test_episodes_of_ragen(lamps: Path) -> None:
    whole = ragen_config(lamps)
    whole["trainer"] = {"total_training_steps": 6, "test_freq": 2, "val_before_train": False}
    whole.custom_envs.Lamps.env_config["val_environment"] = {"backend": "simulated"}
    plans = plan_ragen(whole)
    assert [(each.what, each.episodes, each.stage.backend) for each in plans] == [
        ("training", 6 * 8, "executable"),
        ("validation", 3 * 8, "simulated"),
    ]
    assert plans[0].limit == ("actor_rollout_ref.rollout.max_model_len", 1900)


# -- without the trainer ----------------------------------------------------------------------------------------------------


@pytest.fixture
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory, and neither trainers nor their environments nor a key that anything is asked with."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIMIA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-key")
    monkeypatch.delenv("RAGEN_HOME", raising=False)
    return tmp_path


def dry_run(capsys: pytest.CaptureFixture[str], trainer: str, config: str, *settings: str) -> list[str]:
    before = sorted(Path.cwd().rglob("*"))
    train(trainer, config, list(settings), dry_run=True)
    assert sorted(Path.cwd().rglob("*")) == before, "nothing is written"
    return capsys.readouterr().out.splitlines()


SIMULATED = ("stage.backend=simulated", "stage.llm.kind=openai", "stage.llm.model=gpt-5-mini")


def test_a_run_of_trl_is_checked_and_priced(nothing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = dry_run(capsys, "trl", "trl/grpo", *SIMULATED)
    assert lines[1].startswith("episodes are kept in ")
    assert lines[2].startswith("the trainer's own settings were not checked, and there is no command yet:")
    assert lines[3].startswith("training: 16,384 episodes on 54 tasks of customer_service, about ")
    assert lines[4].startswith("  the longest opening has about ")
    assert [line.split(" by ")[0] for line in lines[5:7]] == ["  tools in training", "  judge in training"]
    assert lines[7].startswith("validation: 96 episodes on 24 tasks of customer_service")
    assert lines[8].startswith("  the longest opening has about ")
    assert lines[9] == "user: scripted; validation: scripted"
    assert lines[10].startswith("reward: ")
    assert lines[11].startswith("price: about $")
    assert lines[12].startswith("price of thinking, if these models think: $")
    assert len(lines) == 14
    with pytest.raises(UserError, match="no task of split 'dev'"):
        dry_run(capsys, "trl", "trl/grpo", "evaluate=dev")
    with pytest.raises(UserError, match=r"cannot run trl: .*; a clean environment"):
        train("trl", "trl/grpo")


def test_a_run_of_verl_is_checked_and_priced(nothing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = dry_run(capsys, "verl", "verl/simia")
    roles = [line.split(" by ")[0].strip() for line in lines if " by " in line]
    assert roles == [f"{role} in training" for role in ("tools", "user", "judge")] + ["user in validation"]
    assert any(re.search(r"of the 6,000 that data.max_prompt_length leaves", line) for line in lines)
    assert lines[-3].startswith("price: about $")
    with pytest.raises(UserError, match="no back end named 'simulatd'"):
        dry_run(capsys, "verl", "verl/simia", "simia.val_environment.backend=simulatd")


def test_a_run_of_ragen_is_checked_and_priced(nothing: Path, lamps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    llm = {"kind": "openai", "model": "o4-mini"}
    whole = json.loads(json.dumps(ragen_config(lamps, backend="simulated", llm=llm)))
    whole["custom_envs"]["Lamps"]["env_config"]["val_environment"] = {"backend": "executable", "reward": "rules"}
    whole["trainer"] = {"total_training_steps": 64, "test_freq": 16, "val_before_train": True}
    (nothing / "run.yaml").write_text(yaml.safe_dump(whole))
    lines = dry_run(capsys, "ragen", "run.yaml")
    assert lines[:2] == [
        "train: 2 groups of 4 a step on 4 tasks of lamps (simulated)",
        "val: 2 groups of 4 a step on 4 tasks of lamps (executable)",
    ]
    assert lines[2].startswith("episodes are kept in ")
    assert lines[3].startswith(
        "the trainer's own settings were not checked, and there is no command yet: RAGEN is not here: git clone"
    )
    assert lines[4].startswith("training: 512 episodes on 4 tasks of lamps, about 4 turns each")
    assert lines[-3].startswith("price: about $")
    with pytest.raises(UserError, match="group_size is 1"):
        dry_run(capsys, "ragen", "run.yaml", "es_manager.train.group_size=1")
    with pytest.raises(UserError, match=r"trainer.nnodes is 2: RAGEN starts Ray on one machine; set it to 1"):
        dry_run(capsys, "ragen", "run.yaml", "trainer.nnodes=2")
    with pytest.raises(UserError, match="RAGEN is not here"):
        train("ragen", "run.yaml")
    check_one_node({"trainer": {"nnodes": 1}})


def test_a_run_of_ragen_without_a_name_is_named_after_its_config(
    nothing: Path, lamps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = json.loads(json.dumps(ragen_config(lamps)))

    def kept_in(name: str, trainer: dict[str, Any], *settings: str) -> str:
        (nothing / f"{name}.yaml").write_text(yaml.safe_dump({**values, "trainer": {"project_name": "p", **trainer}}))
        lines = dry_run(capsys, "ragen", f"{name}.yaml", *settings)
        return next(line for line in lines if line.startswith("episodes are kept in ")).rpartition("/")[2]

    assert kept_in("shop", {}).startswith("shop-")
    assert kept_in("shop", {}) == kept_in("shop", {"experiment_name": None}) != kept_in("garden", {})
    assert kept_in("shop", {"experiment_name": "mine"}).startswith("mine-")
    assert kept_in("shop", {}, "trainer.default_local_dir=out/here").startswith("here-")


def test_a_section_of_no_tag_in_ragen_is_refused(
    nothing: Path, lamps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = json.loads(json.dumps(ragen_config(lamps)))
    values["custom_envs"]["Spare"] = {"env_type": "simia"}
    (nothing / "run.yaml").write_text(yaml.safe_dump(values))
    assert dry_run(capsys, "ragen", "run.yaml"), "a config that is extended may have tags to choose from"
    for name, hint in (("lamps", r"did you mean custom_envs\.Lamps\?"), ("zzz", "name it there, or remove it")):
        with pytest.raises(UserError, match=rf"^custom_envs\.{name} is not a tag in es_manager\S+: {hint}$"):
            dry_run(capsys, "ragen", "run.yaml", f"custom_envs.{name}.env_config.stage.user=none")


def test_an_environment_with_fewer_turns_than_ragen_is_named(
    nothing: Path, lamps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = json.loads(json.dumps(ragen_config(lamps, rounds=40)))
    values["custom_envs"]["Lamps"]["env_config"]["val_environment"] = {"episode": {"turns": 12}}
    (nothing / "run.yaml").write_text(yaml.safe_dump(values))
    place = "custom_envs.Lamps.env_config"
    said = [line for line in dry_run(capsys, "ragen", "run.yaml") if "episode.turns" in line]
    assert said == [
        f"{place}.{name}.episode.turns is {turns}, and agent_proxy.max_turn 40: an episode ends after {turns} turns; set both to the same number"
        for name, turns in (("stage", 30), ("val_environment", 12))
    ]
    lines = dry_run(capsys, "ragen", "run.yaml", f"{place}.stage.episode.turns=40", f"{place}.val_environment=null")
    assert not any("episode.turns" in line for line in lines)


def test_several_nodes_share_no_store_of_replies(
    nothing: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "trainer.nnodes is 2, and replies are SQLite files, which hosts must not share"
    with pytest.raises(UserError, match=f"^{line}: name a folder on each node's own disk as simia.store"):
        dry_run(capsys, "verl", "verl/simia", "trainer.nnodes=2")
    with pytest.raises(UserError, match=f"^{line}: simia.store .*/replies\\) is in the checkpoints' folder"):
        dry_run(capsys, "verl", "verl/simia", "trainer.nnodes=2", "simia.store=checkpoints/simia/simia/replies")
    assert dry_run(capsys, "verl", "verl/simia", "trainer.nnodes=2", f"simia.store={nothing / 'own'}")
    assert dry_run(capsys, "verl", "verl/codegym"), "four nodes, and no model whose replies are kept"
    mounts = nothing / "mounts"
    mounts.write_text(f"1 0 8:1 / / rw - ext4 a rw\n2 1 0:4 / {nothing}/shared rw - nfs4 b rw\n")
    monkeypatch.setattr("simia.trainers.verl.nodes.MOUNTS", mounts)
    with pytest.raises(UserError, match=f"^{line}: simia.store .* is on nfs4; name a folder"):
        dry_run(capsys, "verl", "verl/simia", "trainer.nnodes=2", f"simia.store={nothing / 'shared' / 'replies'}")
