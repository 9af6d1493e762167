"""`simia train ragen CONFIG`: what is checked before Ray starts, and the command that starts it.

A config is RAGEN's own: values over its `config/base.yaml`, whose names it must know, with simia's stage under
`custom_envs.<Tag>.env_config.stage`; `extends` and `--set` work as everywhere. RAGEN is a checkout (its package on the index is
another one): `RAGEN_HOME`, or `~/.cache/simia/ragen/<commit>`.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from simia.config import assign_setting, merge_sections, read_config_file
from simia.envs.opening import select_tasks
from simia.errors import UserError
from simia.pack import Pack
from simia.search_path import cache_root
from simia.trainers.launch import (
    Launch,
    check_folder,
    check_stage,
    check_writable,
    explain_misfit,
    look_up,
    select_split,
)
from simia.trainers.ragen.checks import check_ragen_config
from simia.trainers.ragen.env import SimiaEnvConfig, parse_stage
from simia.trainers.versions import NEEDS, RAGEN_CLONE, RAGEN_COMMIT, interpreter, list_installed
from simia.venvs import make_python_path, normalize_name

REFERENCE = re.compile(r"\$\{([\w.]+)\}")
FREE = ("custom_envs",)  # sections whose names are the user's


def launch(config: Path, changes: dict[str, Any], *, python: Path | None = None) -> Launch:
    """Check config, checkout and environment, and say how to start it; to prepare it is to write the config that the run reads.

    `changes`: values by dotted name. `python`: the interpreter of RAGEN's environment (unset: this one). Raises `UserError`.
    """
    home = find_checkout()
    values = read_config_file(config)
    for name, value in changes.items():
        assign_setting(values, name.split("."), value)
    known = read_base_config(home)
    check_setting_names(values, known)
    whole = resolve_references(merge_sections(known, values))
    check_ragen_config(whole)
    notes = check_stages(whole)
    check_folder(look_up(whole, "model_path", ""), "model_path")
    written = Path(str(look_up(whole, "trainer.default_local_dir"))).expanduser() / "simia.yaml"
    check_writable(written.parent, "trainer.default_local_dir")
    notes += check_versions(python or Path(sys.executable))

    def prepare() -> None:
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")

    roots = [str(home), str(home / "verl"), make_python_path(python or Path(sys.executable))]
    return Launch(
        command=[str(python or sys.executable), "-m", "simia.trainers.ragen.entry", str(written)],
        env={"RAGEN_HOME": str(home), "PYTHONPATH": os.pathsep.join(roots)},
        notes=notes,
        prepare=prepare,
    )


def find_checkout() -> Path:
    """RAGEN's source with the verl beside it."""
    named = os.environ.get("RAGEN_HOME")
    home = Path(named).expanduser().resolve() if named else cache_root() / "ragen" / RAGEN_COMMIT
    if not (home / "train.py").is_file():
        where = f"RAGEN_HOME ({home}) has no train.py" if named else "RAGEN is not here"
        raise UserError(f"{where}: {RAGEN_CLONE}, and set RAGEN_HOME to that folder")
    if not (home / "verl" / "verl" / "protocol.py").is_file():
        raise UserError(f"{home} has no verl in it: run git submodule update --init verl there")
    return home


def read_base_config(home: Path) -> dict[str, Any]:
    """RAGEN's `base` with what its `defaults` name beneath it, references not yet resolved."""

    def load(name: str) -> dict[str, Any]:
        text = (home / "config" / f"{name}.yaml").read_text(encoding="utf-8")
        return dict(yaml.safe_load(text) or {})

    base = load("base")
    found: dict[str, Any] = {}
    for name in base.pop("defaults", ()):
        found = merge_sections(found, load(str(name)))
    return merge_sections(found, base)


def check_setting_names(values: Mapping[str, Any], known: Any, place: str = "") -> None:
    """Raises for a name that RAGEN does not know, which would change nothing and nobody would say so, and for a wrong type."""
    for name, value in values.items():
        if name not in known:
            near = difflib.get_close_matches(str(name), list(known), n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(sorted(known))}"
            raise UserError(f"unknown key {place + str(name)!r} for RAGEN: {hint}")
        if (wanted := explain_misfit(value, known[name])) is not None:
            raise UserError(f"{place + str(name)} is {value!r}: RAGEN takes {wanted}")
        if isinstance(value, Mapping) and isinstance(known[name], Mapping) and known[name] and name not in FREE:
            check_setting_names(value, known[name], f"{place}{name}.")


def resolve_references(tree: dict[str, Any]) -> dict[str, Any]:
    """With `${a.b}` replaced by what stands there; the resolvers of RAGEN's own (`${mul:…}`) stay text."""

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


def check_stages(whole: dict[str, Any]) -> list[str]:
    """Each stage's pack is there and has tasks of the splits that are asked for; a line on each."""
    notes = []
    for part in ("train", "val"):
        section = look_up(whole, f"es_manager.{part}")
        for tag, groups in zip(section["env_configs"]["tags"], section["env_configs"]["n_groups"], strict=True):
            fields = SimiaEnvConfig(**(look_up(whole, f"custom_envs.{tag}.env_config") or {}))
            stage = parse_stage(fields)
            pack = Pack.load(stage.pack)
            split = fields.train if part == "train" else fields.val
            check_stage(stage, pack)
            if fields.store is not None:
                check_writable(Path(fields.store), f"custom_envs.{tag}.env_config.store")
            tasks = select_split(pack, select_tasks(pack, stage), split, f" for {part}")
            notes.append(
                f"{part}: {groups} groups of {section['group_size']} a step on {len(tasks)} tasks of {pack.name} ({stage.backend})"
            )
    return notes


def check_versions(python: Path) -> list[str]:
    """Raises for a package that RAGEN needs and that is missing or of another version; how to get an environment that has them
    stands in the line."""
    found = list_installed(interpreter("ragen", python))
    return [
        f"RAGEN {RAGEN_COMMIT[:7]} with "
        + ", ".join(f"{name} {found[normalize_name(name)]}" for name in NEEDS["ragen"])
    ]
