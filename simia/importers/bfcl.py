"""Import BFCL's multi-turn tasks (base, missing function, missing parameter, long context; 200 each) as a pack.

The data and the API classes come from the package bfcl-eval, which is installed once, or from a folder that the user gives: a checkout of
the Gorilla repository, or a folder in it. The classes are copied into the pack unchanged and run in the sandbox (`bfcl_world`); none of
the benchmark's code runs during the import. Each turn is a goal, judged as by BFCL's checker: the public attributes of all objects must
equal those after the ground truth's calls, the results of these calls must be among the results so far, and a turn whose ground truth has
calls needs at least one call. A turn without ground truth is not judged, as in BFCL. Differences from BFCL:

- Calls of unknown functions, and of those of other classes than the task's, are refused in simia's words.
- BFCL fails a task at the 21st message with calls in a turn. Here an episode may have 21 messages for each turn, or more if the ground
  truth's calls, one per message, need more.
- Floats are equal within 1e-9, and true is not 1.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from simia.authoring.pack_draft import copy_driver, draft_pack, refuse_existing, write_pack_files
from simia.errors import UserError
from simia.importers.benchmark_files import parse_benchmark_module, read_benchmark_rows, refuse_links_out
from simia.task import Task
from simia.terminal import write_count
from simia.venvs import Say, ensure_environment

NAME = "bfcl"
CATEGORIES = {
    "base": "base",
    "miss_func": "missing_function",
    "miss_param": "missing_parameter",
    "long_context": "long_context",
}
"""Name of the category in the files → tag of its tasks."""
CLASSES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}
"""API class → its module, and its file of function documents."""
SHARED = "long_context"  # the module that the classes import
PACKAGE = re.compile(rf"^from ([\w.]+)\.{SHARED} import", re.MULTILINE)
TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": None}
# BFCL's words when the missing function becomes available.
REVEAL = "I have updated some more functions you can choose from. What about now?"
NEEDED = "a checkout of github.com/ShishirPatil/gorilla, or its folder berkeley-function-call-leaderboard"
MESSAGES = 21  # of one turn: BFCL ends a turn after 20 messages with calls
LICENCE = """\
tools.json, tasks.jsonl and the modules under code/ are data and code of the Berkeley Function Calling Leaderboard
(github.com/ShishirPatil/gorilla), the modules unchanged: Apache-2.0, copyright of its authors.
tools.py is the driver of simia (Apache-2.0).
"""


def import_multi_turn(source: Path | None = None, out: Path | None = None, say: Say = lambda line: None) -> Path:
    """Write the pack and return its folder, `bfcl` unless `out` is given. Without `source` the package bfcl-eval is installed once and read.

    Raises `UserError` for a folder without the data, data that cannot be converted, an existing `out`, and an environment that cannot be
    built.
    """
    out = out or Path(NAME)
    refuse_existing(out)
    python = ensure_environment(NAME, say)
    root = source or find_package(python)
    documents = find_folder(root, "multi_turn_func_doc")
    code = find_folder(root, "func_source_code")
    refuse_links_out(root, documents.parent, code)
    tools = {name: read_benchmark_rows(documents / f"{module}.json", NEEDED) for name, module in CLASSES.items()}
    signatures = {
        name: order for kind, module in CLASSES.items() for name, order in read_methods(code / f"{module}.py", kind)
    }
    rows = []
    for category, tag in CATEGORIES.items():
        for row, truth in pair_answers(documents.parent, category):
            if len(truth) != len(
                row.get("question", ())
            ):  # one task of an older version, which BFCL's checker always fails
                say(
                    f"{row['id']} is left out: it has {write_count(len(truth), 'ground truth')} for {write_count(len(row.get('question', ())), 'turn')}"
                )
            else:
                rows.append(convert_bfcl_task(row, truth, tag, tools, signatures))
    with draft_pack(out) as draft:
        write_code_pack(draft, rows, [convert_document(each) for found in tools.values() for each in found], code)
    say(f"{out}: {write_count(len(rows), 'task')}, {write_count(sum(map(len, tools.values())), 'tool')}")
    return out


def find_package(python: Path) -> Path:
    """The folder of the installed package bfcl-eval."""
    found = sorted(python.parent.parent.glob("lib/python*/site-packages/bfcl_eval"))
    if not found:
        raise UserError(
            f"{python.parent.parent} does not contain the package bfcl_eval: remove that folder and import again"
        )
    return found[0]


def find_folder(root: Path, name: str) -> Path:
    """The folder of that name in the benchmark's. Raises `UserError`."""
    if not root.is_dir():
        raise UserError(f"{root} is not a folder: give the path of {NEEDED}")
    found = next((path for path in sorted(root.rglob(name)) if path.is_dir()), None)
    if found is None:
        raise UserError(f"{root} has no folder {name}: give the path of {NEEDED}")
    return found


