"""`simia train ragen CONFIG`: check the run before Ray starts, and the script that Ray's driver runs.

A config is RAGEN's own: values over its `config/base.yaml`, whose names it must know, with simia's stage under
`custom_envs.<Tag>.env_config.stage`; `extends` and `--set` work as everywhere. RAGEN is a checkout (its package on the index is
another project): `RAGEN_HOME`, or `~/.cache/simia/ragen/<commit>`. Nothing in it is changed.

`launch` runs in simia's environment; `main` in RAGEN's, as `python -m simia.trainers.ragen.start CONFIG.yaml` with RAGEN_HOME set. It
composes RAGEN's `base` with the file's values, checks the result, starts Ray with `register` as each worker's setup hook, and calls
RAGEN's own `train.main`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from simia.config import assign_setting, merge_sections, read_config_file
from simia.envs.config import EnvironmentConfig
from simia.envs.opening import load_tasks
from simia.errors import UserError
from simia.search_path import cache_root, list_names
from simia.terminal import say_error, write_count
from simia.trainers.concurrency import fit_concurrency
from simia.trainers.evaluation_tasks import refuse_evaluation_tasks
from simia.trainers.kept_episodes import find_run_folder
from simia.trainers.launch import (
    Launch,
    assign_settings,
    check_folder,
    check_settings,
    check_stage,
    check_writable,
    find_or_note,
    list_extras,
    look_up,
    look_up_number,
    name_backend,
    select_split,
)
from simia.trainers.plan_notes import check_references, describe_shared_tasks
from simia.trainers.ragen.episode_plan import check_one_node, plan_episodes
from simia.trainers.ragen.import_hook import register
from simia.trainers.ragen.settings import (
    SimiaEnvConfig,
    check_ragen_config,
    check_tag_names,
    list_turn_warnings,
    parse_env_config,
)
from simia.trainers.versions import (
    NEEDS,
    RAGEN_CLONE,
    RAGEN_COMMIT,
    interpreter,
    list_installed,
)
from simia.venvs import make_python_path, normalize_name

MODULE = "simia.trainers.ragen.start"
FREE = ("custom_envs",)  # sections in which the user chooses the names
REFERENCE = re.compile(r"\$\{([\w.]+)\}")
DEFAULTS = {"trainer": {"default_local_dir": "checkpoints/${trainer.project_name}/${trainer.experiment_name}"}}
"""Defaults for a dry run without RAGEN: the folder of checkpoints, as verl names it."""
# The same variables as in RAGEN's own ray.init, which is skipped because Ray runs already.
WORKERS = {"TOKENIZERS_PARALLELISM": "true", "NCCL_DEBUG": "WARN", "VLLM_LOGGING_LEVEL": "WARN", "RAY_DEBUG": "legacy"}


def launch(config: Path, changes: dict[str, Any], *, python: Path | None = None, dry_run: bool = False) -> Launch:
    """Check config, checkout and environment, and return the command. `prepare` writes the config that the run reads.

    `changes`: values by dotted name. `python`: the interpreter of RAGEN's environment (None: this one). A dry run may lack both checkout
    and environment. Raises `UserError`.
    """
    later: list[str] = []
    home = find_or_note(find_checkout, later, needed=not dry_run or "RAGEN_HOME" in os.environ)
    values = read_config_file(config)
    assign_settings(values, changes)
    known = read_base_config(home) if home else {}
    if not look_up(values, "custom_envs"):
        runs = [name.removesuffix(".yaml") for name in list_names("configs") if name.startswith("ragen/")]
        others = ", ".join(name for name in runs if name != "ragen/paper")
        raise UserError(
            f"{config.name} has no custom_envs, so it is only a base for other configs: use {others}, or a config of your own"
        )
    values = check_settings(values, known, "RAGEN", free=FREE)
    assign_settings(values, changes, added=True)
    if (
        look_up(values, "trainer.experiment_name") is None
    ):  # RAGEN's default is the same for all runs, so they would share checkpoints
        assign_setting(values, ["trainer", "experiment_name"], config.stem)
    whole = resolve_references(merge_sections(known or DEFAULTS, values))
    check_ragen_config(whole)
    check_tag_names(values, whole)
    check_one_node(whole)
    keys = later if dry_run else None
    notes = [
        *check_stages(whole, keys),
        *check_kept_runs(whole),
        *list_turn_warnings(whole),
        *fit_stages(values, whole),
    ]
    plan = plan_episodes(whole)
    notes += check_references(plan)
    notes += describe_shared_tasks(plan, name_split_settings(whole))
    notes += check_folder(look_up(whole, "model_path", ""), "model_path", keys)
    written = Path(str(look_up(whole, "trainer.default_local_dir", "checkpoints"))).expanduser() / "simia.yaml"
    check_writable(written.parent, "trainer.default_local_dir")
    chosen, needed = python or Path(sys.executable), not dry_run or python is not None
    versions = find_or_note(lambda: check_versions(chosen), later, needed=needed) if home else None
    notes += later
    if home is None or versions is None:
        return Launch([], notes=notes, plan=plan)
    notes.append(versions)

    def prepare() -> None:
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")

    extras = list_extras(*(stage for *_, stage in list_environments(whole)))
    path = os.pathsep.join([str(home), str(home / "verl"), make_python_path(chosen, extras=extras)])
    env = {"RAGEN_HOME": str(home), "PYTHONPATH": path}
    return Launch([str(chosen), "-m", MODULE, str(written)], env=env, notes=notes, prepare=prepare, plan=plan)


def find_checkout() -> Path:
    """Find RAGEN's source, with verl in it. Raises `UserError`."""
    named = os.environ.get("RAGEN_HOME")
    home = Path(named).expanduser().resolve() if named else cache_root() / "ragen" / RAGEN_COMMIT
    if not (home / "train.py").is_file():
        where = f"RAGEN_HOME ({home}) has no train.py" if named else "RAGEN is not here"
        raise UserError(f"{where}: {RAGEN_CLONE}, and set RAGEN_HOME to that folder")
    if not (home / "verl" / "verl" / "protocol.py").is_file():
        raise UserError(f"{home} has no verl in it: run git submodule update --init verl there")
    return home


