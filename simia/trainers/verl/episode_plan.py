"""Count the episodes that a run of verl plays, from its configuration and its defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simia.pack import Pack
from simia.task import Task
from simia.trainers.episode_plan import EpisodePlan, count_validations
from simia.trainers.launch import look_up, look_up_number
from simia.trainers.verl.settings import VerlSettings

Tasks = tuple[Pack, Sequence[Task]]


def plan_episodes(data: Mapping[str, Any], ours: VerlSettings, learns: Tasks, judged: Tasks) -> list[EpisodePlan]:
    """Return the episodes of training and of validation."""
    batch = look_up_number(data, "data.train_batch_size", 1024)
    rows = len(learns[1]) * -(-batch // len(learns[1]))
    steps = look_up_number(data, "trainer.total_epochs", 30) * rows // batch
    if look_up(data, "trainer.total_training_steps"):
        steps = look_up_number(data, "trainer.total_training_steps")
    size = look_up_number(data, "actor_rollout_ref.rollout.n", 1)
    limit = "data.max_prompt_length", look_up_number(data, "data.max_prompt_length", 512)
    before = bool(look_up(data, "trainer.val_before_train", True))
    times = count_validations(steps, look_up_number(data, "trainer.test_freq", -1), before=before)
    episodes = times * len(judged[1]) * look_up_number(data, "actor_rollout_ref.rollout.val_kwargs.n", 1)
    trained = steps * batch * size
    stage, where = ours.for_validation().stage, f"simia.{ours.validation_place}"
    return [
        EpisodePlan("training", ours.stage, *learns, trained, limit=limit, place="simia.stage"),
        EpisodePlan("validation", stage, *judged, episodes, limit=limit, place=where),
    ]
