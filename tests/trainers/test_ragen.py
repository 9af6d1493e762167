"""RAGEN without RAGEN: our environment and its manager under a stand-in whose signatures are the real ones'.

What failed in the authors' integration is tried here: 128 episodes step at once, an outage neither raises nor scores, what is
unfinished is judged, the data are there once. `test_ragen_real.py` does it on RAGEN's own source.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from simia import sync
from simia.config import read
from simia.errors import UserError
from simia.pack import Pack
from simia.trainers.ragen import launch, register
from simia.trainers.ragen.batch import figures, filled, normalised, rows_of, until_end
from simia.trainers.ragen.checks import check
from simia.trainers.ragen.env import SimiaEnv, SimiaEnvConfig, task_of
from simia.trainers.ragen.register import Finder
from simia.trainers.ragen.start import base_of, check_names, resolved, versions
from simia.trainers.tokens import Text
from simia.trainers.versions import compare
from tests.fake_endpoint import FakeEndpoint
from tests.trainers import ragen_standin as standin

RECORD = json.loads(Path(__file__).with_name("ragen_signatures.json").read_text())
RUNS = ("tau_simulated", "tau_executable", "officebench_simulated", "officebench_executable")


class Letters:
    """A tokenizer of characters with ChatML's turns: 1 begins one, 2 ends it."""

    eos_token_id, pad_token_id = 2, 0

    def decode(self, ids: list[int], skip_special_tokens: bool = False, **_: Any) -> str:
        names = {0: "", 1: "", 2: ""} if skip_special_tokens else {0: "", 1: "<s>", 2: "</s>"}
        return "".join(names[i] if i in names else chr(i) for i in ids)

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        ids: list[int] = []
        while text:
            special = next((i for i, tag in ((1, "<s>"), (2, "</s>")) if text.startswith(tag)), None)
            ids.append(special or ord(text[0]))
            text = text[{1: 3, 2: 4}.get(special or 0, 1) :]
        return {"input_ids": ids}

    def apply_chat_template(self, rows: list[dict[str, Any]], **_: Any) -> str:
        called = ["".join(c["function"]["name"] for c in row.get("tool_calls", ())) for row in rows]
        turns = [f"<s>{row['role']}\n{row['content']}{more}</s>\n" for row, more in zip(rows, called, strict=True)]
        return "".join(turns) + "<s>assistant\n"


def call(lamp: str, on: bool = True) -> str:
    return f"<tool_call>\n{json.dumps({'name': 'switch', 'arguments': {'lamp': lamp, 'on': on}})}\n</tool_call>"


def ns(value: Any) -> Any:
    """A config as attributes and as a mapping, as OmegaConf's is."""
    return Attributes({name: ns(inner) for name, inner in value.items()}) if isinstance(value, dict) else value


class Attributes(dict[str, Any]):
    def __getattr__(self, name: str) -> Any:
        return self[name]


