"""The report as one self-contained page: figures, bars and a sample of trajectories to read. It asks no network."""

from __future__ import annotations

from pathlib import Path

import jinja2

from simia import resources
from simia.report.facts import RunFacts
from simia.runs import Run
from simia.trajectory import Trajectory

Sample = list[tuple[str, Trajectory, str]]


def write_html(run: Run, facts: RunFacts, path: Path, *, sample: int = 40) -> None:
    """Write the page. `sample`: how many accepted and how many rejected trajectories at most can be read on it."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    source = resources.find("prompts", "report/page.html.j2").read_text(encoding="utf-8")
    page = environment.from_string(source).render(f=facts, sample=spread(run, facts, sample))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def spread(run: Run, facts: RunFacts, most: int) -> Sample:
    """Accepted and rejected ones, evenly over the run, in its order."""
    rejected = sum(facts.rejected.values())
    steps = {"accepted": max(1, facts.accepted // most), "rejected": max(1, rejected // most)}
    seen = {"accepted": 0, "rejected": 0}
    chosen: Sample = []
    for verdict, body in run.ledger.bodies():
        if verdict not in steps or not body["trajectory"]:
            continue
        if seen[verdict] % steps[verdict] == 0 and seen[verdict] // steps[verdict] < most:
            trajectory = Trajectory.from_row(body["trajectory"])
            chosen.append((verdict, trajectory, ", ".join(trajectory.provenance.reply_keys)))
        seen[verdict] += 1
    return chosen
