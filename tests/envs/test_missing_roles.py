"""A user or a reference that the settings promise and the pack does not have is refused before the first episode."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from simia.envs.config import EnvironmentConfig
from simia.envs.opening import open_environment
from simia.envs.role_models import RoleModels, user_kind
from simia.errors import UserError
from simia.evaluation.suites import load_suite, make_rollout_config
from simia.llm.embedded import EmbeddedSettings
from simia.pack import Pack
from simia.rollouts.settings import RolloutConfig
from tests.packs.small import small

MODEL = {"kind": "openai", "model": "m", "base_url": "http://127.0.0.1:9/v1"}


def make_pack(folder: Path, **head: Any) -> Path:
    small(folder)
    path = folder / "pack.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **head}))
    return folder


async def test_a_pack_whose_user_is_a_model_needs_one(tmp_path: Path) -> None:
    pack = make_pack(tmp_path / "p", user="llm")
    with pytest.raises(UserError, match="a model plays its user, but none is chosen: set player"):
        await open_environment(pack)
    for chosen in ({"user": "none"}, {"player": MODEL}):
        await (await open_environment(pack, **chosen)).close()


async def test_without_an_agent_of_its_own_the_llm_plays_the_user(tmp_path: Path) -> None:
    """A trainer's policy is the agent, so a model that is named as llm can only be for the others; a rollout's is the agent's."""
    settings = {"pack": str(make_pack(tmp_path / "p", user="llm")), "llm": MODEL}
    environment = await open_environment(settings)
    await environment.close()
    config = EnvironmentConfig.model_validate(settings)
    models = RoleModels(config, environment.pack)
    async with contextlib.AsyncExitStack() as stack:
        await models.open(str, stack)
        assert models.facts == {"player": "m"}
    with pytest.raises(UserError, match="or set user=llm, and llm plays the user; or set user=none"):
        user_kind(RolloutConfig.model_validate({**settings, "agent": "llm"}), environment.pack)


async def test_knowledge_of_a_reference_needs_a_reference(tmp_path: Path) -> None:
    pack = make_pack(tmp_path / "p")
    (pack / "tasks.jsonl").write_text(
        '{"id": "t1", "instruction": "Do it.", "reward": {"parts": [{"kind": "answer", "expect": ["1"]}]}}\n'
    )
    settings: dict[str, Any] = {"pack": str(pack), "backend": "simulated", "llm": MODEL}
    with pytest.raises(UserError, match=r"none of 1 task has a reference: set backend_settings\.knowledge=schema"):
        await open_environment(settings)
    await (await open_environment(settings, knowledge="schema")).close()


def test_a_local_model_of_another_role_takes_the_threads_of_llm() -> None:
    def list_threads(*settings: str) -> dict[str, int | None]:
        config = make_rollout_config(load_suite("packs", [*settings, "user=llm", "player.kind=embedded"]))
        models = RoleModels(config, Pack.load("customer_service")).list_models().values()
        return {each.model: each.threads for each in models if isinstance(each, EmbeddedSettings)}

    agent, player = "llm.model=smollm2-135m", "player.model=qwen2.5-coder-0.5b"
    assert list_threads(agent, player) == {"smollm2-135m": None, "qwen2.5-coder-0.5b": None}
    assert list_threads(agent, player, "llm.threads=1") == {"smollm2-135m": 1, "qwen2.5-coder-0.5b": 1}
    assert list_threads("llm.model=smollm2-135m", "player.model=smollm2-135m", "llm.threads=1") == {"smollm2-135m": 1}


def test_a_local_model_plays_as_many_episodes_as_its_slots_hold() -> None:
    def limit_episodes(*settings: str) -> int:
        config = make_rollout_config(load_suite("packs", list(settings)))
        return RoleModels(config, Pack.load("customer_service")).limit_episodes(config.concurrency)

    local = "llm.model=smollm2-135m"
    assert limit_episodes(local, "user=none") == 4
    assert limit_episodes(local, "user=none", "concurrency=3") == 3
    assert limit_episodes(local, "user=none", "llm.parallel=8") == 8
    assert limit_episodes(local, "user=none", "reward=oracle") == 4  # the judge, the same model, asks at the end
    assert (
        limit_episodes(local, "user=llm", "player.model=smollm2-135m", "player.kind=embedded") == 2
    )  # one model, two conversations
    assert limit_episodes(local, "llm.slots=1", "user=llm", "player.model=smollm2-135m", "player.kind=embedded") == 1
    assert limit_episodes("llm.kind=openai", "llm.base_url=http://127.0.0.1:9/v1", "llm.model=m", "user=none") == 64
