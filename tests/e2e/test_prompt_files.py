"""Unanswered recordings become numbered files, and replies in files become theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.prompt_files import read_replies, write_prompts
from scripts.record_run import MOST
from simia.errors import UserError
from simia.llm.replay import RecordedReply, append_recording, read_recording
from simia.llm.types import Request


def make_recording(path: Path, batch: str, count: int) -> Path:
    messages = [
        [{"role": "system", "content": f"rules of {batch}"}, {"role": "user", "content": str(n)}] for n in range(count)
    ]
    append_recording([RecordedReply(request=Request(messages=each), model="m", batch=batch) for each in messages], path)
    return path


def test_prompts_go_out_and_replies_come_back(tmp_path: Path) -> None:
    recordings = [make_recording(tmp_path / f"{name}.jsonl", name, count) for name, count in (("a", 2), ("b", 1))]
    folder = tmp_path / "out"
    assert write_prompts(folder, recordings) == 3
    assert (folder / "002.txt").read_text() == "=== system ===\nrules of a\n\n=== user ===\n1\n"
    readme = (folder / "README.md").read_text()
    assert "- group 1: 001 to 002\n- group 2: 003 to 003" in readme
    (folder / "replies").mkdir()
    for number in ("001", "002"):
        (folder / "replies" / f"{number}.txt").write_text(f"reply {number}\n")
    before = [path.read_bytes() for path in recordings]
    with pytest.raises(UserError, match="no reply to 003: 1 are missing"):
        read_replies(folder, recordings)
    assert [path.read_bytes() for path in recordings] == before
    (folder / "replies" / "003.txt").write_text('  {"answers": []}\n')
    assert read_replies(folder, recordings) == 3
    rows = [row for path in recordings for row in read_recording(path)]
    assert [row.reply and row.reply.text for row in rows] == ["reply 001", "reply 002", '{"answers": []}']
    assert [row.batch for row in rows] == ["a", "a", "b"]
    assert rows[1].request == Request(
        messages=[{"role": "system", "content": "rules of a"}, {"role": "user", "content": "1"}]
    )


def test_one_context_is_asked_twenty_prompts_at_most(tmp_path: Path) -> None:
    recording = make_recording(tmp_path / "a.jsonl", "a", MOST + 1)
    with pytest.raises(UserError, match="batch a has 21 prompts, at most 20"):
        write_prompts(tmp_path / "out", [recording])
