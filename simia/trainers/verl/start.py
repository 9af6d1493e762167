"""`simia train verl CONFIG`: check the run, and write what verl and its workers read.

CONFIG is a verl configuration, merged by Hydra over verl's own `ppo_trainer`, with one more section, `simia`. Four things are written beside
the checkpoints: the configuration without that section, the section, the file that names the agent loop, and the data sets. verl itself
runs unchanged.

A data set is a Parquet file of rows, each of which is a group of episodes. A row has the fields that verl's RLHFDataset reads: a prompt (a
placeholder, since the agent loop renders the real one when the episode begins), the agent loop's name, the data source (the pack:
validation is reported for each), and in `extra_info` the task and the row's number, which verl calls its index.
"""

from __future__ import annotations

import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

import yaml

from simia.config import assign_setting, parse_config, read_config_file
from simia.envs.config import EnvironmentConfig
from simia.envs.opening import load_tasks
from simia.envs.rewards.reward_function import make_absolute
from simia.envs.several_packs import CombinedPack
from simia.errors import UserError
from simia.formats.parquet_rows import import_arrow
from simia.pack import Pack
from simia.search_path import find_named_resource
from simia.task import Task
from simia.terminal import write_count
from simia.trainers.checkpoint_pack import refuse_other_pack, write_pack_name
from simia.trainers.concurrency import fit_concurrency
from simia.trainers.evaluation_tasks import refuse_evaluation_tasks
from simia.trainers.kept_episodes import HOST, find_run_folder
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
)
from simia.trainers.plan_notes import check_references, describe_shared_tasks
from simia.trainers.val_environment import check_val_environment
from simia.trainers.verl.episode_plan import plan_episodes
from simia.trainers.verl.nodes import check_nodes
from simia.trainers.verl.settings import VerlSettings
from simia.trainers.verl.worker_state import ALONE
from simia.trainers.versions import NEEDS, interpreter, list_installed
from simia.venvs import make_python_path

AGENT = "simia"
LOOP = "simia.trainers.verl.agent_loop.SimiaAgentLoop"
ENGINES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"}
WHERE = "import importlib.util as u; print(u.find_spec('verl').submodule_search_locations[0])"
WORKERS = 8  # agent loop workers; verl's default
HYDRAS = ("defaults", "hydra")  # Hydra's own sections
DEFAULTS = "trainer/config/_generated_ppo_trainer.yaml"  # verl's own configuration in one file


