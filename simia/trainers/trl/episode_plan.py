"""Count the episodes that a run of TRL's GRPOTrainer plays, from the fields of its GRPOConfig and their defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simia.pack import Pack
from simia.task import Task
from simia.trainers.episode_plan import EpisodePlan
from simia.trainers.val_environment import StageSettings

Tasks = tuple[Pack, Sequence[Task]]


def plan_episodes(
    settings: StageSettings,
    grpo: Mapping[str, Any],
    processes: int,
    learns: Tasks,
    judged: Tasks | None,
    *,
    methods: bool = False,
) -> list[EpisodePlan]:
    """Return the episodes of training and of its evaluations. `judged`: the tasks to evaluate on, if any. `methods`: whether TRL's own
    loop plays, in which no user answers."""
    rest = "grpo.max_completion_length", int(read_number_field(grpo, "max_completion_length", 256))
    size, each = read_number_field(grpo, "num_generations", 8), count_step_episodes(grpo, processes)
    epochs = read_number_field(grpo, "num_train_epochs", 3)
    steps = read_number_field(grpo, "max_steps", -1)
    steps = steps if steps > 0 else max(1, int(epochs * len(learns[1]) * size / each))
    plans = [
        EpisodePlan("training", settings.stage, *learns, episodes=int(steps * each), rest=rest, dialogue=not methods)
    ]
    if judged is not None:
        times = count_evaluations(grpo, int(steps), epochs)
        episodes = times * len(judged[1]) * read_number_field(grpo, "num_generations_eval", size)
        stage = settings.for_validation().stage
        where, count = settings.validation_place, int(episodes)
        plans.append(EpisodePlan("validation", stage, *judged, count, rest=rest, dialogue=not methods, place=where))
    return plans


def count_batch(grpo: Mapping[str, Any], processes: int) -> float:
    """Return how many episodes are played at a time, by all processes together."""
    return read_number_field(grpo, "per_device_train_batch_size", 8) * processes * count_served_steps(grpo, processes)


def count_served_steps(grpo: Mapping[str, Any], processes: int) -> float:
    """Return how many micro-steps use one batch of episodes, as GRPOConfig derives it."""
    device = read_number_field(grpo, "per_device_train_batch_size", 8)
    accumulated = read_number_field(grpo, "gradient_accumulation_steps", 1)
    whole = read_number_field(grpo, "generation_batch_size", accumulated * device * processes)
    return read_number_field(grpo, "steps_per_generation", max(1, whole // (device * processes)))


def count_step_episodes(grpo: Mapping[str, Any], processes: int) -> float:
    """Return the episodes of a step, which may be several batches or a part of one."""
    accumulated = read_number_field(grpo, "gradient_accumulation_steps", 1)
    device = read_number_field(grpo, "per_device_train_batch_size", 8)
    return device * processes * accumulated / read_number_field(grpo, "num_iterations", 1)


def describe_step(grpo: Mapping[str, Any], processes: int) -> str:
    """Describe the groups of a step and their size."""
    size = read_number_field(grpo, "num_generations", 8)
    return f"{count_step_episodes(grpo, processes) / size:,g} groups of {size:g} a step"


def count_evaluations(grpo: Mapping[str, Any], steps: int, epochs: float) -> int:
    """Return the number of evaluations: one every `eval_steps` (below 1: a share of all steps), or one after each epoch."""
    first = int(bool(grpo.get("eval_on_start")))
    if grpo.get("eval_strategy", "no") == "no":
        return first
    if grpo["eval_strategy"] == "epoch":
        return first + max(1, int(epochs))
    every = read_number_field(grpo, "eval_steps", read_number_field(grpo, "logging_steps", 10))
    return first + int(steps / (every * steps if every < 1 else every))


def read_number_field(grpo: Mapping[str, Any], name: str, default: float) -> float:
    """Return a field as a number; the default if it is unset or not a number. TRL itself refuses other values."""
    value = grpo.get(name)
    return value if isinstance(value, int | float) and value else default
