"""What a synthesis writes is used: a pack becomes seeds, amplified data, rollouts, a simulated world, an export and a step of GRPO.

Every function takes any pack folder. Here it is the pack that the recipe EnvScaler writes from hand-written replies.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from simia.amplification.seeds import load_seed_packs
from simia.amplification.settings import SeedSettings
from simia.jobs import Run
from simia.jobs.run import iterate_accepted
from simia.pack import Pack
from simia.quality.check import Checks
from simia.search_path import cache_root
from simia.trajectory import Trajectory
from simia.venvs import make_python_path
from tests.command import run_simia
from tests.fake_endpoint import FakeEndpoint
from tests.replies import follow_plan
from tests.synthesis.test_envscaler import synthesize
from tests.trainers.conftest import Trainer
from tests.trainers.test_llamafactory_trainer import PROBE, expected
from tests.trainers.test_trl_train import train

TINY_MODEL = Path(__file__).parents[1] / "trainers" / "tiny_model.py"
NEEDED = re.compile(r"It may well need: ([\w, ]+)\.")
AMPLIFIED = 4


def respond(body: dict[str, Any]) -> str:
    """For the fake endpoint: a conversation that makes the calls that the prompt asks for."""
    asked = str(body["messages"][-1]["content"])
    number = int.from_bytes(hashlib.blake2b(asked.encode(), digest_size=8).digest())
    found = NEEDED.search(asked)
    assert found is not None, asked
    return follow_plan(body, found[1].split(", "), number)


def simia(folder: Path, *words: str | Path) -> str:
    done = run_simia(*words, cwd=folder)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


def name_endpoint(endpoint: FakeEndpoint) -> list[str]:
    return ["--set", "llm.kind=openai", "--set", f"llm.base_url={endpoint.url}", "--set", "llm.model=m"]


@contextlib.contextmanager
def serve(responder: str) -> Iterator[FakeEndpoint]:
    endpoint = FakeEndpoint("--respond", responder)
    try:
        yield endpoint
    finally:
        endpoint.stop()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a synthesized pack. A recorded pack can replace it."""
    with pytest.MonkeyPatch.context() as patch:
        done = synthesize(tmp_path_factory.mktemp("synthesized"), patch)
    assert done.stop.kind == "complete", done.stop
    return done.packs[0]


