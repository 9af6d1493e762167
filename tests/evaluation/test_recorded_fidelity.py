"""How far a strong model's simulation of customer_service is from the real one: 28 calls of seven test tasks, four ways, and a long
conversation of 25 calls in small prompts, eight ways.

The model saw the rendered prompts alone, each way in a session of its own (the long ones without the ledger in one); what a prompt did
not hold was thrown by dice, so that nothing could be known from another. Read again in every run.
"""

from __future__ import annotations

import json
import runpy
import shutil
from collections import defaultdict
from pathlib import Path

import pytest

from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import ReferenceAgent
from simia.envs.play.player import play
from simia.envs.users import ScriptedUser
from simia.evaluation.fidelity import estimate_gain, measure_fidelity
from simia.llm.engine import Engine, EngineLimits
from simia.llm.journals import MemoryJournal
from simia.llm.replay import ReplayBackend, ReplaySettings
from simia.pack import Pack
from simia.quality.entity_ledger import READS, EntityLedger
from simia.report.plots import render_svg
from tests.command import run_simia

RECORDINGS = Path(__file__).parents[1] / "recordings"
ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LONG = {  # way → with the ledger and without: F1, F1 of look-ups made again, share of the values said again
    "schema": ((0.775, 0.990, 1.0), (0.670, 0.756, 0.742)),
    "reference": ((0.819, 0.995, 1.0), (0.697, 0.716, 0.699)),
    "state": ((0.993, 0.985, 1.0), (1.0, 1.0, 1.0)),
    "reference, free": ((0.614, 0.597, 1.0), (0.580, 0.567, 0.776)),
}


@pytest.mark.parametrize(
    ("knowledge", "ledger", "agreement", "value_f1"),
    [
        ("schema", True, 26 / 28, 0.590),
        ("schema", False, 26 / 28, 0.614),
        ("reference", True, 27 / 28, 0.652),
        ("reference", False, 1.0, 0.701),
    ],
)
async def test_what_a_strong_model_simulates(knowledge: str, ledger: bool, agreement: float, value_f1: float) -> None:
    recording = RECORDINGS / f"fidelity-{knowledge}-{'ledger' if ledger else 'plain'}.jsonl"
    rows = []
    async with Engine(
        ReplayBackend(ReplaySettings(path=recording)), MemoryJournal(), EngineLimits(retries=0)
    ) as engine:
        settings = {"engine": engine, "knowledge": knowledge, "ledger": ledger, "again": 0, "observations": False}
        environment = await open_environment("customer_service", backend="shadow", user=ScriptedUser, **settings)
        async with environment:
            specs = {tool.name: tool for tool in environment.pack.tools}
            for task in [task for task in environment.tasks if task.split == "test" and len(task.actions) >= 3][:7]:
                trajectory = await play(await environment.reset(task), ReferenceAgent(task))
                assert trajectory.reward is not None
                assert trajectory.reward.value == 1.0  # the shadow changes nothing
                rows += (trajectory.evidence or {})["differences"]
    total = measure_fidelity(rows, specs).total
    assert (total.calls, total.lost, total.contradicting) == (28, 0, 0)
    assert total.schema_validity == 1.0
    assert total.agreement == pytest.approx(agreement)
    assert total.value_f1 == pytest.approx(value_f1, abs=0.001)


async def test_what_a_strong_model_remembers_of_a_long_conversation() -> None:
    """docs/simulated.md shows these figures and this plot: both are made of the recordings, here again."""
    script = runpy.run_path(str(DOCS / "fidelity.py"))
    found = await script["gathered"]()
    assert render_svg(script["plot"](found)) == (DOCS / "fidelity.svg").read_text(encoding="utf-8")
    for way, (with_ledger, without) in found.items():
        for each in (with_ledger, without):
            assert (each.total.calls, each.total.lost, each.total.again) == (25, 0, 10), way
            assert each.total.agreement == 1.0, way
            assert (each.total.schema_validity or 0) >= 0.96, way
        wanted = LONG[way]
        got = [
            (each.total.value_f1, script["again"](each).value_f1, each.total.memory) for each in (with_ledger, without)
        ]
        assert got[0] == pytest.approx(wanted[0], abs=0.001), way
        assert got[1] == pytest.approx(wanted[1], abs=0.001), way
    for way in ("schema", "reference"):  # what was true and is left out of the prompt, the ledger gives back
        f1, memory = (estimate_gain(*found[way], measure) for measure in ("value_f1", "memory"))
        assert f1 is not None
        assert memory is not None
        assert f1.value > 0.1
        assert f1.low > 0
        assert memory.low > 0
    free = estimate_gain(*found["reference, free"], "value_f1")
    assert free is not None
    assert free.low < 0 < free.high  # its own inventions, well kept, are hardly nearer to the real world


