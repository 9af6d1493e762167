"""`simia fidelity`: measure the fidelity of a pack's simulated world."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer
from rich.table import Table

from simia import event_loop
from simia.cli.call_samples import draw_set, measure_set
from simia.cli.open_questions import print_batches
from simia.cli.options import GRANT_READ, LIMIT, RUNS, SPLIT, add_endpoint_settings, make_granted_paths, parse_settings
from simia.cli.terminal_output import WAITS, format_share
from simia.errors import Code, UserError
from simia.report.console import Terminal
from simia.terminal import say, say_error, write_count

if TYPE_CHECKING:
    from simia.evaluation.fidelity import Fidelity, ToolFidelity
    from simia.quality.judging.agreement import Agreement
    from simia.statistics import Estimate

# (kind of knowledge, with the ledger) → figures
Rows = dict[tuple[str, bool], "Fidelity"]


def fidelity(
    packs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PACK...",
            help="Pack with code and with tasks that have solutions: name of a bundled pack, or folder. Several only with --sample.",
        ),
    ] = None,
    limit: LIMIT = None,
    split: SPLIT = None,
    knowledge: Annotated[
        list[str] | None,
        typer.Option(
            help="What the simulator knows: schema, reference, state or code; may be repeated. Default: all that the pack supports."
        ),
    ] = None,
    forced: Annotated[
        bool,
        typer.Option(
            help="Simulate each call from the real state. --no-forced: from the simulator's own earlier answers."
        ),
    ] = True,
    chained: Annotated[
        int | None,
        typer.Option(
            "--chain",
            min=2,
            help="Join tasks until their solutions have at least N calls, and repeat all look-ups at the end.",
        ),
    ] = None,
    sample: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Sample a stratified set of calls from the packs, and write it to this new file."
        ),
    ] = None,
    n: Annotated[int, typer.Option("--n", min=1, help="With --sample: number of calls.")] = 120,
    seed: Annotated[int, typer.Option(help="With --sample: random seed.")] = 0,
    others: Annotated[
        int, typer.Option(min=0, help="With --sample: number of calls outside of each task's solution to sample from.")
    ] = 8,
    frozen: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Measure on the calls of this file from --sample, instead of the solutions."),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --frozen: append the replies to this recording, for llm.kind=replay."),
    ] = None,
    name: Annotated[str, typer.Option(help="Prefix of the names of the runs.")] = "fidelity",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any setting of a rollout, for example llm.model=gpt-5-mini; may be repeated."),
    ] = None,
    grant_read: GRANT_READ = None,
    runs: RUNS = Path("runs"),
) -> None:
    """Play the tasks' solutions in the real and in the simulated environment, and compare them call by call.

    Prints a row for each kind of knowledge, with and without the ledger. Each row is a run, so stored replies are reused. The combined
    figures are saved as fidelity.json, and with the extra plots as fidelity.svg, in a folder next to the runs. A small context shows what
    the simulator forgets: --chain 15 --set backend_settings.context=6000.

    With --sample and --frozen, single calls are compared, stratified by what they change.
    """
    if not forced and (sample is not None or frozen is not None):
        raise UserError(
            "--no-forced does not apply to --sample and --frozen, whose calls are asked one by one from the real state: omit it"
        )
    if sample is not None:
        draw_set(packs or [], sample, count=n, seed=seed, split=split, limit=limit, others=others)
        return
    if frozen is not None:
        kinds = knowledge or ["code"]
        given = add_endpoint_settings(settings)
        measure_set(frozen, packs or [], kinds, given, limit=limit, name=name, runs=runs, record=record)
        return
    if not packs or len(packs) > 1:
        raise UserError("name exactly one pack to measure; several packs need --sample or --frozen")
    pack = packs[0]
    from simia.evaluation.chained_tasks import make_chained_pack
    from simia.jobs.run import saved_config
    from simia.pack import Pack
    from simia.report.change_report import print_changes, print_rewards

    loaded = Pack.load(pack)
    if loaded.executable is None:
        raise UserError(f"pack {loaded.name} has no code, so there is no real world to compare with")
    kinds = knowledge or [
        "schema",
        "reference",
        *(["state", "code"] if loaded.executable.isolation != "sandbox" else []),
    ]
    manner = f"{'' if forced else '-free'}{f'-chain{chained}' if chained else ''}"
    folder = runs / f"{name}-{loaded.name}{manner}"
    source = str(make_chained_pack(loaded, folder, calls=chained, split=split)) if chained else pack
    given = add_endpoint_settings(settings)
    extra = [f"backend_settings.forced={str(forced).lower()}"]
    extra += ["episode.turns=1000", "episode.errors=1000"] if chained else []
    if grant_read:
        extra.append(f"backend_settings.read={orjson.dumps(make_granted_paths(grant_read)).decode()}")
    found: Rows = {}
    measured: dict[str, MeasuredRun] = {}
    unfinished: dict[str, str] = {}
    waits: set[str] = set()
    for kind in kinds:
        holds = kind in ("state", "code") and "backend_settings.stateful=false" not in given
        for ledger in (False,) if holds else (True, False):  # a held state takes the ledger's place
            run = f"{name}-{loaded.name}-{kind}{'' if ledger else '-no-ledger'}{manner}"
            row = [f"backend_settings.knowledge={kind}", f"backend_settings.ledger={str(ledger).lower()}"]
            done = event_loop.run_command(measure_run(source, run, [*given, *row, *extra], limit, split, runs))
            total, why = done.figures.total, done.why
            if (
                why and total.calls and not total.answered and not done.waits
            ):  # the other rows would fail in the same way
                say_error(f"{name_row(kind, ledger)}: no call was answered: {why}")
                say_error("stopped; run the same command again to continue")
                raise typer.Exit(1)
            if why:
                unfinished[run] = why
                waits |= {run} if done.waits else set()
            found[kind, ledger] = done.figures
            if ledger or holds:
                measured[kind] = done
            f1 = f", F1 {format_share(total.value_f1)}" if total.value_f1 is not None else ""
            counts = f"{write_count(total.calls, 'call')}, {total.lost} lost{f1}"
            if unreadable := [str(row["lost"]) for row in done.rows if "lost" in row and not is_transient_loss(row)]:
                counts += f"; an answer that cannot be used is final: {unreadable[0]}"
            say_error(f"{name_row(kind, ledger)}: {counts}")
    print_fidelity(loaded.name, found)
    print_changes(named := {kind: done.rows for kind, done in measured.items()}, {}, Terminal())
    print_rewards(rewards := {kind: done.rewards for kind, done in measured.items()}, Terminal())
    save_figures(folder, loaded.name, found, named, rewards)
    for run, why in unfinished.items():
        say(f"not complete: {run}: {why}")
    for run in sorted(waits)[:1]:  # all rows ask the same model
        print_batches(saved_config(runs / run))
    if unfinished:
        say("next: run the same command again; it asks only for what is missing")
        raise typer.Exit(WAITS if waits == unfinished.keys() else 1)


@dataclass(slots=True)
class MeasuredRun:
    """The figures and the compared calls of one run; `why`: the reason if it is not complete; `waits`: whether a batch has its questions;
    `rewards`: rules on the held state beside those on the true one."""

    figures: Fidelity
    rows: list[dict[str, Any]]
    why: str
    waits: bool
    rewards: Agreement | None


def name_row(kind: str, ledger: bool) -> str:
    return f"{kind}, {'ledger' if ledger else 'no ledger'}"


async def measure_run(
    pack: str, name: str, settings: list[str], limit: int | None, split: str | None, runs: Path
) -> MeasuredRun:
    """Play one run, or what is missing of it, and measure it."""
    from simia.config import list_differences, load_config, read_command_line_value, select_identity
    from simia.evaluation.fidelity import measure_fidelity
    from simia.jobs import Run
    from simia.pack import Pack
    from simia.report.change_report import compare_run_rewards
    from simia.report.rollout_report import list_compared_calls
    from simia.rollouts.session import resume_rollout, start_rollout
    from simia.rollouts.settings import RolloutConfig

    fixed = {"pack": pack, "backend": "shadow", "agent": "reference", "limit": limit, "split": split, "reward": "rules"}
    config = load_config(RolloutConfig, "rollout/default", settings, **fixed)
    if (runs / name).is_dir():
        with closing(Run.read_only(runs, name)) as run:
            changed = list_differences(run.ledger.meta("identity"), select_identity(config))
        if changed:  # the figures would be those of the old settings
            raise UserError(f"run {name} was made with a different {changed[0]}: choose another --name for these runs")
        reopen_lost_episodes(runs, name)
        # Operational settings such as a raised cap take effect; others stay unchanged.
        changes = parse_settings(settings, read_command_line_value)
        done = await resume_rollout(name, runs=runs, changes=changes)
    else:
        done = await start_rollout(config, runs=runs, name=name)
    with closing(Run.read_only(runs, name)) as run:
        rows = [row for item in run.ledger.items() for row in list_compared_calls(run, item.id)]
        rewards = compare_run_rewards(run)
    lost = Counter(row["lost"] for row in rows if is_transient_loss(row))
    why = f"{write_count(lost.total(), 'call')} lost, mostly: {lost.most_common(1)[0][0]}" if lost else ""
    loaded = Pack.load(pack)
    specs = {tool.name: tool for tool in (*loaded.tools, *loaded.user_tools)}
    (runs / name / "differences.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    waits = any(str(row["lost"]).startswith(f"{Code.PENDING}:") for row in rows if "lost" in row)
    return MeasuredRun(measure_fidelity(rows, specs), rows, why if done.complete else done.why, waits, rewards)


def is_transient_loss(row: Mapping[str, Any]) -> bool:
    """Check whether a call was lost to an outage or a budget, so that it can be retried. An unparsable answer is stored and final."""
    return "lost" in row and not str(row["lost"]).startswith(f"{Code.UNPARSABLE}:")


def reopen_lost_episodes(runs: Path, name: str) -> None:
    """Mark episodes with lost calls as failed, so that the resume replays them. Stored answers are reused at no cost."""
    from simia.jobs import FAILED, Run
    from simia.report.rollout_report import list_compared_calls

    with closing(Run.open(runs, name)) as run:
        for item in run.ledger.items():
            lost = [row["lost"] for row in list_compared_calls(run, item.id) if is_transient_loss(row)]
            if lost:
                item.status, item.reason, item.detail = FAILED, Code(lost[0].partition(":")[0]), lost[0][:300]
                run.ledger.set_status(item)
        run.ledger.flush()


def print_fidelity(pack: str, found: Rows) -> None:
    # docs/simulator-fidelity.md explains the columns. The headers are short so that the table fits 80 columns.
    out = Terminal()
    free = any(each.distance for each in found.values())
    columns = "knows", "ledger", "calls", "shape", "outcome", "F1", "again", "refused", *(["distance"] if free else [])
    table = Table(*columns, collapse_padding=free)
    for column in table.columns:
        column.no_wrap = True
    for (kind, ledger), each in found.items():
        total = each.total
        distance = [format_share(list(each.distance.values())[-1]) if each.distance else ""] if free else []
        more = format_share(total.memory), str(total.contradicting), *distance
        table.add_row(kind, "yes" if ledger else "no", *format_figures(total), *more)
    say(f"{pack}: the simulated world compared with the real one")
    out.print(table)
    if lost := sum(each.total.lost for each in found.values()):
        say(f"{write_count(lost, 'call')} without an answer: no figure counts {'it' if lost == 1 else 'them'}")
    for kind, bought in compare_ledgers(found).items():
        say(f"{kind}: the ledger buys {', '.join(f'{each} of {what}' for what, each in bought.items())}")
    answered = [each for each in found.values() if each.total.answered]
    if not answered:
        return
    best = max(answered, key=lambda each: each.total.value_f1 or 0.0)
    table = Table("tool", "calls", "shape", "outcome", "F1", title="by tool, in the best row")
    for name, tool in sorted(best.tools.items(), key=lambda pair: pair[1].value_f1 or 0.0):
        table.add_row(name, *format_figures(tool))
    out.print(table)


def format_figures(tool: ToolFidelity) -> list[str]:
    figures = tool.schema_validity, tool.agreement, tool.value_f1
    return [str(tool.calls), *map(format_share, figures)]


def compare_ledgers(found: Rows) -> dict[str, dict[str, Estimate]]:
    """Estimate for each kind of knowledge what the ledger adds to F1 and to consistency, over the same calls."""
    from simia.evaluation.fidelity import estimate_gain

    bought: dict[str, dict[str, Estimate]] = {}
    for kind in dict.fromkeys(kind for kind, _ in found):
        if (kind, True) in found and (kind, False) in found:
            for what, measure in (("F1", "value_f1"), ("values said again", "memory")):
                gain = estimate_gain(found[kind, True], found[kind, False], measure)
                if gain is not None:
                    bought.setdefault(kind, {})[what] = gain
    return bought


def save_figures(
    folder: Path,
    pack: str,
    found: Rows,
    named: Mapping[str, list[dict[str, Any]]],
    rewards: Mapping[str, Agreement | None],
) -> None:
    """Save the figures next to the runs, and their plot if the extra `plots` is installed."""
    from simia.report.change_report import collect_change_figures, collect_reward_figures, make_change_panels
    from simia.report.fidelity_plot import make_fidelity_panels
    from simia.report.plots import NO_PLOTS, can_plot, save_figure

    rows = []
    for (kind, ledger), each in found.items():
        distance = {str(step): value for step, value in each.distance.items()}
        row = {"knows": kind, "ledger": ledger, **asdict(each.total), "distance": distance}
        intervals = {measure: each.interval(measure) for measure in ("value_f1", "memory")}
        rows.append(row | {measure: asdict(estimate) for measure, estimate in intervals.items() if estimate})
    bought = {kind: {what: asdict(each) for what, each in row.items()} for kind, row in compare_ledgers(found).items()}
    folder.mkdir(parents=True, exist_ok=True)
    body = {"pack": pack, "rows": rows, "the ledger buys": bought, "changes": collect_change_figures(named, {})}
    body["rewards"] = collect_reward_figures(rewards)
    (folder / "fidelity.json").write_bytes(orjson.dumps(body, option=orjson.OPT_INDENT_2))
    panels = make_fidelity_panels({name_row(kind, ledger): each for (kind, ledger), each in found.items()})
    panels += make_change_panels(named, {})
    if can_plot():
        save_figure(panels, folder / "fidelity.svg")
        say(f"saved in {folder}: fidelity.svg, fidelity.json")
    else:
        say(f"saved in {folder}: fidelity.json; {NO_PLOTS}, then run the same command again for fidelity.svg")