def read_base_config(home: Path) -> dict[str, Any]:
    """Read RAGEN's `base` config, merged over the configs in its `defaults`; references stay unresolved."""

    def load(name: str) -> dict[str, Any]:
        text = (home / "config" / f"{name}.yaml").read_text(encoding="utf-8")
        return dict(yaml.safe_load(text) or {})

    base = load("base")
    found: dict[str, Any] = {}
    for name in base.pop("defaults", ()):
        found = merge_sections(found, load(str(name)))
    return merge_sections(found, base)


def resolve_references(tree: dict[str, Any]) -> dict[str, Any]:
    """Replace `${a.b}` by its value; RAGEN's own resolvers (`${mul:…}`) stay text."""

    def value(item: Any, depth: int = 0) -> Any:
        if isinstance(item, dict):
            return {name: value(inner, depth) for name, inner in item.items()}
        if not isinstance(item, str) or depth > 8:
            return item
        whole = REFERENCE.fullmatch(item)
        if whole:
            return value(look_up(tree, whole[1]), depth + 1)
        return REFERENCE.sub(lambda found: str(value(look_up(tree, found[1]), depth + 1)), item)

    return dict(value(tree))


def list_environments(whole: dict[str, Any]) -> Iterator[tuple[str, str, SimiaEnvConfig, EnvironmentConfig]]:
    """Yield train or val, the place of the settings, the settings and the stage of each tag."""
    for part in ("train", "val"):
        for tag in look_up(whole, f"es_manager.{part}.env_configs.tags"):
            place = f"custom_envs.{tag}.env_config"
            env = parse_env_config(place, **(look_up(whole, place) or {}))
            yield part, place, env, (env if part == "train" else env.for_validation()).stage


def check_stages(whole: dict[str, Any], later: list[str] | None = None) -> list[str]:
    """Check that each stage can be opened and its pack has tasks in the configured splits. Returns a line for each. `later`: as for `check_stage`."""
    notes = []
    sections = [look_up(whole, f"es_manager.{part}.env_configs") for part in ("train", "val")]
    counts = [count for each in sections for _, count in zip(each["tags"], each["n_groups"], strict=True)]
    for (part, place, env, stage), groups in zip(list_environments(whole), counts, strict=True):
        pack, of_stage = load_tasks(stage)
        own_val = part == "val" and env.val_environment is not None
        check_stage(stage, pack, f"{place}.{'val_environment' if own_val else 'stage'}", later)
        if env.store is not None:
            check_writable(Path(env.store), f"{place}.store")
        split = env.train if part == "train" else env.val
        tasks = select_split(pack, of_stage, split, f" for {part}")
        allowed = part == "val" or env.allow_evaluation_tasks
        refuse_evaluation_tasks(pack, tasks, f"{place}.allow_evaluation_tasks", allowed=allowed)
        size = look_up(whole, f"es_manager.{part}.group_size")
        notes.append(
            f"{part}: {write_count(groups, 'group')} of {size} a step on {write_count(len(tasks), 'task')} of {pack.name} ({name_backend(stage)})"
        )
    return notes


