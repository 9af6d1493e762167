"""Twelve tasks made of seeds, played by the small local model: it is the agent, and it plays the tools."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from simia.config import load_config
from simia.importers.trajectories import import_trajectories
from simia.jobs import Run
from simia.rollouts.session import start_rollout
from simia.rollouts.settings import RolloutConfig
from simia.trajectory import Trajectory
from tests.importers.seed_rows import BOOKS, STOCK, make_row

pytestmark = pytest.mark.usefixtures("local_model")
SHARES = ("MSFT", "AAPL", "IBM", "ORCL", "NVDA", "INTC")
TITLES = ("The Winter Orchard", "Salt Roads", "A House of Reeds", "Ninth Harbour", "The Glass Ferry", "Low Tide")
SETTINGS = (
    "backend=simulated", "backend_settings.max_tokens=120", "backend_settings.again=3", "backend_settings.temperature=0.3", "user=scripted", "reward=rules",
    "episode.turns=1", "sampling.max_tokens=48", "sampling.temperature=0.0", "limits.concurrency=2",
)  # fmt: skip


def write_rows(path: Path) -> None:
    rows = [
        make_row(
            [
                ("human", f"Look up the stock price of {name}."),
                ("function_call", {"name": "get_stock_price", "arguments": {"symbol": name}}),
                ("observation", {"price": 100.5 + number}),
                ("gpt", f"It is worth {100.5 + number}."),
            ],
            STOCK,
        )
        for number, name in enumerate(SHARES)
    ]
    rows += [
        make_row(
            [
                ("human", f"Find the book {title}."),
                ("function_call", {"name": "find_book", "arguments": {"title": title}}),
                ("observation", {"books": [{"book_id": f"BK-77{number}", "price": 9.5 + number}]}),
                ("gpt", f"Yes, {title} costs {9.5 + number} euros."),
            ],
            BOOKS[0],
        )
        for number, title in enumerate(TITLES)
    ]
    path.write_text(json.dumps(rows))


def test_twelve_tasks_are_played_in_a_simulated_world(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.json")
    [folder] = import_trajectories(str(tmp_path / "rows.json"), tmp_path / "pack")
    config = load_config(RolloutConfig, "rollout/default", SETTINGS, pack=str(folder))
    done = asyncio.run(start_rollout(config, runs=tmp_path / "runs", name="r", say=lambda _: None))
    assert done.complete, done.why
    run = Run.read_only(tmp_path / "runs", "r")
    try:
        bodies = [run.ledger.result(item.id) for item in run.ledger.items()]
    finally:
        run.close()
    played = [Trajectory.from_row(body["trajectory"]) for body in bodies if body is not None]
    assert len({each.task_id for each in played}) == 12
    assert all(each.end.kind in ("terminated", "truncated", "aborted") for each in played)
    answered = [m for each in played for m in each.messages if m.role == "tool" and m.error is None]
    assert len(answered) >= 6  # the model calls, and the simulated world answers
    judged = {
        each.task_id: each.reward.value for each in played if each.reward is not None and each.reward.value is not None
    }
    assert len(judged) >= 10  # an answer that cannot be read aborts the episode
    assert set(judged.values()) <= {0.0, 1.0}
    assert sum(judged.values()) >= 3  # the right call is within its reach
