"""Rollouts, evaluations and trainings whose pack is an address: the tasks and the rewards come from the server."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("prometheus_client")

from simia.config import load_config
from simia.envs.config import EnvironmentConfig
from simia.envs.opening import load_tasks
from simia.envs.play.agent_kinds import AGENTS
from simia.envs.play.baseline_agents import ReferenceAgent
from simia.envs.remote.remote_pack import NEED_SOLUTIONS, refuse_server_settings
from simia.envs.text_episode import share_environment
from simia.errors import UserError
from simia.evaluation.scores import collect_rewards, read_episodes
from simia.evaluation.suites import load_suite, make_rollout_config
from simia.jobs import Run
from simia.rollouts.node_work import runs_code
from simia.rollouts.session import resume_rollout, rollout, start_rollout
from simia.rollouts.settings import RolloutConfig
from simia.trainers.concurrency import fit_concurrency
from simia.trainers.ragen.env import SimiaEnv
from simia.trainers.ragen.settings import SimiaEnvConfig
from simia.trainers.trl.start import launch
from simia.trainers.verl.start import make_stage_rows
from simia.trajectory import Trajectory
from tests.command import run_simia
from tests.fake_endpoint import FakeEndpoint
from tests.serve.environment_servers import PortalServer, served

TOKEN = "a-token-of-a-test-run"
LOOK = {"name": "get_order", "arguments": {"order_id": "ORD-20417", "email": "declan.obrien@example.com"}}


@pytest.fixture(scope="module")
def server() -> Iterator[PortalServer]:
    running = PortalServer({"pack": "customer_service", "user": "scripted"}, token=TOKEN)
    yield running
    running.close()


@pytest.fixture
def address(server: PortalServer, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SIMIA_TOKEN", TOKEN)
    return server.running.url


def read_trajectories(runs: Path, name: str) -> list[dict[str, Any]]:
    run = Run.read_only(runs, name)
    bodies = [run.ledger.result(item.id) for item in run.ledger.items()]
    run.close()
    rows = [Trajectory.from_row(body["trajectory"]).to_row() for body in bodies if body]
    return [{name: value for name, value in row.items() if name not in ("evidence", "provenance")} for row in rows]


async def test_a_rollout_at_an_address_is_the_rollout_of_the_pack(address: str, tmp_path: Path) -> None:
    chosen = {"agent": "random", "split": "test", "limit": 6, "group": 2, "seed": 5}
    await rollout({"pack": "customer_service", **chosen}, runs=tmp_path, name="here", settings={"user": "scripted"})
    done = await rollout({"pack": address, "token_env": "SIMIA_TOKEN", **chosen}, runs=tmp_path, name="there")
    assert done.complete
    here, there = (read_trajectories(tmp_path, name) for name in ("here", "there"))
    assert len(there) == 12
    assert there == here
    assert TOKEN not in "".join(path.read_text() for path in done.folder.glob("*.yaml"))


def respond(body: dict[str, Any]) -> str:
    """For the fake endpoint: an agent that looks an order up, and then says so."""
    last = str(body["messages"][-1]["content"])
    return "I have looked it up." if "<tool_response>" in last else f"<tool_call>\n{json.dumps(LOOK)}\n</tool_call>"


async def test_the_agents_model_is_this_machines_and_a_resume_goes_on(address: str, tmp_path: Path) -> None:
    endpoint = FakeEndpoint("--respond", f"{__name__}:respond")
    config = {
        "pack": address,
        "token_env": "SIMIA_TOKEN",
        "limit": 3,
        "llm": {"kind": "openai", "base_url": endpoint.url, "model": "m"},
        "limits": {"max_requests": 5},
        "concurrency": 1,
    }
    try:
        done = await rollout(config, runs=tmp_path, name="r")
        assert (done.stop.kind, len(endpoint.requests)) == ("budget", 5)
        done = await resume_rollout("r", runs=tmp_path, changes={"limits.max_requests": 500})
        asked = [json.dumps(request["body"], sort_keys=True) for request in endpoint.requests]
    finally:
        endpoint.stop()
    assert done.complete
    assert len(asked) == sum(
        message["role"] == "assistant" for row in read_trajectories(tmp_path, "r") for message in row["messages"]
    ), "no reply was asked for twice"
    assert all("get_order" in text for text in asked), "the policy and the tools of the server are in the prompt"


async def test_an_evaluation_plays_packs_of_servers_and_of_this_machine(tmp_path: Path) -> None:
    async with served() as running:
        packs = [{"pack": running.url, "name": "there"}, {"pack": "customer_service", "name": "here"}]
        settings = {"packs": packs, "agent": "nothing", "user": "scripted", "limit": 4, "split": "test"}
        config = RolloutConfig.model_validate(settings)
        done = await start_rollout(config, runs=tmp_path, name="both", say=lambda _: None)
        assert done.complete
    run = Run.read_only(tmp_path, "both")
    rewards = collect_rewards(read_episodes(run))
    run.close()
    assert {part: list(tasks.values()) for part, tasks in rewards.items()} == {
        "here": [[0.0], [0.0]],
        "there": [[0.0], [0.0]],
    }


def test_a_suite_leaves_the_servers_settings_to_it(server: PortalServer) -> None:
    said: list[str] = []
    config = make_rollout_config(load_suite("packs", packs=[server.running.url]), said.append)
    assert said == [
        "episode: the suite's values are ignored, since the server plays the episodes with its own settings"
    ]
    assert config.packs is not None
    assert [share.pack for share in config.packs] == [server.running.url]
    assert config.group == 4
    here = make_rollout_config(load_suite("packs", packs=["customer_service"]), said.append)
    assert here.episode.turns == 600
    assert len(said) == 1


def test_what_cannot_be_played_is_one_line(address: str, tmp_path: Path) -> None:
    for words, said in (
        (["--agent", "reference"], f"agent is reference, but {address} does not send the tasks' solutions"),
        (["--agent", "nothing", "--set", "user=scripted"], "user is a setting of the server: leave it out here"),
        (["--agent", "nothing", "--backend", "simulated"], "backend is a setting of the server"),
        (["--agent", "nothing"], "needs a token: name the variable that holds it in token_env"),
        (["--agent", "nothing", "--set", "token_env=NO_SUCH"], "no token: export NO_SUCH=…"),
        (["--agent", "nothing", "--set", "token_env=OTHER"], "refused the token: check the variable"),
    ):
        done = run_simia("rollout", address, *words, "--runs", tmp_path, env={"OTHER": "x" * 20, "NO_SUCH": None})
        assert done.returncode == 2, done.stderr
        [line] = done.stderr.splitlines()
        assert said in line
    gone = run_simia("rollout", "http://127.0.0.1:9/x", "--agent", "nothing", "--runs", tmp_path)
    assert gone.stderr.splitlines()[-1].endswith("is the server running?")
    assert not list(tmp_path.iterdir()), "nothing was begun"


def test_agents_that_play_the_solution_are_refused() -> None:
    plays = {name for name, agent in AGENTS.items() if isinstance(agent, type) and issubclass(agent, ReferenceAgent)}
    assert set(NEED_SOLUTIONS) == plays
    for name in NEED_SOLUTIONS:
        config = RolloutConfig.model_validate({"pack": "https://host/shop", "agent": name})
        with pytest.raises(
            UserError, match=f"^agent is {name}, but https://host/shop does not send the tasks' solutions"
        ):
            refuse_server_settings(config)


async def test_rewards_of_a_server_are_not_computed_again(address: str, tmp_path: Path) -> None:
    config = {"pack": address, "token_env": "SIMIA_TOKEN", "agent": "nothing", "limit": 1}
    await rollout(config, runs=tmp_path, name="r")
    done = run_simia("runs", "recheck", "r", "--runs", tmp_path)
    assert done.returncode == 2
    assert f"run r was scored by {address}, which keeps the tasks' solutions" in done.stderr


def test_a_dry_run_of_trl_over_an_address(address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stage = {"pack": address, "token_env": "SIMIA_TOKEN", "split": "train"}
    grpo = {"output_dir": str(tmp_path / "out"), "max_steps": 3, "num_generations": 4, "per_device_train_batch_size": 4}
    (tmp_path / "there.yaml").write_text(yaml.safe_dump({"model": "m", "stage": stage, "grpo": grpo}))
    done = run_simia("train", "trl", tmp_path / "there.yaml", "--dry-run", env={"SIMIA_CACHE": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert "of customer_service, split train (remote)" in done.stdout
    assert f"training: 12 episodes on 54 tasks of customer_service; {address} keeps the solutions" in done.stdout
    assert "price: what the server pays is not known here" in done.stdout
    for change, said in (
        ({"stage.user": "scripted"}, "user is a setting of the server"),
        ({"through": "environment_factory"}, "must know whether a user answers, which a server does not tell"),
        ({"stage.token_env": None}, "needs a token"),
    ):
        with pytest.raises(UserError, match=said):
            launch(tmp_path / "there.yaml", change, dry_run=True)


def test_ragen_and_verl_play_an_address(address: str) -> None:
    stage = {"pack": address, "token_env": "SIMIA_TOKEN"}
    env = SimiaEnv(SimiaEnvConfig(stage=EnvironmentConfig.model_validate(stage)))
    try:
        assert env.reset(seed=7)
        _, reward, done, _ = env.step(f"<tool_call>\n{json.dumps(LOOK)}\n</tool_call>")
        assert (reward, done) == (0.0, False)
    finally:
        env.close()
    rows = make_stage_rows(EnvironmentConfig.model_validate(stage), "test")
    assert [row["data_source"] for row in rows] == ["customer_service"] * 24
    lease = share_environment(stage, store=Path("replies"))
    lease.close()
    assert not Path("replies").exists(), "the server keeps its models' replies"


def test_the_pace_of_a_servers_models_is_the_servers(address: str) -> None:
    stage = EnvironmentConfig(pack=address, token_env="SIMIA_TOKEN")
    assert fit_concurrency(stage, 300) == []
    assert load_tasks(stage)[0].name == "customer_service", "the concurrency was not set: it would be refused"
    assert not runs_code(load_config(RolloutConfig, "rollout/default", pack=address))
    assert runs_code(load_config(RolloutConfig, "rollout/default"))


async def test_a_token_is_not_sent_unencrypted_without_a_word(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SIMIA_TOKEN", TOKEN)
    with caplog.at_level(logging.WARNING), pytest.raises(UserError, match="cannot be reached"):
        await rollout({"pack": "http://simia.invalid/x", "token_env": "SIMIA_TOKEN", "agent": "nothing"})
    assert "the token for simia.invalid is sent unencrypted" in caplog.text
