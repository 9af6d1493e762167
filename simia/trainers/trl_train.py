"""`simia train trl CONFIG`: GRPO in TRL from one YAML, a stage and the fields of TRL's GRPOConfig.

`launch` runs here and checks; the rest runs in TRL's environment: `python -m simia.trainers.trl_train CONFIG --set a.b=c`, which
starts itself once for each of `processes`, or is started so by `accelerate launch`. It goes on from the last checkpoint of
`grpo.output_dir`, and what simulators, users and judges were paid for is kept there too, so that a run that was killed pays for
nothing twice. examples/grpo.py is the same without settings.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import logging
import os
import re
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from simia import event_loop, terminal
from simia.config import Config, assign_setting, find_config, load_config, parse_config, read_config_file
from simia.envs.config import EnvironmentConfig
from simia.envs.environment import Environment
from simia.envs.opening import open_environment, select_tasks
from simia.errors import UserError
from simia.pack import Pack
from simia.trainers import ranks
from simia.trainers.launch import Launch, check_folder, check_stage, check_writable, format_setting, select_split
from simia.trainers.trl_resume import check_task_count, find_final_step, find_last_checkpoint, make_order_callback
from simia.trainers.versions import interpreter
from simia.venvs import make_python_path

EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")
MODULE = "simia.trainers.trl_train"
AFTER_FIRST = 5.0  # seconds that other ranks leave the first to speak; the launcher ends them when it has


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
    resume: bool = Field(True, description="Go on from the last checkpoint of output_dir, if there is one.")
    grpo: dict[str, Any] = Field(default_factory=dict, description="Fields of TRL's GRPOConfig.")


def launch(config: Path, changes: dict[str, Any], *, python: Path | None = None) -> Launch:
    """Check config, pack and versions. `python`: an interpreter with TRL (unset: this one if it fits, else simia's own for TRL).
    Raises `UserError` with one line for what must be changed first."""
    data = read_config_file(config)
    for name, value in changes.items():
        assign_setting(data, name.split("."), value)
    settings = parse_config(TrlConfig, data, where=str(config))
    pack = Pack.load(settings.stage.pack)
    tasks = select_tasks(pack, settings.stage)
    if settings.through == "rollout_func" and settings.grpo.get("use_vllm"):
        raise UserError(
            "rollout_func samples with the trainer's own model: set grpo.use_vllm=false, or through=environment_factory"
        )
    check_folder(settings.model, "model")
    if settings.evaluate is not None:
        select_split(pack, pack.tasks, settings.evaluate, " to evaluate on")
    check_stage(settings.stage, pack)
    if isinstance(out := settings.grpo.get("output_dir"), str):
        check_writable(Path(out), "grpo.output_dir")
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
    """The run itself, in TRL's environment."""
    from datasets import Dataset  # type: ignore[import-not-found,unused-ignore]
    from trl import GRPOConfig, GRPOTrainer  # type: ignore[import-not-found,unused-ignore]

    arguments = limit_to_one_device(make_arguments(config, GRPOConfig))
    out = Path(arguments.output_dir)
    last = find_last_checkpoint(out, say_once) if config.resume else None
    if last is not None and (step := find_final_step(last, arguments)) is not None:
        name = "max_steps" if arguments.max_steps > 0 else "num_train_epochs"
        return say_once(f"finished at step {step}, see {last}; raise grpo.{name} to go on")
    environment = ranks.run_on_all_ranks(
        lambda: event_loop.run(open_environment(config.stage, store=find_reply_folder(out), say=say_once))
    )
    try:
        plays = choose_rollout(config, environment, lambda: trainer)
        learns = Dataset.from_list(make_rows(config, environment, None))
        check_task_count(arguments, len(learns))
        judged = Dataset.from_list(make_rows(config, environment, config.evaluate)) if config.evaluate else None
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
        report_error(error)  # before anything is closed: another rank that ends meanwhile has this one ended
        raise SystemExit(2) from None
    finally:
        event_loop.run(environment.close())
    if (group := ranks.find_process_group()) is not None:
        group.destroy_process_group()


def say_once(text: str) -> None:
    """What all ranks would say, once."""
    if ranks.find_rank() == 0:
        terminal.say(text)


def find_reply_folder(out: Path) -> Path:
    """Where this rank finds and keeps replies. Of several machines each has its own: they are SQLite files, which hosts must not share."""
    many = os.environ.get("WORLD_SIZE", "1") != os.environ.get("LOCAL_WORLD_SIZE", os.environ.get("WORLD_SIZE", "1"))
    return out / (f"replies-{os.environ.get('GROUP_RANK', '0')}" if many else "replies")


def limit_to_one_device(arguments: Any) -> Any:
    """A process trains on one GPU. Alone among several it would spread its batches over all of them (DataParallel), which TRL's groups
    do not reckon with."""
    if arguments.n_gpu > 1:
        say_once(f"one of {arguments.n_gpu} GPUs is used; set processes={arguments.n_gpu} for all")
        arguments._n_gpu = 1
    return arguments


def make_arguments(config: TrlConfig, made: Any) -> Any:
    """TRL's configuration. Raises `UserError` for a name or a value that it does not take."""
    kinds = {field.name: str(field.type) for field in dataclasses.fields(made)}
    given = check_fields(config.grpo, list(kinds))
    for name, value in given.items():
        if isinstance(value, str) and not re.search(r"\b(str|Any|dict|list|Strategy|Type)", kinds[name]):
            kind = re.sub(r"<class '(\w+)'>", r"\1", kinds[name])
            raise UserError(f"grpo.{name} is {value!r}: it takes {kind}")
    try:
        return made(**given)
    except (
        ValueError,
        TypeError,
    ) as error:  # bf16 without a GPU, a batch that holds no whole group: its own words say which
        raise UserError(f"grpo: {' '.join(str(error).split())}") from None


def check_arguments(config: TrlConfig) -> None:
    """What a dry run asks of TRL's environment. It may be asked on a machine without the GPU that is trained on."""
    from trl import GRPOConfig  # type: ignore[import-not-found,unused-ignore]

    elsewhere: dict[str, Any] = {"bf16": False, "fp16": False, "tf32": None}
    # Whole groups are asked of all ranks together.
    for name in ("per_device_train_batch_size", "per_device_eval_batch_size"):
        size = config.grpo.get(name, 8)
        elsewhere[name] = size * config.processes if isinstance(size, int) else size
    make_arguments(config.model_copy(update={"grpo": {**config.grpo, **elsewhere}}), GRPOConfig)


def make_rows(config: TrlConfig, environment: Environment, split: str | None) -> list[dict[str, Any]]:
    """The tasks of the stage; `split`: those of the pack's split, for evaluation."""
    from simia.trainers.trl import task_rows
    from simia.trainers.trl_tools import tool_rows

    of = tool_rows if config.through == "environment_factory" else task_rows
    chosen_here = environment.tasks
    if split is not None:
        environment.tasks = environment.pack.tasks
    try:
        return list(of(environment, split))
    finally:
        environment.tasks = chosen_here


def choose_rollout(config: TrlConfig, environment: Environment, trainer: Callable[[], Any]) -> dict[str, Any]:
    from simia.trainers.trl import environment_reward, rollout_func
    from simia.trainers.trl_tools import environment_factory, tools_reward

    seed = config.stage.seed
    if config.through == "environment_factory":
        factory = environment_factory(environment, seed=seed, trainer=trainer)
        return {"environment_factory": factory, "reward_funcs": [tools_reward]}
    roll = rollout_func(environment, seed=seed, at_once=config.at_once, max_turn_tokens=config.max_turn_tokens)
    return {"rollout_func": roll, "reward_funcs": [environment_reward]}


def check_fields(given: dict[str, Any], known: list[str]) -> dict[str, Any]:
    """TRL's fields, checked by name. YAML reads `1e-6` as text, and 2026-11-21 as a date; neither is what is meant."""
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise UserError(
                f"grpo.{name}: GRPOConfig has no such field" + (f"; did you mean {near[0]!r}?" if near else "")
            )
    if "output_dir" not in given:
        raise UserError("grpo.output_dir is not set: name the folder for checkpoints")
    return {name: convert_value(value) for name, value in given.items()}


def convert_value(value: Any) -> Any:
    """Text that is written as a number on purpose ("64") stays text."""
    if isinstance(value, date):
        return str(value)
    return float(value) if isinstance(value, str) and EXPONENT.fullmatch(value) else value


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
    """One line, whether one rank stops or all do for the same reason: the others wait until the first has spoken."""
    rank = ranks.find_rank()
    if rank:
        time.sleep(AFTER_FIRST)
        if isinstance(error, ranks.Stopped):
            return
    terminal.say_error(f"simia: rank {rank}: {error}" if rank else f"simia: {error}")


def launch_processes(config: TrlConfig, arguments: list[str]) -> int:
    """This command in so many processes, by torch's launcher, which ends all where one ends badly. Returns the first bad exit code.
    Raises `UserError` where there are fewer GPUs."""
    import torch  # type: ignore[import-not-found,unused-ignore]
    from torch.distributed import run  # type: ignore[import-not-found,unused-ignore]
    from torch.distributed.elastic.multiprocessing.api import SignalException  # type: ignore[import-not-found,unused-ignore]
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # type: ignore[import-not-found,unused-ignore]

    count, there = config.processes, torch.cuda.device_count()
    if 0 < there < count and not config.grpo.get("use_cpu"):
        raise UserError(f"processes is {count}, and there are {there} GPUs to train on")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as the launcher does, with a warning
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # the ranks say it themselves
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
