"""The app system: open an app, and finish the task with an answer."""

from __future__ import annotations

import inspect
from typing import Any

from .testbed import ACTIONS, MALFORMED, ActionError, Testbed, register_action

ANSWER = "data/answer.txt"


@register_action("system.switch_app", writes=True, opened=False)
def switch_app(testbed: Testbed, target_app: str) -> str:
    """Open an app; its actions can be used until another one is opened."""
    if target_app not in list_apps():
        raise ActionError(f"{MALFORMED} (there are: {', '.join(list_apps())})")
    testbed.memory["app"] = target_app
    lines = [f"Successfully switched to app: {target_app}", f"Actions of {target_app}:"]
    for name, function in ACTIONS[target_app].items():
        arguments = ", ".join(list(inspect.signature(function).parameters)[1:])
        lines.append(f" - {name} ({arguments}): {(function.__doc__ or '').strip()}")
    return "\n".join(lines)


@register_action("system.finish_task", writes=True, opened=False)
def finish_task(testbed: Testbed, answer: Any = "None") -> str:
    """End the task, with the answer where it is a question."""
    path = testbed.path(ANSWER).resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    text = str(answer).replace('"', "").replace("'", "")
    testbed.save(path, f"{text}\n".encode())
    testbed.finish()
    return "Task finished"


def list_apps() -> list[str]:
    return [app for app in ACTIONS if app != "system"]
