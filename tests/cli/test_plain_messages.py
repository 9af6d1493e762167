"""Counts with their noun, and refusals and reasons that say all that is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from simia import Message, ToolCall, Trajectory, UserError
from simia.cli.terminal_output import print_next_command
from simia.envs.rewards.trace import judge_trace
from simia.envs.text_episode import render_call
from simia.jobs.coordinator import Stop
from simia.jobs.run import check_name
from simia.reward_spec import TraceSpec
from simia.task import Action
from simia.terminal import write_count


def test_one_has_no_plural() -> None:
    assert [write_count(n, "answer") for n in (0, 1, 2000)] == ["0 answers", "1 answer", "2,000 answers"]


@pytest.mark.parametrize(("exports", "word"), [(True, "export mine --to"), (False, "report mine\n")])
def test_a_run_without_an_accepted_episode_is_not_exported(
    exports: bool, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_next_command("mine", Stop("complete"), Path("runs"), exports=exports)
    assert f"next: simia {word}" in capsys.readouterr().out


def test_the_name_of_a_run_says_which_letters() -> None:
    with pytest.raises(UserError, match="letters a-z and A-Z"):
        check_name("süd lauf")


def test_every_missing_call_is_named() -> None:
    wanted = [
        Action(name="find_customer", arguments={"phone": "1"}),
        Action(name="cancel_job", arguments={"job_id": "J"}),
    ]
    trajectory = Trajectory(messages=[Message(role="user", content="Hello")])
    reason = judge_trace(trajectory, TraceSpec(), wanted).reason
    assert reason.startswith("0 of 2 reference calls made; missing: find_customer(phone), cancel_job(job_id)")
    many = judge_trace(trajectory, TraceSpec(), wanted * 4).reason
    assert "and 3 more" in many


def test_an_unreadable_call_is_rendered_with_its_text() -> None:
    assert render_call(ToolCall(id="1", name="get", arguments={"id": 2})) == "get({'id': 2})"
    assert render_call(ToolCall(id="1", name="", raw='{"name": get}')) == 'call that cannot be read: {"name": get}'
