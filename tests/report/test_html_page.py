"""The page: self-contained, every figure on it, and inert whatever a model wrote."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from simia.jobs import Run
from simia.report.collect_statistics import collect_statistics
from simia.report.html_page import write_html
from simia.report.html_sample import format_result, lay_out_json, sample_items, take_in_turn
from tests.report.conftest import HOSTILE, SCRIPT


class Reader(HTMLParser):
    """Every tag with its attributes, and the text of scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag == "script"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts.append(data)
            self._inside = False

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture
async def page(run: Run, tmp_path: Path) -> str:
    path = tmp_path / "out" / "page.html"
    write_html(run, collect_statistics(run), path)
    return path.read_text(encoding="utf-8")


async def test_nothing_on_it_asks_the_network(page: str) -> None:
    for _, attributes in Reader(page).tags:
        for name, value in attributes.items():
            assert name not in ("src", "srcset", "action", "style"), (name, value)
            if name == "href":
                assert value == "data:," or (value or "").startswith("#i")
    assert not re.search(r"https?://|@import|url\(", page)


async def test_what_a_model_wrote_does_not_act(page: str) -> None:
    reader = Reader(page)
    assert SCRIPT not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; sent" in page
    assert len(reader.all("script")) == 1
    assert not [name for _, attributes in reader.tags for name in attributes if name.startswith("on")]
    assert "<b>trajectory</b>" not in page
    assert "not a &lt;b&gt;trajectory&lt;/b&gt;" in page, "the reply of an unreadable item is shown"


async def test_only_our_own_script_may_run(page: str) -> None:
    reader = Reader(page)
    policy = next(m["content"] or "" for m in reader.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    digest = base64.b64encode(hashlib.sha256(reader.scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


async def test_each_item_carries_what_the_filters_ask(page: str) -> None:
    items = [d for d in Reader(page).all("details") if d.get("class") == "item"]
    assert [d["id"] for d in items] == ["i0", "i1", "i2", "i3", "i4", "i5"]
    assert [d["data-verdict"] for d in items] == ["accepted"] * 3 + ["rejected"] * 3
    assert [d["data-reason"] for d in items] == ["", "", "", "unknown_tool", "duplicate", "unparsable"]
    assert json.loads(items[3]["data-tools"] or "") == ["find_order", HOSTILE]
    for shown in ("key-0", "CC0-1.0", "code_fence", "$1.25", "3 of 11"):
        assert shown in page, shown


async def test_findings_stand_beside_their_turn(run: Run) -> None:
    rejected = next(item for item in sample_items(run, 10) if item.reason == "unknown_tool")
    assert [len(turn.issues) for turn in rejected.turns] == [0, 1, 0, 0, 0]
    assert rejected.keys == ["key-3"]


async def test_the_sample_is_bounded_and_the_same_each_time(run: Run) -> None:
    assert [item.item for item in sample_items(run, 2)] == [item.item for item in sample_items(run, 2)]
    assert [item.drawn for item in sample_items(run, 2)] == ["random", "random", "seed", "reason", "reason"]
    assert sample_items(run, 0) == []


def test_each_reason_has_its_turn() -> None:
    assert take_in_turn([["a1", "a2", "a3"], ["b1"], ["c1", "c2"]], 5) == ["a1", "b1", "c1", "a2", "c2"]
    assert take_in_turn([], 5) == []


def test_results_are_laid_out_without_losing_digits() -> None:
    assert format_result("no [json]") == "no [json]"
    assert format_result('{"a": 123456789012345678901234567890}') == '{"a": 123456789012345678901234567890}'
    assert format_result("[" * 100_000) == "[" * 100_000
    assert "\n" in lay_out_json({"a": "x" * 100})


async def test_a_users_own_template_is_taken(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "prompts" / "report"
    mine.mkdir(parents=True)
    (mine / "page.css").write_text("body{color:teal}")
    monkeypatch.setenv("SIMIA_PATH", str(tmp_path))
    write_html(run, collect_statistics(run), tmp_path / "p.html")
    assert "<style>body{color:teal}</style>" in (tmp_path / "p.html").read_text()


async def test_a_run_that_has_nothing_yet_has_a_page(run: Run, tmp_path: Path) -> None:
    for table in ("item", "result", "accepted", "attempt"):
        run.ledger.db.write("ledger", f"DELETE FROM {table}")
    run.ledger.flush()
    write_html(run, collect_statistics(run), tmp_path / "p.html")
    assert "0 of 0 accepted" in (tmp_path / "p.html").read_text()
