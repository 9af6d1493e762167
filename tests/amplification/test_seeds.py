"""Seeds that are refused are named by file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from simia.amplification.seeds import load_seed_packs
from simia.amplification.settings import AmplifyConfig
from simia.errors import UserError
from simia.pack import Pack


def load(path: Path) -> list[str]:
    config = AmplifyConfig.model_validate({"seeds": {"packs": [str(path)]}})
    return [refused.name for refused in load_seed_packs(config.seeds, config.checks).refused]


def test_a_bad_row_is_named_by_its_line(tmp_path: Path) -> None:
    good = Pack.load("office").seeds[0].model_dump_json()
    path = tmp_path / "mine.jsonl"
    path.write_text(f'{good}\n{{"messages": 3}}\n\nnot json\n')
    assert load(path) == ["mine.jsonl:2", "mine.jsonl:4"]


def test_rows_without_tools_say_how_to_add_them(tmp_path: Path) -> None:
    rows = [seed.model_copy(update={"tools": []}).model_dump_json() for seed in Pack.load("office").seeds[:2]]
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(rows))
    with pytest.raises(
        UserError, match=r'and 1 more: unknown_tool .*; the rows list no tools: add "tools" to each row'
    ):
        load(path)


def test_no_rows_are_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text("")
    with pytest.raises(UserError, match="no seeds: the files are empty"):
        load(path)


def test_a_file_without_a_usable_row_names_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('not json\n{"messages": [{"role": "user", "content": "Hi"}]}\n')
    with pytest.raises(UserError, match=r"^mine: none of 2 seeds can be used: mine\.jsonl:1: bad_json: not JSON: "):
        load(path)
