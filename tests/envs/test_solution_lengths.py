"""Solutions that are longer than the usual limits of an episode: they are recorded, and a rollout that cuts them says so."""

from __future__ import annotations

from pathlib import Path

import orjson

from simia.envs.episode_limits import EpisodeLimits
from simia.envs.play.solution_lengths import make_solution_limits, note_long_solutions
from simia.pack import Pack
from simia.task import CallLimits
from tests.command import run_simia
from tests.envs.gym_packs import make_task, write_gym_pack


def write_long_gym(folder: Path) -> Pack:
    """Write a gym whose second task needs 233 calls and a last message."""
    write_gym_pack(folder)
    tasks = [make_task(1, [2, 9], 8, 9), make_task(2, list(range(230)), 500, 229)]
    (folder / "tasks.jsonl").write_bytes(b"".join(orjson.dumps(task) + b"\n" for task in tasks))
    return Pack.load(folder)


def test_the_longest_solution_is_recorded(tmp_path: Path) -> None:
    write_long_gym(tmp_path / "gym")
    done = run_simia("pack", "record", tmp_path / "gym")
    assert "2 references written" in done.stdout, done.stdout + done.stderr
    assert "not recorded" not in done.stdout


def test_a_record_that_a_limit_of_the_task_cuts_names_it(tmp_path: Path) -> None:
    pack = write_long_gym(tmp_path / "gym")
    tasks = [orjson.loads(line) for line in (tmp_path / "gym" / "tasks.jsonl").read_bytes().splitlines()]
    tasks[1]["limits"] = {"turns": 100}
    (tmp_path / "gym" / "tasks.jsonl").write_bytes(b"".join(orjson.dumps(task) + b"\n" for task in tasks))
    done = run_simia("pack", "record", tmp_path / "gym")
    assert "1 references written" in done.stdout, done.stdout + done.stderr
    cut = "it is cut by `limits` of the task or of pack.yaml: the episode reached its limit of turns"
    assert f"not recorded: task {pack.tasks[1].id}" in done.stdout
    assert cut in done.stdout


def test_a_rollout_of_solutions_says_which_setting_plays_them_all(tmp_path: Path) -> None:
    write_long_gym(tmp_path / "gym")
    done = run_simia("rollout", "gym", "--agent", "reference", "--name", "short", cwd=tmp_path)
    note = "1 of 2 solutions has more than 30 messages and is truncated there; to play all: --set episode.turns=234"
    assert note in done.stderr
    cut = "of the episodes that were not accepted, 1 was truncated: max_turns 1 (episode.turns=30)"
    assert cut in done.stdout
    whole = run_simia(
        "rollout", "gym", "--agent", "reference", "--set", "episode.turns=234", "--name", "whole", cwd=tmp_path
    )
    assert "truncated" not in whole.stdout + whole.stderr
    assert "1.000" in whole.stdout
    unknown = run_simia("runs", "show", "whole", "--item", "easy-01", cwd=tmp_path)
    assert "did you mean easy-01.0? (TASK.N is episode N of a task, from 0)" in unknown.stderr


def test_limits_follow_the_longest_solution(tmp_path: Path) -> None:
    pack = write_long_gym(tmp_path / "gym")
    assert make_solution_limits(pack.tasks) == {"turns": 235, "errors": 235}
    assert make_solution_limits(pack.tasks[:1]) == {"turns": 200, "errors": 200}
    usual = EpisodeLimits()
    assert note_long_solutions(pack.tasks[:1], usual) == ""
    assert note_long_solutions(pack.tasks, EpisodeLimits(turns=234)) == ""
    assert note_long_solutions(pack.tasks, usual, CallLimits(turns=100)) == "", "no setting raises a limit of the pack"
    unsolved = pack.tasks[1].model_copy(update={"reference": []})
    assert note_long_solutions([unsolved], usual) == ""
