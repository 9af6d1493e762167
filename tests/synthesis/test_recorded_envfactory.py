"""EnvFactory with the replies of a strong model that saw each prompt alone: an OpenAPI file, a text and a server of the package index become
two environments, and conversations over both."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from simia.config import load_config
from simia.pack import Pack
from simia.synthesis.recipes.envfactory import EnvFactoryConfig
from simia.synthesis.session import start_synthesis
from tests.command import run_simia
from tests.synthesis.test_recorded_envscaler import RECORDINGS, check_pack

SOURCES = RECORDINGS / "sources" / "makerspace"
SETTINGS = (
    "llm.kind=replay", f"llm.path={RECORDINGS / 'envfactory-makerspace.jsonl'}", "llm.match=draw", "building.operations=11",
    "building.kept=8", "building.formats=false", "building.repeats=0", "conversations.plans.number=13", "conversations.plans.sampling.shortest=2",
    "conversations.plans.sampling.longest=5", "conversations.solving.solvers=1",
)  # fmt: skip


RADIO = (
    "llm.kind=replay", f"llm.path={RECORDINGS / 'envfactory-radio.jsonl'}", "llm.match=draw", "environments=1", "proposals.number=1",
    "building.operations=8", "building.kept=6", "conversations.plans.number=2", "conversations.solving.solvers=1",
)  # fmt: skip


def test_one_page_of_text_becomes_a_small_environment_with_two_conversations(tmp_path: Path) -> None:
    page = str(RECORDINGS / "sources" / "radio" / "programme-desk.md")
    about = "the programme desk of a radio station"
    config = load_config(EnvFactoryConfig, "synth/envfactory_small", RADIO, source=about, sources=[page])
    made = asyncio.run(start_synthesis(config, tmp_path / "pack", runs=tmp_path / "runs", name="r", say=lambda _: None))
    assert made.stop.kind == "complete", made.stop
    pack = Pack.load(tmp_path / "pack")
    assert pack.state_schema is not None
    assert (len(pack.tools), len(pack.state_schema.tables)) == (10, 7)
    assert [len(task.goals) for task in pack.tasks] == [2, 2]
    assert pack.file is not None
    assert pack.file.provenance is not None
    (source,) = pack.file.provenance.sources
    assert (source.name, len(source.quotes) >= 2) == ("programme-desk.md", True)
    asyncio.run(check_pack(pack))


@pytest.mark.all
@pytest.mark.usefixtures("environments")
def test_three_sources_become_conversations_over_two_environments(tmp_path: Path) -> None:
    kanban = tmp_path / "kanban"
    done = run_simia("import", "mcp", "--pip", "kanban-mcp==0.2.0", "--out", str(kanban), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    sources = [str(SOURCES / "lending-desk.yaml"), str(SOURCES / "house-rules.md"), str(kanban)]
    config = load_config(EnvFactoryConfig, "synth/envfactory_small", SETTINGS, sources=sources)
    made = asyncio.run(start_synthesis(config, tmp_path / "pack", runs=tmp_path / "runs", name="r", say=lambda _: None))
    assert made.stop.kind == "complete", made.stop
    pack = Pack.load(tmp_path / "pack")
    assert pack.state_schema is not None
    assert (len(pack.tools), len(pack.state_schema.tables), len(pack.tasks)) == (28, 16, 13)
    assert sum(len(task.goals) > 1 for task in pack.tasks) == 4
    asyncio.run(check_pack(pack))
