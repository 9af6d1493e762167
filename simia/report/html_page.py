"""Write the report as one self-contained HTML page: figures, charts, and a sample of trajectories.

Text written by a model must never run in the reader's browser. All text is escaped, and the page's content security
policy forbids requests and allows only our script, by its hash, so that a missing escape does no harm. Template, style
and script are files in `prompts/report/` that a user can replace; the template is rendered in Jinja's sandbox.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import jinja2
import yaml
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup

from simia import search_path
from simia.errors import UserError
from simia.jobs import Run
from simia.report import report_rows
from simia.report.html_sample import format_arguments, format_result, sample_items
from simia.report.run_statistics import RunStatistics, explain_reason
from simia.report.terminal_report import explain_checking

SAMPLE = 40  # random accepted trajectories on the page at most, and as many rejected ones


def write_html(run: Run, statistics: RunStatistics, path: Path) -> None:
    """Write the page, with a random sample of accepted and of rejected trajectories."""
    environment = make_page_environment()
    environment.filters |= {
        "number": lambda value: f"{value:,}",
        "percent": lambda value: "–" if value is None else f"{value:.0%}",
        "moment": report_rows.format_time,
        "meaning": explain_reason,
        "pretty": format_result,
        "arguments": format_arguments,
        "sparks": report_rows.draw_histogram,
        "whole": lambda value: f"{value:,.0f}",
        "money": report_rows.format_spending,
    }
    script = read_page_file("page.js")
    page = environment.get_template("page.html.j2").render(
        f=statistics,
        items=sample_items(run, SAMPLE),
        lines=report_rows.list_summary_rows(statistics),
        overlap=report_rows.list_overlap_rows(statistics),
        cost=report_rows.format_run_cost(statistics),
        read=report_rows.describe_seed_filter(statistics),
        diversity=report_rows.list_diversity_rows(statistics),
        timeline=report_rows.list_timeline_rows(statistics),
        nearness=report_rows.draw_nearness(statistics),
        frequent=report_rows.list_frequent_rows(statistics),
        spending=report_rows.list_spending_rows(statistics),
        each_accepted=report_rows.describe_cost_per_accepted(statistics),
        prefixes=report_rows.list_prefix_rows(statistics),
        endpoint=report_rows.list_endpoint_rows(statistics),
        config=dump_settings(run),
        structural=explain_checking(statistics),
        style=Markup(read_page_file("page.css")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    save_page(page, path)


def dump_settings(run: Run) -> str:
    """Return the settings that determine the data as YAML, without the endpoint's section: its address may be private."""
    identity = run.ledger.meta("identity") or {}
    kept = {name: value for name, value in identity.items() if name != "llm"}
    return yaml.safe_dump(kept, sort_keys=False, allow_unicode=True)


def make_page_environment() -> ImmutableSandboxedEnvironment:
    """Make the environment of page templates: a sandbox that escapes all text."""
    return ImmutableSandboxedEnvironment(
        loader=jinja2.FunctionLoader(read_page_file),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def save_page(page: str, path: Path) -> None:
    """Write a page. Raises `UserError` if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write the page {path}: {error.strerror}; choose another with --html") from None


def read_page_file(name: str) -> str:
    """Read a file of the page."""
    return search_path.find_resource("prompts", f"report/{name}").read_text(encoding="utf-8").strip()
