"""The report as one self-contained page: figures, bars, and a sample of trajectories to read.

What a model wrote must never act in the reader's browser. Everything is escaped where it is put in, and the page's
policy allows no request at all and no script but our own, by its hash: an escape forgotten some day would still do
nothing. Template, style and script are files in `prompts/report/`, so that a user can replace each; the template renders
in Jinja's sandbox.
"""

from __future__ import annotations

import base64
import hashlib
import time
from pathlib import Path

import jinja2
import yaml
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup

from simia import resources
from simia.errors import UserError
from simia.jobs import Run
from simia.report import sections, text, variety
from simia.report.facts import RunFacts, explain_reason
from simia.report.sample import format_arguments, format_result
from simia.report.sample import sample_items as choose


def write_html(run: Run, facts: RunFacts, path: Path, *, sample: int = 40) -> None:
    """Write the page. `sample`: how many random accepted ones, and how many rejected, can be read on it at most."""
    environment = ImmutableSandboxedEnvironment(
        loader=jinja2.FunctionLoader(read_page_file),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": lambda value: f"{value:,}",
        "percent": lambda value: "–" if value is None else f"{value:.0%}",
        "moment": lambda value: time.strftime("%Y-%m-%d %H:%M", time.localtime(value)),
        "meaning": explain_reason,
        "pretty": format_result,
        "arguments": format_arguments,
        "sparks": sections.draw_histogram,
        "whole": lambda value: f"{value:,.0f}",
        "money": sections.format_spending,
    }
    script = read_page_file("page.js")
    page = environment.get_template("page.html.j2").render(
        f=facts,
        items=choose(run, sample),
        lines=text.list_summary_lines(facts),
        overlap=text.list_overlap_lines(facts),
        cost=text.format_run_cost(facts),
        read=text.describe_seed_reading(facts),
        variety=variety.list_variety_lines(facts),
        timeline=sections.list_timeline_lines(facts),
        nearness=sections.draw_nearness(facts),
        frequent=sections.list_frequent(facts),
        spending=sections.list_spending(facts),
        each_accepted=sections.describe_cost_per_accepted(facts),
        prefixes=sections.list_prefix_lines(facts),
        endpoint=sections.list_endpoint_lines(facts),
        config=dump_settings(run),
        structural=text.STRUCTURAL,
        style=Markup(read_page_file("page.css")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write the page {path}: {error.strerror}; choose another with --html") from None


def dump_settings(run: Run) -> str:
    """What makes the data. The endpoint's section stays at home: a page is passed on, an address may be private."""
    identity = run.ledger.meta("identity") or {}
    kept = {name: value for name, value in identity.items() if name != "llm"}
    return yaml.safe_dump(kept, sort_keys=False, allow_unicode=True)


def read_page_file(name: str) -> str:
    """One of the page's files."""
    return resources.find_resource("prompts", f"report/{name}").read_text(encoding="utf-8").strip()
