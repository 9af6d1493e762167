"""Import ACEBench-Agent's English tasks as packs: multi_step (20), multi_turn_phone (20) and multi_turn_travel (10).

The data and the API classes come from a checkout that the user gives. The classes are copied into the pack unchanged and run in the
sandbox (`acebench_world`); none of the benchmark's code runs during the import. The reward is ACEBench's end-to-end accuracy: the attributes
of the classes are compared with the recorded end state; a class that the end state names differently is not compared. Process accuracy,
which compares calls with milestones as text, is not computed. A reference consists of the calls in the milestones; if these do not reach
the end state, `CORRECTED` has calls that do. Differences from ACEBench:

- Tools are called in the form of `--calls`, not as `[Name(key='value')]`, and the prompts' section on that form is left out. The rest of the
  prompts becomes the policy; ACEBench's rules for the user go to the user simulator. multi_step has neither.
- The tasks over several turns are two packs, since their prompts differ.
- In multi_step the first text without a call ends the episode; ACEBench asks the agent to continue.
- A call that raises returns the error's text, and the other calls of its message are still run.
"""

from __future__ import annotations

import ast
import difflib
import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from simia.authoring.pack_draft import copy_driver, draft_pack, refuse_existing, write_pack_files
from simia.errors import UserError
from simia.importers.benchmark_files import read_benchmark_rows, read_benchmark_text, refuse_links_out
from simia.importers.bfcl import convert_document
from simia.task import Task
from simia.terminal import write_count
from simia.venvs import Say

NAME = "acebench"
PARTS = {
    "multi_step": ("multi_step", ""),
    "multi_turn_phone": ("multi_turn", "BASE"),
    "multi_turn_travel": ("multi_turn", "TRAVEL"),
}
"""Part → ACEBench's category, and the name of its prompts."""
PACKAGE = "model_inference.multi_turn.scenariosen"
CLASSES = {
    "BaseApi": "phone_platform.base_api",
    "MessageApi": "phone_platform.message",
    "ReminderApi": "phone_platform.reminder",
    "FoodPlatform": "phone_platform.food_services",
    "Travel": "travel",
}
"""API class → its module in the package."""
SAVED = "SAVED_CLASS"  # class → the attributes that ACEBench compares
NEEDED = "a checkout of github.com/ACEBench/ACEBench"
FORM = "\nFunction Calls:"
INSTRUCTION = "Rules:\n"
QUOTED = re.compile(r"=\s*'(.*?)'(?=\s*(?:,\s*\w+\s*=|\)))")
"""A quoted argument, also with apostrophes in it, as in `title='Today's spending'`."""
TO_DO_LIST = [
    "[login_device()]", "[view_reminder_by_title(title='To-do list')]", "[turn_on_wifi()]",
    "[login_food_platform(username='Eve', password='password123')]",
    "[add_food_delivery_order(username='Eve', merchant_name='Hema Fresh', items=[{'product': 'Fresh Gift Pack', 'quantity': 2}])]",
    "[get_latest_message_id()]", "[delete_message(message_id=4)]",
    "[send_message(sender_name='Eve', receiver_name='Frank', message='The price of the purchased goods is 198.0 yuan')]",
]  # fmt: skip
LOGIN = "[login_food_platform(username='Helen', password='password321')]"
CORRECTED: dict[str, list[str]] = {f"agent_multi_step_{number}": TO_DO_LIST for number in (14, 15, 16, 17)}
"""Task → all its calls, for tasks whose milestones do not reach the end state."""
FIRST = {"agent_multi_step_12": LOGIN, "agent_multi_step_13": "[turn_on_wifi(), " + LOGIN[1:], "agent_multi_turn_6": "[login_device()]"}  # fmt: skip
"""Task → calls that its milestones lack at the beginning."""
WRONG_NAME = ("'Super Supreme'", "'Super Supreme Pizza'")
LICENCE = """\
tools.json, tasks.jsonl, policy.md, user.md and the modules under code/ are data and code of ACEBench (github.com/ACEBench/ACEBench), the
modules unchanged. tools.py is the driver of simia (Apache-2.0). The licence of ACEBench follows.

{licence}"""


