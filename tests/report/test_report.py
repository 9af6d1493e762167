"""Each figure of the report against a count by hand; the page escapes what models write."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from simia.amplify.progress import Progress
from simia.amplify.session import load_seeds, seeds_facts
from simia.amplify.settings import AmplifyConfig
from simia.config import load
from simia.errors import Code, Issue
from simia.llm.types import Reply, Request
from simia.pack import Pack
from simia.report.facts import gather
from simia.report.html import write_html
from simia.report.live import LivePanel, picture
from simia.report.text import print_report, print_trajectory
from simia.runs import Item, Run
from simia.trajectory import Message, Provenance, ToolCall, Trajectory, Usage


def made(text: str, *, calls: list[str], order: str = "ORD-11111") -> Trajectory:
    pack = Pack.load("customer_service")
    messages = [Message(role="user", content=text)]
    for i, name in enumerate(calls, start=1):
        messages.append(
            Message(role="assistant", calls=[ToolCall(id=f"c{i}", name=name, arguments={"order_id": order})])
        )
        messages.append(Message(role="tool", call_id=f"c{i}", content="{}", error=Code.TOOL_ERROR if i == 2 else None))
    messages.append(Message(role="assistant", content="<script>alert(1)</script> done"))
    origin = Provenance(item="i0", seed_ids=["cs-001"], reply_keys=["key-1"])
    return Trajectory(pack=pack.name, system=pack.policy, tools=pack.tools, messages=messages, provenance=origin)


@pytest.fixture
async def run(tmp_path: Path) -> Run:
    config = load(AmplifyConfig, "amplify/default", ["n=3", "seeds.packs=[customer_service]"])
    run = Run.create(tmp_path, config, name="r", facts={"model": "m", "prompts": {"a": "1"}})
    ledger = run.ledger
    ledger.set_meta("seeds", seeds_facts(load_seeds(config, None)))
    ledger.set_meta("stopped", {"kind": "complete", "detail": ""})
    results = [
        ("passed", None, made("one fish two fish red fish", calls=["get_order"]), []),
        ("passed", None, made("something else", calls=["get_order", "get_refund"]), ["fence"]),
        ("rejected", "unknown_tool", made("bad", calls=["nope"]), []),
        ("rejected", "duplicate", made("something else", calls=["get_order", "get_refund"]), []),
        ("rejected", "unparsable", None, []),
        ("failed", "timeout", None, []),
    ]
    for ord_, (status, reason, trajectory, repairs) in enumerate(results):
        item = Item(f"i{ord_}", ord_, {"seed": "s"}, status, reason)
        ledger.plan(item)
        request = Request(messages=[{"role": "user", "content": str(ord_)}])
        await ledger.asked(f"k{ord_}", item.id, f"{item.id}.0", request)
        if status == "failed":
            continue
        await ledger.answered(f"k{ord_}", item.id, Reply(usage=Usage(prompt=10, completion=5, cached=4, cost=0.25)))
        issues = [Issue(code=Code(reason))] if reason else []
        if trajectory:
            trajectory.issues = issues
        body = {"trajectory": trajectory.to_row() if trajectory else None, "issues": [], "repairs": repairs}
        ledger.conclude(item, f"h{ord_}", body)
        if status == "passed":
            ledger.accept(item, f"h{ord_}")
    ledger.flush()
    return run


async def test_every_figure_is_the_count_by_hand(run: Run) -> None:
    run.close()  # what was on its way counts as lost only when nobody works on the run
    run = Run.read_only(run.folder.parent, "r")
    facts = gather(run)
    run.close()
    assert (facts.accepted, facts.n, sum(facts.failed.values())) == (2, 3, 1)
    assert facts.rejected == {"duplicate": 1, "unknown_tool": 1, "unparsable": 1}
    assert facts.attempts == {"got": 5, "sent": 1}
    assert facts.possibly_paid_twice == 1
    assert (facts.usage.prompt, facts.usage.cached, facts.usage.cost) == (50, 20, 1.25)
    assert facts.repairs == {"fence": 1}
    tools = {tool.name: tool for tool in facts.tools}
    assert (tools["get_order"].accepted, tools["get_order"].rejected) == (2, 1)
    assert facts.invented == {"nope": 1}
    assert "cancel_order" in facts.unused
    assert (facts.messages.least, facts.messages.most, facts.calls.most) == (4, 6, 2)
    overlap = facts.overlap
    assert (overlap.sequences, overlap.identifiers_in_seeds, facts.with_errors, facts.parallel) == (2, 0, 1, 0)


async def test_the_tables_say_what_matters(run: Run) -> None:
    out = io.StringIO()
    print_report(gather(run), Console(file=out, width=100))
    text = out.getvalue()
    for words in ("2 of 3", "unknown_tool", "nobody has judged", "get_refund", "$1.25"):
        assert words in text


async def test_the_page_is_self_contained_and_escapes_what_models_write(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_html(run, gather(run), page)
    html = page.read_text(encoding="utf-8")
    assert "<script>alert(1)" not in html
    assert "&lt;script&gt;alert(1)" in html
    assert "http://" not in html
    assert "https://" not in html
    assert html.count("&lt;script&gt;alert(1)") == 4, "every trajectory there is can be read"


def test_a_conversation_reads_without_colour() -> None:
    out = io.StringIO()
    print_trajectory(made("hello there", calls=["get_order"]), Console(file=out, width=80))
    assert "hello there" in out.getvalue()
    assert 'get_order(order_id="ORD-11111")' in out.getvalue()


def test_json_lines_when_nobody_watches() -> None:
    progress, out = Progress("r", 10), io.StringIO()
    with LivePanel(Console(file=out, width=60)) as panel:
        for i in range(1000):
            progress.accepted = i // 100
            panel.update(progress)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert 1 <= len(lines) < 20
    assert lines[-1]["accepted"] == 9
    assert lines[-1]["event"] == "progress"


def test_the_panel_shows_rejections_and_cost() -> None:
    progress = Progress("r", 10, accepted=4)
    progress.rejected["leak"] = 3
    progress.usage = Usage(prompt=1000, completion=10, cost=0.5)
    out = io.StringIO()
    Console(file=out, width=90).print(picture(progress))
    assert "leak 3" in out.getvalue()
    assert "$0.50" in out.getvalue()
