"""Write the rows of a simulator: training and held-out rows, LLaMA-Factory's files, packs of prompts for GRPO, and a card."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

import yaml
from pydantic import BaseModel, Field

from simia.errors import UserError
from simia.exporting.data_card import render_table
from simia.exporting.export_records import Template
from simia.exporting.exporter import draft_files, put_in_place, refuse_output_folder
from simia.exporting.llamafactory_rows import ModelEntry, read_config_text, set_recipe_values
from simia.exporting.simulator_rows import CollectedRows, SimulatorRow, collect_rows
from simia.exporting.simulator_settings import SimulatorConfig
from simia.exporting.simulator_split import CLASSES, SplitRows, choose_tools, count_classes, split_rows
from simia.exporting.token_estimate import CountTokens, estimate_tokens
from simia.jobs import Run, find_run, refuse_partial

DATA = {"simia": "data.jsonl", "simia_held_out": "held_out.jsonl"}
TAGS = {
    "role_tag": "role",
    "content_tag": "content",
    "user_tag": "user",
    "assistant_tag": "assistant",
    "system_tag": "system",
}
WORLD = '''"""A world without tools and state: the tasks of this pack are prompts, and the first answer ends an episode."""

from pydantic import BaseModel

from simia.kit import Tools


class State(BaseModel):
    pass


class Nothing(Tools[State]):
    State = State
'''
REWARD = "simia.trainers.simulator_reward:score_episode"


class SimulatorReport(BaseModel):
    """Counts of an export for simulators."""

    episodes: int = Field(description="Episodes read.")
    rows: int = Field(description="Training rows.")
    held_out: dict[str, int] = Field(description="`pack`, `tool` or `task` → held-out rows.")
    classes: dict[str, int] = Field(description="Class of |Δ| → training rows.")
    left_out: dict[str, int] = Field(description="Reason → episodes, calls or rows that were left out.")
    longest: int = Field(description="Tokens of the longest row.")
    files: list[str] = Field(description="Names of the files written.")


def export_simulator(
    runs: Sequence[str],
    out: Path,
    config: SimulatorConfig,
    *,
    folder: Path = Path("runs"),
    partial: bool = False,
    template: Template = "qwen",
    model: ModelEntry | None = None,
    count: CountTokens | None = None,
) -> SimulatorReport:
    """Write `out/` from rollouts in executable worlds. Existing files are replaced.

    `folder`: of the runs; `count`: counts a text's tokens with the model's own tokenizer, else lengths are estimated. Raises `UserError`.
    """
    refuse_output_folder(out)
    paths = [find_run(folder, name) for name in runs]
    found, split = asyncio.run(collect_and_split(paths, config, count or estimate_tokens, partial=partial))
    if not split.train and not split.held_out:
        reasons = ", ".join(f"{number} {reason}" for reason, number in found.left_out.items())
        raise UserError(
            f"no row was written: {found.episodes} episodes were read, and left out were: {reasons or 'none'}"
        )
    rows = [*split.train, *(row for held in split.held_out.values() for row in held)]
    report = SimulatorReport(
        episodes=found.episodes,
        rows=len(split.train),
        held_out={use: len(held) for use, held in split.held_out.items()},
        classes=count_classes(split.train),
        left_out=dict(found.left_out + split.left_out),
        longest=max(row.tokens for row in rows),
        files=[],
    )
    texts = {
        **write_data(split),
        **dict(write_recipe(config, model.template if model else template, model)),
        **dict(write_prompt_packs(split.train, "prompts")),
        **dict(write_prompt_packs([row for held in split.held_out.values() for row in held], "held_out_prompts")),
    }
    texts["README.md"] = write_card(config, split, report)
    with draft_files(out) as draft:
        for name, text in texts.items():
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            (draft / name).write_text(text, encoding="utf-8")
            (out / name).parent.mkdir(parents=True, exist_ok=True)
        report.files = list(texts)
        put_in_place(draft, out, report.files)
    return report


async def collect_and_split(
    paths: Iterable[Path], config: SimulatorConfig, count: CountTokens, *, partial: bool
) -> tuple[CollectedRows, SplitRows]:
    """Collect the rows of all runs, once more without the held-out tools in the other prompts where some are held out."""
    tools: dict[str, set[str]] = {}
    found = await collect_runs(paths, config, count, tools, partial=partial)
    tools = {pack: names for pack, names in choose_tools(found.rows, config.held_out).items() if names}
    if tools and config.world.dialect != "brief":  # whose prompts show the called tool alone
        found = await collect_runs(paths, config, count, tools, partial=partial)
    return found, split_rows(found.rows, config.held_out, config.take, config.largest)


async def collect_runs(
    paths: Iterable[Path], config: SimulatorConfig, count: CountTokens, tools: dict[str, set[str]], *, partial: bool
) -> CollectedRows:
    found = CollectedRows()
    for path in paths:
        with closing(Run.read_only(path.parent, str(path))) as run:
            refuse_partial(run, partial=partial, how="--partial")
            await collect_rows(run, config, count, found, lambda pack: tools.get(pack, set()))
    return found


def write_data(split: SplitRows) -> dict[str, str]:
    """Training rows, and held-out ones with `held_out`: why they are."""
    held = [{**row.write(), "held_out": use} for use, rows in split.held_out.items() for row in rows]
    return {
        "data.jsonl": "".join(json.dumps(row.write(), ensure_ascii=False) + "\n" for row in split.train),
        "held_out.jsonl": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in held),
    }


def write_recipe(config: SimulatorConfig, template: Template, model: ModelEntry | None) -> Iterable[tuple[str, str]]:
    """LLaMA-Factory's files: the shipped SFT recipe on these rows."""
    info = {
        name: {"file_name": file, "formatting": "sharegpt", "columns": {"messages": "messages"}, "tags": TAGS}
        for name, file in DATA.items()
    }
    changes = {"dataset": "simia", "template": template, "cutoff_len": str(config.cutoff), "mask_history": "false"}
    if model is not None:
        changes["model_name_or_path"] = model.path
    yield "dataset_info.json", json.dumps(info, indent=2) + "\n"
    yield "ds_zero3.json", read_config_text("ds_zero3.json")
    yield "train.yaml", set_recipe_values(read_config_text("sft.yaml"), changes)
    yield "simulator.yaml", yaml.safe_dump(config.model_dump(exclude_unset=True, mode="json"), sort_keys=False)


