"""A session of text, and the stage that sessions share."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from simia import event_loop
from simia.envs import text_episode
from simia.envs.text_episode import (
    EnvironmentLease,
    await_on_portal,
    messages_to_text,
    plain_mapping,
    share_environment,
)
from simia.errors import UserError
from simia.trajectory import Message, ToolCall, Trajectory
from tests.packs.small import small

STAGE: dict[str, Any] = {"pack": "customer_service", "user": "scripted"}
LOOK = (
    '<tool_call>\n{"name": "get_order", "arguments": {"order_id": "ORD-00001", "email": "a@example.com"}}\n</tool_call>'
)


@pytest.fixture
def lease() -> Any:
    opened = share_environment(STAGE)
    yield opened
    opened.close()
    assert text_episode._shared == {}


def test_the_same_settings_are_one_environment(lease: EnvironmentLease) -> None:
    again = share_environment(MappingProxyType(dict(STAGE)))
    other = share_environment({**STAGE, "seed": 3})
    assert again.environment is lease.environment is not other.environment
    assert other.seed == 3
    again.close()
    again.close()  # twice: the first one stays open
    assert [shared.users for shared in text_episode._shared.values()] == [1, 1]
    other.close()
    given = share_environment(lease.environment)
    given.close()
    played = lease.session()
    assert [row["role"] for row in event_loop.run(played.reset("cs-009")).messages] == ["system", "user"]
    event_loop.run(played.leave())


def test_many_threads_open_it_once() -> None:
    leases = list[EnvironmentLease]()
    threads = [threading.Thread(target=lambda: leases.append(share_environment(STAGE))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(each.environment) for each in leases}) == 1
    for each in leases:
        each.close()
    assert text_episode._shared == {}


def test_a_seed_chooses_the_task_and_without_one_they_come_in_order(lease: EnvironmentLease) -> None:
    played, tasks = lease.session(), [task.id for task in lease.environment.tasks]

    def begun(**how: Any) -> str:
        event_loop.run(played.reset(**how))
        assert played.episode is not None
        return played.episode.task.id

    assert [begun() for _ in range(3)] == tasks[:3]
    assert [begun(seed=n) for n in (5, 5, len(tasks))] == [tasks[5], tasks[5], tasks[0]]
    assert begun() == tasks[3]
    assert begun(task="cs-020", seed=5) == "cs-020"
    assert played.episode is not None
    assert played.episode.seed == 5
    event_loop.run(played.leave())


def test_none_but_the_chosen_tasks_are_played() -> None:
    opened = share_environment({**STAGE, "tasks": ["cs-009", "cs-010"]})
    played = opened.session()
    try:
        assert event_loop.run(played.reset("cs-010")).ended is None
        with pytest.raises(UserError, match=r"task 'cs-011' is not among the 2 that are played here: cs-009, cs-010$"):
            event_loop.run(played.reset("cs-011"))
        with pytest.raises(UserError, match="has no task 'nope'"):
            event_loop.run(played.reset("nope"))
    finally:
        event_loop.run(played.leave())
        opened.close()
    held_back = share_environment({**STAGE, "split": "train"})
    try:
        kept = {task.id for task in held_back.environment.pack.tasks} - {t.id for t in held_back.environment.tasks}
        assert kept
        with pytest.raises(UserError, match="is not among the"):
            event_loop.run(held_back.session().reset(min(kept)))
    finally:
        held_back.close()


def test_a_refused_reset_leaves_the_running_episode(lease: EnvironmentLease) -> None:
    session = lease.session()
    event_loop.run(session.reset("cs-009"))
    with pytest.raises(UserError, match="cs-9999"):
        event_loop.run(session.reset("cs-9999"))
    assert event_loop.run(session.act(LOOK)).ended is None
    assert session.turns == 1
    event_loop.run(session.leave())


def test_the_ids_of_a_conversation_differ(lease: EnvironmentLease) -> None:
    played = lease.session()
    event_loop.run(played.reset("cs-009"))
    arguments = {"order_id": "ORD-00001", "email": "a@example.com"}
    for _ in range(3):  # as a client of OpenEnv gives them: by their place in the turn
        calls = [ToolCall(id=str(i), name="get_order", arguments=arguments) for i in range(2)]
        event_loop.run(played.act(Message(role="assistant", calls=calls)))
    event_loop.run(played.act(LOOK))
    assert played.episode is not None
    messages = played.episode.messages
    asked = [call.id for m in messages for call in m.calls]
    assert len(set(asked)) == len(asked) == 7
    assert [m.call_id for m in messages if m.role == "tool"] == asked
    event_loop.run(played.leave())


def test_what_was_played_is_kept_once(lease: EnvironmentLease) -> None:
    kept = list[Trajectory]()

    async def keep(trajectory: Trajectory) -> None:
        kept.append(trajectory)

    played = lease.session(keep)
    event_loop.run(played.reset("cs-009"))  # looked at, not played
    event_loop.run(played.reset("cs-010"))
    event_loop.run(played.act(LOOK))  # left in the middle
    event_loop.run(played.reset("cs-003"))
    heard = event_loop.run(played.act("I cannot."))
    while heard.ended is None:
        heard = event_loop.run(played.act("I cannot."))
    with pytest.raises(UserError, match="reset first"):
        event_loop.run(played.act("More."))
    event_loop.run(played.leave())
    event_loop.run(played.leave())
    with pytest.raises(UserError, match="reset first"):
        event_loop.run(played.act("More."))
    told = [(t.task_id, t.end.kind, t.reward.value if t.reward else None) for t in kept]
    assert told == [("cs-010", "truncated", 0.0), ("cs-003", "terminated", 0.0)]


async def test_it_is_played_from_any_loop_and_carried_through(lease: EnvironmentLease) -> None:
    played = lease.session()
    heard = await await_on_portal(played.reset("cs-009"))
    assert heard.ended is None
    acting = asyncio.ensure_future(await_on_portal(played.act(LOOK)))
    await asyncio.sleep(0)
    acting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await acting
    await await_on_portal(played.act(LOOK))  # its turn comes after the one that nobody waited for
    assert played.episode is not None
    assert [m.role for m in played.episode.messages] == ["user", "assistant", "tool", "assistant", "tool"]
    await await_on_portal(played.leave())


def in_a_child(queue: Any) -> None:
    opened = share_environment(STAGE)
    played = opened.session()
    queue.put(event_loop.run(played.reset("cs-009")).messages[-1]["content"])
    event_loop.run(played.leave())
    opened.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_opens_its_own(lease: EnvironmentLease) -> None:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=in_a_child, args=(queue,), daemon=True)
    child.start()
    words = queue.get(timeout=240)
    child.join(60)
    assert child.exitcode == 0
    played = lease.session()
    assert event_loop.run(played.reset("cs-009")).messages[-1]["content"] == words, "and the parent's goes on"
    event_loop.run(played.leave())


def test_results_stand_between_tags_and_words_do_not() -> None:
    results = [Message(role="tool", content=text) for text in ("a", "b")]
    user = Message(role="user", content="c")
    tagged = "<tool_response>\na\n</tool_response>\n<tool_response>\nb\n</tool_response>"
    assert messages_to_text([*results, user]) == f"{tagged}\nc"
    assert messages_to_text([]) == ""


def test_mappings_of_other_kinds_become_plain() -> None:
    inner: Mapping[str, Any] = MappingProxyType({"b": (MappingProxyType({"c": 1}), 2), "d": "text"})
    assert plain_mapping(MappingProxyType({"a": inner})) == {"a": {"b": [{"c": 1}, 2], "d": "text"}}


def test_a_users_mistakes_are_said_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^stage: unknown key 'backnd': did you mean 'backend'\?$"):
        share_environment({"pack": "customer_service", "backnd": "simulated"})
    small(tmp_path / "todos")
    (tmp_path / "todos" / "tasks.jsonl").write_text("")
    with pytest.raises(UserError, match="has no tasks"):
        share_environment({"pack": str(tmp_path / "todos")})
    assert text_episode._shared == {}


def test_what_is_no_text_is_said(lease: EnvironmentLease) -> None:
    played = lease.session()
    with pytest.raises(UserError, match="expected the id of a task as text, got 3"):
        event_loop.run(played.reset(3))  # type: ignore[arg-type]
    event_loop.run(played.reset("cs-009"))
    with pytest.raises(UserError, match="an action must be text"):
        event_loop.run(played.act(3))  # type: ignore[arg-type]
    event_loop.run(played.leave())
