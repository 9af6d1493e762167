"""Import OfficeBench as a pack: its task folders with simia's apps on real files, one sandbox per episode.

The benchmark's folder contains `N-M/subtasks/K.json` (N apps, task M, subtask K), the initial files of a task in
`N-M/testbed`, and reference files of some checks in `N-M/reference`. None of its code is used: the world that is copied
into the pack gives the same answers to the same actions, and the checks have the same meaning (docs/officebench.md lists
the differences from its code, and the wrong subtasks). One-app subtasks are the paper's seeds and training tasks; those
of two and three apps are tagged for evaluation only.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from simia.authoring.pack_draft import copy_driver, draft_pack, refuse_existing, write_pack_files
from simia.errors import UserError
from simia.formats.action_dialect import make_tool, text_schema
from simia.formats.officebench import APPS, SWITCH, TOOLS
from simia.importers.benchmark_files import refuse_links_out
from simia.importers.officebench_solutions import add_shipped_solutions
from simia.task import Task
from simia.terminal import write_count
from simia.tool import ToolSpec
from simia.venvs import Say

NAME = "officebench"
WORLD = "officebench_world"
UNBUILT = "llm"  # its only action calls an OpenAI model
BUILT = [app for app in APPS if app != UNBUILT]
CLOCK = "2020-05-01T10:00:00"
TASK, SUBTASK = re.compile(r"([1-9])-(\d+)"), re.compile(r"(\d+)\.json")
LEAVES = re.compile(r"(?:\.\./)+(?:cache/[^/]+/testbed|(reference))/(.+)")
FACTS = ("username", "date", "weekday", "time", "task")
# OfficeBench states the date and the person in the system text.
INSTRUCTION = "Today is {date} ({weekday}), and it is {time}. You work for {username}.\nTask: {task}"
PREFIX = "evaluate_"
# Check → its required and its optional arguments.
CHECKS: dict[str, tuple[set[str], set[str]]] = {
    "contain": ({"doc_type", "keywords"}, {"file", "username"}),
    "not_contain": ({"doc_type", "keywords"}, {"file", "username"}),
    "file_exist": ({"file"}, set()),
    "file_not_exist": ({"file"}, set()),
    "exact_match": ({"doc_type", "result_file", "expected_file"}, set()),
    "diff_contain_text": ({"doc_type", "input_file", "output_file", "keywords"}, set()),
    "excel_cell_value": ({"file", "matches"}, set()),
    "excel_cell_comparator": ({"file", "matches"}, set()),
    "calendar_no_overlap": ({"username"}, set()),
}
TOOLS_PY = f'"""OfficeBench\'s world, as simia imports it."""\n\nfrom {WORLD}.world import OfficeBench\n\n__all__ = ["OfficeBench"]\n'
POLICY = """\
You are an assistant who works through a computer's office apps for the person named in the task. You act by calling one \
action at a time and read what it answers before you choose the next.

The apps are {apps}. An app's actions work only while it is open: open it with `system.switch_app`, whose answer lists the \
actions; open another one in the same way. The files of the task lie in `/testbed/data`; calendars are in \
`/testbed/calendar` (one `.ics` file a person) and mailboxes in `/testbed/emails` (one folder a person). Where you do not \
know a file's name, open the shell and list the folder.

When the task is done, call `system.finish_task`. If the task is a question, give it the answer, in the words that were asked \
for; if it is not, the answer is "None". This ends the task, so check your work before.
"""


def import_tasks(
    folder: Path, out: Path | None = None, solutions: Path | None = None, say: Say = lambda line: None
) -> Path:
    """Write the pack and return its folder, `officebench` unless `out` is given.

    `solutions`: JSON Lines of `{"task": "1-1/0", "actions": [{"name", "arguments"}]}`, which become the tasks' references. Other training
    tasks get the solution that is shipped with simia.
    Raises `UserError` for a folder without tasks, an invalid subtask or solution, and an `out` that exists.
    """
    out = out or Path(NAME)
    refuse_existing(out)
    groups = list_task_groups(folder)
    refuse_links_out(folder, *groups)
    known = list_officebench_tools()
    played = read_solutions(solutions, {spec.name for spec in known}) if solutions else {}
    rows = [subtask_to_row(group, path, played) for group in groups for path in list_subtasks(group)]
    add_shipped_solutions(rows)
    ids = {row["id"] for row in rows}
    if strange := sorted(played.keys() - ids):
        raise UserError(f"{solutions}: there is no subtask {strange[0]!r} in {folder}")
    with draft_pack(out) as draft:
        write_officebench_pack(draft, groups, known, rows)
    apart = sum("evaluation" in row["tags"] for row in rows)
    say(
        f"{out}: {write_count(len(rows), 'task')} ({len(rows) - apart} for training, {apart} for evaluation only), {write_count(len(known), 'tool')}"
    )
    if solved := sum("reference" in row for row in rows):
        say(f"{write_count(solved, 'task')} with a solution; next: simia pack record {shlex.quote(str(out))}")
    return out