@pytest.fixture(scope="module")
def recorded(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the pack with its references and seeds, in a folder for runs."""
    folder = tmp_path_factory.mktemp("used") / "pack"
    shutil.copytree(written, folder)
    simia(folder.parent, "pack", "record", folder)
    return folder


@pytest.fixture(scope="module")
def amplified(recorded: Path) -> list[Trajectory]:
    """What amplification makes of the pack's own seeds, in the run `amplified`."""
    words = ["--config", "amplify/default", "--n", str(AMPLIFIED), "--name", "amplified"]
    with serve("tests.e2e.test_synthesized_pack:respond") as endpoint:
        simia(recorded.parent, "amplify", "--seeds", recorded, *words, *name_endpoint(endpoint))
    return list(iterate_accepted(recorded.parent / "runs" / "amplified", partial=False))


def test_the_pack_is_valid_and_its_tasks_pass_the_gate(recorded: Path) -> None:
    pack = Pack.load(recorded)
    assert "is valid" in simia(recorded.parent, "pack", "validate", recorded)
    gate = json.loads(simia(recorded.parent, "pack", "gate", recorded, "--json"))
    assert gate["tasks"] == gate["passed"] == len(pack.tasks) > 0
    assert gate["floors"]["nothing"] == 0
    report = simia(recorded.parent, "pack", "report", recorded)
    assert re.search(rf"^tasks +{len(pack.tasks)} ", report, re.M)
    assert all(re.search(rf"^{tool.name} ", report, re.M) for tool in pack.tools)


def test_its_solutions_are_its_references_and_seeds(recorded: Path) -> None:
    pack = Pack.load(recorded)
    assert set(pack.references) == {task.id for task in pack.tasks}
    assert [seed.task_id for seed in pack.seeds] == [task.id for task in pack.tasks if "variant_of" not in task.extra]
    read = load_seed_packs(SeedSettings(packs=[str(recorded)]), Checks())
    assert not read.refused, "no seed names a key that its agent cannot know"
    assert all(each.reward and each.reward.value == 1 for each in pack.references.values())


def test_the_user_of_a_conversation_tells_every_fact(recorded: Path) -> None:
    pack = Pack.load(recorded)
    talks = [task for task in pack.tasks if task.conversation is not False]
    assert talks
    for task in talks:
        told = " ".join(m.text for m in pack.references[task.id].messages if m.role == "user")
        assert all(fact in told for fact in [*task.knows, *(each.fact for each in task.withheld)]), task.id


def test_its_seeds_are_amplified(recorded: Path, amplified: list[Trajectory]) -> None:
    tools = {tool.name for tool in Pack.load(recorded).tools}
    assert len(amplified) == AMPLIFIED
    assert all(call.name in tools for each in amplified for _, _, call in each.calls())
    assert all(list(each.calls()) for each in amplified)
    assert len({each.id for each in amplified}) == AMPLIFIED


def test_the_reference_earns_1_and_doing_nothing_0(recorded: Path) -> None:
    for agent, mean in (("reference", "1.000"), ("nothing", "0.000")):
        played = simia(recorded.parent, "rollout", recorded, "--agent", agent, "--name", agent)
        assert re.search(rf"mean reward\D+{re.escape(mean)}\D", played), played


def test_its_world_is_simulated_and_compared(recorded: Path) -> None:
    with serve("tests.replies:stage") as endpoint:
        simia(recorded.parent, "fidelity", recorded, *name_endpoint(endpoint))
        words = ["--backend", "simulated", "--agent", "reference", "--limit", "1", "--name", "simulated"]
        llm = name_endpoint(endpoint)
        played = simia(recorded.parent, "rollout", recorded, *words, *llm)
        assert endpoint.requests
    assert "1 episode of 1 task, 1 scored" in played
    pack = Pack.load(recorded)
    figures = json.loads(next((recorded.parent / "runs").glob("fidelity-*/fidelity.json")).read_text())
    assert {each["knows"] for each in figures["rows"]} == {"schema", "reference", "state", "code"}
    calls = sum(len(task.actions) for task in pack.tasks)
    assert all(each["calls"] == calls for each in figures["rows"]), figures["rows"]


@pytest.mark.all
def test_llamafactory_reads_the_export(
    recorded: Path, amplified: list[Trajectory], environments: Callable[[str], Path], tmp_path: Path
) -> None:
    out = tmp_path / "data"
    said = simia(recorded.parent, "export", "amplified", "--to", "llamafactory", "--out", out)
    assert said.startswith(f"{AMPLIFIED} rows from {AMPLIFIED} of {AMPLIFIED} trajectories")
    chats = expected(amplified, "whole", False, "qwen")
    (out / "expected").write_text("".join(json.dumps(row) + "\n" for row in chats), encoding="utf-8")
    (tmp_path / "jobs.json").write_text(json.dumps([{"name": "pack", "folder": str(out)}]), encoding="utf-8")
    trainer = Trainer(environments("llamafactory"), tmp_path)
    trainer.run(TINY_MODEL, tmp_path / "tiny-qwen", recorded / "tasks.jsonl")
    trainer.run(PROBE, tmp_path / "jobs.json", tmp_path / "tiny-qwen", tmp_path / "answer.json")
    answer = json.loads((tmp_path / "answer.json").read_text(encoding="utf-8"))["pack"]
    assert len(answer["rows"]) == AMPLIFIED
    for got, want in zip(answer["rows"], chats, strict=True):
        assert got["system"] == want["system"]
        assert json.loads(got["tools"]) == [tool["function"] for tool in want["tools"]]
        assert got["trained"] == want["trained"]
        assert got["trained_as_written"]


@pytest.mark.all
def test_a_step_of_grpo_on_it(recorded: Path, environments: Callable[[str], Path], tmp_path: Path) -> None:
    trl = Trainer(environments("trl"), tmp_path)
    trl.env["PYTHONPATH"] = make_python_path(trl.python, say=print)
    trl.env["SIMIA_CACHE"] = str(cache_root())
    model = tmp_path / "tiny-qwen"
    trl.run(TINY_MODEL, model, recorded / "tasks.jsonl", recorded / "references.jsonl")
    config = {
        "model": str(model),
        "stage": {"pack": str(recorded), "episode": {"turns": 3}},
        "max_turn_tokens": 24,
        "episodes": {"run": str(tmp_path / "episodes")},
        "grpo": {
            "output_dir": str(tmp_path / "out"), "max_steps": 1, "per_device_train_batch_size": 4, "num_generations": 2,
            "max_completion_length": 300, "save_steps": 1, "logging_steps": 1, "bf16": False, "use_cpu": True,
            "report_to": "none",
        },
    }  # fmt: skip
    (tmp_path / "grpo.yaml").write_text(yaml.safe_dump(config))
    assert "GRPO of" in train(trl, tmp_path / "grpo.yaml")
    logged = json.loads((tmp_path / "out" / "checkpoint-1" / "trainer_state.json").read_text())["log_history"]
    assert any("rewards/environment_reward/mean" in row for row in logged)
    assert (tmp_path / "out" / "checkpoint-1" / "model.safetensors").stat().st_size > 1_000_000
    with contextlib.closing(Run.read_only(tmp_path, str(tmp_path / "episodes"))) as run:
        bodies = [run.ledger.result(item.id) for item in run.ledger.items()]
    played = [Trajectory.from_row(body["trajectory"]) for body in bodies if body is not None]
    assert len(played) == 4
    assert all(each.reward is not None for each in played)
