"""Import the domains of tau-bench's first version (retail, airline) as packs: policy, tools and tasks of a folder that the user gives.

The tools and the data are copied into the pack unchanged and run in the sandbox (`taubench_world`). None of the benchmark's code runs during
the import: tasks and tool schemas are literals, which are read from the source. The reward is tau-bench's: the final data must equal those
after the task's actions, and each of its `outputs` must occur in a message of the agent (ignoring case, and commas in the message). The
test split is for evaluation; retail also has tasks for training and development. Differences from tau-bench:

- An episode that reaches its limit of messages is scored by its final state; tau-bench gives it 0.
- Keys that a tool makes up may differ: the rows that they identify are compared (docs/packs.md).
- Actions that end an episode (`transfer_to_human_agents`) are no part of the reference: tau-bench skips them too.
- A task that compares only data also requires a message of the agent: otherwise a task in which nothing may change could not earn 1.
"""

from __future__ import annotations

import ast
import difflib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from simia.authoring.pack_draft import copy_driver, draft_pack, refuse_existing, write_pack_files
from simia.errors import UserError
from simia.importers.benchmark_files import parse_benchmark_module, read_benchmark_text, refuse_links_out
from simia.task import Task
from simia.terminal import write_count
from simia.venvs import Say

NAME = "taubench"
DOMAINS = ("retail", "airline")
SPLITS = ("test", "train", "dev")
NEEDED = "a checkout of github.com/sierra-research/tau-bench"
PROMPT = "build_system_prompt"
USER = "LLMUserSimulationEnv"
LICENCE = """\
policy.md, user.md, tools.json, tasks.jsonl and what lies under code/ are data and code of tau-bench (github.com/sierra-research/tau-bench),
the files under code/ unchanged. tools.py is the driver of simia (Apache-2.0). The licence of tau-bench follows.

{licence}"""


def import_domain(folder: Path, domain: str, out: Path | None = None, say: Say = lambda line: None) -> Path:
    """Write the pack of a domain and return its folder, `taubench-DOMAIN` unless `out` is given.

    Raises `UserError` for an unknown domain, a folder that is not tau-bench's, what cannot be converted, and an existing `out`.
    """
    if domain not in DOMAINS:
        near = difflib.get_close_matches(domain, DOMAINS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(DOMAINS)}"
        raise UserError(f"tau-bench has no domain {domain!r}; {hint}")
    out = out or Path(f"{NAME}-{domain}")
    refuse_existing(out)
    root = folder / "tau_bench" if (folder / "tau_bench").is_dir() else folder
    source = root / "envs" / domain
    if not source.is_dir():
        raise UserError(f"{folder} has no folder tau_bench/envs/{domain}: give the path of {NEEDED}")
    licence = next((path for path in (root.parent / "LICENSE", root / "LICENSE") if path.is_file()), None)
    refuse_links_out(folder, root / "envs", *([licence] if licence else []))
    tools = [read_tool_info(path) for path in sorted((source / "tools").glob("[!_]*.py"))]
    ending = read_ending(source / "env.py")
    rows = [
        convert_task(task, f"{split}-{number}", split, ending)
        for split in SPLITS
        for number, task in enumerate(read_tasks(source / f"tasks_{split}.py"))
    ]
    if not rows or not tools:
        raise UserError(f"{source} has no tasks or no tools: give the path of {NEEDED}")
    contents = {
        "pack.yaml": describe_pack(domain),
        "policy.md": read_benchmark_text(source / "wiki.md", NEEDED),
        "user.md": read_user_prompt(root / "envs" / "user.py"),
        "tools.json": tools,
        "tasks.jsonl": rows,
        "taubench.json": {"domain": domain, "ending": ending},
        "LICENSE": LICENCE.format(
            licence=read_benchmark_text(licence, NEEDED) if licence else "(the folder has no file LICENSE)"
        ),
    }
    with draft_pack(out) as draft:
        write_pack_files(draft, contents)
        copy_code(root, domain, draft / "code")
        copy_driver("taubench_world.py", draft / "tools.py")
    say(f"{out}: {write_count(len(rows), 'task')}, {write_count(len(tools), 'tool')}")
    return out


def describe_pack(domain: str) -> dict[str, Any]:
    """The content of pack.yaml."""
    return {
        "format": 2,
        "name": f"{NAME}-{domain}",
        "description": f"The {domain} domain of tau-bench's first version, run by its own tools. Its tests are for evaluation only.",
        "licence": "MIT",
        "policy": "policy.md",
        "tools": "tools.json",
        "tasks": "tasks.jsonl",
        "executable": {
            "code": "tools.py",
            "object": "TauBenchWorld",
            "isolation": "process",
            "checks_arguments": False,  # tau-bench's tools judge them
        },
        "user": "llm",
        "instructions": "user.md",
    }


