"""Rewards of single turns where each trainer takes them, against numbers worked by hand.

The episode: a wrong lamp, the right one, words, the second right lamp, words. Two reference calls of 0.25 each, in the second and the
fourth turn; of three changes one is not the reference's, so the outcome is 2/3.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from simia import event_loop
from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.envs.text_episode import share_environment
from simia.errors import UserError
from simia.exporting.episode_groups import BestOfGroups
from simia.jobs import Run
from simia.report.training_statistics import collect_training
from simia.trainers.kept_episodes import EpisodeKeeper, KeptSettings
from simia.trainers.ragen.env import SimiaEnv
from simia.trainers.ragen.settings import SimiaEnvConfig, check_ragen_config
from simia.trainers.ragen.training_rows import TrainingRows, collect_rows
from simia.trainers.tokens import ChatText, place_steps
from simia.trainers.trl.rollout import make_columns
from simia.trainers.verl.play import PlayedEpisode, PolicyPlayer
from simia.trainers.verl.settings import PlaySettings
from simia.trajectory import Message, ToolCall
from tests.trainers import ragen_standin, verl_standin
from tests.trainers.conftest import ROOT, Trainer
from tests.trainers.ragen_standin import call
from tests.trainers.test_ragen import Letters
from tests.trainers.test_verl import END, TOKENIZER, Script

about = pytest.approx
STEPS = {"by": "calls", "weight": 0.5}
ACTIONS = [
    {"name": "switch", "arguments": {"lamp": "attic", "on": True}},
    {"name": "switch", "arguments": {"lamp": "kitchen", "on": True}},
    "Done.",
    {"name": "switch", "arguments": {"lamp": "hall", "on": False}},
    "Done.",
]
OUTCOME = 2 / 3


@pytest.fixture
async def house(lamps: Path) -> AsyncIterator[Environment]:
    config = {"pack": str(lamps), "user": "scripted", "step_rewards": STEPS}
    async with await open_environment(config, say=lambda _: None) as environment:
        yield environment


@pytest.fixture
async def played(house: Environment) -> PlayedEpisode:
    player = PolicyPlayer(house, TOKENIZER, ChatText(TOKENIZER), PlaySettings(), 4000, 4000)
    return await player.play(Script(*ACTIONS), "lamps-0", seed=0, group="g", name="n")


async def test_the_row_knows_where_each_turn_ends(played: PlayedEpisode) -> None:
    row = played.row
    assert row.outcome == about(OUTCOME)
    assert row.reward == about(OUTCOME + 0.5)
    ends = [at for at, (one, mask) in enumerate(zip(row.completion_ids, row.mask, strict=True)) if mask and one == END]
    assert row.turn_ends == ends
    assert row.step_rewards == {ends[1]: 0.25, ends[3]: 0.25}
    assert place_steps([0.5, 0.0, 0.25], [3, 7, 3]) == {3: 0.75}


async def test_verl_gets_them_on_the_turns_last_tokens(played: PlayedEpisode, monkeypatch: pytest.MonkeyPatch) -> None:
    module, row = verl_standin.install(monkeypatch), played.row
    policy = SimpleNamespace(preempted=-1, routed_experts=None, versions={})
    output = module.SimiaAgentLoop._output(None, played, policy, {}, False)
    assert output.reward_score == about(OUTCOME + 0.5)
    assert output.extra_fields["turn_scores"] == [0.0, 0.25, 0.0, 0.25, 0.0]
    assert output.extra_fields["reward_extra_info"]["success"] == 0.0
    fields = output.as_dict()
    assert "step_rewards" not in fields
    scores = fields["rm_scores"]
    second, fourth, last = row.turn_ends[1], row.turn_ends[3], len(row.completion_ids) - 1
    assert {at: score for at, score in enumerate(scores) if score} == about({second: 0.25, fourth: 0.25, last: OUTCOME})
    # with gamma 1 and no critic a token's return is what comes from it on: the sum until the second turn's end, and so on
    returns = list(itertools.accumulate(reversed(scores)))[::-1]
    assert [returns[end] for end in row.turn_ends] == about(
        [OUTCOME + 0.5, OUTCOME + 0.5, OUTCOME + 0.25, OUTCOME + 0.25, OUTCOME]
    )
    validated = module.SimiaAgentLoop._output(None, played, policy, {}, True)
    assert validated.reward_score == about(OUTCOME)
    assert validated.as_dict()["rm_scores"][-1] == about(OUTCOME)
    assert sum(validated.as_dict()["rm_scores"]) == about(OUTCOME)


async def test_trl_gets_their_sum_in_training_alone(played: PlayedEpisode) -> None:
    assert make_columns([played.row], END)["reward"] == [about(OUTCOME + 0.5)]
    assert make_columns([played.row], END, learns=False)["reward"] == [about(OUTCOME)]


async def test_a_kept_episode_is_solved_by_its_outcome_alone(played: PlayedEpisode, tmp_path: Path) -> None:
    settings = KeptSettings(run=str(tmp_path / "runs" / "kept"))
    keeper = EpisodeKeeper.open(settings, tmp_path, trainer="mine", start="a", process="0")
    for step, kept in ((1, played.row), (2, played.row.episode)):
        keeper.keep(step, [kept])
        keeper.keep(step, [kept], validates=True)
    keeper.close()
    with contextlib.closing(Run.read_only(tmp_path / "runs", "kept")) as run:
        training = collect_training(run)
    assert [(step.reward, step.solved) for step in training.steps] == [(about(OUTCOME + 0.5), 0)] * 2
    assert [(step.reward, step.solved) for step in training.validations] == [(about(OUTCOME), 0)] * 2
    assert list(BestOfGroups().select([tmp_path / "runs" / "kept"])) == []
    assert len(list(BestOfGroups(0.6).select([tmp_path / "runs" / "kept"]))) == 2


def test_ragen_gets_them_as_turn_scores(lamps: Path) -> None:
    stage = {"pack": str(lamps), "user": "scripted", "step_rewards": STEPS, "tasks": ["lamps-0"]}
    env = SimiaEnv(SimiaEnvConfig(stage=stage, train=None))
    try:
        env.reset(seed=0)
        row = env.opening(ChatText(Letters()), 50_000)
        for text in (call("attic"), call("kitchen"), "Done.", call("hall", on=False), "Done."):
            event_loop.run(env.take([*map(ord, text), 2]))
        assert env.done
        rows = collect_rows([env], 0)
        assert (rows.scores, rows.totals) == ([about(OUTCOME)], [about(OUTCOME + 0.5)])
        assert env.info["success"] == 0.0
        # a batch with 7 tokens of padding on the left; position j belongs to token j + 1
        width = len(rows.ids[0]) + 7
        placed = rows.list_turn_scores(width - 1)
        assert [(number, reward) for number, _, reward in placed] == [(0, 0.25), (0, 0.25)]
        padded = [0] * 7 + rows.ids[0]
        ends = [7 + len(row.prompt_ids) + row.turn_ends[turn] for turn in (1, 3)]
        assert [padded[end] for end in ends] == [2, 2]
        assert [place + 1 for _, place, _ in placed] == ends
    finally:
        env.close()


def test_an_episode_without_a_score_has_no_turn_scores() -> None:
    rows = TrainingRows([[1, 2, 3, 4], [1, 2]], [[0, 1, 0, 1], [0, 1]], [None, 0.5], [{1: 0.5}, {1: 0.25}])
    assert rows.totals == [None, 0.75]
    assert rows.list_turn_scores(3) == [(1, 2, 0.25)]


def test_ragen_takes_turn_scores_with_gae(lamps: Path) -> None:
    whole = ragen_standin.config(lamps)
    whole["agent_proxy"]["use_turn_scores"] = True
    with pytest.raises(UserError, match="with which the turns' rewards are added to the episode's"):
        check_ragen_config(whole)
    whole["algorithm"]["adv_estimator"] = "gae"
    whole["agent_proxy"]["reward_normalization"]["method"] = "identity"
    check_ragen_config(whole)


def test_interfaces_of_text_get_the_sum_with_the_end(lamps: Path) -> None:
    lease = share_environment({"pack": str(lamps), "user": "scripted", "step_rewards": STEPS})
    session = lease.session()
    try:
        heard = event_loop.run(session.reset("lamps-0"))
        for number, action in enumerate(ACTIONS):
            if isinstance(action, str):
                message = Message(role="assistant", content=action)
            else:
                message = Message(role="assistant", calls=[ToolCall(id=str(number), **action)])
            assert heard.value is None
            heard = event_loop.run(session.act(message))
        assert (heard.ended, heard.value) == ("terminated", about(OUTCOME + 0.5))
    finally:
        event_loop.run(session.leave())
        lease.close()


def test_ragens_tensors_hold_them_where_a_turn_ends(trl: Trainer, tmp_path: Path) -> None:
    """With torch, in an environment that has it. A score stands one place before its token, as the masks do."""
    out = tmp_path / "told.json"
    trl.run(ROOT / "tests" / "trainers" / "turn_scores_probe.py", out)
    told = json.loads(out.read_text())

    def scores(name: str, row: int) -> dict[int, float]:
        """The id that each score belongs to."""
        ids, values = told[name]["input_ids"][row], told[name]["rm_scores"][row]
        assert all(told[name]["loss_mask"][row][at] for at, value in enumerate(values) if row < 2 and value)
        return {ids[at + 1]: value for at, value in enumerate(values) if value}

    assert scores("turns", 0) == about({12: 0.25, 14: 0.25, 15: 1.0})
    assert scores("turns", 1) == about({17: 0.4}), "the turn's reward and the penalty"
    assert scores("turns", 2) == {}
    # gae without a critic, gamma and lambda 1: what comes from a token on
    returns = list(itertools.accumulate(reversed(told["turns"]["rm_scores"][0])))[::-1]
    tokens = dict(zip(told["turns"]["input_ids"][0][1:], returns, strict=True))
    assert [tokens[one] for one in (10, 12, 13, 14, 15)] == about([1.5, 1.5, 1.25, 1.25, 1.0])
    # as sums: 1.5 and 0.4 around 0.95, half of their distance over a deviation of 1.1 / sqrt(2)
    assert (scores("sums", 0), scores("sums", 1)) == (
        about({15: 0.5**0.5}, abs=1e-5),
        about({17: -(0.5**0.5)}, abs=1e-5),
    )
    assert (scores("validation", 0), scores("validation", 1)) == (about({15: 1.0}), {}), "no penalty"
    # for RAGEN's filter of groups: without penalties, a missing score is the group's mean
    assert [sum(row) for row in told["turns"]["original_rm_scores"]] == about([1.5, 0.5, 1.0])
    assert [sum(row) for row in told["validation"]["original_rm_scores"]] == about([1.0, 0.0, 0.5])
