"""Work over several nodes: every reply that any worker stored is in the run once and asked for once, whatever is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from simia.amplification.session import start_amplification
from simia.amplification.settings import AmplifyConfig
from simia.errors import Code, UserError
from simia.jobs.nodes import node_worker, ray_launcher
from simia.jobs.nodes.cluster import Cluster
from simia.jobs.nodes.messages import Message, decode_error, encode_error
from simia.jobs.nodes.settings import ClusterSettings
from simia.jobs.nodes.worker_channel import NodeLost
from simia.llm.embedded import EmbeddedSettings
from simia.llm.engine import BudgetReached
from simia.llm.openai_settings import OpenAISettings
from simia.llm.types import LLMFault, Reply
from tests.fake_endpoint import FakeEndpoint
from tests.jobs.loopback import Loopback, WordJob, wait_until

WORDS = [f"word{n}" for n in range(12)]
MADE = [f"echo: {word} 0, echo: {word} 1" for word in WORDS]


def is_reply(message: Message) -> bool:
    """Check for the answer to `complete`."""
    return message[0] == "done" and isinstance(message[2][0], tuple) and isinstance(message[2][0][0], Reply)


class LosesNth:
    """Loses the worker that would send the n-th reply, for each n that is given."""

    def __init__(self, *numbers: int) -> None:
        self._numbers, self._seen = numbers, 0

    def __call__(self, message: Message) -> bool:
        self._seen += is_reply(message)
        return is_reply(message) and self._seen in self._numbers


async def test_results_are_made_on_nodes_and_replies_are_in_the_run(
    tmp_path: Path, fake_endpoint: FakeEndpoint
) -> None:
    async with WordJob(tmp_path, fake_endpoint.url, Loopback("a", "b")) as job:
        assert await job.make(*WORDS) == MADE
        assert job.run.ledger.spent()[1] == {"got": 24}
        assert job.run.ledger.spent()[0].cost is not None
    assert fake_endpoint.log()["count"] == 24
    assert not list((tmp_path / "stores").iterdir())
    assert job.said == ["2 workers on 2 nodes: a, b"]


@pytest.mark.parametrize("numbers", [(1,), (7, 12), (24,)])
async def test_a_reply_that_a_lost_worker_stored_is_not_asked_for_again(
    tmp_path: Path, fake_endpoint: FakeEndpoint, numbers: tuple[int, ...]
) -> None:
    launcher = Loopback("a", "b", loses=LosesNth(*numbers))
    async with WordJob(tmp_path, fake_endpoint.url, launcher, start=1, concurrency=1) as job:
        assert await job.make(*WORDS) == MADE
        assert job.run.ledger.spent()[1] == {"got": 24}
    assert fake_endpoint.log()["count"] == 24, "one request at a time: each loss was of a stored reply"
    assert len(launcher.workers) == 2 + len(numbers)
    assert not list((tmp_path / "stores").iterdir())


async def test_the_replies_of_a_killed_job_are_merged_once_as_answers_of_their_attempts(
    tmp_path: Path, fake_endpoint: FakeEndpoint
) -> None:
    launcher = Loopback("a", loses=is_reply)
    job = WordJob(tmp_path, fake_endpoint.url, launcher, start=4)
    await job.__aenter__()
    work = asyncio.create_task(job.make(*WORDS[:4]))
    await wait_until(lambda: len(launcher.workers) > 1)  # the first one has stored replies, and is lost with them
    launcher.nodes.clear()
    for worker in launcher.workers:
        worker.kill()
    await work
    sent = fake_endpoint.log()["count"]
    job.run.close()

    async with WordJob(tmp_path, fake_endpoint.url, Loopback("a")) as again:
        merged = int(again.said[-1].split()[0])
        assert merged > 0
        assert again.run.ledger.spent()[1]["got"] == merged
        assert again.run.ledger.spent()[0].cost is not None
        assert await again.make(*WORDS) == MADE
        assert again.run.ledger.spent()[1]["got"] == 24
    assert fake_endpoint.log()["count"] - sent == 24 - merged


async def test_without_a_node_the_job_ends_with_a_line_that_says_so(
    tmp_path: Path, fake_endpoint: FakeEndpoint
) -> None:
    launcher = Loopback("a", loses=is_reply)
    async with WordJob(tmp_path, fake_endpoint.url, launcher) as job:
        launcher.nodes.clear()
        found = await job.make(*WORDS[:2])
    assert [str(each).partition(":")[0] for each in found] == ["all workers were lost"] * 2


async def test_a_budget_is_one_over_all_nodes(tmp_path: Path, fake_endpoint: FakeEndpoint) -> None:
    async with WordJob(tmp_path, fake_endpoint.url, Loopback("a", "b", "c"), max_requests=9) as job:
        found = await job.make(*WORDS)
    assert sum(isinstance(each, BudgetReached) for each in found) >= 8
    assert {str(each) for each in found if isinstance(each, Exception)} == {
        "budget reached: max_requests is 9 and 9 is spent; raise max_requests and resume to go on"
    }
    assert fake_endpoint.log()["count"] == 9


async def test_retries_and_faults_are_those_of_the_jobs_engine(tmp_path: Path, fake_endpoint: FakeEndpoint) -> None:
    fake_endpoint.plan(each=["500", "429:10ms"])
    async with WordJob(tmp_path, fake_endpoint.url, Loopback("a", "b"), backoff=0.01) as job:
        assert await job.make(*WORDS) == MADE
        assert job.engine.stats.retries == {Code.SERVER_ERROR: 24, Code.RATE_LIMITED: 24}
    fake_endpoint.plan(each=["400"])
    async with WordJob(tmp_path, fake_endpoint.url, Loopback("a")) as job:
        (fault,) = await job.make("another")
    assert isinstance(fault, LLMFault)
    assert (fault.code, fault.status, fault.retry) == (Code.BAD_REQUEST, 400, False)


async def test_a_cancelled_item_cancels_its_request(tmp_path: Path, fake_endpoint: FakeEndpoint) -> None:
    fake_endpoint.plan(script=["stall"])
    async with WordJob(tmp_path, fake_endpoint.url, Loopback("a")) as job:
        work = asyncio.create_task(job.cluster.produce("slow"))
        await wait_until(lambda: fake_endpoint.log()["in_flight"] > 0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        await wait_until(lambda: not job.engine.gate.in_flight and not fake_endpoint.log()["in_flight"])


async def test_a_node_with_another_version_is_named(
    tmp_path: Path, fake_endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(Loopback("a"), ClusterSettings(kind="ray"), lambda line: None)
    real = Loopback.start_worker

    async def start_worker(self: Loopback, node_id: str, node: str) -> Any:
        monkeypatch.setattr(node_worker, "__version__", "0.0.1")
        return await real(self, node_id, node)

    monkeypatch.setattr(Loopback, "start_worker", start_worker)
    with pytest.raises(
        UserError, match=r"^node a: this node has simia 0\.0\.1 .* install the same versions on all nodes"
    ):
        await cluster.open_models({"writer": OpenAISettings(base_url=fake_endpoint.url, model="fake")})


async def test_a_node_without_a_sandbox_is_named_before_work_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise UserError("this pack's code must run in a sandbox and there is none")

    monkeypatch.setattr(node_worker, "require_isolation", refuse)
    settings = ClusterSettings(kind="ray")
    with pytest.raises(UserError, match=r"^node b: this pack's code must run in a sandbox"):
        await Cluster(Loopback("b"), settings, lambda line: None, needs_sandbox=True).open_models({})
    assert await Cluster(Loopback("b"), settings, lambda line: None).open_models({}) == {}


async def test_a_node_whose_worker_is_lost_while_it_starts_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lose(*_: Any) -> Any:
        raise NodeLost

    monkeypatch.setattr(node_worker.NodeWorker, "start", lose)
    with pytest.raises(UserError, match=r"^node a: a worker ended while it started: see Ray's logs on that node$"):
        await Cluster(Loopback("a"), ClusterSettings(kind="ray"), lambda line: None).open_models({})


async def test_one_worker_is_not_counted_as_several() -> None:
    said: list[str] = []
    await Cluster(Loopback("a"), ClusterSettings(kind="ray"), said.append).open_models({})
    assert said == ["1 worker on 1 node: a"]


async def test_a_taken_name_is_refused_before_workers_start(tmp_path: Path) -> None:
    """No cluster is there, so a later check would name the cluster."""
    endpoint = FakeEndpoint("--respond", "tests.replies:trajectory")
    try:
        llm = {"kind": "openai", "base_url": endpoint.url, "model": "fake"}
        data = {"n": 2, "llm": llm, "seeds": {"packs": ["customer_service"]}}
        done = await start_amplification(AmplifyConfig.model_validate(data), runs=tmp_path, name="one")
        assert done.stop.kind == "complete"
    finally:
        endpoint.stop()
    nodes = {**data, "engine": {"kind": "ray", "address": "127.0.0.1:1"}}
    with pytest.raises(UserError, match=r"(?i)ray"):  # complete, if the seeds are still the same: known later
        await start_amplification(AmplifyConfig.model_validate(nodes), runs=tmp_path, name="one")
    with pytest.raises(UserError, match=r"one exists: `simia runs show one` shows its progress"):
        await start_amplification(AmplifyConfig.model_validate({**nodes, "n": 3}), runs=tmp_path, name="one")


@pytest.mark.parametrize(
    "printed",
    [
        "ray.exceptions.AuthenticationError: RPC error: InvalidAuthToken: Authentication token is missing or incorrect.",
        "authentication_token_loader.cc:115: Token authentication is enabled but Ray couldn't find an authentication token.",
    ],
)
def test_a_refused_token_is_not_a_cluster_that_does_not_answer(printed: str) -> None:
    line = ray_launcher.explain_no_cluster("10.0.0.1:6379", f"Traceback (most recent call last):\n{printed}")
    assert line.startswith("engine.address=10.0.0.1:6379: the Ray cluster refuses this shell's token")
    assert "export RAY_AUTH_MODE=token" in line


def test_a_cluster_that_does_not_answer_is_named() -> None:
    line = ray_launcher.explain_no_cluster("auto", "ConnectionError: Could not find any running Ray instance.\nTry …")
    assert line.startswith(
        "engine.address=auto: no Ray cluster answers (Could not find any running Ray instance.): start"
    )


def test_a_node_without_simia_is_told_from_a_lost_worker() -> None:
    error = (
        "The actor died because of an error raised in its creation task, ray::NodeWorker.__init__() (pid=9974, ip=10.0.0.2)\n"
        "RuntimeError: The actor with name NodeWorker failed to import on the worker. This may be because needed library "
        "dependencies are not installed in the worker environment:\n\nModuleNotFoundError: No module named 'simia'"
    )
    assert ray_launcher.explain_no_import("10.0.0.2", error) == (
        "node 10.0.0.2: simia cannot be imported there (ModuleNotFoundError: No module named 'simia'): install the same version of simia "
        "in the Python environment that runs `ray start`"
    )
    assert ray_launcher.explain_no_import("10.0.0.2", "The actor died unexpectedly before finishing this task.") is None


async def test_a_cluster_that_stays_silent_ends_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ray status` of this stand-in waits as Ray's does at a wrong port."""
    scripts = tmp_path / "ray" / "scripts"
    scripts.mkdir(parents=True)
    (scripts / "scripts.py").write_text("import time\ntime.sleep(60)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(ray_launcher, "ANSWERING", 0.5)
    with pytest.raises(UserError, match=r"^engine\.address=a:6380: no Ray cluster answers \(no answer within 0\.5 s\)"):
        await asyncio.wait_for(ray_launcher.try_cluster("a:6380"), 20)


async def test_models_that_nodes_cannot_ask_are_refused() -> None:
    cluster = Cluster(Loopback("a"), ClusterSettings(kind="ray", nodes=2), lambda line: None)
    with pytest.raises(UserError, match="the model of writer has kind embedded: a cluster needs an endpoint"):
        await cluster.open_models({"writer": EmbeddedSettings()})
    with pytest.raises(UserError, match=r"engine\.nodes is 2, and the cluster has 1 node with 1 CPUs"):
        await cluster.open_models({})


def test_errors_keep_what_callers_read() -> None:
    fault = LLMFault(Code.RATE_LIMITED, "slow down", retry=True, retry_after=2.5, status=429)
    fault.elsewhere = True
    found = decode_error(encode_error(fault))
    assert isinstance(found, LLMFault)
    assert vars(found) == vars(fault)
    reached = BudgetReached("max_cost", 2, 1.5, 0.25, " by all")
    again = decode_error(encode_error(reached))
    assert isinstance(again, BudgetReached)
    assert (str(again), again.cap, again.held) == (str(reached), "max_cost", 0.25)
    assert isinstance(decode_error(encode_error(asyncio.CancelledError())), asyncio.CancelledError)
    assert str(decode_error(encode_error(KeyError("x")))) == "KeyError: 'x'"
