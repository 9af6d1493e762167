"""From tasks to distinct themes: the filter, the scores, the clusters; by embeddings of a fake endpoint, and by words."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from simia.errors import UserError
from simia.jobs import Run
from simia.jobs.run import saved_config
from simia.llm.embeddings import compute_cosine, make_lexical_vectors
from simia.synthesis import session
from simia.synthesis.recipes import RECIPES, RecipeKind
from simia.synthesis.scenarios.task_sources import read_task_texts
from simia.synthesis.settings import SynthesisConfig
from simia.synthesis.stage import StageOutputs
from simia.synthesis.stages.design import make_name
from simia.synthesis.stages.task_filter import Screening, StatefulFilter
from simia.synthesis.stages.themes import (
    LEXICAL_COSINE,
    Clusters,
    Descriptions,
    Theme,
    Themes,
    find_duplicates,
    read_theme,
)
from tests.hub_server import start_hub
from tests.synthesis.assessment_agents import FIXTURES, AgentBackend

if TYPE_CHECKING:  # pytest loads it as a plugin
    from tests.fake_endpoint import FakeEndpoint

REPLIES: dict[str, dict[str, Any]] = json.loads((FIXTURES / "discovery_replies.json").read_text())
"""Task → the verdict and the theme that a model replied."""
DESCRIPTIONS = [json.loads(line) for line in (FIXTURES / "descriptions.jsonl").read_text().splitlines()]


class DiscoveryConfig(SynthesisConfig):
    recipe: str = "discover"
    tasks_per_question: int = 1
    """Tasks of one question."""
    cosine: float | None = None
    """Threshold of duplicates."""


class DiscoveryRecipe:
    name = "discover"

    def __init__(self, config: DiscoveryConfig) -> None:
        self._config = config

    def list_stages(self) -> Any:
        texts, size = read_task_texts(self._config.source).texts, self._config.tasks_per_question
        stages = [StatefulFilter(texts), Descriptions(6, 6), Clusters(self._config.cosine), Themes()]
        return [Screening(texts, size), *stages] if size > 1 else stages

    def write(self, outputs: StageOutputs, out: Path) -> list[Path]:
        out.mkdir()
        return [out]


def reply(prompt: str, draw: str) -> str:
    """The replies of the fixture; the first one on a group of tasks leaves out a verdict."""
    tasks = [task for task in REPLIES if task in prompt]
    if draw.startswith("screening/"):
        if unreadable := [REPLIES[task]["verdict"] for task in tasks if isinstance(REPLIES[task]["verdict"], str)]:
            return str(unreadable[0])
        numbers = {task: int(re.search(rf"Task (\d+):\n{re.escape(task)}", prompt)[1]) for task in tasks}  # type: ignore[index]
        verdicts = [{"task": numbers[task], **REPLIES[task]["verdict"]} for task in tasks]
        return f"```json\n{json.dumps(verdicts if 'again' in draw or draw.startswith('screening/1-') else verdicts[1:])}\n```"
    kind = "verdict" if draw.startswith("stateful/") else "theme"
    answer = REPLIES[tasks[0]][kind]
    return answer if isinstance(answer, str) else f"```json\n{json.dumps(answer)}\n```"


@pytest.fixture
def discover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-simia-test-0123456789abcdef")
    monkeypatch.setitem(RECIPES, "discover", RecipeKind(DiscoveryConfig, DiscoveryRecipe))
    tasks = tmp_path / "tasks.txt"
    tasks.write_text("\n".join(REPLIES))
    opened = session.open_backend

    def run(
        name: str = "run", *, source: str | None = None, endpoint: FakeEndpoint | None = None, **settings: Any
    ) -> Any:
        writer = AgentBackend("writer", reply)
        roles = {"embeddings": {"kind": "openai", "model": "embedder", "base_url": endpoint.url}} if endpoint else {}
        config = DiscoveryConfig.model_validate(
            {"source": source or str(tasks), "roles": roles, **settings, "limits": {"retries": 0}}
        )
        monkeypatch.setattr(
            session,
            "open_backend",
            lambda given, **more: opened(given, **more) if given.kind == "openai" else writer,
        )
        quiet: dict[str, Any] = {"runs": tmp_path / "runs", "say": lambda _: None}
        if (tmp_path / "runs" / name).exists():
            done = asyncio.run(session.resume_synthesis(name, **quiet))
        else:
            done = asyncio.run(session.start_synthesis(config, tmp_path / f"{name}-out", name=name, **quiet))
        return done, writer

    return run


def list_reasons(outputs: StageOutputs, stage: str) -> dict[str, str]:
    return {key: each.reason for key, each in outputs.refused.get(stage, {}).items()}


def test_tasks_become_distinct_themes(discover: Any) -> None:
    done, writer = discover()
    outputs = done.outputs
    assert done.stop.kind == "complete"
    refused = {"3": "stateless_task", "6": "stateless_task", "9": "unreadable_reply", "10": "stateless_task"}
    assert list_reasons(outputs, "stateful") == refused
    assert list_reasons(outputs, "descriptions") == {"7": "low_usefulness", "8": "low_modelability"}
    assert outputs.refused["stateful"]["3"].detail == REPLIES["How much is 7 % of 350?"]["verdict"]["reason"]
    assert list(outputs.of("themes")) == ["airline_booking", "hotel_desk", "hotel_desk_2"]
    assert outputs.of("themes")["hotel_desk_2"]["task"] == 5, "the better description of the hotel is kept"
    assert {"name", "domain", "description", "title"} <= outputs.of("themes")["hotel_desk_2"].keys()
    assert list_reasons(outputs, "themes") == {"hotel_desk_2/1": "duplicate_theme"}
    assert "repeats hotel_desk_2, cosine 0." in outputs.refused["themes"]["hotel_desk_2/1"].detail
    assert outputs.notes["clusters"]["all"] == {"compared_by": "words", "threshold": 0.35, "themes": 4, "duplicates": 1}
    assert sum(draw.startswith("stateful/9.verdict") for draw in writer.asked) == 3


def test_several_tasks_in_a_question_get_the_same_verdicts(discover: Any) -> None:
    one, _ = discover("one")
    several, writer = discover("several", tasks_per_question=4)
    for stage in ("stateful", "descriptions", "themes"):
        assert several.outputs.of(stage) == one.outputs.of(stage)
        assert list_reasons(several.outputs, stage) == list_reasons(one.outputs, stage)
    asked = [draw for draw in writer.asked if draw.startswith(("screening/", "stateful/"))]
    assert {"screening/1-4.verdicts", "screening/5-8.verdicts", "screening/9-10.verdicts"} <= set(asked)
    assert "screening/5-8.verdicts.again1" in asked, "a missing verdict is asked for again"
    singly = {"stateful/9.verdict", "stateful/9.verdict.again1", "stateful/9.verdict.again2", "stateful/10.verdict"}
    assert {draw for draw in asked if draw.startswith("stateful/")} == singly, (
        "an unreadable group is asked about one by one"
    )


def test_embeddings_decide_and_are_paid_for_once(discover: Any, fake_endpoint: FakeEndpoint, tmp_path: Path) -> None:
    done, _ = discover("whole", endpoint=fake_endpoint, cosine=0.97)
    assert done.outputs.notes["clusters"]["all"]["compared_by"] == "embeddings"
    assert len(fake_endpoint.requests) == 1
    assert len(fake_endpoint.requests[0]["body"]["input"]) == 4
    run = Run.read_only(tmp_path / "runs", "whole")
    stored = [row for row in run.ledger.replies() if row["request"].get("input")]
    run.close()
    assert [row["draw"] for row in stored] == ["clusters/all.vectors-0"]
    fake_endpoint.plan(vectors={})
    again, writer = discover("whole", endpoint=fake_endpoint)
    assert (fake_endpoint.requests, writer.asked) == ([], [])
    assert again.outputs == done.outputs


def test_an_outage_of_the_embeddings_is_resumed(discover: Any, fake_endpoint: FakeEndpoint) -> None:
    fake_endpoint.plan(rate=1.0, mix=["401"])
    cut, _ = discover("cut", endpoint=fake_endpoint)
    assert cut.stop.kind == "endpoint"
    fake_endpoint.plan()
    done, second = discover("cut", endpoint=fake_endpoint)
    assert done.stop.kind == "complete"
    assert second.asked == []
    assert fake_endpoint.log()["faults"] == {"ok": 1}


def test_a_back_end_without_embeddings_is_refused() -> None:
    with pytest.raises(UserError, match=r"roles.embeddings.kind is embedded: only openai, pool and replay embed texts"):
        DiscoveryConfig.model_validate({"roles": {"embeddings": {"kind": "embedded"}}})
    local = {"kind": "embedded", "model": "bge-m3.gguf", "embeddings": True}
    assert DiscoveryConfig.model_validate({"roles": {"embeddings": local}}).roles["embeddings"].kind == "embedded"


def test_no_chain_of_similar_themes_joins_two_that_differ() -> None:
    def theme(score: int) -> Theme:
        return Theme(name="a", title="a", domain="a", description="a", usefulness=score, modelability=10)

    vectors = {"left": [1.0, 0.0], "middle": [0.8, 0.6], "right": [0.28, 0.96]}
    themes = {"left": theme(9), "middle": theme(6), "right": theme(8)}
    assert find_duplicates(themes, vectors, 0.75) == {"middle": ("right", 0.8)} or find_duplicates(
        themes, vectors, 0.75
    )["middle"][1] == pytest.approx(0.8, abs=0.001)
    assert set(find_duplicates(themes, vectors, 0.75)) == {"middle"}
    themes["middle"] = theme(10)
    assert find_duplicates(themes, vectors, 0.75) == {"left": ("middle", 0.8), "right": ("middle", 0.8)}


def test_the_lexical_threshold_on_descriptions_with_known_duplicates() -> None:
    """Precision and recall over pairs, as docs/log.md notes them: at the shipped threshold no pair is wrong."""
    texts = [f"{row['title']}\n{row['domain']}\n{row['description']}" for row in DESCRIPTIONS]
    vectors = make_lexical_vectors(texts)
    assert len(DESCRIPTIONS) == 40
    pairs = list(itertools.combinations(range(40), 2))
    known = {pair for pair in pairs if DESCRIPTIONS[pair[0]]["group"] == DESCRIPTIONS[pair[1]]["group"]}
    found = {pair for pair in pairs if compute_cosine(vectors[pair[0]], vectors[pair[1]]) >= LEXICAL_COSINE}
    assert len(known) == 14
    assert found <= known
    assert len(found) == 9


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("Hotel front desk", "hotel_front_desk"),
        ("Büro für Bürger", "buro_fur_burger"),
        ("酒店前台", "jiudianqiantai"),
        ("24h pharmacy", "env_24h_pharmacy"),
        ("!!", "env"),
        ("x" * 90, "x" * 32),
    ],
)
def test_names_of_environments(words: str, name: str) -> None:
    row = {"name": words, "title": "A", "domain": "B", "description": "C", "usefulness": 8, "modelability": 8}
    found = read_theme(json.dumps(row)).name
    assert found.replace("_", "") == name.replace("_", "")
    assert all(
        re.fullmatch(r"[a-z][a-z0-9_]{0,40}", each) for each in (found, make_name(words), make_name(f"9{words}"))
    )


def test_a_data_set_is_pinned_so_that_a_resume_reads_the_same_tasks(
    discover: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [json.dumps({"task": task}) for task in REPLIES]
    with start_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("SIMIA_CACHE", str(tmp_path / "simia-cache"))
        monkeypatch.setattr(import_module("huggingface_hub.constants"), "HF_HUB_CACHE", str(tmp_path / "hub-cache"))
        commit = hub.add("acme/tasks", {"train.jsonl": "\n".join(rows[:3]).encode()})
        first, _ = discover("pinned", source="hf:acme/tasks")
        hub.add("acme/tasks", {"train.jsonl": "\n".join(reversed(rows)).encode()})
        again, _ = discover("pinned")
    with contextlib.closing(Run.open(tmp_path / "runs", "pinned")) as run:
        assert saved_config(run.folder)["source"] == f"hf:acme/tasks@{commit}"
    assert first.outputs.made == again.outputs.made
    assert len(first.outputs.of("stateful")) + len(first.outputs.refused["stateful"]) == 3


def test_long_names_are_cut_between_words() -> None:
    assert make_name("Bookings of a mountain hut with dormitories") == "bookings_of_a_mountain_hut_with"
    assert make_name("x" * 50) == "x" * 36
    assert make_name("Bookings of a mountain hut, dormitory") == "bookings_of_a_mountain_hut_dormitory"
