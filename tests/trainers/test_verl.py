"""verl's side of simia without verl: an episode as ids with its endings, groups, data sets, and how a run is started."""

from __future__ import annotations

import ast
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from simia.cli import train
from simia.config import parse_config, read_config_file
from simia.envs.config import EnvironmentConfig
from simia.envs.environment import Environment, EpisodeLimits
from simia.envs.opening import open_environment
from simia.envs.users import EpisodeView, NoUser, User, UserStop
from simia.errors import Aborted, Code, UserError
from simia.search_path import data_root
from simia.task import Task
from simia.trainers.groups import statistics
from simia.trainers.launch import Launch
from simia.trainers.tokens import ChatText
from simia.trainers.verl import start
from simia.trainers.verl.play import GAP, PlayedEpisode, PolicyLostError, PolicyPlayer, PolicyReply, shorten_result
from simia.trainers.verl.settings import PlaySettings, VerlSettings
from simia.trainers.verl.start import launch, make_stage_rows, write_tasks
from simia.trainers.verl.worker_state import (
    EpisodeGroup,
    OpenGroups,
    append_note,
    close_all,
    get_environment,
    name_group,
    take_place,
)
from simia.trajectory import Message

END = 3  # ids: the code of each character; 3 ends a turn
RIGHT = [
    {"name": "switch", "arguments": {"lamp": "kitchen", "on": True}},
    "Done.",
    {"name": "switch", "arguments": {"lamp": "hall", "on": False}},
    "Done.",
]


class Characters:
    """A tokenizer whose tokens are characters, with a chat template of the usual shape."""

    eos_token_id = END

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [END if c == "\x03" else ord(c) for c in text]}

    def decode(self, ids: list[int], skip_special_tokens: bool = False, **_: Any) -> str:
        return "".join("" if skip_special_tokens and i == END else chr(i) for i in ids)

    def apply_chat_template(self, rows: list[dict[str, Any]], tools: Any = None, **_: Any) -> str:
        said = [f"by <tool_call>: {json.dumps(tools)}\n"] if tools else []
        for row in rows:
            calls = "".join(
                f"<tool_call>{json.dumps(call['function'])}</tool_call>" for call in row.get("tool_calls", ())
            )
            said.append(f"{row['role']}: {row['content']}{calls}\x03\n")
        return "".join(said) + "assistant: "


TOKENIZER = Characters()


def ids_of(action: Any) -> list[int]:
    text = action if isinstance(action, str) else f"<tool_call>\n{json.dumps(action)}\n</tool_call>"
    return [*TOKENIZER(text)["input_ids"], END]


class Script:
    """A policy that says these things in turn, and keeps what it was asked and what it gave."""

    def __init__(self, *actions: Any, then: Callable[[int], Any] | None = None) -> None:
        self.actions, self.then, self.said = list(actions), then, list[tuple[list[int], list[int]]]()

    async def __call__(self, context: list[int], most: int) -> PolicyReply:
        number = len(self.said)
        if self.then is not None and (fault := self.then(number)) is not None:
            self.said.append((context, []))
            if isinstance(fault, Exception):
                raise fault
            await asyncio.sleep(fault)
        ids = ids_of(self.actions[min(number, len(self.actions) - 1)])[:most]
        self.said.append((list(context), ids))
        return PolicyReply(ids, [-0.5] * len(ids))


@pytest.fixture
async def house(lamps: Path) -> AsyncIterator[Environment]:
    async with await open_environment({"pack": str(lamps), "user": "scripted"}, say=lambda _: None) as environment:
        yield environment


async def play(
    house: Environment,
    policy: Any,
    response: int = 4000,
    prompt: int = 4000,
    model: int | None = None,
    **settings: Any,
) -> PlayedEpisode:
    player = PolicyPlayer(house, TOKENIZER, ChatText(TOKENIZER), PlaySettings(**settings), prompt, response, model)
    return await player.play(policy, "lamps-0", seed=0, group="0/lamps-0", name="n")


