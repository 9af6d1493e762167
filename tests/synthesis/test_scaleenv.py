"""The recipe `scaleenv` from a domain in words to a pack with gated tasks, with hand-written replies (fixtures/expansion/scaleenv.yaml)."""

from __future__ import annotations

import asyncio
import json
import random
import re
import shlex
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from simia.config import load_config, parse_config, read_config_file
from simia.envs.config import EnvironmentConfig
from simia.envs.opening import load_tasks
from simia.envs.several_packs import CombinedPack
from simia.errors import UserError
from simia.pack import Pack
from simia.rollouts.settings import RolloutConfig
from simia.synthesis import session
from simia.synthesis.building.random_calls import make_random_calls
from simia.synthesis.building.tool_runs import open_sandbox
from simia.synthesis.context import ItemContext
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.graph.tool_graph import ToolGraph
from simia.synthesis.recipes.scaleenv import ScaleEnvConfig, ScaleEnvRecipe
from simia.synthesis.reply_reading import dump
from simia.synthesis.settings import SamplingSettings
from simia.synthesis.stage import StageOutputs
from simia.synthesis.stage_figures import SynthesisFigures
from simia.trainers.trl.settings import TrlConfig
from tests.command import invoke
from tests.synthesis.build_fixtures import FIXTURES, list_library_replies, load_library, read_files
from tests.synthesis.scenario_fixtures import ServingBackend

SMALL: dict[str, Any] = {
    "kind": "synthesis",
    "recipe": "scaleenv",
    "seed": 7,
    "building": {"operations": 7, "kept": 6, "random_calls": 40},
    "chain_sampling": {"shortest": 2, "longest": 4},
    "chains": {"number": 3, "modes": ["conversation", "non_conversation"]},
    "expansion": {"least": 6, "most": 4, "chains": 2, "searched": 1, "rollouts": 2, "random_calls": 40},
}


def list_replies() -> dict[str, str]:
    """Sample → reply of the whole run. The initial state of the last chain has no fines."""
    own: dict[str, str] = yaml.safe_load((FIXTURES / "expansion" / "scaleenv.yaml").read_text(encoding="utf-8"))
    example = load_library().example
    paid = {**example, "members": {key: {**row, "fines": 0} for key, row in example["members"].items()}}
    states = {f"chains/library/{number}.state": example for number in (0, 1)} | {"chains/library/2.state": paid}
    written = {sample: f"```json\n{orjson.dumps(state).decode()}\n```" for sample, state in states.items()}
    return list_library_replies() | own | written


def synthesize(folder: Path, monkeypatch: pytest.MonkeyPatch, *, slow: bool = False) -> ServingBackend:
    """Run `simia synth scaleenv library` in a folder."""
    folder.mkdir()
    backend = ServingBackend(list_replies(), slow=slow)
    monkeypatch.setattr(session, "open_backend", lambda *_, **__: backend)
    monkeypatch.chdir(folder)
    (folder / "small.yaml").write_text(yaml.safe_dump(SMALL))
    invoke("synth", "scaleenv", "library", "--config", "./small.yaml", "--out", "library", "--name", "run")
    return backend


def test_a_domain_becomes_a_pack_with_gated_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = synthesize(tmp_path / "one", monkeypatch)
    assert sorted(set(backend.replies) - set(backend.asked)) == []
    folder = tmp_path / "one" / "library"
    pack = Pack.load(folder)
    assert [(task.id, task.tags) for task in pack.tasks] == [
        ("chain-0", ["conversation"]), ("chain-1", ["non_conversation"]), ("chain-2", ["conversation"]),
    ]  # fmt: skip
    assert all(len(task.tools or []) >= 6 for task in pack.tasks)
    figures = SynthesisFigures.model_validate_json((folder / "synthesis.json").read_bytes())
    assert not figures.refusals
    notes = figures.notes["expansions"]
    assert notes["library/0"]["chains"] == 2
    assert notes["library/0"]["searches"][0]["g"] == 0.5
    assert notes["library/2"]["patches"] == 1
    assert pack.task("chain-2").initial["state"]["members"]["MB-90"]["fines"] == 3.5

    invoke("pack", "validate", str(folder))
    gate = json.loads(invoke("pack", "gate", str(folder), "--json"))
    assert (gate["tasks"], gate["passed"]) == (3, 3)
    assert {gate["floors"][name] for name in ("nothing", "canned", "echo", "policy")} == {0.0}
    assert re.search(r"mean reward\D+1\.000\D", invoke("rollout", str(folder), "--agent", "reference"))

    assert asyncio.run(call_at_random(folder)) == {}

    synthesize(tmp_path / "two", monkeypatch, slow=True)
    assert read_files(tmp_path / "two" / "library") == read_files(folder)


async def call_at_random(folder: Path) -> dict[str, Any]:
    """Make 1,000 random calls in the initial states of a written pack's tasks. Returns tools that fail, or leave a key without a row."""
    pack, built = Pack.load(folder), load_library()
    faults: dict[str, Any] = {}
    context = ItemContext("test/completeness", {}, SamplingSettings(), asyncio.Semaphore(1))
    async with open_sandbox(context, built) as backend:
        for number, task in enumerate(pack.tasks):
            shown = built.model_copy(update={"tools": {name: built.tools[name] for name in task.tools or []}})
            count = 1000 // len(pack.tasks) + 1
            found, succeeded = await make_random_calls(backend, shown, count, seed=number, state=task.initial["state"])
            faults |= found
            assert succeeded > count // 5
    return faults


