"""`simia train trl` with a policy that vLLM samples: a real server on a CPU by the documented line, a tiny model, three steps.

Only TRL's NCCL transport of weights is replaced (vllm_probe.py), since it needs a GPU."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.trainers.conftest import ROOT, Trainer
from tests.trainers.test_trl_grpo import spans

PROBE = Path(__file__).with_name("vllm_probe.py")
DOCS = (ROOT / "docs" / "vllm.md").read_text()
CPU = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "3000",  # on a busy machine the first reply waits for compiled kernels
    "TORCHDYNAMO_DISABLE": "1",
    "HF_HUB_OFFLINE": "1",
}

pytestmark = pytest.mark.all


@contextmanager
def serve(python: Path, model: Path, log: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start a server by the line of docs/vllm.md for a policy, less what needs a GPU."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    (line,) = re.findall(r"^VLLM_SERVER_DEV_MODE=1 vllm serve MODEL (.*)$", DOCS, re.M)
    words = shlex.split(line)
    at = words.index("--weight-transfer-config")
    del words[at : at + 2]
    words[words.index("--port") + 1] = port
    words[words.index("--max-model-len") + 1] = "2048"
    command = [
        python,
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        model,
        "--enforce-eager",
        "--dtype",
        "float32",
        *words,
    ]
    with log.open("wb") as out:
        environment = os.environ | CPU | {"PATH": f"{python.parent}:{os.environ['PATH']}"}
        child = subprocess.Popen([str(word) for word in command], env=environment, stdout=out, stderr=out)
    try:
        for _ in range(600):
            assert child.poll() is None, log.read_text()[-3000:]
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).read()
                break
            except OSError:
                time.sleep(1)
        yield f"http://127.0.0.1:{port}", child
    finally:
        child.terminate()
        child.wait(60)


@pytest.fixture(scope="module")
def policy(trl: Trainer, taught_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Untied: vLLM on a CPU keeps a copy of the output layer, which a reload of tied weights leaves as it was."""
    out = tmp_path_factory.mktemp("models") / "untied-qwen"
    trl.run(Path(__file__).with_name("untie.py"), taught_model, out)
    return out


