"""Import tasks in the format of AgentBench's OS suite as a pack: a Linux machine with a shell for each episode.

A problem is `{"description", "create": {"init"}, "start", "evaluation": {"match" | "check", "example"}}`. A script is bash
text or `{"language", "code" | "file"}`, with files relative to `--scripts`. Check scripts get the answer and the outputs of
the previous scripts; a script that is null is replaced by the example. Differences from AgentBench:

- No container image: the machine's programs (read-only) in a sandbox with a writable root, without a network. Tasks that
  install packages, change the owner of files or need another image do not work; `simia pack gate` names them.
- The checks run in a fresh sandbox that is started by the same scripts and then gets the files of the episode, without the
  agent's background processes.
- A shell command is stopped after eight seconds; its standard input is empty.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from simia.authoring.pack_draft import copy_driver, draft_pack, refuse_existing, write_pack_files
from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.errors import UserError
from simia.task import Task
from simia.terminal import write_count
from simia.trajectory import ToolCall
from simia.venvs import Say

PYTHON = "/usr/bin/python3"  # the sandbox exposes the interpreter's folders, which must not include a home folder
POLICY = """You operate a Linux machine through a shell, to do what the user asks or to find out what they want to know.

- Think first, then make one call a turn. Commands run in one shell after another: the folder and variables stay as you leave them.
- A command gets no input and about eight seconds. A long output is cut, and says so.
- When you know the answer, give it with answer_action: the bare value, such as one number or one word, no sentence.
- When the work is done, or cannot be done, end with finish_action. Nobody answers questions.
"""
STOPPED = re.compile(r"\[stopped: it did not end within [\d.]+ seconds\]$")
READS_ANSWER = re.compile(r"\bargv\b|\$[1@*{]")  # in a check script
FINISH: dict[str, Any] = {"name": "finish_action", "arguments": {}}


def write_tool_row(
    name: str, description: str, argument: str, meaning: str, *, required: bool = True
) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": {argument: {"type": "string", "description": meaning}}}
    schema |= {"required": [argument]} if required else {}
    return {"name": name, "description": description, "parameters": schema | {"additionalProperties": False}}


TOOLS = [
    write_tool_row(
        "bash_action",
        "Run a bash script on the Linux machine. What it prints to both streams comes back, cut when it is long.",
        "script", "The script.",
    ),
    write_tool_row(
        "answer_action", "Give the answer to the question. It ends the task.",
        "answer", "The bare value that was asked for.",
    ),
    write_tool_row(
        "finish_action", "Say that the task is done, or that it cannot be done. It ends the task.",
        "thought", "Why it is over.", required=False,
    ),
]  # fmt: skip


def import_problems(
    problems: Sequence[Path],
    out: Path,
    *,
    scripts: Path | None = None,
    train: bool = False,
    licence: str = "unknown",
    say: Say = lambda line: None,
) -> Path:
    """Write the pack and return its folder.

    `scripts`: the folder that the problems' script files are relative to. `train`: the problems belong to no benchmark, so
    trajectories may become training data. Raises `UserError` for files without problems.
    """
    refuse_existing(out)
    if not os.access(PYTHON, os.X_OK):
        raise UserError(f"the shell needs {PYTHON}: install it (Debian: apt-get install python3)")
    tasks: dict[str, dict[str, Any]] = {}
    refused: dict[str, str] = {}
    for path in problems:
        stem = path.stem if f"{path.stem}-0" not in tasks.keys() | refused.keys() else f"{path.parent.name}-{path.stem}"
        for number, row in enumerate(read_problems(path)):
            name = f"{stem}-{number}"
            try:
                tasks[name] = problem_to_task(name, row, scripts, "train" if train else "test")
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                lacks = (
                    f"it has no {error}" if isinstance(error, KeyError) else "it does not have the form of a problem"
                )
                refused[name] = str(error) if type(error) is ValueError else lacks
    if not tasks:
        files = ", ".join(map(str, problems[:3]))
        first = next(
            (f"{name} is not an AgentBench problem: {why}" for name, why in refused.items()), "the files are empty"
        )
        raise UserError(f"{files}: none of {write_count(len(refused), 'entry')} can be imported; {first}")
    with draft_pack(out) as draft:
        write_agentbench_pack(draft, out.name, list(tasks.values()), train, licence)
    say(
        f"{out}: {write_count(len(tasks), 'task')}"
        + ("" if train else ", for evaluation only (--train: they are your own)")
    )
    for reason, count in Counter(refused.values()).most_common():
        first = next(name for name, why in refused.items() if why == reason)
        say(f"left out, {count}: {reason} (first: {first})")
    return out


def read_problems(path: Path) -> list[Any]:
    """Read the problems of a file: a JSON list, one object, or JSON lines."""
    try:
        body = path.read_bytes()
        if path.suffix == ".jsonl":
            return [orjson.loads(line) for line in body.splitlines() if line.strip()]
        return ensure_list(orjson.loads(body))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise UserError(f"{path} is not JSON: {error}") from None


def problem_to_task(name: str, row: dict[str, Any], scripts: Path | None, split: str) -> dict[str, Any]:
    """Convert a problem to a row of tasks.jsonl. Raises `ValueError` with the reason if that is not possible."""
    create, evaluation = row.get("create") or {}, row["evaluation"]
    if isinstance(create, list):
        raise ValueError("it needs several machines")  # noqa: TRY004 - a reason like the others
    image = create.get("local", "default")
    if image != "default":
        raise ValueError(f"it needs the container image {image!r}")
    init = [read_script(each, scripts) for each in ensure_list(create.get("init")) if each]
    start = read_script(row["start"], scripts) if row.get("start") else None
    example = read_script(evaluation["example"], scripts) if evaluation.get("example") else None
    play = [{"name": "bash_action", "arguments": {"script": script_to_command(example)}}] if example else []
    if "match" in evaluation:
        match = evaluation["match"]
        wanted = {"answer": match, "strip": True} if isinstance(match, str) else dict(match)
        check = {"name": "answer", "arguments": wanted}
        answer = [{"name": "answer_action", "arguments": {"answer": wanted["answer"]}}] if "answer" in wanted else []
        reference = answer or play
    elif "check" in evaluation:
        checks = [read_script(each, scripts) if each else None for each in ensure_list(evaluation["check"])]
        if None in checks and example is None:
            raise ValueError("its check compares with an example, but it has none")
        check = {"name": "scripts", "arguments": {"scripts": checks, **({"example": example} if example else {})}}
        # A check that reads its arguments may need the answer, which `find_answers` takes from the example's output.
        reads = any(READS_ANSWER.search(each["code"]) for each in checks if each)
        finish = [FINISH] if example and None not in checks and not reads else []
        reference = play + finish
    else:
        raise ValueError("its evaluation has neither match nor check")
    task = {
        "id": name,
        "split": split,
        "instruction": row["description"],
        "initial": {**({"init": init} if init else {}), **({"start": start} if start else {})},
        "reference": reference,
        "reward": {"parts": [{"kind": "checklist", "calls": [{**check, "expect": True}]}]},
        "tags": ["agentbench", *row.get("labels", [])],
        "extra": {"explanation": row["explanation"]} if row.get("explanation") else {},
    }
    Task.model_validate(task)
    return task


def ensure_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def read_script(value: Any, scripts: Path | None) -> dict[str, str]:
    """Return `{"language", "code"}` from text, code or a file. Raises `ValueError`."""
    if isinstance(value, str):
        return {"language": "bash", "code": value}
    language = str(value.get("language", "bash"))
    if language not in ("bash", "sh", "python"):
        raise ValueError(f"a script in {language} cannot be run here")
    if "code" in value:
        return {"language": language, "code": str(value["code"])}
    if scripts is None:
        raise ValueError(f"it names script files: give their folder with --scripts (the first: {value['file']})")
    path = scripts / str(value["file"])
    if not path.resolve().is_relative_to(scripts.resolve()) or not path.is_file():
        raise ValueError("its script file is not there")
    return {"language": language, "code": path.read_text(encoding="utf-8")}


def script_to_command(script: dict[str, str]) -> str:
    """Convert a script to a shell command."""
    code = script["code"]
    return code if script["language"] != "python" else f"python3 - <<'END_OF_SCRIPT'\n{code}\nEND_OF_SCRIPT"


def write_agentbench_pack(folder: Path, name: str, tasks: list[dict[str, Any]], train: bool, licence: str) -> None:
    head = {
        "format": 1,
        "name": name,
        "description": "A Linux machine with a shell for each task, in the format of AgentBench's OS suite.",
        "licence": licence,
        "policy": "policy.md",
        "tools": "tools.json",
        "tasks": "tasks.jsonl",
        "executable": {
            "code": "tools.py", "object": "Shell", "isolation": "sandbox", "root": "/", "python": PYTHON,
        },
        "ends": ["answer_action", "finish_action"],
        "evaluation": not train,
    }  # fmt: skip
    files = {"pack.yaml": head, "policy.md": POLICY, "tools.json": TOOLS, "tasks.jsonl": tasks}
    write_pack_files(folder, files)
    copy_driver("agentbench_world.py", folder / "tools.py")


async def find_answers(folder: Path, say: Say = lambda line: None) -> int:
    """Complete reference solutions: if a check compares the answer with the example's output, or may read the answer, run the example
    and use its output as the answer.

    Rewrites tasks.jsonl and returns the number of completed solutions.
    """
    found = 0
    rows = [orjson.loads(line) for line in (folder / "tasks.jsonl").read_bytes().splitlines()]
    async with await open_environment(str(folder), user="none") as environment:
        for row in rows:
            if [action["name"] for action in row["reference"]] == ["bash_action"]:
                printed = await record_first_output(environment, Task.model_validate(row))
                if not printed and None not in row["reward"]["parts"][0]["calls"][0]["arguments"]["scripts"]:
                    row["reference"].append(FINISH)
                elif printed is None:
                    say(f"{row['id']}: its example prints no answer here, so it has no reference solution")
                    row["reference"] = []
                else:
                    found += 1
                    row["reference"].append({"name": "answer_action", "arguments": {"answer": printed}})
    write_pack_files(folder, {"tasks.jsonl": rows})
    return found


async def record_first_output(environment: Environment, task: Task) -> str | None:
    """Return the output of the reference's first action; None if the task cannot be set up."""
    try:
        world = await environment.backend.open(task, seed=0, group=None)
    except UserError:
        return None
    try:
        action = task.actions[0]
        # A check reads the example's standard output only.
        quiet = {"script": f"exec 2> /dev/null\n{action.arguments['script']}"}
        result = (await world.call([ToolCall(id="", name=action.name, arguments=quiet)]))[0]
    finally:
        await world.close()
    head = "The output of the OS:\n\n"
    printed = result.content.removeprefix(head).strip()
    return None if result.error or printed == result.content or STOPPED.search(printed) else printed
