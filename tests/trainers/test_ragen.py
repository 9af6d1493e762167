"""RAGEN without RAGEN: where it finds us, our environment by its protocol, and an episode as a row of ids.

Steps of many episodes are in `test_ragen_steps.py`, starts in `test_ragen_start.py`; `test_ragen_real.py` is on RAGEN's own source.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from simia import event_loop
from simia.errors import UserError
from simia.pack import Pack
from simia.trainers.ragen import register
from simia.trainers.ragen.env import SimiaEnv, choose_task
from simia.trainers.ragen.import_hook import ImportHook
from simia.trainers.ragen.settings import SimiaEnvConfig, parse_env_config
from simia.trainers.ragen.training_rows import average_metrics, collect_rows, fill_scores, normalize_scores
from simia.trainers.tokens import ChatText, cut_after_end
from tests.trainers import ragen_standin as standin
from tests.trainers.ragen_standin import RECORD, call


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

    def apply_chat_template(self, rows: list[dict[str, Any]], tools: Any = None, **_: Any) -> str:
        asked = f"<s>system\nby <tool_call>: {json.dumps(tools)}</s>\n" if tools else ""
        called = ["".join(c["function"]["name"] for c in row.get("tool_calls", ())) for row in rows]
        turns = [f"<s>{row['role']}\n{row['content']}{more}</s>\n" for row, more in zip(rows, called, strict=True)]
        return asked + "".join(turns) + "<s>assistant\n"


# -- names and signatures ---------------------------------------------------------------------------------------------


def test_the_stand_in_has_the_signatures_of_the_source_that_they_were_recorded_from() -> None:
    assert standin.signatures(Path(standin.__file__).read_text()) == RECORD["classes"]
    assert set(RECORD["classes"]) == set(standin.PLACES)


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
    assert sum(isinstance(finder, ImportHook) for finder in sys.meta_path) == 1
    import ragen.env  # type: ignore[import-not-found]

    assert list(ragen.env.REGISTERED_ENVS.items()) == [("game", 1), ("simia", SimiaEnv)]
    assert ragen.env.REGISTERED_ENV_CONFIGS["simia"] is parse_env_config
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
    laps = [[choose_task(tasks, lap * len(tasks) + n).id for n in range(len(tasks))] for lap in range(20)]
    assert all(sorted(lap) == sorted(task.id for task in tasks) for lap in laps)
    assert len({tuple(lap) for lap in laps}) > 1
    assert laps[3][1] == choose_task(tasks, 3 * len(tasks) + 1).id


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
        assert len({choose_task(tasks, seed, "val").id for seed in seeds}) == len(tasks)


def test_a_split_of_each_mode() -> None:
    env = SimiaEnv(SimiaEnvConfig(stage={"pack": "customer_service"}))
    try:
        assert Counter(task.split for mode in ("train", "val") for task in env.tasks(mode)) == {"train": 54, "test": 24}
        env.config.val = "dev"
        with pytest.raises(UserError, match="no task of split 'dev', which val needs; its splits: test, train"):
            env.reset(seed=1, mode="val")
    finally:
        env.close()
    with pytest.raises(UserError, match=r"env_config: unknown key 'stage.pakc': did you mean 'stage.pack'"):
        SimiaEnv(parse_env_config(stage={"pakc": "customer_service"}))


# -- ids ----------------------------------------------------------------------------------------------------------------


def test_the_row_is_what_was_sampled_and_nothing_else(lamps: Path) -> None:
    tokenizer = Letters()
    env = SimiaEnv(SimiaEnvConfig(stage={"pack": str(lamps), "user": "scripted"}, train=None))
    try:
        env.reset(seed=0)
        env.opening(ChatText(tokenizer), 5000)
        opening = list(env.row.prompt_ids)
        said = [[*map(ord, text), 2] for text in (call("hall"), "Done.")]
        said[0].insert(0, 0x200B)  # a token that no tokenizer would give back
        for ids in said:
            event_loop.run(env.take(ids))
        event_loop.run(env.take([ord("x")]))  # cut before its end token
        assert env.playing.end.code == "max_tokens"
        rows = collect_rows([env], 0)
        trained = [i for i, m in zip(rows.ids[0], rows.mask[0], strict=True) if m]
        assert trained == [*said[0], *said[1], ord("x")]
        assert rows.ids[0][: len(opening)] == opening
        between = tokenizer.decode([i for i, m in zip(rows.ids[0], rows.mask[0], strict=True) if not m])
        assert between.endswith("<s>assistant\n")
        assert "Reward" not in between
        assert rows.scores == [env.reward]
        assert not any(env.playing.samples), "256 turns would hold the context 256 times"
        assert env.reward is not None
    finally:
        env.close()


def test_an_episode_without_room_is_cut_and_scored(lamps: Path) -> None:
    env = SimiaEnv(SimiaEnvConfig(stage={"pack": str(lamps), "user": "scripted"}, train=None))
    try:
        env.reset(seed=0)
        row = env.opening(ChatText(Letters()), 0)
        assert env.overlong.startswith(f"the context has {len(row.prompt_ids)} tokens")
        env.reset(seed=0)
        ids = [*map(ord, call("hall")), 2]
        length = len(env.opening(ChatText(Letters()), 10_000).prompt_ids)
        env.opening(ChatText(Letters()), length + len(ids))  # no room for what the environment answers
        event_loop.run(env.take(ids))
        assert (env.playing.end.kind, env.playing.end.code) == ("truncated", "max_tokens")
        assert env.reward == 0.0
        assert sum(collect_rows([env], 0).mask[0]) == len(ids)
        assert "leave room" in env.playing.issues[-1].detail
    finally:
        env.close()


def test_advantages_leave_out_what_has_no_score() -> None:
    scores, groups = [1.0, 0.0, None, 1.0, 0.0, None, None, 1.0], [0] * 4 + [1] * 4
    normal = normalize_scores(scores, groups, "mean_std")
    third = 1 / 3
    spread = math.sqrt((2 * third**2 + 4 * third**2) / 2)
    assert normal[:4] == pytest.approx([third / spread, -2 * third / spread, 0, third / spread], abs=1e-5)
    assert normal[4] == pytest.approx(-math.sqrt(0.5), abs=1e-5)
    assert normal[5:7] == [0, 0]
    assert normalize_scores([1.5, *scores[1:]], groups, "identity")[:3] == [1.5, 0.0, 0.0]
    assert fill_scores([1.0, 0.0, None, 1.0], [0] * 4, math.nan) == [1, 0, pytest.approx(2 / 3), 1]
    assert all(map(math.isnan, fill_scores([None, None], [0] * 2, math.nan))), "an outage is no failure"
    assert fill_scores([None, None], [0] * 2) == [0, 0]
    assert fill_scores(scores, groups) == [1, 0, pytest.approx(2 / 3), 1, 0, 0.5, 0.5, 1]
    rows = SimpleNamespace(scores=[1.0, None], mask=[[0, 1, 1], [0, 0]])
    metrics = [{"T/success": 1.0, "T/aborted": 0.0}, {"T/success": 0.0, "T/aborted": 1.0}]
    assert average_metrics(rows, metrics) == {"T/success": 1.0, "T/aborted": 0.5, "response_length": 2.0}
    assert cut_after_end([5, 6, 2, 0, 0], [2, 3]) == [5, 6, 2]
