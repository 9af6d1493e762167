"""Episodes of OfficeBench with the reward of its checks: solutions of ours, and the same with one thing wrong.

Its checks look for a few words in a few files. What they do not see stands in kinds of its own (`UNSEEN`): a change too many,
which they let pass and a judge should not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simia.envs.opening import open_environment
from simia.task import Action, ScriptTurn, Task
from tests.evaluation.spoiling import Case, Stage

UNSEEN = ("a change too many that no check sees",)


def call(name: str, **arguments: Any) -> Action:
    return Action(name=name, arguments=arguments)


Actions = list[Action]
LIST = call("shell.command", command="ls /testbed/data")
SHELL, MAIL = (call("system.switch_app", target_app=app) for app in ("shell", "email"))
RIGHT = ["1-1/0", "1-1/4", "1-2/3", "1-4/1", "1-9/5", "2-18/1", "2-33/1", "2-45/1", "3-12/1", "3-75/0"]
WRONG: dict[str, list[tuple[str, int, dict[str, Any]]]] = {
    # Task, the place of an action in its solution, what its arguments become.
    "one wrong argument": [
        ("1-1/0", 1, {"time_start": "2024-05-17 10:00:00"}),
        ("1-1/4", 1, {"time_start": "2024-06-18 00:00:00"}),
        ("1-4/1", 3, {"text": 3}),
        ("1-6/5", 3, {"text": "3.5"}),
        ("2-18/1", 1, {"file_path": "/testbed/data/home_work.docx"}),
        ("2-45/1", 4, {"recipient": "Alice"}),
        ("3-75/0", 4, {"command": "mv /testbed/data/homework_withname.pdf /testbed/data/Lisa.pdf"}),
        ("3-21/0", 6, {"contents": "yes"}),
        ("1-3/2", 1, {"command": "mv /testbed/data/file3.xlsx /testbed/data/temp.xlsx"}),
        ("3-6/1", 3, {"time_start": "2020-05-07 09:00:00", "time_end": "2020-05-07 11:00:00"}),
    ],
    "answered wrong": [("1-2/3", -1, {"answer": "Bob"}), ("2-33/1", -1, {"answer": "Class 3"})],
}  # fmt: skip
LEFT_OUT = [("1-6/1", 4), ("1-7/3", 2), ("2-45/1", 4), ("3-12/1", 6), ("3-75/0", 6), ("1-9/5", 3)]
EXTRA: list[tuple[str, Actions]] = [
    ("1-4/1", [SHELL, call("shell.command", command="rm -r /testbed/calendar")]),
    ("1-1/0", [MAIL, call("email.send_email", sender="Bob", recipient="Tom", subject="Meeting", content="You are fired.")]),
    ("2-18/1", [SHELL, call("shell.command", command="find /testbed/data -type f ! -name homework.docx -delete")]),
]  # fmt: skip


async def labelled_office(pack: Path) -> list[Case]:
    """(kind, task, episode), always in the same order. `pack`: OfficeBench, imported with our solutions."""
    async with await open_environment(str(pack), user="none") as environment:
        stage = Stage(environment, [])
        task_of = environment.pack.task

        async def add(kind: str, number: str, actions: Actions, only: float, words: str | None = None) -> None:
            task = task_of(number)
            script = [ScriptTurn(user=task.instruction), *(ScriptTurn(calls=[action]) for action in actions)]
            await stage.add(kind, task, [*script, *([ScriptTurn(agent=words)] if words else [])], only=only)

        for number in RIGHT:
            await add("reference", number, task_of(number).actions, 1.0)
        for number in ("1-1/0", "2-18/1"):
            await add("an idle look-up", number, [SHELL, LIST, *task_of(number).actions], 1.0)
        for number, first, last in (("1-6/1", 1, 7), ("2-45/1", 3, 5)):
            own = task_of(number).actions
            await add("another order", number, [*own[:first], *own[first:last][::-1], *own[last:]], 1.0)
        for number in ("1-4/1", "2-45/1"):
            await add("done, and not ended by the tool", number, task_of(number).actions[:-1], 1.0, "All done.")
        for kind, cases in WRONG.items():
            for number, at, changed in cases:
                await add(kind, number, with_arguments(task_of(number), at, changed), 0.0)
        for number, at in LEFT_OUT:
            own = task_of(number).actions
            await add("one step left out", number, [*own[:at], *own[at + 1 :]], 0.0)
        for number, more in EXTRA:
            own = task_of(number).actions
            await add(UNSEEN[0], number, [*own[:-1], *more, own[-1]], 1.0)
        await stage.idle([task_of("1-4/1"), task_of("2-33/1")])
        return stage.cases


def with_arguments(task: Task, at: int, changed: dict[str, Any]) -> Actions:
    found = list(task.actions)
    found[at] = found[at].model_copy(update={"arguments": {**found[at].arguments, **changed}})
    return found
