"""The customer service pack: its tasks can be solved, and told from each other.

The scorers have tests of their own; here a small judge stands for them, which is rather too lenient with what a wrong
solution leaves behind, so that a task which fails to tell two solutions apart fails here too.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter

import pytest

from simia.reward_spec import AnswerSpec, StateSpec, TraceSpec
from simia.state import diff_states
from simia.task import Action, Task
from simia.tool import compile_schema
from tests.packs.shop import BASE, JSON, MARKS, PACK, SPECS, SYSTEM, TASKS, call, dangling, dump, opened


@functools.cache
def replayed(task_id: str, extra_read: bool = False) -> tuple[JSON, str, str]:
    """Final state, all observations and the agent's words of a task's script."""
    task, shop, seen, index = TASKS[task_id], opened(TASKS[task_id].initial), [], 0
    if extra_read:
        call(shop, Action(name="get_product", arguments={"product_id": "PRD-301"}), 0)
        index = 1
    for action in task.actions:
        result, refusal = call(shop, action, index)
        seen.append(json.dumps(refusal or result, ensure_ascii=False))
        index += 1
    return dump(shop), "\n".join(seen), "\n".join(turn.agent for turn in task.script if turn.agent)


def test_the_same_calls_give_the_same_bytes() -> None:
    for task in PACK.tasks:
        shop = opened(task.initial)
        for index, action in enumerate(task.actions):
            call(shop, action, index)
        assert json.dumps(dump(shop)) == json.dumps(replayed(task.id)[0]), task.id


def test_the_tasks_are_spread() -> None:
    lengths = Counter(len(task.actions) for task in PACK.tasks)
    assert len(PACK.tasks) >= 66
    assert set(lengths) == set(range(1, 11))
    assert sum("refusal" in task.tags for task in PACK.tasks) >= 12
    assert sum(task.seed for task in PACK.tasks) >= 24
    assert 0.25 <= sum(task.split == "test" for task in PACK.tasks) / len(PACK.tasks) <= 0.35
    assert not [task.id for task in PACK.tasks if task.seed and task.split == "test"], "a seed would give its test away"
    assert {action.name for task in PACK.tasks for action in task.actions} == set(SPECS)


def test_the_first_tasks_are_the_seeds_in_their_words() -> None:
    for seed in PACK.seeds:
        task = TASKS[seed.task_id or ""]
        said = [m.content for m in seed.messages if m.role == "user"]
        assert [turn.user for turn in task.script if turn.user] == said, task.id
        calls = [(c.name, c.arguments) for m in seed.messages for c in m.calls or []]
        assert [(action.name, action.arguments) for action in task.actions] == calls, task.id


@pytest.mark.parametrize("task", PACK.tasks, ids=lambda task: task.id)
def test_a_script_runs_and_its_words_are_borne_out(task: Task) -> None:
    final, seen, words = replayed(task.id)
    assert task.script[0].user == task.opening
    assert task.script[-1].agent
    for action in task.actions:
        assert SPECS[action.name].argument_errors(action.arguments) == []
    assert dangling(final) == []
    told = seen + task.instruction + " ".join(turn.user or "" for turn in task.script)
    for word in re.findall(r"\b[A-Z]{3}-\d{3,5}\b", words):
        assert word in told, f"{word} comes out of nothing"
    wrote = any(MARKS[action.name][1] for action in task.actions)
    assert wrote or final == dump(opened(task.initial))


def facts(task: Task) -> list[AnswerSpec]:
    return [part for part in task.reward.parts if isinstance(part, AnswerSpec)]


def says(part: AnswerSpec, words: str) -> bool:
    if part.match == "regex":
        return all(re.search(pattern, words) for pattern in part.expect)
    return all(re.search(rf"(?<!\w){re.escape(fact)}(?!\w)", words) for fact in part.expect)


def left(final: JSON) -> list[str]:
    """What a solution changed, without what does not count; the ids of new rows are all alike."""
    changes = []
    for change in diff_states(BASE, final):
        table, key = change["path"][:2]
        for pattern, policy in PACK.match.items():
            where, _, name = pattern.split(".")
            if where == table and policy != "exact":
                if isinstance(change.get("new"), dict):
                    change = {**change, "new": {k: v for k, v in change["new"].items() if k != name}}
                if change["path"][2:] == [name]:
                    change = {**change, "new": "", "old": ""}
        changes.append((json.dumps(change, sort_keys=True), key if key not in BASE[table] else None))
    text = [each for each, _ in changes]
    for new in {key for _, key in changes if key}:
        text = [each.replace(f'"{new}"', '"new"') for each in text]
    return sorted(text)


def traced(task: Task, actions: list[Action]) -> bool:
    """Whether each reference call stands among the calls, but for the masked arguments."""
    for part in task.reward.parts:
        if isinstance(part, TraceSpec):
            assert not part.mask.keys() - SPECS.keys()
            for wanted in task.actions:
                masked = part.mask.get(wanted.name, [])
                alike = [
                    {k: v for k, v in a.arguments.items() if k not in masked} for a in actions if a.name == wanted.name
                ]
                if {k: v for k, v in wanted.arguments.items() if k not in masked} not in alike:
                    return False
    return True


def judged(task: Task, final: JSON, words: str, actions: list[Action]) -> bool:
    assert any(isinstance(part, StateSpec) for part in task.reward.parts)
    same = left(final) == left(replayed(task.id)[0])
    return same and traced(task, actions) and all(says(part, words) for part in facts(task))


@pytest.mark.parametrize("task", PACK.tasks, ids=lambda task: task.id)
def test_a_task_tells_its_solution_from_all_others(task: Task) -> None:
    final, _, words = replayed(task.id)
    assert judged(task, final, words, task.actions)
    more = replayed(task.id, extra_read=True)[0]
    assert judged(task, more, words, task.actions), "one look-up more, other ids: the same solution"
    idle = dump(opened(task.initial))
    users = "\n".join([task.instruction, *(turn.user or "" for turn in task.script)])
    for lazy in ("", users, "I have done that for you.", SYSTEM, users + SYSTEM):
        assert not judged(task, idle, lazy, [])
        assert not any(says(part, lazy) for part in facts(task)), "the fact must come from a look-up"
    passed = [
        other.id
        for other in PACK.tasks
        if other.id != task.id and judged(task, replayed(other.id)[0], replayed(other.id)[2], other.actions)
    ]
    assert passed == []


def test_the_expressions_run_in_linear_time_and_know_the_usual_dates() -> None:
    patterns = [
        pattern for task in PACK.tasks for part in facts(task) if part.match == "regex" for pattern in part.expect
    ]
    for pattern in patterns:
        compile_schema({"type": "object", "properties": {"text": {"type": "string", "pattern": pattern}}})
    (day,) = facts(TASKS["cs-012"])
    for words in ("It ended on 2 May 2025.", "on May 2nd", "2025-05-02", "02.05.2025", "the 2nd of May"):
        assert says(day, words), words
    for words in ("on 12 May 2025", "on 22 May", "2 June", "2025-05-12", "May 21"):
        assert not says(day, words), words
