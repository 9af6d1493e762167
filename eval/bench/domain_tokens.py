"""Estimate the tokens of a recorded ScaleEnv domain: for the recorded prompts, and for the prompts of the present code.

    python eval/bench/domain_tokens.py

The recording "job seeking" is replayed, so that both columns hold the same questions and the same replies. The paper spends 546,000 tokens on a
domain (ScaleEnv, table 9) before its tasks. Both prompts are counted by the same estimate.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from simia.config import load_config
from simia.llm.types import Reply, Request
from simia.quality.fast_tokens import estimate_text_tokens
from simia.synthesis.context import Asker, ItemContext
from simia.synthesis.recipes.scaleenv import ScaleEnvConfig
from simia.synthesis.session import start_synthesis

ROOT = Path(__file__).parents[2]
DOMAIN = ("design", "examples", "tools", "environments", "graph")
PAPER = 546_000
SETTINGS = (
    "llm.kind=replay", f"llm.path={ROOT / 'tests/recordings/scaleenv-jobs.jsonl'}", "llm.match=draw", "building.operations=24",
    "building.kept=20", "building.tests=3", "building.debug_rounds=2", "chains.number=1", "expansion.least=20",
)  # fmt: skip


def count_request(request: Request) -> int:
    return sum(estimate_text_tokens(str(message["content"])) for message in request.messages)


def main() -> None:
    recorded: Counter[str] = Counter()
    today: Counter[str] = Counter()
    replies: Counter[str] = Counter()
    send = ItemContext._send

    async def count(self: ItemContext, asker: Asker, request: Request, draw: str) -> Reply:
        reply = await send(self, asker, request, draw)
        stage = draw.partition("/")[0]
        recorded[stage] += count_request(asker.find_asked(request, draw))
        today[stage] += count_request(request)
        replies[stage] += estimate_text_tokens(reply.text)
        return reply

    counted: Any = count
    ItemContext._send = counted
    with tempfile.TemporaryDirectory() as folder:
        config = load_config(ScaleEnvConfig, "synth/scaleenv_small", SETTINGS, source="job seeking")
        out = Path(folder)
        asyncio.run(start_synthesis(config, out / "pack", runs=out / "runs", name="r", say=lambda _: None))
    print(f"{'stage':10}{'replies':>10}{'recorded':>12}{'today':>12}{'ratio':>8}")
    for stage in filter(recorded.__contains__, DOMAIN):
        ratio = today[stage] / recorded[stage]
        print(f"{stage:10}{replies[stage]:10,}{recorded[stage]:12,}{today[stage]:12,}{ratio:8.2f}")
    then, now = (sum(counts[stage] + replies[stage] for stage in DOMAIN) for counts in (recorded, today))
    print(
        f"domain, with replies: {then:,} recorded, {now:,} today ({now / then:.2f}); {now / PAPER:.2f} of the paper's {PAPER:,}"
    )


if __name__ == "__main__":
    main()
