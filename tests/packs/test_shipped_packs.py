"""Every pack of `seeds/` loads, is valid, and has tasks that its solutions solve; the wheel has them all."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from simia.authoring.validate import validate_pack
from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import NothingAgent, ReferenceAgent
from simia.envs.play.player import play
from simia.pack import Pack
from simia.search_path import data_root, list_names
from tests.command import run_simia

ROOT = Path(__file__).parents[2]
SHIPPED = list_names("seeds", [data_root()])


def test_the_shipped_packs_are_those_of_the_folders() -> None:
    assert (
        sorted(str(path.parent.relative_to(ROOT / "seeds")) for path in (ROOT / "seeds").rglob("pack.yaml")) == SHIPPED
    )
    assert {"customer_service", "office", "hotel_front_desk", "gyms/cold-cells"} <= set(SHIPPED)


@pytest.mark.parametrize("name", [name for name in SHIPPED if name not in ("customer_service", "office")])
async def test_a_synthesized_pack_is_valid_and_its_solutions_earn_1(name: str) -> None:
    pack = Pack.load(name)
    findings, _ = await validate_pack(pack)
    assert not [str(each) for each in findings if each.refuses]
    async with await open_environment(name, user="scripted", episode={"turns": 600}) as environment:
        for task in pack.tasks[:2]:
            for agent, reward in ((ReferenceAgent(task), 1.0), (NothingAgent(task), 0.0)):
                played = await play(await environment.reset(task.id), agent)
                assert played.reward is not None
                assert played.reward.value == reward


def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "synthesis.md").read_text(encoding="utf-8")
    section = page.partition("## Packs that are shipped")[2].partition("\n## ")[0]
    lines = re.findall(r"^simia .*$", section, re.M)
    assert len(lines) == 3
    for line in lines:
        done = run_simia(*shlex.split(line)[1:], cwd=tmp_path)
        assert done.returncode == 0, f"{line}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"
        assert "rollout" not in line or re.search(r"mean reward\D+1\.000\D", done.stdout)
