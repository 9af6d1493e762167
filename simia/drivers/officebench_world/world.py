"""OfficeBench's world: the testbed with every app's actions as its tools, and the benchmark's checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import calendars, documents, mail, pages, sheets, system, terminal
from .checks import OfficeChecks, describe_file
from .testbed import ACTIONS, Testbed

APPS = (calendars, documents, mail, pages, sheets, system, terminal)
FOLDERS = ("data", "emails", "calendar")


class OfficeBench(Testbed):
    """One episode. Its tools are set below, since their names contain a dot: `word.read_file`."""

    def ready(self) -> None:
        if not self.memory:  # only at the start of an episode: folders that an agent removed are not restored
            self.memory = {"app": None, "folder": "/testbed"}
            for name in FOLDERS:
                (self.root / name).mkdir(exist_ok=True)

    def describe(self, path: Path) -> Any:
        return describe_file(path)

    def run_check(self, name: str, arguments: dict[str, Any]) -> bool:
        """Run a check. An error counts as a failure, as in OfficeBench."""
        try:
            return bool(getattr(OfficeChecks(self.root, self.before), name)(**arguments))
        except MemoryError:
            raise
        except Exception:
            return False

    def check_contain(self, **arguments: Any) -> bool:
        return self.run_check("contain", arguments)

    def check_not_contain(self, **arguments: Any) -> bool:
        return self.run_check("not_contain", arguments)

    def check_file_exist(self, **arguments: Any) -> bool:
        return self.run_check("file_exist", arguments)

    def check_file_not_exist(self, **arguments: Any) -> bool:
        return self.run_check("file_not_exist", arguments)

    def check_exact_match(self, **arguments: Any) -> bool:
        return self.run_check("exact_match", arguments)

    def check_diff_contain_text(self, **arguments: Any) -> bool:
        return self.run_check("diff_contain_text", arguments)

    def check_excel_cell_value(self, **arguments: Any) -> bool:
        return self.run_check("excel_cell_value", arguments)

    def check_excel_cell_comparator(self, **arguments: Any) -> bool:
        return self.run_check("excel_cell_comparator", arguments)

    def check_calendar_no_overlap(self, **arguments: Any) -> bool:
        return self.run_check("calendar_no_overlap", arguments)


for _app, _actions in ACTIONS.items():
    for _name, _call in _actions.items():
        setattr(OfficeBench, f"{_app}.{_name}", _call)
