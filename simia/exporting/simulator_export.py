"""Export data that trains a simulator: training and held-out rows, LLaMA-Factory's files, packs of prompts for GRPO, and a card."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import yaml
from pydantic import BaseModel, Field

from simia.errors import UserError
from simia.evaluation.call_samples import DELTA
from simia.exporting.data_card import render_table
from simia.exporting.earlier_export import RECIPE, SIMULATOR, keep_edited_recipe, refuse_other_format
from simia.exporting.export_records import Template
from simia.exporting.exporter import draft_files, put_in_place, refuse_output_folder
from simia.exporting.llamafactory_rows import ModelEntry, read_config_text, set_recipe_values
from simia.exporting.simulator_notes import explain_no_rows, list_notes
from simia.exporting.simulator_rows import CollectedRows, RowSource, SimulatorRow, collect_rows
from simia.exporting.simulator_settings import SimulatorConfig
from simia.exporting.simulator_split import (
    CLASSES,
    REFUSED,
    SplitRows,
    choose_tools,
    count_classes,
    split_rows,
    write_class,
)
from simia.exporting.token_estimate import CountTokens, estimate_tokens
from simia.jobs import Run, find_run, refuse_partial
from simia.search_path import find_named_resource
from simia.version import __version__

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
PACKS = {
    "": ("prompts", "Calls of {pack} to train a simulator on"),
    "task": ("tasks", "Calls of {pack} in tasks that no training row is of"),
    "tool": ("tools", "Calls of tools of {pack} that no training row calls"),
    "pack": ("pack", "Calls of {pack}, which no training row is of"),
}
"""Reason why rows are held out → (end of the name, description) of the pack of their prompts."""
PACK_FILES = ("pack.yaml", "policy.md", "tools.json", "world.py", "tasks.jsonl")
REWARD = "simia.trainers.simulator_reward:score_episode"


class NoTrainingRowsError(UserError):
    """No row is left to train on. The message says why."""


class SimulatorReport(BaseModel):
    """Counts of an export for simulators."""

    episodes: int = Field(description="Episodes read.")
    rows: int = Field(description="Training rows.")
    held_out: dict[str, int] = Field(description="`pack`, `tool` or `task` → held-out rows.")
    classes: dict[str, int] = Field(
        description="Class → training rows: `refused`, and the successful calls by |Δ|, such as `1-2`."
    )
    left_out: dict[str, int] = Field(description="Reason → episodes, calls or rows that were left out.")
    longest: int = Field(description="Tokens of the longest row.")
    notes: list[str] = Field(default_factory=list, description="What leaves out much, and what to do, a line each.")
    files: list[str] = Field(description="Names of the files written.")


def export_simulator(
    runs: Sequence[str],
    out: Path,
    config: SimulatorConfig,
    *,
    folder: Path = Path("runs"),
    partial: bool = False,
    template: Template | None = None,
    model: ModelEntry | None = None,
) -> SimulatorReport:
    """Write `out/` from rollouts in executable worlds. Files of an earlier export are replaced, except that an edited train.yaml is kept.

    `folder`: the folder of runs; `template`, `model`: replace those of the config's recipe. Raises `UserError`, and `NoTrainingRowsError` before anything is written.
    """
    refuse_output_folder(out)
    refuse_other_format(out, SIMULATOR)
    paths = [find_rollout(folder, name) for name in runs]
    found, split = asyncio.run(collect_and_split(paths, config, estimate_tokens, partial=partial))
    if not split.train:
        raise NoTrainingRowsError(explain_no_rows(found, split))
    rows = [*split.train, *(row for held in split.held_out.values() for row in held)]
    report = SimulatorReport(
        episodes=found.episodes,
        rows=len(split.train),
        held_out={use: len(held) for use, held in split.held_out.items()},
        classes=count_classes(split.train),
        left_out=dict(found.left_out + split.left_out),
        longest=max(row.tokens for row in rows),
        notes=list_notes(found, split, config),
        files=[],
    )
    licences = {name: licence for source in found.sources for name, licence in source.packs.items()}
    texts = {
        **write_data(split),
        **dict(write_recipe(config, model.template if model else template, model)),
        **dict(write_prompt_packs(split.train, "prompts", licences=licences)),
    }
    for use, held in split.held_out.items():
        texts.update(write_prompt_packs(held, "held_out_prompts", use, licences))
    values = list_recipe_values(config, model.template if model else template, model)
    kept, note = keep_edited_recipe(out, texts[RECIPE], values)
    texts |= kept
    report.notes += [note] if note else []
    texts["README.md"] = write_card(config, split, report, found.sources)
    with draft_files(out) as draft:
        for name, text in texts.items():
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            (draft / name).write_text(text, encoding="utf-8")
            (out / name).parent.mkdir(parents=True, exist_ok=True)
        report.files = list(texts)
        put_in_place(draft, out, report.files)
    remove_other_packs(out, report.files)
    return report


def find_rollout(folder: Path, name: str) -> Path:
    """Find a run by name. Raises `UserError`, which for a pack or a file explains how to make a run."""
    try:
        return find_run(folder, name)
    except UserError:
        pack = (Path(name) / "pack.yaml").is_file() or find_named_resource("seeds", name) is not None
        if not pack and not Path(name).is_file():
            raise
        what = "a pack" if pack else "a file"
        raise UserError(
            f"{name} is {what}, but rows of a simulator are made of rollouts in the executable world: run simia rollout "
            f"{name if pack else 'PACK'} --agent reference --name played, then simia export played --to simulator"
        ) from None


async def collect_and_split(
    paths: Iterable[Path], config: SimulatorConfig, count: CountTokens, *, partial: bool
) -> tuple[CollectedRows, SplitRows]:
    """Collect the rows of all runs. If tools are held out, collect them again with prompts of other tools that do not show these."""
    tools: dict[str, set[str]] = {}
    found = await collect_runs(paths, config, count, tools, partial=partial)
    tools = {pack: names for pack, names in choose_tools(found.rows, config.held_out).items() if names}
    if tools and config.world.dialect != "brief":  # prompts of `brief` show only the called tool
        found = await collect_runs(paths, config, count, tools, partial=partial)
    return found, split_rows(found.rows, config.held_out, config.take, config.largest, config.least)


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
    """Write the training rows and the held-out rows; `held_out` in a row is the reason."""
    held = [{**row.write(), "held_out": use} for use, rows in split.held_out.items() for row in rows]
    return {
        "data.jsonl": "".join(json.dumps(row.write(), ensure_ascii=False) + "\n" for row in split.train),
        "held_out.jsonl": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in held),
    }


def list_recipe_values(config: SimulatorConfig, template: Template | None, model: ModelEntry | None) -> dict[str, str]:
    """List the values of train.yaml that belong to the rows, and those of `template` and `model`."""
    values = {"dataset": "simia", "cutoff_len": str(config.cutoff), "mask_history": "false"}
    if template is not None:
        values["template"] = template
    if model is not None:
        values["model_name_or_path"] = model.path
    return values


def write_recipe(
    config: SimulatorConfig, template: Template | None, model: ModelEntry | None
) -> Iterable[tuple[str, str]]:
    """LLaMA-Factory's files: the recipe of the config on these rows. `template`, `model`: None leaves those of the recipe."""
    info = {
        name: {"file_name": file, "formatting": "sharegpt", "columns": {"messages": "messages"}, "tags": TAGS}
        for name, file in DATA.items()
    }
    values = list_recipe_values(config, template, model)
    recipe = set_recipe_values(read_config_text(f"{config.recipe}.yaml"), values, config.recipe)
    yield "dataset_info.json", json.dumps(info, indent=2) + "\n"
    if "ds_zero3.json" in recipe:
        yield "ds_zero3.json", read_config_text("ds_zero3.json")
    yield "train.yaml", recipe
    yield "simulator.yaml", yaml.safe_dump(config.model_dump(exclude_unset=True, mode="json"), sort_keys=False)


