"""`simia config`: every setting of every config is listed with its type, value and description."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

from simia.cli import build_app
from simia.cli.config import MODELS, find_config_model, list_config_names, load_config_model
from simia.config import load_config
from simia.config_listing import list_settings
from simia.errors import UserError

Show = Callable[..., list[str]]


@pytest.fixture
def show() -> Show:
    def run(*words: str) -> list[str]:
        done = CliRunner().invoke(build_app(), ["config", *words], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return str(done.stdout).splitlines()

    return run


def leaves(value: Any, at: str = "") -> dict[str, Any]:
    """Dotted name → value of a dumped config, sections opened."""
    if isinstance(value, BaseModel):
        names = {name: getattr(value, name) for name in type(value).model_fields}
        return {k: v for name, each in names.items() for k, v in leaves(each, f"{at}.{name}".lstrip(".")).items()}
    if isinstance(value, dict) and any(isinstance(each, BaseModel) for each in value.values()):
        return {k: v for name, each in value.items() for k, v in leaves(each, f"{at}.{name}").items()}
    return {at: value}


def test_without_a_name_it_lists_what_there_is(show: Show) -> None:
    assert set(show()) >= {"amplify", "rollout", "judge", "trl", "amplify/default", "rollout/default", "trl/grpo"}


def test_a_setting_has_name_type_default_and_description(show: Show) -> None:
    lines = show("amplify")
    at = lines.index("limits.max_cost: float or null = null")
    assert (
        lines[at + 1]
        == "    Budget in US dollars. It and the other budgets do not limit a batch. A try without an answer in time counts like a mean reply, since it may have been billed. After a kill, a resume does not know of those that were repeated. null: no limit."
    )
    assert "llm: section, kind: embedded" in lines
    assert "llm.model: str = (required)" in lines


def test_a_config_shows_its_own_values(show: Show) -> None:
    lines = show("amplify/quickstart", "--set", "limits.max_cost=2.5")
    assert "n: int = 8" in lines
    assert "limits.max_cost: float or null = 2.5" in lines
    assert 'llm.kind: "embedded" = "embedded"' in lines
    assert not any(line.startswith("llm.base_url") for line in lines), "only settings of the kind that is chosen"


def test_kinds_are_listed_once(show: Show) -> None:
    lines = show("rollout")
    assert "judge: the kinds of llm or null = null" in lines
    assert sum("base_url" in line for line in lines) == 1 + sum("base_url" in line for line in lines if line[0] == " ")


@pytest.mark.parametrize("name", list_config_names())
def test_no_setting_is_left_out(name: str) -> None:
    config = load_config(find_config_model(name), name)
    listed = {each.name: each for each in list_settings(type(config), config)}
    assert {key for key, each in listed.items() if each.value is not None} == leaves(config).keys()
    assert [each.name for each in listed.values() if not each.description and "." not in each.name] == []


@pytest.mark.parametrize("name", MODELS)
def test_every_name_has_defaults(name: str) -> None:
    model = load_config_model(name)
    assert {each.name.partition(".")[0] for each in list_settings(model)} == set(model.model_fields)


def test_the_kind_of_a_users_file_is_recognised(tmp_path: Path, show: Show) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("extends: rollout/default\ngroup: 3\n", encoding="utf-8")
    assert "group: int = 3" in show(str(path))


def test_a_trainers_own_config_is_refused() -> None:
    with pytest.raises(UserError, match=r"verl/simia.yaml contains no simia setting"):
        find_config_model("verl/simia")
