"""Play tau2's own tasks in our worker: scores of the references, of incomplete references and of doing nothing, and the speed.

    python eval/bench/tau2.py                       # all 2,449 tasks (about ten minutes on two cores)
    python eval/bench/tau2.py --limit 10            # the first ten of each domain, as in CI

Each domain is imported (tau2's code as it is installed, in an environment of its own). Every task is played by its reference
actions; again without the last action that changes the state (one that tau2 refuses changes nothing); and by an agent that says it
cannot help. Steps: look-ups of 16 episodes at once, each in a process of its own in the sandbox.

Prints a table; the last line is one JSON object; the exit code is 1 if a reference does not score 1, if incomplete references
score more often than tau2's own tasks allow (1 of 104 in retail: the write changes nothing; none of 26 in airline), or
if there are fewer than 5,000 steps/s in a domain.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from simia import event_loop
from simia.authoring.gate_agents import play_task
from simia.authoring.reference_checks import find_writes, remove_action, value_or_zero
from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import NothingAgent, ReferenceAgent
from simia.envs.users import NoUser, ScriptedUser
from simia.envs.worlds.executable import ExecutableBackend
from simia.importers.tau2 import import_domain
from simia.task import Task
from simia.trajectory import ToolCall

TASKS = {"retail": 114, "airline": 50, "telecom": 2285}
ALLOWED = {"retail": 1, "airline": 0}
STEPS_A_SECOND, AT_ONCE, SECONDS = 5000, 16, 4.0
LOOK_UPS = {
    "retail": ("get_order_details", {"order_id": "#W2378156"}),
    "airline": ("get_user_details", {"user_id": "mia_li_3668"}),
    "telecom": ("get_customer_by_id", {"customer_id": "C1001"}),
}


async def judge(environment: Environment, task: Task) -> tuple[float, float | None, float]:
    """Return the rewards of the reference, of the reference without its last write (None if it has none), and of doing nothing."""
    reference = await play_task(environment, task, ReferenceAgent(task), ScriptedUser(task))
    full, last = value_or_zero(reference.reward), next(iter(find_writes(environment, task, reference)), None)
    short = None
    if last is not None and (reference.evidence or {}).get("changes"):
        less = remove_action(task, last)
        # The task and its reward are unchanged; only the played script is shorter.
        short = value_or_zero((await play_task(environment, task, ReferenceAgent(less), ScriptedUser(less))).reward)
    return full, short, value_or_zero((await play_task(environment, task, NothingAgent(task), NoUser(task))).reward)


async def steps(backend: ExecutableBackend, task: Task, domain: str) -> float:
    name, arguments = LOOK_UPS[domain]
    worlds = [await backend.open(task) for _ in range(AT_ONCE)]
    count = 0
    until = time.perf_counter() + SECONDS

    async def play(at: int) -> None:
        nonlocal count
        while time.perf_counter() < until:
            result = (await worlds[at].call([ToolCall(id="", name=name, arguments=arguments)]))[0]
            assert result.error is None, result
            count += 1

    start = time.perf_counter()
    await asyncio.gather(*(play(at) for at in range(AT_ONCE)))
    spent = time.perf_counter() - start
    for world in worlds:
        await world.close()
    return count / spent


async def measure(folder: Path, domain: str, limit: int | None) -> dict[str, float]:
    async with await open_environment(str(folder), user="none") as environment:
        assert isinstance(environment.backend, ExecutableBackend)
        await environment.backend.start_zygote()
        rate = await steps(environment.backend, environment.tasks[0], domain)
        tasks = environment.tasks[:limit]
        room = asyncio.Semaphore(8)

        async def one(task: Task) -> tuple[float, float | None, float]:
            async with room:
                return await judge(environment, task)

        start = time.perf_counter()
        found = await asyncio.gather(*(one(task) for task in tasks))
        spent = time.perf_counter() - start
    for task, (full, _, _) in zip(tasks, found, strict=True):
        if full < 1:
            print(f"  {domain} {task.id}: the reference scores {full:g}")
    short = [each[1] for each in found if each[1] is not None]
    return {
        "tasks": len(tasks),
        "reference_1": sum(each[0] == 1 for each in found),
        "with_writes": len(short),
        "incomplete_0": sum(each == 0 for each in short),
        "nothing": sum(each[2] for each in found) / len(found),
        "steps_per_s": rate,
        "seconds": spent,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, help="only the first so many tasks of each domain")
    parser.add_argument("--domain", action="append", choices=list(TASKS), help="only this one; may be repeated")
    given = parser.parse_args()
    print(
        f"{'domain':<9}{'tasks':>7}{'reference = 1':>15}{'without last write = 0':>24}{'nothing':>9}{'steps/s':>9}{'s':>7}"
    )
    figures: dict[str, dict[str, float]] = {}
    for domain in given.domain or TASKS:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / domain
            import_domain(domain, folder, say=lambda line: None)
            folder.parent.chmod(0o755)
            found = figures[domain] = event_loop.run_command(measure(folder, domain, given.limit))
        print(
            f"{domain:<9}{found['tasks']:>7,.0f}{found['reference_1']:>15,.0f}"
            f"{found['incomplete_0']:>15,.0f} of {found['with_writes']:<5,.0f}{found['nothing']:>9.3f}"
            f"{found['steps_per_s']:>9,.0f}{found['seconds']:>7,.0f}"
        )
    short = []
    for domain, found in figures.items():
        if found["reference_1"] < found["tasks"] or (given.limit is None and found["tasks"] < TASKS[domain]):
            short.append(f"{domain}: references")
        if domain in ALLOWED and found["with_writes"] - found["incomplete_0"] > ALLOWED[domain]:
            short.append(f"{domain}: incomplete ones score")
        if found["steps_per_s"] < STEPS_A_SECOND:
            short.append(f"{domain}: steps/s")
    print(
        f"bound: every reference 1, incomplete ones 0, {STEPS_A_SECOND:,} steps/s: {'kept' if not short else 'MISSED: ' + ', '.join(short)}"
    )
    rounded = {domain: {name: round(each, 3) for name, each in found.items()} for domain, found in figures.items()}
    print(json.dumps({"bench": "tau2", "ok": not short, **rounded}))
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
