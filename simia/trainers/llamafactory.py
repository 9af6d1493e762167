"""How LLaMA-Factory is started: `simia train llamafactory CONFIG`.

CONFIG is what `simia export --to llamafactory` wrote (the folder, or its train.yaml), or a run of configs/llamafactory/runs.yaml by
name: then the data are exported first. What LLaMA-Factory finds out after minutes, or never says, is checked before it starts:
versions, names and types of its arguments (by its own classes, in its environment), a template of another family than the model, a
data set that is not there, DeepSpeed that is not installed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import Field, RootModel, ValidationError

from simia import search_path
from simia.config import Config, parse_scalar
from simia.config_errors import explain_validation_error
from simia.errors import UserError
from simia.exporting import Segment
from simia.exporting.llamafactory_rows import ModelEntry
from simia.jobs import Run, find_run, refuse_partial
from simia.trainers.launch import Launch, check_writable, format_setting
from simia.trainers.versions import interpreter, list_installed

TRAIN = "train.yaml"
DATA = "data.jsonl"
CHECK = Path(__file__).with_name("llamafactory_check.py")
# Settings of a named run that are simia's, not the trainer's.
OURS = ("data", "model", "runs", "out", "segment", "reasoning", "partial")


class NamedRun(Config):
    """One run of configs/llamafactory/runs.yaml."""

    data: list[str] = Field(min_length=1, description="Runs of `simia amplify`, or files of trajectories.")
    models: list[str] = Field(min_length=1, description="Names of configs/llamafactory/models.yaml.")


class NamedRuns(RootModel[dict[str, NamedRun]]):
    """The whole file."""


def launch(config: Path, changes: dict[str, Any], *, python: Path | None = None) -> Launch:
    """The command that trains. `changes`: LLaMA-Factory's arguments by name, over the file's; for a named run also `model` (one of
    models.yaml), `data` (runs or files in place of the run's own), `runs` (their folder), `out`, `segment`, `reasoning` and `partial`.

    `python`: the interpreter of an environment with LLaMA-Factory (unset: this one if it fits, else simia's own for it).
    Raises `UserError` with one line for what must be changed first.
    """
    folder = config.parent if config.name == TRAIN else config
    if (folder / TRAIN).is_file():
        return launch_exported(folder, changes, python)
    if config.suffix in (".yaml", ".yml"):
        problem = f"is not the {TRAIN} of an exported folder" if config.is_file() else "does not exist"
        raise UserError(
            f"{config} {problem}: simia export RUN --to llamafactory --out FOLDER, or a run of {', '.join(read_named_runs())}"
        )
    return launch_named_run(str(config), changes, python)


def launch_exported(folder: Path, changes: dict[str, Any], python: Path | None) -> Launch:
    """Train on a folder that `simia export` wrote."""
    changes = dict(changes)
    name = changes.pop("model", None)
    others = [key for key in OURS if key in changes]
    if others:
        raise UserError(f"{folder} is exported already: {', '.join(others)} belong to a named run or to simia export")
    given = read_mapping(folder / TRAIN)
    if name:
        changes = {"model_name_or_path": ModelEntry.named(str(name)).path, **changes}
    if "model_name_or_path" in changes and Path(str(changes["model_name_or_path"])).is_dir():
        # The trainer starts in the folder.
        changes["model_name_or_path"] = os.path.abspath(str(changes["model_name_or_path"]))
    whole = {**given, **changes}
    arguments = format_arguments(changes)
    check_template(folder, whole)
    check_data(folder, whole)
    if isinstance(settings := whole.get("deepspeed"), str) and not (folder / settings).is_file():
        raise UserError(f"deepspeed: there is no file {folder / settings}; or --set deepspeed=null")
    check_writable(folder / str(whole.get("output_dir") or "."), "output_dir")
    python = find_interpreter(python)
    notes, env = check_extras(whole, python)
    command = [str(python), "-m", "llamafactory.cli", "train", TRAIN, *arguments]
    asked = [str(python), "-I", str(CHECK), TRAIN, *arguments]
    return Launch(
        command, cwd=folder, env={**make_environment(python), **env}, notes=notes, check=asked, check_at_start=True
    )


def launch_named_run(name: str, changes: dict[str, Any], python: Path | None) -> Launch:
    """A named run: export its data for its model, then train in that folder."""
    run = read_named_runs().get(name)
    if run is None:
        raise UserError(
            f"no folder with a {TRAIN} and no run is named {name!r}; there are: {', '.join(read_named_runs())}"
        )
    ours = {key: changes[key] for key in OURS if key in changes}
    theirs = {key: value for key, value in changes.items() if key not in OURS}
    model = str(ours.get("model") or (run.models[0] if len(run.models) == 1 else ""))
    if not model:
        raise UserError(f"{name} is run with several models: add --model, one of {', '.join(run.models)}")
    found = ModelEntry.named(model)
    if (segment := ours.get("segment", "whole")) not in get_args(Segment):
        raise UserError(f"segment is {segment!r}: it is one of {', '.join(get_args(Segment))}")
    reasoning = read_flag(ours, "reasoning")
    out = Path(str(ours.get("out", f"data/{name}-{model}")))
    if (out / TRAIN).is_file() and not is_empty(out / DATA):
        made = launch_exported(out, theirs, python)
        made.notes.insert(0, f"{name}: {out} exists and is used (remove it to export again)")
        return made
    runs = Path(str(ours.get("runs", "runs")))
    data = find_sources(name, run, ours.get("data"), runs)
    partial = read_flag(ours, "partial")
    unfinished = refuse_unfinished(data, runs, partial=partial)
    check_writable(out, "out")
    recipe = search_path.find_resource("configs", "llamafactory/sft.yaml").absolute()
    whole = {**read_mapping(recipe), "model_name_or_path": found.path, "template": found.template, **theirs}
    check_template(Path(), whole)
    arguments = format_arguments(theirs)
    python = find_interpreter(python)
    notes, _ = check_extras(whole, python)
    export = ["export", *data, "--to", "llamafactory", "--model", model, "--out", str(out), "--runs", str(runs)]
    export += ["--segment", str(segment), *(["--reasoning"] if reasoning else []), *(["--partial"] if partial else [])]
    train = [sys.executable, "-P", "-m", "simia", "train", "llamafactory", str(out), "--python", str(python)]
    for setting in arguments:
        train += ["--set", setting]
    # Asked of the recipe, which the export is going to copy. Where it writes nothing lies yet that could be gone on from.
    whole_run = {"model_name_or_path": found.path, "template": found.template, **theirs, "output_dir": os.devnull}
    asked = [str(python), "-I", str(CHECK), str(recipe), *format_arguments(whole_run)]
    note = f"{name}: {', '.join(data)} are exported for {model} ({found.path}, template {found.template}) to {out}, then trained on"
    return Launch(train, notes=[note, *unfinished, *notes], before=export, check=asked, check_at_start=True)


def read_flag(ours: dict[str, Any], name: str) -> bool:
    if not isinstance(value := ours.get(name, False), bool):
        raise UserError(f"{name} is {value!r}: it is true or false")
    return value


def find_interpreter(python: Path | None) -> Path:
    """LLaMA-Factory's interpreter. What only it could have been asked is said where there is none."""
    list_installed(python)  # raises for what is no interpreter at all
    try:
        return interpreter("llamafactory", python)
    except UserError as error:
        raise UserError(f"names and types of the arguments are not checked yet, for {error}") from None


def read_mapping(file: Path) -> dict[str, Any]:
    """LLaMA-Factory's arguments as a file has them."""
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{file} is not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(found, dict):
        raise UserError(f"{file} is not a mapping of LLaMA-Factory's arguments")
    return found


def format_arguments(changes: dict[str, Any]) -> list[str]:
    """Settings as LLaMA-Factory's command reads them back, with text still text. Raises for a blank: it splits there what it gives
    to torchrun, which it starts by itself where there are several GPUs."""
    found = []
    for key, value in changes.items():
        plain = isinstance(value, str) and parse_scalar(value, yaml.SafeLoader) == value
        text = f"{key}={value if plain else format_setting(value)}"
        if any(letter.isspace() for letter in text):
            raise UserError(f"--set {text}: LLaMA-Factory would split it at the blank: write {key} into {TRAIN}")
        found.append(text)
    return found


def read_named_runs() -> dict[str, NamedRun]:
    """The runs of configs/llamafactory/runs.yaml, ours or the user's file in its place."""
    file = search_path.find_resource("configs", "llamafactory/runs.yaml")
    try:
        return NamedRuns.model_validate(yaml.safe_load(file.read_text(encoding="utf-8"))).root
    except yaml.YAMLError as error:
        raise UserError(f"{file} is not YAML: {str(error).splitlines()[0]}") from None
    except ValidationError as error:
        raise UserError(f"{file}: {explain_validation_error(NamedRuns, error)[1]}") from None


def find_sources(name: str, run: NamedRun, given: Any, runs: Path) -> list[str]:
    """What is exported: the run's own data or those given in their place, each of which is there."""
    wanted = (
        run.data
        if given is None
        else [str(one) for one in (given if isinstance(given, list) else str(given).split(","))]
    )
    missing = []
    for one in wanted:
        if Path(one).exists():
            continue
        try:
            find_run(runs, one)
        except UserError as error:
            if "several" in str(error):
                raise
            missing.append(one)
    if missing and given is not None:
        raise UserError(
            f"{name}: no such data: {', '.join(missing)} (a run in {runs}, a file of trajectories, or a pack)"
        )
    if missing:
        ways = [
            f"{one}: put the file there" if "/" in one else f"{one}: simia amplify -c amplify/{one} --name {one}"
            for one in missing
        ]
        raise UserError(
            f"{name} is trained on data that are not here ({'; '.join(ways)}); or name yours: --set data=RUN,FILE,…"
        )
    return wanted


def refuse_unfinished(data: list[str], runs: Path, *, partial: bool) -> list[str]:
    """A line for each run that is not complete, with `partial`; else such a run raises. So does one in which nothing is accepted."""
    notes = []
    for one in data:
        if Path(one).is_file() or (Path(one) / "pack.yaml").is_file():
            continue
        run = Run.read_only(runs, one)
        try:
            if not run.ledger.accepted_count():
                raise UserError(
                    f"run {run.id} has accepted nothing yet, so there is nothing to train on: simia report {one}"
                )
            found = refuse_partial(run, partial=partial, how="--set partial=true")
        finally:
            run.close()
        notes += [] if found.complete else [str(found)]
    return notes


def check_template(folder: Path, whole: dict[str, Any]) -> None:
    """The template is of the model's family, as far as the model is known; LLaMA-Factory would train on another one's markers."""
    model, template = str(whole.get("model_name_or_path", "")), str(whole.get("template", ""))
    if model.startswith(("/", ".", "~")) and not (folder / Path(model).expanduser()).is_dir():
        raise UserError(f"model_name_or_path: there is no folder {model}")
    for name in read_mapping(search_path.find_resource("configs", "llamafactory/models.yaml")):
        own = ModelEntry.named(str(name))
        if own.path == model and template not in (own.template, f"{own.template}_nothink"):
            raise UserError(
                f"{model} wants template {own.template}, and the data are rendered with {template!r}: "
                f"simia export --model {name}"
            )


def check_data(folder: Path, whole: dict[str, Any]) -> None:
    """The data sets that the file names are listed in dataset_info.json, and their files are there with something in them."""
    if str(whole.get("dataset_dir")) == "ONLINE" or str(whole.get("dataset_dir")).startswith("REMOTE:"):
        return  # of the hub alone
    place = folder / str(whole.get("dataset_dir", "data"))
    try:
        info = json.loads((place / "dataset_info.json").read_text(encoding="utf-8"))
    except OSError:
        raise UserError(f"{place} has no dataset_info.json: export again, or set dataset_dir") from None
    except ValueError as error:
        raise UserError(f"{place / 'dataset_info.json'} is not JSON: {error}") from None
    if not isinstance(info, dict) or not all(isinstance(one, dict) for one in info.values()):
        raise UserError(f"{place / 'dataset_info.json'} is not a mapping of data sets: export again")
    for argument in ("dataset", "eval_dataset"):
        given = whole.get(argument)
        if given is None and argument == "eval_dataset":
            continue
        for name in [str(one).strip() for one in (given if isinstance(given, list) else str(given or "").split(","))]:
            if name not in info:
                raise UserError(
                    f"{argument} {name!r} is not in {place / 'dataset_info.json'}; there are: {', '.join(info)}"
                )
            if "file_name" in info[name] and is_empty(file := place / str(info[name]["file_name"])):
                what = "empty" if file.exists() else "not there"
                raise UserError(f"{file} is {what}: nothing to train on; export again")


def is_empty(file: Path) -> bool:
    """Whether no row can stand there; LLaMA-Factory reads all files of a folder, too."""
    return not any(file.iterdir()) if file.is_dir() else not file.is_file() or file.stat().st_size == 0


def check_extras(whole: dict[str, Any], python: Path) -> tuple[list[str], dict[str, str]]:
    """What the settings need beside LLaMA-Factory: raises for DeepSpeed, without which it stops; notes and variables."""
    versions, env = list_installed(python), dict[str, str]()
    notes = [f"LLaMA-Factory {versions['llamafactory']} with transformers {versions['transformers']} ({python})"]
    if whole.get("deepspeed"):
        if "deepspeed" not in versions:
            raise UserError(
                f"deepspeed is set, and {python} lacks it: {python} -m pip install deepspeed, or --set deepspeed=null"
            )
        env["FORCE_TORCHRUN"] = "1"  # it refuses DeepSpeed without, on one GPU too
    if whole.get("flash_attn") == "fa2" and "flash-attn" not in versions:
        notes.append("flash-attn is not installed there: LLaMA-Factory goes on with slower attention")
    return notes, env


def make_environment(python: Path) -> dict[str, str]:
    """Its `bin` comes first, for torchrun; our packages stay out of another environment."""
    path = {"PATH": os.pathsep.join([str(python.parent), os.environ.get("PATH", "")])}
    return path if str(python) == sys.executable else {**path, "PYTHONPATH": ""}
