"""Gradients of a batch of conversations, row by row: no padding is computed, and only the activations of one row are held at a time.

The prefix that all rows share goes through the model once. Each row attends to its keys and values; their accumulated gradients are
propagated back through the prefix at the end. `check.py` compares with whole rows. Runs in TRL's environment.
"""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from transformers import DynamicCache  # type: ignore[import-not-found,unused-ignore]


def add_gradients(model: Any, rows: list[tuple[list[int], list[int]]], shared: int) -> float:
    """Add the gradients of the mean loss of the trained tokens to those of the parameters, and return the loss.

    Args:
        model: A causal language model.
        rows: Ids and mask of each row; the mask is 1 where the token is trained.
        shared: How many ids all rows begin with.
    """
    where = next(model.parameters()).device
    total = sum(sum(mask[shared + 1 :]) for _, mask in rows)
    head = model.model(input_ids=torch.tensor([rows[0][0][:shared]], device=where), use_cache=True).past_key_values
    outputs = [part for layer in head.layers for part in (layer.keys, layer.values)]
    leaves = [part.detach().requires_grad_() for part in outputs]
    loss = 0.0
    for ids, mask in rows:
        cache = DynamicCache()
        for number in range(len(leaves) // 2):
            cache.update(leaves[2 * number], leaves[2 * number + 1], number)
        rest = torch.tensor([ids[shared:]], device=where)
        trained = torch.tensor(mask[shared + 1 :], device=where).bool()
        hidden = model.model(input_ids=rest, past_key_values=cache, use_cache=True)[0]
        logits = model.lm_head(hidden[0, :-1][trained])
        part = torch.nn.functional.cross_entropy(logits.float(), rest[0, 1:][trained], reduction="sum") / total
        part.backward()
        loss += float(part.detach())
    torch.autograd.backward(outputs, [leaf.grad for leaf in leaves])
    return loss
