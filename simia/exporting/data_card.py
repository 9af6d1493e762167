"""The data set card: what the rows are, how they came about, what was thrown away on the way and why.

Its YAML head is what the hub reads. It names `data.jsonl` as the only data file, so that `refused.jsonl` beside it is
never taken for training data.
"""

from __future__ import annotations

from collections.abc import Iterable

import yaml

from simia.errors import Code
from simia.exporting.facts import CardFacts, ExportReport

HUB_LICENCES = {"apache-2.0", "mit", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0", "cc0-1.0", "bsd-3-clause"}


def render_card(facts: CardFacts, report: ExportReport) -> str:
    """Write the README.md of an export."""
    sections = [
        f"---\n{yaml.safe_dump(build_front_matter(facts, report), sort_keys=False, allow_unicode=True)}---",
        f"# {facts.name}",
        facts.description,
        "Agent trajectories with tool calls, made by simulation with `simia`: a language model wrote user, agent and tool "
        "results. Names, numbers and outcomes in them are invented.",
        "## Contents",
        render_table(
            ("what", "value"),
            [
                (
                    "format",
                    f"{report.to}, segment `{report.segment}`, reasoning {'kept' if report.reasoning else 'left out'}",
                ),
                ("trajectories exported", f"{report.exported} of {report.trajectories}"),
                (f"rows in `{name_data_file(report)}`", str(report.rows)),
                ("assistant turns to train on", str(report.trained_turns)),
                *(
                    [("trajectories without a system text", describe_missing_system(report))]
                    if report.without_system
                    else []
                ),
                *([("longest row, tokens", describe_longest(report))] if report.longest else []),
            ],
        ),
        *describe_usage(report),
        "## Provenance",
        render_table(
            ("what", "value"),
            [
                ("run", facts.run or "unknown"),
                ("config", facts.config_digest or "unknown"),
                ("models", join_names(facts.models)),
                ("seeds", join_names(facts.seeds)),
                ("licences of the seeds", join_names(facts.licences)),
                *((f"prompt `{name}`", f"`{digest}`") for name, digest in sorted(facts.prompts.items())),
            ],
        ),
        "## What was left out",
        *render_rejections("While the trajectories were made:", facts.counts),
        *render_rejections("At export (each one stands in `refused.jsonl`):", report.refused),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def build_front_matter(facts: CardFacts, report: ExportReport) -> dict[str, object]:
    names = {licence.strip() for licence in facts.licences}
    lowered = {name.lower() for name in names}
    head: dict[str, object] = {"pretty_name": facts.name}
    if len(lowered) == 1 and lowered <= HUB_LICENCES:
        head["license"] = next(iter(lowered))
    else:
        head["license"] = "other"
        head["license_name"] = ", ".join(sorted(names)) or "unknown"
    head["task_categories"] = ["text-generation"]
    head["tags"] = ["agent", "tool-use", "function-calling", "synthetic", "simia"]
    head["size_categories"] = [choose_size_category(report.rows)]
    head["configs"] = [{"config_name": "default", "data_files": name_data_file(report)}]
    return head


def name_data_file(report: ExportReport) -> str:
    return "data.parquet" if report.to == "parquet" else "data.jsonl"


def choose_size_category(rows: int) -> str:
    """Return the hub's name for the order of magnitude."""
    for bound, name in ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M")):
        if rows < bound:
            return name
    return "1M<n<10M"


def describe_usage(report: ExportReport) -> list[str]:
    if report.to == "trl":
        return [
            "## Training",
            "For TRL's `SFTTrainer`: `load_dataset('json', data_files='data.jsonl')`. "
            + (
                "Each row is a prompt and its completion, and only the completion is trained (TRL's default for such rows)."
                if report.segment == "turns"
                else "Set `assistant_only_loss=True` with a template that marks the assistant's turns; `--segment turns` needs none."
            ),
        ]
    if report.to == "parquet":
        return [
            "## Reading",
            "`load_dataset('parquet', data_files='data.parquet')`. `tools`, each call's `arguments` and `more` are JSON text.",
        ]
    if report.to != "llamafactory":
        return []
    return [
        "## Training",
        f"`train.yaml` trains the rows with LLaMA-Factory 0.9.5 (template `{report.template}`, at most {report.cutoff} "
        "tokens a row). Set `model_name_or_path`, then run in this folder:",
        "```sh\nllamafactory-cli train train.yaml\n```",
    ]


def describe_missing_system(report: ExportReport) -> str:
    return f"{report.without_system}: the chat template writes its own where it has one"


def describe_longest(report: ExportReport) -> str:
    return f"{report.longest} ({'counted' if report.counted else 'estimated, rather too many'})"


def render_rejections(title: str, counts: dict[str, int]) -> list[str]:
    if not counts:
        return [f"{title} nothing."]
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [
        title,
        render_table(
            ("reason", "count", "meaning"), [(f"`{code}`", str(n), explain_code(code)) for code, n in ordered]
        ),
    ]


def explain_code(code: str) -> str:
    """Explain a reason code; `counts` may also hold other words, such as `accepted`."""
    return next((known.meaning for known in Code if known == code), "")


def join_names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "unknown"


def render_table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines
    )
