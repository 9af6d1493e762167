"""GRPO in TRL over an environment: a `rollout_func` that plays whole episodes, token in, token out.

    environment = event_loop.run(open_environment("customer_service", user="scripted"))
    trainer = GRPOTrainer(
        model, reward_funcs=[environment_reward], train_dataset=Dataset.from_list(task_rows(environment)),
        rollout_func=rollout_func(environment), args=GRPOConfig(...),
    )

TRL passes only a row's prompt to the function, so the prompt is the task's id, and the conversation is rendered here. Sampled ids are
trained on as they are and never tokenised again. The environment's messages between them are rendered separately, after a placeholder for
the policy's turn, and have `env_mask` 0. Each episode runs on its own schedule: a batch for the model contains the episodes whose answers
have arrived. Batches differ between ranks, so a model whose parameters are split over ranks (ZeRO-3, FSDP) needs a vLLM server, or a
`sample` of its own. A group may be split over ranks: its name is the same on all of them, and so are the simulated answers if the ranks
share a store of replies.

torch and TRL are imported by the functions that need them, since they are in the trainer's environment, not in simia's.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext
from typing import Any

from simia import event_loop
from simia.envs.environment import Environment, Episode
from simia.errors import Aborted, Code, UserError
from simia.garbage_collection import raised_thresholds
from simia.task import Task
from simia.trainers.kept_episodes import EpisodeKeeper
from simia.trainers.launch import select_split
from simia.trainers.ranks import log_aborted, run_on_all_ranks
from simia.trainers.time_limits import WORLD_SECONDS, abort_late, open_in_time, run_in_time
from simia.trainers.tokens import CallForm, ChatText, TokenRow
from simia.trainers.trl.model_sampler import Sampled, sample_with_model
from simia.trainers.trl.vllm_sampler import EpisodeName, VLLMSampler
from simia.trainers.turn_schedule import TurnSchedule
from simia.trainers.verl.play import PolicyPlayer
from simia.trainers.verl.settings import PlaySettings
from simia.trajectory import Trajectory

Sampler = Callable[[Any, list[list[int]], int], list[Sampled]]
"""(trainer, contexts as ids, most new tokens) → a reply to each context."""
CLOSING = 60.0  # seconds for the worlds of aborted episodes to close
RolloutFunc = Callable[[list[str], Any], dict[str, list[Any]]]
REPLY_SECONDS = (
    600.0  # seconds for a vLLM server's reply, queue included: a third of the time that TRL's ranks wait for each other
)


def task_rows(environment: Environment, split: str | None = None) -> list[dict[str, str]]:
    """Make rows for the trainer's data set: a task's id as the prompt. `split` None: all tasks."""
    return [{"prompt": task.id} for task in select_split(environment.pack, environment.tasks, split)]


def environment_reward(*, reward: Sequence[float | None], **_: Any) -> list[float | None]:
    """Return the episodes' rewards: a reward function for GRPOTrainer. It is None for an aborted episode: TRL leaves the row out of
    its group's baseline and gives it advantage 0."""
    return list(reward)


