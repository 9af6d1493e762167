"""OfficeBench's world: the testbed with every app's actions as its tools, and the benchmark's checks.

The app system is here: open an app, and finish the task with an answer.
"""

from __future__ import annotations

import inspect
from functools import partialmethod
from pathlib import Path
from typing import Any

from . import calendars, documents, mail, pages, sheets, terminal
from .checks import OfficeChecks, describe_file
from .testbed import ACTIONS, MALFORMED, ActionError, Testbed, register_action

APPS = (calendars, documents, mail, pages, sheets, terminal)  # imported in the order in which agents see the apps
FOLDERS = ("data", "emails", "calendar")
ANSWER = "data/answer.txt"


class OfficeBench(Testbed):
    """One episode. Its tools are set below, since their names contain a dot: `word.read_file`."""

    def ready(self) -> None:
        if not self.memory:  # only at the start of an episode: folders that an agent removed are not restored
            self.memory = {"app": None, "folder": "/testbed"}
            for name in FOLDERS:
                (self.root / name).mkdir(exist_ok=True)

    def describe(self, path: Path) -> Any:
        return describe_file(path)

    def run_check(self, check: str, /, **arguments: Any) -> bool:
        """Run a check. An error counts as a failure, as in OfficeBench."""
        try:
            return bool(getattr(OfficeChecks(self.root, self.before), check)(**arguments))
        except MemoryError:
            raise
        except Exception:
            return False

    check_contain = partialmethod(run_check, "contain")
    check_not_contain = partialmethod(run_check, "not_contain")
    check_file_exist = partialmethod(run_check, "file_exist")
    check_file_not_exist = partialmethod(run_check, "file_not_exist")
    check_exact_match = partialmethod(run_check, "exact_match")
    check_diff_contain_text = partialmethod(run_check, "diff_contain_text")
    check_excel_cell_value = partialmethod(run_check, "excel_cell_value")
    check_excel_cell_comparator = partialmethod(run_check, "excel_cell_comparator")
    check_calendar_no_overlap = partialmethod(run_check, "calendar_no_overlap")


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


for _app, _actions in ACTIONS.items():
    for _name, _call in _actions.items():
        setattr(OfficeBench, f"{_app}.{_name}", _call)
