"""The sampler of the trainer's own model: it draws what the model finds likely, and a reply does not depend on its batch."""

from __future__ import annotations

import json
import math
from pathlib import Path

from tests.trainers.conftest import ROOT, Trainer


def test_replies_follow_the_model_and_not_their_batch(trl: Trainer, taught_model: Path) -> None:
    said = trl.run(ROOT / "tests" / "trainers" / "sampler_probe.py", taught_model)
    (line,) = (line for line in said.splitlines() if line.startswith("REPORT "))
    report = json.loads(line.removeprefix("REPORT "))
    for (ids, logprobs), (own_ids, own_logprobs) in zip(report["together"], report["apart"], strict=True):
        assert ids == own_ids
        assert len(ids) == len(logprobs)
        assert all(abs(one - other) < 1e-3 for one, other in zip(logprobs, own_logprobs, strict=True))
    assert len({tuple(ids) for ids, _ in report["together"]}) == 3
    exact, counted = report["exact"], report["counted"]
    assert counted.keys() <= exact.keys(), "the filters left out the other ids"
    assert len(counted) > 1
    assert sum(abs(exact[key] - counted.get(key, 0.0)) for key in exact) / 2 < 0.05
    assert all(abs(math.exp(logprob) - exact[key]) < 1e-3 for key, logprob in report["told"].items())
    for ids, whole in zip(report["greedy"], report["by_generate"], strict=True):
        assert ids == whole[: len(ids)]
    assert report["refused"].startswith("grpo.generation_kwargs.typical_p: ")
