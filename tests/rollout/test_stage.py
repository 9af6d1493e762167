"""A stage: what every trainer opens by the settings of a rollout, with replies kept for whoever comes after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simia.envs.environment import Environment
from simia.envs.opening import open_stage
from simia.errors import Code, UserError
from simia.jobs import Store
from simia.trajectory import Message, ToolCall
from tests.fake_endpoint import FakeEndpoint
from tests.packs.small import small


@pytest.fixture
def pack(tmp_path: Path) -> str:
    small(tmp_path / "todos")
    return str(tmp_path / "todos")


async def play(settings: dict[str, Any], store: Path | None = None) -> float | None:
    environment = await open_stage(settings, store=store, say=lambda _: None)
    async with environment:
        episode = await environment.reset(environment.tasks[0], group="g", name="g/0")
        tool = episode.tools[0]
        arguments = dict.fromkeys(tool.parameters.get("required", []), "x")
        await episode.step(Message(role="assistant", calls=[ToolCall(id="1", name=tool.name, arguments=arguments)]))
        step = await episode.step(Message(role="assistant", content="It is done."))
        while step.end is None:
            step = await episode.step(Message(role="assistant", content="Anything else?"))
        await episode.close()
        return step.reward.value if step.reward else None


async def test_the_words_of_a_rollout_open_it(pack: str) -> None:
    async with await open_stage({"pack": pack, "limit": 1, "user": "none"}) as environment:
        assert [task.id for task in environment.tasks] == [environment.pack.tasks[0].id]
    with pytest.raises(UserError, match=r"unknown.*backnd.*backend"):
        await open_stage({"pack": pack, "backnd": "simulated"})
    with pytest.raises(UserError, match="no task of split 'dev'"):
        await open_stage({"pack": pack, "split": "dev"})


async def test_replies_are_kept_and_found_again(pack: str, tmp_path: Path) -> None:
    endpoint = FakeEndpoint("--respond", "tests.replies:stage")
    try:
        model = {"kind": "openai", "base_url": endpoint.url, "model": "m"}
        settings = {"pack": pack, "backend": "simulated", "user": "llm", "llm": model}
        store = tmp_path / "store"
        assert await play(settings, store) == 1.0
        asked = len(endpoint.requests)
        assert asked == 3, "tools, the user, a verdict"
        assert await play(settings, store) == 1.0
        assert len(endpoint.requests) == asked
        # A second process at the same time writes beside the first and reads what that one had.
        first = await open_stage(settings, store=store, say=lambda _: None)
        assert await play(settings, store) == 1.0
        await first.close()
        assert len(endpoint.requests) == asked
        assert sorted(path.name for path in store.iterdir()) == ["0", "1"]
        assert await play(settings) == 1.0
        assert len(endpoint.requests) == 2 * asked, "without a store nothing is kept"
    finally:
        endpoint.stop()


async def test_stages_of_one_store_share_one_budget_also_when_they_are_opened_again(
    pack: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def ends(environment: Environment, group: str) -> Code | None:
        episode = await environment.reset(environment.tasks[0], group=group, name=f"{group}/0")
        step = None
        while step is None or step.end is None:
            step = await episode.step(Message(role="assistant", content="It is done."))
        await episode.close()
        return step.end.code

    endpoint = FakeEndpoint("--respond", "tests.replies:stage")
    try:
        model = {"kind": "openai", "base_url": endpoint.url, "model": "m"}
        settings = {"pack": pack, "backend": "simulated", "user": "llm", "llm": model, "limits": {"max_requests": 2}}
        store = tmp_path / "store"
        learns, judges = [await open_stage(settings, store=store, say=lambda _: None) for _ in range(2)]
        assert await ends(learns, "a") is Code.USER_STOP
        assert len(endpoint.requests) == 2, "the user, a verdict"
        assert await ends(judges, "b") is Code.BUDGET
        await learns.close()
        await judges.close()
        again = await open_stage(settings, store=store, say=lambda _: None)
        assert await ends(again, "a") is Code.USER_STOP, "what is paid for is found"
        assert await ends(again, "c") is Code.BUDGET
        await again.close()
        assert len(endpoint.requests) == 2
        assert not caplog.messages
        async with await open_stage(settings, say=lambda _: None):
            assert "holds for this process alone" in caplog.text
    finally:
        endpoint.stop()


def test_a_file_that_was_never_finished_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "replies.db").touch()
    store = Store.open(tmp_path)
    try:
        assert store.folder == tmp_path / "0"
        assert store.recall("k") is None
    finally:
        store.close()
