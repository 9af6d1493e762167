"""`simia train trl CONFIG`: GRPO in TRL from one YAML, a stage and the fields of TRL's GRPOConfig.

It runs in TRL's Python environment, as `python -m simia.trainers.trl.train CONFIG --set a.b=c`. With several `processes` it starts itself in
each of them, or `accelerate launch` does. A run resumes from the last checkpoint of `grpo.output_dir`. The replies of simulators, users
and judges are stored there too, so that a resumed run pays for nothing twice. examples/grpo.py does the same without settings.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simia import event_loop, terminal
from simia.config import load_config
from simia.envs.config import EnvironmentConfig
from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.errors import UserError
from simia.terminal import write_count
from simia.trainers import ranks
from simia.trainers.concurrency import fit_concurrency
from simia.trainers.evaluation_tasks import refuse_evaluation_tasks
from simia.trainers.kept_episodes import EpisodeKeeper
from simia.trainers.time_limits import settle_time_limits
from simia.trainers.trl.evaluation import choose_by_mode
from simia.trainers.trl.resume import find_final_step, find_last_checkpoint, make_order_callback
from simia.trainers.trl.rollout import environment_reward, rollout_func, task_rows
from simia.trainers.trl.settings import (
    TrlConfig,
    check_arguments,
    check_task_count,
    find_collective_timeout,
    make_arguments,
)
from simia.trainers.trl.start import MODULE
from simia.trainers.trl.tool_methods import environment_factory, tool_rows, tools_reward
from simia.trainers.trl.vllm_sampler import make_drift_callback, report_server_errors

AFTER_FIRST = 5.0  # seconds that other ranks give the first one to report; then the launcher ends them


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
    timeout = find_collective_timeout(config)
    world_seconds, *_ = (
        settle_time_limits(stage, config.world_seconds, timeout)
        for stage in (config.stage, config.for_validation().stage)
    )
    episodes = arguments.generation_batch_size // arguments.world_size
    for line in fit_concurrency(config.stage, min(episodes, config.at_once or episodes)):
        say_once(line)
    start = ranks.gather_values(uuid.uuid4().hex)[0]
    environment = open_for_all_ranks(config.stage, out)
    evaluation = environment
    keeper = None
    try:
        allowed = config.allow_evaluation_tasks
        refuse_evaluation_tasks(environment.pack, environment.tasks, "allow_evaluation_tasks", allowed=allowed)
        if config.evaluate and config.val_environment:
            evaluation = open_for_all_ranks(config.val_environment.with_split(config.evaluate), out)
        keeper = ranks.run_on_all_ranks(lambda: open_keeper(config, out, start))
        rows, plays = choose_rollout(config, environment, evaluation, lambda: trainer, world_seconds, keeper)
        learns = Dataset.from_list(rows(environment, None))
        check_task_count(arguments, len(learns))
        if evaluation is environment:
            environment.tasks = environment.pack.tasks  # the split to evaluate on may be outside the stage's tasks
        judged = Dataset.from_list(rows(evaluation, config.evaluate)) if config.evaluate else None
        try:
            with report_server_errors(arguments.use_vllm):
                trainer = GRPOTrainer(
                    model=config.model,
                    args=arguments,
                    train_dataset=learns,
                    eval_dataset=judged,
                    callbacks=[make_order_callback(), make_drift_callback()],
                    **plays,
                )
        except (ValueError, OSError) as error:  # no such model, or an unusable chat template
            raise UserError(f"{config.model}: {' '.join(str(error).split())[:400]}") from None
        with report_server_errors(arguments.use_vllm):
            trainer.train(resume_from_checkpoint=str(last) if last else None)
        trainer.save_model()
    except UserError as error:
        report_error(error)  # before anything is closed: the launcher ends this rank when another one has ended
        raise SystemExit(2) from None
    finally:
        for opened in dict.fromkeys((environment, evaluation)):
            event_loop.run(opened.close())
        if keeper is not None:
            keeper.close()
    if (group := ranks.find_process_group()) is not None:
        group.destroy_process_group()


def open_for_all_ranks(stage: EnvironmentConfig, out: Path) -> Environment:
    return ranks.run_on_all_ranks(
        lambda: event_loop.run(open_environment(stage, store=find_reply_folder(out), say=say_once))
    )


def choose_rollout(
    config: TrlConfig,
    environment: Environment,
    evaluation: Environment,
    trainer: Callable[[], Any],
    world_seconds: float,
    keeper: EpisodeKeeper | None = None,
) -> tuple[Any, dict[str, Any]]:
    """Return the function that makes the data sets' rows, and GRPOTrainer's arguments for rollouts."""
    seed, val_seed = config.stage.seed, config.for_validation().stage.seed
    if config.through == "environment_factory":
        factory = environment_factory(
            environment,
            seed=seed,
            trainer=trainer,
            evaluation=(evaluation, val_seed),
            world_seconds=world_seconds,
            keeper=keeper,
        )
        return tool_rows, {"environment_factory": factory, "reward_funcs": [tools_reward]}
    trains, validates = (
        rollout_func(
            where,
            seed=worlds,
            at_once=config.at_once,
            max_turn_tokens=config.max_turn_tokens,
            world_seconds=world_seconds,
            wait_seconds=world_seconds if find_collective_timeout(config) is not None else None,
            keeper=keeper,
            calls=config.calls,
        )
        for where, worlds in ((environment, seed), (evaluation, val_seed))
    )
    return task_rows, {"rollout_func": choose_by_mode(trains, validates), "reward_funcs": [environment_reward]}


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
    """Print a line on the first rank only."""
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
            terminal.say_error("simia: stopped; run the same command again to continue from the last checkpoint")
        return 130
    except UserError as error:
        report_error(error)
        return 2
    return 0


def report_error(error: UserError) -> None:
    """Print the error once, whether one rank stops or all do for the same reason. The other ranks wait until the first has reported."""
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
        raise UserError(
            f"processes is {count}, but the machine has {write_count(there, 'GPU')} to train on: set processes to {there} or less"
        )
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the launcher would set it too, but with a warning
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # the ranks report errors themselves
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
