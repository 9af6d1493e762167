"""Whose failure an episode is, by rows as a rollout stores them: every party, and every kind with a rule of its own."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from simia.authoring.scaffold import CODE
from simia.config import load_config
from simia.errors import Code, Issue
from simia.evaluation.failures import (
    EXAMPLES,
    LONGEST,
    PARTIES,
    Failure,
    classify_failure,
    classify_failures,
    count_parties,
    group_failures,
)
from simia.evaluation.scores import PlayedEpisode, read_episodes
from simia.jobs import Run
from simia.reward import Reward
from simia.rollouts.session import start_rollout
from simia.rollouts.settings import RolloutConfig
from simia.task import Task
from simia.trajectory import End, Message, ToolCall, Trajectory
from tests.fake_endpoint import FakeEndpoint
from tests.packs.small import small

TASK = Task.model_validate({"id": "t", "instruction": "Your order is #W1234567. Ask for a refund to ada@example.com."})
BY_USER = ["user"]
BY_MODEL: dict[str, Any] = {"seed": 0, "backend": "executable", "user_model": True}
WRONG_STATE = Reward(value=0.0, parts={"state": 0.0}, rationale="state: orders/W1 is open, not closed")


def user(text: str) -> Message:
    return Message(role="user", content=text)


def agent(text: str) -> Message:
    return Message(role="assistant", content=text)


def call(
    name: str = "get_order", error: Code | None = None, text: str = '{"ok": true}', number: int = 0
) -> list[Message]:
    """A call of the agent with its result."""
    made = ToolCall(id=f"call_{number}", name=name, arguments={"id": "#W1234567"})
    return [
        Message(role="assistant", calls=[made]),
        Message(role="tool", call_id=made.id, name=name, content=text, error=error),
    ]


def own_call(error: Code | None = None) -> list[Message]:
    """A call of the user's own tool with its result, as telecom's users make them."""
    made = ToolCall(id="own", name="toggle_wifi", arguments={})
    return [
        Message(role="user", calls=[made], visible_to=BY_USER),
        Message(role="tool", call_id=made.id, name=made.name, content="…", error=error, visible_to=BY_USER),
    ]


def end(code: Code, kind: Any = "terminated") -> End:
    return End(kind=kind, code=code)


def aborted(code: Code, detail: str) -> dict[str, Any]:
    """What `Episode` stores where infrastructure ended it."""
    return {
        "end": end(code, "aborted"),
        "issues": [Issue(code=code, where="messages[1]", detail=detail)],
        "reward": Reward(error=code, rationale=detail),
    }


def unjudged(code: Code, detail: str) -> dict[str, Any]:
    """An episode that ended well and could not be judged."""
    return {"end": end(Code.USER_STOP), "reward": Reward(error=code, rationale=detail)}


def scored(reward: Reward = WRONG_STATE, **more: Any) -> dict[str, Any]:
    return {"reward": reward, "end": end(Code.USER_STOP), **more}


OPENING = user("Hi, I want a refund for order #W1234567.")
CALLED = [OPENING, *call(), agent("Done.")]
ROWS: dict[str, tuple[tuple[str, str, str], list[Message], dict[str, Any]]] = {
    # party, kind and a part of the detail; messages; the rest of the trajectory
    "endpoint down": (
        ("infrastructure", "model not reached", "connection: refused"),
        [OPENING],
        aborted(Code.CONNECTION, "refused"),
    ),
    "endpoint slow": (("infrastructure", "model not reached", "timeout"), CALLED, aborted(Code.TIMEOUT, "after 600 s")),
    "budget": (("infrastructure", "budget reached", "budget: $5"), [OPENING], aborted(Code.BUDGET, "$5 are spent")),
    "bug of simia": (("infrastructure", "error of simia", "KeyError"), [OPENING], aborted(Code.INTERNAL, "KeyError: 'x'")),
    "own function": (
        ("agent", "gives no message", "agent_function a.py:act: KeyError"),
        [OPENING],
        aborted(Code.AGENT_FAILED, "agent_function a.py:act: KeyError: 'x' (a.py, line 3)"),
    ),
    "silent user": (
        ("user", "says nothing readable", "said nothing"),
        CALLED,
        aborted(Code.USER_FAILED, "the user said nothing that can be read"),
    ),
    "no set-up": (("environment", "task cannot be set up", "no such table"), [OPENING], aborted(Code.NO_START, "no such table")),
    "worker lost": (("environment", "world lost", "killed"), CALLED, aborted(Code.WORKER_LOST, "the worker was killed")),
    "replay": (
        ("environment", "world not deterministic", "another id"),
        CALLED,
        aborted(Code.REPLAY_DIVERGED, "another id"),
    ),
    "simulated": (
        ("environment", "simulated world contradicts itself", "was open"),
        CALLED,
        aborted(Code.CONTRADICTION, "#W1234567 was open before"),
    ),
    "check too long": (("environment", "check took too long", "30 s"), CALLED, unjudged(Code.CHECK_TIMEOUT, "30 s")),
    "unscored": (("environment", "state cannot be judged", "no final state"), CALLED, unjudged(Code.UNSCORED, "no final state")),
    "reward function": (
        ("environment", "reward function failed", "ZeroDivisionError"),
        CALLED,
        unjudged(Code.REWARD_FUNCTION, "ZeroDivisionError"),
    ),
    "tool failed": (
        ("environment", "tool broke", "get_order: KeyError"),
        [OPENING, *call(error=Code.TOOL_FAILED, text="KeyError: 'orders'"), agent("I cannot see it.")],
        scored(extra=BY_MODEL),
    ),
    "tool refused": (
        ("agent", "wrong final state", "orders/W1 is open"),
        [OPENING, *call(error=Code.TOOL_ERROR, text="order is shipped"), agent("It is shipped.")],
        scored(extra=BY_MODEL),
    ),
    "invented number": (
        ("user", "invents a fact", "#W7654321 in: It is"),
        [OPENING, agent("Which order?"), user("It is #W7654321."), *call()],
        scored(extra=BY_MODEL),
    ),
    "number that the agent told": (
        ("agent", "wrong final state", ""),
        [OPENING, agent("There is #W7654321 as well. This one?"), user("Yes, W7654321."), *call()],
        scored(extra=BY_MODEL),
    ),
    "number of a scripted user": (
        ("agent", "wrong final state", ""),
        [OPENING, agent("Which order?"), user("It is #W7654321."), *call()],
        scored(),
    ),
    "result as text": (
        ("user", "writes calls or results as text", "tool_call"),
        [OPENING, *call(), user('<tool_call>{"name": "get_order"}</tool_call>')],
        scored(extra=BY_MODEL),
    ),
    "same words": (
        ("user", "repeats itself", "3 times: Please go on."),
        [OPENING, *(message for _ in range(3) for message in (agent("Sure?"), user("Please go on."))), *call()],
        scored(extra=BY_MODEL),
    ),
    "same words twice": (
        ("agent", "wrong final state", ""),
        [OPENING, *(message for _ in range(2) for message in (agent("Sure?"), user("Please go on."))), *call()],
        scored(extra=BY_MODEL),
    ),
    "own calls fail": (
        ("user", "calls its tools wrongly", "2 of 3 calls failed"),
        [OPENING, *own_call(), *own_call(Code.BAD_ARGUMENTS), *own_call(Code.UNKNOWN_TOOL), *call()],
        scored(extra=BY_MODEL),
    ),
    "half of the own calls fail": (
        ("agent", "wrong final state", ""),
        [OPENING, *own_call(), *own_call(Code.BAD_ARGUMENTS), *call()],
        scored(extra=BY_MODEL),
    ),
    "leaves": (
        ("user", "leaves a question unanswered", "Shall I refund it?"),
        [OPENING, *call(), agent("Shall I refund it?")],
        scored(extra=BY_MODEL),
    ),
    "leaves at the end": (
        ("agent", "wrong final state", ""),
        [OPENING, *call(), agent("It is refunded. Is there anything else I can help you with?")],
        scored(extra=BY_MODEL),
    ),
    "leaves one of two questions": (
        ("user", "leaves a question unanswered", "Which one"),
        [OPENING, *call(), agent("Anything else? Which one do you mean?")],
        scored(extra=BY_MODEL),
    ),
    "a date in other words": (
        ("agent", "wrong final state", ""),
        [OPENING, agent("When?"), user("It was on 2024-05-20, with 2-day shipping."), *call()],
        scored(extra=BY_MODEL),
    ),
    "leaves with an answer": (
        ("agent", "wrong final state", ""),
        [OPENING, *call(), agent("Shall I refund it?"), user("No.")],
        scored(extra=BY_MODEL),
    ),
    "errors in a row": (
        ("agent", "fails again and again", "refund: no such order"),
        [OPENING, *call("refund", Code.TOOL_ERROR, "no such order", 1), *call("refund", Code.TOOL_ERROR, "no such order", 2)],
        scored(end=end(Code.MAX_ERRORS, "truncated")),
    ),
    "turns": (("agent", "reaches a limit", "turns"), CALLED, scored(end=end(Code.MAX_TURNS, "truncated"))),
    "nothing": (("agent", "calls nothing", "I cannot"), [OPENING, agent("I cannot help.")], scored()),
    "malformed": (
        ("agent", "no call is well-formed", "get_ordr"),
        [OPENING, *call("get_ordr", Code.UNKNOWN_TOOL, "no tool get_ordr")],
        scored(),
    ),
    "answer": (
        ("agent", "wrong or missing answer", "12 is not in it"),
        CALLED,
        scored(Reward(value=0.5, parts={"state": 1.0, "answer": 0.0}, rationale="state: equal\nanswer: 12 is not in it")),
    ),
    "check": (("agent", "failed check", ""), CALLED, scored(Reward(value=0.5, parts={"checklist.2": 0.0}))),
    "no parts": (("agent", "low reward", "the judge says no"), CALLED, scored(Reward(value=0.3, rationale="the judge says no"))),
}  # fmt: skip


def store(name: str, messages: list[Message], rest: dict[str, Any]) -> PlayedEpisode:
    """The row as the ledger holds it: JSON, without what is stored once for all episodes."""
    row = json.loads(json.dumps(Trajectory(pack="shop", task_id="t", messages=messages, **rest).to_row()))
    return PlayedEpisode(f"{name}.0", "shop", "t", (row.get("reward") or {}).get("value"), row)


@pytest.mark.parametrize("name", ROWS)
def test_a_stored_row_has_its_party_and_kind(name: str) -> None:
    (party, kind, detail), messages, rest = ROWS[name]
    found = classify_failure(store(name, messages, rest), TASK)
    assert (found.item, found.party, found.kind) == (f"{name}.0", party, kind)
    assert detail in found.detail
    assert len(found.detail) <= LONGEST


def test_every_party_has_rows_and_all_are_counted() -> None:
    played = [store(name, messages, rest) for name, (_, messages, rest) in ROWS.items()]
    solved = store("solved", CALLED, scored(Reward(value=1.0, parts={"state": 1.0})))
    failures = classify_failures([solved, *played], {"t": TASK})
    assert [each.item for each in failures] == [each.item for each in played]
    expected = [party for (party, _, _), _, _ in ROWS.values()]
    assert count_parties(failures) == {party: expected.count(party) for party in PARTIES}
    assert min(count_parties(failures).values()) >= 3


def test_without_the_task_no_fact_counts_as_invented() -> None:
    _, messages, rest = ROWS["invented number"]
    assert classify_failure(store("a", messages, rest), None).party == "agent"


def test_kinds_are_grouped_by_party_the_most_frequent_first() -> None:
    rows = [("user", "repeats itself"), *[("agent", "calls nothing")] * 5, ("agent", "low reward")]
    found = group_failures([Failure(f"t.{n}", party, kind, "") for n, (party, kind) in enumerate(rows)])  # type: ignore[arg-type]
    assert [(each.party, each.kind, each.count) for each in found] == [
        ("agent", "calls nothing", 5), ("agent", "low reward", 1), ("user", "repeats itself", 1),
    ]  # fmt: skip
    assert [each.item for each in found[0].examples] == [f"t.{n}" for n in range(1, EXAMPLES + 1)]


@pytest.mark.parametrize(
    ("plan", "settings", "party", "kind"),
    [
        ({"script": ["400"] * 9}, ["agent=llm", "llm.kind=openai", "llm.model=m"], "infrastructure", "model not reached"),
        ({"message": {"content": ""}, "finish": "length"}, ["agent=nothing", "user=llm", "player.kind=openai", "player.model=m"], "user", "says nothing readable"),
        ({"message": {"content": "Please go on."}}, ["agent=nothing", "user=llm", "player.kind=openai", "player.model=m"], "user", "repeats itself"),
        ({"message": {"content": "I cannot."}}, ["agent=llm", "llm.kind=openai", "llm.model=m"], "agent", "calls nothing"),
    ],
    ids=["infrastructure", "silent user", "user", "agent"],
)  # fmt: skip
async def test_a_played_episode_has_its_party(
    tmp_path: Path, fake_endpoint: FakeEndpoint, plan: dict[str, Any], settings: list[str], party: str, kind: str
) -> None:
    fake_endpoint.plan(**plan)
    assert await play(tmp_path, [*settings, *point(settings, fake_endpoint.url)]) == [(party, kind)]


async def test_a_tool_that_breaks_is_a_failure_of_the_environment(tmp_path: Path) -> None:
    broken = CODE.replace("self.state.todos[todo_id].done = True", "self.state.lists[todo_id].done = True")
    found = await play(tmp_path, ["agent=reference"], tools_py=broken)
    assert found == [("environment", "tool broke")]


def point(settings: list[str], url: str) -> list[str]:
    return [f"{'player' if 'user=llm' in settings else 'llm'}.base_url={url}"]


async def play(folder: Path, settings: list[str], tools_py: str | None = None) -> list[tuple[str, str]]:
    """Play the first task of the small pack, and return party and kind of its stored episode."""
    small(folder / "todos", **({} if tools_py is None else {"tools_py": tools_py}))
    config = load_config(RolloutConfig, "rollout/default", settings, pack=str(folder / "todos"), limit=1)
    await start_rollout(config, runs=folder, name="r", say=lambda _: None)
    with contextlib.closing(Run.read_only(folder, "r")) as run:
        failures = classify_failures(list(read_episodes(run)), {})
    return [(each.party, each.kind) for each in failures]
