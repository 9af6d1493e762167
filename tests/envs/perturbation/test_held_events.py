"""Events of tools in a simulated world that holds the state: agents read what they read in the executable world, and the state stays true.

The model is a stand-in that runs the called tool on the state in the prompt.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from eval.simulator.code_simulator import CodeSimulator
from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.envs.perturbation.settings import TOOL_EVENTS, USER_EVENTS, PerturbSettings
from simia.envs.users import ScriptedUser
from simia.errors import Code
from simia.llm.engine import Engine, EngineLimits
from simia.llm.journals import MemoryJournal
from simia.pack import Pack
from simia.trajectory import Message, ToolCall, Trajectory

PACK = "customer_service"
TASK = "cs-030"
READ = ("get_order", {"order_id": "ORD-20464", "email": "yann.legoff@example.com"})
WRITE = ("add_note", {"order_id": "ORD-20464", "note": "Ring at the blue door."})
CALLS = (READ, READ, WRITE, WRITE, READ, READ)


@asynccontextmanager
async def held(**settings: Any) -> AsyncIterator[tuple[Environment, CodeSimulator]]:
    pack = Pack.load(PACK)
    model = CodeSimulator(pack)
    async with Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine:
        how = {"backend": "simulated", "knowledge": "code", "reward": "rules", "engine": engine, **settings}
        async with await open_environment(pack, user=ScriptedUser, **how) as environment:
            yield environment, model


async def play_calls(environment: Environment, kind: str, tool: str | None = None) -> tuple[Trajectory, Any]:
    """Make all calls under one event. Returns the episode, and the changes of its state."""
    environment.perturb = PerturbSettings.model_validate({"schedule": [{"kind": kind, "tool": tool}]})
    episode = await environment.reset(TASK)
    for number, (name, arguments) in enumerate(CALLS):
        made = ToolCall(id=f"c{number}", name=name, arguments=arguments)
        await episode.step(Message(role="assistant", calls=[made]))
    assert episode.world is not None
    changes = await episode.world.changes()
    found = episode.trajectory
    await episode.close()
    return found, changes


@pytest.mark.parametrize("settings", [{}, {"compute": "reads"}])
async def test_every_kind_is_made_as_in_the_executable_world(settings: dict[str, Any]) -> None:
    async with (
        held(**settings) as (environment, model),
        await open_environment(PACK, user=ScriptedUser) as executable,
    ):
        for kind in TOOL_EVENTS:
            own, state = await play_calls(environment, kind)
            real, real_state = await play_calls(executable, kind)
            assert [event.kind for event in own.perturbations] == [kind]
            assert own.perturbations == real.perturbations
            assert own.perturbations[0].happened
            assert [message.text for message in own.messages] == [message.text for message in real.messages]
            assert state == real_state != []
        assert not any("For this answer alone" in str(request.messages) for request in model.asked)


@pytest.mark.parametrize(("kind", "tool"), [("transient_error", "get_order"), ("missing_field", "add_note")])
async def test_an_event_of_one_tool_is_made_by_code_and_by_a_model(kind: str, tool: str) -> None:
    async with held(compute="reads") as (environment, _):
        found, _ = await play_calls(environment, kind, tool)
        (record,) = found.perturbations
        assert (record.kind, record.tool, record.happened, record.reaction) == (kind, tool, True, "repeated")
        shown = found.messages[record.message]
        if kind == "transient_error":
            assert shown.error is Code.TOOL_ERROR
        else:
            assert record.detail["field"] not in json.loads(shown.text)


async def test_in_a_mixed_world_a_simulated_look_up_out_of_date_is_the_agents_earlier_one() -> None:
    """The start is not asked of the model again."""
    routes = {"*": "simulated", "update_email": "executable"}
    async with held(backend=routes, split_state=True) as (environment, model):
        found, _ = await play_calls(environment, "stale_data")
        (record,) = found.perturbations
        assert (record.happened, record.by, record.reaction) == (True, "code", "repeated")
        results = [message.text for message in found.messages if message.role == "tool"]
        assert results[0] == results[4] != results[5]
        assert len(model.asked) == len(CALLS)


@pytest.mark.parametrize("kind", [*TOOL_EVENTS, *USER_EVENTS])
async def test_look_ups_and_words_alone_earn_nothing(kind: str) -> None:
    async with held() as (environment, _):
        environment.perturb = PerturbSettings.model_validate({"schedule": [{"kind": kind}]})
        episode = await environment.reset(TASK)
        for number in range(2 * (kind in TOOL_EVENTS)):
            made = ToolCall(id=f"c{number}", name=READ[0], arguments=READ[1])
            await episode.step(Message(role="assistant", calls=[made]))
        while episode.end is None:
            await episode.step(Message(role="assistant", content="I see."))
        assert episode.reward is not None
        assert episode.reward.value == 0.0
        made_by = [event.by for event in episode.trajectory.perturbations if event.happened]
        assert made_by == ([] if kind in ("stale_data", "changed_policy") else ["code"])