def import_part(folder: Path, part: str, out: Path | None = None, say: Say = lambda line: None) -> Path:
    """Write the pack of a part and return its folder, `acebench-PART` unless `out` is given.

    Raises `UserError` for an unknown part, a folder that is not ACEBench's, what cannot be converted, and an existing `out`.
    """
    if part not in PARTS:
        near = difflib.get_close_matches(part, PARTS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(PARTS)}"
        raise UserError(f"ACEBench-Agent has no part {part!r}; {hint}")
    out = out or Path(f"{NAME}-{part}")
    refuse_existing(out)
    category, prompts = PARTS[part]
    file = f"data_agent_{category}.json"
    data = folder / "data_all" / "data_en"
    refuse_links_out(folder, folder / "data_all", folder / PACKAGE.partition(".")[0], folder / "LICENSE.md")
    truths = {row.get("id"): row for row in read_benchmark_rows(data / "possible_answer" / file, NEEDED)}
    given = [
        row
        for row in read_benchmark_rows(data / file, NEEDED)
        if prompts != "TRAVEL" or "Travel" in row["involved_classes"]
    ]
    given = [row for row in given if prompts == "TRAVEL" or "Travel" not in row["involved_classes"]]
    tools = {each["name"]: convert_tool(each) for row in given for each in row["function"]}
    contents: dict[str, Any] = {
        "pack.yaml": describe_part(part, bool(prompts)),
        "tools.json": list(tools.values()),
        "tasks.jsonl": [convert_ace_task(row, truths.get(row["id"], {}), part) for row in given],
        "acebench.json": {"package": PACKAGE, "classes": CLASSES, "saved": read_constant(folder, "apimodel_inference.py", SAVED)},
        "LICENSE": LICENCE.format(licence=read_benchmark_text(folder / "LICENSE.md", NEEDED)),
    }  # fmt: skip
    if prompts:
        contents["policy.md"] = read_constant(folder, "prompt_en.py", f"{prompts}_PROMPT_EN").partition(FORM)[0] + "\n"
        rules = read_constant(folder, "multi_turn/APIModel_user.py", f"SYSTEM_PROMPT_{prompts}_EN")
        contents["user.md"] = rules.partition(INSTRUCTION)[2]
    code = folder.joinpath(*PACKAGE.split("."))
    with draft_pack(out) as draft:
        write_pack_files(draft, contents)
        for module in CLASSES.values():
            path = Path(*module.split(".")).with_suffix(".py")
            target = draft.joinpath("code", *PACKAGE.split("."), path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(read_benchmark_text(code / path, NEEDED), encoding="utf-8")
        copy_driver("acebench_world.py", draft / "tools.py")
    say(f"{out}: {write_count(len(given), 'task')}, {write_count(len(tools), 'tool')}")
    return out


def describe_part(part: str, has_user: bool) -> dict[str, Any]:
    """The content of pack.yaml."""
    words = {"policy": "policy.md", "instructions": "user.md", "user": "llm"} if has_user else {"user": "none"}
    return {
        "format": 2,
        "name": f"{NAME}-{part}",
        "description": f"ACEBench-Agent, {part}: run by its own API classes. Evaluation only: not for training data.",
        "licence": "MIT",
        "tools": "tools.json",
        "tasks": "tasks.jsonl",
        **words,
        "executable": {
            "code": "tools.py",
            "object": "ACEBenchWorld",
            "isolation": "process",
            "checks_arguments": False,  # the classes judge them
        },
        "evaluation": True,
    }


def convert_ace_task(row: dict[str, Any], truth: dict[str, Any], part: str) -> dict[str, Any]:
    """Convert a task to a row of tasks.jsonl. Raises `UserError`."""
    try:
        expected = truth["ground_truth"]
        found = {
            "id": row["id"],
            "split": "test",
            "initial": {"classes": row["involved_classes"], "config": row["initial_config"]},
            "instruction": row["question"],
            "tools": [each["name"] for each in row["function"]],
            "reference": [call for line in list_solution(row["id"], truth["mile_stone"]) for call in parse_calls(line)],
            "reward": {"parts": [{"kind": "checklist", "calls": [{
                "name": "matches_end_state", "by": "agent", "expect": True,
                "arguments": {"expected": expected if isinstance(expected, list) else [expected]},
            }]}]},
            "tags": [NAME, part, "evaluation"],
        }  # fmt: skip
        if part == "multi_step":
            found["opening"] = row["question"]
        Task.model_validate(found)
    except (KeyError, TypeError, ValueError, SyntaxError, AttributeError, IndexError) as error:
        words = error.errors()[0]["msg"] if isinstance(error, ValidationError) else f"{type(error).__name__}: {error}"
        raise UserError(f"task {row.get('id')!r} of ACEBench cannot be converted: {words}") from None
    return found


def list_solution(task: str, milestones: list[Any]) -> list[str]:
    """Return lines of calls that reach the end state: the milestones, or the first of several lists of them, corrected if needed."""
    if task in CORRECTED:
        return CORRECTED[task]
    lines = milestones[0] if isinstance(milestones[0], list) else milestones
    return [*([FIRST[task]] if task in FIRST else []), *(line.replace(*WRONG_NAME) for line in lines)]


def parse_calls(line: str) -> list[dict[str, Any]]:
    """Read `[name(key=value), …]`. Nothing is run."""
    try:
        found = ast.parse(line.strip(), mode="eval").body
    except SyntaxError:  # apostrophes within quotes
        found = ast.parse(QUOTED.sub(lambda match: f"={match[1]!r}", line.strip()), mode="eval").body
    calls = found.elts if isinstance(found, ast.List) else [found]
    return [
        {"name": ast.unparse(call.func), "arguments": {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}}
        for call in calls
        if isinstance(call, ast.Call)
    ]  # fmt: skip


def convert_tool(document: dict[str, Any]) -> dict[str, Any]:
    """A function document as a tool: `list` becomes JSON Schema's `array`, also inside of items."""

    def convert(value: Any) -> Any:
        if isinstance(value, list):
            return [convert(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {name: "array" if (name, each) == ("type", "list") else convert(each) for name, each in value.items()}

    return convert_document(convert(document))


def read_constant(folder: Path, file: str, name: str) -> Any:
    """The literal that a module assigns to a name. Nothing is run. Raises `UserError`."""
    path = folder / "model_inference" / file
    try:
        for each in ast.parse(read_benchmark_text(path, NEEDED)).body:
            if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == name:
                return ast.literal_eval(each.value)
    except (SyntaxError, ValueError) as error:
        raise UserError(f"{path}: {name} is not a Python literal: {error}") from None
    raise UserError(f"{path} does not assign {name}: give the path of {NEEDED}")
