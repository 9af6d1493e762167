"""verl's agent loop over a simia environment: one episode a sample, token in and token out over all its turns.

verl finds it through the file named in `rollout.agent.agent_loop_config_path`, which `simia train verl` writes:

    - name: simia
      _target_: simia.trainers.verl.agent_loop.SimiaAgentLoop
      settings: simia.yaml  # a section `simia`: {stage: {pack: customer_service, backend: simulated, llm: {...}}, play: {...}}

Rows of the data set have `agent_name: simia` and the task in `extra_info.task`. Sampled ids are trained on as they are (mask 1), and the
environment's ids between them have mask 0. An aborted episode gives no row, which only verl's current trainer supports
(`trainer.use_v1: true`). This module needs verl, so only verl's workers import it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import transfer_queue  # type: ignore[import-not-found,unused-ignore]
from omegaconf import OmegaConf  # type: ignore[import-not-found,unused-ignore]
from pydantic import Field
from verl.experimental.agent_loop.agent_loop import (  # type: ignore[import-not-found,unused-ignore]
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)
from verl.utils.config import omega_conf_to_dataclass  # type: ignore[import-not-found,unused-ignore]

from simia.config import parse_config, read_config_file
from simia.errors import UserError
from simia.statistics import SUCCESS
from simia.terminal import clean, write_count
from simia.trainers.tokens import CallForm, ChatText, find_end_ids
from simia.trainers.verl.episode_keeping import keep_played
from simia.trainers.verl.play import PlayedEpisode, PolicyLostError, PolicyPlayer, PolicyReply
from simia.trainers.verl.settings import VerlSettings
from simia.trainers.verl.worker_state import (
    EpisodeGroup,
    append_note,
    choose_settings,
    get_environment,
    groups,
    name_group,
    take_place,
)

log = logging.getLogger(__name__)
contexts: dict[str, int | None] = {}  # path of a model → its context length


class GroupLostError(RuntimeError):
    """A group that cannot be trained on: verl marks it as failed, and replaces it if configured to."""


# Not registered with verl's `register`: at the import, it would replace the file's entry by one without settings.
class SimiaAgentLoop(AgentLoopBase):  # type: ignore[misc,unused-ignore]
    """`settings`: path of a file with `VerlSettings`, or a mapping of them. The outcome of each group is written to `groups/`, beside
    the file."""

    def __init__(self, *args: Any, settings: Any = None, tools: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings = (
            read_settings(settings)
            if isinstance(settings, str)
            else parse_config(VerlSettings, to_mapping(settings), where="settings")
        )
        self.notes = Path(settings).parent / "groups" if isinstance(settings, str) else None
        self.template = json.dumps(to_mapping(self.apply_chat_template_kwargs), sort_keys=True)
        config = self.rollout_config
        self.limits = config.prompt_length, config.response_length, find_context_length(self.config)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[AgentLoopOutput]:
        """Play one row of the data set. An empty list trains nothing.

        Raises `GroupLostError` once for a lost group, and `UserError`, which ends the training.
        """
        if "session_id" not in row:
            raise UserError("verl's older trainer cannot leave out aborted episodes: set trainer.use_v1=true")
        extra, key = to_mapping(row.get("extra_info")), str(row.get("uid", uuid4().hex))
        if extra.get("task") is None:
            raise UserError(
                "a row of the data set has no extra_info.task: write it with simia.trainers.verl.write_tasks"
            )
        task, settings = str(extra["task"]), choose_settings(self.settings, extra)
        step = None if row.get("global_steps") is None else int(row["global_steps"])
        name = name_group(step, extra, key)
        group = groups.join(key, trains=not extra.get("validates"))
        played, why = None, ""
        policy = Policy(self, sampling_params, row, f"{name}/{row.get('index', 0)}/{int(row['session_id'])}")
        try:
            await asyncio.sleep(0)  # let the group's other episodes join before this one can end
            environment, play = await get_environment(settings), settings.play
            if step is not None:
                environment.note_training_step(step)
            text = make_text(self.tokenizer, tuple(play.end_tokens), self.template, settings.calls)
            policy.params["stop_token_ids"] = text.end_ids  # the server must end a turn at the same tokens
            async with take_place(settings):
                player = PolicyPlayer(environment, self.tokenizer, text, play, *self.limits)
                seed = settings.stage.seed
                played = await player.play(policy.generate, task, seed=seed, group=name, name=policy.name)
            await self._keep(played, row, step, validates=bool(extra.get("validates")))
        except UserError as mistake:
            await end_training(str(mistake), step)
            raise
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise
        finally:
            reward = played.row.outcome if played is not None else None
            why = why if played is None or reward is not None else explain_lost(played)
            if groups.leave(key, group, reward, played.end if played is not None else "failed"):
                await self._finish_group(name, step, task, group, why)
        if why:
            log.warning("task %s: %s", clean(str(task)), clean(why))
        await group.over.wait()
        if group.usable(str(self.config.algorithm.adv_estimator)):
            validates = bool(extra.get("validates"))
            return [] if reward is None else [self._output(played, policy, sampling_params, validates)]
        if group.told:
            return []
        group.told = True
        scored = f"{len(group.known)} of {group.members} episodes of the group have a reward"
        raise GroupLostError(f"task {task}: {scored}: {', '.join(group.ends)}{f'; {why}' if why else ''}")

    async def _keep(self, played: PlayedEpisode, row: dict[str, Any], step: int | None, *, validates: bool) -> None:
        """Write the episode to the training's run."""
        model = str(self.config.actor_rollout_ref.model.path)
        place = str(row.get("index", 0)) if step is not None else str(row.get("uid"))
        await asyncio.to_thread(
            keep_played,
            self.settings.episodes,
            self.notes.parents[1] if self.notes is not None else None,
            played,
            step=step,
            name=f"{place}.{int(row['session_id'])}",
            validates=validates,
            facts={"model": model, "pack": self.settings.stage.pack},
        )

    async def _finish_group(self, name: str, step: int | None, task: str, group: EpisodeGroup, why: str) -> None:
        """Record an ended group. End the training if too many consecutive groups had no reward."""
        if self.notes is not None:
            try:
                kept = self.settings.episodes
                append_note(self.notes, name, step, task, group, kept.start if kept is not None else "")
            except OSError as error:
                log.warning("the outcome of group %s could not be written: %s", name, error)
        most = self.settings.play.lost_groups
        if most is not None and group.trains and groups.lost >= most:
            await end_training(f"no reward in {write_count(groups.lost, 'group')} in a row; the last: {why}", step)

    def _output(
        self, played: PlayedEpisode, policy: Policy, sampling_params: dict[str, Any], validates: bool
    ) -> AgentLoopOutput:
        """Return the episode in verl's form. A validation reports the outcome, without rewards of single turns."""
        row, episode = played.row, played.row.episode
        outcome = row.outcome or 0.0
        reward, step_rewards = (outcome, {}) if validates else (row.reward, row.step_rewards)
        steps = list(episode.reward.steps) if episode.reward is not None else []
        logged = bool(sampling_params.get("logprobs")) and played.logprobs
        facts = {"success": outcome >= SUCCESS, "agent_turns": row.turns, "attempts": played.attempts}
        facts |= {end: played.end == end for end in ("terminated", "truncated")}
        code = str(episode.end.code) if episode.end else ""
        seconds = {"generate_sequences": played.policy_seconds, "tool_calls": played.world_seconds}
        metrics = AgentLoopMetrics(**seconds, num_preempted=policy.preempted)
        return TurnRewardOutput(
            prompt_ids=row.prompt_ids,
            response_ids=row.completion_ids,
            response_mask=row.mask,
            response_logprobs=row.logprobs if logged else None,
            routed_experts=policy.routed_experts,
            reward_score=reward,
            num_turns=len(episode.view.messages),
            metrics=metrics,
            step_rewards=step_rewards,
            extra_fields={
                "turn_scores": steps,
                "tool_rewards": [],
                **policy.versions,
                "reward_extra_info": {name: float(value) for name, value in facts.items()},
                "simia": {"task": episode.task.id, "end": played.end, "code": code, "group": episode.group or ""},
            },
        )


