"""How verl is started on a simia environment: `simia train verl CONFIG`.

CONFIG is a configuration of verl over its own `ppo_trainer` (as Hydra composes it) with one more section, `simia`. What verl and
its workers read is written beside the checkpoints: the configuration without that section, that section, the file that names the
agent loop, and the data sets. verl itself is run as it is.
"""

from __future__ import annotations

import difflib
import subprocess
from pathlib import Path
from typing import Any

import yaml

from simia import config as settings
from simia.errors import UserError
from simia.pack import Pack
from simia.search_path import find_named_resource
from simia.trainers.launch import Launch, check_folder, check_stage, check_writable, explain_misfit, look_up
from simia.trainers.verl.data import AGENT, make_stage_rows, save_parquet
from simia.trainers.verl.settings import VerlSettings, dump_settings
from simia.trainers.versions import NEEDS, interpreter, list_installed
from simia.venvs import make_python_path

LOOP = "simia.trainers.verl.agent_loop.SimiaAgentLoop"
ENGINES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"}
WHERE = "import importlib.util as u; print(u.find_spec('verl').submodule_search_locations[0])"
HYDRAS = ("defaults", "hydra")  # sections of Hydra's own
DEFAULTS = "trainer/config/_generated_ppo_trainer.yaml"  # verl's own configuration in one piece


def launch(config: Path, changes: dict[str, Any], *, python: Path | None = None) -> Launch:
    """The command that trains; to prepare it is to write what it reads. `changes` are settings of the configuration by dotted names
    (`+a.b`: one that verl's configuration does not have).

    `python` is verl's interpreter (unset: this one if it fits, else that of verl's own environment). Raises `UserError` with one
    line for what must be changed first.
    """
    data = settings.read_config_file(config)
    for name, value in changes.items():
        if not name.startswith("+"):
            settings.assign_setting(data, name.split("."), value)
    section = data.pop("simia", {})
    if not isinstance(section, dict):
        raise UserError(f"{config}: simia is {section!r}: it is a section with stage, play and data")
    ours = settings.parse_config(VerlSettings, section, where=f"{config}: simia")
    if look_up(data, "trainer.use_v1", True) is not True:
        raise UserError(
            "trainer.use_v1 is false: verl's older trainer wants a row of every episode, also of a lost one"
        )
    python = interpreter("verl", python)
    data = check_settings(data, read_verl_config(python))
    for name, value in changes.items():
        if name.startswith("+"):
            settings.assign_setting(data, name[1:].split("."), value)
    check_engine(data, python)
    if find_named_resource("seeds", ours.stage.pack) is None and Path(ours.stage.pack).is_dir():
        ours.stage.pack = str(Path(ours.stage.pack).absolute())  # the workers may stand elsewhere
    check_folder(look_up(data, "actor_rollout_ref.model.path", ""), "actor_rollout_ref.model.path")
    folder = find_output_folder(data, config)
    check_writable(folder, "trainer.default_local_dir")
    batch = look_up(data, "data.train_batch_size", 1024)
    if not isinstance(batch, int) or batch < 1:
        raise UserError(f"data.train_batch_size is {batch!r}: it is the number of groups of a step, 1 or more")
    check_stage(ours.stage, Pack.load(ours.stage.pack))
    learns = make_stage_rows(ours.stage, ours.data.train, at_least=batch)
    judged = make_stage_rows(ours.stage, ours.data.val or ours.data.train, validates=True)
    store = Path(ours.store) if ours.store else folder / "replies"
    check_writable(store, "simia.store")
    for name, value in {
        "data.train_files": str(folder / "train.parquet"),
        "data.val_files": str(folder / "val.parquet"),
        "actor_rollout_ref.rollout.agent.default_agent_loop": AGENT,
        "actor_rollout_ref.rollout.agent.agent_loop_config_path": str(folder / "agent.yaml"),
    }.items():
        settings.assign_setting(data, name.split("."), value)
    data["defaults"] = ["ppo_trainer", "_self_"]

    def prepare() -> None:
        save_parquet(folder / "train.parquet", learns)
        save_parquet(folder / "val.parquet", judged)
        write_yaml(folder / "simia.yaml", {**dump_settings(ours), "store": str(store.absolute())})
        write_yaml(folder / "agent.yaml", [{"name": AGENT, "_target_": LOOP, "settings": str(folder / "simia.yaml")}])
        write_yaml(folder / "verl.yaml", data)

    command = [str(python), "-m", "verl.trainer.main_ppo", "--config-dir", str(folder), "--config-name", "verl"]
    notes = [f"{len(learns)} rows of {ours.stage.pack}; what verl reads, and the replies that are paid for: {folder}"]
    return Launch(command, env={"PYTHONPATH": make_python_path(python)}, notes=notes, prepare=prepare)


def check_engine(data: dict[str, Any], python: Path) -> None:
    """That the engine which samples the policy is named, and there."""
    name = look_up(data, "actor_rollout_ref.rollout.name", None)
    if name is None:
        raise UserError("actor_rollout_ref.rollout.name is not set: name verl's engine, such as vllm or sglang")
    if name in ENGINES and ENGINES[name] not in list_installed(python):
        raise UserError(
            f"the policy is sampled by {name}, which {python} lacks: pip install 'verl[{name}]=={NEEDS['verl']['verl'][2:]}'"
        )


def read_verl_config(python: Path) -> dict[str, Any]:
    """verl's own configuration, as its package carries it; empty where it carries none."""
    asked = subprocess.run([str(python), "-I", "-c", WHERE], capture_output=True, text=True, check=False)
    path = Path(asked.stdout.strip()) / DEFAULTS
    if asked.returncode or not path.is_file():
        return {}
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")) or {})


def check_settings(data: dict[str, Any], base: dict[str, Any], at: str = "") -> dict[str, Any]:
    """The settings, compared with verl's own. Raises for a name that is not among them, which verl would pass over without a word,
    and for a value of another type. A section or value that its code alone knows is written `+name`, as for Hydra."""
    found: dict[str, Any] = {}
    for name, value in data.items():
        if str(name).startswith("+"):
            found[str(name)[1:]] = value
            continue
        if base and name not in base and (at or name not in HYDRAS):
            near = difflib.get_close_matches(str(name), list(base), n=1)
            hint = f"did you mean {at}{near[0]}? " if near else ""
            raise UserError(f"verl has no setting {at}{name}: {hint}(one that its code alone knows is written +{name})")
        own = base.get(name)
        if (wanted := explain_misfit(value, own)) is not None:
            raise UserError(f"{at}{name} is {value!r}: verl takes {wanted}")
        both = isinstance(value, dict) and isinstance(own, dict)
        found[name] = check_settings(value, own, f"{at}{name}.") if both else value  # type: ignore[arg-type]
    return found


def find_output_folder(data: dict[str, Any], config: Path) -> Path:
    """Beside the checkpoints, where verl puts them."""
    project = look_up(data, "trainer.project_name", "simia")
    experiment = look_up(data, "trainer.experiment_name", config.stem)
    folder = look_up(data, "trainer.default_local_dir", None) or f"checkpoints/{project}/{experiment}"
    if "${" in str(folder):
        raise UserError(f"trainer.default_local_dir is {folder!r}: write the folder out, for simia writes into it too")
    settings.assign_setting(data, ["trainer", "project_name"], project)
    settings.assign_setting(data, ["trainer", "experiment_name"], experiment)
    settings.assign_setting(data, ["trainer", "default_local_dir"], str(Path(folder).absolute()))
    return Path(folder).absolute() / "simia"


def write_yaml(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), encoding="utf-8")
