"""Check a command of an ablation without running it: simia's command line parses it, and the config with all its settings is loaded."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import typer

from simia.amplification.settings import AmplifyConfig
from simia.cli import build_app
from simia.cli.options import parse_settings
from simia.cli.synth import resolve_synth_config
from simia.cli.train import find_trainer_config
from simia.config import load_config, parse_config, parse_scalar, read_command_line_value, read_config_file
from simia.errors import UserError
from simia.evaluation.suites import SOURCES, load_suite
from simia.exporting.llamafactory_rows import ModelEntry
from simia.quality.judging.settings import QualitySettings
from simia.rollouts.settings import RolloutConfig
from simia.trainers.launch import assign_settings
from simia.trainers.llamafactory import read_named_runs
from simia.trainers.trl.settings import TrlConfig
from simia.trainers.verl.settings import VerlSettings

ROOT = Path(__file__).parents[2]
ELSEWHERE = ("verl.model_merger",)
"""Modules of a trainer's environment."""
OF_VERL = ("data.seed", "trainer.default_local_dir", "trainer.val_before_train")
NAMED = ("amplify", "synth", "rollout", "eval")
"""Commands that start a run."""
Given = dict[str, Any]


def check_command(words: Sequence[str], made: Collection[str] = ()) -> None:
    """Check a command. Raises `UserError` for an unknown program, command, option or setting, or a value of the wrong type.

    `made`: folders of packs, and runs, that earlier commands make. For `packs=[FOLDER/*]` of such a folder, a bundled pack is checked
    instead.
    """
    program, *rest = (replace_packs(word, made) for word in words)
    if program == "simia":
        check_simia(rest, made)
    elif program == "student":
        check_script(ROOT / "eval" / "loop" / "student.py", rest)
    elif program == "python" and rest[:1] == ["-m"]:
        if rest[1] not in ELSEWHERE:
            check_script(ROOT / Path(*rest[1].split(".")).with_suffix(".py"), rest[2:])
    else:
        raise UserError(f"{program}: a command begins with simia, student or python -m")


def replace_packs(word: str, made: Collection[str]) -> str:
    found = re.fullmatch(r"(.*packs=)\[(.*)/\*\]", word)
    return f"{found[1]}[customer_service]" if found and found[2] in made else word


def find_made(words: Sequence[str]) -> str | None:
    """Return the folder in which a command makes packs, or the run that it makes."""
    option = "--out" if tuple(words[:2]) == ("simia", "synth") else "--name"
    return words[words.index(option) + 1] if option in words else None


def find_run_name(words: Sequence[str]) -> str | None:
    """Return the name of the run that a command of simia starts."""
    if tuple(words[:1]) != ("simia",) or words[1] not in NAMED or "--name" not in words:
        return None
    return words[words.index("--name") + 1]


def check_script(path: Path, words: Sequence[str]) -> None:
    """Check that the options occur in the script's text. It is not imported, since it may need another environment."""
    if not path.is_file():
        raise UserError(f"{path}: no such script")
    known = set(re.findall(r'add_argument\(\s*"(--[\w-]+)"', path.read_text(encoding="utf-8")))
    for word in words:
        if word.startswith("--") and word.partition("=")[0] not in known:
            raise UserError(f"{path.name} has no option {word}; it has {', '.join(sorted(known))}")


def check_simia(words: Sequence[str], made: Collection[str]) -> None:
    name, given = parse_line(words)
    if name == "export":
        check_sources(given, made)
    if check := CHECKS.get(name):
        check(given)
    if name in (*NAMED, "play") and not given["name"]:
        raise UserError(f"simia {' '.join(words)}: add --name NAME; without it a stopped run cannot be resumed")


@functools.cache
def build_command(verb: str = "") -> Any:
    """simia's command line, built once: typer reads every signature for it."""
    return typer.main.get_command(build_app(verb))


