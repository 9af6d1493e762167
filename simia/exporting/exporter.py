"""Export trajectories to a trainer's format: data, the trainer's own configuration, and a card.

One pass with bounded memory. Rows that the trainer would drop, cut or change are refused with a reason code, counted in
the report and the card and listed in `refused.jsonl`, so that every row in the data file is trained on.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path

from simia.envs.episode_step import seen_by_agent
from simia.errors import Code, Issue, UserError
from simia.exporting.chat_rows import drop_reasoning, iterate_dialect_rows, iterate_trl_rows
from simia.exporting.codegym_rows import configure, drop_last_results, iterate_codegym_rows
from simia.exporting.data_card import CardFacts, render_card
from simia.exporting.earlier_export import RECIPE, keep_edited_recipe, refuse_other_format
from simia.exporting.export_records import TABLES, ExportReport, ExportRow, Format, Segment, Template
from simia.exporting.hub_folder import ShardWriter, remove_other_shards
from simia.exporting.llamafactory_rows import LLaMAFactoryWriter, ModelEntry
from simia.exporting.parquet_table import TableFile
from simia.exporting.teacher_episodes import DroppedEpisode
from simia.exporting.token_estimate import CountTokens
from simia.jobs.run import is_run
from simia.quality.language import find_trajectory_languages
from simia.trajectory import Trajectory
from simia.version import __version__


def export(
    trajectories: Iterable[Trajectory],
    out: Path,
    *,
    to: Format,
    segment: Segment = "whole",
    reasoning: bool | None = None,
    template: Template = "qwen",
    cutoff: int = 12000,
    facts: CardFacts,
    count: CountTokens | None = None,
    step_reasons: bool = False,
    model: ModelEntry | None = None,
    write_empty: bool = True,
    dropped: Iterable[DroppedEpisode] = (),
    left_out: Mapping[str, int] | None = None,
    verdicts: Set[tuple[str | None, str | None]] | None = None,
) -> ExportReport:
    """Write `out/` (data, refusals, card, and for LLaMA-Factory its configuration). Files of an earlier export are replaced, except that an edited
    train.yaml is kept. Raises `UserError`, also for a folder with an export of another format.

    `segment="turns"` makes one row of each assistant turn, with the history before it. `reasoning` keeps the agent's thinking; None: only if
    the suite's prompt requires it, and in tables (`parquet`, `hf`). `count` counts tokens with the model's own tokenizer; without it lengths are estimated.
    `step_reasons` (`codegym` only): add short reasons, derived from calls and results, to calls without text.
    `dropped`: episodes that a filter dropped while the trajectories were read; they are listed with the refusals. `left_out`: counts of
    others that the selection left out, complete when the trajectories have been read. `verdicts`: the (run, item) with a judge's verdict.
    `write_empty=False`: an export without rows writes no files.
    """
    if to not in ("llamafactory", "trl") and segment != "whole":
        raise UserError(f"segment={segment} is for llamafactory and trl; {to} rows hold whole trajectories")
    if step_reasons and to != "codegym":
        raise UserError(f"step reasons are only for --to codegym; {to} rows keep the agent's own text")
    refuse_output_folder(out)
    refuse_other_format(out, to)
    template = model.template if model else template
    trainer = LLaMAFactoryWriter(segment, reasoning, template, cutoff, count, model, step_reasons)
    report = ExportReport(
        to=to, segment=segment, reasoning=reasoning, template=trainer.template, cutoff=cutoff, counted=count is not None
    )
    configuration = dict(trainer.configuration()) if to == "llamafactory" else {}
    if to == "codegym":
        configuration = dict(configure(trainer))
    languages: Counter[str] = Counter()
    licences: set[str] = set()
    with draft_files(out) as draft:
        with contextlib.ExitStack() as stack:
            refused = stack.enter_context((draft / "refused.jsonl").open("wb"))
            writer = open_writer(stack, draft, to, facts)
            for t in trajectories:
                report.trajectories += 1
                before = report.rows
                for item in iterate_export_rows(t, to, trainer):
                    if isinstance(item, Issue):
                        report.refuse(item)
                        account = {"id": get_id(t), "item": t.provenance.item, **item.model_dump()}
                        refused.write(json.dumps(account).encode() + b"\n")
                        continue
                    report.rows += 1
                    report.trained_turns += item.trained
                    report.longest = max(report.longest, item.tokens)
                    if isinstance(writer, LineWriter):
                        writer.write(item.text)
                    else:
                        writer.write(drop_reasoning(t) if reasoning is False else t)
                if to in ("hf", "llamafactory") and report.rows > before:
                    languages.update(find_trajectory_languages(t))
                report.exported += report.rows > before
                if report.rows > before and t.provenance.licence:
                    licences.add(t.provenance.licence)
                report.disturbed += report.rows > before and any(each.happened for each in t.perturbations)
                report.without_system += report.rows > before and not t.system
                if verdicts is not None:
                    judged = (t.provenance.run, t.provenance.item) in verdicts
                    report.unjudged = (report.unjudged or 0) + (report.rows > before and not judged)
            for each in dropped:
                report.trajectories += 1
                report.refuse(each.issue)
                account = {"id": each.id, "item": each.item, **each.issue.model_dump()}
                refused.write(json.dumps(account).encode() + b"\n")
            report.left_out = {reason: number for reason, number in (left_out or {}).items() if number}
            data_names = writer.close()
            report.languages = dict(languages.most_common())
        if licences and not {*facts.licences} - {"unknown"}:
            facts = facts.model_copy(update={"licences": sorted(licences)})
        if RECIPE in configuration:
            kept, note = keep_edited_recipe(out, configuration[RECIPE], trainer.recipe_values())
            configuration |= kept
            report.notes += [note] if note else []
        texts = {**configuration, "README.md": render_card(facts, report)}
        for name, text in texts.items():
            (draft / name).write_text(text, encoding="utf-8")
        if report.rows or write_empty:
            report.files = [*data_names, "refused.jsonl", *texts]
            put_in_place(draft, out, report.files)
            if to == "hf":
                remove_other_shards(out, data_names)
    return report


class LineWriter:
    """Rows as JSON lines in one file."""

    def __init__(self, stack: contextlib.ExitStack, path: Path) -> None:
        self._file, self._name = stack.enter_context(path.open("wb")), path.name

    def write(self, text: str) -> None:
        self._file.write(text.encode() + b"\n")

    def close(self) -> list[str]:
        self._file.close()
        return [self._name]


def open_writer(
    stack: contextlib.ExitStack, draft: Path, to: Format, facts: CardFacts
) -> LineWriter | TableFile | ShardWriter:
    """Open the data file or files of a format; `close` returns their names."""
    if to == "hf":
        return ShardWriter(draft, build_metadata(facts))
    if to == "parquet":
        return TableFile(stack.enter_context((draft / "data.parquet").open("wb")), build_metadata(facts))
    return LineWriter(stack, draft / "data.jsonl")


def refuse_output_folder(out: Path) -> None:
    """Raise `UserError` for a folder inside a pack and for the folder of a run: an export would add or replace files there."""
    target = out.expanduser().resolve()
    for folder in (target, *target.parents):
        if (folder / "pack.yaml").is_file():
            raise UserError(f"--out {out}: {folder} is a pack; choose a folder outside of it")
        if is_run(folder):
            if folder == target:
                raise UserError(f"--out {out}: this is the folder of a run; choose another, or a new folder in it")
            return


@contextlib.contextmanager
def draft_files(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder in `folder` for files that `put_in_place` moves. Raises `UserError` if it cannot be made."""
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draft = tempfile.TemporaryDirectory(prefix=".export-", dir=folder)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}; choose another folder") from None
    try:
        with draft:
            yield Path(draft.name)
    finally:
        if made:
            with contextlib.suppress(OSError):  # it holds the files
                folder.rmdir()


