"""Events of tools in a simulated world: the fragment is in the prompt, and a check decides from the answer whether the effect is there.

The model is a stand-in that does what the fragment says, or ignores it: what is tested is the way from the schedule to the record.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from simia.envs.episode import Episode
from simia.envs.opening import open_environment
from simia.envs.perturbation.settings import TOOL_EVENTS
from simia.errors import Code
from simia.llm.engine import Engine, EngineLimits
from simia.llm.journals import MemoryJournal
from simia.llm.types import Request
from simia.pack import Pack
from simia.reward import Reward
from simia.task import Task
from simia.tool import ToolSpec
from simia.trajectory import Message, Perturbation, ToolCall, Trajectory
from tests.envs.worlds.test_simulated import Scripted, asked

ID = {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]}
RESULT = {
    "type": "object",
    "properties": {"order_id": {"type": "string"}, "status": {"type": "string"}, "city": {"type": "string"}},
}
PACK = Pack(
    name="shop",
    policy="Be kind.",
    tools=[
        ToolSpec(name="get_order", description="An order.", parameters=ID, returns=RESULT),
        ToolSpec(name="cancel_order", description="Cancels it.", parameters=ID, returns=RESULT),
    ],
)
TASK = Task.model_validate(
    {"id": "t", "instruction": "Cancel ORD-1.", "reference": [{"name": "cancel_order", "arguments": {"order_id": "ORD-1"}}]}
)  # fmt: skip
READ, WRITE = "get_order", "cancel_order"


class Zero:
    async def score(self, trajectory: Trajectory, task: Task) -> Reward:
        return Reward(value=0.0)


def answer(content: Any, outcome: str = "result", changes: list[Any] | None = None) -> str:
    return json.dumps({"answers": [{"call": 1, "outcome": outcome, "content": content, "changes": changes or []}]})


def answer_plainly(request: Request) -> str:
    """An order that is cancelled after a cancellation that was carried out."""
    text = asked(request)
    done = re.findall(r"cancel_order .*\n   result", text)
    now = text.rpartition("# Calls to answer now")[2]
    change = {"table": "order", "key": "ORD-1", "set": {"status": "cancelled"}}
    wrote = WRITE in now and not done
    status = "cancelled" if done or wrote else "pending"
    return answer({"order_id": "ORD-1", "status": status, "city": "Cork"}, changes=[change] if wrote else [])


def find_fragment(request: Request) -> str:
    return asked(request).partition("For this answer alone")[2]


def follow(request: Request) -> str:
    """Do what the fragment in the prompt says."""
    fragment = find_fragment(request)
    plain = json.loads(answer_plainly(request))["answers"][0]
    content, changes = plain["content"], plain["changes"]
    if 'outcome is "error"' in fragment:
        cause = next(word for word in ("temporarily unavailable", "rate limit", "confirm") if word in fragment)
        return answer(f"{cause}: make the call again", "error")
    return answer(change_content(content, fragment), changes=changes)


def change_content(content: dict[str, Any], fragment: str) -> dict[str, Any]:
    """The result as the fragment wants it."""
    if not fragment:
        return content
    if '"status": "processing"' in fragment:
        return {"status": "processing", "message": "accepted; make the same call again"}
    if '"partial": true' in fragment:
        return {"order_id": "ORD-1", "partial": True, "note": "1 of 3 fields"}
    if found := re.search(r'the field "(\w+)" of its result is named "(\w+)"', fragment):
        return {found[2] if name == found[1] else name: each for name, each in content.items()}
    if found := re.search(r'The field "(\w+)" is left out', fragment):
        return {name: each for name, each in content.items() if name != found[1]}
    if "exactly the result that it gave before" in fragment:
        earlier: dict[str, Any] = json.loads(fragment.split("\n")[1])
        return earlier
    if '"matches"' in fragment:
        return {"note": "2 records match", "matches": [content, {**content, "order_id": "ORD-7"}]}
    assert "letter by letter" in fragment
    return {**content, "note": fragment.split("\n")[1]}


def observe(request: Request) -> str:
    """Do what the fragment says in the form of `agentworld-mcp`: the observation alone, an error as `{"error": …}`."""
    fragment = request.messages[0]["content"].partition("before all other rules\n")[2]
    actions = [each["content"] for each in request.messages if each["role"] == "user"]
    content = {
        "order_id": "ORD-1",
        "status": "cancelled" if any(WRITE in each for each in actions) else "pending",
        "city": "Cork",
    }
    if 'bservation is {"error"' in fragment:
        cause = next(word for word in ("temporarily unavailable", "rate limit", "confirm") if word in fragment)
        return json.dumps({"error": f"{cause}: make the call again"})
    assert not any(word in fragment for word in ("outcome", 'changes"', "the content"))
    return json.dumps(change_content(content, fragment))


@asynccontextmanager
async def played(
    kind: str, model: Callable[[Request], str], at: int = 1, dialect: str = "simia", pack: Pack = PACK
) -> AsyncIterator[tuple[Episode, Scripted]]:
    scripted = Scripted(model)
    async with Engine(scripted, MemoryJournal(), EngineLimits(retries=0)) as engine:
        environment = await open_environment(
            pack, backend="simulated", engine=engine, scorer=Zero(), user="none", knowledge="schema", dialect=dialect,
            perturb={"schedule": [{"kind": kind, "at": at}]},
        )  # fmt: skip
        yield await environment.reset(TASK), scripted


async def call(episode: Episode, name: str) -> Message:
    made = ToolCall(id=f"c{len(episode.messages)}", name=name, arguments={"order_id": "ORD-1"})
    return (await episode.step(Message(role="assistant", calls=[made]))).messages[0]


def calls_for(kind: str) -> list[str]:
    """Calls after which the event has happened."""
    if kind == "stale_data":
        return [READ, WRITE, READ]
    return [WRITE] if kind == "changed_policy" else [READ]


@pytest.mark.parametrize("kind", TOOL_EVENTS)
async def test_the_fragment_is_in_the_prompt_and_the_effect_in_the_observation(kind: str) -> None:
    async with played(kind, follow) as (episode, model):
        results = [await call(episode, name) for name in calls_for(kind)]
        assert [bool(find_fragment(each)) for each in model.asked] == [False] * (len(results) - 1) + [True]
        (record,) = episode.trajectory.perturbations
        assert (record.kind, record.by, record.happened) == (kind, "model", True)
        assert episode.messages[record.message].text == results[-1].text
        refused = kind in ("transient_error", "rate_limit", "changed_policy")
        assert results[-1].error is (Code.TOOL_ERROR if refused else None)


@pytest.mark.parametrize("kind", TOOL_EVENTS)
async def test_a_world_model_reads_the_event_in_its_own_form(kind: str) -> None:
    async with played(kind, observe, dialect="agentworld-mcp") as (episode, _):
        results = [await call(episode, name) for name in calls_for(kind)]
        (record,) = episode.trajectory.perturbations
        assert (record.kind, record.by, record.happened) == (kind, "model", True)
        refused = kind in ("transient_error", "rate_limit", "changed_policy")
        assert results[-1].error is (Code.TOOL_ERROR if refused else None)


TYPED = PACK.model_copy(
    update={"tools": [ToolSpec(name=name, description="", parameters=ID, reads=["order"]) for name in (READ, WRITE)]}
)


@pytest.mark.parametrize("kind", TOOL_EVENTS)
async def test_a_terminal_shows_only_what_a_screen_can(kind: str) -> None:
    async with played(
        kind, lambda request: "$ ORD-1\n" + find_order(request), dialect="agentworld-terminal", pack=TYPED
    ) as (episode, _):
        await call(episode, READ)
        happened = [(each.kind, each.happened) for each in episode.trajectory.perturbations]
        assert happened == ([(kind, True)] if kind == "injected_instruction" else [])


def find_order(request: Request) -> str:
    """The screen of an order, with the text that the fragment wants in it."""
    fragment = request.messages[0]["content"].partition("before all other rules\n")[2]
    return "pending\n" + (fragment.split("\n")[1] if "letter by letter" in fragment else "")


@pytest.mark.parametrize("kind", TOOL_EVENTS)
async def test_a_model_that_does_not_follow_is_recorded_as_such(kind: str) -> None:
    async with played(kind, answer_plainly) as (episode, model):
        for name in calls_for(kind):
            await call(episode, name)
        assert find_fragment(model.asked[-1])
        assert [each.happened for each in episode.trajectory.perturbations] == [False]


async def test_the_next_answer_is_regular_and_the_prompt_says_what_was_disturbed() -> None:
    async with played("transient_error", follow) as (episode, model):
        await call(episode, READ)
        again = await call(episode, READ)
        assert json.loads(again.text) == {"order_id": "ORD-1", "status": "pending", "city": "Cork"}
        assert not find_fragment(model.asked[1])
        assert "(this answer was disturbed: The service behind get_order fails once." in asked(model.asked[1])
        assert [each.reaction for each in episode.trajectory.perturbations] == ["repeated"]


async def test_a_new_name_stands_for_all_later_results_and_a_rate_limit_for_two_calls() -> None:
    async with played("renamed_field", follow) as (episode, _):
        found = [json.loads((await call(episode, READ)).text) for _ in range(2)]
        assert found[0] == found[1]
        assert episode.trajectory.perturbations[0].detail["new"] in found[0]
    async with played("rate_limit", follow) as (episode, _):
        assert [(await call(episode, READ)).error is None for _ in range(3)] == [False, False, True]


async def test_disturbed_answers_are_no_facts_and_their_changes_are() -> None:
    async with played("slow_result", follow) as (episode, _):
        await call(episode, WRITE)
        assert episode.world is not None
        assert await episode.world.state() == {"order": {"ORD-1": {"status": "cancelled"}}}
        assert json.loads((await call(episode, READ)).text)["status"] == "cancelled"
    async with played("stale_data", follow) as (episode, model):
        for name in (READ, WRITE, READ):
            await call(episode, name)
        assert len(model.asked) == 3, "an answer that contradicts the ledger by plan is not asked for again"


async def test_a_group_shares_the_disturbed_answer_and_a_fork_keeps_the_history() -> None:
    scripted = Scripted(follow)
    async with Engine(scripted, MemoryJournal(), EngineLimits(retries=0)) as engine:
        environment = await open_environment(
            PACK, backend="simulated", engine=engine, scorer=Zero(), user="none", knowledge="schema",
            perturb={"schedule": [{"kind": "missing_field"}]},
        )  # fmt: skip
        episodes = [await environment.reset(TASK, group="g") for _ in range(3)]
        results = await asyncio.gather(*(call(each, READ) for each in episodes))
        assert len({each.text for each in results}) == 1
        assert len(scripted.asked) == 1
        fork = await episodes[0].fork()
        regular = await call(fork, READ)
        assert len(json.loads(regular.text)) == 3
        assert "this answer was disturbed" in asked(scripted.asked[-1])
        assert fork.trajectory.perturbations[0] == Perturbation(
            **{**episodes[0].trajectory.perturbations[0].model_dump(), "reaction": "repeated"}
        )
        assert episodes[0].trajectory.perturbations[0].reaction is None


async def test_calls_of_one_turn_stay_one_request_while_nothing_is_due() -> None:
    async with played("transient_error", lambda _: json.dumps({"answers": [{"call": n, "outcome": "result", "content": {"status": "pending"}} for n in (1, 2)]}), at=5) as (episode, model):  # fmt: skip
        calls = [ToolCall(id=f"c{n}", name=READ, arguments={"order_id": f"ORD-{n}"}) for n in range(2)]
        await episode.step(Message(role="assistant", calls=calls))
        assert len(model.asked) == 1