def rollout_func(
    environment: Environment,
    *,
    seed: int = 0,
    at_once: int | None = None,
    max_turn_tokens: int | None = None,
    sample: Sampler | VLLMSampler | None = None,
    on_trajectory: Callable[[Trajectory], None] | None = None,
    world_seconds: float = WORLD_SECONDS,
    wait_seconds: float | None = None,
    keeper: EpisodeKeeper | None = None,
    calls: CallForm = "template",
) -> RolloutFunc:
    """Make the `rollout_func` of GRPOTrainer: one episode per prompt, and a prompt is a task's id.

    `at_once` limits the episodes under way, and so the batch; `max_turn_tokens` limits one message. The trainer's `max_completion_length`
    limits an episode's tokens, the environment's included; an episode that reaches it is truncated and scored. An episode whose environment
    takes longer than `world_seconds` for an answer is aborted. `wait_seconds` (None: no limit) protects the other ranks, which wait for this
    one: when the policy has waited that long in a step with nothing to sample, all unfinished episodes are aborted; with a vLLM server it is
    the limit of one episode. `sample` unset: the trainer's model, or its vLLM server with `use_vllm`. The returned rows have `prompt_ids`,
    `completion_ids`, `logprobs` (0 for the environment's tokens), `env_mask`, and for reward functions `reward` and `task_id`. An aborted
    episode has reward None and `env_mask` 0 throughout, so it affects neither advantages nor a KL term nor the count of trained tokens.
    `keeper` writes the episodes to a run; `calls`: see `ChatText`. Raises `UserError` for an unknown task, and on all ranks for a step in
    which no episode could be scored or the budget ran out.
    """

    if at_once is not None and at_once < 1:
        raise UserError(f"at_once must be a number of episodes, 1 or more, got {at_once}")

    def roll(prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
        nonlocal sample
        if sample is None:
            sample = VLLMSampler.from_arguments(trainer.args) if trainer.use_vllm else sample_with_model
        if trainer.use_vllm:
            trainer.accelerator.wait_for_everyone()  # no rank may sample before the first rank has sent the weights
        environment.note_training_step(trainer.state.global_step)
        rollout = Rollout(environment, trainer, sample, seed, max_turn_tokens, calls)
        rollout.world_seconds, rollout.wait_seconds = world_seconds, wait_seconds

        def play() -> list[TokenRow]:
            # The trainer's own model creates tensors here, which rare garbage collection would keep in memory longer.
            with nullcontext() if sample is None else raised_thresholds():
                rows = rollout.run(prompts, at_once or len(prompts))
            if on_trajectory is not None:
                for row in rows:
                    on_trajectory(row.episode.trajectory)
            keep_batch(keeper, trainer, rows)
            return rows

        rows = run_on_all_ranks(play)
        log_aborted([row.episode for row in rows], trainer.state.global_step + 1, learns=trainer.model.training)
        return make_columns(rows, rollout.text.end_ids[0], learns=trainer.model.training)

    return roll


def make_columns(rows: list[TokenRow], filler: int, *, learns: bool = True) -> dict[str, list[Any]]:
    """Return the rows in TRL's form. TRL has one reward per row; if it `learns`, rewards of single turns are added to it. TRL reads the last
    id of a row, so a row whose policy never spoke gets one `filler` id with mask 0."""
    rewards = [row.reward if learns else row.outcome for row in rows]
    masks = [[0] * len(row.mask) if row.reward is None else row.mask for row in rows]
    return {
        "prompt_ids": [row.prompt_ids for row in rows],
        "completion_ids": [row.completion_ids or [filler] for row in rows],
        "logprobs": [row.logprobs or [0.0] for row in rows],
        "env_mask": [mask or [0] for mask in masks],
        "reward": rewards,
        "task_id": [row.episode.task.id for row in rows],
    }


class Rollout:
    """The episodes of one call."""

    def __init__(
        self,
        environment: Environment,
        trainer: Any,
        sample: Sampler | VLLMSampler,
        seed: int,
        max_turn_tokens: int | None,
        calls: CallForm = "template",
    ) -> None:
        self._environment, self._trainer, self._sample, self._seed = environment, trainer, sample, seed
        self._most = int(trainer.args.max_completion_length)
        self._most_a_turn = max_turn_tokens or self._most
        self.world_seconds = WORLD_SECONDS
        self.wait_seconds: float | None = None
        processing = trainer.processing_class
        self._tokenizer = getattr(processing, "tokenizer", processing)
        template = getattr(trainer, "chat_template_kwargs", None)
        self.text = ChatText(self._tokenizer, trainer.eos_token_ids, template, calls)

    def run(self, prompts: list[str], at_once: int) -> list[TokenRow]:
        """Play an episode for each prompt, at most `at_once` under way, each on its own schedule. Returns the rows in the prompts' order."""
        tasks = [self._environment.pack.task(prompt) for prompt in prompts]  # raises before anything is opened
        names = [self._name(number, task.id) for number, task in enumerate(tasks)]
        if isinstance(self._sample, VLLMSampler):
            limits = {"world_seconds": self.world_seconds, "episode_seconds": self.wait_seconds}
            settings = PlaySettings(turn_tokens=self._most_a_turn, turn_seconds=REPLY_SECONDS, resample=0, **limits)
            player = PolicyPlayer(self._environment, self._tokenizer, self.text, settings, sys.maxsize, self._most)
            return self._sample.play(player, self._trainer, names, at_once)
        waiting = deque(enumerate(zip(tasks, names, strict=True)))
        rows: dict[int, TokenRow] = {}
        live = 0
        schedule = TurnSchedule[int]()
        episodes: list[Episode] = []
        try:
            while waiting or live:
                for _ in range(min(len(waiting), at_once - live)):
                    number, (task, name) = waiting.popleft()
                    schedule.start(number, self._open(task, name, episodes))
                    live += 1
                if not (ready := schedule.collect(self.wait_seconds)):
                    schedule.close()
                    self._give_up(tasks, rows)
                    break
                rows |= {number: self.text.begin(ready[number]) for number in ready.keys() - rows.keys()}
                running = {number: rows[number] for number in sorted(ready) if rows[number].episode.end is None}
                live -= len(ready) - len(running)
                self._take_turns(names, running, schedule)
        finally:
            schedule.close()
            event_loop.run_together(episode.close() for episode in episodes)
        return [rows[number] for number in range(len(prompts))]

    def _name(self, number: int, task: str) -> EpisodeName:
        """Name an episode and its group. Episodes of one task in one trainer step are a group and share simulated answers."""
        step, rank = name_step(self._trainer), self._trainer.accelerator.process_index  # ranks may share a reply store
        return EpisodeName(task, self._seed, group=f"{step}/{task}", name=f"{step}/{rank}.{number}")

    def _give_up(self, tasks: list[Task], rows: dict[int, TokenRow]) -> None:
        """Abort all episodes that have not ended: the environment has kept this rank waiting too long."""
        why = f"the environment kept the policy waiting for {self.wait_seconds:g} s in this step"
        for number, task in enumerate(tasks):
            if number not in rows:
                rows[number] = self.text.begin(self._environment.abort(task, self._seed, Aborted(Code.TIMEOUT, why)))
        late = [row.episode for row in rows.values() if row.episode.reward is None]
        event_loop.run_together(abort_late(episode, why, CLOSING) for episode in late)

    async def _open(self, task: Task, it: EpisodeName, episodes: list[Episode]) -> Episode:
        episode = await open_in_time(
            self._environment, task, self.world_seconds, seed=it.seed, group=it.group, name=it.name
        )
        episodes.append(episode)
        return episode

    def _take_turns(
        self, names: Sequence[EpisodeName], running: dict[int, TokenRow], schedule: TurnSchedule[int]
    ) -> None:
        """Sample one batch for the episodes that are ready, and start their steps."""
        rooms = {number: self._most - len(row.completion_ids) - len(row.pending) for number, row in running.items()}
        speaking = [number for number, room in rooms.items() if room > 0]
        for number in running.keys() - speaking:
            self._start(schedule, number, running[number], running[number].episode.stop(Code.MAX_TOKENS))
        if speaking:
            most = min(self._most_a_turn, max(rooms[number] for number in speaking))
            replies = self._sample_batch(
                [names[number] for number in speaking], [running[number].context for number in speaking], most
            )
            for number, (ids, logprobs) in zip(speaking, replies, strict=True):
                room = rooms[number]
                row = running[number]
                self._start(schedule, number, row, self.text.act(row, ids[:room], logprobs[:room]))

    def _sample_batch(self, names: Sequence[EpisodeName], contexts: list[list[int]], most: int) -> list[Sampled]:
        """Sample a reply to each context. With the trainer's model, the episode's name and the context's length seed the random numbers."""
        if self._sample is not sample_with_model:
            assert not isinstance(self._sample, VLLMSampler)
            return self._sample(self._trainer, contexts, most)
        seed = self._trainer.args.seed
        keys = (f"{seed}/{it.name}/{len(context)}" for it, context in zip(names, contexts, strict=True))
        return sample_with_model(self._trainer, contexts, most, [random.Random(key) for key in keys])

    def _start(self, schedule: TurnSchedule[int], number: int, row: TokenRow, turn: Coroutine[Any, Any, Any]) -> None:
        schedule.start(number, run_in_time(row.episode, turn, self.world_seconds))


def name_step(trainer: Any) -> str:
    """Name the trainer's step. The name is the same in a resumed run, and differs between training and evaluation."""
    return f"{'' if trainer.model.training else 'eval-'}{trainer.state.global_step}"


def keep_batch(keeper: EpisodeKeeper | None, trainer: Any, episodes: Sequence[TokenRow | Episode]) -> None:
    """Write a batch of finished episodes to the training's run, if there is one."""
    if keeper is not None:
        learns = bool(trainer.model.training)
        keeper.keep(trainer.state.global_step + learns, episodes, validates=not learns)