def list_task_groups(folder: Path) -> list[Path]:
    """List the task folders in the order of their numbers."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder: give the one that contains OfficeBench's tasks (1-1, 1-2, …)")
    found = [path for path in folder.iterdir() if TASK.fullmatch(path.name) and (path / "subtasks").is_dir()]
    if not found:
        raise UserError(f"{folder} holds no tasks of OfficeBench: folders such as 1-1 with subtasks/0.json in them")
    return sorted(found, key=lambda path: tuple(map(int, path.name.split("-"))))


def list_subtasks(group: Path) -> list[Path]:
    found = [path for path in (group / "subtasks").iterdir() if SUBTASK.fullmatch(path.name)]
    return sorted(found, key=lambda path: int(path.stem))


def list_officebench_tools() -> list[ToolSpec]:
    """List the dialect's tools except the one that calls a model. Some also accept a list, as in OfficeBench."""
    app = {"type": "string", "enum": BUILT, "description": "The app."}
    found = [make_tool(SWITCH.name, SWITCH.description, target_app=app)]
    found += [allow_lists(spec) for spec in TOOLS if not spec.name.startswith(f"{UNBUILT}.")]
    answer = text_schema("The answer, where the task is a question; else None.", default="None")
    answer["type"] = ["string", "number", "boolean", "null", "array"]
    answer.pop("minLength")
    finish = make_tool("system.finish_task", "End the task, with the answer where it is a question.", answer=answer)
    return [*found, finish.model_copy(update={"parameters": {**finish.parameters, "required": []}})]


LISTS = {
    "calendar.create_event": "user",
    "calendar.delete_event": "user",
    "calendar.list_events": "username",
    "email.send_email": "recipient",
    "shell.command": "command",
}


def allow_lists(spec: ToolSpec) -> ToolSpec:
    name = LISTS.get(spec.name)
    if name is None:
        return spec
    properties = dict(spec.parameters["properties"])
    properties[name] = {**properties[name], "type": ["string", "array"], "items": {"type": "string"}, "minItems": 1}
    return spec.model_copy(update={"parameters": {**spec.parameters, "properties": properties}})


