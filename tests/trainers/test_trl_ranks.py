"""GRPO in TRL on two ranks over a simulated world that never says the same twice: groups that are split over the ranks, a rank that is
killed, and what all ranks stop for."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from simia.trainers.groups import advantages
from simia.trainers.trl.resume import find_last_checkpoint
from tests.fake_endpoint import FakeEndpoint
from tests.trainers import lamps as packs
from tests.trainers.conftest import ROOT, Trainer

PROBE = Path(__file__).with_name("ranks_probe.py")
WAYS = ("rollout_func", "environment_factory")
NUMBERS = itertools.count()
EPS = 1e-4  # TRL's
TEMPLATE = """
import sys
from transformers import AutoTokenizer
from trl.chat_template_utils import qwen2_5_chat_template
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
tokenizer.chat_template = qwen2_5_chat_template
tokenizer.save_pretrained(sys.argv[1])
"""


def respond(body: dict[str, Any]) -> str:
    """For the fake endpoint: the lamps' computer, which numbers what it says."""
    said = json.loads(packs.respond(body))
    for answer in said.get("answers", []):
        answer["content"] = {"ok": True, "number": next(NUMBERS)}
    return json.dumps(said)


@dataclass
class Bench:
    """A configuration and two ways to start it: as a user does, and on two ranks with an account of what they trained on."""

    trl: Trainer
    root: Path
    endpoint: FakeEndpoint
    config: dict[str, Any] = field(default_factory=dict)

    def write(self, name: str, **grpo: Any) -> Path:
        path = self.root / f"{name}.yaml"
        config = {**self.config, "grpo": {**self.config["grpo"], "output_dir": str(self.root / name), **grpo}}
        path.write_text(yaml.safe_dump(config))
        return path

    def run(self, name: str, *, killed_at: int | None = None, **grpo: Any) -> tuple[int, str]:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        command = [self.trl.python, *launcher, PROBE, self.root / f"{name}.told", self.write(name, **grpo)]
        env = {**self.trl.env, "KILLED_AT": str(-1 if killed_at is None else killed_at)}
        done = subprocess.run(
            [str(part) for part in command], env=env, cwd=self.root, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        return done.returncode, done.stdout

    def told(self, name: str) -> list[list[dict[str, Any]]]:
        """What each rank trained on, batch by batch."""
        files = [(self.root / f"{name}.told.{rank}").read_text() for rank in (0, 1)]
        return [[json.loads(line) for line in text.splitlines()] for text in files]


@pytest.fixture
def bench(
    trl: Trainer, taught_model: Path, errands: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Bench]:
    endpoint = FakeEndpoint("--respond", "tests.trainers.test_trl_ranks:respond")
    model = tmp_path / "model-qwen"
    shutil.copytree(taught_model, model)
    trl.run("-c", TEMPLATE, model)  # one whose calls TRL can read
    config = {
        "model": str(model),
        "through": request.param,
        "stage": {
            "pack": str(errands),
            "backend": "simulated",
            "llm": {"kind": "openai", "base_url": endpoint.url, "model": "m"},
        },
        "grpo": {
            "per_device_train_batch_size": 2,
            "num_generations": 4,
            "max_completion_length": 96,
            "learning_rate": 1e-4,
            "save_steps": 1,
            "logging_steps": 1,
            "bf16": False,
            "use_cpu": True,
            "report_to": "none",
        },
    }
    yield Bench(trl, tmp_path, endpoint, config)
    endpoint.stop()


@pytest.mark.parametrize("bench", [WAYS[0], pytest.param(WAYS[1], marks=pytest.mark.all)], indirect=True)
def test_a_group_that_is_split_over_two_ranks_is_one_group(bench: Bench) -> None:
    bench.endpoint.plan(latency=0.2)  # both ranks ask before either is answered
    code, said = bench.run("split", max_steps=2, per_device_train_batch_size=4, num_generations=8, temperature=0.5)
    assert code == 0, said[-3000:]
    batches = list(zip(*bench.told("split"), strict=True))
    assert len(batches) == 2
    spread = shared = 0
    for ranks in batches:
        assert len({task for rank in ranks for task in rank["tasks"]}) == 1
        earned = [reward for rank in ranks for reward in rank["rewards"]]
        assert ranks[0]["gathered"] == ranks[1]["gathered"] == earned
        assert [a for rank in ranks for a in rank["advantages"]] == pytest.approx(advantages(earned, eps=EPS), abs=1e-4)
        spread += len(set(earned)) > 1
        heard = [first_answers(rank["texts"]) for rank in ranks]
        for call in heard[0].keys() & heard[1].keys():
            assert len(heard[0][call] | heard[1][call]) == 1, "the same call of one group, two answers"
            shared += 1
    assert spread, "no group in which anything could be learnt"
    assert shared, "the ranks never asked the same"
    replies = sorted(path.parent.name for path in (bench.root / "split" / "replies").glob("*/replies.db"))
    assert replies == ["0", "1"], "each rank keeps its own"


@pytest.mark.all
@pytest.mark.parametrize("bench", WAYS, indirect=True)
def test_a_rank_is_killed_and_the_run_goes_on_as_if_it_had_not_been(bench: Bench) -> None:
    """In the second epoch, whose order must not be the first one's. A third run finds all that these two were told, and so is what
    they would have been, undisturbed."""
    steps = {"max_steps": 6, "num_train_epochs": 9}  # four tasks, one a step
    code, said = bench.run("killed", killed_at=5, **steps)
    assert code != 0, said[-2000:]
    assert find_last_checkpoint(bench.root / "killed", print) == bench.root / "killed" / "checkpoint-5"
    halfway = bench.root / "killed" / "checkpoint-6"  # as a kill in the middle of the next one would leave it
    halfway.mkdir()
    (halfway / "trainer_state.json").write_text('{"epoch": 1.')
    asked = len(bench.endpoint.requests)
    code, said = bench.run("killed", **steps)
    assert code == 0, said[-3000:]
    assert said.count("checkpoint-6 is incomplete") == 1, "one rank says it"
    assert len(bench.endpoint.requests) == asked, "what was played is not paid for again"

    shutil.copytree(bench.root / "killed" / "replies", bench.root / "whole" / "replies")
    code, said = bench.run("whole", **steps)
    assert code == 0, said[-3000:]
    assert len(bench.endpoint.requests) == asked
    for killed, whole in zip(bench.told("killed"), bench.told("whole"), strict=True):
        assert killed[5] == killed[6], "the step that was cut off is played the same again"
        assert killed[:6] == whole
    weights = [(bench.root / name / "model.safetensors").read_bytes() for name in ("killed", "whole")]
    assert weights[0] == weights[1]

    code, said = bench.run("killed", **steps)
    assert code == 0, said[-3000:]
    assert said.count("finished at step 6, see") == 1
    assert "raise grpo.max_steps to go on" in said
    assert [len(rank) for rank in bench.told("killed")] == [7, 7], "and nothing is played"


@pytest.mark.all
@pytest.mark.parametrize("bench", WAYS, indirect=True)
def test_all_ranks_stop_when_the_budget_is_reached_and_one_says_so(bench: Bench) -> None:
    bench.config |= {"processes": 2}
    bench.config["stage"] |= {"limits": {"max_requests": 3}}
    env = {name: value for name, value in bench.trl.env.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", "simia", "train", "trl", str(bench.write("spent", max_steps=2))]
    done = subprocess.run(command, env=env, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr[-3000:]
    lines = [line for line in done.stderr.splitlines() if line.startswith("simia: ")]
    assert len(lines) == 1, lines
    assert re.search(r"step 1: \d of 4 episodes without a reward: budget reached: max_requests is 3", lines[0])
    assert "Traceback" not in done.stderr
    assert len(bench.endpoint.requests) == 3, "of both ranks together"


def first_answers(texts: list[str]) -> dict[str, set[str]]:
    """By an episode's first call: what the simulator said to it."""
    found = defaultdict(set)
    for text in texts:
        if answer := re.search(r'"number":\d+', text):
            found[text[: text.index("<tool_response>")]].add(answer[0])
    return found
