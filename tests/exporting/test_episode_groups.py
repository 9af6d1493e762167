"""Training data from groups of episodes: the best of each, and pairs; what may never be an example."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from simia import export
from simia.errors import Code, UserError
from simia.exporting.episode_groups import NO_EXAMPLE, NONE_GOOD, TOO_NEAR, BestOfGroups, iterate_candidate_pairs
from simia.jobs.shared_run import EpisodeFigures, EpisodeRow, SharedRun, TrainingRun
from simia.reward import Reward
from simia.tool import ToolSpec
from simia.trajectory import End, EndKind, Message, ToolCall, Trajectory
from tests.command import run_simia

LOOK = ToolSpec(name="look_up", description="Look something up.", parameters={"type": "object", "properties": {}})


def make_episode(
    reward: float | None,
    answer: str,
    *,
    query: str = "kitchen",
    opening: str = "Is the lamp on?",
    found: str = '{"on": true}',
    end: EndKind = "terminated",
    **extra: Any,
) -> Trajectory:
    """A question, a call, its result, and an answer."""
    call = ToolCall(id="c0", name="look_up", arguments={"lamp": query})
    messages = [
        Message(role="user", content=opening),
        Message(role="assistant", calls=[call]),
        Message(role="tool", content=found, call_id="c0", name="look_up"),
        Message(role="assistant", content=answer),
    ]
    return Trajectory(
        pack="p", task_id="t", system="Be brief.", tools=[LOOK], messages=messages, end=End(kind=end),
        reward=Reward(value=reward), extra=extra,
    )  # fmt: skip


def make_row(step: int, name: str, group: str, made: Trajectory, **more: Any) -> EpisodeRow:
    reward = more.pop("reward", made.reward.value if made.reward else None)
    figures = EpisodeFigures(step=step, group=group, task="t", reward=reward, end=made.end.kind, turns=2, start="one", **more)  # fmt: skip
    return EpisodeRow(made, figures, name)


def keep(runs: Path, *rows: EpisodeRow) -> Path:
    """Write a training's run."""
    with contextlib.closing(
        SharedRun.join(runs / "grpo", TrainingRun(trainer="trl", folder="/c"), {"model": "m"})
    ) as run:
        for row in rows:
            run.add([row])
    return runs / "grpo"


def write_groups(runs: Path) -> Path:
    """Five groups: one with a clear difference, one that is flat, one whose best was cut, one of a validation, one that fails."""
    return keep(
        runs,
        make_row(1, "0", "a", make_episode(0.0, "No.")),
        make_row(1, "1", "a", make_episode(1.0, "Yes, it is.")),
        make_row(1, "2", "a", make_episode(0.6, "Perhaps.", query="hall")),
        make_row(1, "3", "a", make_episode(1.0, "Yes, it is on.")),
        make_row(2, "0", "b", make_episode(1.0, "On.")),
        make_row(2, "1", "b", make_episode(1.0, "It is on now.")),
        make_row(3, "0", "c", make_episode(1.0, "Cut.", end="truncated")),
        make_row(3, "1", "c", make_episode(None, "Lost.", end="aborted")),
        make_row(3, "2", "c", make_episode(0.3, "Off.")),
        make_row(3, "0", "d", make_episode(1.0, "Validated."), validates=True),
        make_row(3, "1", "d", make_episode(0.0, "Validated, wrong."), validates=True),
        make_row(3, "3", "e", make_episode(1.0, "Unspoken."), reward=None),
        make_row(3, "4", "e", make_episode(1.0, "A benchmark's.", evaluation=True)),
    )


def test_the_best_of_each_group_and_nothing_that_was_cut(tmp_path: Path) -> None:
    folder = write_groups(tmp_path)
    best = BestOfGroups()
    assert [t.messages[-1].text for t in best.select([folder])] == ["Yes, it is.", "On."]
    assert best.left_out == {NO_EXAMPLE: 6, NONE_GOOD: 1}
    lenient = BestOfGroups(0.2)
    assert [t.messages[-1].text for t in lenient.select([folder])] == ["Yes, it is.", "On.", "Off."]
    report = export("grpo", tmp_path / "out", runs=tmp_path, to="trl")
    assert report.rows == 2


