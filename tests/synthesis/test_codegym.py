"""The whole recipe with replies written by hand: from a file of problems to a pack that passes the gate and can be played."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from simia.authoring.validate import validate_pack
from simia.authoring.verification_gate import verify_tasks
from simia.config import parse_config
from simia.envs.config import EnvironmentConfig
from simia.envs.episode_limits import EpisodeLimits
from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import NothingAgent, ReferenceAgent
from simia.envs.play.player import play
from simia.errors import UserError
from simia.jobs import Run
from simia.llm.types import Reply, Request
from simia.pack import Pack
from simia.report.synthesis_report import print_comparisons, print_refused_rows, print_synthesis
from simia.synthesis import session
from simia.synthesis.dry_run import describe_dry_run, preview_synthesis
from simia.synthesis.recheck import recheck_synthesis
from simia.synthesis.recipes import find_recipe
from simia.synthesis.recipes.codegym import CodeGymConfig, CodeGymRecipe, choose_split
from tests.synthesis.closest_gym import CLOSEST, INPUTS, read_reply

VOWELS = {
    "question_id": "Vowels_1",
    "question": "Count the vowels of a text.",
    "solution": "def count_vowels(text):\n    return sum(c in 'aeiou' for c in text.lower())\n",
    "test": "from solution import count_vowels\n\ndef test_it():\n    assert count_vowels('Aha') == 2\n",
}
ROWS = [
    {
        "id": "closest",
        "statement": "Find the closest.",
        "solution": CLOSEST,
        "examples": INPUTS,
        "licence": "Apache-2.0",
    },
    {"id": "no-solution", "statement": "A problem without a solution."},
    VOWELS,
]
REPLIES = {
    "problems/vowels-1.draft": "vowels_unified",
    "gyms/closest.draft": "wrong_index_error",
    "gyms/closest.repair1": "closest_number",
    "gyms/vowels-1": "hostile_network",
    "instances/closest": "closest_inputs",
    "solutions/closest.solution0": "closest_wrong_solver",
    "solutions/closest.solution1": "closest_solver",
    "solutions/closest.observe_only0": "closest_observer",
    "hard/closest.scaled": "closest_scaled_inputs",
}


class FixtureBackend:
    """Serves the fixture whose name begins the draw; counts what it was asked."""

    alias, model, structured = "written-by-hand", "written-by-hand", False

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def complete(self, request: Request, *, draw: str) -> Reply:
        self.asked.append(draw)
        await asyncio.sleep(0.001 * (len(draw) % 5))
        return Reply(text=read_reply(next(REPLIES[name] for name in REPLIES if draw.startswith(name))))


def synthesize(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, **settings: Any) -> session.Synthesized:
    backend = FixtureBackend()
    monkeypatch.setattr(session, "open_backend", lambda *_, **__: backend)
    (folder / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    made = {
        "instances": {"questions": 1},
        "solutions": {"k": 2},
        "difficulty": {"agent": "random", "attempts": 1},
        "hard": {"inputs": 1, "attempts": 1},
        **settings,
    }
    config = CodeGymConfig.model_validate({"source": str(folder / "problems.jsonl"), "recipe": "codegym", **made})
    out = folder / name / ("gyms" if name == "one" else f"gyms-{name}")
    return asyncio.run(session.start_synthesis(config, out, runs=folder / "runs", name=name, say=lambda _: None))


def test_problems_that_are_not_compared_or_cannot_be_used_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = {**VOWELS, "solution": "print(sum(c in 'aeiou' for c in input().lower()))\n", "test": []}
    monkeypatch.setattr("tests.synthesis.test_codegym.ROWS", [program, ROWS[1]])
    done = synthesize(tmp_path, monkeypatch, "one")
    assert done.packs == []
    out = io.StringIO()
    with contextlib.closing(Run.read_only(tmp_path / "runs", "one")) as run:
        print_comparisons(run, Console(file=out, width=400))
        print_refused_rows(run, Console(file=out, width=400))
        print_synthesis(run, Console(file=out, width=400))
    lines = [line.strip() for line in out.getvalue().splitlines()]
    named = (
        "problems/vowels-1: not compared with its original: the original reads standard input, and the row has no tests"
    )
    assert sum(line.startswith(named) for line in lines) == 2
    assert sum("problems.jsonl:2: it has no solution" in line for line in lines) == 2
    dry = preview_synthesis(CodeGymRecipe(CodeGymConfig(source=str(tmp_path / "problems.jsonl"))))
    assert "cannot be used: problems.jsonl:2: it has no solution" in "\n".join(
        describe_dry_run(dry, CodeGymConfig(source="x"))
    )


def test_a_dry_run_counts_the_agents_messages(tmp_path: Path) -> None:
    (tmp_path / "problems.jsonl").write_text(json.dumps(VOWELS) + "\n")
    settings: dict[str, Any] = {"source": str(tmp_path / "problems.jsonl"), "hard": {"inputs": 10, "attempts": 8}}
    alone = CodeGymRecipe(CodeGymConfig.model_validate(settings)).expected()
    agent = {"difficulty": {"agent": "llm", "attempts": 4}}
    found = CodeGymRecipe(CodeGymConfig.model_validate(settings | agent)).expected()
    assert [each.questions for name, each in found.items() if each.role == "agent"] == [2 * 15 * 4 * 44, 10 * 8 * 180]  # type: ignore[union-attr]
    assert sum(each.questions for each in alone.values() if each.role == "agent") == 0  # type: ignore[union-attr]


def test_a_changed_file_of_a_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "tasks"
    folder.mkdir()
    file = folder / "vowels-1.py"
    file.write_text(f'"""Count the vowels."""\n{VOWELS["solution"]}')
    monkeypatch.setattr(session, "open_backend", lambda *_, **__: FixtureBackend())
    config = CodeGymConfig(source=str(folder))
    runs = tmp_path / "runs"
    done = asyncio.run(session.start_synthesis(config, tmp_path / "out", runs=runs, name="r", say=lambda _: None))
    assert done.outputs.of("problems").keys() == {"vowels-1"}
    whole = file.read_text()
    file.write_text(whole.replace("Count", "Number"))
    words = r"tasks/vowels-1\.py has changed since run r was made.*: restore it, or start a new run"
    with pytest.raises(UserError, match=words):
        asyncio.run(session.resume_synthesis("r", runs=runs, say=lambda _: None))
    with pytest.raises(UserError, match=words):
        recheck_synthesis(runs, "r", lambda _: None)
    file.write_text(whole)
    (folder / "more.md").write_text("More.")
    with pytest.raises(UserError, match=r"tasks/more\.md is new since run r was made"):
        asyncio.run(session.resume_synthesis("r", runs=runs, say=lambda _: None))
    (folder / "more.md").unlink()
    assert recheck_synthesis(runs, "r", lambda _: None).complete


def test_from_problems_to_a_pack_that_can_be_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = synthesize(tmp_path, monkeypatch, "one")
    refused = {key: found.reason for stage in done.outputs.refused.values() for key, found in stage.items()}
    assert refused == {"no-solution": "bad_problem", "vowels-1": "gym_unsafe"}
    assert done.stop.kind == "complete"
    (pack,) = done.packs
    assert done.outputs.notes["problems"]["vowels-1"]["compared"] == 4
    findings, _ = asyncio.run(validate_pack(Pack.load(pack)))
    assert [str(finding) for finding in findings if finding.refuses] == []

    async def judge() -> tuple[Any, dict[str, set[float | None]]]:
        async with await open_environment(pack, backend="executable") as environment:
            environment.limits = EpisodeLimits(turns=600)
            rewards: dict[str, set[float | None]] = {"ReferenceAgent": set(), "NothingAgent": set()}
            for task in environment.pack.tasks:
                for agent in (ReferenceAgent(task), NothingAgent(task)):
                    played = await play(await environment.reset(task), agent)
                    rewards[type(agent).__name__].add(played.reward and played.reward.value)
            return await verify_tasks(environment, environment.pack.tasks), rewards

    report, rewards = asyncio.run(judge())
    assert [str(each) for verdict in report.verdicts for each in verdict.findings if each.refuses] == []
    assert rewards == {"ReferenceAgent": {1.0}, "NothingAgent": {0.0}}
    tasks = Pack.load(pack).tasks
    assert len(tasks) >= 12
    assert {tag for task in tasks for tag in task.tags} == {"easy", "medium", "hard", "augmented"}
    assert all(10 <= len(task.reference) <= task.limits.calls for task in tasks if task.limits.calls)
    assert all(task.measured["random"].n == 1 for task in tasks)
    provenance = Pack.load(pack).file
    assert provenance is not None
    assert provenance.provenance is not None
    assert provenance.provenance.sources[0].licence == "Apache-2.0"
    check_index(tmp_path / "one", monkeypatch)


def check_index(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`packs.yaml` is a config of an environment with all gyms."""
    index = yaml.safe_load((folder / "gyms" / "packs.yaml").read_text())
    assert index.pop("extends") == "rollout/default"
    config = parse_config(EnvironmentConfig, index, where="packs.yaml")
    assert [share.pack for share in config.packs or []] == ["./closest"]
    monkeypatch.chdir(folder / "gyms")
    assert Pack.load(config.packs[0].pack if config.packs else "").name == "closest"
    assert config.episode.turns == 600


