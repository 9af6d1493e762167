"""Tasks of format 2, played in the executable world: goals, revealed tools, withheld facts, limits, penalties."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from simia.authoring.scaffold import scaffold_pack
from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import NothingAgent, ReferenceAgent
from simia.envs.play.player import play
from simia.errors import Code
from simia.pack import Pack
from simia.task import Task
from simia.trajectory import Message, ToolCall, Trajectory


def call(name: str, **arguments: Any) -> Message:
    return Message(role="assistant", calls=[ToolCall(id="1", name=name, arguments=arguments)])


def say(text: str) -> Message:
    return Message(role="assistant", content=text)


@pytest.fixture(scope="module")
def todo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packs") / "todo"
    scaffold_pack(folder)
    return folder
