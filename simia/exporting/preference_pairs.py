"""Preference pairs of two episodes of one group, in the forms of LLaMA-Factory and TRL.

Both trainers learn from two answers to one prompt, and cannot mask parts of an answer. So a pair is made at the first turn in which the
better and the worse episode differ: the prompt holds the equal messages before it, `chosen` and `rejected` are the two turns. If a message
of the environment differs first, such as the user's opening, the difference is not due to the policy and there is no pair.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from simia.envs.episode_step import seen_by_agent
from simia.errors import Code, Issue, UserError
from simia.exporting.chat_rows import make_trl_messages
from simia.exporting.data_card import CardFacts, render_card
from simia.exporting.earlier_export import RECIPE, keep_edited_recipe, refuse_other_format
from simia.exporting.episode_groups import iterate_candidate_pairs
from simia.exporting.export_records import ExportReport, ExportRow
from simia.exporting.exporter import draft_files, get_id, put_in_place, refuse_output_folder
from simia.exporting.llamafactory_rows import DATASET_INFO, LLaMAFactoryWriter, set_recipe_values
from simia.exporting.selection import merge_facts, read_facts
from simia.formats import llamafactory
from simia.formats.llamafactory import UntrainableError
from simia.jobs import Run, find_run, refuse_partial
from simia.trajectory import Trajectory

PairFormat = Literal["llamafactory", "trl"]
COLUMNS = {"chosen": "chosen", "rejected": "rejected"}
DPO = "\n### preference pairs\npref_beta: 0.1\npref_loss: sigmoid  # DPO\n"


def check_pair_format(to: str) -> PairFormat:
    """Return the format. Raises `UserError` for one without preference pairs."""
    for known in get_args(PairFormat):
        if to == known:
            return known  # type: ignore[no-any-return]
    raise UserError(f"preference pairs are written for llamafactory and trl, not for {to}: choose one with --to")


@dataclass(slots=True)
class PairSelection:
    """Candidate pairs of each group. `left_out`: reason → number of episodes or groups, complete when `groups` have been read; `notes`: a
    line for each run that is not complete."""

    groups: Iterable[list[tuple[Trajectory, Trajectory]]]
    facts: CardFacts
    folders: list[Path]
    left_out: Counter[str]
    notes: list[str]


def select_pairs(names: list[str], runs: Path, gap: float, *, partial: bool = False) -> PairSelection:
    """Select pairs from runs of trainings and rollouts. Raises `UserError`; also for an incomplete run, unless `partial`."""
    if gap <= 0:
        raise UserError(f"the least difference of a pair's rewards must be more than 0, got {gap:g}")
    left_out: Counter[str] = Counter()
    folders = [find_run(runs, name) for name in names]
    facts, notes = [], list[str]()
    for folder in folders:
        with closing(Run.read_only(folder.parent, str(folder))) as run:
            condition = refuse_partial(run, partial=partial, how="--partial")
            notes += [] if condition.complete else [str(condition)]
            facts.append(read_facts(run))
    groups = iterate_candidate_pairs(folders, gap, left_out)
    return PairSelection(groups, merge_facts(facts, names, runs), folders, left_out, notes)


def export_pairs(
    groups: Iterable[list[tuple[Trajectory, Trajectory]]],
    out: Path,
    *,
    to: PairFormat,
    trainer: LLaMAFactoryWriter,
    facts: CardFacts,
    write_empty: bool = True,
) -> ExportReport:
    """Write one pair of each group, the first that can be expressed: data, refusals, a card, and LLaMA-Factory's configuration.

    `groups`: candidate pairs of a better and a worse episode. `write_empty=False`: an export without rows writes no files.
    """
    refuse_output_folder(out)
    refuse_other_format(out, to, pairs=True)
    report = ExportReport(
        to=to,
        segment="whole",
        reasoning=trainer.reasoning,
        template=trainer.template,
        cutoff=trainer.cutoff,
        counted=trainer.count is not None,
        pairs=True,
    )
    with draft_files(out) as draft:
        with (draft / "data.jsonl").open("wb") as data, (draft / "refused.jsonl").open("wb") as refused:
            for candidates in groups:
                report.trajectories += 2
                found, issues = choose_pair(candidates, to, trainer)
                for issue, better in issues if found is None else ():
                    report.refuse(issue)
                    account = {"id": get_id(better), "item": better.provenance.item, **issue.model_dump()}
                    refused.write(json.dumps(account).encode() + b"\n")
                if found is None:
                    continue
                report.rows += 1
                report.exported += 2
                report.trained_turns += 1
                report.longest = max(report.longest, found.tokens)
                data.write(found.text.encode() + b"\n")
        texts = dict(configure_pairs(trainer)) if to == "llamafactory" else {}
        if RECIPE in texts:
            kept, note = keep_edited_recipe(out, texts[RECIPE], trainer.recipe_values())
            texts |= kept
            report.notes += [note] if note else []
        texts["README.md"] = render_card(facts, report)
        for name, text in texts.items():
            (draft / name).write_text(text, encoding="utf-8")
        if report.rows or write_empty:
            report.files = ["data.jsonl", "refused.jsonl", *texts]
            put_in_place(draft, out, report.files)
    return report


def choose_pair(
    candidates: list[tuple[Trajectory, Trajectory]], to: PairFormat, trainer: LLaMAFactoryWriter
) -> tuple[ExportRow | None, list[tuple[Issue, Trajectory]]]:
    """Return the first pair that can be written; if there is none, the issue of the first candidate."""
    issues: list[tuple[Issue, Trajectory]] = []
    for better, worse in candidates:
        try:
            return make_pair(better, worse, to, trainer), []
        except UntrainableError as unfit:
            issues.append((unfit.issue, better))
    return None, issues[:1]


def make_pair(better: Trajectory, worse: Trajectory, to: PairFormat, trainer: LLaMAFactoryWriter) -> ExportRow:
    """Make the row of a pair. Raises `UntrainableError`."""
    reasoning = trainer.keeps_reasoning(better)
    chosen, rejected = (
        llamafactory.convert_conversation(t, reasoning=reasoning, joint=trainer.joint) for t in (better, worse)
    )
    if (chosen.system, chosen.tools) != (rejected.system, rejected.tools):
        raise UntrainableError(Code.UNEXPRESSIBLE, "system", "the two episodes have different policies or tools")
    both = list(zip(chosen.turns, rejected.turns, strict=False))
    at = next((n for n, (one, two) in enumerate(both) if (one.role, one.value) != (two.role, two.value)), len(both))
    if at == len(both) or not (chosen.turns[at].is_agents and rejected.turns[at].is_agents):
        raise UntrainableError(
            Code.UNEXPRESSIBLE,
            f"messages[{at}]",
            "the first difference of the two episodes is not a turn of the agent in both",
        )
    tokens = max(trainer.lengths(each)[at] for each in (chosen, rejected))
    if tokens + 2 > trainer.cutoff:
        detail = f"{tokens} tokens, and the cutoff is {trainer.cutoff}: set --cutoff"
        raise UntrainableError(Code.OVER_BUDGET, f"messages[{chosen.turns[at].place}]", detail)
    if to == "llamafactory":
        row = chosen.row(at)
        row |= {"turn": chosen.turns[at].place, "rejected_id": rejected.id}
        row |= {
            name: {"from": c.turns[at].role, "value": c.turns[at].value}
            for name, c in (("chosen", chosen), ("rejected", rejected))
        }
    else:
        row = make_trl_pair(better, worse, reasoning)
    return ExportRow(json.dumps(row, ensure_ascii=False), 1, tokens)


def make_trl_pair(better: Trajectory, worse: Trajectory, reasoning: bool) -> dict[str, Any]:
    """Make TRL's row: `prompt`, `chosen` and `rejected` as conversations. Raises `UntrainableError`."""
    seen = [t.model_copy(update={"messages": list(seen_by_agent(t.messages))}) for t in (better, worse)]
    one, two = (make_trl_messages(t, reasoning) for t in seen)
    at = next((n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
    if at == min(len(one), len(two)) or {one[at]["role"], two[at]["role"]} != {"assistant"}:
        raise UntrainableError(
            Code.UNEXPRESSIBLE,
            f"messages[{at}]",
            "the first difference of the two episodes is not a turn of the agent in both",
        )
    return {"prompt": one[:at], "chosen": [one[at]], "rejected": [two[at]]}


def configure_pairs(trainer: LLaMAFactoryWriter) -> Iterable[tuple[str, str]]:
    """Yield LLaMA-Factory's files for pairs: the SFT recipe with the stage `dpo`."""
    (name, described), *_ = DATASET_INFO.items()
    columns = described["columns"]
    assert isinstance(columns, dict)
    info = {name: {**described, "ranking": True, "columns": {**columns, **COLUMNS}}}
    for file, text in trainer.configuration():
        if file == "dataset_info.json":
            text = json.dumps(info, indent=2) + "\n"
        elif file == "train.yaml":
            text = set_recipe_values(text, {"stage": "dpo", "neat_packing": "false"}) + DPO
        yield file, text
