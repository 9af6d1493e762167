"""RAGEN's own source and the verl beside it, on a CPU: registration, rollouts by its proxy, its advantages, an update by its actor.

These tests need a checkout of RAGEN, which no package index has: docs/ragen.md says how to get one. RAGEN_HOME names it, or it is in
the cache under ragen/<commit>. What `ragen_probe.py` stands in for is written at its top.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from simia.config import read_config_file
from simia.search_path import cache_root, data_root
from simia.trainers.groups import batch_advantages
from simia.trainers.launch import check_settings, look_up
from simia.trainers.ragen.start import FREE, find_checkout, read_base_config
from simia.trainers.tokens import cut_after_end
from simia.venvs import make_python_path
from tests.fake_endpoint import FakeEndpoint
from tests.trainers import ragen_standin as standin
from tests.trainers.conftest import Trainer

pytestmark = pytest.mark.all
HERE = Path(__file__).parent
ROLLED = ("lost", "val", "executable", "simulated", "local")
RUNS = ("tau_simulated", "tau_executable", "officebench_simulated", "officebench_executable")
LOOK = """
import types
import ray
from simia.trainers.ragen.start import start_ray

plain = types.SimpleNamespace
start_ray(plain(ray_init=plain(num_cpus=1), system=plain(CUDA_VISIBLE_DEVICES="")))

@ray.remote
def look():
    import os, sys
    before = "ragen.env" in sys.modules
    import ragen.env
    return [before, ragen.env.REGISTERED_ENVS["simia"].__module__, "vllm" in sys.modules, os.getcwd()]

print("seen:", ray.get(look.remote()))

@ray.remote
def stop():
    from simia.trainers.ranks import Stopped
    raise Stopped("step 3: nothing is left")

from simia.errors import UserError
from simia.trainers.ragen.start import format_error

try:
    ray.get(stop.remote())
except UserError as error:
    print("said:", format_error(error))