async def test_what_was_sampled_is_what_is_trained(house: Environment) -> None:
    policy = Script(*RIGHT)
    played = await play(house, policy)
    row = played.row
    assert (played.end, played.reward, played.attempts) == ("terminated", 1.0, 1)
    assert len(policy.said) == len(RIGHT)
    assert [i for i, m in zip(row.completion_ids, row.mask, strict=True) if m] == [
        i for _, ids in policy.said for i in ids
    ]
    assert row.prompt_ids == policy.said[0][0]
    whole = row.prompt_ids + row.completion_ids
    for (context, ids), (later, _) in pairwise(policy.said):
        assert later[: len(context) + len(ids)] == context + ids, "a context goes on from what was sampled"
    assert whole == policy.said[-1][0] + policy.said[-1][1]
    assert [lp for lp, m in zip(row.logprobs, row.mask, strict=True) if not m] == [0.0] * row.mask.count(0)
    heard = TOKENIZER.decode([i for i, m in zip(row.completion_ids, row.mask, strict=True) if not m])
    assert '{"lamp":"kitchen","on":true}' in heard
    assert "Now the hall lamp off." in heard


async def test_limits_end_an_episode_and_it_is_scored(house: Environment) -> None:
    full = await play(house, Script(*RIGHT), response=120)
    assert (full.end, full.row.episode.end.code) == ("truncated", Code.MAX_TOKENS)
    assert full.reward is not None
    assert len(full.row.completion_ids) <= 120
    long = await play(house, Script("x" * 500), turn_tokens=50)
    assert (long.end, len(long.row.completion_ids), long.reward) == ("truncated", 50, 0.0)
    assert long.row.episode.messages[-1].text == "x" * 50, "what there is of it is kept"


async def test_the_models_context_cuts_an_episode_as_the_rows_limit_does(house: Environment) -> None:
    """verl's servers raise for a context that leaves no room: a long episode would be lost there, and is cut here."""
    whole = await play(house, Script(*RIGHT))
    opening, reply = len(whole.row.prompt_ids), len(ids_of(RIGHT[0]))
    policy = Script(*RIGHT)
    cut = await play(house, policy, model=opening + reply + 10)
    assert (cut.end, cut.row.episode.end.code, cut.attempts) == ("truncated", Code.MAX_TOKENS, 1)
    assert (cut.row.turns, cut.reward) == (1, 0.5), "one lamp of two"
    assert max(len(context) + len(ids) for context, ids in policy.said) <= opening + reply + 10
    inside = await play(house, Script(*RIGHT), model=opening + reply - 5)
    assert (inside.end, len(inside.row.completion_ids)) == ("truncated", reply - 5)
    tight = await play(house, Script(*RIGHT), model=opening)
    assert (tight.fits, tight.reward, tight.row.turns) == (False, None, 0)
    assert f"no room in the context of the policy's server ({opening})" in tight.row.episode.issues[-1].detail


async def test_a_clock_aborts_and_scores_nothing(house: Environment) -> None:
    """The policy's turn waits in the server's queue too: what is late is no failure of the policy."""
    slow = Script(*RIGHT, then=lambda n: 5.0 if n == 1 else None)
    played = await play(house, slow, turn_seconds=0.3, resample=0)
    assert (played.end, played.row.episode.end.code, played.row.turns) == ("aborted", Code.TIMEOUT, 1)
    assert (played.reward, played.row.episode.reward.value) == (None, None)
    once = await play(house, Script(*RIGHT, then=lambda n: 5.0 if n == 0 else None), turn_seconds=0.3, resample=1)
    assert (once.end, once.attempts) == ("terminated", 2)
    late = await play(house, Script(*RIGHT, then=lambda n: 0.2), episode_seconds=0.5, resample=5)
    assert (late.end, late.row.episode.end.code, late.reward) == ("aborted", Code.TIMEOUT, None)
    assert late.attempts == 1, "the time is that of all attempts"
    assert 1 <= late.row.turns < len(RIGHT)
    patient = await play(house, Script(*RIGHT, then=lambda n: 0.1), turn_seconds=None)
    assert (patient.end, patient.reward) == ("terminated", 1.0)


async def test_an_episode_in_which_the_policy_never_spoke_has_no_reward(house: Environment) -> None:
    class Leaving(NoUser):
        async def reply(self, view: EpisodeView) -> Message | UserStop:
            return UserStop(Code.USER_STOP)

    house.user = Leaving
    policy = Script(*RIGHT)
    played = await play(house, policy)
    assert played.row.episode.reward.value == 0.0, "the rules have judged"
    assert (played.reward, played.end, played.row.turns, policy.said) == (None, "unscored", 0, [])


