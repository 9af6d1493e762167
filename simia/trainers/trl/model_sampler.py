"""Sample replies of the trainer's own model, so that an episode's text does not depend on the other episodes in its batch.

Episodes run on their own schedules, so batches depend on how fast the environment answers. With one random state for all rows, a
repeated or resumed run would sample other text, and pay for other replies of the simulator. Instead each reply has its own random
numbers, one per token, and only rounding still depends on the batch.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from typing import Any

from simia.errors import UserError
from simia.trainers.tokens import cut_after_end

Sampled = tuple[list[int], list[float]]
"""Ids of one reply, end token included, and the log-probability with which each was sampled."""
OTHER_FILTERS = {"typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0, "top_h": None, "num_beams": 1}
"""Fields of GenerationConfig that are not applied here, each with its neutral value; any other value is refused."""
PLAIN = {"do_sample": False, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": None}


def sample_with_model(
    trainer: Any, contexts: list[list[int]], most: int, draws: Sequence[random.Random] | None = None
) -> list[Sampled]:
    """Return a reply of the trainer's model to each context, in at most `most` tokens, with the trainer's temperature and filters.

    `draws`: a random generator for each reply; None: seeded from torch's own state. Log-probabilities are those of the filtered distribution,
    from which the ids are sampled. Raises `UserError` for a filter of `generation_kwargs` that is not applied here.
    """
    import torch  # type: ignore[import-not-found,unused-ignore]
    from transformers import LogitsProcessorList  # type: ignore[import-not-found,unused-ignore]
    from trl.models import unwrap_model_for_generation  # type: ignore[import-not-found,unused-ignore]

    device = trainer.accelerator.device
    width = max(map(len, contexts))
    config = copy.deepcopy(trainer.generation_config)
    filters = make_filters(config)
    if draws is None:
        draws = [random.Random(int(torch.randint(2**62, ()))) for _ in contexts]
    draw = make_draw(draws if config.do_sample else None)
    kwargs = {**trainer.generation_kwargs, **PLAIN, "max_new_tokens": most}
    config.update(**PLAIN, max_new_tokens=most)
    fill = config.pad_token_id
    ids = torch.tensor([[fill] * (width - len(context)) + context for context in contexts], device=device)
    seen = torch.tensor([[0] * (width - len(c)) + [1] * len(c) for c in contexts], device=device)
    processors = LogitsProcessorList([*filters, draw])
    unwrapped = unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator, generation_kwargs=kwargs)
    with unwrapped as model, torch.no_grad():
        out = model.generate(input_ids=ids, attention_mask=seen, generation_config=config, logits_processor=processors)
    replies = [cut_after_end(row, trainer.eos_token_ids) for row in out[:, width:].tolist()]
    logprobs = torch.cat(draw.logprobs, dim=1).tolist()
    return [(row, each[: len(row)]) for row, each in zip(replies, logprobs, strict=True)]


def make_filters(config: Any) -> list[Any]:
    """Return the temperature and filters of a generation config; none if it does not sample. Raises `UserError`."""
    from transformers import (  # type: ignore[import-not-found,unused-ignore]
        MinPLogitsWarper,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    for name, neutral in OTHER_FILTERS.items():
        if getattr(config, name, None) not in (None, neutral):
            raise UserError(
                f"grpo.generation_kwargs.{name}: rollout_func samples with temperature, top_k, top_p and min_p alone; remove it"
            )
    if not config.do_sample:
        return []
    filters: list[Any] = []
    if config.temperature not in (None, 1.0):
        filters.append(TemperatureLogitsWarper(float(config.temperature)))
    if config.top_k:
        filters.append(TopKLogitsWarper(config.top_k))
    if config.top_p not in (None, 1.0):
        filters.append(TopPLogitsWarper(config.top_p))
    if config.min_p:
        filters.append(MinPLogitsWarper(config.min_p))
    return filters


def make_draw(draws: Sequence[random.Random] | None) -> Any:
    """Make the logits processor that samples: it chooses each row's id with the row's own random number, keeps its log-probability in
    `logprobs` (rows × 1 for each token), and masks all other ids. `draws` None: it chooses the most probable id."""
    import torch
    from transformers import LogitsProcessor  # type: ignore[import-not-found,unused-ignore]

    class Draw(LogitsProcessor):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            self.logprobs: list[Any] = []

        def __call__(self, input_ids: Any, scores: Any) -> Any:
            logs = scores.float().log_softmax(-1)
            if draws is None:
                chosen = logs.argmax(-1, keepdim=True)
            else:
                sums = logs.double().exp().cumsum(-1)
                at = torch.tensor(
                    [[each.random() * (1 - 1e-12)] for each in draws], device=logs.device, dtype=sums.dtype
                )
                chosen = torch.searchsorted(sums, at * sums[:, -1:], right=True)
            self.logprobs.append(logs.gather(1, chosen))
            return torch.full_like(scores, -torch.inf).scatter(1, chosen, 0.0)

    return Draw()