@pytest.mark.parametrize(("state", "most"), [(False, 0), (True, 1)])
async def test_how_often_the_ledger_refuses_what_is_true(state: bool, most: int) -> None:
    """The real world contradicts itself nowhere: each look-up of the solutions that the check refuses is a false alarm."""
    pack = Pack.load("customer_service")
    path = pack.path_of("state")
    assert path is not None
    tables = json.loads(path.read_text(encoding="utf-8"))
    asked, refused = 0, []
    async with await open_environment(pack, backend="executable", user=ScriptedUser) as environment:
        for task in environment.tasks:
            trajectory = await play(await environment.reset(task), ReferenceAgent(task))
            ledger = EntityLedger.from_state(tables) if state else EntityLedger()
            calls = {call.id: call for message in trajectory.messages for call in message.calls}
            for message in trajectory.messages:
                if message.role != "tool":
                    continue
                call, failed = calls[message.call_id or ""], message.error is not None
                content = json.loads(message.text)
                told = {"failed": failed, "changes": []}
                if READS.match(call.name):
                    asked += 1
                    refused += ledger.find_contradictions(call.name, call.arguments or {}, content, **told)[:1]
                ledger.take(call.name, call.arguments or {}, content, **told)
    assert asked == 167
    assert len(refused) <= most, refused


@pytest.mark.all
def test_an_error_in_free_running_stays_to_the_end(tmp_path: Path) -> None:
    """docs/simulator-fidelity.md shows these figures."""
    shutil.copytree(ROOT / "eval" / "fidelity" / "drift", tmp_path / "answers")
    model = ["--set", "llm.kind=batch", "--set", "llm.model=strong", "--set", f"llm.folder={tmp_path / 'answers'}"]
    words = ["--knowledge", "state", "--no-forced", "--chain", "8", "--limit", "12", "--name", "drift"]
    done = run_simia("fidelity", "customer_service", *words, *model, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "runs" / "drift-customer_service-free-chain8" / "fidelity.json").read_text())
    total, rules = found["changes"]["state"]["all"], found["rewards"]["state"]
    assert (total["calls"], total["lost"], total["exact"], total["agree"]) == (185, 0, 181, 185)
    assert (rules["episodes"], rules["agreed"]) == (12, 8)
    drift = found["changes"]["state"]["drift"]
    assert drift["1"]["value"] == 0.0
    page = (DOCS / "simulator-fidelity.md").read_text(encoding="utf-8")
    for said, each, digits in (
        ("185, 181: ", total["exact_share"], 2), ("F1 of results | ", total["value_f1"], 3),
        ("after 5 calls | ", drift["5"], 1), ("after 10 calls | ", drift["10"], 1),
    ):  # fmt: skip
        assert f"{said}{each['value']:.{digits}f} [{each['low']:.{digits}f}, {each['high']:.{digits}f}] |" in page
    assert f"8 of 12: {rules['share']:.2f} [{rules['low']:.2f}, {rules['high']:.2f}] |" in page
    rows = map(json.loads, next((tmp_path / "runs").glob("*/differences.jsonl")).read_text().splitlines())
    calls: dict[str, list[tuple[bool, int]]] = defaultdict(list)
    for row in rows:
        calls[row["episode"]].append((row["transition"]["exact"], row["drift"]))
    assert len(calls) == 12
    assert sum(steps[-1][1] == 0 for steps in calls.values()) == 8
    for steps in calls.values():
        exact = [each for each, _ in steps]
        assert sum(drift > 0 for _, drift in steps) == (len(steps) - exact.index(False) if False in exact else 0)