def pair_answers(data: Path, category: str) -> Iterator[tuple[dict[str, Any], list[list[str]]]]:
    """Each task of a category with its ground truth. Raises `UserError`."""
    form = f"BFCL_v*_multi_turn_{category}.json"
    path = next(iter(sorted(data.glob(form), reverse=True)), None)
    if path is None:
        raise UserError(f"{data} has no file {form}: give the path of {NEEDED}")
    answers = {
        row.get("id"): row.get("ground_truth")
        for row in read_benchmark_rows(data / "possible_answer" / path.name, NEEDED)
    }
    for row in read_benchmark_rows(path, NEEDED):
        truth = answers.get(row.get("id"))
        if not isinstance(truth, list):
            raise UserError(f"{path}: {row.get('id')} has no ground truth in possible_answer/{path.name}")
        yield row, truth


def read_methods(path: Path, kind: str) -> Iterator[tuple[str, list[str]]]:
    """Name and parameters of each public method of a class, from its source."""
    for each in parse_benchmark_module(path, NEEDED).body:
        if isinstance(each, ast.ClassDef) and each.name == kind:
            for part in each.body:
                if isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
                    yield part.name, [argument.arg for argument in part.args.args[1:]]


def convert_bfcl_task(
    row: dict[str, Any],
    truth: list[list[str]],
    tag: str,
    tools: dict[str, list[dict[str, Any]]],
    signatures: dict[str, list[str]],
) -> dict[str, Any]:
    """Convert a task of BFCL to a row of tasks.jsonl. Raises `UserError`."""
    try:
        missing = {int(turn): names for turn, names in row.get("missed_function", {}).items()}
        names = [each["name"] for kind in row["involved_classes"] for each in tools[kind]]
        late = {name for each in missing.values() for name in each}
        goals = [convert_turn(*turn, signatures) for turn in zip(row["question"], truth, strict=True)]
        converted = {
            "id": row["id"],
            "split": "test",
            "initial": {
                "classes": row["involved_classes"],
                "config": row["initial_config"],
                "long_context": tag == "long_context",
            },
            "goals": goals,
            "tools": [name for name in names if name not in late],
            "reveals": [{"turn": turn + 1, "tools": names, "runs": True} for turn, names in missing.items()],
            "limits": {"turns": max(MESSAGES * len(goals), len(goals) + sum(map(len, truth)))},
            "tags": [NAME, tag],
            "scenario": row["id"].rpartition("_")[2],  # the categories are made from the same tasks
        }
        Task.model_validate(converted)
    except (KeyError, TypeError, ValueError, SyntaxError, AttributeError, AssertionError) as error:
        words = error.errors()[0]["msg"] if isinstance(error, ValidationError) else f"{type(error).__name__}: {error}"
        raise UserError(f"task {row.get('id')!r} of BFCL cannot be converted: {words}") from None
    return converted


