"""An item that the endpoint failed on is made in a later session: what was decided after it may change, and the ledger must agree."""

from __future__ import annotations

from pathlib import Path

from simia.amplification.job import AmplificationWork
from simia.amplification.model_mix import Writer
from simia.amplification.session import load_seeds
from simia.amplification.settings import AmplifyConfig
from simia.amplification.simulate import SimulationResult
from simia.config import load_config
from simia.errors import Code
from simia.jobs import Item, Run
from simia.jobs.coordinator import Coordinator
from simia.jobs.ledger import FAILED, PASSED
from simia.llm.types import LLMFault
from simia.quality.selection.near_duplicates import SIZE

STEP = SIZE * 3 // 16
# Each agrees with the next one in 13 of 16 lanes, so it is a near-duplicate of that one and not of the one after it.
SIGNATURES = [bytes([255] * (STEP * n) + [0] * (SIZE - STEP * n)) for n in range(3)]


def read_ledger(runs: Path) -> tuple[list[int], list[str], list[str]]:
    run = Run.open(runs, "r")
    accepted, statuses = sorted(run.ledger.accepted_ords()), [item.status for item in run.ledger.items()]
    assert run.found is not None
    findings = run.found.findings
    run.close()
    return accepted, statuses, findings


async def play(runs: Path, results: list[tuple[str, bytes] | None]) -> None:
    """Work on a run of as many items as results: content hash and signature of each; None: the endpoint fails on it."""
    settings = [
        "llm.kind=openai",
        "llm.model=m",
        "llm.base_url=http://127.0.0.1:1/v1",
        "seeds.packs=[customer_service]",
    ]
    conf = load_config(
        AmplifyConfig, "amplify/default", [*settings, f"n={len(results)}", f"stop.attempts={len(results)}"]
    )
    new = not (runs / "r").exists()
    run = Run.create(runs, conf, name="r", facts={}) if new else Run.open(runs, "r")

    async def produce(item: Item) -> SimulationResult:
        made = results[item.ord]
        if made is None:
            raise LLMFault(Code.SERVER_ERROR, retry=True)
        return SimulationResult(None, content_hash=made[0], signature=made[1])

    async def ask(*_: object) -> None: ...

    work = AmplificationWork(run, conf, load_seeds(conf), ask, writers=[Writer("m", "a", True)])  # type: ignore[arg-type]
    conf.stop.item_tries = 1
    await Coordinator(run, work, [], work.progress, conf.stop, concurrency=4, produce=produce).run()
    run.close()


async def test_of_equal_contents_the_earlier_item_is_accepted_once_it_is_there(tmp_path: Path) -> None:
    await play(tmp_path, [None, ("same", SIGNATURES[0])])
    assert read_ledger(tmp_path) == ([1], [FAILED, PASSED], [])
    await play(tmp_path, [("same", SIGNATURES[0]), ("same", SIGNATURES[0])])
    accepted, statuses, findings = read_ledger(tmp_path)
    assert (accepted, statuses[0], findings) == ([0], PASSED, [])


async def test_a_result_whose_near_duplicate_is_withdrawn_passes(tmp_path: Path) -> None:
    chain = [("a", SIGNATURES[0]), ("b", SIGNATURES[1]), ("c", SIGNATURES[2])]
    await play(tmp_path, [None, *chain[1:]])
    accepted, statuses, findings = read_ledger(tmp_path)
    assert (accepted, statuses, findings) == ([1], [FAILED, PASSED, "rejected"], [])
    await play(tmp_path, [*chain])
    accepted, statuses, findings = read_ledger(tmp_path)
    assert (accepted, statuses, findings) == ([0, 2], [PASSED, "rejected", PASSED], [])