def test_the_same_replies_write_the_same_bytes_at_any_concurrency_in_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"hard": {"inputs": 0}, "difficulty": {}, "instances": {"questions": 1, "least": 5}}
    monkeypatch.setitem(REPLIES, "instances/closest", "closest_few_inputs")
    for name, places in (("one", 1), ("two", 4)):
        synthesize(tmp_path, monkeypatch, name, executions=places, **settings)
    packs = [
        {
            str(file.relative_to(tmp_path / folder)): file.read_bytes()
            for file in (tmp_path / folder).rglob("*")
            if file.is_file()
        }
        for folder in ("one/gyms", "two/gyms-two")
    ]
    assert packs[0] == packs[1]
    assert {"closest/tools.py", "packs.yaml"} <= packs[0].keys()


def test_a_source_is_needed() -> None:
    with pytest.raises(UserError, match="codegym: name a file of problems"):
        CodeGymRecipe(CodeGymConfig(recipe="codegym"))
    assert find_recipe("codegym").config is CodeGymConfig


def test_a_gym_keeps_its_split_whatever_other_gyms_there_are() -> None:
    splits = [choose_split(f"gym-{n}", 0, 0.25) for n in range(400)]
    assert 70 <= splits.count("test") <= 130
    assert {choose_split(f"gym-{n}", 0, 0.0) for n in range(50)} == {"train"}
