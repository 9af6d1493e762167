"""RAGEN's context manager for agents with tools: token in, token out.

RAGEN's own context manager rewrites every prompt as text (one system line, `Turn 3: State: … Reward: …` as a user message, a forced
`<think>`) and parses the response by `<answer>` tags. For the update it renders and tokenises the conversation again, with a mask that is
off by one. Here an episode is a list of ids from the first prompt on: the chat template renders system text, tools and the environment's
messages, sampled ids are kept, and the row to train on has mask 1 on the sampled ids only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np  # type: ignore[import-not-found,unused-ignore]
import torch  # type: ignore[import-not-found,unused-ignore]
from ragen.llm_agent.ctx_manager import ContextManager  # type: ignore[import-not-found,unused-ignore]
from tensordict import TensorDict  # type: ignore[import-not-found,unused-ignore]
from verl import DataProto  # type: ignore[import-not-found,unused-ignore]

from simia import event_loop
from simia.envs.play.llm_agent import make_hermes_chat
from simia.errors import Code
from simia.trainers.ragen.env import SimiaEnv
from simia.trainers.ragen.rollout import CARRIED
from simia.trainers.ragen.settings import check_ragen_config, read_context_length
from simia.trainers.ragen.training_rows import average_metrics, collect_rows, fill_scores, normalize_scores
from simia.trainers.tokens import ChatText, cut_after_end, find_end_ids


class Context(ContextManager):  # type: ignore[misc,unused-ignore]
    """Raises `UserError` for a configuration that would silently train something else."""

    def __init__(self, config: Any, tokenizer: Any, processor: Any = None, mode: str = "train") -> None:
        check_ragen_config(config)
        super().__init__(config, tokenizer, processor, mode)
        self.mode = mode
        # Templates without thinking ignore this argument. If it is off, Qwen3's template writes an empty thinking block.
        thinking = {"enable_thinking": bool(config.agent_proxy.enable_think)}
        self.text = ChatText(tokenizer, find_end_ids(tokenizer), thinking)
        self.turn = int(config.actor_rollout_ref.rollout.response_length)
        self.room = read_context_length(config) - self.turn
        self.pad = int(tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id)

    def _init_prefix_lookup(self) -> None:
        """Leave out RAGEN's fixed texts: system text and tools are the episode's own."""
        self.prefix_lookup: dict[int, str] = {}
        self.env_config_lookup: dict[int, Any] = {}

    def get_lm_inputs(self, env_outputs: list[dict[str, Any]], prepare_for_update: bool) -> Any:
        """Return the contexts of the running episodes, at least one, as ids padded on the left."""
        if prepare_for_update:
            return self.formulate_rollouts(env_outputs)
        speaking = self.opened(env_outputs)
        lm_inputs = self._batch(self._padded([each[CARRIED].row.context for each in speaking]), speaking)
        if "model_info" in self.config:  # an evaluation with a model behind an API, which takes messages instead of ids
            chats = [make_hermes_chat(each[CARRIED].playing.view) for each in speaking]
            lm_inputs.non_tensor_batch["messages_list"] = np.fromiter(chats, dtype=object)
        return lm_inputs

    def get_env_inputs(self, lm_outputs: Any) -> list[dict[str, Any]]:
        """Return each whole response as an action. Texts (from RAGEN's wrappers for evaluation) are tokenised; ids are kept."""
        if lm_outputs.batch is not None and "responses" in lm_outputs.batch.keys():  # noqa: SIM118 - a TensorDict
            sampled = [cut_after_end(ids, self.text.end_ids) for ids in lm_outputs.batch["responses"].tolist()]
        else:
            texts = lm_outputs.non_tensor_batch["response_texts"]
            sampled = [[*self.tokenizer(t, add_special_tokens=False)["input_ids"], self.text.end_ids[0]] for t in texts]
        found = []
        for env_id, ids in zip(lm_outputs.non_tensor_batch["env_ids"], sampled, strict=True):
            said = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
            words = {"llm_raw_response": said, "llm_response": said, "actions": [said]}
            found.append({"env_id": env_id, "ids": ids, **words})
        return found

    def formulate_rollouts(self, env_outputs: list[dict[str, Any]]) -> Any:
        """Return the step's rows. Position j of every mask and score belongs to token j + 1, as the actor's log-probabilities do."""
        rows = collect_rows([each[CARRIED] for each in env_outputs], self.pad)
        groups = [each["group_id"] for each in env_outputs]
        scores = rows.scores if self.mode == "val" else rows.totals
        if self.mode == "val":  # RAGEN averages these as the reward; a missing one gets the mean of the others
            normal = fill_scores(scores, [0] * len(scores), math.nan)
        else:
            paid = [
                None if score is None else score + float(each["penalty"])
                for score, each in zip(scores, env_outputs, strict=True)
            ]
            normal = normalize_scores(paid, groups, self.config.agent_proxy.reward_normalization.method)
        tensors = self._padded(rows.ids)
        width = tensors["input_ids"].shape[1]
        mask = torch.tensor([[0] * (width - len(each)) + each for each in rows.mask])
        tensors |= {"loss_mask": mask[:, 1:].bool()}
        # RAGEN filters groups by the standard deviation of the original scores, so a missing one gets its group's mean.
        for name, values in (("rm_scores", normal), ("original_rm_scores", fill_scores(scores, groups))):
            tensors[name] = torch.zeros(len(values), width - 1)
            tensors[name][:, -1] = torch.tensor(values)
        if self.mode != "val" and self.config.agent_proxy.get("use_turn_scores", False):
            for number, place, reward in rows.list_turn_scores(width - 1):
                tensors["rm_scores"][number, place] += reward
                tensors["rm_scores"][number, -1] -= reward
        found = self._batch(tensors, env_outputs)
        found.meta_info = {"metrics": average_metrics(rows, [each["metrics"] for each in env_outputs])}
        return found

    def opened(self, env_outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the episodes with room for a turn. A new episode becomes ids here; one whose opening is too long is aborted."""
        envs: list[SimiaEnv] = [each[CARRIED] for each in env_outputs]
        fresh = [(env, env.opening(self.text, self.room)) for env in envs if env.row is None and not env.done]
        wanted = "no room for a turn: set actor_rollout_ref.rollout.max_model_len to at least {}"
        event_loop.run_together(
            env.cut(Code.MAX_TOKENS, wanted.format(len(row.prompt_ids) + self.turn))
            for env, row in fresh
            if env.overlong
        )
        return [each for each in env_outputs if not each[CARRIED].done]

    def _batch(self, tensors: dict[str, Any], env_outputs: Sequence[dict[str, Any]]) -> Any:
        found = DataProto()
        found.batch = TensorDict(tensors, batch_size=len(env_outputs))
        found.non_tensor_batch = {
            f"{kind}s": np.fromiter([each[kind] for each in env_outputs], dtype=object)
            for kind in ("env_id", "group_id")
        }
        return found

    def _padded(self, rows: Sequence[Sequence[int]]) -> dict[str, Any]:
        """Return RAGEN's four tensors. `responses` is all but the first token, as its trainer expects."""
        width = max(map(len, rows))
        ids = torch.tensor([[self.pad] * (width - len(row)) + list(row) for row in rows])
        seen = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        positions = (seen.cumsum(dim=-1) - 1).clamp(min=0)
        return {"input_ids": ids, "attention_mask": seen, "position_ids": positions, "responses": ids[:, 1:]}
