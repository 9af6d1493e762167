"""The long conversation of docs/simulated.md: its figures and its plot from what was recorded, `python docs/fidelity.py [FILE.svg]`.

Three test tasks of customer_service follow each other, and all their look-ups are made once more at the end: 25 calls, in prompts so
small that by then the first results are shortened or left out. What the ledger takes of a prompt, the history lacks. The answers are those
of tests/recordings/fidelity-long-*.jsonl. The world is cut down to these tasks' customers, so that its tables fit such a prompt too.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from simia.envs.environment import EpisodeLimits
from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import ReferenceAgent
from simia.envs.play.player import play
from simia.envs.users import ScriptedUser
from simia.evaluation.chained_tasks import chain_tasks
from simia.evaluation.fidelity import Fidelity, ToolFidelity, estimate_gain, measure_fidelity, sum_calls
from simia.llm.engine import Engine, EngineLimits
from simia.llm.journals import MemoryJournal
from simia.llm.replay import ReplayBackend, ReplaySettings
from simia.pack import Pack
from simia.report.fidelity_plot import make_fidelity_panels
from simia.report.plots import PlotPanel, save_figure
from simia.task import Task

RECORDINGS = Path(__file__).parents[1] / "tests" / "recordings"
TASKS = ("cs-061", "cs-063", "cs-049")
CONTEXT = {"schema": 5_600, "reference": 6_300, "state": 8_100}  # tokens; about 900 of them for history and ledger
WAYS = (("schema", True), ("reference", True), ("state", True), ("reference", False))  # knowledge, forced


def world(folder: Path) -> tuple[Pack, Task]:
    """The cut-down pack, written to `folder`, and the long task."""
    pack = Pack.load("customer_service")
    assert pack.root is not None
    shutil.copytree(pack.root, folder, dirs_exist_ok=True)
    tasks = [pack.task(name) for name in TASKS]
    text = json.dumps([action.arguments for task in tasks for action in task.actions])
    state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    state["customers"] = {key: row for key, row in state["customers"].items() if row["email"] in text}
    state["orders"] = {key: row for key, row in state["orders"].items() if row["customer_id"] in state["customers"]}
    bought = {item["product_id"] for row in state["orders"].values() for item in row["items"].values()}
    state["products"] = {key: row for key, row in state["products"].items() if key in bought}
    for table in ("returns", "refunds", "exchanges"):
        state[table] = {key: row for key, row in state[table].items() if row["order_id"] in state["orders"]}
    for table in ("vouchers", "tickets"):
        state[table] = {key: row for key, row in state[table].items() if row["customer_id"] in state["customers"]}
    (folder / "state.json").write_text(json.dumps(state, ensure_ascii=False), encoding="utf-8")
    small = Pack.load(folder)
    return small, chain_tasks(tasks, small.tools)


async def rows(engine: Engine, folder: Path, *, knowledge: str, ledger: bool, forced: bool) -> list[dict[str, Any]]:
    """The calls of one way, each answered by both worlds."""
    pack, task = world(folder)
    environment = await open_environment(
        pack, backend="shadow", user=ScriptedUser, episode=EpisodeLimits(turns=200, errors=200), engine=engine,
        knowledge=knowledge, ledger=ledger, forced=forced, context=CONTEXT[knowledge], max_tokens=512, again=0,
        observations=False, stateful=False,
    )  # fmt: skip
    async with environment:
        episode = await environment.reset(task, group="long")
        trajectory = await play(episode, ReferenceAgent(task))
    return [{**row, "episode": task.id} for row in (trajectory.evidence or {})["differences"]]


async def recorded(knowledge: str, *, forced: bool, ledger: bool) -> Fidelity:
    """The figures of one way, from its recording."""
    name = f"fidelity-long-{knowledge}{'' if forced else '-free'}-{'ledger' if ledger else 'plain'}.jsonl"
    model = ReplayBackend(ReplaySettings(path=RECORDINGS / name))
    with tempfile.TemporaryDirectory() as folder:
        async with Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine:
            found = await rows(engine, Path(folder), knowledge=knowledge, ledger=ledger, forced=forced)
    return measure_fidelity(found, {tool.name: tool for tool in Pack.load("customer_service").tools})


def again(found: Fidelity) -> ToolFidelity:
    """The look-ups that are made a second time."""
    return sum_calls(each for each in found.calls.values() if each.again)


async def gathered() -> dict[str, tuple[Fidelity, Fidelity]]:
    """Of each way: with the ledger, and without."""
    return {
        knowledge if forced else f"{knowledge}, free": (
            await recorded(knowledge, forced=forced, ledger=True),
            await recorded(knowledge, forced=forced, ledger=False),
        )
        for knowledge, forced in WAYS
    }


def plot(found: dict[str, tuple[Fidelity, Fidelity]]) -> list[PlotPanel]:
    named = {}
    for way, both in found.items():
        named[f"{way}, ledger"], named[f"{way}, no ledger"] = both
    return make_fidelity_panels(named)


def main(path: Path) -> None:
    found = asyncio.run(gathered())
    for way, both in found.items():
        print(way)
        for each, name in zip(both, ("ledger", "no ledger"), strict=True):
            total, second = each.total, again(each)
            print(
                f"  {name:9} F1 {each.interval('value_f1')}, of look-ups made again {second.value_f1:.3f}; said again "
                f"{each.interval('memory')}; look-ups that hold {total.held} of {total.again}; success and refusal agree "
                f"{total.agreement:.2f}; refused by the ledger {total.contradicting}"
            )
        print(
            f"  the ledger buys {estimate_gain(*both, 'value_f1')} of F1, {estimate_gain(*both, 'memory')} of what is said again"
        )
    save_figure(plot(found), path)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".svg"))
