"""ScaleEnv with the replies of a strong model that saw each prompt alone: a domain in words becomes the shipped pack `job_seeking`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from simia.config import load_config
from simia.pack import Pack
from simia.search_path import data_root
from simia.synthesis.pack_output import is_same_tree
from simia.synthesis.recipes.scaleenv import ScaleEnvConfig
from simia.synthesis.session import start_synthesis
from tests.synthesis.test_recorded_envscaler import RECORDINGS, check_pack, check_tasks

SETTINGS = (
    "llm.kind=replay", f"llm.path={RECORDINGS / 'scaleenv-jobs.jsonl'}", "llm.match=draw", "building.operations=24", "building.kept=20",
    "building.tests=3", "building.debug_rounds=2", "chains.number=15", "expansion.least=20",
)  # fmt: skip


@pytest.mark.all
def test_fifteen_chains_become_tasks_around_which_twenty_tools_can_be_used(tmp_path: Path) -> None:
    config = load_config(ScaleEnvConfig, "synth/scaleenv_small", SETTINGS, source="job seeking")
    done = asyncio.run(start_synthesis(config, tmp_path / "jobs", runs=tmp_path / "runs", name="r", say=lambda _: None))
    assert done.stop.kind == "complete", done.stop
    shipped = data_root() / "seeds" / "job_seeking"
    assert is_same_tree(tmp_path / "jobs", shipped), f"cp -r {tmp_path / 'jobs'}/. {shipped}/"
    pack = Pack.load(tmp_path / "jobs")
    assert pack.state_schema is not None
    assert (len(pack.tools), len(pack.state_schema.tables), len(pack.tasks)) == (32, 7, 15)
    assert sum(len(task.goals) > 1 for task in pack.tasks) == 5
    assert all(len(task.tools or pack.tools) >= 20 for task in pack.tasks)
    asyncio.run(check_tasks(pack))


SMALL = (
    "llm.kind=replay", f"llm.path={RECORDINGS / 'scaleenv-workshop.jsonl'}", "llm.match=draw", "building.operations=8", "building.kept=6",
    "chains.number=3", "expansion.least=6", "expansion.chains=1", 'domains={"bicycle repair workshop":3}',
)  # fmt: skip


def test_a_small_domain_becomes_a_pack_with_three_tasks(tmp_path: Path) -> None:
    config = load_config(ScaleEnvConfig, "synth/scaleenv_small", SMALL)
    done = asyncio.run(start_synthesis(config, tmp_path / "pack", runs=tmp_path / "runs", name="r", say=lambda _: None))
    assert done.stop.kind == "complete", done.stop
    pack = Pack.load(tmp_path / "pack")
    assert pack.state_schema is not None
    assert (len(pack.tools), len(pack.state_schema.tables)) == (10, 8)
    assert [len(task.goals) for task in pack.tasks] == [0, 3, 0]
    assert all(len(task.tools or pack.tools) == 10 for task in pack.tasks)
    asyncio.run(check_pack(pack))
