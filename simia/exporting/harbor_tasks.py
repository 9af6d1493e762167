"""Write a pack's tasks as folders that Harbor runs: one container for the agent with the pack's MCP server, another one for the reward.

    harbor run -p DIR -a oracle

The agent's container holds the pack without solutions, checks, tests and seeds. It records the episode as a line of a file. The verifier's
container holds the whole task: it replays the agent's messages from that file in a fresh world and scores this replay. So an agent that
changes its own container gains nothing: only calls that solve the task earn a reward.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simia.envs.worlds.pack_requests import list_requested_paths
from simia.errors import UserError
from simia.exporting.harbor_files import (
    DOCKERFILE,
    INSTRUCTION,
    README,
    SERVE_SCRIPT,
    SOLVE_PROGRAM,
    SOLVE_SCRIPT,
    TEST_SCRIPT,
    write_toml,
)
from simia.exporting.pack_copy import copy_pack, copy_pack_without_solutions
from simia.exporting.requirements import BASE_IMAGE, EVALUATION_ONLY, add_extra, find_wheel
from simia.exporting.single_turn import count_turns, make_final_answer
from simia.pack import Pack
from simia.task import Task
from simia.terminal import write_count
from simia.venvs import FOR_PACKS
from simia.version import __version__

SCHEMA_VERSION = "1.4"
"""Version of the `task.toml` that is written, that of harbor 0.26."""
EPISODES = "/logs/artifacts/episodes.jsonl"
"""Where the agent's container records episodes; Harbor copies the folder to the verifier's container."""


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """How the images of exported tasks install and run simia."""

    requirement: str = f"simia=={__version__}"
    """What pip installs as simia, or the path of a wheel, which is copied beside each Dockerfile."""
    base: str = BASE_IMAGE
    """Base image with Python 3.11 or newer on Debian."""
    unsafe: bool = False
    """Whether the container alone isolates the pack's code; False: a sandbox runs in it, which needs user namespaces."""

    @property
    def wheel(self) -> Path | None:
        """The wheel that is copied; None for a requirement that pip finds."""
        return find_wheel(self.requirement)


def write_harbor_tasks(pack: Pack, tasks: Iterable[Task], out: Path, settings: ImageSettings) -> list[Path]:
    """Write a folder for each task and a README into `out`, an existing folder.

    Args:
        pack: A pack with code that asks for nothing of the machine but environments of simia.
        tasks: Tasks that one agent can solve alone; see `select_single_turn_tasks`.
        out: The folder of the task folders.
        settings: How the images install and run simia.

    Returns:
        The task folders.

    Raises:
        UserError: The pack asks for files, variables or the network, the wheel does not exist, or the disk refuses.
    """
    check_pack(pack)
    find_wheel(settings.requirement)
    folders: list[Path] = []
    for task in tasks:
        folder = out / make_folder_name(task.id, {each.name for each in folders})
        write_task(pack, task, folder, settings)
        folders.append(folder)
    mark = f"\n**These tasks are {EVALUATION_ONLY}.**\n" if pack.evaluation else ""
    (out / "README.md").write_text(
        README.format(pack=pack.name, count=write_count(len(folders), "task"), mark=mark),
        "utf-8",
    )
    return folders


def check_pack(pack: Pack) -> None:
    """Raise `UserError` for a pack whose code needs more than a container of Harbor's gives it."""
    how = pack.executable
    if how is None:
        raise UserError(f"pack {pack.name} has no code to run: export it with --to verifiers or --to openenv")
    asked = [*(["the network"] if how.network else []), *how.variables, *list_requested_paths(how)]
    asked += [name for name in how.needs if not name.startswith("/")]
    if how.python and how.python not in FOR_PACKS:
        asked.append(f"the interpreter {how.python}")
    if asked:
        raise UserError(
            f"pack {pack.name} asks for {', '.join(asked)} of this machine, which a container does not have: "
            "export it with --to openenv and grant it there"
        )
    if not how.repeatable:
        raise UserError(
            f"pack {pack.name} has repeatable: false, but Harbor's verifier plays the calls again: export it with --to verifiers or --to openenv"
        )


