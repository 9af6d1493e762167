"""Import an environment of CodeGym's release as a gym pack: a file with `class XEnv(gymnasium.Env)`, and its inputs `XEnv@{…}`.

The class is parsed with `ast` to find its actions; it runs only in the sandbox, in the driver `codegym_world`. There its reference answers
and the calls of its own `solve` are recorded; inputs for which the reference fails are left out.
"""

from __future__ import annotations

import ast
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simia import event_loop
from simia.authoring.pack_draft import copy_driver, draft_pack, refuse_existing, write_pack_files
from simia.envs.worlds.executable import ExecutableBackend
from simia.errors import Aborted, UserError
from simia.formats.dialect import parse_json
from simia.formats.function_listing import read_type
from simia.formats.python_calls import parse_python
from simia.pack import Pack
from simia.sandbox.limits import MB, WorkerLimits
from simia.task import Task
from simia.terminal import write_count
from simia.trajectory import ToolCall
from simia.venvs import Say

DONE = "Done"
ACTION = re.compile(r"[A-Z][A-Za-z0-9]*")  # B.3: actions are in PascalCase, other methods are not
EXAMPLES = re.compile(r"\n\s*Examples?\s*:?\s*\n.*", re.DOTALL | re.IGNORECASE)
ARGUMENT = re.compile(r"^[ \t]*(\w+)[ \t]*(?:\([^)\n]*\))?[ \t]*:[ \t]*(\S.*)$", re.MULTILINE)
LIMITS = WorkerLimits(wall=3.0, memory=100 * MB)  # for one reference answer, as in the release
MOST_CALLS = 256
POLICY = "Solve the task with the tools, one call at a time. `Observe` shows what is known. Submit the answer with `Done`, once.\n"
CHECK = "def check(final, initial):\n    return final['reward'] == 1\n"


@dataclass(frozen=True)
class EnvironmentClass:
    """A class of a release: its name, its docstring, and its actions as rows of tools.json."""

    name: str
    description: str
    tools: list[dict[str, Any]]


