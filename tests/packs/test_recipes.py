"""The recipes of docs/packs.md, as tasks of the pack that `simia pack new` writes: the reference scores 1, doing nothing 0."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from simia.authoring.scaffold import scaffold_pack
from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import EchoAgent, NothingAgent, ReferenceAgent
from simia.envs.play.player import play
from simia.envs.users import NoUser, ScriptedUser
from simia.pack import Pack
from simia.state_schema import StateSchema
from simia.task import Task

PAGE = (Path(__file__).parents[2] / "docs" / "packs.md").read_text(encoding="utf-8")
RECIPES = [
    Task.model_validate(json.loads(text))
    for text in re.findall(
        r"```json\n(.*?)```", PAGE[PAGE.index("### Recipes") : PAGE.index("### Difficulty")], re.DOTALL
    )
]


@pytest.mark.parametrize("task", RECIPES, ids=lambda task: task.id)
async def test_a_recipe_is_a_sound_task(task: Task, tmp_path: Path) -> None:
    scaffold_pack(tmp_path / "todo")
    pack = Pack.load(tmp_path / "todo")
    async with await open_environment(pack, user=ScriptedUser) as environment:
        solved = await play(await environment.reset(task), ReferenceAgent(task))
        assert solved.reward is not None
        assert solved.reward.value == 1.0, solved.reward
    async with await open_environment(pack, user=NoUser) as environment:
        for agent in (NothingAgent(task), EchoAgent(task)):
            idle = await play(await environment.reset(task), agent)
            assert idle.reward is not None
            assert idle.reward.value == 0.0, (agent, idle.reward)


def test_there_are_recipes_and_the_schema_is_one() -> None:
    assert len(RECIPES) >= 6
    import yaml

    (text,) = re.findall(r"```yaml\n(schema:.*?)```", PAGE, re.DOTALL)
    schema = StateSchema.model_validate(yaml.safe_load(text)["schema"])
    assert schema.list_policies() == {"shop.orders.*.note": "semantic", "shop.orders.*.created_at": "exempt"}
