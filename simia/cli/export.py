"""`simia export`: write a run's accepted trajectories in the format of a trainer."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simia.cli.options import RUNS, SETTINGS
from simia.errors import Code, UserError
from simia.exporting.export_records import TABLES, ExportReport, Format, Segment, Target, Template, choose_reasoning
from simia.terminal import say, say_error, write_count

if TYPE_CHECKING:
    from simia.exporting.llamafactory_rows import LLaMAFactoryWriter

CUTOFF = 12000


def export(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            help="Runs (id, unique prefix, path, or `last`), files of trajectories, or packs. Several are joined. With --to "
            "simulator: only rollouts with the executable back end."
        ),
    ] = None,
    to: Annotated[
        Target,
        typer.Option("--to", help="Format of the export. simulator: rows that train a model to simulate the tools."),
    ] = "llamafactory",
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder of the export. Default: export-<to> in the run's folder. An earlier export of the same format is replaced, "
            "except that an edited train.yaml is kept.",
        ),
    ] = None,
    segment: Annotated[
        Segment, typer.Option("--segment", help="One example per trajectory, or per assistant turn (paper §3.1).")
    ] = "whole",
    reasoning: Annotated[
        bool | None,
        typer.Option(
            "--reasoning/--no-reasoning",
            help="Whether to train on reasoning. Default: only where the suite's prompt requires it; parquet and hf keep all.",
        ),
    ] = None,
    step_reasons: Annotated[
        bool,
        typer.Option(
            "--step-reasons",
            help="With --to codegym: write a reason before each call, derived only from calls and results.",
        ),
    ] = False,
    template: Annotated[
        Template | None,
        typer.Option("--template", help="LLaMA-Factory's chat template of your model. Default: qwen."),
    ] = None,
    cutoff: Annotated[
        int | None,
        typer.Option(
            "--cutoff",
            min=1,
            help="Maximum number of tokens of an example (default: 12000; with --to simulator: 20000). Longer examples are "
            "refused, never cut. Not for parquet and hf, whose rows are whole records.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", help="Name of a model in configs/llamafactory/models.yaml; it sets weights and template."
        ),
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(
            "--system",
            help="System text of your deployment, which replaces that of the trajectories: a text file, or a YAML file that names "
            "one text file for each pack.",
        ),
    ] = None,
    mix: Annotated[
        list[str] | None,
        typer.Option("--mix", help="Share of a pack in the rows, for example retail=0.7; may be repeated."),
    ] = None,
    take: Annotated[
        int | None,
        typer.Option(
            "--take", min=1, help="With --mix: total number of rows. With --to simulator: number of training rows."
        ),
    ] = None,
    judged: Annotated[
        bool,
        typer.Option(
            "--judged",
            help="Leave out trajectories that failed in `simia judge`. Trajectories without a verdict are kept.",
        ),
    ] = False,
    partial: Annotated[
        bool,
        typer.Option("--partial", help="Also export from runs that are unfinished, in progress or inconsistent."),
    ] = False,
    least_reward: Annotated[
        float,
        typer.Option(
            "--least-reward",
            help="For the run of a training: minimum reward of the best episode of a group, which is exported.",
        ),
    ] = 1.0,
    pairs: Annotated[
        float | None,
        typer.Option(
            "--pairs", help="Write preference pairs: two episodes of a group whose rewards differ by at least this."
        ),
    ] = None,
    push: Annotated[
        str | None,
        typer.Option(
            "--push", help="With --to hf: upload to this data set on the Hugging Face Hub, OWNER/NAME. Needs HF_TOKEN."
        ),
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="With --push: make a new data set public. Default: private.")
    ] = False,
    config: Annotated[
        str | None,
        typer.Option("--config", "-c", help="With --to simulator: config by name or path. Default: simulator/default."),
    ] = None,
    settings: SETTINGS = None,
    runs: RUNS = Path("runs"),
) -> None:
    """Write trajectories as training data, with a data set card and, for LLaMA-Factory, a training config (YAML)."""
    if to == "simulator":
        if mix or system or judged or pairs is not None or push or segment != "whole" or reasoning is not None:
            raise UserError(
                "--to simulator cannot be combined with --mix, --system, --judged, --pairs, --push, --segment or --reasoning: omit these"
            )
        given = {"cutoff": cutoff, "take": take}
        write_simulator(sources, runs, folder, config, settings or [], given, template, model, partial=partial)
        return
    if config is not None or settings:
        raise UserError(
            "--config and --set are only for --to simulator: omit them, and use the other options of `simia export --help`"
        )
    from simia.exporting import export as write
    from simia.exporting.episode_groups import BestOfGroups
    from simia.exporting.llamafactory_rows import LLaMAFactoryWriter, ModelEntry
    from simia.exporting.selection import parse_shares, select

    if push is not None or public:
        refuse_push(push, to)
    names = sources or ["last"]
    chosen = ModelEntry.named(model) if model else None
    if pairs is not None:
        if mix or take or system or judged or segment != "whole" or push:
            raise UserError(
                "--pairs cannot be combined with --mix, --take, --system, --judged, --segment or --push: omit these"
            )
        entry = chosen.template if chosen else template or "qwen"
        writer = LLaMAFactoryWriter("whole", reasoning, entry, cutoff or CUTOFF, model=chosen)
        write_pairs(names, runs, pairs, folder, to, writer, partial=partial)
        return
    shares = parse_shares(mix) if mix else None
    selection = select(
        names,
        runs,
        mix=shares,
        take=take,
        system=system,
        reasoning=choose_reasoning(to, reasoning),
        judged=judged,
        partial=partial,
        best=BestOfGroups(least_reward),
    )
    if not sources:
        say(f"run {selection.folders[0].name}, the latest in {runs}")
    for note in selection.notes:
        say_error(f"note: {note}")
    target = folder or Path(*selection.folders[:1], f"export-{to}")
    report = write(
        selection.rows,
        target,
        to=to,
        segment=segment,
        reasoning=reasoning,
        step_reasons=step_reasons,
        template=template or "qwen",
        cutoff=cutoff or CUTOFF,
        model=chosen,
        facts=selection.facts,
        write_empty=False,
        dropped=selection.dropped,
        left_out=selection.left_out,
        verdicts=selection.verdicts,
    )
    if unread := selection.unread:
        say(f"not read: {unread}")
        for line in unread.describe_first():
            say(f"  {line}")
    for reason, count in selection.left_out.items():
        say(f"{count} {reason}")
    if judged:
        say(f"{report.refused.get(Code.JUDGED_BAD, 0)} that a judge found a fault in were left out: see refused.jsonl")
        say(f"{report.unjudged or 0} have no verdict and were kept")
    for issue in report.examples:
        if issue.code is Code.JUDGED_BAD:
            continue
        say(f"refused {report.refused[issue.code]}: {issue}")
    if report.rows == 0:
        raise UserError(explain_empty_export(report, selection.folders, names))
    for note in report.notes:
        say_error(f"note: {note}")
    if cutoff and to in TABLES:
        say_error(f"note: --cutoff has no effect with --to {to}: its rows are whole records")
    made = (
        f"{write_count(report.rows, 'row')} from {report.exported} of {write_count(report.trajectories, 'trajectory')}"
    )
    say(f"{made} in {target}")
    if report.without_system:
        say(
            f"{report.without_system} have no system text: the model's chat template may insert its own; "
            "--system FILE sets the text of the deployment"
        )
    if push is not None:
        from simia.exporting.hub_folder import push_folder

        say(f"uploaded to {push_folder(target, push, report.files, public=public)}")
    if to in ("llamafactory", "codegym"):
        say(
            f"next: simia train llamafactory {shlex.quote(str(target))}   (or there: llamafactory-cli train train.yaml)"
        )


def write_simulator(
    sources: list[str] | None,
    runs: Path,
    folder: Path | None,
    config: str | None,
    settings: list[str],
    given: dict[str, int | None],
    template: Template | None,
    model: str | None,
    *,
    partial: bool,
) -> None:
    """Write the rows of a simulator and say how many, and what was left out."""
    from simia.config import load_config
    from simia.evaluation.call_samples import DELTA
    from simia.exporting.llamafactory_rows import ModelEntry
    from simia.exporting.simulator_export import NoTrainingRowsError, export_simulator, find_rollout
    from simia.exporting.simulator_settings import SimulatorConfig
    from simia.exporting.simulator_split import write_class

    names = sources or ["last"]
    chosen = load_config(SimulatorConfig, config or "simulator/default", settings, **given)
    first = find_rollout(runs, names[0])
    target = folder or first / "export-simulator"
    if not sources:
        say(f"run {first.name}, the latest in {runs}")
    entry = ModelEntry.named(model) if model else None
    try:
        report = export_simulator(names, target, chosen, folder=runs, partial=partial, template=template, model=entry)
    except NoTrainingRowsError as error:
        say_error(f"simia: {error}")
        raise typer.Exit(1) from None
    for reason, number in report.left_out.items():
        say(f"{number} {reason} were left out")
    held = ", ".join(f"{number} by {use}" for use, number in report.held_out.items()) or "none"
    say(
        f"{write_count(report.rows, 'training row')} of {write_count(report.episodes, 'episode')} in {target}, held out: {held}"
    )
    say("training rows: " + ", ".join(f"{write_class(name)}: {number}" for name, number in report.classes.items()))
    say(DELTA)
    for note in report.notes:
        say_error(f"note: {note}")
    say(f"next: simia train llamafactory {shlex.quote(str(target))}   (or there: llamafactory-cli train train.yaml)")


def write_pairs(
    names: list[str],
    runs: Path,
    gap: float,
    folder: Path | None,
    to: Format,
    writer: LLaMAFactoryWriter,
    *,
    partial: bool,
) -> None:
    """Write preference pairs and say how many, and what was left out."""
    from simia.exporting.preference_pairs import check_pair_format, export_pairs, select_pairs

    form = check_pair_format(to)
    selection = select_pairs(names, runs, gap, partial=partial)
    for note in selection.notes:
        say_error(f"note: {note}")
    target = folder or selection.folders[0] / f"export-pairs-{to}"
    report = export_pairs(selection.groups, target, to=form, trainer=writer, facts=selection.facts, write_empty=False)
    for reason, count in selection.left_out.items():
        say(f"{count} {reason}")
    for issue in report.examples:
        say(f"refused {report.refused[issue.code]}: {issue}")
    if report.rows == 0:
        raise UserError(f"no pair was written: see above; rewards of a group must differ by at least {gap:g}")
    for note in report.notes:
        say_error(f"note: {note}")
    say(f"{write_count(report.rows, 'pair')} in {target}")
    if to == "llamafactory":
        say(
            f"next: simia train llamafactory {shlex.quote(str(target))}   (or there: llamafactory-cli train train.yaml)"
        )


def refuse_push(push: str | None, to: Format) -> None:
    """Raise `UserError` for an upload that cannot work, before anything is written."""
    from simia.exporting.hub_folder import check_repository, read_hub_token

    if push is None:
        raise UserError("--public is for --push OWNER/NAME")
    if to != "hf":
        raise UserError(f"--push uploads the folder of --to hf, not of --to {to}: add --to hf")
    check_repository(push)
    read_hub_token()


def explain_empty_export(report: ExportReport, runs: list[Path], sources: list[str]) -> str:
    """Explain why an export has no rows, and what to do."""
    if report.trajectories == 0:
        see = f": see simia report {runs[0].name}" if runs else ""
        if packs := [each for each in sources if (Path(each) / "pack.yaml").is_file()]:
            see = f"; the solutions of a pack are trajectories once they are recorded: simia pack record {shlex.quote(packs[0])}"
        return f"no row was written: the sources hold no trajectory that can be exported{see}"
    reason, count = max(report.refused.items(), key=lambda pair: pair[1])
    found = f"none of {write_count(report.trajectories, 'trajectory')} can be exported, mostly {reason} ({count:,})"
    return f"no row was written: {found}; the output above has an example of each reason"
