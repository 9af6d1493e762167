"""A strong model as simulator and as user, recorded blind: it does what the fragments of the perturbations say."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from simia.config import load_config
from simia.envs.perturbation.settings import TOOL_EVENTS, USER_EVENTS
from simia.evaluation.scores import read_episodes
from simia.jobs import Run
from simia.rollouts.session import start_rollout
from simia.rollouts.settings import RolloutConfig
from simia.trajectory import Perturbation

ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT / "tests" / "recordings"
SHOP = (
    "cs-008", "cs-009", "cs-010", "cs-012", "cs-014", "cs-016", "cs-017", "cs-018", "cs-027", "cs-028", "cs-029", "cs-030", "cs-031", "cs-032",
    "cs-033", "cs-034", "cs-036", "cs-037", "cs-038", "cs-039", "cs-040", "cs-041",
)  # fmt: skip
SIMULATED = {"backend": "simulated", "backend_settings": {"knowledge": "reference"}, "reward": "rules"}
RUNS = {
    "tools": {
        **SIMULATED, "agent": "repeating", "user": "scripted", "tasks": SHOP,
        "perturb": {"kinds": TOOL_EVENTS, "events": 2, "within": 2},
    },
    "stale": {
        **SIMULATED, "agent": "function", "agent_function": f"{Path(__file__).with_name('looking_again.py')}:act", "user": "none",
        "tasks": ["cs-027", "cs-029", "cs-030", "cs-034"], "perturb": {"schedule": [{"kind": "stale_data"}]},
    },
    "users": {
        "agent": "repeating", "user": "llm", "tasks": SHOP[:16], "perturb": {"kinds": USER_EVENTS, "events": 2, "within": 2},
    },
}  # fmt: skip


async def play(name: str, tmp_path: Path) -> list[Perturbation]:
    """Play the run from its recording. Returns the events that the model made."""
    model = {"kind": "replay", "path": str(RECORDINGS / f"perturb-{name}.jsonl")}
    role = {"player": model} if name == "users" else {"llm": model}
    config = load_config(RolloutConfig, "rollout/default", [], pack="customer_service", **RUNS[name], **role)
    done = await start_rollout(config, runs=tmp_path, name=name, say=lambda _: None)
    assert done.complete, done.why
    run = Run.read_only(tmp_path, name)
    events = [
        Perturbation.model_validate(row) for each in read_episodes(run) for row in each.row.get("perturbations", [])
    ]
    run.close()
    return [event for event in events if event.by == "model"]


@pytest.mark.parametrize(("name", "kinds"), [("tools", TOOL_EVENTS), ("stale", ["stale_data"]), ("users", USER_EVENTS)])
async def test_a_strong_model_does_what_the_fragment_says(name: str, kinds: list[str], tmp_path: Path) -> None:
    events = await play(name, tmp_path)
    made, happened = (Counter(event.kind for event in some) for some in (events, [e for e in events if e.happened]))
    assert made.keys() >= set(kinds) - ({"stale_data"} if name == "tools" else set())
    page = (ROOT / "docs" / "perturb.md").read_text()
    for kind in made:
        assert f"| `{kind}` | {happened[kind]} of {made[kind]} |" in page
    for event in events:
        assert event.happened or event.kind in ("missing_field", "renamed_field"), "only a refused call has no fields"


def test_the_page_names_every_kind_once() -> None:
    page = (ROOT / "docs" / "perturb.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| \d+ of \d+ \|$", page, re.M)
    assert sorted(rows) == sorted([*TOOL_EVENTS, *USER_EVENTS])
