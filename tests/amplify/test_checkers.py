"""Checkers give what the process itself would have given, whoever dies on the way."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from simia.amplification import checkers
from simia.amplification.checkers import Checkers
from simia.amplification.session import Amplified, amplify, load_seeds
from simia.amplification.settings import AmplifyConfig
from simia.amplification.simulate import Simulator
from simia.config import load
from simia.errors import Code
from simia.jobs import Run
from simia.llm.types import Reply
from simia.trajectory import Trajectory
from tests.fake_endpoint import FakeEndpoint


@pytest.fixture(scope="module")
def endpoint() -> Any:
    server = FakeEndpoint("--respond", "tests.replies:trajectory")
    yield server
    server.stop()


def config(endpoint: FakeEndpoint, *settings: str) -> AmplifyConfig:
    own = ["llm.model=fake", "llm.structured=true", "seeds.packs=[customer_service]", "limits.backoff=0.01"]
    return load(AmplifyConfig, "amplify/default", [f"llm.base_url={endpoint.url}", *own, *settings])


async def start(conf: AmplifyConfig, runs: Path) -> Amplified:
    return await amplify(conf, runs=runs, name="r", say=lambda _: None)


def told(made: Amplified) -> list[dict[str, Any]]:
    return [t.model_dump(exclude={"usage"}) for t in made.trajectories()]


def items(runs: Path) -> list[Any]:
    run = Run.read_only(runs, "r")
    found = [(item.id, item.status, item.reason, item.detail) for item in run.ledger.items()]
    run.close()
    return found


async def test_the_results_are_those_of_one_process(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    alone = await start(config(endpoint, "n=80", "checkers=0"), tmp_path / "alone")
    beside = await start(config(endpoint, "n=80", "checkers=2"), tmp_path / "beside")
    assert told(alone) == told(beside)
    assert items(tmp_path / "alone")[:80] == items(tmp_path / "beside")[:80]
    assert {reason for _, _, reason, _ in items(tmp_path / "beside")} >= {"unknown_tool", "ungrounded_id"}


def of_a_run(conf: AmplifyConfig, runs: Path) -> tuple[Simulator, Any]:
    run = Run.read_only(runs, "r")
    job = {"config": conf.model_dump(mode="json"), "structured": True, "run": "r"}
    reply = run.ledger.recall(run.ledger.reply_keys("i000000")[0])
    run.close()
    return Simulator(conf, load_seeds(conf, None), structured=True, run_id="r"), (job, reply)


async def test_a_checker_that_is_killed_is_replaced(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    conf = config(endpoint, "n=3", "checkers=0")
    await start(conf, tmp_path)
    simulator, (job, reply) = of_a_run(conf, tmp_path)
    item = simulator.item(0)
    here = simulator.judge(item, reply, model="m", keys=["k"], files={})
    async with Checkers(tmp_path / "r", job, 1) as hands:
        asked = [asyncio.create_task(hands.check(item, reply, ["k"], {}, "m")) for _ in range(40)]
        await asyncio.sleep(0)
        os.kill(hands._hands[0]._process.pid, signal.SIGKILL)  # type: ignore[union-attr]
        for checked in await asyncio.wait_for(asyncio.gather(*asked), 240):
            assert (checked.content_hash, checked.signature, checked.tools) == (
                here.content_hash,
                here.signature,
                here.tools,
            )
            assert checked.body == here.body()


async def test_what_takes_too_long_is_given_up_and_the_rest_goes_on(
    endpoint: FakeEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = config(endpoint, "n=3", "checkers=0")
    await start(conf, tmp_path)
    simulator, (job, reply) = of_a_run(conf, tmp_path)
    item = simulator.item(0)
    async with Checkers(tmp_path / "r", job, 1) as hands:
        first = await hands.check(item, reply, ["k"], {}, "m")  # it is up
        monkeypatch.setattr(checkers, "SECONDS", 0.3)
        monkeypatch.setattr(checkers, "TRIES", 1)
        os.kill(hands._hands[0]._process.pid, signal.SIGSTOP)  # type: ignore[union-attr]
        stuck = asyncio.create_task(hands.check(item, reply, ["k"], {}, "m"))
        later = asyncio.create_task(hands.check(item, Reply(text="no"), ["k"], {}, "m"))
        gone = await asyncio.wait_for(stuck, 240)
        monkeypatch.setattr(checkers, "SECONDS", 240)
        assert [issue.code for issue in gone.issues] == [Code.INTERNAL]
        assert [issue.code for issue in (await asyncio.wait_for(later, 240)).issues] == [Code.UNPARSABLE]
        assert not first.issues


async def test_bodies_are_whole_trajectories(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    await start(config(endpoint, "n=5", "checkers=1"), tmp_path)
    run = Run.read_only(tmp_path, "r")
    bodies = list(run.ledger.accepted())
    run.close()
    assert len(bodies) == 5
    assert all(Trajectory.from_row(body["trajectory"]).tools for body in bodies)


@pytest.mark.attack("modules of our names in the working directory")
async def test_a_checker_imports_nothing_from_the_working_directory(
    endpoint: FakeEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "orjson.py").write_text("open('MARK', 'w')\n")
    monkeypatch.chdir(tmp_path)
    made = await start(config(endpoint, "n=4", "checkers=1"), tmp_path / "runs")
    assert len(list(made.trajectories())) == 4
    assert not (tmp_path / "MARK").exists()
