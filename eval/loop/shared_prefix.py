"""Compute the prefix that all rows of a batch share only once, in sampling and in training.

Every episode begins with the same system text and tools, and a group of GRPO with the same request too. `SharedPrefixSampler` is a
`sample` for simia's `rollout_func`; `share_prefix` makes the training pass of a trainer compute each common prefix once. Both are
mathematically equal to whole rows (`control_check.py` compares them). Runs in TRL's environment, for Llama-like models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from student import common
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache  # type: ignore[import-not-found,unused-ignore]
from transformers.integrations.sdpa_attention import sdpa_attention_forward  # type: ignore[import-not-found,unused-ignore]
from transformers.masking_utils import sdpa_mask  # type: ignore[import-not-found,unused-ignore]
from transformers.modeling_outputs import BaseModelOutputWithPast  # type: ignore[import-not-found,unused-ignore]

from simia.trainers.tokens import cut_after_end

NAME = "shared_prefix"
Layers = list[tuple[Any, Any]]
"""Keys and values by layer, of one row."""


def attend(
    module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: float, prefix: Layers | None = None, **given: Any
) -> Any:
    """Attend to the whole `prefix`, which all rows share, and to the rows' own keys. `mask` is added to the scores of the own keys."""
    if prefix is None:
        return sdpa_attention_forward(module, query, key, value, mask, scaling=scaling, **given)
    groups = module.num_key_value_groups
    rows, heads, length, size = query.shape
    shared_key, shared_value = (part[0] for part in prefix[module.layer_idx])  # key heads × prefix × size
    kept = heads // groups
    query = query.reshape(rows, kept, groups * length, size)
    flat = query.transpose(0, 1).reshape(kept, rows * groups * length, size)
    far = (flat @ shared_key.transpose(1, 2)).view(kept, rows, groups * length, -1).transpose(0, 1)
    near = query @ key.transpose(2, 3)
    near = near.view(rows, kept, groups, length, -1) * scaling + mask[:, :, None]
    scores = torch.cat([far * scaling, near.view(rows, kept, groups * length, -1)], dim=-1)
    weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    beyond = shared_key.shape[1]
    flat = weights[..., :beyond].transpose(0, 1).reshape(kept, rows * groups * length, beyond)
    out = (flat @ shared_value).view(kept, rows, groups * length, size).transpose(0, 1)
    out = out + weights[..., beyond:] @ value
    return out.reshape(rows, heads, length, size).transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, sdpa_mask)


def make_mask(seen: Any, length: int, dtype: Any) -> Any:
    """Make an additive mask, rows × 1 × length × keys. The queries are at the last `length` keys; each attends to the `seen` keys up to
    its own."""
    keys = seen.shape[1]
    place = torch.arange(keys, device=seen.device)
    causal = place <= place[keys - length :, None]
    allowed = causal[None] & seen[:, None].bool()
    return torch.zeros(allowed.shape, dtype=dtype, device=seen.device).masked_fill(~allowed, torch.finfo(dtype).min)[
        :, None
    ]


def read_layers(cache: Any) -> Layers:
    return [(layer.keys, layer.values) for layer in cache.layers]


def share_prefix(model: Any) -> None:
    """Make the model's training pass compute the common prefix of a batch once, and skip padding that all rows have.

    Rows may be padded on the left and on the right, as TRL pads prompts and completions. Hidden states of padding are 0.
    """
    base = model.model
    plain = base.forward
    model.set_attn_implementation(NAME)

    def forward(input_ids: Any = None, attention_mask: Any = None, **given: Any) -> Any:
        batch = input_ids is not None and attention_mask is not None and torch.is_grad_enabled()
        if not batch or given.get("past_key_values") is not None:
            return plain(input_ids=input_ids, attention_mask=attention_mask, **given)
        rows, width = input_ids.shape
        begins = attention_mask.int().argmax(1)
        lengths = attention_mask.sum(1)
        shared = common([ids[b : b + n].tolist() for ids, b, n in zip(input_ids, begins, lengths, strict=True)])
        kwargs = {k: v for k, v in given.items() if k not in ("use_cache", "past_key_values", "position_ids")}
        start = int(begins[0])
        head = plain(input_ids=input_ids[:1, start : start + shared], use_cache=True, **kwargs)
        keys = read_layers(head.past_key_values)
        inside = torch.arange(shared, int(lengths.max()), device=input_ids.device)
        places = (begins[:, None] + inside).clamp(max=width - 1)
        mask = make_mask(inside < lengths[:, None], len(inside), keys[0][0].dtype)
        rest = input_ids.gather(1, places)
        tail = plain(
            input_ids=rest, attention_mask=mask, position_ids=inside[None], prefix=keys, use_cache=False, **kwargs
        )[0]
        aligned = torch.cat([head[0].expand(rows, -1, -1), tail], dim=1)
        back = torch.arange(width, device=input_ids.device) - begins[:, None]
        kept = (back >= 0) & (back < lengths[:, None])
        back = back.clamp(0, aligned.shape[1] - 1)[..., None].expand(-1, -1, aligned.shape[-1])
        return BaseModelOutputWithPast(last_hidden_state=aligned.gather(1, back) * kept[..., None])

    base.forward = forward