def parse_line(words: Sequence[str]) -> tuple[str, Given]:
    """The command and its options, parsed by simia's own command line."""
    command: Any = build_command(*words[:1])
    context, rest, name = None, list(words), "simia"
    try:
        while hasattr(command, "commands"):
            context = command.make_context(name, rest, parent=context)
            name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        return name, command.make_context(name, rest, parent=context).params
    except Exception as error:  # typer has a click of its own, whose classes have no public name
        explain = getattr(error, "format_message", None)
        if explain is None:
            raise
        raise UserError(f"simia {' '.join(words)}: {explain()}") from None


def check_amplify(given: Given) -> None:
    load_config(
        AmplifyConfig, given["config"], given["settings"] or [], n=given["n"], seeds__packs=given["seeds"] or None
    )


def check_synth(given: Given) -> None:
    resolve_synth_config(given["recipe"], given["source"], given["config"], given["settings"] or [], given["sources"])


def check_rollout(given: Given) -> None:
    fields = ("pack", "agent", "backend", "group", "limit", "split")
    load_config(
        RolloutConfig,
        given["config"] or "rollout/default",
        given["settings"] or [],
        **{key: given[key] for key in fields},
    )


def check_evaluation(given: Given) -> None:
    calls = [f"sampling.calls={given['calls']}"] if given["calls"] else []
    suite = load_suite(
        given["suite"], [*(given["settings"] or []), *calls], group=given["trials"], packs=given["packs"] or None
    )
    for share in suite.packs or ():
        source = SOURCES.get(share.pack.partition(":")[0])
        if source and source.needs and not source.installed and not (given["data"] or suite.data):
            raise UserError(f"simia eval {given['suite']} needs its data: add --data FOLDER, {source.needs}")


def check_judge(given: Given) -> None:
    load_config(QualitySettings, given["config"], given["settings"] or [])


def check_sources(given: Given, made: Collection[str]) -> None:
    """A source without a folder is a run, which an earlier command has to make."""
    for source in given["sources"] or ():
        if "/" not in source and source not in made:
            raise UserError(f"simia export {source}: no earlier command makes this run; a pack is given by its folder")


def check_export(given: Given) -> None:
    if given["model"]:
        ModelEntry.named(given["model"])


def check_training(given: Given) -> None:
    trainer, name = given["trainer"], given["config"]
    settings = given["settings"] or []
    if trainer == "llamafactory":
        parse_settings(settings, parse_scalar)
        if given["model"]:
            ModelEntry.named(given["model"])
        if "/" not in name and name not in read_named_runs():
            raise UserError(f"{name}: no exported folder, and no run of configs/llamafactory/runs.yaml")
        return
    data = read_config_file(find_trainer_config(trainer, name))
    changes = parse_settings(settings, read_command_line_value if trainer == "trl" else parse_scalar)
    if given["model"]:
        changes["model"] = given["model"]
    if trainer == "verl":
        for key in changes:
            if not key.startswith(("simia.", "+")) and not has_key(data, key):
                raise UserError(
                    f"--set {key}: configs/{name}.yaml does not set it, so its spelling cannot be checked: write +{key}"
                )
    assign_settings(data, changes)
    if trainer == "trl":
        parse_config(TrlConfig, data, where=name)
    elif trainer == "verl":
        parse_config(VerlSettings, data["simia"], where=name)


def has_key(data: Any, key: str) -> bool:
    """Whether a setting is in a config, or one of verl's own that ours leave alone."""
    if key in OF_VERL:
        return True
    for part in key.split("."):
        if not isinstance(data, dict) or part not in data:
            return False
        data = data[part]
    return True


CHECKS: dict[str, Callable[[Given], None]] = {
    "amplify": check_amplify,
    "synth": check_synth,
    "rollout": check_rollout,
    "play": check_evaluation,
    "judge": check_judge,
    "export": check_export,
    "train": check_training,
}
