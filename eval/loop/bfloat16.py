"""Matrix products in bfloat16, on processors with and without instructions for it. Runs in TRL's environment.

Without such instructions torch multiplies bfloat16 at an eighth of the speed of float32 (AVX2, 8 against 60 GFLOP per CPU second). In that
case, the operands and results of each product are rounded to bfloat16, and the product is computed in float32. This equals a bfloat16
instruction, which sums in float32. Weights, optimizer and everything between the products are then float32.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from transformers import AttentionInterface, AttentionMaskInterface  # type: ignore[import-not-found,unused-ignore]
from transformers.integrations.sdpa_attention import sdpa_attention_forward  # type: ignore[import-not-found,unused-ignore]
from transformers.masking_utils import sdpa_mask  # type: ignore[import-not-found,unused-ignore]

ATTENTION = "rounded_sdpa"


def is_native(device: str) -> bool:
    """Whether the device multiplies bfloat16 at least as fast as float32."""
    return device != "cpu" or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def name_method(device: str) -> str:
    """Return the method for products in bfloat16 on this device: `autocast` or `rounded`."""
    return "autocast" if is_native(device) else "rounded"


@contextlib.contextmanager
def multiply_in_bfloat16(model: Any, method: str | None = None) -> Iterator[None]:
    """Compute the products of the model in bfloat16 within this context. `method`: as `name_method` returns it; None: by the device."""
    where = next(model.parameters()).device.type
    if (method or name_method(where)) == "autocast":
        with torch.autocast(where, dtype=torch.bfloat16):
            yield
        return
    layers = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    attention = model.config._attn_implementation
    for layer in layers:
        layer.forward = partial(multiply, layer)
    model.set_attn_implementation(ATTENTION)
    try:
        yield
    finally:
        model.set_attn_implementation(attention)
        for layer in layers:
            del layer.forward


def round_to_bfloat16(values: Any) -> Any:
    """Round to the nearest bfloat16, as float32. Gradients are rounded likewise."""
    return values.to(torch.bfloat16).to(torch.float32)


def multiply(layer: Any, values: Any) -> Any:
    bias = None if layer.bias is None else round_to_bfloat16(layer.bias)
    product = torch.nn.functional.linear(round_to_bfloat16(values), round_to_bfloat16(layer.weight), bias)
    return round_to_bfloat16(product)


def attend(module: Any, query: Any, key: Any, value: Any, *given: Any, **more: Any) -> Any:
    rounded = (round_to_bfloat16(part) for part in (query, key, value))
    found, weights = sdpa_attention_forward(module, *rounded, *given, **more)
    return round_to_bfloat16(found), weights


AttentionInterface.register(ATTENTION, attend)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
