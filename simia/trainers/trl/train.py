"""`simia train trl CONFIG`: GRPO in TRL from one YAML, a stage and the fields of TRL's GRPOConfig.

`launch` runs in simia's environment; `main` in TRL's, as `python -m simia.trainers.trl.train CONFIG --set a.b=c`, which starts itself
once for each of `processes`, or is started so by `accelerate launch`. A run resumes from the last checkpoint of `grpo.output_dir`. The
replies of simulators, users and judges are stored there too, so that a resumed run pays for nothing twice. examples/grpo.py does the
same without settings.

The trainer's own resume is nearly right: it takes a half-written checkpoint for a whole one, plays the first epoch's order again in a
later epoch, and gives a finished run one more step. Each of these is corrected here.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import json
import logging
import os
import re
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from simia import event_loop, terminal
from simia.config import Config, find_config, load_config, parse_config, read_config_file
from simia.envs.config import EnvironmentConfig
from simia.envs.environment import Environment
from simia.envs.opening import load_tasks, open_environment
from simia.errors import UserError
from simia.trainers import ranks
from simia.trainers.kept_episodes import EpisodeKeeper, KeptSettings, find_run_folder
from simia.trainers.launch import (
    Launch,
    assign_settings,
    check_folder,
    check_stage,
    check_writable,
    format_setting,
    select_split,
)
from simia.trainers.trl.rollout import environment_reward, rollout_func, task_rows
from simia.trainers.trl.tool_methods import check_tool_methods, environment_factory, tool_rows, tools_reward
from simia.trainers.versions import interpreter
from simia.venvs import make_python_path

MODULE = "simia.trainers.trl.train"
CHECKPOINT = re.compile(r"checkpoint-(\d+)")
EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")
AFTER_FIRST = 5.0  # seconds that other ranks leave the first to report; the launcher ends them when it has


class TrlConfig(Config):
    """What configs/trl/*.yaml hold."""

    model: str = Field(min_length=1, description="The policy to train: a name on the hub, or a folder.")
    stage: EnvironmentConfig = Field(default_factory=EnvironmentConfig, description="The environment and its models.")
    through: Literal["rollout_func", "environment_factory"] = Field(
        "rollout_func", description="TRL's way in; environment_factory: TRL's own loop, no user who answers."
    )
    at_once: int | None = Field(None, ge=1, description="Most episodes under way (rollout_func); unset: all.")
    max_turn_tokens: int | None = Field(None, ge=1, description="Longest message of the policy (rollout_func).")
    evaluate: str | None = Field(None, description="Split to evaluate on; unset: none. Set grpo.eval_strategy too.")
    processes: int = Field(1, ge=1, description="Processes to train in, one a GPU; 1 also behind `accelerate launch`.")
    episodes: KeptSettings | None = Field(
        default_factory=KeptSettings, description="The run that keeps all episodes; null: none."
    )
    resume: bool = Field(True, description="Go on from the last checkpoint of output_dir, if there is one.")
    grpo: dict[str, Any] = Field(default_factory=dict, description="Fields of TRL's GRPOConfig.")


def launch(config: Path, changes: dict[str, Any], *, python: Path | None = None) -> Launch:
    """Check config, pack and versions, and return the command.

    `python`: an interpreter with TRL (None: this one if it fits, else that of simia's own environment). Raises `UserError`.
    """
    data = read_config_file(config)
    assign_settings(data, changes)
    settings = parse_config(TrlConfig, data, where=str(config))
    pack, tasks = load_tasks(settings.stage)
    judged = []
    if settings.evaluate is not None:
        judged = select_split(pack, pack.tasks, settings.evaluate, " to evaluate on")
    if settings.through == "environment_factory":
        check_tool_methods(pack, [*tasks, *judged])
    elif settings.grpo.get("use_vllm"):
        raise UserError(
            "rollout_func samples with the trainer's own model: set grpo.use_vllm=false, or through=environment_factory"
        )
    check_folder(settings.model, "model")
    check_stage(settings.stage, pack)
    if isinstance(out := settings.grpo.get("output_dir"), str):
        check_writable(Path(out), "grpo.output_dir")
        if settings.episodes is not None:
            check_writable(Path(find_run_folder(settings.episodes, Path(out))), "episodes.run")
            if settings.episodes.tokens and settings.through == "environment_factory":
                raise UserError(
                    "episodes.tokens: TRL's own loop shows no sampled ids: set it to false, or through=rollout_func"
                )
    python = interpreter("trl", python)
    command = [str(python), "-m", MODULE, str(find_config(config).absolute())]
    for name, value in changes.items():
        command += ["--set", f"{name}={format_setting(value)}"]
    backend = settings.stage.backend if isinstance(settings.stage.backend, str) else "mixed"
    which = f"{len(tasks)} tasks of {pack.name}" + (f", split {settings.stage.split}" if settings.stage.split else "")
    notes = [f"GRPO of {settings.model} on {which} ({backend}), through TRL's {settings.through} ({python})"]
    if backend in ("simulated", "mixed") and settings.stage.llm.kind == "embedded" and settings.stage.simulator is None:
        notes.append(
            "the small local model plays the tools and judges, which shows how it works and not how well: name one under stage.llm"
        )
    env = {"PYTHONPATH": make_python_path(python), "TRL_EXPERIMENTAL_SILENCE": "1"}
    return Launch(command, env=env, notes=notes, check=[*command, "--check"])


def train(config: TrlConfig) -> None:
    """Train, in TRL's environment."""
    from datasets import Dataset  # type: ignore[import-not-found,unused-ignore]
    from trl import GRPOConfig, GRPOTrainer  # type: ignore[import-not-found,unused-ignore]

    arguments = limit_to_one_device(make_arguments(config, GRPOConfig))
    out = Path(arguments.output_dir)
    last = find_last_checkpoint(out, say_once) if config.resume else None
    if last is not None and (step := find_final_step(last, arguments)) is not None:
        name = "max_steps" if arguments.max_steps > 0 else "num_train_epochs"
        return say_once(f"finished at step {step}, see {last}; raise grpo.{name} to go on")
    start = ranks.gather_values(uuid.uuid4().hex)[0]
    environment = ranks.run_on_all_ranks(
        lambda: event_loop.run(open_environment(config.stage, store=find_reply_folder(out), say=say_once))
    )
    keeper = None
    try:
        keeper = ranks.run_on_all_ranks(lambda: open_keeper(config, out, start))
        rows, plays = choose_rollout(config, environment, lambda: trainer, keeper)
        learns = Dataset.from_list(rows(environment, None))
        check_task_count(arguments, len(learns))
        environment.tasks = environment.pack.tasks  # an evaluation's split may be outside the stage's tasks
        judged = Dataset.from_list(rows(environment, config.evaluate)) if config.evaluate else None
        try:
            trainer = GRPOTrainer(
                model=config.model,
                args=arguments,
                train_dataset=learns,
                eval_dataset=judged,
                callbacks=[make_order_callback()],
                **plays,
            )
        except (ValueError, OSError) as error:  # no such model, a chat template whose calls TRL cannot read
            raise UserError(f"{config.model}: {' '.join(str(error).split())[:400]}") from None
        trainer.train(resume_from_checkpoint=str(last) if last else None)
        trainer.save_model()
    except UserError as error:
        report_error(error)  # before anything is closed: the launcher ends this rank when another one has ended
        raise SystemExit(2) from None
    finally:
        event_loop.run(environment.close())
        if keeper is not None:
            keeper.close()
    if (group := ranks.find_process_group()) is not None:
        group.destroy_process_group()


def choose_rollout(
    config: TrlConfig, environment: Environment, trainer: Callable[[], Any], keeper: EpisodeKeeper | None = None
) -> tuple[Any, dict[str, Any]]:
    """Return the function that makes the data sets' rows, and GRPOTrainer's arguments for rollouts."""
    seed = config.stage.seed
    if config.through == "environment_factory":
        factory = environment_factory(environment, seed=seed, trainer=trainer, keeper=keeper)
        return tool_rows, {"environment_factory": factory, "reward_funcs": [tools_reward]}
    roll = rollout_func(
        environment, seed=seed, at_once=config.at_once, max_turn_tokens=config.max_turn_tokens, keeper=keeper
    )
    return task_rows, {"rollout_func": roll, "reward_funcs": [environment_reward]}


def open_keeper(config: TrlConfig, out: Path, start: str) -> EpisodeKeeper | None:
    """Open the run that keeps the episodes. Each machine has its own, as it has its own replies."""
    if config.episodes is None:
        return None
    machine = find_reply_folder(out).name.removeprefix("replies")
    settings, place = config.episodes, out.with_name(f"{out.name}{machine}")
    if settings.run is not None:
        settings = settings.model_copy(update={"run": f"{settings.run}{machine}"})
    facts, rank = {"model": config.model, "pack": config.stage.pack}, str(ranks.find_rank())
    keeper = EpisodeKeeper.open(settings, place, trainer="trl", start=start, process=rank, facts=facts)
    say_once(f"episodes are kept in {keeper.run.folder}; see them with: simia report {keeper.run.folder}")
    return keeper


def say_once(text: str) -> None:
    """Print a line that all ranks have, once."""
    if ranks.find_rank() == 0:
        terminal.say(text)


def find_reply_folder(out: Path) -> Path:
    """Return the folder of stored replies. Each machine has its own: they are SQLite files, which hosts must not share."""
    many = os.environ.get("WORLD_SIZE", "1") != os.environ.get("LOCAL_WORLD_SIZE", os.environ.get("WORLD_SIZE", "1"))
    return out / (f"replies-{os.environ.get('GROUP_RANK', '0')}" if many else "replies")


def limit_to_one_device(arguments: Any) -> Any:
    """Train on one GPU per process. A single process with several would split its batches over them (DataParallel), which breaks TRL's
    groups."""
    if arguments.n_gpu > 1:
        say_once(f"one of {arguments.n_gpu} GPUs is used; set processes={arguments.n_gpu} for all")
        arguments._n_gpu = 1
    return arguments


def make_arguments(config: TrlConfig, made: Any) -> Any:
    """Make TRL's configuration. Raises `UserError` for a name or a value that it does not take."""
    kinds = {field.name: str(field.type) for field in dataclasses.fields(made)}
    given = check_fields(config.grpo, list(kinds))
    for name, value in given.items():
        if isinstance(value, str) and not re.search(r"\b(str|Any|dict|list|Strategy|Type)", kinds[name]):
            kind = re.sub(r"<class '(\w+)'>", r"\1", kinds[name])
            raise UserError(f"grpo.{name} is {value!r}: it takes {kind}")
    try:
        return made(**given)
    except (ValueError, TypeError) as error:  # such as bf16 without a GPU, or a batch without a whole group
        raise UserError(f"grpo: {' '.join(str(error).split())}") from None


def check_arguments(config: TrlConfig) -> None:
    """Check the configuration for a dry run, which may run on a machine without the GPU to train on."""
    from trl import GRPOConfig  # type: ignore[import-not-found,unused-ignore]

    elsewhere: dict[str, Any] = {"bf16": False, "fp16": False, "tf32": None}
    # TRL checks that the batches of all ranks together hold whole groups.
    for name in ("per_device_train_batch_size", "per_device_eval_batch_size"):
        size = config.grpo.get(name, 8)
        elsewhere[name] = size * config.processes if isinstance(size, int) else size
    make_arguments(config.model_copy(update={"grpo": {**config.grpo, **elsewhere}}), GRPOConfig)


def check_fields(given: dict[str, Any], known: list[str]) -> dict[str, Any]:
    """Check the names of TRL's fields. YAML reads `1e-6` as text, which becomes a number; quoted numbers ("64") stay text."""
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UserError(f"grpo.{name}: GRPOConfig has no such field{hint}")
    if "output_dir" not in given:
        raise UserError("grpo.output_dir is not set: name the folder for checkpoints")
    return {
        name: float(value) if isinstance(value, str) and EXPONENT.fullmatch(value) else value
        for name, value in given.items()
    }


def find_last_checkpoint(out: Path, say: Callable[[str], None]) -> Path | None:
    """Find the last complete checkpoint. A kill may interrupt one, whose state is written last."""
    found = {int(match[1]): path for path in out.glob("checkpoint-*") if (match := CHECKPOINT.fullmatch(path.name))}
    for _, path in sorted(found.items(), reverse=True):
        try:
            read_trainer_state(path)
        except (OSError, ValueError):
            say(f"{path} was not written to its end, and is passed over")
        else:
            return path
    return None


def read_trainer_state(checkpoint: Path) -> Any:
    return json.loads((checkpoint / "trainer_state.json").read_text())


def find_final_step(last: Path, arguments: Any) -> int | None:
    """Return the last step of a finished run; None if there is more to do. The trainer itself would do one step too many."""
    state = read_trainer_state(last)
    if arguments.max_steps > 0:
        done = state["global_step"] >= arguments.max_steps
    else:
        done = round(state["epoch"], 6) >= arguments.num_train_epochs
    return int(state["global_step"]) if done else None


def check_task_count(arguments: Any, tasks: int) -> None:
    """Raise `UserError` if the tasks are too few for a batch: the trainer would stop at step 0 as if it had finished."""
    groups = arguments.generation_batch_size // arguments.num_generations
    if groups > tasks:
        raise UserError(
            f"a step plays {groups} groups, each of another task, and there are {tasks} tasks: raise grpo.num_generations, or lower "
            "grpo.gradient_accumulation_steps, per_device_train_batch_size or the number of processes"
        )


def make_order_callback() -> Any:
    """Make a callback that derives the tasks' order in an epoch from the seed and the epoch's number.

    The sampler's own order comes from a generator that no checkpoint holds: a resumed run would play the first epoch's order again,
    other tasks than were paid for.
    """
    from transformers import TrainerCallback  # type: ignore[import-not-found,unused-ignore]

    class SameOrder(TrainerCallback):  # type: ignore[misc,unused-ignore]
        def on_epoch_begin(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any) -> None:
            batches = train_dataloader.batch_sampler
            while hasattr(batches, "batch_sampler"):  # one over the ranks
                batches = batches.batch_sampler
            if (generator := getattr(batches.sampler, "generator", None)) is not None:
                generator.manual_seed(args.seed + int(round(state.epoch or 0, 6)))

    return SameOrder()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}")
    parser.add_argument("config")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--check", action="store_true", help="only whether TRL takes the configuration")
    given = parser.parse_args(arguments)
    try:
        config = load_config(TrlConfig, given.config, given.settings)
        if given.check:
            check_arguments(config)
        elif config.processes > 1 and "RANK" not in os.environ:
            return launch_processes(config, arguments)
        else:
            train(config)
    except KeyboardInterrupt:
        if ranks.find_rank() == 0:
            terminal.say_error("simia: stopped; the same command goes on from the last checkpoint")
        return 130
    except UserError as error:
        report_error(error)
        return 2
    return 0


def report_error(error: UserError) -> None:
    """Print the error once, whether one rank stops or all do for the same reason: the others wait until the first has reported."""
    rank = ranks.find_rank()
    if rank:
        time.sleep(AFTER_FIRST)
        if isinstance(error, ranks.Stopped):
            return
    terminal.say_error(f"simia: rank {rank}: {error}" if rank else f"simia: {error}")


def launch_processes(config: TrlConfig, arguments: list[str]) -> int:
    """Run this command in several processes by torch's launcher, which ends all when one fails. Returns the first failed exit code.

    Raises `UserError` if there are fewer GPUs.
    """
    import torch  # type: ignore[import-not-found,unused-ignore]
    from torch.distributed import run  # type: ignore[import-not-found,unused-ignore]
    from torch.distributed.elastic.multiprocessing.api import SignalException  # type: ignore[import-not-found,unused-ignore]
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # type: ignore[import-not-found,unused-ignore]

    count, there = config.processes, torch.cuda.device_count()
    if 0 < there < count and not config.grpo.get("use_cpu"):
        raise UserError(f"processes is {count}, and there are {there} GPUs to train on")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as the launcher sets it, with a warning
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # the ranks report it themselves
    try:
        run.run(run.parse_args(["--standalone", f"--nproc-per-node={count}", "-m", MODULE, *arguments]))
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode < 0:
            terminal.say_error(f"simia: rank {rank} was ended by signal {-failure.exitcode}")
        return int(failure.exitcode) if failure.exitcode > 0 else 128 - int(failure.exitcode)
    except SignalException as error:
        return 128 + int(error.sigval)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
