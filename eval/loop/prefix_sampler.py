"""Samples replies to contexts that begin alike: a `sample` for simia's `rollout_func`.

The common prefix of all contexts is computed once in each step of the trainer, equal contexts are computed once, the keys and values of
each episode are kept from turn to turn, and replies that have ended leave the batch. Except for rounding, this changes no probability
(`control_check.py` and `amplification_check.py` compare with each context alone). Runs in TRL's environment, for models with `share_prefix`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from shared_prefix import Layers, make_mask, read_layers
from student import common
from transformers import DynamicCache  # type: ignore[import-not-found,unused-ignore]
from transformers.cache_utils import DynamicLayer  # type: ignore[import-not-found,unused-ignore]

SPARE = 64  # tokens that a layer's buffer grows by
SHARE = 0.25  # share of the batch that must have ended before ended rows are removed


class GrowingLayer(DynamicLayer):  # type: ignore[misc,unused-ignore]
    """Keys and values in a buffer with spare space, so that they are not copied for every token."""

    def update(self, keys: Any, values: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
        used = self.keys.shape[2] if self.is_initialized else 0
        end = used + keys.shape[2]
        if not self.is_initialized or end > self._buffers[0].shape[2]:
            old = (self.keys, self.values) if self.is_initialized else None
            rows, heads, _, size = keys.shape
            self._buffers = [keys.new_empty((rows, heads, end + SPARE, size)) for _ in range(2)]
            for buffer, kept in zip(self._buffers, old or (), strict=False):
                buffer[:, :, :used] = kept
            self.is_initialized = True
        for buffer, new in zip(self._buffers, (keys, values), strict=True):
            buffer[:, :, used:end] = new
        self.keys, self.values = (buffer[:, :, :end] for buffer in self._buffers)
        return self.keys, self.values

    def select(self, rows: Any) -> None:
        """Keep these rows of the batch, some of them several times."""
        end = self.keys.shape[2]
        self._buffers = [buffer.index_select(0, rows) for buffer in self._buffers]
        self.keys, self.values = (buffer[:, :, :end] for buffer in self._buffers)


def sample_tokens(logprobs: Any) -> Any:
    """Sample a token for each row of log-probabilities, rows × tokens. `torch.multinomial` needs a random number for each token of the
    vocabulary, this function one for each row."""
    sums = logprobs.exp().cumsum_(-1)
    drawn = torch.rand(len(sums), 1) * sums[:, -1:]
    return torch.searchsorted(sums, drawn, right=True)[:, 0].clamp_(max=sums.shape[1] - 1)


class PrefixSampler:
    """Samples replies at temperature 1, or the likeliest tokens (`greedy`, whose log-probabilities are given as 0)."""

    def __init__(self, *, greedy: bool = False) -> None:
        self._greedy = greedy
        self._step: int | None = None
        self._head: list[int] = []
        self._prefix: Layers = []
        self._known: dict[tuple[int, ...], Layers] = {}

    def __call__(self, trainer: Any, contexts: list[list[int]], most: int) -> list[tuple[list[int], list[float]]]:
        if not self._greedy and trainer.args.temperature != 1.0:
            raise ValueError("PrefixSampler samples only at temperature 1")
        with torch.no_grad(), trainer.accelerator.autocast():
            self._begin(trainer, contexts)
            return self._sample(trainer.model, contexts, most, trainer.eos_token_ids)

    def _begin(self, trainer: Any, contexts: list[list[int]]) -> None:
        """Compute the common prefix with this step's weights, unless the prefix of an earlier call in this step still fits."""
        if self._step == trainer.state.global_step and all(c[: len(self._head)] == self._head for c in contexts):
            return
        self._step, self._known = trainer.state.global_step, {}
        self._head = contexts[0][: common(contexts)]
        ids = torch.tensor([self._head])
        self._prefix = read_layers(trainer.model.model(input_ids=ids, use_cache=True).past_key_values)

    def _sample(
        self, model: Any, contexts: list[list[int]], most: int, ends: Sequence[int]
    ) -> list[tuple[list[int], list[float]]]:
        head = len(self._head)
        places_of = {context: n for n, context in enumerate(dict.fromkeys(map(tuple, contexts)))}
        known = [self._recall(context) for context in places_of]
        self._known = {}
        old = [length for length, _ in known]
        new = [list(context[head + length :]) for context, length in zip(places_of, old, strict=True)]
        cache, seen = self._gather(known)
        width = max(map(len, new))
        ids = torch.tensor([[0] * (width - len(row)) + row for row in new])
        fresh = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in new])
        places = head + torch.tensor(old)
        batch = list(range(len(contexts)))  # row of the batch → context, once equal contexts have a row each
        copies = torch.tensor([places_of[tuple(context)] for context in contexts])
        replies: list[list[int]] = [[] for _ in contexts]
        logprobs: list[list[float]] = [[] for _ in contexts]
        ended = [False] * len(contexts)
        while True:
            seen = torch.cat([seen, fresh], dim=1)
            position = (places[:, None] + fresh.cumsum(1) - 1).clamp(min=0)
            mask = make_mask(seen, ids.shape[1], self._prefix[0][0].dtype)
            hidden = model.model(
                input_ids=ids, attention_mask=mask, position_ids=position, past_key_values=cache, use_cache=True,
                prefix=self._prefix,
            )[0][:, -1]  # fmt: skip
            places = places + fresh.sum(1)
            if not any(replies) and len(places_of) < len(contexts):
                hidden, seen, places = hidden[copies], seen[copies], places[copies]
                for layer in cache.layers:
                    layer.select(copies)
            chosen, values = self._choose(model.lm_head(hidden))
            for context, token, value in zip(batch, chosen.tolist(), values, strict=True):
                if not ended[context]:
                    replies[context].append(token)
                    logprobs[context].append(value)
                    ended[context] = token in ends or len(replies[context]) == most
            stay = [row for row, context in enumerate(batch) if not ended[context]]
            if not stay or len(stay) <= (1 - SHARE) * len(batch):
                left = [row for row, context in enumerate(batch) if ended[context]]
                self._store([(contexts[batch[row]], replies[batch[row]], row) for row in left], cache, seen)
                if not stay:
                    return list(zip(replies, logprobs, strict=True))
                kept = torch.tensor(stay)
                for layer in cache.layers:
                    layer.select(kept)
                batch, seen, places, chosen = [batch[row] for row in stay], seen[kept], places[kept], chosen[kept]
            ids = chosen[:, None]
            fresh = torch.tensor([[int(not ended[context])] for context in batch])

    def _choose(self, logits: Any) -> tuple[Any, list[float]]:
        """Choose a token for each row of logits, and return their log-probabilities too."""
        if self._greedy:
            return logits.argmax(-1), [0.0] * len(logits)
        known = logits.float().log_softmax(-1)
        drawn = sample_tokens(known)
        return drawn, known.gather(1, drawn[:, None])[:, 0].tolist()

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
        cache = DynamicCache()
        cache.layers = [GrowingLayer() for _ in self._prefix]
        if width:
            for layer, (like, _) in enumerate(self._prefix):
                keys = like.new_zeros((len(known), like.shape[1], width, like.shape[3]))
                values = torch.zeros_like(keys)
                for row, (length, kept) in enumerate(known):
                    if kept is not None:
                        keys[row, :, width - length :], values[row, :, width - length :] = kept[layer]
                cache.update(keys, values, layer)
        return cache, seen

    def _store(self, rows: list[tuple[list[int], list[int], int]], cache: Any, seen: Any) -> None:
        """Keep keys and values of contexts with their replies. The last token of a reply was not computed."""
        for context, reply, row in rows:
            places = seen[row].bool().nonzero()[:, 0]
            layers: Layers = [(layer.keys[row, :, places], layer.values[row, :, places]) for layer in cache.layers]
            self._known[(*context, *reply[:-1])] = layers
