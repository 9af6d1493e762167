"""`open_environment`: sources, settings, models, kept replies and the shared budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import simia
from simia.envs.config import EnvironmentConfig
from simia.envs.environment import Environment, EpisodeLimits
from simia.envs.opening import open_environment, read_llm
from simia.envs.users import ScriptedUser
from simia.envs.worlds.mixed_and_shadow import PairBackend
from simia.errors import Code, UserError
from simia.jobs import Store
from simia.llm.openai_settings import OpenAISettings
from simia.pack import Pack
from simia.trajectory import Message, ToolCall
from tests.fake_endpoint import FakeEndpoint
from tests.packs.small import small


@pytest.fixture
def pack(tmp_path: Path) -> str:
    small(tmp_path / "todos")
    return str(tmp_path / "todos")


async def play(settings: dict[str, Any], store: Path | None = None) -> float | None:
    environment = await open_environment(settings, store=store, say=lambda _: None)
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
    async with await open_environment({"pack": pack, "limit": 1, "user": "none"}) as environment:
        assert [task.id for task in environment.tasks] == [environment.pack.tasks[0].id]
    with pytest.raises(UserError, match=r"unknown.*backnd.*backend"):
        await open_environment({"pack": pack, "backnd": "simulated"})
    with pytest.raises(UserError, match="no task of split 'dev'"):
        await open_environment({"pack": pack, "split": "dev"})


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
        first = await open_environment(settings, store=store, say=lambda _: None)
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
        learns, judges = [await open_environment(settings, store=store, say=lambda _: None) for _ in range(2)]
        assert await ends(learns, "a") is Code.USER_STOP
        assert len(endpoint.requests) == 2, "the user, a verdict"
        assert await ends(judges, "b") is Code.BUDGET
        await learns.close()
        await judges.close()
        again = await open_environment(settings, store=store, say=lambda _: None)
        assert await ends(again, "a") is Code.USER_STOP, "what is paid for is found"
        assert await ends(again, "c") is Code.BUDGET
        await again.close()
        assert len(endpoint.requests) == 2
        assert not caplog.messages
        async with await open_environment(settings, say=lambda _: None):
            assert "counts only what this process spends" in caplog.text
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


async def test_a_pack_a_name_a_config_and_a_mapping_open_the_same(pack: str) -> None:
    config = EnvironmentConfig(pack=pack, user="scripted", limit=1)
    sources = [config, config.model_dump(mode="json"), Pack.load(pack), pack, Path(pack)]
    for source in sources:
        async with await open_environment(source, user="scripted", limit=1, episode={"turns": 7}) as environment:
            assert [task.id for task in environment.tasks] == [environment.pack.tasks[0].id]
            assert (environment.user, environment.limits.turns) == (ScriptedUser, 7)
    assert config.episode == EpisodeLimits(), "a config that is given is not changed"


async def test_unknown_settings_name_the_near_one(pack: str) -> None:
    with pytest.raises(UserError, match=r"^unknown setting 'usr': did you mean 'user'\?$"):
        await open_environment(pack, usr="none")
    with pytest.raises(UserError, match=r"unknown key 'knowlege': did you mean 'knowledge'"):
        await open_environment(pack, backend="simulated", knowlege="schema")
    with pytest.raises(UserError, match="unknown setting 'backnd'"):
        await open_environment({"pack": pack}, backnd="simulated")


async def test_a_name_is_a_model_of_an_endpoint(pack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UserError, match="OPENAI_API_KEY"):
        await open_environment(pack, backend="simulated", llm="gpt-5-mini")
    assert read_llm("embedded") == {"kind": "embedded"}
    named = read_llm(OpenAISettings(model="m"))
    assert (named["kind"], named["model"]) == ("openai", "m")


async def test_what_was_opened_is_closed_when_a_model_cannot_start(pack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    closed = []
    close = PairBackend.close

    async def watched(self: PairBackend) -> None:
        await close(self)
        closed.append(self.executable._zygote)

    monkeypatch.setattr(PairBackend, "close", watched)
    with pytest.raises(UserError, match="OPENAI_API_KEY"):
        await open_environment(pack, backend="shadow", llm="gpt-5-mini")
    assert closed == [None]


async def test_an_argument_of_another_type_is_one_line(pack: str) -> None:
    given: Any = 5
    with pytest.raises(
        TypeError, match=r"^source: expected EnvironmentConfig or Mapping or Pack or str or Path, got 5$"
    ):
        await open_environment(given)
    with pytest.raises(TypeError, match=r"^config: expected RolloutConfig or Mapping or str or Path, got 5$"):
        await simia.rollout(given)
    with pytest.raises(TypeError, match=r"^seeds: expected str or Path or Sequence, got 5$"):
        await simia.amplify(given)
    async with await open_environment(pack, user="none") as environment:
        with pytest.raises(TypeError, match=r"^task: expected Task or str, got 5$"):
            await environment.reset(given)
        episode = await environment.reset(environment.tasks[0])
        text: Any = "hi"
        with pytest.raises(TypeError, match=r"^action: expected Message, got 'hi'$"):
            await episode.step(text)
        await episode.close()