def subtask_to_row(group: Path, path: Path, played: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Convert a subtask to a row of tasks.jsonl."""
    number = f"{group.name}/{path.stem}"
    try:
        subtask = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise UserError(f"{path}: {str(error).splitlines()[0]}") from None
    if not isinstance(subtask, dict) or not all(isinstance(subtask.get(key), str) for key in FACTS):
        raise UserError(f"{path}: a subtask must have the texts {', '.join(FACTS)} and the list `evaluation` of checks")
    apps = int(group.name.partition("-")[0])
    row = {
        "id": number,
        "split": "train" if apps == 1 else "test",
        "instruction": INSTRUCTION.format(**subtask),
        "initial": {"folder": f"testbeds/{group.name}"} if list_regular_files(group / "testbed") else {},
        **({"reference": played[number]} if number in played else {}),
        "reward": {"parts": [{"kind": "checklist", "calls": list(convert_checks(group, path, subtask))}]},
        "scenario": group.name,  # its subtasks differ in names and dates
        "tags": ["officebench", f"{apps}_app{'s' * (apps > 1)}", *(["evaluation"] if apps > 1 else [])],
        "extra": {"evaluation": apps > 1, **{key: subtask[key] for key in FACTS if key != "task"}},
    }
    try:
        Task.model_validate(row)
    except ValidationError as error:
        raise UserError(f"{path}: {error.errors()[0]['msg']}") from None
    return row


def convert_checks(group: Path, path: Path, subtask: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Convert the checks to calls of the world's checks. Raises `UserError` for an unknown check."""
    evaluation = subtask.get("evaluation")
    if not isinstance(evaluation, list) or not evaluation:
        raise UserError(f"{path}: it has no list `evaluation` of checks")
    for item in evaluation:
        name = str(item.get("function", "")) if isinstance(item, dict) else ""
        needed, possible = CHECKS.get(name.removeprefix(PREFIX), (set(), set()))
        if not needed:
            raise UserError(
                f"{path}: no check is named {name!r}; there are: {', '.join(PREFIX + each for each in CHECKS)}"
            )
        arguments = dict(item.get("args") or {})
        if "file" in needed and "file" in item:  # outside of `args`, where OfficeBench's own code ignores it
            arguments.setdefault("file", item["file"])
        if not needed <= arguments.keys() <= needed | possible:
            raise UserError(f"{path}: {name} has the arguments {', '.join(arguments)}, not {', '.join(sorted(needed))}")
        for key in ("input_file", "expected_file"):
            if key in arguments:
                arguments[key] = map_path(group.name, arguments[key])
        if name == f"{PREFIX}excel_cell_comparator":
            for match in arguments["matches"]:
                check_comparator(path, match.get("comparator"))
        yield {"name": name.removeprefix(PREFIX), "arguments": arguments, "expect": True}


def map_path(group: str, name: str) -> str:
    """Map a path outside of the testbed to the initial files, or to the task's references."""
    found = LEAVES.fullmatch(name)
    if found is None:
        return name
    return f"references/{group}/{found[2]}" if found[1] else f"before/{found[2]}"


def check_comparator(path: Path, source: object) -> None:
    """Check that a comparator is one lambda; it runs only in the sandbox."""
    try:
        one = isinstance(source, str) and isinstance(ast.parse(source, mode="eval").body, ast.Lambda)
    except (SyntaxError, ValueError):
        one = False
    if not one:
        raise UserError(f"{path}: the comparator {str(source)[:80]!r} is not a lambda")


def read_solutions(path: Path, known: set[str]) -> dict[str, list[dict[str, Any]]]:
    """Return subtask → actions. Raises `UserError` with the number of an invalid line."""
    found: dict[str, list[dict[str, Any]]] = {}
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
            task, actions = str(row["task"]), Task.model_validate({"id": "x", "reference": row["actions"]}).reference
        except (orjson.JSONDecodeError, ValidationError, KeyError, TypeError):
            raise UserError(
                f'{path}, line {number}: a solution must have the form {{"task": "1-1/0", "actions": [{{"name", "arguments"}}, …]}}'
            ) from None
        strange = next((action.name for action in actions if action.name not in known), None)
        if strange or task in found:
            raise UserError(
                f"{path}, line {number}: "
                + (f"there is no tool {strange!r}" if strange else f"task {task} has two solutions: remove one")
            )
        found[task] = [action.model_dump(exclude_defaults=True) for action in actions]
    return found


def write_officebench_pack(pack: Path, groups: list[Path], known: list[ToolSpec], rows: list[dict[str, Any]]) -> None:
    head: dict[str, Any] = {
        "format": 1,
        "name": NAME,
        "description": (
            "OfficeBench: tasks over calendar, mail, documents, spreadsheets, PDFs, images and a shell, on real files."
            " The tasks of two and three apps are for evaluation only."
        ),
        "licence": "Apache-2.0",
        "policy": "policy.md",
        "tools": "tools.json",
        "tasks": "tasks.jsonl",
        "match": {"files.*.base64": "exempt"},
        "executable": {
            "code": "tools.py", "object": "OfficeBench", "isolation": "sandbox", "root": "/testbed", "python": "office", "clock": CLOCK,
            **({"hidden": ["references"]} if any(list_regular_files(group / "reference") for group in groups) else {}),
            **({"needs": settings} if (settings := list_libreoffice_settings()) else {}),
        },
        "user": "none",
        "ends": ["system.finish_task"],
    }  # fmt: skip
    specs = [spec.model_dump(include={"name", "description", "parameters"}) for spec in known]
    policy = POLICY.format(apps=f"{', '.join(BUILT[:-1])} and {BUILT[-1]}")
    files = {"pack.yaml": head, "policy.md": policy, "tools.json": specs, "tasks.jsonl": rows}
    write_pack_files(pack, {**files, "tools.py": TOOLS_PY, "LICENSE": LICENCE})
    copy_driver(WORLD, pack / WORLD)
    for group in groups:
        for source, target in (("testbed", "testbeds"), ("reference", "references")):
            for path in list_regular_files(group / source):
                place = pack / target / group.name / path.relative_to(group / source)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, place)


def list_regular_files(folder: Path) -> list[Path]:
    """List the files of a folder, without links, which may lead out of it."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]


def list_libreoffice_settings() -> list[str]:
    """List the folders in /etc that LibreOffice needs, if it is installed; the world then converts to PDF with it."""
    if not (shutil.which("soffice") or shutil.which("libreoffice")):
        return []
    return [folder for folder in ("/etc/libreoffice", "/etc/fonts") if os.path.isdir(folder)]


LICENCE = """\
tasks.jsonl, testbeds and references are data of OfficeBench (Apache-2.0), converted from the folders that were imported.
tools.py, officebench_world, policy.md and tools.json are simia's (Apache-2.0).
"""