def name_split_settings(whole: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the names of the settings for the splits by tag, as in the names of the plans."""
    tags = look_up(whole, "es_manager.val.env_configs.tags")
    places = [f"custom_envs.{tag}.env_config" for tag in tags]
    shown = [f"({tag})" if len(tags) > 1 else "" for tag in tags]
    return {tag: (f"{place}.train", f"{place}.val") for tag, place in zip(shown, places, strict=True)}


def check_kept_runs(whole: dict[str, Any]) -> list[str]:
    """Check that the runs for the tags' episodes can be written. Returns a line for each."""
    checkpoints = Path(str(look_up(whole, "trainer.default_local_dir", "checkpoints"))).expanduser()
    found: dict[str, None] = {}
    for _, place, env, _ in list_environments(whole):
        if env.episodes is not None:
            run = find_run_folder(env.episodes, checkpoints)
            check_writable(Path(run), f"{place}.episodes.run")
            found[f"episodes are kept in {run}"] = None
    return list(found)


def fit_stages(values: dict[str, Any], whole: dict[str, Any]) -> list[str]:
    """Fit the concurrency of every stage to the episodes of a step, which tags of the same stage share. Returns lines of warning."""
    sections = [look_up(whole, f"es_manager.{part}") for part in ("train", "val")]
    episodes = max(sum(each["env_configs"]["n_groups"]) * look_up_number(each, "group_size") for each in sections)
    notes: list[str] = []
    for tag in dict.fromkeys(tag for each in sections for tag in each["env_configs"]["tags"]):
        place = ["custom_envs", tag, "env_config", "stage"]
        stage = parse_env_config(".".join(place[:3]), **(look_up(whole, ".".join(place[:3])) or {})).stage
        before = stage.limits.concurrency
        notes += fit_concurrency(stage, episodes, ".".join(place))
        if stage.limits.concurrency != before:
            assign_setting(values, [*place, "limits", "concurrency"], stage.limits.concurrency)
    return notes


def check_versions(python: Path) -> str:
    """Return a line with the versions of what RAGEN needs. Raises `UserError` for a missing or clashing package."""
    found = list_installed(interpreter("ragen", python))
    versions = ", ".join(f"{name} {found[normalize_name(name)]}" for name in NEEDS["ragen"])
    return f"RAGEN {RAGEN_COMMIT[:7]} with {versions}"


def compose_config(file: Path, home: Path) -> Any:
    """Compose RAGEN's `base` with the file's values, whose names were checked by `launch`."""
    import hydra  # type: ignore[import-not-found,unused-ignore]
    from omegaconf import OmegaConf, open_dict  # type: ignore[import-not-found,unused-ignore]

    with hydra.initialize_config_dir(config_dir=str(home / "config"), version_base=None):
        base = hydra.compose(config_name="base")
    with open_dict(base):
        return OmegaConf.merge(base, OmegaConf.load(file))


def start_ray(config: Any) -> None:
    """Start Ray as RAGEN does on one machine, with the setup hook. Ray counts the GPUs that are visible when it starts."""
    import ray  # type: ignore[import-not-found,unused-ignore]

    os.environ["CUDA_VISIBLE_DEVICES"] = str(config.system.CUDA_VISIBLE_DEVICES)
    kept = {name: os.environ[name] for name in ("PYTHONPATH", "RAGEN_HOME") if name in os.environ}
    environment = {"env_vars": {**WORKERS, **kept}, "worker_process_setup_hook": "simia.trainers.ragen.register"}
    ray.init(num_cpus=config.ray_init.num_cpus, runtime_env=environment)


def main(arguments: list[str]) -> int:
    home = Path(os.environ.get("RAGEN_HOME", ".")).resolve()
    if len(arguments) != 1 or not (home / "train.py").is_file():
        say_error(f"usage: RAGEN_HOME=<checkout> python -m {MODULE} CONFIG.yaml")
        return 2
    sys.path.insert(0, str(home))
    register()
    import train  # type: ignore[import-not-found,unused-ignore]

    try:
        config = compose_config(Path(arguments[0]), home)
        check_ragen_config(config)
        start_ray(config)
        train.main(config)
    except UserError as error:
        say_error(f"simia: {format_error(error)}")
        return 1
    return 0


def format_error(error: UserError) -> str:
    """Return the error's message. Ray replaces the text of a worker's error by a traceback and keeps the original error as the cause."""
    return str(getattr(error, "cause", None) or error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
