"""verl for real, on a CPU: its own GRPO trainer for two steps over an executable world, its agent loop worker and its replay buffer with
a policy that fails on purpose and with a simulated world, and its own checks of our recipes.

`python -m verl.trainer.main_ppo` is run as `launch` says it; what a GPU would bring (platform and engine) comes in by verl's own
extension points (verl_probe.py).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from simia.search_path import cache_root, data_root
from simia.trainers.groups import advantages
from simia.trainers.launch import Launch
from simia.trainers.verl import launch
from simia.venvs import make_python_path
from tests.fake_endpoint import FakeEndpoint
from tests.trainers.conftest import Trainer

HERE = Path(__file__).parent
N = 4  # episodes of a group
CONFIG: dict[str, Any] = {
    "data": {
        "train_batch_size": 2,
        "max_prompt_length": 600,
        "max_response_length": 300,
        "dataloader_num_workers": 0,
        "seed": 0,
    },
    "algorithm": {"adv_estimator": "grpo", "use_kl_in_reward": False},
    "actor_rollout_ref": {
        "model": {
            "use_remove_padding": False,
            "enable_gradient_checkpointing": False,
            "override_config": {"attn_implementation": "sdpa"},
        },
        "actor": {
            "strategy": "fsdp2",
            "ppo_mini_batch_size": 2,
            "ppo_micro_batch_size_per_gpu": 4,
            "use_torch_compile": False,
            "optim": {"lr": 1e-3},
            "fsdp_config": {
                "strategy": "fsdp2",
                "use_torch_compile": False,
                "dtype": "float32",
                "+mixed_precision": dict.fromkeys(("param_dtype", "reduce_dtype", "buffer_dtype"), "fp32"),
            },
        },
        "rollout": {
            "name": "tiny",
            "n": N,
            "temperature": 1.0,
            "tensor_model_parallel_size": 1,
            "log_prob_micro_batch_size_per_gpu": 4,
            "calculate_log_probs": True,
            "agent": {"num_workers": 1},
        },
    },
    "reward": {"num_workers": 1},
    "transfer_queue": {"backend": {"SimpleStorage": {"num_data_storage_units": 1, "total_storage_size": 1000}}},
    "trainer": {
        "device": "cpu",
        "n_gpus_per_node": 1,
        "total_training_steps": 2,
        "total_epochs": 10,
        "val_before_train": False,
        "logger": ["console", "file"],
        "resume_mode": "disable",
    },
    "ray_kwargs": {"ray_init": {"num_cpus": 16, "+num_gpus": 1, "+include_dashboard": False}},
}


@pytest.fixture(scope="module")
def verl(environments: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    trainer = Trainer(environments("verl"), tmp_path_factory.mktemp("verl"))
    trainer.env["SIMIA_CACHE"] = str(cache_root())
    return trainer


@pytest.fixture(scope="module")
def model(verl: Trainer, lamps: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models") / "taught-qwen"
    texts = [*sorted((data_root() / "seeds").glob("*/seeds.jsonl")), lamps / "tasks.jsonl"]
    verl.env["PYTHONPATH"] = make_python_path(verl.python)
    verl.run(HERE / "verl_taught.py", out, *texts, "--", lamps)
    return out


def launched(verl: Trainer, model: Path, lamps: Path, out: Path, play: dict[str, Any]) -> Launch:
    """As a user would: a file, changed by settings."""
    config = {**CONFIG, "simia": {"stage": {"pack": str(lamps), "user": "scripted"}, "play": play}}
    (out / "lamps.yaml").write_text(yaml.safe_dump(config))
    changes = {"actor_rollout_ref.model.path": str(model), "trainer.default_local_dir": str(out / "run")}
    found = launch(out / "lamps.yaml", changes, python=verl.python)
    assert found.prepare is not None
    found.prepare()
    verl.env["PYTHONPATH"] = os.pathsep.join([found.env["PYTHONPATH"], str(HERE)])
    return found


@pytest.fixture(scope="module")
def trained(verl: Trainer, model: Path, lamps: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What two steps were made of. The third episode loses its world, and nothing is played anew."""
    out = tmp_path_factory.mktemp("trained")
    found = launched(verl, model, lamps, out, {"turn_tokens": 60, "resample": 0})
    added = {
        "VERL_USE_EXTERNAL_MODULES": "verl_probe",
        "VERL_PLATFORM": "cpu",
        "VERL_ENGINE_DEVICE": "cuda",  # the FSDP engine, which is registered for that name only
        "VERL_FILE_LOGGER_PATH": str(out / "metrics.jsonl"),
        "CUDA_VISIBLE_DEVICES": "0",  # of the GPU that Ray is told of, and that is none
        "TOLD": str(out),
        "LOSE": "3",
    }
    verl.env |= added
    try:
        verl.run(*found.command[1:], cwd=out)
    finally:
        for name in added:
            verl.env.pop(name)
        verl.env["CUDA_VISIBLE_DEVICES"] = ""
    return {
        "batches": [json.loads(path.read_text()) for path in sorted(out.glob("batch-*.json"))],
        "server": [json.loads(line) for line in (out / "server.jsonl").read_text().splitlines()],
        "metrics": [json.loads(line)["data"] for line in (out / "metrics.jsonl").read_text().splitlines()],
        "groups": [
            json.loads(line)
            for path in (out / "run" / "simia" / "groups").iterdir()
            for line in path.read_text().splitlines()
        ],
    }