def config(pack: Path, *, groups: int = 2, size: int = 4, rounds: int = 8, **stage: Any) -> Any:
    part = {"env_groups": groups, "group_size": size, "env_configs": {"tags": ["Lamps"], "n_groups": [groups]}}
    env = {"stage": {"pack": str(pack), "user": "scripted", **stage}, "train": None, "val": None}
    return ns(
        {
            "algorithm": {"adv_estimator": "grpo"},
            "agent_proxy": {
                "max_turn": rounds, "reward_normalization": {"grouping": "state", "method": "mean_std"},
            },
            "actor_rollout_ref": {"rollout": {"max_model_len": 2000, "response_length": 100}},
            "es_manager": {"format_penalty": -0.1, "train": part, "val": part},
            "custom_envs": {"Lamps": {"env_type": "simia", "max_actions_per_traj": 40, "env_config": env}},
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def _stage() -> Iterator[FakeEndpoint]:
    endpoint = FakeEndpoint("--respond", "tests.replies:stage")
    yield endpoint
    endpoint.stop()


@pytest.fixture
def stage(_stage: FakeEndpoint) -> FakeEndpoint:
    """Simulator and judge."""
    _stage.plan()
    return _stage


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Our manager over the stand-in's."""
    standin.install(monkeypatch)
    register()
    from simia.trainers.ragen.manager import EnvManager

    return EnvManager


def inputs(manager: Any, text: Any) -> list[dict[str, Any]]:
    """A response of every environment that runs; `text`: of the environment's number."""
    rows = [entry["env_id"] for entry in manager.envs if not entry["env"].done]
    said = {number: text(number) for number in rows}
    return [{"env_id": n, "llm_response": t, "llm_raw_response": t, "actions": [t]} for n, t in said.items()]


def simulated(endpoint: FakeEndpoint, **limits: Any) -> dict[str, Any]:
    llm = {"kind": "openai", "base_url": endpoint.url, "model": "fake", "timeout": 120}
    return {"backend": "simulated", "llm": llm, "limits": {"start": 256, "stall": None, "retries": 0, **limits}}


# -- names and signatures ---------------------------------------------------------------------------------------------


def test_the_stand_in_has_the_signatures_of_the_source_that_they_were_recorded_from() -> None:
    assert standin.signatures(Path(standin.__file__).read_text()) == RECORD["classes"]
    assert set(RECORD["classes"]) == set(standin.PLACES)


def test_our_classes_take_what_ragens_take(manager: Any) -> None:
    import inspect

    ours = {"EnvStateManager": manager, "BaseEnv": SimiaEnv}
    for name, methods in RECORD["classes"].items():
        for method, parameters in methods.items():
            if name not in ours or method.startswith("_init"):
                continue
            known = inspect.signature(getattr(ours[name], method)).parameters
            open_ended = any(p.kind is p.VAR_KEYWORD for p in known.values())
            for parameter in parameters:
                assert parameter.strip("=*") in known or parameter.startswith("**") or open_ended or method == "render"


def test_registered_where_ragen_is_and_when_it_comes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    standin.REGISTERED_ENVS.clear()
    standin.install(monkeypatch)
    register()
    assert list(standin.REGISTERED_ENVS.values()) == [SimiaEnv]
    for name in [name for name in sys.modules if name.split(".")[0] == "ragen"]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "ragen" / "env").mkdir(parents=True)
    (tmp_path / "ragen" / "__init__.py").touch()
    (tmp_path / "ragen" / "env" / "__init__.py").write_text(
        "REGISTERED_ENVS, REGISTERED_ENV_CONFIGS = {'game': 1}, {}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    register()
    register()
    assert sum(isinstance(finder, Finder) for finder in sys.meta_path) == 1
    import ragen.env  # type: ignore[import-not-found]

    assert list(ragen.env.REGISTERED_ENVS.items()) == [("game", 1), ("simia", SimiaEnv)]
    assert ragen.env.REGISTERED_ENV_CONFIGS["simia"] is SimiaEnvConfig
    for name in [name for name in sys.modules if name.split(".")[0] == "ragen"]:
        monkeypatch.delitem(sys.modules, name)


# -- the environment ----------------------------------------------------------------------------------------------------


def test_one_environment_by_ragens_own_protocol(lamps: Path) -> None:
    env = SimiaEnv(SimiaEnvConfig(stage={"pack": str(lamps), "user": "scripted"}, train=None))
    try:
        opening = env.reset(seed=3)
        assert opening == env.render() == env.playing.messages[0].content
        first, second = (turn.calls[0].arguments for turn in env.playing.task.script if turn.calls)
        observation, reward, done, info = env.step(call(**first))
        assert '"on":true' in observation
        assert (reward, done) == (0.0, False)
        observation, *_ = env.step("Done.")
        assert observation == "Now the {} lamp off.".format(second["lamp"])
        env.step(call(**second))
        *_, reward, done, info = env.step("Done.")
        assert (reward, done, info["success"], info["turns"]) == (1.0, True, 1.0, 4.0)
        assert all(type(value) is float for value in info.values())
        assert env.step("after the end")[1:3] == (1.0, True)
        env.reset(seed=3)
        assert env.render() == opening
        assert not env.done
    finally:
        env.close()


def test_a_seed_is_a_task_and_a_lap_of_seeds_is_the_split(lamps: Path) -> None:
    tasks = Pack.load(str(lamps)).tasks
    laps = [[task_of(tasks, lap * len(tasks) + n).id for n in range(len(tasks))] for lap in range(20)]
    assert all(sorted(lap) == sorted(task.id for task in tasks) for lap in laps)
    assert len({tuple(lap) for lap in laps}) > 1
    assert laps[3][1] == task_of(tasks, 3 * len(tasks) + 1).id


def test_a_validation_plays_each_task_once_wherever_its_seeds_begin(lamps: Path) -> None:
    env = SimiaEnv(SimiaEnvConfig(stage={"pack": str(lamps), "user": "scripted"}, val=None))
    tasks = env.tasks("val")
    try:
        played = []
        for seed in range(123, 123 + len(tasks)):  # RAGEN's
            env.reset(seed=seed, mode="val")
            played.append(env.playing.task.id)
    finally:
        env.close()
    assert sorted(played) == sorted(task.id for task in tasks)
    for first in range(3 * len(tasks)):
        seeds = range(first, first + len(tasks))
        assert len({task_of(tasks, seed, "val").id for seed in seeds}) == len(tasks)


def test_a_split_of_each_mode() -> None:
    env = SimiaEnv(SimiaEnvConfig(stage={"pack": "customer_service"}))
    try:
        assert Counter(task.split for mode in ("train", "val") for task in env.tasks(mode)) == {"train": 54, "test": 24}
        env.config.val = "dev"
        with pytest.raises(UserError, match="no task of split 'dev', which val wants; its splits: test, train"):
            env.reset(seed=1, mode="val")
    finally:
        env.close()
    with pytest.raises(UserError, match="unknown key 'packs': did you mean 'pack'"):
        SimiaEnv(SimiaEnvConfig(stage={"packs": "customer_service"}))


# -- the manager, and what failed elsewhere -----------------------------------------------------------------------------


def test_groups_by_seed_play_to_their_ends(manager: Any, lamps: Path) -> None:
    envs = manager(config(lamps))
    try:
        running = envs.reset(seed=8)
        assert [row["env_id"] for row in running] == list(range(8))
        tasks = [entry["env"].playing.task.id for entry in envs.envs]
        assert [len(set(tasks[:4])), len(set(tasks[4:])), len(set(tasks))] == [1, 1, 2]
        groups = [entry["env"].playing.group for entry in envs.envs]
        assert len(set(groups)) == 2
        scripts = [[turn for turn in entry["env"].playing.task.script if turn.user is None] for entry in envs.envs]
        for turn in range(4):

            def said(number: int, turn: int = turn) -> str:
                part = scripts[number][turn]
                right = number % 4 < 2  # half of each group does the opposite
                return (
                    call(part.calls[0].arguments["lamp"], part.calls[0].arguments["on"] == right)
                    if part.calls
                    else "Done."
                )

            running = envs.step(inputs(envs, said))
        assert running == []
        states = envs.get_rollout_states()
        assert [state["metrics"]["Lamps/success"] for state in states] == [1, 1, 0, 0] * 2
        assert [state["metrics"]["Lamps/turns"] for state in states] == [4.0] * 8
        assert [entry["status"].rewards for entry in envs.envs] == [[0, 0, 0, 1], [0, 0, 0, 1], [0] * 4, [0] * 4] * 2
    finally:
        envs.close()


def test_128_episodes_step_together(manager: Any, lamps: Path, stage: FakeEndpoint) -> None:
    """The endpoint answers nobody before all 128 have asked: stepped one after another, they would wait for ever."""
    stage.plan(barrier=128)
    envs = manager(config(lamps, groups=16, size=8, **simulated(stage)))
    try:
        envs.reset(seed=0)
        running = envs.step(inputs(envs, lambda number: call(f"lamp {number}")))
        assert len(running) == 128
        log = stage.log()
        assert log["most_in_flight"] == 128 == log["count"]
    finally:
        envs.close()


def test_members_of_a_group_share_the_simulators_answers(manager: Any, lamps: Path, stage: FakeEndpoint) -> None:
    envs = manager(config(lamps, **simulated(stage)))
    try:
        envs.reset(seed=0)
        envs.step(inputs(envs, lambda _: call("hall")))
        assert stage.log()["count"] == 2, "one answer a group"
    finally:
        envs.close()


def test_a_run_that_is_started_again_pays_for_no_reply_twice(
    manager: Any, lamps: Path, stage: FakeEndpoint, tmp_path: Path
) -> None:
    kept = config(lamps, **simulated(stage))
    kept["custom_envs"]["Lamps"]["env_config"]["store"] = str(tmp_path / "replies")
    heard = []
    for _ in range(2):
        envs = manager(kept)
        try:
            envs.reset(seed=0)
            envs.step(inputs(envs, lambda number: call(f"lamp {number}")))
            heard.append([entry["env"].render() for entry in envs.envs])
        finally:
            envs.close()
    assert heard[0] == heard[1]
    assert stage.log()["count"] == 8


def test_an_outage_neither_raises_nor_scores(manager: Any, lamps: Path, stage: FakeEndpoint) -> None:
    envs = manager(config(lamps, **simulated(stage)))
    try:
        envs.reset(seed=0)
        stage.plan(each=["500"])
        assert envs.step(inputs(envs, lambda number: call(f"lamp {number}"))) == []
        for entry, state in zip(envs.envs, envs.get_rollout_states(), strict=True):
            assert entry["env"].reward is None
            assert math.isnan(entry["status"].rewards[-1]), "not 0, which would say that the policy failed"
            assert state["metrics"]["Lamps/aborted"] == 1.0
        rows = rows_of([entry["env"] for entry in envs.envs], 0)
        assert rows.scores == [None] * 8
        assert not any(itertools.chain(*rows.mask))
        stage.plan()
        assert len(envs.reset(seed=2)) == 8, "the next step begins as if nothing had been"
    finally:
        envs.close()


def test_what_is_unfinished_is_judged_in_the_last_round(manager: Any, lamps: Path, stage: FakeEndpoint) -> None:
    envs = manager(config(lamps, rounds=2, **simulated(stage)))
    try:
        envs.reset(seed=0)
        assert len(envs.step(inputs(envs, lambda number: call(f"lamp {number}")))) == 8
        assert envs.step(inputs(envs, lambda _: "Done.")) == []
        ends = [(e["env"].playing.end.kind, e["env"].playing.end.code, e["env"].reward) for e in envs.envs]
        assert ends == [("truncated", "max_turns", 1.0)] * 8
        asked = [row["body"]["messages"][0]["content"] for row in stage.log()["requests"]]
        assert sum(text.startswith("You judge") for text in asked) == 8
        envs.reset(seed=2)
        envs.step(inputs(envs, lambda number: call(f"lamp {number}")))
        states = envs.get_rollout_states()  # a caller that leaves before the last round
        assert [state["metrics"]["Lamps/success"] for state in states] == [1.0] * 8
    finally:
        envs.close()


def test_one_copy_of_the_data(manager: Any, lamps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[str] = []
    load = Pack.load
    monkeypatch.setattr(Pack, "load", classmethod(lambda cls, path: loads.append(str(path)) or load(path)))
    both = [manager(config(lamps, groups=16, size=8), mode) for mode in ("train", "val")]
    try:
        assert len(loads) == 1
        assert len({id(entry["env"].lease.environment) for envs in both for entry in envs.envs}) == 1
    finally:
        for envs in both:
            envs.close()


def test_a_call_that_cannot_be_read_costs_the_penalty(manager: Any, lamps: Path) -> None:
    envs = manager(config(lamps))
    try:
        envs.reset(seed=0)
        rows = envs.step(inputs(envs, lambda number: "<tool_call>{no</tool_call>" if number == 1 else call("hall")))
        assert [row["penalty"] for row in rows] == [0, -0.1, 0, 0, 0, 0, 0, 0]
        assert len(rows) == 8, "the environment answers it with an error"
    finally:
        envs.close()


# -- ids ----------------------------------------------------------------------------------------------------------------


def test_the_row_is_what_was_sampled_and_nothing_else(lamps: Path) -> None:
    tokenizer = Letters()
    env = SimiaEnv(SimiaEnvConfig(stage={"pack": str(lamps), "user": "scripted"}, train=None))
    try:
        env.reset(seed=0)
        env.opening(Text(tokenizer), 5000)
        opening = list(env.row.prompt_ids)
        said = [[*map(ord, text), 2] for text in (call("hall"), "Done.")]
        said[0].insert(0, 0x200B)  # a token that no tokenizer would give back
        for ids in said:
            sync.run(env.take(ids))
        sync.run(env.take([ord("x")]))  # cut before its end token
        assert env.playing.end.code == "max_tokens"
        rows = rows_of([env], 0)
        trained = [i for i, m in zip(rows.ids[0], rows.mask[0], strict=True) if m]
        assert trained == [*said[0], *said[1], ord("x")]
        assert rows.ids[0][: len(opening)] == opening
        between = tokenizer.decode([i for i, m in zip(rows.ids[0], rows.mask[0], strict=True) if not m])
        assert between.endswith("<s>assistant\n")
        assert "Reward" not in between
        assert rows.scores == [env.reward]
        assert env.reward is not None
    finally:
        env.close()


def test_an_episode_without_room_is_cut_and_scored(lamps: Path) -> None:
    env = SimiaEnv(SimiaEnvConfig(stage={"pack": str(lamps), "user": "scripted"}, train=None))
    try:
        env.reset(seed=0)
        row = env.opening(Text(Letters()), 0)
        assert env.overlong.startswith(f"the context has {len(row.prompt_ids)} tokens")
        env.reset(seed=0)
        ids = [*map(ord, call("hall")), 2]
        length = len(env.opening(Text(Letters()), 10_000).prompt_ids)
        env.opening(Text(Letters()), length + len(ids))  # no room for what the environment answers
        sync.run(env.take(ids))
        assert (env.playing.end.kind, env.playing.end.code) == ("truncated", "max_tokens")
        assert env.reward == 0.0
        assert sum(rows_of([env], 0).mask[0]) == len(ids)
        assert "leave room" in env.playing.issues[-1].detail
    finally:
        env.close()


def test_advantages_leave_out_what_has_no_score() -> None:
    scores, groups = [1.0, 0.0, None, 1.0, 0.0, None, None, 1.0], [0] * 4 + [1] * 4
    normal = normalised(scores, [0.0] * 8, groups, "mean_std")
    third = 1 / 3
    spread = math.sqrt((2 * third**2 + 4 * third**2) / 2)
    assert normal[:4] == pytest.approx([third / spread, -2 * third / spread, 0, third / spread], abs=1e-5)
    assert normal[4] == pytest.approx(-math.sqrt(0.5), abs=1e-5)
    assert normal[5:7] == [0, 0]
    assert normalised(scores, [0.5] + [0.0] * 7, groups, "identity")[:3] == [1.5, 0.0, 0.0]
    assert filled(scores, groups) == [1, 0, pytest.approx(2 / 3), 1, 0, 0.5, 0.5, 1]
    rows = SimpleNamespace(scores=[1.0, None], mask=[[0, 1, 1], [0, 0]])
    metrics = [{"T/success": 1.0, "T/aborted": 0.0}, {"T/success": 0.0, "T/aborted": 1.0}]
    assert figures(rows, metrics) == {"T/success": 1.0, "T/aborted": 0.5, "response_length": 2.0}
    assert until_end([5, 6, 2, 0, 0], [2, 3]) == [5, 6, 2]


# -- configurations -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("agent_proxy.reward_normalization.method", "identity", "GRPO would not be GRPO"),
        ("agent_proxy.reward_normalization.grouping", "batch", "set grouping=state and method=mean_std"),
        ("es_manager.train.group_size", 1, "group_size is 1: GRPO compares"),
        ("agent_proxy.use_turn_scores", True, "use_turn_scores is True: set it to False"),
        ("agent_proxy.max_context_window", 5, "it is never cut; set it to -1"),
        ("actor_rollout_ref.rollout.n", 4, "rollout.n is 4: set it to 1"),
        ("actor_rollout_ref.actor", {"loss_agg_mode": "seq-mean-token-mean"}, "an aborted episode has none"),
        ("actor_rollout_ref.rollout.max_model_len", 100, "it must hold the whole episode"),
        ("algorithm.adv_estimator", "gae", "it is identity, or for grpo mean_std"),
        ("custom_envs.Lamps.env_type", "sokoban", "beside simia no other type"),
        ("custom_envs.Lamps.env_config.stages", {}, "unknown key 'custom_envs.Lamps.env_config.stages'"),
        ("custom_envs.Lamps.env_config.stage.backnd", "x", "did you mean 'backend'"),
        ("es_manager.val.env_configs.tags", ["Lamp"], "names the tag Lamp, which custom_envs has not"),
        ("es_manager.val.env_configs.tags", None, "es_manager.val.env_configs.tags is None: name one or more"),
        ("es_manager.train.env_configs.n_groups", [1, 2], "has 1 tags and 2 n_groups: give each tag its number"),
        ("custom_envs.Lamps.env_config", 5, "custom_envs.Lamps.env_config is 5: it is a section"),
        ("custom_envs.Lamps.env_config.stage", 7, "env_config.stage is 7: it is a section"),
        ("actor_rollout_ref.rollout.response_length", None, "response_length is None: set the most tokens of a turn"),
    ],
)
def test_a_configuration_that_would_not_train_what_it_says_is_refused(
    lamps: Path, path: str, value: Any, line: str
) -> None:
    wrong = config(lamps)
    check(wrong)
    *place, name = path.split(".")
    section = wrong
    for step in place:
        section = section[step]
    section[name] = value
    with pytest.raises(UserError, match=line) as caught:
        check(wrong)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", RUNS)
def test_the_papers_runs_are_grpo(name: str) -> None:
    values = resolved(read(f"ragen/{name}"))
    check(values)
    train = values["es_manager"]["train"]
    assert sum(train["env_configs"]["n_groups"]) == train["env_groups"] == 16
    assert sum(values["es_manager"]["val"]["env_configs"]["n_groups"]) == values["es_manager"]["val"]["env_groups"]
    stages = [env["env_config"]["stage"] for env in values["custom_envs"].values()]
    assert {stage["backend"] for stage in stages} == {name.split("_")[1]}
    assert {stage["reward"] for stage in stages} == {"oracle" if "simulated" in name else "rules"}


def test_names_that_ragen_does_not_know_are_refused() -> None:
    known = {"agent_proxy": {"max_turn": 5}, "custom_envs": {"Game": {}}, "model_path": "x"}
    check_names({"agent_proxy": {"max_turn": 1}, "custom_envs": {"Mine": {"any": 1}}}, known)
    with pytest.raises(UserError, match=r"unknown key 'agent_proxy.max_turns' for RAGEN: did you mean 'max_turn'"):
        check_names({"agent_proxy": {"max_turns": 1}}, known)
    with pytest.raises(UserError, match=r"^agent_proxy.max_turn is 'many': RAGEN takes a number$"):
        check_names({"agent_proxy": {"max_turn": "many"}}, known)
    tree = {"a": {"b": "${c}", "d": "x/${c}/${a.b}"}, "c": 5}
    assert resolved(tree) == {"a": {"b": 5, "d": "x/5/5"}, "c": 5}


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
    fits = compare("ragen", found).fits
    assert fits is (flash is not None and flash.startswith("2.7"))
    python = python_with(tmp_path, found)
    if fits:
        assert "RAGEN 5eb79b8 with torch 2.6.0" in versions(python)[0]
        return
    with pytest.raises(UserError, match="flash-attn"):
        versions(python)


def test_a_launch_checks_and_says_how(lamps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGEN_HOME", str(tmp_path / "nowhere"))
    file = tmp_path / "run.yaml"
    values = json.loads(json.dumps(config(lamps)))
    values["actor_rollout_ref"]["rollout"]["max_model_len"] = 9000
    del values["es_manager"]["format_penalty"]
    file.write_text(json.dumps(values))
    with pytest.raises(UserError, match=r"has no train\.py: git clone"):
        launch(file, {})
    home = checkout_at(tmp_path / "RAGEN")
    monkeypatch.setenv("RAGEN_HOME", str(home))
    assert base_of(home)["custom_envs"] == {"Game": {"env_type": "sokoban"}}
    with pytest.raises(UserError, match=r"cannot run ragen: .*not installed: .*vllm.*setup_ragen.sh"):
        launch(file, {}, python=Path(sys.executable))
    python = python_with(tmp_path, INSTALLED)
    monkeypatch.setattr("simia.trainers.ragen.start.python_path", lambda given: f"/beside/{given.name}")
    done = launch(file, {"trainer.experiment_name": "mine", "es_manager.train.group_size": 6}, python=python)
    written = tmp_path / "runs" / "mine" / "simia.yaml"
    assert not (tmp_path / "runs").exists(), "who only looks writes nothing"
    assert done.prepare is not None
    done.prepare()
    assert done.command == [str(python), "-m", "simia.trainers.ragen.entry", str(written.relative_to(tmp_path))]
    assert read(written)["es_manager"]["train"]["group_size"] == 6
    assert done.env == {"RAGEN_HOME": str(home), "PYTHONPATH": f"{home}:{home}/verl:/beside/python"}
    assert done.notes[0] == "train: 2 groups of 6 a step on 4 tasks of lamps (executable)"
    (tmp_path / "file").touch()
    for name, value, said in (
        ("trainer.default_local_dir", "file/x", "trainer.default_local_dir: file/x cannot be made"),
        ("model_path", "./nowhere", "model_path: there is no folder ./nowhere"),
        ("custom_envs.Lamps.env_config.stage.backend", "simulatd", "no back end named 'simulatd'"),
    ):
        with pytest.raises(UserError, match=said):
            launch(file, {name: value}, python=python)
    with pytest.raises(UserError, match="group_size is 1"):
        launch(file, {"es_manager.train.group_size": 1}, python=python)
    with pytest.raises(UserError, match="no task of split 'dev' for train"):
        launch(file, {"custom_envs.Lamps.env_config.train": "dev"}, python=python)
