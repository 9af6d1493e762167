"""GRPO in TRL over an environment: a `rollout_func` that plays whole episodes, token in, token out.

    environment = event_loop.run(open_environment("customer_service", user="scripted"))
    trainer = GRPOTrainer(
        model, reward_funcs=[environment_reward], train_dataset=Dataset.from_list(task_rows(environment)),
        rollout_func=rollout_func(environment), args=GRPOConfig(...),
    )

TRL's function sees nothing of a row but its prompt, so the prompt is the task's id, and the conversation is rendered here.
The ids that the policy sampled are trained as they are and are never tokenised again; what the environment says between
them is rendered alone, behind a stand-in for the policy's turn, and has `env_mask` 0. Episodes go in rounds: one batch
through the model for all that run, then all their steps at once. Ranks differ in their rounds, so a model whose parameters
are split over ranks (ZeRO-3, FSDP) needs a `sample` of its own; so does vLLM. A group may be split over ranks: its name is the same
on all of them, and with it what is drawn by simulation, if they name one store of replies.

Imports of torch and TRL stand in the functions that need them: they are in the trainer's environment, not in ours.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from simia import event_loop
from simia.envs.environment import Environment, Episode
from simia.errors import Code, UserError
from simia.trainers.launch import select_split
from simia.trainers.ranks import log_aborted, run_on_all_ranks
from simia.trainers.tokens import ChatText, TokenRow, cut_after_end
from simia.trajectory import Trajectory

Sampled = tuple[list[int], list[float]]
"""Ids of one reply, the end token with them, and the log-probability with which each was drawn."""
Sampler = Callable[[Any, list[list[int]], int], list[Sampled]]
"""(trainer, contexts as ids, most new tokens) → a reply to each context."""
RolloutFunc = Callable[[list[str], Any], dict[str, list[Any]]]


def task_rows(environment: Environment, split: str | None = None) -> list[dict[str, str]]:
    """Rows for the trainer's data set: a task's id as the prompt. `split` None: all tasks."""
    return [{"prompt": task.id} for task in select_split(environment.pack, environment.tasks, split)]


def environment_reward(*, reward: Sequence[float | None], **_: Any) -> list[float | None]:
    """A reward function that reads what the episodes earned. None, of an aborted one: TRL leaves the row out of its group's
    baseline and gives it advantage 0."""
    return list(reward)


def rollout_func(
    environment: Environment,
    *,
    seed: int = 0,
    at_once: int | None = None,
    max_turn_tokens: int | None = None,
    sample: Sampler | None = None,
    on_trajectory: Callable[[Trajectory], None] | None = None,
) -> RolloutFunc:
    """What GRPOTrainer takes as `rollout_func`: one episode a prompt, and a prompt is a task's id.

    `at_once` bounds the episodes (and the batch) under way, `max_turn_tokens` one message; `max_completion_length` of the
    trainer bounds an episode's tokens, the environment's included, and one that reaches it is cut and scored. The rows
    that come back hold `prompt_ids`, `completion_ids`, `logprobs` (0 for the environment's tokens), `env_mask`, and for
    reward functions `reward` and `task_id`. An aborted episode has reward None and `env_mask` 0 throughout, so that
    neither its advantage nor a KL term nor the count of trained tokens sees it. Raises `UserError` for an unknown task, and for a
    step in which no episode could be scored, or the budget ran out; of several ranks all raise it.
    """

    if at_once is not None and at_once < 1:
        raise UserError(f"at_once is {at_once}: it is a number of episodes, 1 or more")

    def roll(prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
        if sample is None and trainer.use_vllm:
            raise UserError(
                "rollout_func samples with the trainer's own model: set use_vllm=False, or give it `sample`"
            )
        rollout = Rollout(environment, trainer, sample or sample_with_model, seed, max_turn_tokens)

        def play() -> list[TokenRow]:
            rows = rollout.run(prompts, at_once or len(prompts))
            if on_trajectory is not None:
                for row in rows:
                    on_trajectory(row.episode.trajectory)
            return rows

        rows = run_on_all_ranks(play)
        log_aborted([row.episode for row in rows], trainer.state.global_step + 1, learns=trainer.model.training)
        return make_columns(rows, rollout.text.end_ids[0])

    return roll


def make_columns(rows: list[TokenRow], filler: int) -> dict[str, list[Any]]:
    """TRL's form. It reads the last id of every row: an episode that ended before the policy spoke gets one that is not trained."""
    found: dict[str, list[Any]] = {
        name: [] for name in ("prompt_ids", "completion_ids", "logprobs", "env_mask", "reward", "task_id")
    }
    for row in rows:
        value = row.reward
        found["prompt_ids"].append(row.prompt_ids)
        found["completion_ids"].append(row.completion_ids or [filler])
        found["logprobs"].append(row.logprobs or [0.0])
        found["env_mask"].append(([0] * len(row.mask) if value is None else row.mask) or [0])
        found["reward"].append(value)
        found["task_id"].append(row.episode.task.id)
    return found


class Rollout:
    """The episodes of one call."""

    def __init__(
        self, environment: Environment, trainer: Any, sample: Sampler, seed: int, max_turn_tokens: int | None
    ) -> None:
        self._environment, self._trainer, self._sample, self._seed = environment, trainer, sample, seed
        self._most = int(trainer.args.max_completion_length)
        self._most_a_turn = max_turn_tokens or self._most
        self.text = make_text(trainer)

    def run(self, prompts: list[str], at_once: int) -> list[TokenRow]:
        tasks = [self._environment.pack.task(prompt) for prompt in prompts]  # a wrong one before anything is opened
        waiting, live, rows = deque(task.id for task in tasks), list[TokenRow](), list[TokenRow]()
        episodes: list[Episode] = []
        try:
            while waiting or live:
                fresh = [waiting.popleft() for _ in range(min(len(waiting), at_once - len(live)))]
                started = event_loop.run(self._open(fresh, len(rows)))
                episodes += started
                opened = [TokenRow(episode, self._prompt(episode)) for episode in started]
                rows += opened
                live += opened
                live = self._round([row for row in live if row.episode.end is None])
        finally:
            event_loop.run(self._close(episodes))
        return rows

    async def _open(self, tasks: list[str], first: int) -> list[Episode]:
        """Episodes of one task in one step of the trainer are a group: they share what is drawn by simulation."""
        trainer, reset = self._trainer, self._environment.reset
        step = name_step(trainer)
        rank = trainer.accelerator.process_index  # ranks may share one store of replies
        starting = [
            reset(task, seed=self._seed, group=f"{step}/{task}", name=f"{step}/{rank}.{number}")
            for number, task in enumerate(tasks, first)
        ]
        opened = await asyncio.gather(*starting, return_exceptions=True)
        episodes = [episode for episode in opened if isinstance(episode, Episode)]
        for fault in opened:
            if isinstance(fault, BaseException):
                await asyncio.gather(*(episode.close() for episode in episodes))
                raise fault
        return episodes

    def _prompt(self, episode: Episode) -> list[int]:
        view = episode.view
        return self.text.opening(view.system, view.messages, view.tools)

    def _round(self, live: list[TokenRow]) -> list[TokenRow]:
        """One reply of each, and what the environment says to it. Returns those that go on."""
        rooms = {id(row): self._most - len(row.completion_ids) - len(row.pending) for row in live}
        speaking = [row for row in live if rooms[id(row)] > 0]
        full = [row for row in live if rooms[id(row)] <= 0]
        steps: list[Coroutine[Any, Any, Any]] = []
        if speaking:
            most = min(self._most_a_turn, max(rooms[id(row)] for row in speaking))
            replies = self._sample(self._trainer, [row.context for row in speaking], most)
            for row, (ids, logprobs) in zip(speaking, replies, strict=True):
                room = rooms[id(row)]
                steps.append(self.text.act(row, ids[:room], logprobs[:room]))
        steps += [row.episode.stop(Code.MAX_TOKENS) for row in full]
        event_loop.run_together(steps)
        return [row for row in speaking if row.episode.end is None]

    async def _close(self, episodes: list[Episode]) -> None:
        await asyncio.gather(*(episode.close() for episode in episodes))


def name_step(trainer: Any) -> str:
    """The trainer's step, the same when a run goes on from a checkpoint; evaluation's episodes are others than training's."""
    return f"{'' if trainer.model.training else 'eval-'}{trainer.state.global_step}"


def make_text(trainer: Any) -> ChatText:
    processing = trainer.processing_class
    tokenizer = getattr(processing, "tokenizer", processing)
    return ChatText(tokenizer, trainer.eos_token_ids, getattr(trainer, "chat_template_kwargs", None))


def sample_with_model(trainer: Any, contexts: list[list[int]], most: int) -> list[Sampled]:
    """Replies of the trainer's model by `generate`, with the trainer's temperature and filters; log-probabilities are of the
    distribution that was drawn from. Scores of a batch are kept for its turn: rows × `most` × vocabulary × 4 bytes at worst."""
    import torch  # type: ignore[import-not-found,unused-ignore]
    from trl.models import unwrap_model_for_generation  # type: ignore[import-not-found,unused-ignore]

    device = trainer.accelerator.device
    width = max(map(len, contexts))
    config = copy.deepcopy(trainer.generation_config)
    config.max_new_tokens, config.output_scores, config.return_dict_in_generate = most, True, True
    fill = config.pad_token_id
    ids = torch.tensor([[fill] * (width - len(context)) + context for context in contexts], device=device)
    seen = torch.tensor([[0] * (width - len(c)) + [1] * len(c) for c in contexts], device=device)
    kwargs = {**trainer.generation_kwargs, "max_new_tokens": most}
    unwrapped = unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator, generation_kwargs=kwargs)
    with unwrapped as model, torch.no_grad():
        out = model.generate(input_ids=ids, attention_mask=seen, generation_config=config)
    drawn = out.sequences[:, width:]
    each = [s.log_softmax(-1).gather(1, drawn[:, i : i + 1]) for i, s in enumerate(out.scores)]
    replies = [cut_after_end(ids, trainer.eos_token_ids) for ids in drawn.tolist()]
    return [(ids, row[: len(ids)]) for ids, row in zip(replies, torch.cat(each, dim=1).tolist(), strict=True)]
