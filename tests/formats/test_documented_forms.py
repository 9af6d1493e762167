"""The examples of docs/bring-your-own.md are read in the form that the page names, with the same call, result and answer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simia import formats
from simia.errors import Code
from simia.trajectory import Trajectory

PAGE = (Path(__file__).parents[2] / "docs/bring-your-own.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"`([\w-]+)`[^`\n]*, `form_\w+\.jsonl`:\n\n```json\n(.*?)```", PAGE, re.DOTALL)


def test_every_general_form_has_an_example() -> None:
    assert sorted(name for name, _ in EXAMPLES) == sorted(formats.DIALECTS)


@pytest.mark.parametrize(("name", "text"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_an_example_is_read_as_the_form_that_is_named(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / "form.jsonl"
    path.write_text(text, encoding="utf-8")
    (t,) = formats.read(path)
    assert isinstance(t, Trajectory)
    assert [call.arguments for _, _, call in t.calls()] == [{"code": "A-7"}]
    assert [m.content for m in t.messages] == ["Is A-7 there?", None, "yes", "It is."]
    (chosen,) = formats.read(path, name)
    assert isinstance(chosen, Trajectory)
    assert chosen.id == t.id


def test_every_reason_of_reading_is_documented() -> None:
    for code in (Code.BAD_JSON, Code.BAD_ROW, Code.BAD_TOOLS, Code.UNKNOWN_ROLE, Code.UNKNOWN_PART, Code.TOO_LARGE):
        assert f"| `{code}` |" in PAGE