async def test_a_long_episode_keeps_no_contexts(house: Environment) -> None:
    house.limits = EpisodeLimits(turns=20)
    played = await play(house, Script(RIGHT[0]), response=20_000)
    episode = played.row.episode
    assert (played.row.turns, len(episode.samples)) == (20, 20)
    kept = sum(len(sample.prompt_ids) for sample in episode.samples if sample is not None)
    assert kept <= len(played.row.prompt_ids) + len(played.row.completion_ids)


async def test_a_lost_policy_aborts_and_is_played_anew(house: Environment) -> None:
    fault = PolicyLostError("gone")
    again = await play(house, Script(*[RIGHT[0], *RIGHT], then=lambda n: fault if n == 0 else None), resample=1)
    assert (again.end, again.attempts) == ("terminated", 2)
    policy = Script(*RIGHT, then=lambda n: ConnectionError("gone"))
    lost = await play(house, policy, resample=2)
    assert (lost.end, lost.reward, lost.attempts, len(policy.said)) == ("aborted", None, 3, 3)
    assert lost.row.episode.issues[-1].detail == "ConnectionError: gone"
    empty = await play(house, lambda *_: reply([]), resample=0)
    assert (empty.end, empty.reward) == ("aborted", None)
    with pytest.raises(UserError, match="a key is missing"):
        await play(house, Script(*RIGHT, then=lambda n: UserError("a key is missing")))


async def reply(ids: list[int]) -> PolicyReply:
    return PolicyReply(ids)