def import_codegym(
    source: Path,
    inputs: Path,
    out: Path | None = None,
    *,
    task: str | None = None,
    licence: str = "unknown",
    say: Say = lambda line: None,
) -> Path:
    """Write the pack and return its folder.

    Args:
        source: The Python file with the environment's class.
        inputs: A text file with an input a line: `XEnv@{…}`, or the object alone.
        out: The folder; None: named after the class.
        task: The task in words, for the agent; None: the class's docstring.
        licence: The licence of the environment.
        say: Receives lines for the user.

    Raises:
        UserError: a file cannot be read, it has no such class, no input is left, or the environment does not load.
    """
    found = read_environment_class(source)
    words = task or found.description
    if not words:
        raise UserError(f"{source}: class {found.name} has no docstring that says its task: give it with --task")
    rows = read_inputs(inputs)
    out = out or Path(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", found.name.removesuffix("Env")).lower())
    refuse_existing(out)
    with draft_pack(out) as draft:
        write_code(draft, source, found, probe=True)
        answers = event_loop.run_command(find_answers(draft, rows))
        tasks = [
            make_task(n, row, answer, words)
            for n, (row, answer) in enumerate(zip(rows, answers, strict=True), 1)
            if answer
        ]
        if not tasks:
            raise UserError(
                f"{source}: the reference answers none of {write_count(len(rows), 'input')} within its limits"
            )
        write_code(draft, source, found, licence=licence)
        write_pack_files(draft, {"policy.md": POLICY, "tasks.jsonl": tasks})
    solved = sum("reference" in row for row in tasks)
    say(
        f"{out}: {len(tasks)} of {write_count(len(rows), 'input')} became tasks, {solved} with calls of its own solve; next: simia pack gate {shlex.quote(str(out))}"
    )
    return out


def read_environment_class(source: Path) -> EnvironmentClass:
    """Read the class and its actions without running the file. Raises `UserError`."""
    try:
        tree = ast.parse(source.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UserError(
            f"{source} cannot be read as Python: {str(error) or type(error).__name__}; give the file of one environment"
        ) from None
    for node in tree.body:
        methods = [each for each in getattr(node, "body", []) if isinstance(each, ast.FunctionDef)]
        actions = [each for each in methods if ACTION.fullmatch(each.name)]
        if isinstance(node, ast.ClassDef) and DONE in {each.name for each in actions}:
            return EnvironmentClass(node.name, ast.get_docstring(node) or "", [make_tool(each) for each in actions])
    raise UserError(f"{source} has no class with an action {DONE}: it is not an environment of CodeGym")


def make_tool(method: ast.FunctionDef) -> dict[str, Any]:
    """The tool of an action. Examples in its docstring are left out: agents learn by trying (CodeGym §3.3.1)."""
    text = EXAMPLES.sub("", ast.get_docstring(method) or "").strip()
    arguments = method.args.args[1:]
    words = dict(ARGUMENT.findall(text))
    properties = {each.arg: read_type(each.annotation) for each in arguments}
    for name, schema in properties.items():
        if name in words:
            schema["description"] = words[name].strip()
    required = [each.arg for each in arguments[: len(arguments) - len(method.args.defaults)]]
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"name": method.name, "description": text, "parameters": schema}


def read_inputs(path: Path) -> list[dict[str, Any]]:
    """Read an input a line: what follows the first `@`, as JSON or as a Python literal. Raises `UserError` with the line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    found = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        text = re.sub(r"^\s*\w+@", "", line, count=1).strip()
        try:
            value = parse_json(text)
        except ValueError:
            try:
                value = parse_python(text)
            except ValueError:
                value = None
        if not isinstance(value, dict):
            raise UserError(f"{path}:{number}: an input is NAME@{{…}} with a JSON object; correct or remove the line")
        found.append(value)
    return found


async def find_answers(draft: Path, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any] | None]:
    """For each input the reference answer and the calls of the environment's own solution; None if the reference fails."""
    backend = ExecutableBackend(Pack.load(draft), limits=LIMITS)
    found: list[dict[str, Any] | None] = []
    try:
        for number, row in enumerate(rows):
            try:
                world = await backend.open(Task(id=str(number), initial={"inputs": row}))
                try:
                    [result] = await world.call([ToolCall(id="1", name="describe", arguments={})])
                finally:
                    await world.close()
            except Aborted:
                found.append(None)
                continue
            answered = result.error is None and isinstance(result.data, dict) and result.data.get("answer") is not None
            found.append(result.data if answered else None)
    finally:
        await backend.close()
    return found


def write_code(
    folder: Path, source: Path, found: EnvironmentClass, *, probe: bool = False, licence: str = "unknown"
) -> None:
    """Write code, tools and pack.yaml; with `probe` a draft that describes inputs and has no tasks."""
    shutil.copy(source, folder / "environment.py")
    copy_driver("codegym_world.py", folder / "tools.py")
    describe = [{"name": "describe", "parameters": {"type": "object", "properties": {}}}] if probe else []
    actions = [tool["name"] for tool in found.tools]
    head: dict[str, Any] = {
        "format": 2,
        "name": folder.name.strip(".").split(".")[0],
        "licence": licence,
        "tools": "tools.json",
    }
    if not probe:
        head |= {
            "policy": "policy.md", "tasks": "tasks.jsonl", "user": "none", "ends": [DONE],
            "match": dict.fromkeys(("inputs", "calls", "answer"), "exempt"), "limits": {"calls": MOST_CALLS},
        }  # fmt: skip
    head["executable"] = {"code": "tools.py", "object": "CodeGymWorld", "isolation": "process"}
    given = {"class": found.name, "actions": actions, "done": DONE, **({"probe": True} if probe else {})}
    write_pack_files(folder, {"pack.yaml": head, "tools.json": [*found.tools, *describe], "codegym.json": given})


def make_task(number: int, row: dict[str, Any], answer: dict[str, Any], words: str) -> dict[str, Any]:
    """The row of a task. A solution that ends with more than one `Done` is cut after the first."""
    calls = answer.get("calls") or []
    ends = [n for n, call in enumerate(calls) if call["name"] == DONE]
    return {
        "id": f"input-{number:02d}",
        "split": "train",
        "instruction": words,
        "initial": {"inputs": row},
        **({"reference": calls[: ends[0] + 1]} if ends else {}),
        "reward": {"parts": [{"kind": "checklist", "code": {"answer": CHECK}}]},
    }
