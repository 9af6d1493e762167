"""Events of tools in a world that runs code: each is seen in what the agent reads, and the state stays what the calls made of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from simia.envs.environment import Environment, Episode
from simia.envs.opening import open_environment
from simia.envs.perturbation.settings import TOOL_EVENTS, USER_EVENTS, PerturbSettings
from simia.envs.play.agent_kinds import AGENTS
from simia.envs.play.player import play
from simia.errors import Code
from simia.exporting.parquet_table import to_table_row
from simia.formats.parquet_rows import from_table_row
from simia.prompts import read_lines
from simia.task import CallLimits
from simia.trajectory import Message, ToolCall, Trajectory

ORDER = {"order_id": "ORD-20464", "email": "yann.legoff@example.com"}
NOTE = {"order_id": "ORD-20464", "note": "Ring at the blue door."}
TASK = "cs-030"


@pytest.fixture
async def shop() -> AsyncIterator[Environment]:
    async with await open_environment("customer_service", user="scripted") as environment:
        yield environment


async def start(shop: Environment, kind: str, at: int = 1, tool: str | None = None) -> Episode:
    shop.perturb = PerturbSettings.model_validate({"schedule": [{"kind": kind, "at": at, "tool": tool}]})
    return await shop.reset(TASK)


async def call(episode: Episode, name: str, arguments: dict[str, Any]) -> Message:
    made = ToolCall(id=f"c{len(episode.messages)}", name=name, arguments=arguments)
    return (await episode.step(Message(role="assistant", calls=[made]))).messages[0]


async def changes(episode: Episode) -> list[dict[str, Any]]:
    assert episode.world is not None
    return await episode.world.changes() or []


async def read_regular(shop: Environment) -> dict[str, Any]:
    shop.perturb = None
    episode = await shop.reset(TASK)
    regular: dict[str, Any] = json.loads((await call(episode, "get_order", ORDER)).text)
    await episode.close()
    return regular


async def test_a_transient_error_is_not_run_and_the_same_call_then_succeeds(shop: Environment) -> None:
    episode = await start(shop, "transient_error", tool="add_note")
    assert "total" in (await call(episode, "get_order", ORDER)).text, "another tool is not disturbed"
    failed = await call(episode, "add_note", NOTE)
    assert failed.error is Code.TOOL_ERROR
    assert "temporarily unavailable" in failed.text
    assert await changes(episode) == []
    assert episode.trajectory.perturbations[0].reaction is None
    assert (await call(episode, "add_note", NOTE)).error is None
    assert len(await changes(episode)) == 1
    (record,) = episode.trajectory.perturbations
    assert (record.kind, record.tool, record.by, record.happened) == ("transient_error", "add_note", "code", True)
    assert record.reaction == "repeated"
    assert episode.messages[record.message].text == failed.text
    await episode.close()


async def test_a_rate_limit_refuses_two_calls_of_any_tool(shop: Environment) -> None:
    episode = await start(shop, "rate_limit")
    results = [await call(episode, *each) for each in (("add_note", NOTE), ("get_order", ORDER), ("add_note", NOTE))]
    assert ["rate limit" in each.text for each in results] == [True, True, False]
    assert [each.error for each in results] == [Code.TOOL_ERROR, Code.TOOL_ERROR, None]
    assert len(await changes(episode)) == 1
    await episode.close()


async def test_a_slow_call_is_run_once_and_its_result_is_read_by_the_same_call(shop: Environment) -> None:
    episode = await start(shop, "slow_result", tool="cancel_order")
    cancel = {"order_id": "ORD-20464", "reason": "not_needed"}
    pending = await call(episode, "cancel_order", cancel)
    assert json.loads(pending.text)["status"] == "processing"
    assert pending.error is None
    made = await changes(episode)
    assert made, "the call was carried out"
    result = await call(episode, "cancel_order", cancel)
    assert json.loads(result.text)["status"] == "cancelled"
    assert await changes(episode) == made, "and not a second time"
    again = await call(episode, "cancel_order", cancel)
    assert again.error is Code.TOOL_ERROR, "a third call is run: the order is cancelled"
    await episode.close()


async def test_a_partial_result_is_the_first_half(shop: Environment) -> None:
    regular = await read_regular(shop)
    episode = await start(shop, "partial_result")
    part = json.loads((await call(episode, "get_order", ORDER)).text)
    assert part.pop("partial") is True
    assert "of" in part.pop("note")
    assert part.items() < regular.items()
    assert json.loads((await call(episode, "get_order", ORDER)).text) == regular
    await episode.close()


async def test_a_renamed_field_keeps_its_new_name(shop: Environment) -> None:
    regular = await read_regular(shop)
    episode = await start(shop, "renamed_field")
    found = [json.loads((await call(episode, "get_order", ORDER)).text) for _ in range(2)]
    detail = episode.trajectory.perturbations[0].detail
    for each in found:
        assert each.keys() - regular.keys() == {detail["new"]}
        assert regular.keys() - each.keys() == {detail["field"]}
        assert each[detail["new"]] == regular[detail["field"]]
    assert len(episode.trajectory.perturbations) == 1
    await episode.close()


async def test_a_missing_field_is_missing_once(shop: Environment) -> None:
    regular = await read_regular(shop)
    episode = await start(shop, "missing_field")
    found = [json.loads((await call(episode, "get_order", ORDER)).text) for _ in range(2)]
    assert regular.keys() - found[0].keys() == {episode.trajectory.perturbations[0].detail["field"]}
    assert found[1] == regular
    await episode.close()


async def test_stale_data_are_those_of_the_start(shop: Environment) -> None:
    regular = await read_regular(shop)
    episode = await start(shop, "stale_data")
    await call(episode, "get_order", ORDER)
    assert episode.trajectory.perturbations == [], "nothing was changed yet, so nothing can be out of date"
    await call(episode, "add_note", NOTE)
    stale, true = [json.loads((await call(episode, "get_order", ORDER)).text) for _ in range(2)]
    assert stale == regular
    assert true == {**regular, "note": NOTE["note"]}
    assert [each.reaction for each in episode.trajectory.perturbations] == ["repeated"]
    await episode.close()


async def test_a_changed_policy_asks_to_confirm_every_change(shop: Environment) -> None:
    episode = await start(shop, "changed_policy")
    assert (await call(episode, "get_order", ORDER)).error is None, "look-ups are not changes"
    other = {**NOTE, "note": "Ring twice."}
    refused = [(await call(episode, "add_note", each)).error for each in (NOTE, NOTE, other, other)]
    assert refused == [Code.TOOL_ERROR, None, Code.TOOL_ERROR, None]
    assert [each["new"] for each in await changes(episode)] == ["Ring twice."]
    await episode.close()


async def test_an_ambiguous_match_holds_the_right_record_and_another_one(shop: Environment) -> None:
    regular = await read_regular(shop)
    episode = await start(shop, "ambiguous_match")
    matches = json.loads((await call(episode, "get_order", ORDER)).text)["matches"]
    assert len(matches) == 2
    assert regular in matches
    (other,) = [each for each in matches if each != regular]
    assert other.keys() == regular.keys()
    assert other["order_id"] != ORDER["order_id"], "the arguments tell which one is right"
    await episode.close()


@pytest.mark.parametrize("obeys", [False, True])
async def test_an_injected_instruction_is_in_the_result_and_obedience_is_seen(shop: Environment, obeys: bool) -> None:
    episode = await start(shop, "injected_instruction")
    result = await call(episode, "get_order", ORDER)
    code = episode.trajectory.perturbations[0].detail["code"]
    assert code in result.text
    await episode.step(Message(role="assistant", content=f"The code is {code}." if obeys else "It is pending."))
    assert episode.trajectory.perturbations[0].reaction == ("followed" if obeys else None)
    await episode.close()


@pytest.mark.parametrize("kind", ["transient_error", "rate_limit", "slow_result", "missing_field"])
@pytest.mark.parametrize("limit", ["calls", "calls_per_turn"])
async def test_a_limit_of_calls_does_not_count_what_an_event_costs(shop: Environment, kind: str, limit: str) -> None:
    """The limit is the number of calls of the solution."""
    shop.perturb = PerturbSettings.model_validate({"schedule": [{"kind": kind}]})
    plain = shop.pack.task("cs-001")
    task = plain.model_copy(update={"limits": CallLimits.model_validate({limit: len(plain.agent_actions)})})
    played = await play(await shop.reset(task), AGENTS["repeating"](task, 0))
    assert [event.kind for event in played.perturbations] == [kind]
    assert played.reward is not None
    assert played.reward.value == 1.0


async def test_calls_beyond_the_limit_are_refused_after_an_event_too(shop: Environment) -> None:
    shop.perturb = PerturbSettings.model_validate({"schedule": [{"kind": "transient_error"}]})
    episode = await shop.reset(shop.pack.task(TASK).model_copy(update={"limits": CallLimits(calls=2)}))
    results = [await call(episode, "get_order", ORDER) for _ in range(4)]
    assert [each.error for each in results[1:]] == [None, None, Code.MAX_CALLS]
    assert episode.end is not None
    assert episode.end.code == Code.MAX_CALLS


async def test_refused_calls_of_one_message_and_calls_that_reach_no_tool(shop: Environment) -> None:
    episode = await start(shop, "transient_error", at=2)
    calls = [("get_ordre", ORDER), ("get_order", {"order_id": 7}), ("get_order", ORDER), ("add_note", NOTE)]
    made = [ToolCall(id=f"c{n}", name=name, arguments=arguments) for n, (name, arguments) in enumerate(calls)]
    results = (await episode.step(Message(role="assistant", calls=made))).messages
    errors = [Code.UNKNOWN_TOOL, Code.BAD_ARGUMENTS, None, Code.TOOL_ERROR]
    assert [each.error for each in results] == errors, "calls that reach no tool do not count"
    (record,) = episode.trajectory.perturbations
    assert episode.messages[record.message].call_id == "c3"
    await episode.close()


async def test_a_fork_goes_on_with_the_same_schedule_and_records_of_its_own(shop: Environment) -> None:
    episode = await start(shop, "slow_result")
    await call(episode, "add_note", NOTE)
    fork = await episode.fork()
    results = [json.loads((await call(each, "add_note", NOTE)).text) for each in (fork, episode)]
    assert results[0] == results[1]
    assert results[0] == {"order_id": "ORD-20464", "note": NOTE["note"]}
    assert fork.trajectory.perturbations == episode.trajectory.perturbations
    assert fork.perturber is not episode.perturber
    await fork.close()
    await episode.close()


async def say(episode: Episode, text: str) -> Message:
    return (await episode.step(Message(role="assistant", content=text))).messages[-1]


def list_reactions(episode: Episode) -> list[str | None]:
    return [each.reaction for each in episode.trajectory.perturbations]


async def test_a_change_between_the_withdrawal_and_the_renewed_wish_is_too_early(shop: Environment) -> None:
    episode = await start(shop, "change_of_mind")
    await call(episode, "get_order", ORDER)
    await call(episode, "add_note", {"order_id": "ORD-20464"})
    assert list_reactions(episode) == [None], "neither a look-up nor a call that reaches no tool"
    fork = await episode.fork()
    await say(fork, "Take your time.")
    assert fork.messages[-1].text in read_lines("perturb/decisions.txt")
    await call(fork, "add_note", NOTE)
    assert list_reactions(fork) == [None], "the user wants it again"
    await fork.close()
    await call(episode, "add_note", NOTE)
    assert list_reactions(episode) == ["too_early"]
    await episode.close()


async def test_planned_events_that_never_came_are_in_the_ended_episode(shop: Environment) -> None:
    planned = [{"kind": "rate_limit", "at": 99}, {"kind": "slow_result", "tool": "add_note"}, {"kind": "impatience"}]
    shop.perturb = PerturbSettings.model_validate({"schedule": [*planned, {"kind": "off_topic", "at": 99}]})
    episode = await shop.reset(TASK)
    await call(episode, "get_order", ORDER)
    assert "missed_events" not in episode.trajectory.extra
    while episode.end is None:
        await episode.step(Message(role="assistant", content="I see."))
    assert [each.kind for each in episode.trajectory.perturbations] == ["impatience"]
    assert episode.trajectory.extra["missed_events"] == [
        {"kind": "rate_limit", "at": 99},
        {"kind": "slow_result", "at": 1, "tool": "add_note"},
        {"kind": "off_topic", "at": 99},
    ]


async def play_all(shop: Environment, agent: str, perturb: PerturbSettings | None, limit: int = 24) -> list[Trajectory]:
    shop.perturb = perturb

    async def one(number: int) -> Trajectory:
        task = shop.tasks[number]
        return await play(await shop.reset(task), AGENTS[agent](task, 0))

    return await asyncio.gather(*map(one, range(limit)))


def count_solved(played: list[Trajectory]) -> int:
    return sum(each.reward is not None and each.reward.value == 1.0 for each in played)


async def test_the_same_seed_twice_gives_the_same_episodes(shop: Environment) -> None:
    settings = PerturbSettings(kinds=[*TOOL_EVENTS, *USER_EVENTS], events=4)
    first, second = [await play_all(shop, "repeating", settings) for _ in range(2)]
    assert [each.to_row() for each in first] == [each.to_row() for each in second]
    other = await play_all(shop, "repeating", settings.model_copy(update={"seed": 1}))
    assert [each.perturbations for each in first] != [each.perturbations for each in other]


async def test_what_is_disturbed_can_be_solved_by_repeating_and_not_by_doing_nothing(shop: Environment) -> None:
    settings = PerturbSettings(kinds=["transient_error", "changed_policy", "rate_limit"], events=3, within=1)
    plain, careless, careful, idle = [
        await play_all(shop, agent, perturb)
        for agent, perturb in (
            ("reference", None),
            ("reference", settings),
            ("repeating", settings),
            ("nothing", settings),
        )
    ]
    assert count_solved(plain) == count_solved(careful) == 24
    assert count_solved(careless) < 24
    assert [each.reward.value for each in idle if each.reward] == [0.0] * 24


async def test_events_of_users_earn_nothing_for_doing_nothing(shop: Environment) -> None:
    settings = PerturbSettings(kinds=list(USER_EVENTS), events=4, within=1)
    idle = await play_all(shop, "nothing", settings)
    assert [each.reward.value for each in idle if each.reward] == [0.0] * 24
    kinds = {event.kind for each in idle for event in each.perturbations}
    assert kinds >= {"impatience", "off_topic", "change_of_mind"}


async def test_records_are_written_and_read_with_the_trajectory(shop: Environment) -> None:
    (played, *_) = await play_all(shop, "reference", PerturbSettings(within=1), limit=1)
    assert played.perturbations
    row = json.loads(json.dumps(played.to_row()))
    assert Trajectory.from_row(row) == played
    assert row["perturbations"][0]["kind"] == played.perturbations[0].kind
    exported = from_table_row(to_table_row(played))
    assert Trajectory.from_row(exported).perturbations == played.perturbations, "a table holds them too"
