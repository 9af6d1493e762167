"""Write the report as one self-contained HTML page: figures, charts, and a sample of trajectories.

Text written by a model must never run in the reader's browser. All text is escaped, and the page's content security
policy forbids requests and allows only our script, by its hash, so that a missing escape does no harm. Template, style
and script are files in `prompts/report/` that a user can replace; the template is rendered in Jinja's sandbox.
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

from simia import search_path
from simia.errors import UserError
from simia.jobs import Run
from simia.report import sections, text, variety
from simia.report.gather import RunFacts, explain_reason
from simia.report.sample import format_arguments, format_result
from simia.report.sample import sample_items as choose


def write_html(run: Run, facts: RunFacts, path: Path, *, sample: int = 40) -> None:
    """Write the page. `sample`: maximal number of random accepted and of rejected trajectories on it."""
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
    """Return the settings that determine the data as YAML, without the endpoint's section: its address may be private."""
    identity = run.ledger.meta("identity") or {}
    kept = {name: value for name, value in identity.items() if name != "llm"}
    return yaml.safe_dump(kept, sort_keys=False, allow_unicode=True)


def read_page_file(name: str) -> str:
    """Read a file of the page."""
    return search_path.find_resource("prompts", f"report/{name}").read_text(encoding="utf-8").strip()