@pytest.fixture(scope="module")
def worked(verl: Trainer, model: Path, lamps: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What verl's worker made of three groups at once, of which some episodes fail, and of a few more groups."""
    out = tmp_path_factory.mktemp("worked")
    launched(verl, model, lamps, out, {"turn_tokens": 60, "turn_seconds": 25.0, "resample": 1})
    endpoint = FakeEndpoint("--respond", "tests.replies:stage")
    try:
        verl.run(HERE / "verl_worker_probe.py", out / "run" / "simia", endpoint.url, out / "told.json", cwd=out)
        asked = [str(request["body"]["messages"][0]["content"]) for request in endpoint.requests]
    finally:
        endpoint.stop()
    return {**json.loads((out / "told.json").read_text()), "asked": asked}


def real(batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in batch if not row["uid"].startswith("pad")]


def spans(mask: list[int]) -> list[tuple[int, int]]:
    edges = [at for at, (a, b) in enumerate(pairwise([0, *mask, 0])) if a != b]
    return list(zip(edges[::2], edges[1::2], strict=True))


@pytest.mark.all
def test_two_steps_of_verls_trainer_by_the_environments_rewards(trained: dict[str, Any]) -> None:
    assert len(trained["batches"]) == len(trained["metrics"]) == 2
    for batch, metrics in zip(trained["batches"], trained["metrics"], strict=True):
        assert math.isfinite(metrics["actor/pg_loss"])
        assert metrics["num_turns/max"] > 4
        rows = real(batch)
        by_uid: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            by_uid.setdefault(row["uid"], []).append(row)
        assert len(by_uid) == 2
        for group in by_uid.values():
            assert len({row["extra_fields"]["simia"]["group"] for row in group}) == 1
            wanted = advantages([sum(row["rm_scores"]) for row in group])
            for row, value in zip(group, wanted, strict=True):
                assert row["advantages"] == pytest.approx([value * m for m in row["response_mask"]], abs=1e-4)
    assert any(metrics["actor/grad_norm"] > 0 for metrics in trained["metrics"])
    assert len({sum(row["rm_scores"]) for batch in trained["batches"] for row in real(batch)}) > 1


@pytest.mark.all
def test_the_trainer_trains_what_its_engine_sampled(trained: dict[str, Any]) -> None:
    assert {call["step"] for call in trained["server"]} == {0, 1}, "the second step's policy is the first one's result"
    drawn = {(tuple(call["prompt"]), tuple(call["ids"])): call["logprobs"] for call in trained["server"]}
    turns = 0
    for batch in trained["batches"]:
        for row in real(batch):
            ids, mask = row["responses"], row["response_mask"]
            for begin, end in spans(mask):
                key = tuple(row["prompts"] + ids[:begin]), tuple(ids[begin:end])
                assert row["rollout_log_probs"][begin:end] == pytest.approx(drawn[key], abs=1e-4)
                turns += 1
            gaps = [
                abs(a - b) for a, b, m in zip(row["rollout_log_probs"], row["old_log_probs"], mask, strict=True) if m
            ]
            assert max(gaps) < 1e-3, "the trainer's own log-probabilities: same weights, same tokens"
    assert turns > 2 * 2 * N


@pytest.mark.all
def test_a_lost_episode_is_no_row_of_its_group(trained: dict[str, Any]) -> None:
    first, second = trained["batches"]
    assert (len(real(first)), len(first)) == (2 * N - 1, 2 * N)
    (filling,) = [row for row in first if row["uid"].startswith("pad")]
    assert set(filling["response_mask"]) == {0}
    assert len(real(second)) == 2 * N
    lines = trained["groups"]
    assert sorted(line["step"] for line in lines) == [1, 1, 2, 2]
    assert sorted(end for line in lines for end in line["ends"]).count("aborted") == 1
    known = sorted(reward for line in lines for reward in line["rewards"] if reward is not None)
    assert known == pytest.approx(sorted(sum(row["rm_scores"]) for row in [*real(first), *real(second)]))


@pytest.mark.all
def test_verls_worker_plays_all_at_once_and_keeps_tokens_as_sampled(worked: dict[str, Any]) -> None:
    found = worked["episodes"]
    assert found["most_at_once"] == 3 * N
    assert len(found["rows"]) == 2 * N - 1
    ends = found["stops"]
    assert len(ends) == 1, "the engine is told what ends a turn, as it is read here"
    several = 0
    for row in found["rows"]:
        assert len(row["response"]) == len(row["mask"]) == len(row["logprobs"])
        assert row["tools_kwargs"] == {"switch": {"create_kwargs": {"n": row["index"]}}}
        assert [i for i, m in zip(row["response"], row["mask"], strict=True) if m] == [
            i for _, ids in row["said"] for i in ids
        ]
        for (begin, end), (context, ids) in zip(spans(row["mask"]), row["said"], strict=True):
            assert row["prompt"] + row["response"][:begin] == context
            assert row["response"][begin:end] == ids
        assert all(lp == 0.0 for lp, m in zip(row["logprobs"], row["mask"], strict=True) if not m)
        several += len(row["said"]) > 2
    assert several > N


@pytest.mark.all
def test_what_is_lost_is_no_row_and_what_is_late_is_played_anew(worked: dict[str, Any]) -> None:
    found = worked["episodes"]
    assert [row["place"] for row in found["rows"]] == ["0/0", "0/1", "0/3", "1/0", "1/1", "1/2", "1/3"]
    assert found["statuses"] == ["finished", "finished", "failure"], "of the third group all are lost"
    siblings, others = found["rows"][:3], found["rows"][3:]
    assert [row["advantage"] for row in siblings] == pytest.approx(
        advantages([row["reward"] for row in siblings]), abs=1e-4
    )
    assert [row["attempts"] for row in others] == [1.0, 2.0, 1.0, 1.0], "the second one's first attempt took too long"
    assert others[1]["simia"]["code"] != "timeout"
    assert any(abs(row["advantage"]) > 0.1 for row in found["rows"])
    (lost,) = [line for line in worked["notes"] if line["ends"] == ["aborted"] * N]
    assert (lost["task"], lost["rewards"]) == ("lamps-2", [None] * N)


@pytest.mark.all
def test_the_one_survivor_of_a_group_is_not_trained_on_its_bare_reward(worked: dict[str, Any]) -> None:
    """verl gives a row that is alone the advantage r / (1 + eps)."""
    found = worked["survivor"]
    assert (found["rows"], found["statuses"]) == ([], ["failure"])
    (line,) = [line for line in worked["notes"] if line["ends"].count("aborted") == N - 1]
    assert line["rewards"].count(None) == N - 1


@pytest.mark.all
def test_a_training_that_only_loses_groups_ends(worked: dict[str, Any]) -> None:
    """verl's replay buffer replaces lost groups for ever; it raises for a status that it does not know."""
    found = worked["losing"]
    assert found["said"].startswith("Unknown status: simia: ")
    assert "groups in a row; the last: aborted (agent_failed" in found["said"]
    assert 3 <= found["groups"] < 20


@pytest.mark.all
def test_the_context_of_verls_server_cuts_an_episode(worked: dict[str, Any]) -> None:
    found = worked["tight"]
    assert worked["contexts"] == [32768, found["room"]], "the model's, where verl's configuration sets none"
    assert found["statuses"] == ["finished"]
    assert [(row["truncated"], row["simia"]["code"]) for row in found["rows"]] == [(1.0, "max_tokens")] * N
    assert max(len(row["prompt"]) + len(row["response"]) for row in found["rows"]) <= found["room"]


@pytest.mark.all
def test_a_group_in_a_simulated_world_shares_its_answers(worked: dict[str, Any]) -> None:
    rows = worked["simulated"]["rows"]
    assert len(rows) == N
    assert len({tuple(row["response"]) for row in rows}) == 1, "greedy, so that all call the same"
    assert all(row["reward"] == 1.0 for row in rows), "as the judge says"
    calls = [text for text in worked["asked"] if text.startswith("You are the computer system")]
    assert len(calls) == 2, "two calls in turn, each asked for once"


@pytest.mark.all
def test_verl_knows_every_setting_of_our_recipes(worked: dict[str, Any]) -> None:
    recipes = worked["recipes"]
    assert sorted(recipes) == ["codegym", "envfactory", "envscaler", "scaleenv", "simia"]
    assert [found["unknown"] for found in recipes.values()] == [[]] * 5
    assert [name for name, found in recipes.items() if found["reference"]] == ["envscaler", "scaleenv", "simia"]
    assert not any(found["critic"] for found in recipes.values())