def write_task(pack: Pack, task: Task, folder: Path, settings: ImageSettings) -> None:
    """Write the folder of one task."""
    environment, tests, solution = folder / "environment", folder / "tests", folder / "solution"
    for each in (environment, tests, solution):
        each.mkdir(parents=True)
    copy_pack_without_solutions(pack, environment / "pack", [task])
    copy_pack(pack, tests / "pack", [task])
    options = f"--task {shlex.quote(task.id)} --turns {count_turns(task)}{' --unsafe' if settings.unsafe else ''}"
    write_script(environment / "serve.sh", SERVE_SCRIPT.format(options=options, episodes=EPISODES))
    write_script(tests / "test.sh", TEST_SCRIPT.format(options=options, episodes=EPISODES))
    write_script(solution / "solve.sh", SOLVE_SCRIPT)
    (solution / "solve.py").write_text(SOLVE_PROGRAM, "utf-8")
    calls = [{"name": action.name, "arguments": action.arguments} for action in task.agent_actions]
    solved = {"calls": calls, "answer": make_final_answer(task)}
    (solution / "solution.json").write_text(json.dumps(solved, indent=2, ensure_ascii=False) + "\n", "utf-8")
    for part, copies in ((environment, "COPY . /opt/simia/\n"), (tests, "COPY . /tests/\n")):
        (part / "Dockerfile").write_text(make_dockerfile(pack, settings, copies), "utf-8")
        if settings.wheel is not None:
            shutil.copy(settings.wheel, part)
    (folder / "instruction.md").write_text(make_instruction(pack, task), "utf-8")
    (folder / "task.toml").write_text(write_toml(make_task_settings(pack, task, folder.name)), "utf-8")


def make_task_settings(pack: Pack, task: Task, name: str) -> dict[str, Any]:
    """Return the content of `task.toml`."""
    marked = pack.evaluation or "evaluation" in task.tags
    org = re.sub(r"[^A-Za-z0-9._-]+", "-", pack.name).strip("-._") or "pack"
    keywords = ["simia", "tool-use", *(["evaluation-only"] if marked else [])]
    metadata = {
        "pack": pack.name, "task_id": task.id, "split": task.split, "licence": pack.licence,
        "evaluation_only": marked, **({"use": EVALUATION_ONLY} if marked else {}),
        "simia": __version__, "tags": task.tags,
    }  # fmt: skip
    about = " ".join(pack.description.split())
    return {
        "schema_version": SCHEMA_VERSION,
        "task": {"name": f"{org}/{name}", "description": about, "keywords": keywords},
        "metadata": metadata,
        "agent": {"timeout_sec": 900.0},
        "verifier": {"timeout_sec": 300.0, "environment_mode": "separate"},
        "environment": {
            "build_timeout_sec": 900.0,
            "workdir": "/work",
            # With an empty stdin the server opens the pack and exits, so a container without a sandbox fails before the agent starts.
            "healthcheck": {"command": "sh /opt/simia/serve.sh < /dev/null", "timeout_sec": 120.0},
            "mcp_servers": [
                {"name": "pack", "transport": "stdio", "command": "sh", "args": ["/opt/simia/serve.sh"]},
            ],
        },
    }


def make_instruction(pack: Pack, task: Task) -> str:
    """Write the agent's instructions: the policy, the task, and how an episode ends."""
    words = task.goals[0].query if task.goals else task.instruction or task.opening or ""
    rules = f"# Rules\n\n{pack.policy}\n\n" if pack.policy else ""
    return INSTRUCTION.format(rules=rules, task=words)


def make_dockerfile(pack: Pack, settings: ImageSettings, copies: str) -> str:
    """Write a Dockerfile that installs simia, and builds the environment that the pack's code runs in."""
    wheel = settings.wheel
    source, requirement = (
        ("", settings.requirement) if wheel is None else (f"COPY {wheel.name} /tmp/\n", f"/tmp/{wheel.name}")
    )
    how = pack.executable
    build = f"RUN python -m simia.venvs {how.python}\n" if how and how.python else ""
    return DOCKERFILE.format(
        base=settings.base,
        source=source,
        requirement=shlex.quote(add_extra(requirement, "mcp")),
        build=build,
        copies=copies,
    )


def make_folder_name(task_id: str, taken: set[str]) -> str:
    """Return a name of letters, digits, dots and hyphens for a task's folder that is not taken."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", task_id).strip("-._")[:80] or "task"
    name, number = plain, 2
    while name.casefold() in {each.casefold() for each in taken}:
        name, number = f"{plain}-{number}", number + 1
    return name


def write_script(path: Path, text: str) -> None:
    """Write a script that can be executed."""
    path.write_text(text, "utf-8")
    path.chmod(0o755)