def launch(config: Path, changes: dict[str, Any], *, python: Path | None = None, dry_run: bool = False) -> Launch:
    """Check the run and return the command; `prepare` writes what it reads.

    `changes`: settings by dotted name (`+a.b`: one that verl's configuration does not have). `python`: verl's interpreter (None: this
    one if it fits, else that of verl's own environment, which a dry run may lack). Raises `UserError`.
    """
    data = read_config_file(config)
    assign_settings(data, changes)
    section = data.pop("simia", {})
    if not isinstance(section, dict):
        raise UserError(f"{config}: simia must be a section with stage, play and data, got {section!r}")
    ours = parse_config(VerlSettings, section, where=f"{config}: simia")
    if look_up(data, "trainer.use_v1", True) is not True:
        raise UserError("trainer.use_v1 is false: verl's older trainer cannot leave out aborted episodes; remove it")
    later: list[str] = []
    named = python
    python = find_or_note(lambda: interpreter("verl", named), later, needed=not dry_run or named is not None)
    data = check_settings(data, read_verl_config(python) if python else {}, "verl", free=HYDRAS)
    assign_settings(data, changes, added=True)
    check_engine(data, python)
    for named in (
        each for stage in (ours.stage, ours.val_environment) if stage for each in (stage, *(stage.packs or ()))
    ):
        if find_named_resource("seeds", named.pack) is None and Path(named.pack).is_dir():
            named.pack = str(Path(named.pack).absolute())  # workers may run in another folder
    for stage in (ours.stage, ours.val_environment):
        if stage is not None and stage.reward_function is not None:
            stage.reward_function = make_absolute(stage.reward_function)
    keys = later if dry_run else None
    model = "actor_rollout_ref.model.path"
    warnings = check_folder(look_up(data, model, ""), model, keys)
    folder = find_output_folder(data, config)
    check_writable(folder, "trainer.default_local_dir")
    batch = look_up(data, "data.train_batch_size", 1024)
    if not isinstance(batch, int) or batch < 1:
        raise UserError(f"data.train_batch_size must be the number of groups of a step, 1 or more, got {batch!r}")
    pack, tasks = load_tasks(ours.stage.with_split(ours.data.train))
    refuse_evaluation_tasks(pack, tasks, "simia.allow_evaluation_tasks", allowed=ours.allow_evaluation_tasks)
    check_stage(ours.stage, pack, "simia.stage", keys)
    refuse_other_pack(folder.parent, pack.name, "trainer.default_local_dir")
    check_group_size(data)
    learns = make_stage_rows(ours.stage, ours.data.train, at_least=batch)
    judged_in = ours.for_validation().stage
    val = ours.data.val or (ours.val_environment and ours.val_environment.split) or ours.data.train
    if validates(data):
        judges = check_validation(ours, val, keys)
    else:  # verl opens a validation data set even if it does not validate
        judges, judged_in, val = (pack, tasks), ours.stage, ours.data.train
    plan = [each for each in plan_episodes(data, ours, (pack, tasks), judges) if each.episodes]
    judged = make_stage_rows(judged_in, val, validates=True)
    warnings += fit_stages(data, ours, batch, len(judged) if validates(data) else 0)
    store = Path(ours.store) if ours.store else folder / "replies"
    check_writable(store, "simia.store")
    if ours.episodes is not None:
        run = find_run_folder(ours.episodes, folder.parent) if ours.episodes.run is None else ours.episodes.run
        each = look_up(data, "trainer.nnodes", 1) != 1 and HOST not in run  # machines must not share an SQLite file
        ours.episodes.run = str(Path(f"{run}-{HOST}" if each else run).absolute())
        check_writable(Path(ours.episodes.run).parent, "simia.episodes.run")
    check_nodes(data, ours, store, folder.parent)
    written = {
        "data.train_files": str(folder / "train.parquet"),
        "data.val_files": str(folder / "val.parquet"),
        "actor_rollout_ref.rollout.agent.default_agent_loop": AGENT,
        "actor_rollout_ref.rollout.agent.agent_loop_config_path": str(folder / "agent.yaml"),
        "defaults": ["ppo_trainer", "_self_"],
    }
    assign_settings(data, written)
    files: dict[str, Any] = {
        "simia": {
            **ours.model_dump(mode="json", exclude_unset=True),
            "store": str(store.absolute()),
            "episodes": ours.episodes and ours.episodes.model_dump(mode="json"),
        },
        "agent": [{"name": AGENT, "_target_": LOOP, "settings": str(folder / "simia.yaml")}],
        "verl": data,
    }

    def prepare() -> None:
        write_pack_name(folder.parent, pack.name)
        if ours.episodes is not None:
            files["simia"]["episodes"]["start"] = (
                f"{time.time_ns()}-{uuid.uuid4().hex[:8]}"  # in the order of the starts
            )
        save_parquet(folder / "train.parquet", learns)
        save_parquet(folder / "val.parquet", judged)
        for name, value in files.items():
            text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
            (folder / f"{name}.yaml").write_text(text, encoding="utf-8")

    command = [str(python), "-m", "verl.trainer.main_ppo", "--config-dir", str(folder), "--config-name", "verl"]
    notes = [
        f"{write_count(len(learns), 'row')} of {pack.name}; what verl reads, and the replies that are paid for: {folder}"
    ]
    notes += [f"episodes are kept in {ours.episodes.run}"] if ours.episodes is not None else []
    notes += [*warnings, *check_references(plan)]
    notes += describe_shared_tasks(plan, {"": ("simia.data.train", "simia.data.val")})
    notes += later
    if python is None:
        return Launch([], notes=notes, plan=plan)
    path = make_python_path(python, extras=list_extras(ours.stage, judged_in))
    return Launch(command, env={"PYTHONPATH": path}, notes=notes, prepare=prepare, plan=plan)


def validates(data: dict[str, Any]) -> bool:
    """Whether verl validates: before the first step, every `test_freq` steps, or without training."""
    every = look_up(data, "trainer.test_freq", -1)
    return (
        look_up(data, "trainer.val_before_train", True) is not False
        or look_up(data, "trainer.val_only", False) is True
        or not isinstance(every, int | float)
        or every > 0
    )


def check_validation(ours: VerlSettings, split: str | None, later: list[str] | None = None) -> tuple[Pack, list[Task]]:
    """Load and check the tasks to validate on. verl needs them unless validation is off. Raises `UserError`."""
    try:
        return check_val_environment(ours, split, later, "simia.")
    except UserError as error:
        raise UserError(
            f"{error}; set simia.val_environment or simia.data.val, or validate nothing: trainer.test_freq=-1 and "
            "trainer.val_before_train=false"
        ) from None


def check_group_size(data: dict[str, Any]) -> None:
    """Raise `UserError` for groups of one with an estimator that compares within groups: nothing would be trained."""
    estimator = look_up(data, "algorithm.adv_estimator", "gae")
    if estimator not in ALONE and look_up(data, "actor_rollout_ref.rollout.n", 1) == 1:
        raise UserError(
            f"actor_rollout_ref.rollout.n is 1: set it to 2 or more, since {estimator} compares the episodes of a group"
        )


