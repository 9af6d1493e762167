"""verl's agent loop over a simia environment: one episode a sample, token in and token out over all its turns.

verl finds it by the file that `rollout.agent.agent_loop_config_path` names (`simia train verl` writes it):

    - name: simia
      _target_: simia.trainers.verl.agent_loop.SimiaAgentLoop
      settings: simia.yaml  # a section `simia`: {stage: {pack: customer_service, backend: simulated, llm: {...}}, play: {...}}

and rows of the data set say `agent_name: simia` and the task in `extra_info.task`. What the policy sampled is trained as it
is (mask 1); what the environment said between has mask 0; an episode that the infrastructure aborted trains nothing. This
module is imported by verl's workers only: it needs verl.
"""

from __future__ import annotations

import asyncio
import logging
from functools import cache
from typing import Any
from uuid import uuid4

from omegaconf import OmegaConf  # type: ignore[import-not-found,unused-ignore]
from verl.experimental.agent_loop.agent_loop import (  # type: ignore[import-not-found,unused-ignore]
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)

from simia.config import parse, read
from simia.errors import UserError
from simia.trainers.tokens import Text
from simia.trainers.verl.groups import Groups, name_of
from simia.trainers.verl.play import Played, Player, PolicyLostError, Reply
from simia.trainers.verl.settings import VerlSettings
from simia.trainers.verl.stages import opened

log = logging.getLogger(__name__)
groups = Groups()  # of this process


class GroupLostError(RuntimeError):
    """All episodes of a group were aborted: verl marks the group as failed, and replaces it where it is told to."""


# Not verl's `register`: it would replace the file's entry by one without settings, once the first episode has imported this.
class SimiaAgentLoop(AgentLoopBase):  # type: ignore[misc,unused-ignore]
    """`settings`: the path of a file with `VerlSettings`, or these as a mapping."""

    def __init__(self, *args: Any, settings: Any = None, tools: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings = of_file(settings) if isinstance(settings, str) else of(mapping(settings), "settings")
        ends = self.settings.play.end_tokens
        end_ids = [self.tokenizer.convert_tokens_to_ids(token) for token in ends] if ends else None
        self.text = Text(self.tokenizer, end_ids, mapping(self.apply_chat_template_kwargs))
        self.stops = {"stop_token_ids": end_ids} if end_ids else {}

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput | list[AgentLoopOutput]:
        """One row of the data set. An empty list is a row that trains nothing (verl's current trainer takes it as that)."""
        task = task_of(row)
        key = str(row.get("uid", uuid4().hex))
        group, number = groups.join(key)
        reward: float | None = None
        try:
            await asyncio.sleep(0)  # the others of the group, which are started by now, join before this one can end
            environment = await opened(self.settings)
            step = row.get("global_steps")
            shared = name_of(None if step is None else int(step), mapping(row.get("extra_info")), key)
            session = int(row["session_id"]) if "session_id" in row else number
            limits = self.rollout_config.prompt_length, self.rollout_config.response_length
            player = Player(environment, self.tokenizer, self.text, self.settings.play, *limits)
            policy = Policy(self, sampling_params, row, f"{shared}/{row.get('index', 0)}/{session}")
            played = await player.play(
                policy.generate, task, seed=self.settings.stage.seed, group=shared, name=policy.name
            )
            reward = played.reward
        finally:
            groups.leave(key, group, reward)
        if reward is not None:
            return self._output(played, policy, sampling_params, reward, True)
        log.warning("task %s: %s", task, lost(played, self.rollout_config.prompt_length))
        if "session_id" in row:
            if group.left == group.members and not group.rewards:
                raise GroupLostError(f"task {task}: no episode of the group could be played: {lost(played, limits[0])}")
            return []
        await group.over.wait()
        return self._output(played, policy, sampling_params, group.mean, False)

    def _output(
        self, played: Played, policy: Policy, sampling_params: dict[str, Any], reward: float, trained: bool
    ) -> AgentLoopOutput:
        """In verl's form. It wants a token in every response, and a prompt that is not too long: one of an episode that trains
        nothing is the end token, masked."""
        row, filler = played.row, self.text.end_ids[0]
        ids, mask, logprobs = row.completion_ids, row.mask, row.logprobs
        if not ids:
            ids, mask, logprobs = [filler], [0], [0.0]
        logged = bool(sampling_params.get("logprobs")) and (played.logprobs or not trained)
        episode = row.episode
        facts = {
            "success": float(reward >= 1.0) if trained else 0.0,
            "agent_turns": float(row.turns),
            **{kind: float(played.end == kind) for kind in ("terminated", "truncated", "aborted", "unscored")},
            "attempts": float(played.attempts),
        }
        return AgentLoopOutput(
            prompt_ids=row.prompt_ids if played.fits else [filler],
            response_ids=ids,
            response_mask=mask if trained else [0] * len(mask),
            response_logprobs=logprobs if logged else None,
            routed_experts=policy.routed_experts,
            reward_score=reward,
            num_turns=len(episode.view.messages),
            metrics=AgentLoopMetrics(
                generate_sequences=played.policy_seconds,
                tool_calls=played.world_seconds,
                num_preempted=policy.preempted,
            ),
            extra_fields={
                "turn_scores": [],
                "tool_rewards": [],
                **policy.versions,
                "reward_extra_info": facts,
                "simia": {
                    "task": episode.task.id,
                    "end": played.end,
                    "code": str(episode.end.code) if episode.end else "",
                    "group": episode.group or "",
                },
            },
        )


class Policy:
    """verl's model server as the policy of one episode. Its requests have one name, so that one replica keeps their prefix."""

    def __init__(self, loop: SimiaAgentLoop, sampling_params: dict[str, Any], row: dict[str, Any], name: str) -> None:
        self._server = loop.server_manager
        self._params = {**sampling_params, **loop.stops}
        self._more = {"priority": int(row["priority"])} if "priority" in row else {}
        self.name = name
        self._request = name if getattr(loop.rollout_config, "full_determinism", False) else uuid4().hex
        self.routed_experts: Any = None
        self.preempted = -1
        self.versions: dict[str, Any] = {}
        """Of the weights that the episode was sampled with: `min_global_steps` and `max_global_steps`."""

    async def generate(self, context: list[int], most: int) -> Reply:
        output = await self._server.generate(
            request_id=self._request,
            prompt_ids=context,
            sampling_params={**self._params, "max_tokens": most},
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
        return Reply(list(output.token_ids), list(output.log_probs) if output.log_probs is not None else None)


def task_of(row: dict[str, Any]) -> str:
    task = mapping(row.get("extra_info")).get("task")
    if task is None:
        raise UserError("a row of the data set has no extra_info.task: write it by simia.trainers.verl.write")
    return str(task)


def lost(played: Played, prompt_length: int) -> str:
    """Why an episode trains nothing, in a line."""
    episode = played.row.episode
    detail = episode.issues[-1].detail if episode.issues else ""
    if not played.fits:
        return f"{detail}, more than data.max_prompt_length ({prompt_length}): raise it"
    code = episode.end.code if episode.end else "unknown"
    return f"{played.end} ({code}{': ' if detail else ''}{detail}) after {played.attempts} attempts"


def mapping(value: Any) -> dict[str, Any]:
    """A plain mapping of what comes as one, as OmegaConf's or not at all."""
    plain = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
    return dict(plain or {})


@cache
def of_file(path: str) -> VerlSettings:
    """Read once in a process: every sample makes an agent loop."""
    return of(read(path), path)


def of(settings: dict[str, Any], where: str) -> VerlSettings:
    return parse(VerlSettings, settings, where=where)
