"""The whole SFT path on one page: seeds → simulated trajectories → checks → training data.

    python examples/whole_path.py                     # the local model, nothing to set up
    OPENAI_API_KEY=… python examples/whole_path.py    # a hosted one

Each step is one call; between them you hold plain `Trajectory` objects that you can read, filter and change.
"""

import asyncio
import os
import sys
from collections import Counter
from pathlib import Path

import simia
from simia.exporting import CardFacts, export
from simia.quality.check import Checks, check_trajectory
from simia.quality.grounding import infer_identifiers


async def main(n: int, out: Path) -> None:
    # 1. Seeds: a pack has tools with full JSON Schemas, a written policy, and a few trajectories.
    pack = simia.Pack.load("customer_service")
    seeds = [seed for seed in pack.seeds if len(seed.messages) <= 4]
    print(f"{len(seeds)} short seeds, {len(pack.tools)} tools")

    # 2. Amplify: every reply is stored before it is used; the run can be killed and resumed at any point.
    llm = {"kind": "openai", "model": "gpt-5-mini"} if os.environ.get("OPENAI_API_KEY") else None
    made = await simia.amplify(seeds, llm=llm, n=n, runs=out / "runs")
    trajectories = list(made.trajectories())
    print(f"{made.stop.kind}: {len(trajectories)} accepted, rejected {dict(made.progress.rejected)}")

    # 3. Look at them: they are data. The checks that accepted them can be run on anything, such as your own rows.
    print("calls:", dict(Counter(call.name for t in trajectories for _, _, call in t.calls())))
    identifiers = infer_identifiers(pack.tools, pack.seeds)
    assert all(check_trajectory(t, Checks(), ids=identifiers) == [] for t in trajectories)

    # 4. Export: rows that LLaMA-Factory reads without dropping one, a training YAML, and a data set card.
    report = export(trajectories, out / "data", to="llamafactory", facts=CardFacts(name="whole-path"))
    print(f"{report.rows} rows in {out / 'data'}: {', '.join(report.files)}")


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    asyncio.run(main(count, Path(sys.argv[2] if len(sys.argv) > 2 else "out")))
