"""Write a gym as a pack: its tools, the text for the agent, and a task for each input with the oracle's calls (CodeGym appendix B)."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simia.authoring.pack_draft import draft_pack, write_pack_files
from simia.errors import UserError
from simia.pack_provenance import PackProvenance
from simia.reward_spec import ChecklistSpec, RewardSpec
from simia.synthesis.design import GymEnvironment, GymInstance
from simia.synthesis.gyms.answer_comparison import write_answer_check
from simia.task import Action, CallLimits, Task
from simia.tool_test import ToolTest

AUGMENTED = "augmented"
MOST_CALLS, MOST_AUGMENTED_CALLS = 256, 512
"""Calls of an episode (CodeGym §3.4 and appendix C.3)."""
LONGEST_DESCRIPTION = 300
STATE, ANSWER = "State", "answer"
POLICY = """\
You solve a task by calling tools. The data of the task lies in an environment that you cannot see. Each tool shows a part of it,
computes something, or changes it.

- Start with `observe`, which returns the known parameters, such as sizes.
- Make one call at a time. Read its result before you make the next one, and never guess a result.
- If you are not sure what a tool does, try it. A refused call says what is wrong and changes nothing.
- You may make many calls, so you need not plan all of them in advance.
- Do not write code, and do not solve the task in your head where a tool can do a step.
- Submit the answer with `done`. It ends the task, and words are not read: without `done` there is no answer.
"""


def write_gym(
    folder: Path,
    gym: GymEnvironment,
    instances: Sequence[GymInstance],
    *,
    split: str = "train",
    provenance: PackProvenance | None = None,
) -> None:
    """Write the pack of a gym. Equal arguments make equal bytes.

    Args:
        folder: Where it is written; it does not exist, or is empty.
        gym: The environment.
        instances: Its inputs, one task each; without any, the pack has no tasks.
        split: The split of the tasks.
        provenance: How it was made.

    Raises:
        UserError: the folder is not empty, or an instance's answer is null, which would reward an agent that gives no answer.
    """
    problem = gym.problem
    tasks = [make_task(gym, instance, split) for instance in instances]
    start = problem.examples[0].inputs if problem.examples else instances[0].inputs if instances else None
    if start is None:
        raise UserError(
            f"gym {problem.id}: its problem has no example, and there is no instance to start from: add one"
        )
    with draft_pack(folder) as draft:
        write_pack_files(
            draft,
            {
                "pack.yaml": make_pack_yaml(gym, provenance, has_tasks=bool(tasks)),
                "policy.md": POLICY,
                "tools.py": gym.code,
                "tools.json": [make_tool_row(gym, n) for n in range(len(gym.tools))],
                "state.json": make_state(start),
                "tasks.jsonl": [dump_task(task) for task in tasks] or None,
                "tests.jsonl": [dump_test(test) for test in gym.tests] or None,
            },
        )


def make_pack_yaml(gym: GymEnvironment, provenance: PackProvenance | None, *, has_tasks: bool) -> dict[str, Any]:
    problem = gym.problem
    head: dict[str, Any] = {
        "format": 2,
        "name": problem.id,
        "description": cut_after_sentence(" ".join(gym.task.split())),
        "licence": problem.licence,
        "policy": "policy.md",
        "tools": "tools.json",
        "state": "state.json",
    }
    if has_tasks:
        head["tasks"] = "tasks.jsonl"
    if gym.tests:
        head["tests"] = "tests.jsonl"
    head |= {
        "user": "none",
        "ends": ["done"],
        # Only the answer is judged: two episodes with the same answer have reached the same goal.
        "match": {name: "exempt" for name in list_state_fields(gym.code) if name != ANSWER},
        "executable": {"code": "tools.py", "object": "Gym", "isolation": "process"},
    }
    if provenance is not None:
        head["provenance"] = provenance.model_dump(mode="json", exclude_defaults=True)
    return head


def cut_after_sentence(text: str, most: int = LONGEST_DESCRIPTION) -> str:
    """Return the first sentences of a text, as many as fit; if not even one fits, its first words."""
    if len(text) <= most:
        return text
    end = max(text.rfind(mark, 0, most) for mark in (". ", "! ", "? "))
    return text[: end + 1] if end > 0 else f"{text[:most].rpartition(' ')[0]} …"


def list_state_fields(code: str) -> list[str]:
    """The fields of the class `State`, in their order."""
    classes = [node for node in ast.parse(code).body if isinstance(node, ast.ClassDef) and node.name == STATE]
    body = classes[-1].body if classes else []
    return [node.target.id for node in body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]


def make_tool_row(gym: GymEnvironment, number: int) -> dict[str, Any]:
    """Make a tool's row of `tools.json`. A reading tool declares that it writes no table."""
    spec = gym.tools[number]
    row = {**spec.flat(), **({} if spec.returns is None else {"returns": spec.returns})}
    return row if spec.name in gym.tool_writes else {**row, "writes": []}


def make_state(inputs: dict[str, Any]) -> dict[str, Any]:
    """The state at the start of an episode."""
    return {**inputs, ANSWER: None}


def make_task(gym: GymEnvironment, instance: GymInstance, split: str = "train") -> Task:
    """The task of an instance: rewarded if the submitted answer is the reference answer. Raises `UserError` for an answer that is null."""
    if instance.answer is None:
        raise UserError(f"gym {gym.problem.id}: the answer of {instance.id} is null, which every agent gives: drop it")
    check = ChecklistSpec(code={"answer": write_answer_check(instance.answer)})
    return Task(
        id=instance.id,
        split=split,
        instruction=gym.task,
        initial={"state": make_state(instance.inputs)},
        reference=[Action(name=call["name"], arguments=call["arguments"]) for call in instance.calls],
        reward=RewardSpec(parts=[check]),
        limits=CallLimits(calls=MOST_AUGMENTED_CALLS if instance.level == AUGMENTED else MOST_CALLS),
        measured=instance.measured,
        tags=[instance.level],
    )


def dump_task(task: Task) -> dict[str, Any]:
    row = task.model_dump(mode="json", exclude_defaults=True)
    parts = [{"kind": part.kind, **part.model_dump(mode="json", exclude_defaults=True)} for part in task.reward.parts]
    return {**row, "reward": {"parts": parts}}


def dump_test(test: ToolTest) -> dict[str, Any]:
    return test.model_dump(mode="json", exclude_defaults=True)
