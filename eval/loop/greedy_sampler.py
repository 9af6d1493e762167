"""A faster greedy `SharedPrefixSampler`: replies that have ended leave the batch, and keys are stored in place.

Except for rounding, it gives the same replies as its parent class and as each context alone (`amplification_check.py` compares them).
Runs in TRL's environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from shared_prefix import Layers, SharedPrefixSampler, make_mask
from transformers import DynamicCache  # type: ignore[import-not-found,unused-ignore]
from transformers.cache_utils import DynamicLayer  # type: ignore[import-not-found,unused-ignore]

ROOM = 64  # tokens that a layer's buffer grows by
SHARE = 0.25  # share of the batch that must have ended before ended rows are removed


class GrowingLayer(DynamicLayer):  # type: ignore[misc,unused-ignore]
    """Keys and values in a buffer with spare space, so that they are not copied for every token."""

    def update(self, keys: Any, values: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
        used = self.keys.shape[2] if self.is_initialized else 0
        end = used + keys.shape[2]
        if not self.is_initialized or end > self._buffers[0].shape[2]:
            old = (self.keys, self.values) if self.is_initialized else None
            rows, heads, _, size = keys.shape
            self._buffers = [keys.new_empty((rows, heads, end + ROOM, size)) for _ in range(2)]
            for buffer, kept in zip(self._buffers, old or (), strict=False):
                buffer[:, :, :used] = kept
            self.is_initialized = True
        for buffer, new in zip(self._buffers, (keys, values), strict=True):
            buffer[:, :, used:end] = new
        self.keys, self.values = (buffer[:, :, :end] for buffer in self._buffers)
        return self.keys, self.values

    def select(self, rows: Any) -> None:
        """Keep these rows of the batch."""
        end = self.keys.shape[2]
        self._buffers = [buffer.index_select(0, rows) for buffer in self._buffers]
        self.keys, self.values = (buffer[:, :, :end] for buffer in self._buffers)


class GreedySampler(SharedPrefixSampler):
    """Samples the likeliest tokens."""

    def __init__(self) -> None:
        super().__init__(greedy=True)

    def _new_cache(self) -> Any:
        cache = DynamicCache()
        cache.layers = [GrowingLayer() for _ in self._prefix]
        return cache

    def _draw(
        self, model: Any, contexts: list[list[int]], most: int, ends: Sequence[int]
    ) -> list[tuple[list[int], list[float]]]:
        head = len(self._head)
        known = [self._recall(tuple(context)) for context in contexts]
        self._known = {}
        old = [length for length, _ in known]
        new = [context[head + length :] for context, length in zip(contexts, old, strict=True)]
        cache, seen = self._gather(known)
        width = max(map(len, new))
        ids = torch.tensor([[0] * (width - len(row)) + row for row in new])
        fresh = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in new])
        places = head + torch.tensor(old)
        batch = list(range(len(contexts)))  # row of the batch → context
        replies: list[list[int]] = [[] for _ in contexts]
        ended = [False] * len(contexts)
        while True:
            seen = torch.cat([seen, fresh], dim=1)
            position = (places[:, None] + fresh.cumsum(1) - 1).clamp(min=0)
            mask = make_mask(seen, ids.shape[1], self._prefix[0][0].dtype)
            hidden = model.model(
                input_ids=ids, attention_mask=mask, position_ids=position, past_key_values=cache, use_cache=True,
                prefix=self._prefix,
            )[0]  # fmt: skip
            places = places + fresh.sum(1)
            chosen = model.lm_head(hidden[:, -1]).argmax(-1)
            for context, token in zip(batch, chosen.tolist(), strict=True):
                if not ended[context]:
                    replies[context].append(token)
                    ended[context] = token in ends or len(replies[context]) == most
            stay = [row for row, context in enumerate(batch) if not ended[context]]
            if not stay or len(stay) <= (1 - SHARE) * len(batch):
                left = [row for row, context in enumerate(batch) if ended[context]]
                self._store([(contexts[batch[row]], replies[batch[row]], row) for row in left], cache, seen)
                if not stay:
                    return [(reply, [0.0] * len(reply)) for reply in replies]
                kept = torch.tensor(stay)
                for layer in cache.layers:
                    layer.select(kept)
                batch, seen, places, chosen = [batch[row] for row in stay], seen[kept], places[kept], chosen[kept]
            ids = chosen[:, None]
            fresh = torch.tensor([[int(not ended[context])] for context in batch])

    def _store(self, rows: list[tuple[list[int], list[int], int]], cache: Any, seen: Any) -> None:
        """Keep keys and values of contexts with their replies. The last token of a reply was not computed."""
        for context, reply, row in rows:
            places = seen[row].bool().nonzero()[:, 0]
            layers: Layers = [(layer.keys[row, :, places], layer.values[row, :, places]) for layer in cache.layers]
            self._known[(*context, *reply[:-1])] = layers