class TurnRewardOutput(AgentLoopOutput):  # type: ignore[misc,unused-ignore]
    """An episode with rewards of single turns. verl puts `reward_score` on the last id. Here each turn's share of it is moved to the end of
    that turn, so that a token-level estimator (`gae`, `reinforce_plus_plus`) credits the turn. The sum stays the same."""

    step_rewards: dict[int, float] = Field(default_factory=dict)
    """Index in the response → reward of the turn that ends there."""

    def as_dict(self) -> dict[str, Any]:
        """Return verl's fields, with the turns' rewards in `rm_scores`."""
        found: dict[str, Any] = super().as_dict()
        for place, reward in found.pop("step_rewards", {}).items():
            found["rm_scores"][place] += reward
            found["rm_scores"][-1] -= reward
        return found


class Policy:
    """verl's model server as the policy of one episode. Its requests share one id, so that the same replica serves them and caches their prefix."""

    def __init__(self, loop: SimiaAgentLoop, sampling_params: dict[str, Any], row: dict[str, Any], name: str) -> None:
        self._server = loop.server_manager
        self.params = dict(sampling_params)
        self._more = {"priority": int(row["priority"])} if "priority" in row else {}
        self.name = name
        self._request = name if getattr(loop.rollout_config, "full_determinism", False) else uuid4().hex
        self.routed_experts: Any = None
        self.preempted = -1
        self.versions: dict[str, Any] = {}
        """First and last version of the weights that sampled the episode: `min_global_steps` and `max_global_steps`."""

    async def generate(self, context: list[int], most: int) -> PolicyReply:
        output = await self._server.generate(
            request_id=self._request,
            prompt_ids=context,
            sampling_params={**self.params, "max_tokens": most},
            **self._more,
        )
        if output.stop_reason in ("abort", "aborted"):
            raise PolicyLostError("the server aborted the request")
        self.routed_experts = output.routed_experts
        if output.num_preempted is not None:
            self.preempted = max(self.preempted, 0) + output.num_preempted
        found = output.extra_fields
        self.versions.setdefault("min_global_steps", found.get("min_global_steps"))
        self.versions["max_global_steps"] = found.get("max_global_steps")
        return PolicyReply(list(output.token_ids), list(output.log_probs) if output.log_probs is not None else None)


