"""`simia train llamafactory CONFIG`: check the run, and start LLaMA-Factory.

CONFIG is what `simia export --to llamafactory` wrote (the folder, or its train.yaml), or a run of configs/llamafactory/runs.yaml by
name, whose data are exported first. Errors that LLaMA-Factory reports after minutes, or never, are reported before it starts: wrong
versions, wrong names and types of arguments (checked by its own classes, in its environment), a template of another model family, a missing
data set, or a missing DeepSpeed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, field_validator

from simia.config import Config, load_yaml, parse_config, parse_scalar, read_bounded
from simia.errors import UserError
from simia.exporting import Segment
from simia.exporting.llamafactory_rows import ModelEntry
from simia.jobs import Run, find_run, refuse_partial
from simia.search_path import find_resource
from simia.trainers.launch import Launch, check_writable, format_setting
from simia.trainers.llamafactory_records import (
    check_earlier_export,
    check_resume,
    write_export_record,
    write_training_record,
)
from simia.trainers.versions import interpreter, list_installed

TRAIN = "train.yaml"
DATA = "data.jsonl"
CHECK = Path(__file__).with_name("llamafactory_check.py")


class NamedRun(Config):
    """One run of configs/llamafactory/runs.yaml."""

    data: list[str] = Field(min_length=1, description="Runs of `simia amplify`, or files of trajectories.")
    models: list[str] = Field(min_length=1, description="Names of models in configs/llamafactory/models.yaml.")


class NamedRunSettings(Config):
    """simia's own settings of a named run; all other settings are LLaMA-Factory's arguments."""

    model: str | None = Field(
        None, description="Name of a model in configs/llamafactory/models.yaml. null: the run's only model."
    )
    data: list[str] | None = Field(None, description="Runs, files or packs in place of the run's own data.")
    runs: Path = Field(
        default_factory=lambda: Path(os.environ.get("SIMIA_RUNS") or "runs"),
        description="Folder of the runs. Not set: that of the environment variable SIMIA_RUNS, or `runs`.",
    )
    out: Path | None = Field(None, description="Folder of the export. null: data/RUN-MODEL.")
    segment: Segment = Field("whole", description="As in `simia export`.")
    reasoning: bool | None = Field(None, description="As in `simia export`.")
    partial: bool = Field(False, description="Whether to use runs that are not complete.")

    @field_validator("data", mode="before")
    @classmethod
    def split_names(cls, value: Any) -> Any:
        return value if value is None or isinstance(value, list) else str(value).split(",")


def launch(config: Path, changes: dict[str, Any], *, python: Path | None = None) -> Launch:
    """Check the run and return the command. `changes`: LLaMA-Factory's arguments by name, over the file's, and `NamedRunSettings`.

    `python`: the interpreter of an environment with LLaMA-Factory (None: this one if it fits, else that of simia's own environment).
    Raises `UserError`.
    """
    folder = config.parent if config.name == TRAIN else config
    if (folder / TRAIN).is_file():
        return launch_exported(folder, changes, python)
    named = ", ".join(read_named_runs())
    if config.suffix in (".yaml", ".yml"):
        problem = f"is not the {TRAIN} of an exported folder" if config.is_file() else "does not exist"
        raise UserError(f"{config} {problem}: simia export RUN --to llamafactory --out FOLDER, or a run of {named}")
    run = read_named_runs().get(str(config))
    if run is None:
        raise UserError(f"no folder with a {TRAIN} and no run is named {str(config)!r}; there are: {named}")
    return launch_named_run(str(config), run, changes, python)


def launch_exported(folder: Path, changes: dict[str, Any], python: Path | None) -> Launch:
    """Train on a folder that `simia export` wrote."""
    changes = dict(changes)
    name = changes.pop("model", None)
    if others := [key for key in NamedRunSettings.model_fields if key in changes]:
        raise UserError(f"{folder} is already exported: give {', '.join(others)} to a named run, or to simia export")
    if name:
        changes = {"model_name_or_path": ModelEntry.named(str(name)).path, **changes}
    if "model_name_or_path" in changes and Path(str(changes["model_name_or_path"])).is_dir():
        # The trainer runs in the exported folder.
        changes["model_name_or_path"] = os.path.abspath(str(changes["model_name_or_path"]))
    whole = {**read_mapping(folder / TRAIN), **changes}
    arguments = format_arguments(changes)
    check_template(folder, whole)
    check_data(folder, whole)
    if isinstance(settings := whole.get("deepspeed"), str) and not (folder / settings).is_file():
        raise UserError(f"deepspeed: there is no file {folder / settings}; or --set deepspeed=null")
    check_writable(folder / str(whole.get("output_dir") or "."), "output_dir")
    resumed = check_resume(folder, whole)
    python = interpreter("llamafactory", python)
    notes, extras = check_extras(whole, python)
    # `torchrun` is in the interpreter's folder. The other environment must not import simia's packages.
    env = {"PATH": os.pathsep.join([str(python.parent), os.environ.get("PATH", "")])}
    env |= {} if str(python) == sys.executable else {"PYTHONPATH": ""}
    command = [str(python), "-m", "llamafactory.cli", "train", TRAIN, *arguments]
    check = [str(python), "-I", str(CHECK), TRAIN, *arguments]
    return Launch(
        command,
        cwd=folder,
        env=env | extras,
        notes=[*notes, *resumed],
        prepare=lambda: write_training_record(folder, whole),
        check=check,
        check_at_start=True,
    )


def launch_named_run(name: str, run: NamedRun, changes: dict[str, Any], python: Path | None) -> Launch:
    """Export the run's data for its model, then train in that folder."""
    arguments = {key: value for key, value in changes.items() if key not in NamedRunSettings.model_fields}
    own = {key: value for key, value in changes.items() if key in NamedRunSettings.model_fields}
    settings = parse_config(NamedRunSettings, own, where="--set")
    model = settings.model or (run.models[0] if len(run.models) == 1 else None)
    if model is None:
        raise UserError(f"{name} is run with several models: add --model, one of {', '.join(run.models)}")
    entry = ModelEntry.named(model)
    out = settings.out or Path(f"data/{name}-{model}")
    values = {
        "data": settings.data or run.data,
        "runs": str(settings.runs.absolute()),
        **settings.model_dump(include={"segment", "reasoning", "partial"}),
    }
    if (out / TRAIN).is_file() and not is_empty(out / DATA):
        check_earlier_export(out, {name: values[name] for name in values if name in settings.model_fields_set})
        made = launch_exported(out, arguments, python)
        made.notes.insert(0, f"{name}: {out} exists and is used (remove it to export again)")
        return made
    data = find_sources(name, run, settings)
    unfinished = refuse_unfinished(data, settings)
    check_writable(out, "out")
    recipe = find_resource("configs", "llamafactory/sft.yaml").absolute()
    arguments_of_model = {"model_name_or_path": entry.path, "template": entry.template, **arguments}
    whole = {**read_mapping(recipe), **arguments_of_model}
    check_template(Path(), whole)
    texts = format_arguments(arguments)
    python = interpreter("llamafactory", python)
    notes, _ = check_extras(whole, python)
    export = [
        "export",
        *data,
        "--to",
        "llamafactory",
        "--model",
        model,
        "--out",
        str(out),
        "--runs",
        str(settings.runs),
    ]
    export += ["--segment", settings.segment]
    export += ["--partial"] if settings.partial else []
    if settings.reasoning is not None:
        export += ["--reasoning" if settings.reasoning else "--no-reasoning"]
    train = [sys.executable, "-P", "-m", "simia", "train", "llamafactory", str(out), "--python", str(python)]
    for text in texts:
        train += ["--set", text]
    # Checks the recipe that the export will copy; os.devnull has no checkpoint to resume from.
    checked = format_arguments({**arguments_of_model, "output_dir": os.devnull})
    note = f"{name}: {', '.join(data)} are exported for {model} ({entry.path}, template {entry.template}) to {out}, then trained on"
    return Launch(
        train,
        notes=[note, *unfinished, *notes],
        before=export,
        prepare=lambda: write_export_record(out, values),
        check=[str(python), "-I", str(CHECK), str(recipe), *checked],
        check_at_start=True,
    )


def read_mapping(file: Path) -> dict[str, Any]:
    """Read a YAML file of names and values."""
    found = load_yaml(read_bounded(file), file)
    if not isinstance(found, dict):
        raise UserError(f"{file} is not a mapping of names to values")
    return found


def read_named_runs() -> dict[str, NamedRun]:
    """Read configs/llamafactory/runs.yaml, simia's or the user's file in its place."""
    file = find_resource("configs", "llamafactory/runs.yaml")
    return {name: parse_config(NamedRun, run, where=f"{file}: {name}") for name, run in read_mapping(file).items()}


def format_arguments(changes: dict[str, Any]) -> list[str]:
    """Write settings as LLaMA-Factory's command reads them back, with text still text.

    Raises `UserError` for a value with a blank: for several GPUs LLaMA-Factory starts torchrun and splits the arguments at blanks.
    """
    found = []
    for key, value in changes.items():
        plain = isinstance(value, str) and parse_scalar(value, yaml.SafeLoader) == value
        text = f"{key}={value if plain else format_setting(value)}"
        if any(letter.isspace() for letter in text):
            raise UserError(
                f"--set {text}: LLaMA-Factory would split this value at the space: set {key} in {TRAIN} instead"
            )
        found.append(text)
    return found


def find_sources(name: str, run: NamedRun, settings: NamedRunSettings) -> list[str]:
    """Return the data to export: the run's own, or those given in their place. Raises `UserError` if they are missing."""
    missing = []
    for one in settings.data or run.data:
        try:
            if not Path(one).exists():
                find_run(settings.runs, one)
        except UserError as error:
            if "several" in str(error):
                raise
            missing.append(one)
    if missing and settings.data:
        where = f"a run in {settings.runs}, a file of trajectories, or a pack"
        raise UserError(f"{name}: data not found: {', '.join(missing)} (expected {where})")
    if missing:
        ways = [
            f"{one}: put the file there" if "/" in one else f"{one}: simia amplify -c amplify/{one} --name {one}"
            for one in missing
        ]
        raise UserError(
            f"{name} needs data that are not here ({'; '.join(ways)}); or give your own: --set data=RUN,FILE,…"
        )
    return settings.data or run.data


def refuse_unfinished(data: list[str], settings: NamedRunSettings) -> list[str]:
    """Raise `UserError` for a run without accepted rows and for an incomplete run; with `partial`, return a line for each incomplete run."""
    notes = []
    for one in data:
        if Path(one).is_file() or (Path(one) / "pack.yaml").is_file():
            continue
        run = Run.read_only(settings.runs, one)
        try:
            if not run.ledger.accepted_count():
                raise UserError(f"run {run.id} has no accepted results to train on yet: see simia report {one}")
            found = refuse_partial(run, partial=settings.partial, how="--set partial=true")
        finally:
            run.close()
        notes += [] if found.complete else [str(found)]
    return notes


def check_template(folder: Path, whole: dict[str, Any]) -> None:
    """Check that the template fits the model's family, if the model is known: LLaMA-Factory would train with wrong turn markers."""
    model, template = str(whole.get("model_name_or_path", "")), str(whole.get("template", ""))
    if model.startswith(("/", ".", "~")) and not (folder / Path(model).expanduser()).is_dir():
        raise UserError(f"model_name_or_path: there is no folder {model}")
    for name in read_mapping(find_resource("configs", "llamafactory/models.yaml")):
        own = ModelEntry.named(str(name))
        if own.path == model and template not in (own.template, f"{own.template}_nothink"):
            raise UserError(
                f"{model} needs template {own.template}, but the data are rendered with {template!r}: "
                f"simia export --model {name}"
            )


def check_data(folder: Path, whole: dict[str, Any]) -> None:
    """Check that the named data sets are in dataset_info.json, and that their files exist and are not empty."""
    place = str(whole.get("dataset_dir", "data"))
    if place == "ONLINE" or place.startswith("REMOTE:"):
        return  # all data sets are on the Hub
    listed = folder / place / "dataset_info.json"
    try:
        info = json.loads(listed.read_text(encoding="utf-8"))
    except OSError:
        raise UserError(f"{listed.parent} has no dataset_info.json: export again, or set dataset_dir") from None
    except ValueError as error:
        raise UserError(f"{listed} is not JSON: {error}") from None
    if not isinstance(info, dict) or not all(isinstance(one, dict) for one in info.values()):
        raise UserError(f"{listed} is not a mapping of data sets: export again")
    for argument in ("dataset", "eval_dataset"):
        given = whole.get(argument)
        if given is None and argument == "eval_dataset":
            continue
        for name in given if isinstance(given, list) else str(given or "").split(","):
            name = str(name).strip()
            if name not in info:
                raise UserError(f"{argument} {name!r} is not in {listed}; there are: {', '.join(info)}")
            if "file_name" in info[name] and is_empty(file := listed.parent / str(info[name]["file_name"])):
                what = "empty" if file.exists() else "missing"
                raise UserError(f"{file} is {what}: nothing to train on; export again")


def is_empty(file: Path) -> bool:
    """Whether a file has no bytes, or a folder no files. LLaMA-Factory reads all files of a folder."""
    return not any(file.iterdir()) if file.is_dir() else not file.is_file() or file.stat().st_size == 0


def check_extras(whole: dict[str, Any], python: Path) -> tuple[list[str], dict[str, str]]:
    """Check the packages that the settings need besides LLaMA-Factory. Returns notes and variables; raises `UserError` if DeepSpeed is missing."""
    versions, env = list_installed(python), dict[str, str]()
    notes = [f"LLaMA-Factory {versions['llamafactory']} with transformers {versions['transformers']} ({python})"]
    if whole.get("deepspeed"):
        if "deepspeed" not in versions:
            raise UserError(
                f"deepspeed is set, and {python} lacks it: {python} -m pip install deepspeed, or --set deepspeed=null"
            )
        env["FORCE_TORCHRUN"] = "1"  # without it DeepSpeed is refused, on one GPU too
    if whole.get("flash_attn") == "fa2" and "flash-attn" not in versions:
        notes.append("flash-attn is not installed there: LLaMA-Factory goes on with slower attention")
    return notes, env