def convert_turn(messages: list[dict[str, Any]], truth: list[str], signatures: dict[str, list[str]]) -> dict[str, Any]:
    """Make a goal from a turn's user message and ground truth. In the turn that reveals the missing function, BFCL has no message."""
    query = "\n".join(message["content"] for message in messages) or REVEAL
    calls = [parse_call(text, signatures) for text in truth]
    parts = [{"kind": "state"}, {"kind": "results"}] if calls else [{"kind": "results"}]
    return {"query": query, "calls": calls, "parts": parts}


def parse_call(text: str, signatures: dict[str, list[str]]) -> dict[str, Any]:
    """A call such as `cd('temp')` with its arguments by name. Nothing is run."""
    found = ast.parse(text, mode="eval").body
    assert isinstance(found, ast.Call), f"{text!r} is no call"
    assert isinstance(found.func, ast.Name), f"{text!r} is no call of a function by its name"
    order = signatures[found.func.id]
    by_place = zip(order[: len(found.args)], found.args, strict=True)
    pairs = [*by_place, *((each.arg, each.value) for each in found.keywords)]
    return {"name": found.func.id, "arguments": {str(name): ast.literal_eval(value) for name, value in pairs}}


def convert_document(document: dict[str, Any]) -> dict[str, Any]:
    """A function document as a tool: BFCL's types become those of JSON Schema."""
    return {
        "name": document["name"],
        "description": document["description"],
        "parameters": convert_bfcl_schema(document["parameters"]),
    }


def convert_bfcl_schema(value: Any) -> Any:
    """Replace `type: dict` and `float`, which JSON Schema does not have; a property may itself be named `type`."""
    if not isinstance(value, dict):
        return value
    found = {name: convert_bfcl_schema(each) if name == "items" else each for name, each in value.items()}
    if isinstance(kind := found.get("type"), str):
        found["type"] = TYPES.get(kind, kind)
    if isinstance(inner := found.get("properties"), dict):
        found["properties"] = {name: convert_bfcl_schema(each) for name, each in inner.items()}
    return {name: each for name, each in found.items() if each is not None}


def write_code_pack(folder: Path, rows: list[dict[str, Any]], tools: list[dict[str, Any]], code: Path) -> None:
    modules = [SHARED, *CLASSES.values()]
    package = read_package(code)
    target = folder / "code" / Path(*package.split("."))
    target.mkdir(parents=True)
    for name in modules:
        (target / f"{name}.py").write_bytes((code / f"{name}.py").read_bytes())
    for above in [target, *target.relative_to(folder / "code").parents]:
        place = above if above == target else folder / "code" / above
        if place != folder / "code":
            (place / "__init__.py").write_bytes(b"")
    head: dict[str, Any] = {
        "format": 2,
        "name": NAME,
        "description": (
            "BFCL's multi-turn tasks, run by its own API classes."
            " Evaluation only: these tasks and what is made of them do not belong in training data."
        ),
        "licence": "Apache-2.0",
        "tools": "tools.json",
        "tasks": "tasks.jsonl",
        "match": {"calls": "exempt"},
        "executable": {
            "code": "tools.py",
            "object": "BFCLWorld",
            "isolation": "process",
            "python": NAME,
            "checks_arguments": False,  # one ground truth breaks its function's schema
        },
        "evaluation": True,
    }
    contents = {
        "pack.yaml": head,
        "tools.json": tools,
        "tasks.jsonl": rows,
        "bfcl.json": {"package": package, "classes": CLASSES},
        "LICENSE": LICENCE,
    }
    write_pack_files(folder, contents)
    copy_driver("bfcl_world.py", folder / "tools.py")


def read_package(code: Path) -> str:
    """The dotted name under which the classes import each other's data."""
    path = code / f"{CLASSES['GorillaFileSystem']}.py"
    found = PACKAGE.search(path.read_text(encoding="utf-8"))
    if found is None:
        raise UserError(
            f"{path} does not import {SHARED}: simia reads BFCL from version 3 on; give the path of {NEEDED}"
        )
    return found[1]