def fit_stages(data: dict[str, Any], ours: VerlSettings, batch: int, judged: int) -> list[str]:
    """Fit the concurrency of the environments to the episodes of a worker. `judged`: rows of a validation. Returns lines of warning."""
    trained = count_worker_episodes(data, batch, "n")
    validated = count_worker_episodes(data, judged, "val_kwargs.n")  # verl validates on all rows at once
    stages = [("stage", ours.stage, trained), ("val_environment", ours.val_environment, validated)]
    if ours.val_environment is None:
        stages = [("stage", ours.stage, max(trained, validated))]
    most = ours.play.at_once
    return [
        line
        for name, stage, episodes in stages
        if stage is not None
        for line in fit_concurrency(stage, min(episodes, most or episodes), f"simia.{name}")
    ]


def count_worker_episodes(data: dict[str, Any], batch: int, size: str) -> int:
    """Return how many episodes of `batch` groups one of verl's workers plays. `size`: setting of the rollout with the size of a group."""
    members = look_up(data, f"actor_rollout_ref.rollout.{size}", 1)
    workers = look_up(data, "actor_rollout_ref.rollout.agent.num_workers", WORKERS)
    if not isinstance(members, int) or not isinstance(workers, int) or workers < 1:
        return batch  # verl refuses such values itself
    return -(-batch * members // workers)


def read_verl_config(python: Path) -> dict[str, Any]:
    """Read the configuration in verl's package; empty if there is none."""
    asked = subprocess.run([str(python), "-I", "-c", WHERE], capture_output=True, text=True, check=False)
    path = Path(asked.stdout.strip()) / DEFAULTS
    if asked.returncode or not path.is_file():
        return {}
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")) or {})


def check_engine(data: dict[str, Any], python: Path | None) -> None:
    """Check that the configuration names the inference engine of the policy, and that it is installed."""
    name = look_up(data, "actor_rollout_ref.rollout.name", None)
    if name is None:
        raise UserError("actor_rollout_ref.rollout.name is not set: name verl's engine, such as vllm or sglang")
    if python is not None and name in ENGINES and ENGINES[name] not in list_installed(python):
        raise UserError(
            f"{python} lacks {name}, which samples the policy: pip install 'verl[{name}]=={NEEDS['verl']['verl'][2:]}'"
        )


def find_output_folder(data: dict[str, Any], config: Path) -> Path:
    """Return the folder for simia's files, inside verl's folder of checkpoints. Sets the latter in the configuration."""
    project = look_up(data, "trainer.project_name", "simia")
    experiment = look_up(data, "trainer.experiment_name", config.stem)
    folder = look_up(data, "trainer.default_local_dir", None) or f"checkpoints/{project}/{experiment}"
    if "${" in str(folder):
        raise UserError(
            f"trainer.default_local_dir is {folder!r}: write it without ${{…}}, since simia writes there too"
        )
    checkpoints = Path(str(folder)).absolute()
    names = {"project_name": project, "experiment_name": experiment, "default_local_dir": str(checkpoints)}
    for name, value in names.items():
        assign_setting(data, ["trainer", name], value)
    return checkpoints / "simia"


def make_stage_rows(
    stage: EnvironmentConfig, split: str | None = None, at_least: int = 1, *, validates: bool = False
) -> list[dict[str, Any]]:
    """Make a row for each task of the stage, or of one split. Tasks are repeated until there are `at_least` rows.

    verl drops rows that do not fill a batch. Validation rows are marked for the agent loop, so that their groups differ from the groups
    that are trained on in the same step. Raises `UserError` for an unknown split, or without pyarrow.
    """
    import_arrow()
    pack, tasks = load_tasks(stage.with_split(split))
    mark = {"validates": True} if validates else {}
    return [
        {
            "prompt": [{"role": "user", "content": task.opening or task.instruction or task.id}],
            "agent_name": AGENT,
            "data_source": task.id.partition("/")[0] if isinstance(pack, CombinedPack) else pack.name,
            "reward_model": {"style": "simia", "ground_truth": ""},
            "extra_info": {"index": number, "task": task.id, "split": task.split, **mark},
        }
        for number, task in enumerate(tasks * -(-at_least // len(tasks)))
    ]


def save_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    pa, parquet = import_arrow()
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(rows), path)


def write_tasks(
    path: Path, stage: EnvironmentConfig, split: str | None = None, at_least: int = 1, *, validates: bool = False
) -> int:
    """Write the rows of `make_stage_rows` to a file and return their number."""
    rows = make_stage_rows(stage, split, at_least, validates=validates)
    save_parquet(path, rows)
    return len(rows)
