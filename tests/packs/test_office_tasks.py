"""The office pack: its tasks can be solved in its world, are spread over apps, and are told from what is no solution."""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from simia.authoring.gate_report import TaskVerdict
from simia.authoring.verification_gate import verify_tasks
from simia.envs.opening import open_environment
from simia.reward_spec import AnswerSpec, StateSpec
from simia.task import Action, Task
from simia.tool import compile_schema
from tests.packs.office import PACK, SPECS, TASKS, app_of, call, marks, office, opened, said

TAGS = {1: "one_app", 2: "two_apps"}
SAMPLE = ("of-119", "of-135", "of-202", "of-214", "of-236", "of-301", "of-307", "of-339")  # all apps, all splits
TOLD = re.compile(r"\b(?:EVT-\d{3}|MSG-\d{4}|[\w.-]+/[\w./-]+\.(?:docx|xlsx|pdf|txt|md)|[\w.-]+@[\w.-]+\.com)\b")


@pytest.fixture(scope="module")
def cls(environments: Callable[[str], Path]) -> Iterator[Any]:
    with office() as found:
        yield found


def test_the_tasks_are_spread(cls: Any) -> None:
    lengths = Counter(len(task.actions) for task in PACK.tasks)
    assert set(lengths) >= set(range(1, 9))
    assert max(lengths) == 10
    used: set[str] = set()
    tags: Counter[str] = Counter()
    for task in PACK.tasks:
        apps = {app_of(cls, action.name) for action in task.actions}
        tag = TAGS.get(len(apps), "three_apps")
        assert [each for each in task.tags if "app" in each] == [tag], task.id
        used |= {action.name for action in task.actions}
        tags.update(task.tags)
    assert used == set(SPECS), "every tool has its task"
    assert len(PACK.tasks) >= 60
    assert min(tags[name] for name in ("one_app", "two_apps", "three_apps")) >= 20
    assert tags["refusal"] >= 10
    assert tags["untrusted_text"] >= 5
    tests = [task for task in PACK.tasks if task.split == "test"]
    assert 0.25 <= len(tests) / len(PACK.tasks) <= 0.4
    assert {tag for task in tests for tag in task.tags} >= {"one_app", "two_apps", "three_apps", "refusal"}
    seeds = [task for task in PACK.tasks if task.seed]
    assert len(seeds) >= 30
    assert {task.split for task in seeds} == {"train"}, "a seed would give its test away"


def named(tasks: Sequence[Task]) -> set[str]:
    """Files, events and mails that the solutions name."""
    text = json.dumps([action.arguments for task in tasks for action in task.actions])
    return {each for each in TOLD.findall(text) if "@" not in each}


def test_the_splits_share_nothing_but_the_firms_policy_and_the_drafts() -> None:
    train, test = (named([task for task in PACK.tasks if task.split == split]) for split in ("train", "test"))
    assert train & test == {"company/travel-policy.pdf"}


def test_the_seeds_are_the_marked_tasks_in_their_words() -> None:
    assert [seed.task_id for seed in PACK.seeds] == [task.id for task in PACK.tasks if task.seed]
    for seed in PACK.seeds:
        task = TASKS[seed.task_id or ""]
        spoken = [m.content for m in seed.messages if m.role == "user"]
        assert [turn.user for turn in task.script if turn.user] == spoken, task.id
        calls = [(c.name, c.arguments) for m in seed.messages for c in m.calls or []]
        assert [(action.name, action.arguments) for action in task.actions] == calls, task.id