def test_pairs_differ_by_the_gap_and_come_from_one_group(tmp_path: Path) -> None:
    folder, left_out = write_groups(tmp_path), Counter[str]()
    (pairs,) = iterate_candidate_pairs([folder], 0.5, left_out)
    texts = [(better.messages[-1].text, worse.messages[-1].text) for better, worse in pairs]
    assert texts == [("Yes, it is.", "No."), ("Yes, it is on.", "No."), ("Perhaps.", "No.")]
    assert left_out == {NO_EXAMPLE: 6, TOO_NEAR: 2}
    assert [len(each) for each in iterate_candidate_pairs([folder], 0.4, Counter())] == [5]
    assert [len(each) for each in iterate_candidate_pairs([folder], 0.7, Counter())] == [2]
    with pytest.raises(UserError, match="must be more than 0, got"):
        export("grpo", tmp_path / "out", runs=tmp_path, pairs=0)


@pytest.mark.parametrize("to", ["llamafactory", "trl"])
def test_a_pair_is_the_first_turn_in_which_two_episodes_differ(tmp_path: Path, to: Any) -> None:
    keep(
        tmp_path,
        make_row(1, "0", "a", make_episode(0.0, "No.")),
        make_row(1, "1", "a", make_episode(1.0, "Yes.")),
        make_row(2, "0", "b", make_episode(1.0, "Yes.")),
        make_row(2, "1", "b", make_episode(0.0, "Yes.", query="hall")),
    )
    report = export("grpo", tmp_path / "out", runs=tmp_path, to=to, pairs=0.5)
    assert (report.rows, report.pairs, report.refused) == (2, True, {})
    one, two = (json.loads(line) for line in (tmp_path / "out" / "data.jsonl").read_text().splitlines())
    if to == "trl":
        assert [m["role"] for m in one["prompt"]] == ["system", "user", "assistant", "user"]
        assert (one["chosen"], one["rejected"]) == (
            [{"role": "assistant", "content": "Yes."}],
            [{"role": "assistant", "content": "No."}],
        )
        assert [m["role"] for m in two["prompt"]] == ["system", "user"]
        assert '"kitchen"' in two["chosen"][0]["content"]
        assert '"hall"' in two["rejected"][0]["content"]
        return
    assert [turn["from"] for turn in one["conversations"]] == ["human", "function_call", "observation"]
    assert (one["chosen"], one["rejected"]) == ({"from": "gpt", "value": "Yes."}, {"from": "gpt", "value": "No."})
    assert [turn["from"] for turn in two["conversations"]] == ["human"]
    assert two["chosen"]["from"] == two["rejected"]["from"] == "function_call"
    info = json.loads((tmp_path / "out" / "dataset_info.json").read_text())["simia"]
    assert info["ranking"] is True
    assert info["columns"]["chosen"] == "chosen"
    assert "stage: dpo" in (tmp_path / "out" / "train.yaml").read_text()


def test_episodes_that_differ_first_in_the_environment_are_no_pair(tmp_path: Path) -> None:
    keep(
        tmp_path,
        make_row(1, "0", "a", make_episode(0.0, "No.", opening="Hello, is it on?")),
        make_row(1, "1", "a", make_episode(1.0, "Yes.")),
        make_row(2, "0", "b", make_episode(0.0, "No.", found="another answer")),
        make_row(2, "1", "b", make_episode(1.0, "Yes.")),
        make_row(2, "2", "b", make_episode(0.5, "Perhaps.")),
    )
    report = export("grpo", tmp_path / "out", runs=tmp_path, to="trl", pairs=0.5)
    assert report.refused == {Code.UNEXPRESSIBLE: 1}
    (row,) = [json.loads(line) for line in (tmp_path / "out" / "data.jsonl").read_text().splitlines()]
    assert row["rejected"][0]["content"] == "Perhaps.", "of the second group the pair with the next largest difference"


def test_pairs_on_the_command_line(tmp_path: Path) -> None:
    write_groups(tmp_path)
    done = run_simia("export", "grpo", "--pairs", "0.5", "--to", "trl", "--out", tmp_path / "out", "--runs", tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"1 pair in {tmp_path / 'out'}" in done.stdout
    assert f"6 {NO_EXAMPLE}" in done.stdout
    done = run_simia("export", "grpo", "--pairs", "0.5", "--to", "openai", "--runs", tmp_path)
    assert "preference pairs are written for llamafactory and trl, not for openai" in done.stderr
    done = run_simia("export", "grpo", "--pairs", "2", "--to", "trl", "--runs", tmp_path)
    assert "no pair was written" in done.stderr
    done = run_simia("export", "grpo", "--least-reward", "2", "--runs", tmp_path)
    assert "no row was written" in done.stderr
    assert f"3 {NONE_GOOD}" in done.stdout
