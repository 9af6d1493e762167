"""Check that the shared prefix changes no result, by three equalities, on any prepared model. Runs in TRL's environment.

    python control_check.py MODEL DATA PACK OUT.json

1. Loss and gradients of whole rows, padded on the left, with `share_prefix` and without.
2. Log-probabilities of `PrefixSampler` over several turns, and those of the model for each whole context.
3. Frequencies of first tokens that it samples, and their probabilities in the model.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from prefix_sampler import PrefixSampler
from shared_prefix import share_prefix
from student import TEMPLATE, examples, write
from transformers import AutoModelForCausalLM, AutoTokenizer  # type: ignore[import-not-found,unused-ignore]

from simia.pack import Pack


def gaps(plain: Any, shared: Any, rows: list[tuple[list[int], list[int]]]) -> dict[str, float]:
    """The largest gaps of the loss and of the gradients between a plain model and one with `share_prefix`."""
    width = max(len(ids) for ids, _ in rows) + len(rows)

    def padded(values: list[int], row: int) -> list[int]:
        return [0] * row + values + [0] * (width - row - len(values))

    ids = torch.tensor([padded(ids, row) for row, (ids, _) in enumerate(rows)])
    seen = torch.tensor([padded([1] * len(ids), row) for row, (ids, _) in enumerate(rows)])
    trained = torch.tensor([padded(mask, row) for row, (_, mask) in enumerate(rows)]).bool()[:, 1:]
    losses = []
    for model in (plain, shared):
        model.zero_grad()
        logits = model(input_ids=ids, attention_mask=seen).logits[:, :-1][trained]
        losses.append(torch.nn.functional.cross_entropy(logits, ids[:, 1:][trained]))
        losses[-1].backward()
    pairs = list(zip(plain.parameters(), shared.parameters(), strict=True))
    return {
        "loss": float((losses[0] - losses[1]).detach().abs()),
        "gradient": max(float((a.grad - b.grad).abs().max()) for a, b in pairs),
        "largest_gradient": max(float(a.grad.abs().max()) for a, _ in pairs),
    }


def sampled(plain: Any, shared: Any, openings: list[list[int]], end: int, turns: int = 3) -> dict[str, Any]:
    """Return the largest gap of a log-probability over `turns` replies to each opening; some openings drop out after a turn."""
    accelerator = SimpleNamespace(autocast=torch.no_grad)
    trainer = SimpleNamespace(
        model=shared, accelerator=accelerator, args=SimpleNamespace(temperature=1.0), state=SimpleNamespace(global_step=0), eos_token_ids=[end]
    )  # fmt: skip
    sample = PrefixSampler()
    contexts, largest, lengths = [list(o) for o in openings], 0.0, []
    for turn in range(turns):
        replies = sample(trainer, contexts, 12)
        with torch.no_grad():
            for context, (reply, values) in zip(contexts, replies, strict=True):
                known = plain(input_ids=torch.tensor([context + reply])).logits[0].log_softmax(-1)
                own = known[len(context) - 1 : -1].gather(1, torch.tensor(reply)[:, None])[:, 0]
                largest = max(largest, float((own - torch.tensor(values)).abs().max()))
                lengths.append(len(reply))
        heard = [[11 + turn, 12] * (row + 1) for row in range(len(contexts))]
        contexts = [c + reply + new for c, (reply, _), new in zip(contexts, replies, heard, strict=True)][turn:]
    return {"logprob": largest, "lengths": lengths}


def frequencies(plain: Any, shared: Any, opening: list[int], draws: int = 4000) -> dict[str, float]:
    """Return the largest gap between a first token's share of the samples and its probability, and the largest probability."""
    accelerator = SimpleNamespace(autocast=torch.no_grad)
    trainer = SimpleNamespace(
        model=shared, accelerator=accelerator, args=SimpleNamespace(temperature=1.0), state=SimpleNamespace(global_step=0), eos_token_ids=[]
    )  # fmt: skip
    replies = PrefixSampler()(trainer, [opening] * draws, 1)
    with torch.no_grad():
        known = plain(input_ids=torch.tensor([opening])).logits[0, -1].softmax(-1)
    counted = torch.bincount(torch.tensor([ids[0] for ids, _ in replies]), minlength=len(known)) / draws
    return {"gap": float((counted - known).abs().max()), "likeliest": float(known.max())}


def likely_token(model: Any, opening: list[int]) -> int:
    """Return the likeliest first token; as end token it ends some replies early."""
    with torch.no_grad():
        return int(model(input_ids=torch.tensor([opening])).logits[0, -1].argmax())


def main() -> None:
    parser = argparse.ArgumentParser(description="Three equalities.")
    for name in ("model", "data", "pack", "out"):
        parser.add_argument(name, type=Path)
    given = parser.parse_args()
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    tokenizer.chat_template = TEMPLATE
    plain, shared = (AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32) for _ in range(2))
    with torch.no_grad():  # so that some tokens are likely
        plain.get_output_embeddings().weight.mul_(3)
    shared.load_state_dict(plain.state_dict())
    share_prefix(shared)
    tools = [{"type": "function", "function": tool.flat()} for tool in Pack.load(given.pack).tools]
    rows = examples(given.data, tokenizer, tools)[:4]
    openings = [ids[: mask.index(1)] for ids, mask in rows]
    write(given.out, {
        "training": gaps(plain, shared, rows),
        "sampling": sampled(plain, shared, openings, likely_token(plain, openings[0])),
        "frequency": frequencies(plain, shared, openings[0]),
    })  # fmt: skip


if __name__ == "__main__":
    main()