def write_prompt_packs(rows: Iterable[SimulatorRow], folder: str) -> Iterable[tuple[str, str]]:
    """A pack for each system text: each of its tasks is the request of a row, and its first answer ends the episode."""
    groups: dict[tuple[str, str], list[SimulatorRow]] = defaultdict(list)
    for row in rows:
        groups[row.pack, row.messages[0]["content"]].append(row)
    numbers: Counter[str] = Counter()
    for (pack, system), group in groups.items():
        numbers[pack] += 1
        name = f"{pack}_prompts" + (f"_{numbers[pack]}" if numbers[pack] > 1 else "")
        head = {
            "format": 2, "name": name, "description": f"Calls of {pack} that a simulator answers.", "licence": "unknown",
            "policy": "policy.md", "tools": "tools.json", "tasks": "tasks.jsonl", "user": "none",
            "executable": {"code": "world.py", "object": "Nothing", "isolation": "shared"},
        }  # fmt: skip
        tasks = [
            {
                "id": f"{pack}-{n}",
                "instruction": row.messages[1]["content"],
                "extra": {"truth": row.truth.model_dump(mode="json", exclude_defaults=True)},
            }
            for n, row in enumerate(group, start=1)
        ]
        yield f"{folder}/{name}/pack.yaml", yaml.safe_dump(head, sort_keys=False)
        yield f"{folder}/{name}/policy.md", system + "\n"
        yield f"{folder}/{name}/tools.json", "[]\n"
        yield f"{folder}/{name}/world.py", WORLD
        yield f"{folder}/{name}/tasks.jsonl", "".join(json.dumps(task, ensure_ascii=False) + "\n" for task in tasks)


def write_card(config: SimulatorConfig, split: SplitRows, report: SimulatorReport) -> str:
    """The README.md of an export for simulators."""
    uses: dict[str, list[SimulatorRow]] = {
        "train": split.train,
        **{f"held-out {use}": rows for use, rows in split.held_out.items()},
    }
    by_class = [(use, str(len(rows)), *map(str, count_classes(rows).values())) for use, rows in uses.items()]
    world = config.world.model_dump(exclude_unset=True, mode="json")
    settings = json.dumps(world)
    sections = [
        "# Rows for a simulator",
        "Each row is one call of a rollout in an executable world: the prompt that simia's simulated world asks at this point, and the true "
        "answer with its changes. `truth` is what a score needs, as JSON text.",
        "## Contents",
        render_table(("rows", "all", *(f"|Δ| {name}" for name in CLASSES)), by_class),
        f"|Δ| is the number of leaf fields that a call adds, removes or changes. The longest row has {report.longest} tokens.",
        "## Training",
        "`train.yaml` trains `data.jsonl` with LLaMA-Factory 0.9.5; TRL's `SFTTrainer` reads it as it is. `prompts` holds packs for GRPO with the "
        f"reward `{REWARD}`. Set the model, then run in this folder:",
        "```sh\nllamafactory-cli train train.yaml\n```",
        "## Use",
        "Serve the trained model and let it play the tools with the settings of these prompts:",
        f"```sh\nsimia rollout PACK --set backend=simulated --set 'backend_settings={settings}' --set simulator.base_url=URL\n```",
        "## What was left out",
        render_table(("reason", "count"), [(reason, str(number)) for reason, number in report.left_out.items()])
        if report.left_out
        else "Nothing.",
    ]
    return "\n\n".join(sections) + "\n"
