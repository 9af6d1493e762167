"""The agent that plays the reference with the ids that results bring."""

from __future__ import annotations

from typing import Any

from simia.envs.play.following_agent import FollowingAgent
from simia.envs.users import EpisodeView
from simia.task import Task
from simia.trajectory import Message, ToolCall

TASK = Task.model_validate(
    {
        "id": "t",
        "instruction": "Register Ada Lamp and book room R-12 for her.",
        "reference": [
            {"name": "add_guest", "arguments": {"name": "Ada Lamp"}},
            {"name": "book", "arguments": {"guest_id": "GU-4920", "room_id": "R-12", "nights": 2}},
            {"name": "add_extras", "arguments": {"booking": {"ids": ["BK-1"]}}},
        ],
        "reward": {"parts": [{"kind": "answer", "expect": ["GU-4920 has BK-1"]}]},
    }
)
OPENING = Message(role="user", content=TASK.instruction)


async def play(results: list[str]) -> list[Message]:
    """The agent's messages, where each call is answered by the next of these results."""
    agent, messages = FollowingAgent(TASK), [OPENING]
    for result in [*results, ""]:
        message, _ = await agent.act(EpisodeView("Rooms are R-1 to R-20.", tuple(messages), ()))
        messages.append(message)
        messages += [Message(role="tool", content=result, call_id=call.id, name=call.name) for call in message.calls]
    return [message for message in messages if message.role == "assistant"]


def read_arguments(messages: list[Message]) -> list[dict[str, Any] | None]:
    return [call.arguments for message in messages for call in message.calls]


async def test_the_ids_of_the_code_are_those_of_the_script() -> None:
    played = await play(['{"guest_id": "GU-4920"}', '{"booking_id": "BK-1"}', "{}"])
    assert read_arguments(played) == [action.arguments for action in TASK.reference]
    assert played[-1].content == "GU-4920 has BK-1"


async def test_ids_that_a_model_made_take_their_place() -> None:
    played = await play(['{"guest_id": "GU-10", "near": ["R-3"]}', '{"booking_id": "BK-77"}', "{}"])
    assert read_arguments(played)[1:] == [
        {"guest_id": "GU-10", "room_id": "R-12", "nights": 2},
        {"booking": {"ids": ["BK-77"]}},
    ]
    assert played[-1].content == "GU-10 has BK-77"


async def test_a_result_with_one_new_id_is_preferred_to_a_list() -> None:
    task = TASK.model_copy(
        update={
            "reference": [TASK.reference[0], TASK.reference[0].model_copy(update={"name": "list"}), TASK.reference[1]]
        }
    )
    agent, messages = FollowingAgent(task), [OPENING]
    for result in ('{"guest_id": "GU-10"}', '["GU-7", "GU-8", "GU-10"]'):
        message, _ = await agent.act(EpisodeView(None, tuple(messages), ()))
        (call,) = message.calls
        messages += [message, Message(role="tool", content=result, call_id=call.id, name=call.name)]
    message, _ = await agent.act(EpisodeView(None, tuple(messages), ()))
    assert message.calls[0].arguments == {"guest_id": "GU-10", "room_id": "R-12", "nights": 2}


async def test_without_an_id_of_that_form_the_script_stays() -> None:
    played = await play(['{"error": "no"}', '{"error": "no"}', "{}"])
    assert read_arguments(played)[1] == TASK.reference[1].arguments
    assert isinstance(played[0].calls[0], ToolCall)
