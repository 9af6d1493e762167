"""`val_environment`: a trainer's episodes are simulated and judged, those of its validation executed and scored by rules.

verl's agent loop and RAGEN's managers run under stand-ins of what they import; TRL's trainer runs for real in `test_trl_evaluation.py`.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

from simia.config import parse_config, read_config_file
from simia.envs.text_episode import share_environment
from simia.errors import UserError
from simia.trainers.ragen.env import SimiaEnv
from simia.trainers.ragen.settings import SimiaEnvConfig, parse_env_config
from simia.trainers.trl.evaluation import check_evaluation, choose_by_mode
from simia.trainers.trl.settings import NO_EVALUATION, TrlConfig, make_arguments
from simia.trainers.trl.start import launch
from simia.trainers.val_environment import check_val_environment, derive_environment
from simia.trainers.verl.settings import VerlSettings
from simia.trainers.verl.start import make_stage_rows
from simia.trainers.verl.worker_state import close_all
from tests.fake_endpoint import FakeEndpoint
from tests.trainers import lamps as packs
from tests.trainers import ragen_standin as standin
from tests.trainers.ragen_standin import call, config, inputs
from tests.trainers.test_verl import Characters, ids_of

RULES = {"backend": "executable", "reward": "rules"}


def never(body: dict[str, Any]) -> str:
    """For the fake endpoint: the lamps' computer, and a judge who finds that nothing was solved."""
    if str(body["messages"][0]["content"]).startswith("You judge"):
        return json.dumps({"why": "on purpose", "solved": False})
    return packs.respond(body)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[FakeEndpoint]:
    found = FakeEndpoint("--respond", f"{__name__}:never")
    yield found
    found.stop()


@pytest.fixture
def simulated(endpoint: FakeEndpoint, errands: Path) -> dict[str, Any]:
    endpoint.plan()
    llm = {"kind": "openai", "base_url": endpoint.url, "model": "m"}
    knows = {"knowledge": "reference"}
    return {"pack": str(errands), "backend": "simulated", "backend_settings": knows, "reward": "oracle", "llm": llm}


# -- the settings -----------------------------------------------------------------------------------------------------


def test_only_the_differences_are_given() -> None:
    stage = {
        "pack": "a", "split": "train", "limit": 4, "backend": "simulated", "backend_settings": {"knowledge": "reference"},
        "user": "llm", "reward": "oracle", "llm": {"kind": "openai", "model": "o4-mini", "timeout": 600},
    }  # fmt: skip
    same = {"pack": "a", "split": "train", "limit": 4, "user": "llm", "llm": stage["llm"]}
    assert derive_environment(stage, RULES) == {**same, **RULES}
    assert derive_environment(stage, {}) == stage
    assert derive_environment(stage, {"backend": "simulated", "pack": "a"}) == stage
    other = derive_environment(stage, {"packs": ["b", "c"], "llm": {"timeout": 60}})
    assert other["llm"] == {"kind": "openai", "model": "o4-mini", "timeout": 60}
    assert other.keys() & {"pack", "split", "limit"} == set(), "the choice of tasks is that of the first pack"
    mine = {**stage, "reward_function": "mine.py:f", "step_rewards": {"by": "judge"}}
    assert derive_environment(mine, RULES) == {**same, **RULES}, "a named reward is the whole reward"
    assert derive_environment(mine, {"backend": "executable"}).keys() >= {"reward_function", "step_rewards"}
    both = {**RULES, "reward_function": "mine.py:f", "step_rewards": {"by": "calls"}}
    assert derive_environment(mine, derive_environment(mine, both)) == {**same, **both}
    alone = derive_environment(mine, {"reward": "function"})
    assert "step_rewards" not in alone
    assert alone["reward_function"] == "mine.py:f"
    mixed = {"backend": {"*": "simulated", "x": "executable"}}
    assert derive_environment(mixed, {"backend": {"*": "executable"}})["backend"] == {"*": "executable"}