class SharedPrefixSampler:
    """Samples replies at temperature 1, or the likeliest tokens (`greedy`). The common prefix of all contexts is computed once in each
    step of the trainer, and the keys and values of each episode are kept from turn to turn."""

    def __init__(self, *, greedy: bool = False) -> None:
        self._greedy = greedy
        self._step: int | None = None
        self._head: list[int] = []
        self._prefix: Layers = []
        self._known: dict[tuple[int, ...], Layers] = {}

    def __call__(self, trainer: Any, contexts: list[list[int]], most: int) -> list[tuple[list[int], list[float]]]:
        if not self._greedy and trainer.args.temperature != 1.0:
            raise ValueError("SharedPrefixSampler draws at temperature 1")
        with torch.no_grad(), trainer.accelerator.autocast():
            self._begin(trainer, contexts)
            return self._draw(trainer.model, contexts, most, trainer.eos_token_ids)

    def _begin(self, trainer: Any, contexts: list[list[int]]) -> None:
        """Compute the common prefix with this step's weights, unless the prefix of an earlier call in this step still fits."""
        if self._step == trainer.state.global_step and all(c[: len(self._head)] == self._head for c in contexts):
            return
        self._step, self._known = trainer.state.global_step, {}
        self._head = contexts[0][: common(contexts)]
        ids = torch.tensor([self._head])
        self._prefix = read_layers(trainer.model.model(input_ids=ids, use_cache=True).past_key_values)

    def _draw(
        self, model: Any, contexts: list[list[int]], most: int, ends: Sequence[int]
    ) -> list[tuple[list[int], list[float]]]:
        head = len(self._head)
        known = [self._recall(tuple(context)) for context in contexts]
        self._known = {key: kept for key, kept in self._known.items() if all(kept is not used for _, used in known)}
        old = [length for length, _ in known]
        new = [context[head + length :] for context, length in zip(contexts, old, strict=True)]
        cache, seen = self._gather(known)
        width = max(map(len, new))
        ids = torch.tensor([[0] * (width - len(row)) + row for row in new])
        fresh = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in new])
        replies: list[list[int]] = [[] for _ in contexts]
        logprobs: list[list[float]] = [[] for _ in contexts]
        speaking = torch.ones(len(contexts), dtype=torch.long)
        places = head + torch.tensor(old)
        while True:
            seen = torch.cat([seen, fresh], dim=1)
            position = (places[:, None] + fresh.cumsum(1) - 1).clamp(min=0)
            mask = make_mask(seen, ids.shape[1], self._prefix[0][0].dtype)
            hidden = model.model(
                input_ids=ids, attention_mask=mask, position_ids=position, past_key_values=cache, use_cache=True,
                prefix=self._prefix,
            )[0]  # fmt: skip
            places = places + fresh.sum(1)
            if len(replies[0]) == most or not speaking.any():
                break
            scores = model.lm_head(hidden[:, -1]).float().log_softmax(-1)
            drawn = scores.argmax(-1, keepdim=True) if self._greedy else torch.multinomial(scores.exp(), 1)
            values = scores.gather(1, drawn)[:, 0].tolist()
            for row, token in enumerate(drawn[:, 0].tolist()):
                replies[row].append(token)
                logprobs[row].append(values[row])
            ids, fresh = drawn, speaking[:, None].clone()  # the end token goes through the model too
            speaking = speaking * torch.tensor([int(reply[-1] not in ends) for reply in replies])
        self._remember(contexts, [cut_after_end(reply, ends) for reply in replies], cache, seen)
        return [
            (reply, values[: len(reply)])
            for reply, values in zip((cut_after_end(r, ends) for r in replies), logprobs, strict=True)
        ]

    def _new_cache(self) -> Any:
        return DynamicCache()

    def _recall(self, context: tuple[int, ...]) -> tuple[int, Layers | None]:
        """Return (length, layers) of the longest part of a context after the common prefix whose keys are kept. At least one token is
        left to compute."""
        for end in range(len(context) - 1, len(self._head), -1):
            if context[:end] in self._known:
                return end - len(self._head), self._known[context[:end]]
        return 0, None

    def _gather(self, known: list[tuple[int, Layers | None]]) -> tuple[Any, Any]:
        """Return a cache of the rows' kept keys, padded on the left, and the mask of keys that are not padding."""
        width = max(length for length, _ in known)
        seen = torch.tensor([[0] * (width - length) + [1] * length for length, _ in known])
        cache = self._new_cache()
        if width:
            for layer, (like, _) in enumerate(self._prefix):
                keys = like.new_zeros((len(known), like.shape[1], width, like.shape[3]))
                values = torch.zeros_like(keys)
                for row, (length, kept) in enumerate(known):
                    if kept is not None:
                        keys[row, :, width - length :], values[row, :, width - length :] = kept[layer]
                cache.update(keys, values, layer)
        return cache, seen

    def _remember(self, contexts: list[list[int]], replies: list[list[int]], cache: Any, seen: Any) -> None:
        places = [row.nonzero()[:, 0] for row in seen.bool()]
        for row, (context, reply) in enumerate(zip(contexts, replies, strict=True)):
            kept = places[row][: len(context) - len(self._head) + len(reply)]
            layers = [(k[row, :, kept].clone(), v[row, :, kept].clone()) for k, v in read_layers(cache)]
            self._known[(*context, *reply)] = layers