async def test_an_environment_that_fails_aborts(house: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hangs(*_: Any, **__: Any) -> Any:
        await asyncio.sleep(30)

    async def lost(*_: Any, **__: Any) -> Any:
        raise Aborted(Code.WORKER_LOST, "on purpose")

    backend = house.backend
    with monkeypatch.context() as patch:
        patch.setattr(backend, "open", hangs)
        played = await play(house, Script(*RIGHT), world_seconds=0.3, resample=0)
        assert (played.end, played.row.episode.end.code, played.reward) == ("aborted", Code.TIMEOUT, None)
        patch.setattr(backend, "open", lost)
        played = await play(house, Script(*RIGHT), resample=1)
        assert (played.end, played.reward, played.attempts) == ("aborted", None, 2)
        assert played.row.prompt_ids, "the task's words, so that there is a prompt"
    opens = backend.open

    async def slow(*args: Any, **how: Any) -> Any:
        world = await opens(*args, **how)
        monkeypatch.setattr(type(world), "call", hangs)
        return world

    monkeypatch.setattr(backend, "open", slow)
    played = await play(house, Script(*RIGHT), world_seconds=0.3, resample=0)
    assert (played.end, played.row.episode.end.code, played.row.turns) == ("aborted", Code.TIMEOUT, 1)


async def test_a_world_whose_user_hangs_or_fails_is_closed(house: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    opens, worlds, closed = house.backend.open, [], []

    async def counted(*args: Any, **how: Any) -> Any:
        worlds.append(world := await opens(*args, **how))
        return world

    class Hanging(NoUser):
        async def reply(self, view: EpisodeView) -> Message | UserStop:
            await asyncio.sleep(30)
            raise AssertionError

    class Failing(NoUser):
        async def reply(self, view: EpisodeView) -> Message | UserStop:
            raise ZeroDivisionError

    def unmade(task: Task) -> User:
        raise UserError("no such user")

    monkeypatch.setattr(house.backend, "open", counted)
    first = await house.reset("lamps-0")
    world_type = type(first.world)
    closes = world_type.close

    async def noted(self: Any) -> None:
        closed.append(self)
        await closes(self)

    monkeypatch.setattr(world_type, "close", noted)
    await first.close()
    house.user = Hanging
    played = await play(house, Script(*RIGHT), world_seconds=0.3, resample=1)
    assert (played.end, played.attempts) == ("aborted", 2)
    for maker, error in ((Failing, ZeroDivisionError), (unmade, UserError)):
        house.user = maker
        with pytest.raises(error):
            await house.reset("lamps-0")
    assert len(worlds) == 5
    assert closed == worlds


async def test_an_opening_that_does_not_fit_is_never_cut(house: Environment) -> None:
    policy = Script(*RIGHT)
    played = await play(house, policy, prompt=50, resample=3)
    assert (played.fits, played.reward, played.attempts, policy.said) == (False, None, 1, [])
    assert "the opening has" in played.row.episode.issues[-1].detail


async def test_long_results_are_cut_in_the_middle_for_the_policy_alone(house: Environment) -> None:
    message = Message(role="tool", content="abcdefghij" * 10, call_id="1")
    short = shorten_result(message, TOKENIZER, 8)
    assert short.content == f"abcd{GAP}ghij"
    assert message.text == "abcdefghij" * 10
    assert shorten_result(message, TOKENIZER, 100) is message
    played = await play(house, Script(*RIGHT), result_tokens=8)
    heard = TOKENIZER.decode(played.row.completion_ids)
    assert f'{{"la{GAP}rue}}' in heard
    assert '{"lamp":"kitchen","on":true}' in [m.text for m in played.row.episode.messages]


def ended(*rewards: float | None, trains: bool = True, groups: OpenGroups | None = None) -> EpisodeGroup:
    groups = groups or OpenGroups()
    found = [groups.join("a", trains=trains) for _ in rewards]
    assert all(group is found[0] for group in found)
    last = [groups.leave("a", found[0], reward, "terminated") for reward in rewards]
    assert last == [False] * (len(rewards) - 1) + [True]
    assert found[0].over.is_set()
    return found[0]


def test_the_last_of_a_group_knows_that_it_is() -> None:
    groups = OpenGroups()
    first, other = groups.join("a"), groups.join("b")
    assert groups.join("a") is first
    assert other is not first
    assert not groups.leave("a", first, None, "aborted")
    assert not first.over.is_set()
    assert groups.leave("a", first, 0.5, "terminated")
    assert (first.over.is_set(), other.over.is_set()) == (True, False)
    assert first.known == [0.5]
    assert groups.join("a") is not first, "the next step's is another one"


@pytest.mark.parametrize(
    ("rewards", "trains", "estimator", "usable"),
    [
        ([1.0, 0.0, None], True, "grpo", True),
        ([None, None, None, 1.0], True, "grpo", False),  # advantages([None, None, None, 1.0]) is 0 throughout
        ([None, None, None, 1.0], True, "rloo", False),
        ([None, None, None, 1.0], True, "reinforce_plus_plus", True),  # whitened over the batch
        ([1.0], True, "grpo", True),  # rollout.n is 1: as verl is told
        ([None, 1.0], False, "grpo", True),  # validation compares nothing
        ([None, None], True, "gae", False),
        ([None], False, "grpo", False),
    ],
)
def test_a_group_with_nothing_to_compare_is_not_trained(
    rewards: list[float | None], trains: bool, estimator: str, usable: bool
) -> None:
    assert ended(*rewards, trains=trains).usable(estimator) is usable


def test_groups_lost_one_after_the_other_are_counted() -> None:
    groups = OpenGroups()
    ended(None, None, groups=groups)
    ended(None, groups=groups)
    assert groups.lost == 2
    ended(None, trains=False, groups=groups)
    assert groups.lost == 2, "validation has no part in it"
    ended(None, 0.0, groups=groups)
    assert groups.lost == 0


def test_what_became_of_a_group_is_written_down(tmp_path: Path) -> None:
    """Figures of a step from these lines, for verl has none of what it was not given."""
    for rewards in ([1.0, None, 0.0], [None, None, None]):
        append_note(tmp_path / "groups", "4/lamps-1", 4, "lamps-1", ended(*rewards))
    (path,) = (tmp_path / "groups").iterdir()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["rewards"] for line in lines] == [[1.0, None, 0.0], [None, None, None]]
    assert {(line["step"], line["task"], line["trains"]) for line in lines} == {(4, "lamps-1", True)}
    rewards = [reward for line in lines for reward in line["rewards"]]
    assert statistics(rewards, ["a"] * 3 + ["b"] * 3)["aborted"] == pytest.approx(4 / 6)


def test_the_documented_figures_count_each_group_of_a_step_once(
    config: Path, lamps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two groups of one task, in a step that a restart plays again in another process."""
    snippet = next(
        text
        for text in (Path(__file__).parents[2] / "docs" / "verl.md").read_text().split("```")
        if text.startswith("python\nimport json")
    )
    rows = make_stage_rows(EnvironmentConfig(pack=str(lamps)), at_least=8)
    for process in (1, 2):
        monkeypatch.setattr("os.getpid", lambda found=process: found)
        found = launch(config, {"trainer.experiment_name": "simia", "data.train_batch_size": 5})
        assert found.prepare is not None
        found.prepare()
        folder = tmp_path / "checkpoints" / "simia" / "simia" / "simia"
        begun = parse_config(VerlSettings, read_config_file(folder / "simia.yaml"), where="written").episodes
        assert begun is not None
        for row, reward in ((rows[0], 1.0), (rows[4], 0.0)):
            name = name_group(7, row["extra_info"], "uid")
            append_note(folder / "groups", name, 7, "lamps-0", ended(reward, reward), begun.start)
    exec(snippet.removeprefix("python\n"), {})
    figures = ast.literal_eval(capsys.readouterr().out)
    assert (figures["groups/flat"], figures["reward/mean"], figures["pass@2"]) == (1.0, 0.5, 0.5)


async def test_a_worker_has_places_for_so_many_episodes(lamps: Path) -> None:
    settings = parse_config(VerlSettings, {"stage": {"pack": str(lamps)}, "play": {"at_once": 2}}, where="here")
    free = parse_config(VerlSettings, {"stage": {"pack": str(lamps)}}, where="here")
    for given, most in ((settings, 2), (free, 5)):
        assert await busiest(given) == most


async def busiest(settings: VerlSettings) -> int:
    now, seen = 0, list[int]()

    async def one() -> None:
        nonlocal now
        async with take_place(settings):
            now += 1
            seen.append(now)
            await asyncio.sleep(0.01)
            now -= 1

    await asyncio.gather(*(one() for _ in range(5)))
    return max(seen)


async def test_a_worker_opens_its_environment_once(lamps: Path, tmp_path: Path) -> None:
    settings = parse_config(VerlSettings, {"stage": {"pack": str(lamps)}}, where="here")
    found = await asyncio.gather(*(get_environment(settings) for _ in range(5)))
    assert len({id(environment) for environment in found}) == 1
    other = parse_config(VerlSettings, {"stage": {"pack": str(tmp_path / "later")}}, where="here")
    for _ in range(2):
        with pytest.raises(UserError, match="later"):
            await get_environment(other)
    (tmp_path / "later").symlink_to(lamps)
    assert (await get_environment(other)).pack.name == "lamps"
    await close_all()


def test_a_data_set_has_a_row_a_group(lamps: Path, tmp_path: Path) -> None:
    stage = EnvironmentConfig(pack=str(lamps))
    assert write_tasks(tmp_path / "d" / "train.parquet", stage, at_least=6) == 8
    rows = pq.read_table(tmp_path / "d" / "train.parquet").to_pylist()
    assert [row["extra_info"]["index"] for row in rows] == list(range(8))
    assert [row["extra_info"]["task"] for row in rows] == [f"lamps-{n % 4}" for n in range(8)]
    assert all(row["prompt"][0]["role"] == "user" and row["prompt"][0]["content"] for row in rows)
    assert {(row["agent_name"], row["data_source"]) for row in rows} == {("simia", "lamps")}
    with pytest.raises(UserError, match="no task of split 'dev'; its splits: train"):
        write_tasks(tmp_path / "dev.parquet", stage, "dev")


@pytest.fixture
def config(lamps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(start, "interpreter", lambda trainer, python: python or Path("/here/python"))
    monkeypatch.setattr(start, "list_installed", lambda python: {"verl": "0.9.1", "vllm": "0.24.0"})
    monkeypatch.setattr(
        start,
        "read_verl_config",
        lambda python: {"data": {"train_batch_size": 1}, "actor_rollout_ref": {}, "trainer": {}},
    )
    monkeypatch.setattr(start, "make_python_path", lambda python, **_: "/somewhere")
    text = {
        "simia": {
            "stage": {
                "pack": str(lamps),
                "llm": {"kind": "openai", "model": "m", "key_env": "KEY", "headers": {"k": "${KEY}"}},
            }
        },
        "data": {"train_batch_size": 5},
        "actor_rollout_ref": {"rollout": {"name": "vllm", "n": 4}},
    }
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(text))
    return path


def test_a_run_is_written_and_named(config: Path, tmp_path: Path) -> None:
    found = launch(config, {"simia.play.resample": 2, "actor_rollout_ref.rollout.n": 8, "trainer.experiment_name": "e"})
    folder = tmp_path / "checkpoints" / "simia" / "e" / "simia"
    assert found.prepare is not None
    found.prepare()
    assert found.command[1:] == ["-m", "verl.trainer.main_ppo", "--config-dir", str(folder), "--config-name", "verl"]
    assert found.env["PYTHONPATH"] == "/somewhere"
    told = yaml.safe_load((folder / "verl.yaml").read_text())
    assert told["defaults"] == ["ppo_trainer", "_self_"]
    assert "simia" not in told
    assert told["actor_rollout_ref"]["rollout"]["n"] == 8
    assert told["trainer"]["default_local_dir"] == str(folder.parent)
    (loop,) = yaml.safe_load(Path(told["actor_rollout_ref"]["rollout"]["agent"]["agent_loop_config_path"]).read_text())
    assert (loop["name"], loop["_target_"]) == ("simia", start.LOOP)
    ours = parse_config(VerlSettings, read_config_file(loop["settings"]), where="written")
    assert ours.play.resample == 2
    assert ours.store == str(folder / "replies")
    assert ours.stage.llm.headers == {"k": "${KEY}"}, "Hydra reads no dollar signs of ours"  # type: ignore[union-attr]
    assert pq.read_table(told["data"]["train_files"]).num_rows == 8
    assert pq.read_table(told["data"]["val_files"]).num_rows == 4


def test_workers_get_as_many_requests_as_they_play_episodes(config: Path) -> None:
    """Also where the config names another limit; a worker reads the settings from the written file."""
    named = {"simia.stage.limits.retries": 2, "simia.val_environment.reward": "rules", "simia.play.at_once": None}
    sizes = {"data.train_batch_size": 1024, "actor_rollout_ref.rollout.n": 16}
    judged = {"actor_rollout_ref.rollout.val_kwargs.n": 1024}

    def read_limits(**more: Any) -> list[int]:
        found = launch(config, {**sizes, **judged, **more})
        assert found.prepare is not None
        found.prepare()
        (loop,) = yaml.safe_load((config.parent / "checkpoints/simia/mine/simia/agent.yaml").read_text())
        ours = parse_config(VerlSettings, read_config_file(loop["settings"]), where="written")
        return [each.stage.limits.concurrency for each in (ours, ours.for_validation())]

    assert read_limits() == [2048, 2048], "one environment"
    assert read_limits(**{**named, **judged}) == [2048, 512], "4 rows of 1,024 episodes, 8 workers"
    assert read_limits(**{**named, "simia.play.at_once": 300}) == [300, 300]
    assert read_limits(**{**named, "simia.stage.limits.concurrency": 64}) == [64, 64]


def test_a_dry_run_writes_nothing_and_a_start_does(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(tmp_path.rglob("*"))
    started = list[Launch]()
    monkeypatch.setattr(train, "exec_trainer", started.append)
    train.train("verl", str(config), python=Path(sys.executable), dry_run=True)
    assert sorted(tmp_path.rglob("*")) == before
    assert started == []
    train.train("verl", str(config), ["data.train_batch_size=9"], python=Path(sys.executable))
    (told,) = tmp_path.rglob("verl.yaml")
    assert [str(told.parent)] == started[0].command[4:5]
    live = {path: path.read_bytes() for path in told.parent.iterdir()}
    assert len(live) == 5
    train.train("verl", str(config), ["data.train_batch_size=3"], python=Path(sys.executable), dry_run=True)
    assert {path: path.read_bytes() for path in told.parent.iterdir()} == live
    with pytest.raises(UserError, match="no task of split 'dev'"):
        train.train("verl", str(config), ["simia.data.val=dev"], python=Path(sys.executable), dry_run=True)


def test_validation_has_groups_of_its_own(lamps: Path, tmp_path: Path) -> None:
    """Both on the same tasks in the same step, as verl does after a step that validates."""
    names = []
    for validates in (False, True):
        path = tmp_path / f"{validates}.parquet"
        write_tasks(path, EnvironmentConfig(pack=str(lamps)), validates=validates)
        names += [name_group(5, row["extra_info"], "uid") for row in pq.read_table(path).to_pylist()]
    assert names == [f"{mark}5/lamps-{n}/{n}" for mark in ("", "val-") for n in range(4)]
    assert name_group(None, {}, "uid") == "uid"
    assert name_group(5, {"task": "lamps-0"}, "uid") == "5/lamps-0", "a row that has no number"
    rows = make_stage_rows(EnvironmentConfig(pack=str(lamps)), at_least=8)
    assert len({name_group(5, row["extra_info"], "uid") for row in rows}) == 8, "two rows of a task are two groups"


def test_what_verl_does_not_know_is_refused(config: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UserError,
        match=r"verl has no setting data.train_batchsize: did you mean data.train_batch_size\?; write \+train_batchsize",
    ):
        launch(config, {"data.train_batchsize": 3})
    found = launch(config, {"+data.mine.deep": 3, "actor_rollout_ref.any": 1})  # verl's own section is empty there
    assert found.prepare is not None
    found.prepare()
    (written,) = tmp_path.rglob("verl.yaml")
    assert yaml.safe_load(written.read_text())["data"]["mine"] == {"deep": 3}
    assert start.check_settings({"+mine": {"deep": 3}, "defaults": []}, {"data": {}}, "verl", free=start.HYDRAS) == {
        "mine": {"deep": 3},
        "defaults": [],
    }


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("data.train_batch_size", "many", "data.train_batch_size is 'many': verl takes a number"),
        ("data.train_batch_size", 0, "must be the number of groups of a step, 1 or more"),
        ("data", 3, "data is 3: verl takes a section of settings"),
        ("simia", 3, "simia must be a section with stage, play and data, got 3"),
        ("trainer.use_v1", False, "verl's older trainer cannot leave out aborted episodes"),
        ("actor_rollout_ref.model.path", "./nowhere", "actor_rollout_ref.model.path: there is no folder ./nowhere"),
        ("trainer.test_freq", None, "^trainer.test_freq is null: set it to a whole number$"),
        ("trainer.total_epochs", "many", '^trainer.total_epochs is "many": set it to a whole number$'),
        ("trainer.total_training_steps", [1], r"^trainer.total_training_steps is \[1\]: set it to a whole number$"),
        ("actor_rollout_ref.rollout.n", None, "^actor_rollout_ref.rollout.n is null: set it to a whole number$"),
        ("simia.stage.backend", "simulatd", "no back end named 'simulatd'; did you mean 'simulated'"),
    ],
)
def test_what_a_worker_would_stumble_over(config: Path, name: str, value: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        launch(config, {name: value})


def test_a_folder_may_be_named_by_a_number(config: Path, tmp_path: Path) -> None:
    notes = launch(config, {"trainer.default_local_dir": 3}).notes
    assert any(str(tmp_path / "3" / "simia") in note for note in notes)


def test_an_engine_that_is_not_there_is_said(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "list_installed", lambda python: {"verl": "0.9.1"})
    with pytest.raises(
        UserError, match=r"/here/python lacks vllm, which samples the policy: pip install 'verl\[vllm\]==0\.9\.1'"
    ):
        launch(config, {})
    with pytest.raises(UserError, match="/elsewhere/python lacks"):
        launch(config, {}, python=Path("/elsewhere/python"))


def test_mistakes_in_our_section_are_said_in_a_line(config: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"mine\.yaml: simia: unknown key 'play\.resmple': did you mean 'play.resample'\?"
    ):
        launch(config, {"simia.play.resmple": 2})
    (tmp_path / "bare.yaml").write_text("trainer: {}\n")
    with pytest.raises(UserError, match="simia: stage: a value is required"):
        launch(tmp_path / "bare.yaml", {})
    with pytest.raises(UserError, match=r"rollout\.name is not set"):
        launch(config, {"actor_rollout_ref.rollout": {}})


def test_another_interpreter_must_fit() -> None:
    """This one holds no verl; what an environment must have stands in `versions`."""
    with pytest.raises(UserError, match=r"cannot run verl: .*; a clean environment: .* verl"):
        launch(data_root() / "configs" / "verl" / "simia.yaml", {}, python=Path(sys.executable))


@pytest.mark.parametrize("name", ["simia", "scaleenv", "envscaler", "envfactory", "codegym"])
def test_the_recipes_open_what_they_name(name: str) -> None:
    text = (data_root() / "configs" / "verl" / f"{name}.yaml").read_text()
    settings = parse_config(VerlSettings, read_config_file(f"verl/{name}")["simia"], where=name)
    assert (data_root() / "seeds" / settings.stage.pack).is_dir()
    assert "[ours]: " in text, "what the paper does not give is marked"