@pytest.fixture(scope="module")
def server(
    environments: Callable[[str], Path], policy: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    log = tmp_path_factory.mktemp("served") / "vllm.log"
    with serve(environments("vllm"), policy, log) as (url, _):
        yield url


def train(
    trl: Trainer, model: Path, pack: Path, url: str, work: Path, *, sync: bool = True, **grpo: Any
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Return how `simia train trl` ended, and its account."""
    work.mkdir(exist_ok=True)
    settings = {
        "output_dir": str(work / "out"),
        "max_steps": 3,
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 256,
        "learning_rate": 2e-3,
        "lr_scheduler_type": "constant",
        "temperature": 0.7,
        "logging_steps": 1,
        "save_strategy": "no",
        "bf16": False,
        "use_cpu": True,
        "gradient_checkpointing": False,
        "report_to": "none",
        "use_vllm": True,
        "vllm_mode": "server",
        "vllm_server_base_url": url,
        "vllm_server_timeout": 1,
    }
    config = {"model": str(model), "stage": {"pack": str(pack), "user": "scripted"}, "grpo": settings | grpo}
    (work / "grpo.yaml").write_text(yaml.safe_dump(config))
    (work / "weights").mkdir(exist_ok=True)
    (work / "weights" / "config.json").write_bytes((model / "config.json").read_bytes())
    out = work / "told.json"
    command = [trl.python, PROBE, out, work / "weights" if sync else "never", work / "grpo.yaml"]
    done = subprocess.run(
        [str(word) for word in command], env=trl.env, capture_output=True, text=True, timeout=600, check=False
    )
    return done, json.loads(out.read_text()) if out.exists() else {}


@pytest.fixture(scope="module", autouse=True)
def client(environments: Callable[[str], Path], trl: Trainer, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What TRL's client of vLLM imports and TRL's environment lacks: requests, from vLLM's environment."""
    folder = tmp_path_factory.mktemp("client")
    packages = environments("vllm").parent.parent.glob("lib/python*/site-packages")
    for installed in packages:
        for name in ("requests", "urllib3", "charset_normalizer", "certifi"):
            (folder / name).symlink_to(installed / name)
    trl.env["PYTHONPATH"] = os.pathsep.join([trl.env["PYTHONPATH"], str(folder)])


@pytest.fixture(scope="module")
def told(
    trl: Trainer, policy: Path, lamps: Path, server: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    done, account = train(trl, policy, lamps, server, tmp_path_factory.mktemp("vllm") / "run")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return account


def test_what_is_trained_is_what_vllm_sampled(told: dict[str, Any]) -> None:
    assert len(told["rolled"]) == 3
    turns = 0
    for rows, replies, batch in zip(told["rolled"], told["replies"], told["batches"], strict=True):
        sampled: dict[Any, list[list[float]]] = {}
        for context, ids, logprobs in replies:
            sampled.setdefault((tuple(context), tuple(ids)), []).append(logprobs)
        for i, (prompt, ids, mask) in enumerate(
            zip(rows["prompt_ids"], rows["completion_ids"], rows["env_mask"], strict=True)
        ):
            assert batch["prompts"][i] == prompt
            assert batch["completions"][i] == ids
            assert batch["trained"][i] == [[at, ids[at]] for at, trained in enumerate(mask) if trained]
            for start, end in spans(mask):
                assert rows["logprobs"][i][start:end] in sampled[tuple(prompt + ids[:start]), tuple(ids[start:end])]
                turns += 1
    assert turns > 3 * 8


def test_vllm_samples_with_the_weights_that_are_trained(told: dict[str, Any]) -> None:
    """The trainer's model gives each sampled id the log-probability that the server reported, in every step."""
    assert told["sent"] == 3
    assert max(told["gaps"]) < 1e-3
    logged = [row for row in told["logs"] if "loss" in row]
    assert [row["sampling/sampling_logp_difference/max"] < 1e-3 for row in logged] == [True] * 3
    assert any(row["grad_norm"] > 0 for row in logged)
    values = {value for rows in told["rolled"] for value in rows["reward"]}
    assert len(values) > 1


def test_a_server_with_other_weights_ends_the_run(
    trl: Trainer, policy: Path, lamps: Path, server: str, told: dict[str, Any], tmp_path: Path
) -> None:
    """It still has the weights of the run before, and is sent none."""
    done, account = train(trl, policy, lamps, server, tmp_path, sync=False, max_steps=6, learning_rate=2e-2)
    assert done.returncode == 2
    assert account["sent"] < 6
    assert re.search(
        r"simia: step \d+: the vLLM server's log-probabilities are \S+ a token from the trainer's", done.stderr
    )


def test_another_model_is_one_line(trl: Trainer, policy: Path, lamps: Path, server: str, tmp_path: Path) -> None:
    other = tmp_path / "other-qwen"
    trl.run(ROOT / "tests" / "trainers" / "tiny_model.py", other, ROOT / "README.md")
    done, _ = train(trl, other, lamps, server, tmp_path, sync=False)
    assert done.returncode == 2
    assert re.search(r"simia: http\S+ serves '\S+' with another tokenizer than the trainer's", done.stderr)


def test_without_a_server_it_is_one_line(trl: Trainer, policy: Path, lamps: Path, tmp_path: Path) -> None:
    done, _ = train(trl, policy, lamps, "http://127.0.0.1:9", tmp_path)
    assert done.returncode == 2
    assert re.search(r"simia: vLLM: The vLLM server can't be reached at http://127.0.0.1:9", done.stderr)


def test_a_cpu_cannot_send_weights(trl: Trainer, policy: Path, lamps: Path, tmp_path: Path) -> None:
    """`simia train trl` itself, where TRL's environment has no vLLM: TRL's own line, and no traceback."""
    (tmp_path / "grpo.yaml").write_text(
        yaml.safe_dump(
            {
                "model": str(policy),
                "stage": {"pack": str(lamps), "user": "scripted"},
                "grpo": {
                    "output_dir": str(tmp_path / "out"),
                    "per_device_train_batch_size": 8,
                    "use_vllm": True,
                    "vllm_mode": "server",
                    "use_cpu": True,
                    "bf16": False,
                    "report_to": "none",
                },
            }
        )
    )
    command = [str(trl.python), "-m", "simia.trainers.trl.train", str(tmp_path / "grpo.yaml")]
    done = subprocess.run(command, env=trl.env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert "simia: vLLM: vLLM is not available and `use_vllm` is set to True" in done.stderr
    assert "Traceback" not in done.stderr