@pytest.fixture(scope="module")
def replayed(cls: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Task → final state, all observations, refusals of its script, played in this process."""

    @functools.cache
    def play(task_id: str) -> tuple[Any, str, list[str]]:
        task, seen, refusals = TASKS[task_id], [], []
        world = opened(cls, Path(tmp_path_factory.mktemp(task_id)), task.initial)
        for index, action in enumerate(task.actions):
            result, refusal = call(world, action, index)
            seen.append(json.dumps(refusal or result, ensure_ascii=False))
            refusals += [refusal] if refusal else []
        return said(world), "\n".join(seen), refusals

    return play


@pytest.fixture(scope="module")
def start(cls: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return said(opened(cls, tmp_path_factory.mktemp("start")))


@pytest.mark.parametrize("task", PACK.tasks, ids=lambda task: task.id)
def test_a_script_runs_and_its_words_are_borne_out(task: Task, cls: Any, replayed: Any, start: Any) -> None:
    final, seen, refusals = replayed(task.id)
    assert bool(refusals) == ("recovery" in task.tags), refusals
    assert task.script[0].user == task.opening
    assert task.script[-1].agent
    for action in task.actions:
        assert SPECS[action.name].argument_errors(action.arguments) == []
    told = " ".join([seen, PACK.policy or "", task.instruction, *(turn.user or "" for turn in task.script)])
    made = {each for action in task.actions for each in TOLD.findall(json.dumps(action.arguments)) if "/" in each}
    for turn in task.script:
        for word in TOLD.findall(turn.agent or ""):
            assert word in told or word in made or folder_said(word, told), f"{word} comes out of nothing"
    wrote = any(marks(cls)[action.name][1] for action in task.actions)
    assert wrote == (final != start)
    assert any(isinstance(part, StateSpec) for part in task.reward.parts)


def folder_said(word: str, told: str) -> bool:
    """A path of which folder and name were said apart."""
    folder, _, name = word.rpartition("/")
    return folder in told and name in told


def asked_first(task: Task, cls: Any) -> bool:
    """Whether what others see or a file that changes was put to Maeve, and she had the last word before it."""
    free = {
        "create_document",
        "create_workbook",
        "copy_file",
        "save_attachment",
        "add_contact",
        "update_contact",
        "move_mail",
    }
    for before, turn in zip(task.script, task.script[1:], strict=False):
        for action in turn.calls or []:
            own_event = action.name == "create_event" and not action.arguments.get("attendees")
            own_notes = str(action.arguments.get("path", "")).startswith("notes/")
            if marks(cls)[action.name][1] and action.name not in free and not own_event and not own_notes:
                spoken = [each for each in task.script[: task.script.index(turn)] if each.user or each.agent]
                if len(spoken) < 3 or spoken[-1].user is None or before.agent is not None:
                    return False
    return True


def test_the_scripts_keep_the_policy(cls: Any) -> None:
    assert [task.id for task in PACK.tasks if not asked_first(task, cls)] == []
    for task in PACK.tasks:
        text = json.dumps([action.arguments for action in task.actions])
        assert "hr/" not in text, f"{task.id} touches what is confidential"


def test_a_solution_is_told_from_the_others(replayed: Any, start: Any) -> None:
    """No two tasks leave the same state, unless both leave none: then their answers differ."""
    seen: dict[str, str] = {}
    for task in PACK.tasks:
        final = replayed(task.id)[0]
        if final == start:
            assert any(isinstance(part, AnswerSpec) for part in task.reward.parts), task.id
        else:
            mark = json.dumps(final, sort_keys=True)
            assert mark not in seen, f"{task.id} and {seen.get(mark)}"
            seen[mark] = task.id


def test_the_expressions_run_in_linear_time() -> None:
    answers = [part for task in PACK.tasks for part in task.reward.parts if isinstance(part, AnswerSpec)]
    patterns = {pattern for part in answers if part.match == "regex" for pattern in part.expect}
    assert len(patterns) > 10
    for pattern in patterns:
        compile_schema({"type": "string", "pattern": pattern})


# -- in the sandbox ----------------------------------------------------------------------------------------------------


async def judged(tasks: Sequence[Task]) -> list[TaskVerdict]:
    async with await open_environment(PACK, user="none") as environment:
        return (await verify_tasks(environment, tasks, concurrency=2)).verdicts


@pytest.mark.usefixtures("environments")
async def test_a_sample_passes_the_gate() -> None:
    verdicts = await judged([TASKS[name] for name in SAMPLE])
    assert {v.task: [str(f) for f in v.findings if f.refuses] for v in verdicts if not v.passed} == {}
    assert [v.floor for v in verdicts] == [0.0] * len(SAMPLE)


@pytest.mark.all
@pytest.mark.usefixtures("environments")
async def test_every_task_passes_the_gate() -> None:
    verdicts = await judged(PACK.tasks)
    assert {v.task: [str(f) for f in v.findings if f.refuses] for v in verdicts if not v.passed} == {}
    assert {v.floor for v in verdicts} == {0.0}


def wrong(task: Task, name: str, **changes: Any) -> Task:
    """The task with a call of its solution changed."""
    script = [
        turn.model_copy(
            update={
                "calls": [
                    Action(name=a.name, arguments={**a.arguments, **changes}) if a.name == name else a
                    for a in turn.calls
                ]
            }
        )
        if turn.calls
        else turn
        for turn in task.script
    ]
    return task.model_copy(update={"script": script})


NEAR = {
    "of-202": [("reply_mail", {"mail_id": "MSG-3115", "body": "Hello."}), ("cancel_event", {"event_id": "EVT-413"})],
    "of-203": [("append_rows", {"rows": [["2025-09-10", "Zoë Adeyemi", "Parking", 12.4], ["2025-09-12", "Zoë Adeyemi", "Ferry", 23.8]]})],
    "of-301": [("reply_mail", {"attachments": ["projects/quay-house/brief.docx"]}), ("move_event", {"start": "2025-09-26T09:00", "end": "2025-09-26T10:00"})],
    "of-302": [("append_rows", {"rows": [["2025-09-15", "Lumenor Lighting", "LUM-0925", 1420, "no"]]})],
    "of-214": [("send_mail", {"to": ["j.okafor@ledgerwell.example.com"]}), ("send_mail", {"body": "Hi Hana, J. Okafor asks for payroll: 5400, 4950. Maeve"})],
    "of-217": [("create_document", {"text": "T-5510 1860.50, T-5532 1425.25, T-5547 640.00, sum 3295.75"})],
}  # fmt: skip
ALSO_RIGHT = {
    "of-202": [("reply_mail", {"body": "Dear Ingrid, that is fine: Tomás signs between 08:00 and 10:00. No call then. Maeve"})],
    "of-217": [("create_document", {"text": "## Open\n| T-5510 | 1,860.5 |\nT-5532: 1425.25 €\nT-5547: €640\nAll in all €3,925.75."})],
    "of-201": [("create_event", {"title": "Costs of Quay House"})],
}  # fmt: skip


async def rewards(cases: dict[str, list[tuple[str, dict[str, Any]]]]) -> list[tuple[str, str, float | None]]:
    from simia.envs.environment import Environment
    from simia.envs.play.baseline_agents import ReferenceAgent
    from simia.envs.play.player import play
    from simia.envs.users import ScriptedUser

    found = []
    async with await open_environment(PACK, user="none") as environment:
        for task_id, changes in cases.items():
            for name, arguments in changes:
                task = TASKS[task_id]
                other = wrong(task, name, **arguments)
                arena = Environment(
                    PACK, environment.backend, backend_name="executable", user=lambda _, task=other: ScriptedUser(task)
                )
                played = await play(await arena.reset(task), ReferenceAgent(other))
                found.append((task_id, name, played.reward.value if played.reward else None))
    return found


@pytest.mark.all
@pytest.mark.usefixtures("environments")
async def test_what_is_nearly_right_is_wrong_and_other_words_are_right() -> None:
    assert [each for each in await rewards(NEAR) if each[2] != 0.0] == []
    assert [each for each in await rewards(ALSO_RIGHT) if each[2] != 1.0] == []