def write_prompt_packs(
    rows: Iterable[SimulatorRow], folder: str, use: str = "", licences: Mapping[str, str] | None = None
) -> Iterable[tuple[str, str]]:
    """Yield the files of packs whose tasks are the rows' requests, one for each source pack and system text; one answer ends an episode.

    `use`: the reason why the rows are held out, part of the packs' names; empty: they are training rows. `licences`: source pack → licence.
    """
    groups: dict[tuple[str, str], list[SimulatorRow]] = defaultdict(list)
    for row in rows:
        groups[row.pack, row.messages[0]["content"]].append(row)
    numbers: Counter[str] = Counter()
    ending, description = PACKS[use]
    for (pack, system), group in groups.items():
        numbers[pack] += 1
        name = f"{pack}_{ending}" + (f"_{numbers[pack]}" if numbers[pack] > 1 else "")
        head = {
            "format": 2, "name": name, "description": f"{description.format(pack=pack)}: each task is one request.",
            "licence": (licences or {}).get(pack, "unknown"),
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


def remove_other_packs(out: Path, written: Iterable[str]) -> None:
    """Remove the packs of prompts of an earlier export that this one did not write. What else lies in their folders stays."""
    kept = {(out / name).parent for name in written}
    for world in [*out.glob("prompts/*/world.py"), *out.glob("held_out_prompts/*/world.py")]:
        if world.parent in kept or world.read_text(encoding="utf-8", errors="replace") != WORLD:
            continue
        for name in PACK_FILES:
            (world.parent / name).unlink(missing_ok=True)
        shutil.rmtree(world.parent / "__pycache__", ignore_errors=True)
        for folder in (world.parent, world.parent.parent):
            with contextlib.suppress(OSError):  # something else lies there
                folder.rmdir()


def write_card(config: SimulatorConfig, split: SplitRows, report: SimulatorReport, sources: Sequence[RowSource]) -> str:
    """The README.md of an export for simulators."""
    runs = [
        (f"`{each.run}`", f"`{each.config}`", f"`{each.agent}`", ", ".join(each.packs), f"`{each.contents}`")
        for each in sources
    ]
    packs = {name: licence for each in sources for name, licence in each.packs.items()}
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
        render_table(("rows", "all", *map(write_class, (REFUSED, *CLASSES))), by_class),
        f"{DELTA} Refused calls are a class of their own. The longest row has {report.longest} tokens.",
        "## Training",
        "`train.yaml` trains `data.jsonl` with LLaMA-Factory 0.9.5; TRL's `SFTTrainer` reads it as it is. `prompts` holds packs for GRPO with the "
        f"reward `{REWARD}`. Set the model, then run in this folder:",
        "```sh\nllamafactory-cli train train.yaml\n```",
        "## Use",
        "Serve the trained model and let it play the tools with the settings of these prompts:",
        f"```sh\nsimia rollout PACK --set backend=simulated --set 'backend_settings={settings}' --set simulator.base_url=URL\n```",
        "## Provenance",
        f"Exported with simia {__version__}. The answers are those of the packs' code; a pack's version is the hash of its contents and tasks.",
        render_table(("run", "config", "agent", "packs", "version of the packs"), runs),
        render_table(("pack", "licence"), packs.items()),
        "## What was left out",
        render_table(("reason", "count"), [(reason, str(number)) for reason, number in report.left_out.items()])
        if report.left_out
        else "Nothing.",
    ]
    return "\n\n".join(sections) + "\n"
