"""How verl is started on a simia environment: `simia train verl CONFIG`.

CONFIG is a configuration of verl over its own `ppo_trainer` (as Hydra composes it) with one more section, `simia`. What verl and
its workers read is written beside the checkpoints: the configuration without that section, that section, the file that names the
agent loop, and the data sets. verl itself is run as it is.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from simia import config as settings
from simia.errors import UserError
from simia.pack import Pack
from simia.trainers.environments import python_path
from simia.trainers.launch import Launch
from simia.trainers.verl.data import AGENT, write
from simia.trainers.verl.settings import VerlSettings, plain

VERL = "0.9.1"
CLEAN = "python -m simia.trainers.environments verl"
LOOP = "simia.trainers.verl.agent_loop.SimiaAgentLoop"
ENGINES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt_llm"}
ASK = """
import importlib.metadata as m, json
print(json.dumps({d.name.lower(): d.version for d in m.distributions() if d.name}))
"""


def launch(config: Path, changes: dict[str, Any], *, python: Path | None = None) -> Launch:
    """The command that trains, with all that it reads written. `changes` are settings of the configuration by dotted names;
    `python` is verl's interpreter (unset: this one). Raises `UserError` with one line for what must be changed first."""
    python = python or Path(sys.executable)
    versions = installed(python)
    data = settings.read(config)
    for name, value in changes.items():
        settings.assign(data, name.split("."), value)
    ours = settings.parse(VerlSettings, data.pop("simia", {}), where=f"{config}: simia")
    check(versions, data, python)
    Pack.load(ours.stage.pack)
    folder = out(data, config)
    batch = int(dig(data, "data.train_batch_size", 1024))
    count = write(folder / "train.parquet", ours.stage, ours.data.train, at_least=batch)
    write(folder / "val.parquet", ours.stage, ours.data.val or ours.data.train)
    store = Path(ours.store) if ours.store else folder / "replies"
    dump(folder / "simia.yaml", {**plain(ours), "store": str(store.absolute())})
    dump(folder / "agent.yaml", [{"name": AGENT, "_target_": LOOP, "settings": str(folder / "simia.yaml")}])
    for name, value in {
        "data.train_files": str(folder / "train.parquet"),
        "data.val_files": str(folder / "val.parquet"),
        "actor_rollout_ref.rollout.agent.default_agent_loop": AGENT,
        "actor_rollout_ref.rollout.agent.agent_loop_config_path": str(folder / "agent.yaml"),
    }.items():
        settings.assign(data, name.split("."), value)
    data["defaults"] = ["ppo_trainer", "_self_"]
    dump(folder / "verl.yaml", data)
    command = [str(python), "-m", "verl.trainer.main_ppo", "--config-dir", str(folder), "--config-name", "verl"]
    notes = [
        f"{count} rows of {ours.stage.pack}; what verl reads, and the replies that are paid for, stand in {folder}"
    ]
    return Launch(command, env={"PYTHONPATH": python_path(python)}, notes=notes)


def installed(python: Path) -> dict[str, str]:
    """Distributions of that interpreter with their versions."""
    try:
        asked = subprocess.run([str(python), "-I", "-c", ASK], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise UserError(f"{python} is no Python interpreter that runs") from None
    return dict(json.loads(asked.stdout))


def check(versions: dict[str, str], data: dict[str, Any], python: Path) -> None:
    """That verl is there, in the version that this is made for, with the engine that the configuration rolls out with."""
    found = versions.get("verl")
    if found is None:
        raise UserError(f"{python} has no verl: name an interpreter that has, or make one (without a GPU): {CLEAN}")
    if found != VERL:
        raise UserError(f"{python} has verl {found}, and simia works with {VERL}: pip install verl=={VERL}, or {CLEAN}")
    if "transferqueue" not in versions:
        raise UserError(f"{python} lacks what verl's trainer needs: pip install 'verl[verl-core]=={VERL}', or {CLEAN}")
    engine = dig(data, "actor_rollout_ref.rollout.name", None)
    if engine is None:
        raise UserError("actor_rollout_ref.rollout.name is not set: name verl's engine, such as vllm or sglang")
    if engine in ENGINES and ENGINES[engine] not in versions:
        raise UserError(
            f"the policy is sampled by {engine}, which {python} lacks: pip install 'verl[{engine}]=={VERL}'"
        )


def out(data: dict[str, Any], config: Path) -> Path:
    """Beside the checkpoints, where verl puts them."""
    project = dig(data, "trainer.project_name", "simia")
    experiment = dig(data, "trainer.experiment_name", config.stem)
    folder = dig(data, "trainer.default_local_dir", None) or f"checkpoints/{project}/{experiment}"
    settings.assign(data, ["trainer", "project_name"], project)
    settings.assign(data, ["trainer", "experiment_name"], experiment)
    settings.assign(data, ["trainer", "default_local_dir"], str(Path(folder).absolute()))
    return Path(folder).absolute() / "simia"


def dig(data: dict[str, Any], name: str, default: Any) -> Any:
    """A setting by its dotted name."""
    value: Any = data
    for key in name.split("."):
        if not isinstance(value, dict) or key not in value:
            return default
        value = value[key]
    return value


def dump(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), encoding="utf-8")