def explain_lost(played: PlayedEpisode) -> str:
    """Return in a line why an episode is not trained on."""
    episode = played.row.episode
    detail = episode.issues[-1].detail if episode.issues else ""
    if not played.fits:
        return detail
    code = episode.end.code if episode.end else "unknown"
    return f"{played.end} ({code}{': ' if detail else ''}{detail}) after {write_count(played.attempts, 'attempt')}"


async def end_training(why: str, step: int | None) -> None:
    """End the training from a worker. An error in a worker only fails its group, which verl may replace again and again.

    verl's trainer reads the status of every group and raises an error for an unknown one: `ValueError: Unknown status: simia: …`.
    """
    why = clean(why)
    tag = {"is_prompt": True, "status": f"simia: {why}", "global_steps": step or 0}
    log.error("the training is stopped: %s", why)
    try:
        await transfer_queue.async_kv_put(key="simia", partition_id="train", tag=tag)
    except Exception:
        log.exception("verl's trainer could not be stopped")


def find_context_length(config: Any) -> int | None:
    """Return the context length of verl's servers: the rollout's `max_model_len`, else the model's own."""
    most, path = config.actor_rollout_ref.rollout.get("max_model_len"), str(config.actor_rollout_ref.model.path)
    if most is None:
        if path not in contexts:
            model = omega_conf_to_dataclass(config.actor_rollout_ref.model).hf_config
            found = [
                getattr(one, "max_position_embeddings", None) for one in (model, getattr(model, "text_config", None))
            ]
            contexts[path] = found[0] or found[1]
        most = contexts[path]
    # SGLang reserves one token
    return most if most is None else int(most) - (config.actor_rollout_ref.rollout.name == "sglang")


@cache
def make_text(tokenizer: Any, ends: tuple[str, ...], template: str, calls: CallForm = "template") -> ChatText:
    """Make the converter once in a process, since it caches facts about the template. `template`: arguments of the chat template, as JSON."""
    ids = [tokenizer.convert_tokens_to_ids(token) for token in ends]
    for token, number in zip(ends, ids, strict=True):
        if number is None or number == tokenizer.unk_token_id:
            raise UserError(f"simia.play.end_tokens: the model's tokenizer has no token {token!r}")
    return ChatText(tokenizer, ids or find_end_ids(tokenizer), json.loads(template), calls)


def to_mapping(value: Any) -> dict[str, Any]:
    """Convert a mapping, OmegaConf's mapping or None to a dict."""
    plain = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
    return dict(plain or {})


@cache
def read_settings(path: str) -> VerlSettings:
    """Read the settings once in a process, since verl makes an agent loop for every sample."""
    return parse_config(VerlSettings, read_config_file(path), where=path)
