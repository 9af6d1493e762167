"""`simia fidelity`: measure the fidelity of a pack's simulated world."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer
from rich.table import Table

from simia import event_loop
from simia.cli.amplify import RUNS
from simia.cli.common import GRANT_READ, make_granted_paths
from simia.cli.rollout import add_endpoint_settings
from simia.errors import Code, UserError
from simia.report.console import Terminal

if TYPE_CHECKING:
    from simia.evaluation.fidelity import Fidelity
    from simia.statistics import Estimate

out = Terminal()
err = Terminal(stderr=True)


def fidelity(
    pack: Annotated[
        str, typer.Argument(help="Pack with code and tasks with solutions: name of a bundled pack, or a folder.")
    ],
    limit: Annotated[int | None, typer.Option(help="Play only the first N tasks.")] = None,
    split: Annotated[str | None, typer.Option(help="Only tasks of this split.")] = None,
    knowledge: Annotated[
        list[str] | None,
        typer.Option(help="schema, reference or state; may be repeated. Default: all that the pack has."),
    ] = None,
    forced: Annotated[
        bool,
        typer.Option(
            help="Simulate each call from the real state; --no-forced: from the simulator's own earlier answers."
        ),
    ] = True,
    chained: Annotated[
        int | None,
        typer.Option(
            "--chain",
            min=2,
            help="Join tasks until their solutions have N calls, and repeat all look-ups at the end.",
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="Prefix of the runs' names.")] = "fidelity",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting of a rollout, as llm.model=gpt-5-mini.")
    ] = None,
    grant_read: GRANT_READ = None,
    runs: RUNS = Path("runs"),
) -> None:
    """Play the tasks' solutions in the real and in the simulated world, and compare call by call.

    Prints a row for each kind of knowledge, with and without the ledger. Each row is a run, so paid replies are reused. The combined
    figures are saved as fidelity.svg and fidelity.json in a folder next to the runs. A small context shows what the simulator
    forgets: --chain 15 --set backend_settings.context=6000.
    """
    from simia.evaluation.chained_tasks import make_chained_pack
    from simia.pack import Pack

    loaded = Pack.load(pack)
    if loaded.executable is None:
        raise UserError(f"pack {loaded.name} has no code, so there is no real world to compare with")
    path = loaded.path_of("state")
    kinds = knowledge or ["schema", "reference", *(["state"] if path is not None and path.suffix == ".json" else [])]
    manner = f"{'' if forced else '-free'}{f'-chain{chained}' if chained else ''}"
    folder = runs / f"{name}-{loaded.name}{manner}"
    source = pack
    if chained:
        source = str(make_chained_pack(loaded, folder, calls=chained, split=split))
    found: dict[tuple[str, bool], Fidelity] = {}
    unfinished: dict[str, str] = {}
    for kind in kinds:
        for ledger in (True, False):
            run = f"{name}-{loaded.name}-{kind}{'' if ledger else '-no-ledger'}{manner}"
            given = [f"backend_settings.{each}" for each in (f"knowledge={kind}", f"ledger={str(ledger).lower()}")]
            given.append(f"backend_settings.forced={str(forced).lower()}")
            if chained:
                given += ["episode.turns=1000", "episode.errors=1000"]
            if grant_read:
                given.append(f"backend_settings.read={orjson.dumps(make_granted_paths(grant_read)).decode()}")
            every = [*add_endpoint_settings(settings or []), *given]
            figures, why = event_loop.run_command(measure_run(source, run, every, limit, split, runs))
            row = f"{kind}, {'ledger' if ledger else 'no ledger'}"
            if why and figures.total.calls and not figures.total.answered:  # the other rows would fail in the same way
                err.print(f"{row}: no call was answered: {why}", markup=False, highlight=False, soft_wrap=True)
                err.print("stopped; run the same command again to continue", highlight=False)
                raise typer.Exit(1)
            if why:
                unfinished[run] = why
            found[kind, ledger] = figures
            total = figures.total
            err.print(
                f"{row}: {total.calls} calls, {total.lost} lost, F1 {format_share(total.value_f1)}", highlight=False
            )
    print_fidelity(loaded.name, found)
    save_figures(folder, loaded.name, found)
    out.print(f"saved in {folder}: fidelity.svg, fidelity.json", markup=False, highlight=False, soft_wrap=True)
    for run, why in unfinished.items():
        out.print(f"not complete: {run}: {why}", markup=False, highlight=False, soft_wrap=True)
    if unfinished:
        out.print("next: run the same command again; it asks only for what is missing", highlight=False)
        raise typer.Exit(1)


async def measure_run(
    pack: str, name: str, settings: list[str], limit: int | None, split: str | None, runs: Path
) -> tuple[Fidelity, str]:
    """Return the figures of one run, and the reason if it is not complete."""
    from simia.config import list_differences, load_config, read_command_line_value, select_identity
    from simia.evaluation.fidelity import measure_fidelity
    from simia.jobs import Run
    from simia.pack import Pack
    from simia.report.rollout_report import list_compared_calls
    from simia.rollouts.session import resume_rollout, start_rollout
    from simia.rollouts.settings import RolloutConfig

    fixed = {"pack": pack, "backend": "shadow", "agent": "reference", "limit": limit, "split": split, "reward": "rules"}
    config = load_config(RolloutConfig, "rollout/default", settings, **fixed)
    if (runs / name).is_dir():
        run = Run.read_only(runs, name)
        changed = list_differences(run.ledger.meta("identity"), select_identity(config))
        run.close()
        if changed:  # the figures would be those of the old settings
            raise UserError(f"run {name} was made with another {changed[0]}: give these runs a --name of their own")
        reopen_lost_episodes(runs, name)
        given = (setting.partition("=") for setting in settings)
        # Operational settings such as a raised cap take effect; others stay unchanged.
        done = await resume_rollout(
            name, runs=runs, changes={dotted: read_command_line_value(text) for dotted, _, text in given}
        )
    else:
        done = await start_rollout(config, runs=runs, name=name)
    run = Run.read_only(runs, name)
    try:
        rows = [row for item in run.ledger.items() for row in list_compared_calls(run, item.id)]
    finally:
        run.close()
    lost = Counter(row["lost"] for row in rows if is_transient_loss(row))
    why = f"{lost.total()} calls lost, mostly: {lost.most_common(1)[0][0]}" if lost else ""
    loaded = Pack.load(pack)
    specs = {tool.name: tool for tool in (*loaded.tools, *loaded.user_tools)}
    (runs / name / "differences.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return measure_fidelity(rows, specs), why if done.complete else done.why


def is_transient_loss(row: Mapping[str, Any]) -> bool:
    """Check whether a call was lost to an outage or a budget, so that it can be retried. An unparsable answer is stored and final."""
    return "lost" in row and not str(row["lost"]).startswith(f"{Code.UNPARSABLE}:")


def reopen_lost_episodes(runs: Path, name: str) -> None:
    """Mark episodes with lost calls as failed, so that the resume replays them. Stored answers are reused at no cost."""
    from simia.jobs import FAILED, Run
    from simia.report.rollout_report import list_compared_calls

    run = Run.open(runs, name)
    try:
        for item in run.ledger.items():
            lost = [row["lost"] for row in list_compared_calls(run, item.id) if is_transient_loss(row)]
            if lost:
                item.status, item.reason, item.detail = FAILED, Code(lost[0].partition(":")[0]), lost[0][:300]
                run.ledger.set_status(item)
        run.ledger.flush()
    finally:
        run.close()


def print_fidelity(pack: str, found: Mapping[tuple[str, bool], Fidelity]) -> None:
    # shape: results match the schema; errors: success and refusal agree; F1: of the results' values; again: share of earlier values that
    # a repeated look-up returns; clash: answers that the ledger or the schema refused; astray: distance of the simulated changes from the
    # real ones at the last step. The headers are short so that the table fits 80 columns.
    table = Table("knows", "ledger", "calls", "shape", "errors", "F1", "again", "clash", "astray")
    for column in table.columns:
        column.no_wrap = True
    for (kind, ledger), each in found.items():
        total = each.total
        table.add_row(
            kind, "yes" if ledger else "no", str(total.calls), format_share(total.schema_validity), format_share(total.agreement),
            format_share(total.value_f1), format_share(total.memory), str(total.contradicting),
            format_share(list(each.distance.values())[-1]) if each.distance else "",
        )  # fmt: skip
    out.print(f"{pack}: the simulated world compared with the real one", highlight=False)
    out.print(table)
    if lost := sum(each.total.lost for each in found.values()):
        out.print(f"{lost} calls without an answer: no figure counts them", highlight=False)
    for kind, bought in compare_ledgers(found).items():
        words = [f"{each} of {what}" for what, each in bought.items()]
        out.print(f"{kind}: the ledger buys {', '.join(words)}", markup=False, highlight=False, soft_wrap=True)
    answered = [each for each in found.values() if each.total.answered]
    if not answered:
        return
    best = max(answered, key=lambda each: each.total.value_f1 or 0.0)
    table = Table("tool", "calls", "shape", "errors", "F1", title="by tool, in the best row")
    for name, tool in sorted(best.tools.items(), key=lambda pair: pair[1].value_f1 or 0.0):
        table.add_row(
            name,
            str(tool.calls),
            format_share(tool.schema_validity),
            format_share(tool.agreement),
            format_share(tool.value_f1),
        )
    out.print(table)


def compare_ledgers(found: Mapping[tuple[str, bool], Fidelity]) -> dict[str, dict[str, Estimate]]:
    """Estimate for each kind of knowledge what the ledger adds to F1 and to consistency, over the same calls."""
    from simia.evaluation.fidelity import estimate_gain

    bought: dict[str, dict[str, Estimate]] = {}
    for kind in dict.fromkeys(kind for kind, _ in found):
        if (kind, True) in found and (kind, False) in found:
            one, other = found[kind, True], found[kind, False]
            each = {
                "F1": estimate_gain(one, other, "value_f1"),
                "values said again": estimate_gain(one, other, "memory"),
            }
            bought[kind] = {what: value for what, value in each.items() if value is not None}
    return {kind: each for kind, each in bought.items() if each}


def save_figures(folder: Path, pack: str, found: Mapping[tuple[str, bool], Fidelity]) -> None:
    """Save the figures and their plot next to the runs."""
    from simia.report.fidelity_plot import make_fidelity_panels, render_svg

    named = {f"{kind}, {'ledger' if ledger else 'no ledger'}": each for (kind, ledger), each in found.items()}
    rows = [
        {
            "knows": kind,
            "ledger": ledger,
            **asdict(each.total),
            "distance": {str(k): v for k, v in each.distance.items()},
        }
        | {
            measure: asdict(estimate)
            for measure in ("value_f1", "memory")
            if (estimate := each.interval(measure)) is not None
        }
        for (kind, ledger), each in found.items()
    ]
    bought = {kind: {what: asdict(each) for what, each in row.items()} for kind, row in compare_ledgers(found).items()}
    folder.mkdir(parents=True, exist_ok=True)
    body = {"pack": pack, "rows": rows, "the ledger buys": bought}
    (folder / "fidelity.json").write_bytes(orjson.dumps(body, option=orjson.OPT_INDENT_2))
    (folder / "fidelity.svg").write_text(render_svg(make_fidelity_panels(named)), encoding="utf-8")


def format_share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
