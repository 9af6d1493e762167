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

from simia import search_path as resources
from simia.errors import UserError
from simia.jobs import Run
from simia.report import sections, text, variety
from simia.report.gather import RunFacts, meaning
from simia.report.sample import arguments, pretty
from simia.report.sample import sample as choose


def write_html(run: Run, facts: RunFacts, path: Path, *, sample: int = 40) -> None:
    """Write the page. `sample`: how many random accepted ones, and how many rejected, can be read on it at most."""
    environment = ImmutableSandboxedEnvironment(
        loader=jinja2.FunctionLoader(part),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": lambda value: f"{value:,}",
        "percent": lambda value: "–" if value is None else f"{value:.0%}",
        "moment": lambda value: time.strftime("%Y-%m-%d %H:%M", time.localtime(value)),
        "meaning": meaning,
        "pretty": pretty,
        "arguments": arguments,
        "sparks": sections.histogram_line,
        "whole": lambda value: f"{value:,.0f}",
        "money": sections.money,
    }
    script = part("page.js")
    page = environment.get_template("page.html.j2").render(
        f=facts,
        items=choose(run, sample),
        lines=text.lines(facts),
        overlap=text.overlap_lines(facts),
        cost=text.cost(facts),
        read=text.read_line(facts),
        variety=variety.lines(facts),
        timeline=sections.timeline_lines(facts),
        nearness=sections.nearness_line(facts),
        frequent=sections.frequent_lines(facts),
        spending=sections.spending(facts),
        each_accepted=sections.each_accepted(facts),
        prefixes=sections.prefix_lines(facts),
        endpoint=sections.endpoint_lines(facts),
        config=settings(run),
        structural=text.STRUCTURAL,
        style=Markup(part("page.css")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write the page {path}: {error.strerror}; choose another with --html") from None


def settings(run: Run) -> str:
    """What makes the data. The endpoint's section stays at home: a page is passed on, an address may be private."""
    identity = run.ledger.meta("identity") or {}
    kept = {name: value for name, value in identity.items() if name != "llm"}
    return yaml.safe_dump(kept, sort_keys=False, allow_unicode=True)


def part(name: str) -> str:
    """One of the page's files."""
    return resources.find_resource("prompts", f"report/{name}").read_text(encoding="utf-8").strip()