"""


@pytest.fixture(scope="module")
def ragen(environments: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    home, work = find_checkout(), tmp_path_factory.mktemp("ragen")
    trainer = Trainer(environments("ragen"), work)
    embedded = find_spec("xllamacpp")  # the local model's engine: the same Python runs here and there
    assert embedded is not None
    assert embedded.origin is not None
    (work / "xllamacpp").symlink_to(Path(embedded.origin).parent)
    path = [str(home), str(home / "verl"), make_python_path(trainer.python, say=print), str(work)]
    trainer.env |= {"RAGEN_HOME": str(home), "PYTHONPATH": os.pathsep.join(path), "SIMIA_CACHE": str(cache_root())}
    return trainer


@pytest.fixture(scope="module")
def endpoint() -> Iterator[FakeEndpoint]:
    endpoint = FakeEndpoint("--respond", "tests.replies:stage")
    yield endpoint
    endpoint.stop()


@pytest.fixture(scope="module")
def told(
    ragen: Trainer, lamps: Path, endpoint: FakeEndpoint, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    work = tmp_path_factory.mktemp("probe")
    texts = [*sorted((data_root() / "seeds").glob("*/seeds.jsonl")), lamps / "tasks.jsonl"]
    ragen.run(HERE / "taught.py", work / "tiny-qwen", *texts, "--", lamps)
    runs = {name: read_config_file(f"ragen/{name}") for name in RUNS}
    (work / "runs.json").write_text(json.dumps(runs))
    ragen.run(HERE / "ragen_probe.py", work / "tiny-qwen", lamps, endpoint.url, work / "out.json", "local", work / "runs.json")  # fmt: skip
    return dict(json.loads((work / "out.json").read_text()))


def test_the_recorded_signatures_are_the_sources() -> None:
    home = find_checkout()
    names = {name: list(methods) for name, methods in standin.signatures(Path(standin.__file__).read_text()).items()}
    found = {name: standin.signatures(standin.source_of(home, name), names)[name] for name in standin.PLACES}
    record = json.loads((HERE / "ragen_signatures.json").read_text())
    assert {name: {m: found[name][m] for m in methods} for name, methods in names.items()} == record["classes"]


def test_the_recorded_settings_are_the_sources() -> None:
    base = read_base_config(find_checkout())
    assert standin.kinds_of(base) == standin.SETTINGS["kinds"]
    assert {name: look_up(base, name) for name in standin.SETTINGS["values"]} == standin.SETTINGS["values"]


@pytest.mark.parametrize("name", RUNS)
def test_ragen_knows_every_name_of_our_runs(name: str) -> None:
    check_settings(read_config_file(f"ragen/{name}"), read_base_config(find_checkout()), "RAGEN", free=FREE)


def test_a_ray_worker_knows_us_once_it_imports_ragen_and_loads_nothing_before(ragen: Trainer) -> None:
    seen = ragen.run("-c", LOOK)
    assert f"seen: [False, 'simia.trainers.ragen.env', False, {os.getcwd()!r}]" in seen, (
        "and paths mean there what they do here"
    )
    assert "said: step 3: nothing is left\n" in seen


def test_registered_without_a_patch(told: dict[str, Any]) -> None:
    assert told["registered"] == "simia.trainers.ragen.env"
    assert "sokoban" in told["others"]
    for name in ROLLED:
        assert told[name]["classes"] == [f"simia.trainers.ragen.{part}" for part in ("rollout", "context", "rollout")]
        assert told[name]["environments"] == 1
    assert told["runs"] == {name: ["grpo", 64, 256] for name in RUNS}, "RAGEN's own validation takes them"


@pytest.mark.parametrize("name", ROLLED)
def test_what_is_trained_is_what_was_sampled(told: dict[str, Any], name: str) -> None:
    rolled = told[name]
    drawn = [(context, cut_after_end(said, [rolled["end"]])) for context, said in rolled["sampled"]]
    turns = 0
    for i, episode in enumerate(rolled["episodes"]):
        ids, seen, mask = rolled["input_ids"][i], rolled["attention_mask"][i], rolled["loss_mask"][i]
        assert rolled["responses"][i] == ids[1:]
        first = seen.index(1)
        assert rolled["position_ids"][i][first:] == list(range(len(ids) - first))
        if rolled["scores"][i] is None:
            assert not any(mask)
            continue
        spans = list(spans_of([0, *mask]))
        assert len(spans) == sum(m["role"] == "assistant" for m in episode["messages"])
        for start, end in spans:
            assert (ids[first:start], ids[start:end]) in drawn
        turns += len(spans)
    assert name == "local" or turns > len(rolled["episodes"])  # the small judge's verdict need not be one


@pytest.mark.parametrize("name", ROLLED)
def test_a_group_is_a_seed_a_task_and_a_baseline(told: dict[str, Any], name: str) -> None:
    rolled = told[name]
    size = {"val": 1, "local": 2}.get(name, 4)
    assert rolled["groups"] == [0] * size + [1] * size
    assert rolled["seeds"] == [rolled["seeds"][0]] * size + [rolled["seeds"][0] + 1] * size
    for members in (rolled["episodes"][:size], rolled["episodes"][size:]):
        assert len({e["task_id"] for e in members}) == 1
        assert (
            len({e["extra"]["group"] for e in members if "group" in e["extra"]}) == 1
        )  # one lost at its reset has none
    assert not any(any(row[:-1]) for row in rolled["rm_scores"])
    normal = [row[-1] for row in rolled["rm_scores"]]
    if name == "val":
        assert normal == pytest.approx(rolled["scores"])
        assert rolled["core"]["mean@2"] == pytest.approx(sum(rolled["scores"]) / 2)
        assert any(rolled["scores"]), "of none solved, the mean would be 0 whatever is reported"
    else:
        assert normal == pytest.approx(batch_advantages(rolled["scores"], rolled["groups"]), abs=1e-5)
    if size > 1 and None not in rolled["scores"]:
        assert normal == pytest.approx(rolled["ragens_own"], abs=1e-5)
        assert rolled["original"] == rolled["scores"]
    known = [score for score in rolled["scores"] if score is not None]
    assert rolled["metrics"].get("Lamps/score") == (pytest.approx(sum(known) / len(known)) if known else None)


def test_every_unfinished_episode_is_judged_and_every_lost_one_is_not(told: dict[str, Any]) -> None:
    lost = told["lost"]
    assert max(lost["batches"]) == 3, "at_once"
    kinds = [episode["end"]["kind"] for episode in lost["episodes"]]
    assert [score is None for score in lost["scores"]] == [kind == "aborted" for kind in kinds]
    assert kinds.count("aborted") == 2
    assert lost["metrics"]["Lamps/aborted"] == 0.25
    for name in ("val", "executable", "simulated"):
        assert None not in told[name]["scores"]
    cut = told["cut"]  # one round, where a task takes five
    assert {episode["end"]["kind"] for episode in cut["episodes"]} == {"truncated"}
    assert cut["scores"] == [0.0] * 8


def test_a_step_without_any_reward_ends_the_training_in_one_line(told: dict[str, Any]) -> None:
    assert told["dark"].startswith(
        "step 1: 8 of 8 episodes without a reward, mostly: on purpose; fix this and start again"
    )
    assert re.search(
        r"mostly: no room for a turn: set actor_rollout_ref.rollout.max_model_len to at least \d{3};", told["narrow"]
    )


def test_a_resumed_run_goes_on_with_the_seeds_of_its_step(told: dict[str, Any]) -> None:
    assert told["resumed"] == [3, 3, 10_000 + 3 * 2]


def test_a_small_local_model_plays_the_tools(told: dict[str, Any]) -> None:
    local = told["local"]
    assert all(episode["end"]["kind"] != "aborted" for episode in local["episodes"])
    assert any(m["role"] == "tool" for episode in local["episodes"] for m in episode["messages"])
    assert {*local["scores"]} <= {0.0, 1.0, None}


def test_ragens_actor_takes_a_step_along_the_groups_advantages(told: dict[str, Any]) -> None:
    """compute_advantage and core_algos are RAGEN's and verl's, the step is RAGEN's DataParallelPPOActor's."""
    update, rolled = told["update"], told["executable"]
    for row, score, mask in zip(update["advantages"], rolled["rm_scores"], rolled["loss_mask"], strict=True):
        assert row == pytest.approx([score[-1] * m for m in mask], abs=1e-4)
    values = [value for row in update["advantages"] for value in row]
    assert min(values) < 0 < max(values)
    assert update["changed"] == update["parameters"]
    assert update["finite"]
    assert all(norm > 0 for norm in update["metrics"]["actor/grad_norm"])


def spans_of(mask: list[int]) -> Iterator[tuple[int, int]]:
    """Where runs of 1 begin and end."""
    edges = [at for at, (a, b) in enumerate(pairwise([0, *mask, 0])) if a != b]
    return zip(edges[::2], edges[1::2], strict=True)
