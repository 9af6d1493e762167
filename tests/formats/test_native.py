"""Our own rows: canonical when written, strict when read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simia import formats
from simia.errors import Code, Issue
from simia.formats import RowError
from simia.reward import Reward
from simia.trajectory import End, Message, Provenance, Trajectory, Usage

SIMIA = formats.get("simia")


def test_everything_a_trajectory_holds_comes_back() -> None:
    t = Trajectory(
        pack="office",
        messages=[Message(role="user", content="hi", train=False, visible_to=["agent"], extra={"a": 2**70})],
        end=End(kind="truncated", code=Code.TIMEOUT),
        reward=Reward(value=0.5, parts={"x": 1.0}),
        issues=[Issue(code=Code.LEAK, where="messages[0]")],
        provenance=Provenance(run="r", prompts={"p": "h"}),
        usage=Usage(prompt=3),
    )
    row = SIMIA.write(t)
    assert SIMIA.read(row) == t
    assert SIMIA.write(SIMIA.read(row)) == row


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 99}, "newer"),
        ({"version": 0}, "version"),
        ({"version": "1"}, "version"),
        ({"version": True}, "version"),
        ({"colour": 1}, "colour"),
        ({"messages": [{"role": "robot"}]}, "messages.0.role"),
        ({"end": {"kind": "terminated", "why": "x"}}, "end.why"),
        ({"provenance": {"runs": "x"}}, "provenance.runs"),
        ({"usage": {"tokens": 1}}, "usage.tokens"),
        ({"issues": [{"code": "leak", "place": "x"}]}, "issues[0].place"),
    ],
)
def test_refusals(change: dict[str, Any], said: str) -> None:
    with pytest.raises(RowError) as error:
        SIMIA.read({"version": 1, "messages": [], **change})
    assert error.value.code is Code.BAD_ROW
    assert said in error.value.detail


@pytest.mark.parametrize("version", ["x", 0.5, None, 0, True])
def test_a_row_with_a_version_that_is_none_is_refused_for_that(version: object, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"version": version, "messages": [{"role": "user", "content": "hi"}]}) + "\n")
    (row,) = formats.read(path)
    assert isinstance(row, formats.RefusedRow)
    assert "is not a version of a simia row" in str(row)