def copy_code(root: Path, domain: str, target: Path) -> None:
    """Copy the tools and the data. The packages around them become empty, since tau-bench's import clients for models."""
    inner = target / "tau_bench" / "envs" / domain
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    for part in ("tools", "data"):
        shutil.copytree(root / "envs" / domain / part, inner / part, ignore=ignored)
    shutil.copy(root / "envs" / "tool.py", inner.parent / "tool.py")
    for package in (inner, inner.parent, inner.parent.parent):
        (package / "__init__.py").write_bytes(b"")


def find_functions(tree: ast.AST, name: str) -> Iterator[ast.FunctionDef]:
    return (each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) and each.name == name)


def read_tool_info(path: Path) -> dict[str, Any]:
    """A tool's name, description and parameters: the literal that its `get_info` returns."""
    for function in find_functions(parse_benchmark_module(path, NEEDED), "get_info"):
        last = function.body[-1]
        if isinstance(last, ast.Return) and last.value is not None:
            try:
                found: dict[str, Any] = ast.literal_eval(last.value)["function"]
            except (ValueError, TypeError, KeyError):
                break
            return found
    raise UserError(f"{path}: get_info does not return a literal with the tool's function")


def read_ending(path: Path) -> list[str]:
    """The tools that end an episode: the literal that the domain's environment assigns to `terminate_tools`."""
    for each in ast.walk(parse_benchmark_module(path, NEEDED)):
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "self.terminate_tools":
            names: list[str] = ast.literal_eval(each.value)
            return names
    raise UserError(f"{path} does not assign self.terminate_tools: give the path of {NEEDED}")


def read_user_prompt(path: Path) -> str:
    """Return tau-bench's general instructions for its user simulator; simia adds the task's instruction after them."""
    for each in parse_benchmark_module(path, NEEDED).body:
        if isinstance(each, ast.ClassDef) and each.name == USER:
            for function in find_functions(each, PROMPT):
                last = function.body[-1]
                if isinstance(last, ast.Return) and isinstance(last.value, ast.JoinedStr):
                    texts = [part.value for part in last.value.values if isinstance(part, ast.Constant)]
                    return "".join(map(str, texts)) + "\n"
    raise UserError(f"{path}: {USER}.{PROMPT} does not return a text: give the path of {NEEDED}")


def read_tasks(path: Path) -> list[dict[str, Any]]:
    """The tasks of a file `NAME = [Task(…), …]` as dictionaries; none if there is no file. Raises `UserError`."""
    if not path.is_file():
        return []
    rows: list[dict[str, Any]] = []
    try:
        for each in parse_benchmark_module(path, NEEDED).body:
            if isinstance(each, ast.Assign | ast.AnnAssign) and isinstance(each.value, ast.List):
                rows += [read_constructor(item) for item in each.value.elts]
    except ValueError as error:
        raise UserError(f"{path}: task {len(rows)}: {error}") from None
    return rows


def read_constructor(node: ast.expr) -> Any:
    """`Task(…)` and `Action(…)` as dictionaries of their keywords, in lists too; anything else as a literal."""
    if isinstance(node, ast.Call):
        return {str(each.arg): read_constructor(each.value) for each in node.keywords}
    if isinstance(node, ast.List):
        return [read_constructor(each) for each in node.elts]
    return ast.literal_eval(node)


def convert_task(task: dict[str, Any], name: str, split: str, ending: list[str]) -> dict[str, Any]:
    """Convert a task to a row of tasks.jsonl. Raises `UserError`."""
    try:
        actions = [each for each in task["actions"] if each["name"] not in ending]
        answer: dict[str, Any] = {"kind": "answer", "match": "contains", "expect": task.get("outputs")}
        if not task.get("outputs"):
            answer = {"kind": "answer", "match": "regex", "expect": [r"\S"]}
        row = {
            "id": name,
            "split": split,
            "instruction": task["instruction"],
            "reference": [{"name": each["name"], "arguments": each["kwargs"]} for each in actions],
            "reward": {"parts": [{"kind": "state"}, answer]},
            "tags": [NAME, split, *(["evaluation"] if split == "test" else []), *([] if actions else ["no_change"])],
            "extra": {"user_id": task["user_id"]},
        }
        Task.model_validate(row)
    except (KeyError, TypeError, ValidationError) as error:
        words = error.errors()[0]["msg"] if isinstance(error, ValidationError) else f"{type(error).__name__}: {error}"
        raise UserError(f"task {name!r} of tau-bench cannot be converted: {words}") from None
    return row
