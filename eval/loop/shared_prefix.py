"""Attention to a prefix that all rows of a batch share, which is computed only once.

Every episode begins with the same system text and tools, and a group of GRPO with the same request too. `share_prefix` makes the training
pass of a trainer compute each common prefix once; `prefix_sampler.py` samples with it. Both are mathematically equal to whole rows
(`control_check.py` compares them). Runs in TRL's environment, for Llama-like models.
"""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from student import common
from transformers import AttentionInterface, AttentionMaskInterface  # type: ignore[import-not-found,unused-ignore]
from transformers.integrations.sdpa_attention import sdpa_attention_forward  # type: ignore[import-not-found,unused-ignore]
from transformers.masking_utils import sdpa_mask  # type: ignore[import-not-found,unused-ignore]
from transformers.modeling_outputs import BaseModelOutputWithPast  # type: ignore[import-not-found,unused-ignore]

NAME = "shared_prefix"
LONG = 8
"""With more queries than this, each row gets a copy of the prefix's keys: torch's fused attention then needs no table of scores."""
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
    if length > LONG:
        parts = [part.expand(rows, -1, -1, -1) for part in prefix[module.layer_idx]]
        key, value = (torch.cat(pair, dim=2) for pair in zip(parts, (key, value), strict=True))
        mask = torch.nn.functional.pad(mask, (key.shape[2] - mask.shape[3], 0))
        return sdpa_attention_forward(module, query, key, value, mask, scaling=scaling, **given)
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
