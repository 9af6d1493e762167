"""Every config that we ship is loaded against packs and files made as the documentation says: names and splits resolve."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from simia.amplification.settings import AmplifyConfig
from simia.config import load_config, parse_config, read_config_file
from simia.envs.remote.remote_pack import list_server_settings, plays_remotely
from simia.envs.task_selection import select_tasks
from simia.envs.worlds.simulated import SimulatedBackend
from simia.evaluation.simulator_score import make_truth
from simia.exporting.llamafactory_rows import ModelEntry
from simia.exporting.simulator_export import write_prompt_packs
from simia.exporting.simulator_rows import SimulatorRow
from simia.exporting.simulator_settings import SimulatorConfig
from simia.llm.prices import look_up_price
from simia.pack import Pack
from simia.rollouts.settings import RolloutConfig
from simia.search_path import data_root
from simia.synthesis.recipes import find_recipe
from simia.trainers.launch import check_settings, check_stage
from simia.trainers.llamafactory import read_named_runs
from simia.trainers.ragen.settings import check_ragen_config
from simia.trainers.ragen.start import (
    FREE,
    check_stages,
    merge_sections,
    read_base_config,
    resolve_references,
)
from simia.trainers.trl.settings import TrlConfig
from simia.trainers.verl.settings import VerlSettings
from simia.trainers.verl.start import make_stage_rows
from tests.command import invoke
from tests.importers.officebench import small
from tests.quality.selection.test_contamination import TAU2
from tests.tau_seeds import write_apigen_seeds
from tests.trainers.ragen_standin import write_checkout

CONFIGS = data_root() / "configs"
ROWS = Path(__file__).parent / "formats" / "data"
BASES = ("ragen/paper",)  # what others extend, with no environment of its own
MAKE_PACK = re.compile(r"simia ((?:import|pack new) [^;\n]+)")


def shipped(folder: str) -> list[str]:
    found = sorted(f"{folder}/{path.stem}" for path in (CONFIGS / folder).glob("*.yaml"))
    return [name for name in found if name not in BASES]


def test_every_file_has_a_test_here() -> None:
    tested = {
        f"{name}.yaml"
        for folder in ("amplify", "eval", "eval/rows", "ragen", "rollout", "simulator", "synth", "trl", "verl")
        for name in shipped(folder)
    }
    tested |= {f"{name}.yaml" for name in BASES} | {"prices.yaml"}
    tested |= {f"ray/{name}.yaml" for name in ("two-cpu-nodes", "8xh100")}  # by tests/jobs/test_ray.py
    tested |= {
        f"llamafactory/{name}"
        for name in ("models.yaml", "runs.yaml", "sft.yaml", "sft_small.yaml", "ds_zero3.json", "llama3.jinja")
    }
    assert tested == {str(path.relative_to(CONFIGS)) for path in CONFIGS.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", shipped("synth"))
def test_configs_of_synthesis_are_those_of_their_recipes(name: str) -> None:
    recipe = read_config_file(name)["recipe"]
    kind = find_recipe(recipe)
    found = load_config(kind.config, name)
    found = found if found.source else found.model_copy(update={"source": "library"})
    assert found.recipe == recipe
    assert kind.make(found).list_stages()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory, and a key so that endpoints open; nothing is asked of them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-key")
    return tmp_path


def write_seeds() -> None:
    """The files that configs/amplify name, in the form that their comments give, with content of ours."""
    data = Path("data/seeds")
    (data / "agentinstruct").mkdir(parents=True)
    write_apigen_seeds(data / "apigen-mt_5k.json")
    office = json.loads((ROWS / "officebench.json").read_text(encoding="utf-8"))
    (data / "officebench_1app.jsonl").write_text("\n".join(json.dumps(row) for row in office), encoding="utf-8")
    rows = json.loads((ROWS / "agentinstruct.json").read_text(encoding="utf-8"))
    for kind in ("os", "webshop", "mind2web"):
        found = [row for row in rows if row["id"].startswith(kind)]
        (data / "agentinstruct" / f"{kind}.json").write_text(json.dumps(found), encoding="utf-8")


def make_packs(name: str) -> list[str]:
    """Run the commands at the top of a config that make its packs; return them."""
    lines = MAKE_PACK.findall((CONFIGS / f"{name}.yaml").read_text(encoding="utf-8"))
    tasks = small.folder(Path("tasks"))
    write_seeds()
    for line in lines:
        invoke(*(str(tasks) if word == "FOLDER" else word for word in shlex.split(line)))
    return lines


def write_benchmarks() -> None:
    for domain in ("retail", "airline"):
        tasks = Path("data/benchmarks/tau2") / domain / "tasks.json"
        tasks.parent.mkdir(parents=True)
        tasks.write_text(json.dumps([TAU2]), encoding="utf-8")
    small.folder(Path("data/benchmarks/officebench"))


@pytest.mark.parametrize("name", shipped("amplify"))
def test_amplification(name: str, folder: Path) -> None:
    write_seeds()
    write_benchmarks()
    config = load_config(AmplifyConfig, name)
    said = invoke("amplify", "--config", name, "--dry-run")
    found = re.search(r"^([\d,]+) seeds? of [\d,]+ read", said, re.M)
    assert found, said[-2000:]
    assert int(found[1].replace(",", "")) > 0
    assert "refused:" not in said
    assert config.n >= 8
    for paths in config.select.benchmarks.values():
        assert all(list(Path().glob(path)) for path in paths), "the benchmark's files were made above"


@pytest.mark.parametrize("name", shipped("rollout"))
def test_rollouts(name: str, folder: Path) -> None:
    config = load_config(RolloutConfig, name)
    pack = Pack.load(config.pack)
    assert select_tasks(pack, config)
    check_stage(config, pack)


@pytest.mark.parametrize("name", shipped("trl"))
def test_trl(name: str, folder: Path) -> None:
    make_packs(name)
    config = parse_config(TrlConfig, read_config_file(name), where=name)
    if plays_remotely(config.stage):
        assert not list_server_settings(config.stage)
        return
    pack = Pack.load(config.stage.pack)
    assert select_tasks(pack, config.stage)
    check_stage(config.stage, pack)


@pytest.mark.parametrize("name", ["simulator/default", "simulator/small"])
def test_simulator_rows(name: str) -> None:
    config = load_config(SimulatorConfig, name)
    assert SimulatedBackend(
        Pack.load("customer_service"), **config.world.model_dump(exclude_unset=True)
    ).settings.holds_state


def test_simulator_grpo(folder: Path) -> None:
    config = parse_config(TrlConfig, read_config_file("simulator/grpo"), where="simulator/grpo")
    row = SimulatorRow(
        "shop", "t", "train", "get", {}, [{"role": "x", "content": "y"}] * 3, make_truth(1, False, {}, {}, None), 9
    )
    for name, text in write_prompt_packs([row], "prompts"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    pack = Pack.load("prompts/shop_prompts")
    assert select_tasks(pack, config.stage)
    check_stage(config.stage, pack)


@pytest.mark.parametrize("name", shipped("verl"))
def test_verl(name: str, folder: Path) -> None:
    settings = parse_config(VerlSettings, read_config_file(name)["simia"], where=name)
    check_stage(settings.stage, Pack.load(settings.stage.pack))
    learns, judged = (make_stage_rows(settings.stage, split) for split in (settings.data.train, settings.data.val))
    assert learns
    assert judged
    assert not {row["extra_info"]["task"] for row in learns} & {row["extra_info"]["task"] for row in judged}


@pytest.mark.usefixtures("environments")
@pytest.mark.parametrize("name", shipped("ragen"))
def test_ragen(name: str, folder: Path) -> None:
    """Packs are imported by the commands at the top of the config. tau2's own code is installed for that, once."""
    assert make_packs(name)
    known = read_base_config(write_checkout(folder / "RAGEN"))
    values = read_config_file(name)
    check_settings(values, known, "RAGEN", free=FREE)
    whole = resolve_references(merge_sections(known, values))
    check_ragen_config(whole)
    notes = check_stages(whole)
    tags = whole["es_manager"]["train"]["env_configs"]["tags"]
    assert len(notes) == 2 * len(tags)
    for tag in tags:
        settings = whole["custom_envs"][tag]["env_config"]
        pack = Pack.load(settings["stage"]["pack"])
        assert pack.evaluation is settings.get("allow_evaluation_tasks", False)
        assert {task.split for task in pack.tasks} == ({"train"} if tag.endswith("Seeds") else {"train", "test"})


def test_llamafactory() -> None:
    recipes = shipped("amplify")
    seeds = {path for recipe in recipes for path in load_config(AmplifyConfig, recipe).seeds.packs}
    runs = read_named_runs()
    assert runs
    for run in runs.values():
        for data in run.data:
            assert f"amplify/{data}" in recipes or data in seeds, (
                f"{data} is made by no config, and is no config's seeds"
            )
        for model in run.models:
            assert ModelEntry.named(model).path
    recipe = yaml.safe_load((CONFIGS / "llamafactory" / "sft.yaml").read_text(encoding="utf-8"))
    assert (CONFIGS / "llamafactory" / recipe["deepspeed"]).is_file()


@pytest.mark.parametrize("name", shipped("amplify"))
def test_prices_are_known_for_the_models_that_configs_name(name: str) -> None:
    llm = load_config(AmplifyConfig, name).llm
    assert llm.kind != "openai" or look_up_price(llm.model) is not None
