"""Episodes: what a step returns, how they end, and that nothing of the infrastructure comes out of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from simia import event_loop
from simia.envs.environment import Environment, EpisodeLimits
from simia.envs.opening import open_environment
from simia.envs.users import EpisodeView, UserStop
from simia.envs.worlds.world import ToolResult
from simia.errors import Aborted, Code, UserError
from simia.llm.embedded import EmbeddedBackend
from simia.task import By, Task
from simia.trajectory import Message, ToolCall, Trajectory
from tests.packs.small import small
from tests.sandbox.making import gone


def says(text: str) -> Message:
    return Message(role="assistant", content=text)


def calls(*pairs: tuple[str, dict[str, Any]]) -> Message:
    made = [ToolCall(id=f"c{i}", name=name, arguments=arguments) for i, (name, arguments) in enumerate(pairs)]
    return Message(role="assistant", calls=made)


@pytest.fixture(params=["shared", "process"])
async def todos(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Environment]:
    async with await open_environment(
        small(tmp_path / "todos"), isolation=request.param, user="scripted"
    ) as environment:
        yield environment


async def test_an_episode_from_the_first_word_to_the_reward(todos: Environment) -> None:
    episode = await todos.reset("todo-1")
    assert [m.content for m in episode.messages] == ["I have watered the plants!"]
    looked = await episode.step(calls(("list_todos", {"open_only": True})))
    assert [m.role for m in looked.messages] == ["tool"]
    assert "T-1001" in looked.messages[0].text
    assert looked.end is None
    assert (await episode.score()).value == 0, "the reward of an episode that would end here"
    await episode.step(calls(("finish_todo", {"todo_id": "T-1001"})))
    last = await episode.step(says("Done."))
    assert last.end is not None
    assert last.reward is not None
    assert (last.end.kind, last.end.code, last.reward.value) == ("terminated", Code.USER_STOP, 1.0)
    trajectory = episode.trajectory
    assert Trajectory.from_row(trajectory.to_row()) == trajectory
    assert trajectory.evidence is not None
    assert trajectory.evidence["changes"] == [{"path": ["todos", "T-1001", "done"], "old": False, "new": True}]
    with pytest.raises(ValueError, match="has ended"):
        await episode.step(says("Hello?"))


async def test_what_an_agent_does_wrong_is_an_observation_that_it_can_act_on(todos: Environment) -> None:
    episode = await todos.reset("todo-1")
    bad = calls(("finish", {}), ("finish_todo", {"todo_id": 5}), ("finish_todo", {"todo_id": "T-9999"}))
    bad.calls.append(ToolCall(id="x", name="add_todo", raw="{broken"))
    step = await episode.step(bad)
    assert [m.error for m in step.messages] == [
        Code.UNKNOWN_TOOL, Code.BAD_ARGUMENTS, Code.TOOL_ERROR, Code.UNPARSABLE_ARGUMENTS,
    ]  # fmt: skip
    assert "did you mean finish_todo" in step.messages[0].text
    assert "todo_id" in step.messages[1].text
    assert "list_todos gives the ids" in step.messages[2].text
    assert all("\n" not in m.text and "Traceback" not in m.text for m in step.messages)
    assert step.end is None


async def test_earlier_messages_never_change(todos: Environment) -> None:
    episode = await todos.reset("todo-1")
    seen: list[str] = []
    for action in (calls(("list_todos", {})), says("Which one?"), calls(("list_todos", {}))):
        if episode.end is None:
            await episode.step(action)
        now = [m.model_dump_json() for m in episode.messages]
        assert now[: len(seen)] == seen
        seen = now


async def test_a_fork_goes_its_own_way(todos: Environment) -> None:
    episode = await todos.reset("todo-1")
    await episode.step(calls(("add_todo", {"text": "Buy bread"})))
    fork = await episode.fork()
    await fork.step(calls(("finish_todo", {"todo_id": "T-1001"})))
    here = (await episode.step(calls(("list_todos", {"open_only": True})))).messages[0].text
    there = (await fork.step(calls(("list_todos", {"open_only": True})))).messages[0].text
    assert "T-1001" in here
    assert "T-1001" not in there
    assert "Buy bread" in there
    await episode.close()
    assert (await fork.step(says("Done."))).end is not None


async def test_limits_truncate_and_the_episode_is_scored(tmp_path: Path) -> None:
    limits = EpisodeLimits(turns=3, errors=2)
    async with await open_environment(small(tmp_path / "p"), user="scripted", episode=limits) as environment:
        episode = await environment.reset("todo-1")
        await episode.step(calls(("finish_todo", {"todo_id": "T-1001"})))
        await episode.step(calls(("list_todos", {})))
        step = await episode.step(calls(("list_todos", {})))
        assert step.end is not None
        assert step.reward is not None
        assert (step.end.kind, step.end.code, step.reward.value) == ("truncated", Code.MAX_TURNS, 1.0)
        episode = await environment.reset("todo-1")
        step = await episode.step(calls(("nope", {}), ("nope", {})))
        assert step.end is not None
        assert (step.end.kind, step.end.code) == ("truncated", Code.MAX_ERRORS)


async def test_the_same_seed_gives_the_same_bytes_and_another_seed_other_ids(todos: Environment) -> None:
    async def play(seed: int) -> str:
        episode = await todos.reset("todo-1", seed=seed)
        await episode.step(calls(("add_todo", {"text": "a"}), ("add_todo", {"text": "b"})))
        row = episode.trajectory
        await episode.close()
        return row.model_dump_json()

    assert await play(3) == await play(3)
    assert await play(3) != await play(4)


class Failing:
    """A back end whose worlds give way at a chosen moment."""

    def __init__(self, when: str) -> None:
        self.when = when
        self.tools: dict[By, Sequence[Any]] = {"agent": (), "user": ()}

    async def open(self, task: Task, *, seed: int, group: str | None, snapshot: bytes | None = None) -> Failing:
        if self.when == "open":
            raise Aborted(Code.CONNECTION, "no route")
        return self

    async def call(self, calls: Sequence[ToolCall], by: By = "agent") -> list[ToolResult]:
        if self.when == "call":
            raise Aborted(Code.WORKER_LOST, "gone")
        return [ToolResult(call.id, "ok") for call in calls]

    async def state(self) -> Any:
        return {}

    async def evidence(self) -> dict[str, Any]:
        if self.when == "evidence":
            raise Aborted(Code.WORKER_LOST, "gone")
        return {"changes": [], "expected": []}

    async def snapshot(self) -> bytes:
        return b""

    async def close(self) -> None: ...


@pytest.mark.parametrize("when", ["open", "call", "evidence"])
async def test_lost_infrastructure_is_an_ending_without_a_reward(tmp_path: Path, when: str) -> None:
    pack = small(tmp_path / "p")
    from simia.envs.users import ScriptedUser

    environment = Environment(pack, Failing(when), backend_name="failing", user=ScriptedUser)
    episode = await environment.reset("todo-1")
    if episode.end is None:
        step = await episode.step(calls(("list_todos", {})))
    if episode.end is None:
        step = await episode.step(says("Done."))
        assert step.reward is episode.reward
    assert episode.reward is not None
    assert episode.end is not None
    assert episode.reward.value is None
    assert episode.reward.error is not None
    assert episode.end.kind == ("terminated" if when == "evidence" else "aborted")
    assert any(issue.detail in ("gone", "no route") for issue in episode.trajectory.issues)


class Pair:
    """A user with tools of its own: looks at the list, then says what is on it."""

    def __init__(self, task: Task) -> None:
        self.asked = 0

    async def reply(self, view: EpisodeView) -> Message | UserStop:
        self.asked += 1
        if self.asked == 1:
            return Message(role="user", calls=[ToolCall(id="u", name="peek", arguments={})])
        if self.asked == 2:
            return Message(role="user", content=f"I see {view.messages[-1].text}")
        return UserStop(words="bye")

    def fork(self) -> Pair:
        return self


async def test_a_user_with_tools_of_its_own_is_heard_and_its_calls_are_not_seen(tmp_path: Path) -> None:
    pack = small(tmp_path / "p")
    pack.user_tools = [tool.model_copy(update={"name": "peek"}) for tool in pack.tools[:1]]
    code = (tmp_path / "p" / "tools.py").read_text()
    code = code.replace("import ToolError, Tools, read, write", "import ToolError, Tools, read, user_read, write")
    code += (
        "\n    @user_read\n    def peek(self, open_only: bool = False) -> int:\n        return len(self.state.todos)\n"
    )
    (tmp_path / "p" / "tools.py").write_text(code)
    async with await open_environment(pack, user=Pair) as environment:
        episode = await environment.reset("todo-1")
        assert [m.content for m in episode.view.messages] == ["I see 2"]
        assert [m.visible_to for m in episode.messages] == [["user"], ["user"], None]
        step = await episode.step(calls(("peek", {})))
        assert step.messages[0].error is Code.UNKNOWN_TOOL, "the user's tool is not the agent's"
        last = await episode.step(says("Thank you."))
        assert last.end is not None
        assert last.messages[-1].content == "bye"


async def test_bad_names_are_one_line(tmp_path: Path) -> None:
    pack = small(tmp_path / "p")
    with pytest.raises(UserError, match="did you mean 'executable'"):
        await open_environment(pack, backend="executible")
    with pytest.raises(UserError, match="no user named 'bot'"):
        await open_environment(pack, user="bot")
    for name in ("executable", "shadow"):
        with pytest.raises(UserError, match="unknown key 'isolaton'" if name == "executable" else "isolaton"):
            await open_environment(pack, backend=name, isolaton="shared")
        with pytest.raises(UserError, match="isolation: expected 'shared'"):
            await open_environment(pack, backend=name, isolation="shard")
    pack.executable = None
    with pytest.raises(
        UserError, match=r"has no executable world: .*; let a model play its tools: --set backend=simulated"
    ):
        await open_environment(pack)


def test_plain_functions_step_through_one_loop(tmp_path: Path) -> None:
    environment = event_loop.run(open_environment(small(tmp_path / "p"), user="scripted"))
    episode = event_loop.run(environment.reset("todo-2"))
    event_loop.run(episode.step(calls(("list_todos", {}))))
    assert event_loop.run(episode.step(says("Water the plants."))).reward.value == 1  # type: ignore[union-attr]
    event_loop.run(environment.close())


async def test_overlapping_steps_are_refused_and_the_first_one_counts(tmp_path: Path) -> None:
    async with await open_environment(small(tmp_path / "p"), user="scripted") as environment:
        episode = await environment.reset("todo-1")
        looking = calls(("list_todos", {}))
        first, second = await asyncio.gather(episode.step(looking), episode.step(looking), return_exceptions=True)
        assert isinstance(second, ValueError)
        assert str(second) == "a step of this episode is still in progress: await it first"
        assert [m.role for m in episode.messages] == ["user", "assistant", "tool"]
        assert not isinstance(first, BaseException)
        assert (await episode.step(looking)).end is None


async def test_a_closed_environment_starts_no_episode(tmp_path: Path) -> None:
    environment = await open_environment(small(tmp_path / "p"), user="scripted")
    await environment.close()
    with pytest.raises(UserError, match="the environment is closed: open a new one"):
        await environment.reset("todo-1")
    with pytest.raises(TypeError, match="seed: expected int"):
        await environment.reset("todo-1", seed="x")  # type: ignore[arg-type]


@pytest.mark.parametrize("isolation", ["shared", "process", "sandbox"])
async def test_a_step_after_the_environment_was_closed_starts_no_sandbox(tmp_path: Path, isolation: str) -> None:
    pack = small(tmp_path / "p")
    environment = await open_environment(pack, user="scripted", isolation=isolation)
    episode, other = await environment.reset("todo-1"), await environment.reset("todo-1")
    await environment.close()
    step = await episode.step(calls(("list_todos", {})))
    assert step.end is not None
    assert (step.end.kind, step.end.code) == ("aborted", Code.WORKER_LOST)
    assert "is closed" in episode.issues[-1].detail
    assert (await other.score()).value is None
    await other.close()
    assert await gone(str(pack.root)) == [], "no process of the pack is left"


async def test_no_local_model_is_started_that_nobody_chose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(small(tmp_path / "p").root)
    sources: list[Any] = [folder, {"pack": folder}]
    for source in sources:
        with pytest.raises(UserError, match=r"^simulator, judge: no model is chosen: pass llm=.*llm='embedded'"):
            await open_environment(source, backend="simulated", user="scripted")
    started: list[str] = []

    async def start(backend: EmbeddedBackend) -> None:
        started.append(backend.alias)

    monkeypatch.setattr(EmbeddedBackend, "start", start)
    for llm in ("embedded", {"kind": "embedded"}):
        async with await open_environment(folder, backend="simulated", user="scripted", llm=llm):
            pass
    assert len(started) == 2