def put_in_place(draft: Path, folder: Path, names: list[str]) -> None:
    """Move the files of a draft when all of them are on the disk."""
    for name in names:
        with (draft / name).open("rb") as file:
            os.fsync(file.fileno())
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (draft / name).replace(folder / name)


def iterate_export_rows(t: Trajectory, to: Format, trainer: LLaMAFactoryWriter) -> Iterator[ExportRow | Issue]:
    """Return a trajectory's rows, or why it has none. Messages that the agent does not see are left out, except in tables."""
    if to in TABLES:  # one row for each trajectory, with columns
        return iter([ExportRow("", trained=sum(message.role == "assistant" for message in t.messages))])
    if to == "llamafactory":  # leaves them out itself
        if t.end is not None and t.end.code is Code.FINISHED:
            t = t.model_copy(update={"messages": drop_last_results(t.messages)})
        return trainer.rows(t)
    t = t.model_copy(update={"messages": list(seen_by_agent(t.messages))})
    if to == "codegym":
        return iterate_codegym_rows(t, trainer)
    if to == "trl":
        return iterate_trl_rows(t, trainer)
    return iterate_dialect_rows(t, to, trainer)


def build_metadata(facts: CardFacts) -> dict[str, str]:
    """Return the metadata of a table, for readers without its card."""
    return {
        "version": __version__,
        "run": facts.run or "",
        "config": facts.config_digest or "",
        "licences": ", ".join(facts.licences),
        "models": ", ".join(facts.models),
    }


def get_id(t: Trajectory) -> str | None:
    """Return the trajectory's id; None if its content is not valid Unicode and cannot be hashed."""
    try:
        return t.id
    except UnicodeEncodeError:
        return None