def test_the_shipped_config_has_the_domains_of_the_paper() -> None:
    paper = load_config(ScaleEnvConfig, "synth/scaleenv")
    assert len(paper.domains) == 16
    assert sum(paper.domains.values()) == 2560
    assert (paper.domains["wedding_planning"], paper.domains["stock_trading"]) == (512, 64)
    expansion = paper.expansion
    assert (expansion.least, expansion.rollouts, expansion.threshold, expansion.execution) == (20, 16, 0.5, True)
    assert paper.building.random_calls == 1000
    recipe = ScaleEnvRecipe(paper)
    stages = recipe.list_stages()
    assert [stage.name for stage in stages] == [
        "design", "examples", "tools", "environments", "graph", "chains", "expansions", "instructions", "verdicts", "gated",
    ]  # fmt: skip
    designs = stages[0].list_inputs(StageOutputs())
    assert [each.key for each in designs] == list(paper.domains)
    assert designs[2].value["domain"] == "job seeking"
    assert recipe.expected()["expansions"].questions == 2560 * 17  # type: ignore[union-attr]


def test_each_domain_has_its_own_number_of_chains() -> None:
    config = parse_config(ScaleEnvConfig, {"domains": {"pet care": 3, "football": 1}}, where="the test")
    chains = ScaleEnvRecipe(config).list_stages()[5]
    built, graph = dump(load_library()), json.loads((FIXTURES / "expansion" / "graph.json").read_bytes())
    outputs = StageOutputs(
        made={
            name: dict.fromkeys(("pet_care", "football"), made)
            for name, made in (("environments", built), ("graph", graph))
        }
    )
    assert [each.key for each in chains.list_inputs(outputs)] == [
        "pet_care/0",
        "pet_care/1",
        "pet_care/2",
        "football/0",
    ]


def test_the_switches_of_the_ablations_parse() -> None:
    whole = parse_config(ScaleEnvConfig, read_config_file("synth/scaleenv"), where="the test")
    graph = ToolGraph.model_validate_json((FIXTURES / "expansion" / "graph.json").read_bytes())
    walking = whole.model_copy(update={"topology": False})
    sampled, walked = (
        [ScaleEnvRecipe(config).sample_tools(graph, random.Random(number)) for number in range(50)]
        for config in (whole, walking)
    )
    assert all(len(set(chain)) == len(chain) for chain in sampled)
    assert any(len(set(chain)) < len(chain) for chain in walked)
    off = {
        "graph": {"refine": False},
        "expansion": {"execution": False, "refinements": 0},
        "chains": {"execution": False},
    }
    assert not parse_config(ScaleEnvConfig, off, where="the test").expansion.execution


def test_the_commands_of_the_page_show_what_a_run_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "scaleenv.md").read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"^```bash\n(.*?)^```$", page, re.M | re.S) for line in block.splitlines()]
    assert len(lines) == 2
    monkeypatch.chdir(tmp_path)
    for line in lines:
        shown = invoke(*shlex.split(line)[1:])
        assert "job seeking" in shown or "wedding planning" in shown
        assert re.search(r"chains\D+\d", shown)


def test_bad_settings_get_one_line() -> None:
    with pytest.raises(UserError, match="the source is missing"):
        ScaleEnvRecipe(ScaleEnvConfig())
    with pytest.raises(UserError, match=r"raise building\.kept"):
        parse_config(ScaleEnvConfig, {"building": {"kept": 10}}, where="the test")
    with pytest.raises(UserError, match="no role is named 'small'"):
        parse_config(ScaleEnvConfig, {"difficulty": {"agent": "small"}}, where="the test")
    with pytest.raises(UserError, match="same name"):
        ScaleEnvRecipe(ScaleEnvConfig(domains={"pet care": 1, "Pet-Care": 2}))


def test_several_domains_become_packs_with_a_training_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"pet care": 1, "football": 2, "smart home": 1}
    config = parse_config(ScaleEnvConfig, {"domains": counts}, where="the test")
    names = ["pet_care", "football", "smart_home"]
    outputs = StageOutputs(made={"environments": {}, "graph": {}, "gated": {}})
    graph = json.loads((FIXTURES / "expansion" / "graph.json").read_bytes())
    for name in names:
        built: BuiltEnvironment = load_library()
        built.design = built.design.model_copy(update={"name": name})
        outputs.made["environments"][name], outputs.made["graph"][name] = dump(built), graph
    for key in ("pet_care/0", "football/0", "football/1", "smart_home/0"):
        outputs.made["gated"][key] = {
            "id": f"chain-{key[-1]}",
            "instruction": "Please take my payment for everything that I owe: MB-02.",
            "reference": [{"name": "pay_fine", "arguments": {"member_id": "MB-02"}}],
        }
    monkeypatch.chdir(tmp_path)
    folders = ScaleEnvRecipe(config).write(outputs, tmp_path / "domains")
    assert [folder.name for folder in folders] == names

    rollout = load_config(RolloutConfig, "./domains/rollout.yaml")
    assert [share.pack for share in rollout.packs or []] == [f"domains/{name}" for name in names]
    training = load_config(TrlConfig, "./domains/train.yaml")
    pack, tasks = load_tasks(training.stage)
    assert isinstance(pack, CombinedPack)
    assert {task.id for task in tasks} == {
        f"{name}/chain-{number}" for name, number in zip((*names, "football"), (0, 0, 0, 1), strict=True)
    }
    assert EnvironmentConfig.model_validate({"packs": ["domains/*"]}).packs
    for name in ("./domains/train.yaml", "trl/scaleenv", "trl/scaleenv_judge"):
        monkeypatch.setenv("OPENAI_API_KEY", "not-a-key")
        invoke("train", "trl", name, "--set", "stage.packs=[domains/*]", "--dry-run")
