"""The tables say the figures, fit 80 columns, and nothing in them steers the terminal."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
import yaml
from rich.console import Console

from simia.errors import Code
from simia.jobs import Run
from simia.quality.judging.judge_reply import Verdict, make_error
from simia.quality.judging.run_judgement import JudgedItem, VerdictFile
from simia.report.collect_statistics import collect_statistics
from simia.report.conversation import print_trajectory
from simia.report.html_page import write_html
from simia.report.report_rows import format_part, format_run_cost
from simia.report.terminal_report import print_report
from simia.trajectory import Message, ToolCall, Trajectory, Usage
from tests.report.conftest import HOSTILE, PARALLEL


def printed(what: object, width: int = 80, *, colour: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=colour, color_system="truecolor" if colour else None)
    print_trajectory(what, console) if isinstance(what, Trajectory) else print_report(what, console)  # type: ignore[arg-type]
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 100])
async def test_the_tables_say_what_matters(run: Run, width: int) -> None:
    text = printed(collect_statistics(run), width)
    assert max(map(len, text.splitlines())) <= width
    flat = " ".join(text.split())
    for words in (
        "3 of 3 wanted; 50% (3 of 6) of those checked",
        "9 planned, 3 rejected, 1 failed (timeout 1), 1 open, 1 passed but not counted",
        "6 answered, 3 without an answer",
        "1 possibly paid twice",
        "600 in (40% from the prefix cache), 60 out",
        "$1.25, and 1 reply of unknown price",
        "4 / 6 / 7 messages, 1 / 2 / 3 calls",
        "2 with an error of a tool, 1 of them recovered from",
        "duplicate 1 33% the same trajectory was accepted before",
        "27% (3 of 11) five-word runs of users occur in the seeds",
        "find_order shop 4 2 2",
        "in no accepted trajectory (1 of 3): never",
        "s2 3 1 33% unknown_tool",
        "2 seeds used of 4 read, 1 refused by the pre-filter, 1 left out by the settings",
        "only structure was checked: run `simia judge` or read a sample",
    ):
        assert words in flat, words
    assert HOSTILE.split()[0] in flat


async def test_the_verdicts_of_judges_are_counted(run: Run) -> None:
    first, second, third = (item for (item,) in run.ledger.db.ledger.execute("SELECT item FROM accepted ORDER BY ord"))
    book = VerdictFile(run.folder)
    for item, verdict in (
        (first, Verdict(passed=True, dimensions={"honesty": True})),
        (second, Verdict(passed=False, dimensions={"honesty": False})),
        (third, make_error(["honesty"], Code.PENDING, "waits")),
        ("not-accepted", Verdict(passed=True, dimensions={"honesty": True})),
    ):
        book.add(JudgedItem(judge="quality", by="b", item=item, trajectory="t", verdict=verdict))
    flat = " ".join(printed(collect_statistics(run)).split())
    assert "2 of 3 accepted judged by `simia judge`: 1 passed, 1 failed, 1 asked without a verdict" in flat
    assert "`simia judge` has a verdict on 2 of 3 accepted: read a sample" in flat
    assert "only structure was checked" not in flat
    write_html(run, collect_statistics(run), run.folder / "page.html")
    assert "has a verdict on 2 of 3 accepted" in (run.folder / "page.html").read_text()


async def test_a_batch_answered_by_hand_reports_nothing_that_was_not_measured(run: Run) -> None:
    assert "replies a minute" in printed(collect_statistics(run))
    config = yaml.safe_load((run.folder / "config.yaml").read_text())
    config["llm"] = {"kind": "batch", "model": "hand", "folder": "b"}
    (run.folder / "config.yaml").write_text(yaml.safe_dump(config))
    run.ledger.db.write("ledger", "UPDATE attempt SET prompt = 0, completion = 0, cached = 0, cost = NULL")
    run.ledger.flush()
    flat = " ".join(printed(collect_statistics(run)).split())
    assert "tokens not counted: the replies came without counts" in flat
    for words in ("replies a minute", "s median", "for each accepted", "tokens in"):
        assert words not in flat, words


async def test_a_run_that_has_nothing_yet_prints(run: Run) -> None:
    for table in ("item", "result", "accepted", "attempt"):
        run.ledger.db.write("ledger", f"DELETE FROM {table}")
    run.ledger.flush()
    text = printed(collect_statistics(run))
    assert "0 of 3 wanted" in text
    assert "none sent" in text
    assert "unknown" in text


def test_a_conversation_reads_without_colour() -> None:
    lines = [line.rstrip() for line in printed(PARALLEL).splitlines()]
    assert "from seed b" in lines[0]
    assert lines[1:8] == [
        "user",
        "  good morning what happened to ORD-100 since yesterday",
        "assistant",
        "  thinks: Look.",
        '  → find_order(order_id="ORD-100")',
        '  → find_order(order_id="ORD-777")',
        "  ← find_order (error)",
    ]
    assert "\x1b" not in "".join(lines)
    assert "\x1b[" in printed(PARALLEL, colour=True)


def test_what_a_model_wrote_is_text_and_no_command() -> None:
    calls = [ToolCall(id="c", name="\x1b]0;t\x07x", raw="{\x9b2J")]
    evil = Trajectory(
        task_id="[bold]t[/bold]",
        messages=[
            Message(role="user", content="\x1b[2Jgone [red]not red[/red] \u202eabc"),
            Message(role="assistant", reasoning="\x1b[31m", calls=calls),
            Message(role="tool", call_id="c", name="x\x1b", content="a\r\nb\rc\tq"),
        ],
    )
    text = printed(evil)
    assert not set(text) & {"\x1b", "\x07", "\x9b", "\r", "\u202e"}
    assert "[red]not red[/red]" in text
    assert "[bold]t[/bold]" in text
    assert "not JSON" in text


def test_shares_never_round_to_all_or_nothing() -> None:
    assert format_part(1, 90_000) == "<1% (1 of 90,000)"
    assert format_part(89_999, 90_000) == ">99% (89,999 of 90,000)"
    assert format_part(0, 5) == "0% (0 of 5)"
    assert format_part(5, 5) == "100% (5 of 5)"
    assert format_part(0, 0) == ""


async def test_an_unknown_cost_is_not_nothing(run: Run) -> None:
    facts = collect_statistics(run)
    assert format_run_cost(replace(facts, usage=Usage(cost=None))) == "unknown"
    assert format_run_cost(replace(facts, usage=Usage(cost=0.0), unpriced=0)) == "$0.00"
    assert format_run_cost(replace(facts, usage=Usage(cost=0.004), unpriced=0)) == "under $0.01"
