"""RAGEN's context manager for agents with tools: token in, token out.

The stock one rewrites every prompt as text (one system line, `Turn 3: State: … Reward: …` in the user's name, a forced
`<think>`), takes the response apart by `<answer>` tags, and for the update writes the conversation once more, tokenises it again and
marks every other turn by its start token, one place off. Here an episode is ids from its first prompt on: the chat template writes
system text, tools and what the environment says; a response's ids are kept as they were sampled, and the row that is trained on is
these ids, with mask 1 on the sampled ones and nowhere else.
"""

from __future__ import annotations

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
from simia.trainers.ragen.batch import (
    average_metrics,
    collect_rows,
    fill_scores,
    fill_validation_scores,
    normalize_scores,
)
from simia.trainers.ragen.checks import check_ragen_config, read_context_length
from simia.trainers.ragen.env import SimiaEnv
from simia.trainers.ragen.manager import CARRIED
from simia.trainers.tokens import ChatText, cut_after_end, find_end_ids


class Context(ContextManager):  # type: ignore[misc,unused-ignore]
    """Raises `UserError` for a configuration that would not train what it says."""

    def __init__(self, config: Any, tokenizer: Any, processor: Any = None, mode: str = "train") -> None:
        check_ragen_config(config)
        super().__init__(config, tokenizer, processor, mode)
        self.mode = mode
        # Templates that know no thinking ignore the word; Qwen3's writes an empty block where it is off.
        thinking = {"enable_thinking": bool(config.agent_proxy.enable_think)}
        self.text = ChatText(tokenizer, find_end_ids(tokenizer), thinking)
        self.turn = int(config.actor_rollout_ref.rollout.response_length)
        self.room = read_context_length(config) - self.turn
        self.pad = int(tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id)

    def _init_prefix_lookup(self) -> None:
        """None of RAGEN's fixed texts: system text and tools are the episode's own."""
        self.prefix_lookup: dict[int, str] = {}
        self.env_config_lookup: dict[int, Any] = {}

    def get_lm_inputs(self, env_outputs: list[dict[str, Any]], prepare_for_update: bool) -> Any:
        """The contexts of these episodes, as ids padded on the left; of at least one that is not over."""
        if prepare_for_update:
            return self.formulate_rollouts(env_outputs)
        speaking = self.opened(env_outputs)
        contexts = [each[CARRIED].row.context for each in speaking]
        lm_inputs = DataProto()
        lm_inputs.batch = TensorDict(self._padded(contexts), batch_size=len(contexts))
        lm_inputs.non_tensor_batch = {
            "env_ids": make_object_array([each["env_id"] for each in speaking]),
            "group_ids": make_object_array([each["group_id"] for each in speaking]),
        }
        if "model_info" in self.config:  # an evaluation by an API's model, which takes messages and no ids
            chats = [make_hermes_chat(each[CARRIED].playing.view) for each in speaking]
            lm_inputs.non_tensor_batch["messages_list"] = make_object_array(chats)
        return lm_inputs

    def get_env_inputs(self, lm_outputs: Any) -> list[dict[str, Any]]:
        """The whole response is the action. Text, from RAGEN's wrappers for evaluation, is tokenised; ids stay what they are."""
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
        """The step's rows. Position j of every mask and score belongs to token j + 1, as the actor's log-probabilities do."""
        envs: list[SimiaEnv] = [each[CARRIED] for each in env_outputs]
        rows = collect_rows(envs, self.pad)
        groups = [each["group_id"] for each in env_outputs]
        penalties = [float(each["penalty"]) for each in env_outputs]
        if self.mode == "val":
            normal = fill_validation_scores(rows.scores, penalties)
        else:
            normal = normalize_scores(
                rows.scores, penalties, groups, self.config.agent_proxy.reward_normalization.method
            )
        tensors = self._padded(rows.ids)
        width = tensors["input_ids"].shape[1]
        mask = torch.tensor([[0] * (width - len(each)) + each for each in rows.mask])
        scores, plain_scores = torch.zeros(len(envs), width - 1), torch.zeros(len(envs), width - 1)
        scores[:, -1], plain_scores[:, -1] = torch.tensor(normal), torch.tensor(fill_scores(rows.scores, groups))
        tensors |= {"loss_mask": mask[:, 1:].bool(), "rm_scores": scores, "original_rm_scores": plain_scores}
        found = DataProto()
        found.batch = TensorDict(tensors, batch_size=len(envs))
        found.non_tensor_batch = {
            "env_ids": make_object_array([each["env_id"] for each in env_outputs]),
            "group_ids": make_object_array(groups),
        }
        found.meta_info = {"metrics": average_metrics(rows, [each["metrics"] for each in env_outputs])}
        return found

    def opened(self, env_outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Those with room for a turn. A new episode becomes ids here; one whose opening is too long is lost."""
        envs: list[SimiaEnv] = [each[CARRIED] for each in env_outputs]
        fresh = [env for env in envs if env.row is None and not env.done]
        rows = {id(env): env.opening(self.text, self.room) for env in fresh}
        full = [env for env in fresh if env.overlong]
        wanted = "no room for a turn: set actor_rollout_ref.rollout.max_model_len to at least {}"
        event_loop.run_together(
            env.cut(Code.MAX_TOKENS, wanted.format(len(rows[id(env)].prompt_ids) + self.turn)) for env in full
        )
        return [each for each in env_outputs if not each[CARRIED].done]

    def _padded(self, rows: Sequence[Sequence[int]]) -> dict[str, Any]:
        """RAGEN's four tensors. `responses` is all but the first token, as its trainer wants it."""
        width = max(map(len, rows))
        ids = torch.tensor([[self.pad] * (width - len(row)) + list(row) for row in rows])
        seen = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        positions = (seen.cumsum(dim=-1) - 1).clamp(min=0)
        return {"input_ids": ids, "attention_mask": seen, "position_ids": positions, "responses": ids[:, 1:]}


def make_object_array(values: Sequence[Any]) -> Any:
    """One dimension, whatever the values are: numpy makes a matrix of lists of one length."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
