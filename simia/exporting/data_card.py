"""Write the data set card: contents, training command, provenance, and how many trajectories were left out for which reason.

Its YAML head names the data file for the Hugging Face hub, so that `refused.jsonl` is never read as training data.
"""

from __future__ import annotations

from collections.abc import Iterable

import yaml
from pydantic import BaseModel, ConfigDict, Field

from simia.errors import Code
from simia.exporting.export_records import ExportReport, choose_reasoning

HUB_LICENCES = {"apache-2.0", "mit", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0", "cc0-1.0", "bsd-3-clause"}
DATA = {"parquet": "data.parquet", "hf": "data/train-*.parquet"}
ACCEPTED = "accepted"
"""Key of `CardFacts.counts` that is no reason."""
COLUMNS = {
    "`version`, `id`": "version of the form, hash of the content",
    "`pack`, `task_id`, `split`": "environment and task",
    "`system`": "system text",
    "`tools`": "JSON text: a list of tools with name, description and parameters (JSON Schema)",
    "`messages`": "role, content, reasoning, calls (id, name, `arguments` as JSON text), call_id, name, error, more",
    "`end`": "how the episode ended",
    "`more`": "JSON text: provenance, reward and all else",
}
SIZES = {"n<1K": 1_000, "1K<n<10K": 10_000, "10K<n<100K": 100_000, "100K<n<1M": 1_000_000}


class CardFacts(BaseModel):
    """Facts that the trajectories do not contain; the caller of the exporter sets the ones it knows."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(default="simia", description="Title of the data set.")
    description: str = Field(default="", description="Contents of the data set, in a few sentences.")
    run: str | None = Field(default=None, description="Id of the run that made the trajectories.")
    config_digest: str | None = Field(default=None, description="Hash of the run's resolved config.")
    seeds: list[str] = Field(default_factory=list, description="Packs or files of the seeds, or the seeds' ids.")
    models: list[str] = Field(default_factory=list, description="Models that wrote the trajectories.")
    prompts: dict[str, str] = Field(default_factory=dict, description="Prompt file to its hash.")
    licences: list[str] = Field(default_factory=list, description="Licences of seeds and packs.")
    origins: list[str] = Field(default_factory=list, description="Who wrote the trajectories, for each kind of source.")
    counts: dict[str, int] = Field(default_factory=dict, description="Reason code (or `accepted`) to items of the run.")


def render_card(facts: CardFacts, report: ExportReport) -> str:
    """Write the README.md of an export."""
    data = DATA.get(report.to, "data.jsonl")
    words = {True: "kept", False: "left out", None: "kept where the suite's prompt demands it"}
    reasoning = words[choose_reasoning(report.to, report.reasoning)]
    kind = "preference pairs" if report.pairs else f"segment `{report.segment}`"
    contents = {
        "format": f"{report.to}, {kind}, reasoning {reasoning}",
        "trajectories exported": f"{report.exported} of {report.trajectories}",
        f"rows in `{data}`": str(report.rows),
        "assistant turns to train on": str(report.trained_turns),
    }
    if report.without_system:
        missing = f"{report.without_system}: the chat template writes its own where it has one"
        contents["trajectories without a system text"] = missing
    if report.languages:
        contents["languages"] = ", ".join(f"`{code}` ({count})" for code, count in report.languages.items())
    if report.disturbed:
        contents["episodes with disturbed results or users"] = f"{report.disturbed} of {report.exported}"
    if report.unjudged is not None:
        contents["trajectories without a verdict of a judge, kept"] = f"{report.unjudged} of {report.exported}"
    if report.longest:
        how = "counted" if report.counted else "estimated, rather too many"
        contents["longest row, tokens"] = f"{report.longest} ({how})"
    provenance = {
        "run": facts.run or "unknown",
        "config": facts.config_digest or "unknown",
        "models": join_names(facts.models),
        "seeds or packs": join_names(facts.seeds),
        "licences": join_names(facts.licences),
        **{f"prompt `{name}`": f"`{digest}`" for name, digest in sorted(facts.prompts.items())},
    }
    refused = {reason: number for reason, number in facts.counts.items() if reason != ACCEPTED}
    kept = f" (accepted: {facts.counts[ACCEPTED]:,})" if ACCEPTED in facts.counts else ""
    head = yaml.safe_dump(build_front_matter(facts, report, data), sort_keys=False, allow_unicode=True)
    sections = [
        f"---\n{head}---",
        f"# {facts.name}",
        facts.description,
        " ".join(["Agent trajectories with tool calls, exported with `simia`.", *facts.origins]),
        "## Contents",
        render_table(("what", "value"), contents.items()),
        *describe_usage(report),
        "## Provenance",
        render_table(("what", "value"), provenance.items()),
        "## What was left out",
        *render_rejections(f"While the trajectories were made{kept}:", refused),
        *render_rejections("At export (each one stands in `refused.jsonl`):", report.refused),
        "\n".join(f"- {number} {reason}." for reason, number in report.left_out.items()),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def build_front_matter(facts: CardFacts, report: ExportReport, data: str) -> dict[str, object]:
    names = {licence.strip() for licence in facts.licences}
    lowered = {name.lower() for name in names}
    known = len(lowered) == 1 and lowered <= HUB_LICENCES
    licence = (
        {"license": lowered.pop()}
        if known
        else {"license": "other", "license_name": ", ".join(sorted(names)) or "unknown"}
    )
    files = [{"split": "train", "path": data}] if report.to == "hf" else data
    return {
        "pretty_name": facts.name,
        **licence,
        **({"language": list(report.languages)} if report.languages else {}),
        "task_categories": ["text-generation"],
        "tags": ["agent", "tool-use", "function-calling", "synthetic", "simia"],
        "size_categories": [next((size for size, bound in SIZES.items() if report.rows < bound), "1M<n<10M")],
        "configs": [{"config_name": "default", "data_files": files}],
    }


def describe_usage(report: ExportReport) -> list[str]:
    if report.pairs:
        what = "Each row is a prompt with a better (`chosen`) and a worse (`rejected`) next turn, from two episodes of one group."
        if report.to == "trl":
            return ["## Training", f"{what} For TRL's `DPOTrainer`: `load_dataset('json', data_files='data.jsonl')`."]
        how = "`train.yaml` trains them by DPO. Set `model_name_or_path`, then run in this folder:"
        return ["## Training", f"{what} {how}", "```sh\nllamafactory-cli train train.yaml\n```"]
    if report.to == "trl":
        masking = "Set `assistant_only_loss=True` with a template that marks the assistant's turns; `--segment turns` needs none."
        if report.segment == "turns":
            masking = "Each row is a prompt and its completion, and only the completion is trained (TRL's default for such rows)."
        how = "For TRL's `SFTTrainer`: `load_dataset('json', data_files='data.jsonl')`."
        return ["## Training", f"{how} {masking}"]
    if report.to == "hf":
        how = "`load_dataset('FOLDER')`, or on the hub `load_dataset('OWNER/NAME')`; simia reads both, as `FOLDER` and `hf:OWNER/NAME`."
        return ["## Reading", how, render_table(("column", "content"), COLUMNS.items())]
    if report.to == "parquet":
        how = "`load_dataset('parquet', data_files='data.parquet')`."
        return ["## Reading", f"{how} `tools`, each call's `arguments` and `more` are JSON text."]
    if report.to not in ("llamafactory", "codegym"):
        return []
    how = f"`train.yaml` trains the rows with LLaMA-Factory 0.9.5 (template `{report.template}`, at most {report.cutoff} tokens a row)."
    todo = "Set `model_name_or_path`, then run in this folder:"
    return ["## Training", f"{how} {todo}", "```sh\nllamafactory-cli train train.yaml\n```"]


def render_rejections(title: str, counts: dict[str, int]) -> list[str]:
    if not counts:
        return [f"{title} nothing."]
    meanings = {str(code): code.meaning for code in Code}
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rows = [(f"`{code}`", str(count), meanings.get(code, "")) for code, count in ordered]
    return [title, render_table(("reason", "count", "meaning"), rows)]


def join_names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "unknown"


def render_table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines
    )