def test_settings_that_are_written_and_read_again_are_the_same() -> None:
    """verl's workers and RAGEN's read what the start wrote."""
    for trainer in (VerlSettings, SimiaEnvConfig):
        section = {"stage": {"pack": "customer_service", "tasks": ["cs-1"], "backend": "simulated"}}
        first = parse_config(trainer, {**section, "val_environment": {**RULES, "pack": "office"}}, where="x")
        again = parse_config(trainer, first.model_dump(mode="json", exclude_unset=True), where="x")
        assert again == first
        assert (again.for_validation().stage.pack, again.for_validation().stage.tasks) == ("office", [])
        assert again.stage.tasks == ["cs-1"]
        plain = parse_config(trainer, section, where="x")
        assert plain.for_validation() is plain
        parsed = trainer(stage=first.stage, val_environment=RULES)
        assert (parsed.val_environment.backend, parsed.val_environment.tasks) == ("executable", ["cs-1"])


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"bakend": "executable"}, "x: unknown key 'val_environment.bakend': did you mean 'val_environment.backend'?"),
        ({"llm": {"kind": "openai", "modl": "m"}}, "unknown key 'val_environment.llm.modl': did you mean"),
        (7, "x: val_environment: expected a mapping of names to values, got 7"),
    ],
)
def test_a_mistake_is_said_in_a_line(given: Any, line: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_config(VerlSettings, {"stage": {}, "val_environment": given}, where="x")
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_environment_to_validate_in_is_checked_before_the_start(errands: Path) -> None:
    section = {"stage": {"pack": str(errands)}, "val_environment": {"backend": "simulatd"}}
    with pytest.raises(UserError, match=r"^val_environment: no back end named 'simulatd'; did you mean 'simulated'"):
        check_val_environment(VerlSettings.model_validate(section))
    section["val_environment"] = {}
    with pytest.raises(UserError, match=r"^val_environment: pack errands has no task of split 'test'"):
        check_val_environment(VerlSettings.model_validate(section), "test")


# -- the shipped configs ------------------------------------------------------------------------------------------------


def test_shipped_configs_train_in_a_simulated_world_and_validate_in_the_executable_one() -> None:
    found = [parse_config(VerlSettings, read_config_file("verl/simia")["simia"], where="verl")]
    for name in ("tau_simulated", "officebench_simulated"):
        values = read_config_file(f"ragen/{name}")
        validated = values["es_manager"]["val"]["env_configs"]["tags"]
        found += [parse_env_config(tag, **values["custom_envs"][tag]["env_config"]) for tag in validated]
    for each in found:
        assert (each.stage.backend, each.stage.reward) == ("simulated", "oracle")
        validates = each.for_validation().stage
        assert (validates.backend, validates.reward, validates.backend_settings) == ("executable", "rules", {})
        assert (validates.pack, validates.user, validates.episode) == (
            each.stage.pack,
            each.stage.user,
            each.stage.episode,
        )
    trl = parse_config(TrlConfig, read_config_file("trl/grpo") | {"model": "m"}, where="trl")
    assert (trl.for_validation().stage.backend, trl.for_validation().stage.reward) == ("executable", "rules")
    assert trl.evaluate == "test"
    assert trl.grpo["eval_strategy"] == "steps"


# -- verl ---------------------------------------------------------------------------------------------------------------


class Tokens(Characters):
    unk_token_id = None

    def convert_tokens_to_ids(self, token: str) -> int:
        return ord(token)


class Output(SimpleNamespace):
    """Stands for verl's output and its metrics: named fields."""


class Loop:
    """What simia's agent loop uses of verl's base class."""

    def __init__(self, server: Any, *, prompt_length: int, response_length: int) -> None:
        lengths = {"prompt_length": prompt_length, "response_length": response_length}
        rollout = SimpleNamespace(**lengths, get=lambda name, default=None: {"max_model_len": 8000}.get(name, default))
        model = SimpleNamespace(path="here")
        self.config = SimpleNamespace(
            actor_rollout_ref=SimpleNamespace(rollout=rollout, model=model),
            algorithm=SimpleNamespace(adv_estimator="grpo"),
        )
        rollout.name = "vllm"
        self.rollout_config, self.apply_chat_template_kwargs = rollout, {}
        self.server_manager, self.tokenizer = server, Tokens()


@pytest.fixture
def agent_loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """simia's agent loop over stand-ins of the four modules that it imports from verl's environment."""

    async def put(**_: Any) -> None:
        raise AssertionError("the training was ended")

    contents: dict[str, dict[str, Any]] = {
        "transfer_queue": {"async_kv_put": put},
        "omegaconf": {"OmegaConf": SimpleNamespace(is_config=lambda value: False)},
        "verl": {}, "verl.experimental": {}, "verl.experimental.agent_loop": {}, "verl.utils": {},
        "verl.experimental.agent_loop.agent_loop": {
            "AgentLoopBase": Loop, "AgentLoopMetrics": Output, "AgentLoopOutput": Output,
        },
        "verl.utils.config": {"omega_conf_to_dataclass": None},
    }  # fmt: skip
    for name, values in contents.items():
        module = ModuleType(name)
        module.__dict__.update(values)
        monkeypatch.setitem(sys.modules, name, module)
    name = "simia.trainers.verl.agent_loop"
    monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module(name)
    sys.modules.pop(name, None)


class Server:
    """verl's model server: its policy switches the lamp that the user names, and then says so."""

    async def generate(self, *, prompt_ids: list[int], **_: Any) -> Any:
        text = "".join(map(chr, prompt_ids))
        lamp = next(lamp for lamp in packs.LAMPS if f"the {lamp} lamp" in text)
        ids = ids_of("Done." if "tool: " in text else {"name": "switch", "arguments": {"lamp": lamp, "on": True}})
        return SimpleNamespace(
            token_ids=ids,
            log_probs=None,
            stop_reason="completed",
            routed_experts=None,
            num_preempted=None,
            extra_fields={},
        )


async def test_verls_agent_loop_plays_a_validation_in_its_own_environment(
    agent_loop: Any, simulated: dict[str, Any], endpoint: FakeEndpoint
) -> None:
    """Both of the same tasks in the same step, as verl does after a step that validates."""
    given = {"stage": simulated, "val_environment": RULES, "play": {"end_tokens": ["\x03"]}}
    settings = parse_config(VerlSettings, given, where="x")
    learns = make_stage_rows(settings.stage)
    judged = make_stage_rows(settings.for_validation().stage, validates=True)
    loop = agent_loop.SimiaAgentLoop(Server(), prompt_length=4000, response_length=4000, settings=given)

    async def play(rows: list[dict[str, Any]]) -> list[Any]:
        runs = [
            loop.run({}, **row, uid=f"{n}/{len(rows)}{row['extra_info']}", session_id=member, global_steps=5)
            for n, row in enumerate(rows)
            for member in range(2)
        ]
        return [output for outputs in await asyncio.gather(*runs) for output in outputs]

    try:
        validated = await play(judged)
        assert [output.reward_score for output in validated] == [1.0] * 8, "the state after the call"
        assert endpoint.requests == [], "neither a simulator nor a judge"
        trained = await play(learns)
        assert [output.reward_score for output in trained] == [0.0] * 8, "the judge"
        asked = [str(each["body"]["messages"][0]["content"]).startswith("You judge") for each in endpoint.requests]
        assert (sum(asked), len(asked) - sum(asked)) == (4, 4), (
            "the two of a group say the same, and are answered and judged once"
        )
        assert {output.extra_fields["simia"]["group"][:4] for output in validated} == {"val-"}
    finally:
        await close_all()


# -- RAGEN --------------------------------------------------------------------------------------------------------------


def test_ragens_managers_play_in_the_environment_of_their_mode(
    monkeypatch: pytest.MonkeyPatch, simulated: dict[str, Any], endpoint: FakeEndpoint
) -> None:
    manager = standin.our_manager(monkeypatch)
    whole = config(Path(simulated["pack"]), **{name: value for name, value in simulated.items() if name != "pack"})
    whole.custom_envs.Lamps.env_config["stage"]["user"] = "none"
    whole.custom_envs.Lamps.env_config["val_environment"] = RULES
    both = {mode: manager(whole, mode) for mode in ("train", "val")}
    try:
        assert [envs.envs[0]["env"].lease.environment.backend_name for envs in both.values()] == [
            "simulated",
            "executable",
        ]
        rewards = {}
        for mode in ("val", "train"):
            envs = both[mode]
            envs.reset(seed=8)
            lamps = [entry["env"].playing.task.instruction.split()[2] for entry in envs.envs]
            envs.step(inputs(envs, lambda n, lamps=lamps: call(lamps[n])))
            envs.step(inputs(envs, lambda _: "Done."))
            rewards[mode] = [entry["env"].reward for entry in envs.envs]
            if mode == "val":
                assert endpoint.requests == [], "neither a simulator nor a judge"
        assert rewards == {"val": [1.0] * 8, "train": [0.0] * 8}
        assert len(endpoint.requests) == 2 + 2, "an answer for each of two groups, and a verdict on what all of it did"
    finally:
        for envs in both.values():
            envs.close()


def test_an_environment_of_ragens_protocol_goes_with_the_mode(simulated: dict[str, Any], errands: Path) -> None:
    env = SimiaEnv(parse_env_config(stage=simulated, val_environment=RULES, train=None, val=None))
    try:
        env.reset(seed=1, mode="train")
        assert env.lease.environment.backend_name == "simulated"
        with share_kept(simulated) as trained:
            opening = env.reset(seed=1, mode="val")
            assert env.lease.environment.backend_name == "executable"
            assert opening.startswith("Switch the ")
            assert trained.environment is not env.lease.environment
            env.reset(seed=1, mode="train")
            assert env.lease.environment is trained.environment
    finally:
        env.close()


class share_kept:  # noqa: N801 - a context manager
    """A further lease on the environment to train in."""

    def __init__(self, stage: dict[str, Any]) -> None:
        self._lease = share_environment(stage)

    def __enter__(self) -> Any:
        return self._lease

    def __exit__(self, *_: Any) -> None:
        self._lease.close()


def test_a_cap_of_the_validation_needs_a_store_too(lamps: Path) -> None:
    from simia.trainers.ragen.settings import check_ragen_config

    whole = config(lamps)
    whole.custom_envs.Lamps.env_config["val_environment"] = {"limits": {"max_cost": 1.0}}
    with pytest.raises(UserError, match="a cap, which starts from zero at each start"):
        check_ragen_config(whole)


# -- TRL ----------------------------------------------------------------------------------------------------------------


def test_a_rollout_function_is_chosen_by_the_models_mode() -> None:
    roll = choose_by_mode(lambda prompts, _: {"trains": prompts}, lambda prompts, _: {"validates": prompts})
    for training, name in ((True, "trains"), (False, "validates")):
        trainer = SimpleNamespace(model=SimpleNamespace(training=training))
        assert roll(["a"], trainer) == {name: ["a"]}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"grpo": {}}, "evaluate is test, but TRL's evaluation is off: set grpo.eval_strategy=steps"),
        ({"val_environment": {"backend": "x"}}, "val_environment: no back end named 'x'"),
        (
            {"val_environment": {"pack": "HERE"}},
            "has no task of split 'test'; .*; or set evaluate=null for no evaluation",
        ),
        (
            {"val_environment": {"pack": "office"}, "through": "environment_factory"},
            "has other tools than customer_service",
        ),
    ],
)
def test_an_evaluation_that_would_not_be_made_is_refused(changes: dict[str, Any], line: str, errands: Path) -> None:
    given = {"model": "m", "stage": {"user": "none"}, "evaluate": "test", "grpo": {"eval_strategy": "steps"}, **changes}
    given = yaml.safe_load(yaml.safe_dump(given).replace("HERE", str(errands)))
    config = TrlConfig.model_validate(given)
    methods = config.through == "environment_factory"
    from simia.envs.opening import load_tasks

    pack, _ = load_tasks(config.stage)
    with pytest.raises(UserError, match=line):
        check_evaluation(config, pack, config.evaluate, config.grpo, methods=methods)


def test_without_a_split_nothing_is_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    fields = [("output_dir", str, ""), ("eval_strategy", str, "no"), ("eval_on_start", bool, False)]
    made = dataclasses.make_dataclass("GRPO", fields)
    grpo = {"output_dir": "o", "eval_strategy": "steps", "eval_on_start": True}
    kept = make_arguments(TrlConfig(model="m", evaluate="test", grpo=grpo), made)
    assert (kept.eval_strategy, kept.eval_on_start) == ("steps", True)
    dropped = make_arguments(TrlConfig(model="m", grpo=grpo), made)
    assert {name: getattr(dropped, name) for name in NO_EVALUATION} == NO_EVALUATION
    monkeypatch.setattr("simia.trainers.trl.start.interpreter", lambda trainer, python: Path("/there/python"))
    monkeypatch.setattr("simia.trainers.trl.start.make_python_path", lambda python, **_: "")
    assert launch(Path("trl/grpo"), {"evaluate": None}).command
