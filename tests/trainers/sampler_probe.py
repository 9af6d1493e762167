"""Run in TRL's environment: what `sample_with_model` draws, alone and in batches, against the model's own probabilities."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from types import SimpleNamespace

import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from simia.errors import UserError
from simia.trainers.trl import sample_with_model

ROWS, MOST, TEMPERATURE = 3000, 12, 6.0  # so high because the taught model is nearly sure of each token
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1]).eval()
end = tokenizer.eos_token_id
accelerator = Accelerator(cpu=True)


def make_trainer(**filters: object) -> SimpleNamespace:
    """What the sampler reads of a GRPOTrainer."""
    kwargs = {"max_new_tokens": MOST, "do_sample": True, "pad_token_id": end, "eos_token_id": [end], **filters}
    return SimpleNamespace(
        accelerator=accelerator,
        model_wrapped=accelerator.prepare_model(model, evaluation_mode=True),
        generation_config=GenerationConfig(**kwargs),
        generation_kwargs=kwargs,
        eos_token_ids=[end],
    )


def draws(names: list[str]) -> list[random.Random]:
    return [random.Random(name) for name in names]


texts = ["What is in the kitchen?", "Switch on the lamp", "Hello, could you please look at all lamps of the house?"]
contexts = [tokenizer(text)["input_ids"] for text in texts]
plain = make_trainer(temperature=1.0)
together = sample_with_model(plain, contexts, MOST, draws(texts))
apart = [sample_with_model(plain, [each], MOST, draws([text]))[0] for each, text in zip(contexts, texts, strict=True)]
filtered = make_trainer(temperature=TEMPERATURE, top_k=8, top_p=0.9)
many = sample_with_model(filtered, [contexts[0]] * ROWS, 1, draws([str(n) for n in range(ROWS)]))
with torch.no_grad():
    logits = model(torch.tensor([contexts[0]])).logits[0, -1]
best = (logits / TEMPERATURE).topk(8)
kept = best.values.softmax(-1)
inside = (kept.cumsum(-1) - kept) < 0.9
exact = dict(zip(best.indices[inside].tolist(), (kept[inside] / kept[inside].sum()).tolist(), strict=True))
counted = Counter(ids[0] for ids, _ in many)
told = {ids[0]: logprobs[0] for ids, logprobs in many}
greedy = sample_with_model(make_trainer(do_sample=False), contexts, MOST)
try:
    sample_with_model(make_trainer(typical_p=0.5), contexts, MOST)
    refused = ""
except UserError as error:
    refused = str(error)
report = {
    "together": together,
    "apart": apart,
    "exact": exact,
    "counted": {str(key): value / ROWS for key, value in counted.items()},
    "told": told,
    "greedy": [ids for ids, _ in greedy],
    "by_generate": [
        model.generate(torch.tensor([each]), do_sample=False, max_new_tokens=MOST)[0, len(each) :].tolist()
        for each in contexts
    ],
    "refused": refused,
}
print("REPORT", json.dumps(report))
