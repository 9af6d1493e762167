"""An agent that is a function of the user's own: docs/own-agent.md to the letter, and functions that fail."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simia import Message, ToolCall, UserError
from simia.cli import build_app
from simia.config import load_config
from simia.envs.play.agent import AgentFailed
from simia.envs.play.function_agent import FunctionAgent, load_agent_function
from simia.envs.users import EpisodeView
from simia.jobs import Run
from simia.rollouts.settings import RolloutConfig

PAGE = (Path(__file__).parents[2] / "docs" / "own-agent.md").read_text(encoding="utf-8")
VIEW = EpisodeView("Be kind.", (Message(role="user", content="Hello"),), ())


def test_the_page_shows_commands_that_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
    Path("my_agent.py").write_text(code, encoding="utf-8")
    commands = re.findall(r"^simia .*$", PAGE, re.M)
    assert len(commands) == 3
    for command in commands:
        done = CliRunner().invoke(build_app(), shlex.split(command)[1:])
        assert done.exit_code == 0, f"{command}\n{done.output[-1000:]}\n{done.exception}"
    assert Path("mine.html").is_file()
    run = Run.read_only(Path("runs"), "mine")
    rows = [body["trajectory"] for item in run.ledger.items() if (body := run.ledger.result(item.id))]
    run.close()
    assert len(rows) == 5
    assert all(row["reward"]["value"] is not None for row in rows), "no episode is aborted"
    assert {row["provenance"]["model"] for row in rows} == {"my_agent.py:act"}
    assert any(
        call["name"] == "get_order" for row in rows for each in row["messages"] for call in each.get("calls", [])
    )


def answer(view: EpisodeView) -> Message:
    return Message(role="assistant", content=f"{view.system} {len(view.messages)}")


async def answer_later(view: EpisodeView) -> Message:
    return answer(view)


@pytest.mark.parametrize("function", [answer, answer_later])
async def test_a_function_sees_the_episode_and_answers_it(function: Any) -> None:
    message, sample = await FunctionAgent("a.py:f", function).act(VIEW)
    assert (message.text, sample) == ("Be kind. 1", None)


def fail(view: EpisodeView) -> Message:
    raise KeyError("total")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (fail, r"agent_function a.py:f: KeyError: 'total' \(test_own_agent.py, line \d+\)"),
        (lambda view: "Hello", "returned 'Hello'; return a simia.Message with the role assistant"),
        (lambda view: Message(role="user", content="Hi"), "return a simia.Message with the role assistant"),
        (lambda view: ToolCall(id="1", name="get"), "return a simia.Message with the role assistant"),
    ],
)
async def test_a_function_that_fails_is_named_in_the_episode(function: Any, words: str) -> None:
    with pytest.raises(AgentFailed, match=words) as caught:
        await FunctionAgent("a.py:f", function).act(VIEW)
    assert caught.value.aborted


@pytest.mark.parametrize(
    "settings", [["agent=function"], ["agent_function=a.py:f"], ["agent=random", "agent_function=a.py:f"]]
)
def test_kind_and_function_belong_together(settings: list[str]) -> None:
    with pytest.raises(UserError, match="set agent: function and agent_function"):
        load_config(RolloutConfig, "rollout/default", settings)


def test_a_function_that_is_not_there_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("def act(view): ...")
    with pytest.raises(UserError, match=r"^agent_function mine.py:play: mine.py has no function 'play'$"):
        load_agent_function("mine.py:play")
    with pytest.raises(UserError, match=r"^agent_function other.py:act: there is no file "):
        load_agent_function("other.py:act")
    done = CliRunner().invoke(build_app(), ["rollout", "customer_service", "--agent", "mine.py:play", "--name", "x"])
    assert isinstance(done.exception, UserError)
    assert not Path("runs").exists(), "no run is made"
