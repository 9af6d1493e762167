"""The data card says who wrote the trajectories of a run: model or code, script or model, and what was disturbed."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from simia.exporting.origins import describe_origin
from simia.jobs import Run
from tests.command import run_simia
from tests.packs.small import small

INVENTED = "are invented"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("origins")
    script: list[dict[str, Any]] = [
        {"calls": [{"name": "finish_todo", "arguments": {"todo_id": "T-1001"}}]},
        {"agent": "Done."},
    ]
    small(
        folder / "todos", tasks_jsonl=[{"id": f"t-{n}", "script": [{"user": f"Help {n}."}, *script]} for n in range(2)]
    )
    done = run_simia(
        "rollout", folder / "todos", "--agent", "repeating", "--set", "user=scripted", "--set", "perturb.kinds=[transient_error]",
        "--set", "perturb.within=1", "--name", "disturbed", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def test_the_card_of_an_executed_rollout_is_true(played: Path) -> None:
    done = run_simia("export", "disturbed", "--to", "parquet", "--out", "data", cwd=played)
    assert done.returncode == 0, done.stderr
    card = (played / "data" / "README.md").read_text()
    assert "language model" not in card
    assert INVENTED not in card
    assert "The agent is `repeating`, which makes the calls of the tasks' solutions and is no model." in card
    assert "The user's messages are those of the task's script. Tool results come from the pack's code" in card
    assert "| `accepted` |" not in card
    assert "While the trajectories were made (accepted: 2): nothing." in card
    assert "were disturbed on purpose (`perturb`)" in card
    assert "| episodes with disturbed results or users | 2 of 2 |" in card
    assert "| seeds or packs | `todos` |" in card


@pytest.mark.parametrize(
    ("changes", "says", "not_said"),
    [
        ({"agent": "llm"}, "The agent is the model `repeating`.", "no model"),
        ({"agent": "reference", "user": None}, "those of the task's script", "language model"),
        (
            {"user": "llm"},
            "A language model wrote the user's messages. Tool results come from the pack's code",
            INVENTED,
        ),
        ({"user": "none"}, "The user's message is the task's instruction.", "script"),
        ({"backend": "simulated"}, "A language model wrote the tool results", "pack's code"),
        (
            {"backend": {"finish_todo": "simulated", "*": "executable"}},
            "Some tools ran the pack's code",
            "A language model wrote the tool",
        ),
        ({"packs": [{"pack": "todos"}], "user": None}, "The users are those of the packs.", "script"),
        ({"perturb": None}, "which was run.", "perturb"),
        ({"kind": "amplify"}, "A language model wrote user, agent and tool results. Names", "The agent"),
        ({"kind": "training"}, "a training, whose policy is the agent", "language model"),
    ],
)
def test_what_is_said_follows_the_config(
    played: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], says: str, not_said: str
) -> None:
    config = {**yaml.safe_load((played / "runs" / "disturbed" / "config.yaml").read_text()), **changes}
    with closing(Run.read_only(played / "runs", "disturbed")) as run:
        monkeypatch.setattr(Run, "saved_config", lambda run: config)
        said = describe_origin(run)
    assert says in said
    assert not_said not in said
