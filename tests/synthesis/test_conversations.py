"""From two built environments to gated tasks over several turns: stages `compositions` to `gated`, with hand-written replies."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from simia.config import parse_config
from simia.envs.play.baseline_agents import NothingAgent, ReferenceAgent
from simia.envs.play.player import play
from simia.errors import UserError
from simia.exporting.api import export
from simia.llm.types import Reply, Request
from simia.pack import Pack
from simia.statistics import compute_wilson_interval
from simia.synthesis.building.pack_writing import open_built
from simia.synthesis.conversations.conversation_stages import ConversationSettings, list_conversation_stages
from simia.synthesis.conversations.turn_playing import ContinuingAgent
from simia.synthesis.graph.graph_settings import GraphSettings
from simia.synthesis.recipes.envfactory import EnvFactoryConfig, EnvFactoryRecipe
from simia.synthesis.reply_reading import dump
from simia.synthesis.stage import StageContext, StageInput, StageOutputs
from simia.synthesis.stages.graph import GraphStage
from simia.task import Task
from tests.synthesis.conversation_fixtures import load_both, read_replies
from tests.synthesis.scenario_fixtures import ServingBackend, run_stages

KEY = "library+studio"


class BothEnvironments:
    """A stage that hands on the two environments, without a question."""

    name = "environments"

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        return [StageInput(key, None) for key in load_both()]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        return dump(load_both()[given.key])


class SolverBackend(ServingBackend):
    """Puts the id that the conversation shows in place of MADE_UP_ID, as a solver would that reads it."""

    async def complete(self, request: Request, *, draw: str) -> Reply:
        reply = await super().complete(request, draw=draw)
        shown = re.findall(r'"booking_id":"(BO-\d{4})"', " ".join(str(m["content"]) for m in request.messages))
        return reply.model_copy(update={"text": reply.text.replace("MADE_UP_ID", shown[0] if shown else "?")})


def list_replies() -> dict[str, str]:
    """Draw → reply of the good conversations."""
    return {
        f"{item}.{label}": text.strip()
        for item, replies in read_replies("good").items()
        for label, text in replies.items()
    }


def list_stages(number: int = 2, **settings: Any) -> list[Any]:
    whole = ConversationSettings.model_validate(
        {
            "plans": {"number": number, "turns": 2, "tools": 1, "sampling": {"shortest": 2, "longest": 6}},
            "solving": {"solvers": 2},
            **settings,
        }
    )
    return [BothEnvironments(), GraphStage(GraphSettings(refine=False)), *list_conversation_stages(whole, seed=0)]


def list_call_names(task: Task) -> list[list[str]]:
    return [[call.name for call in goal.calls] for goal in task.goals]


def test_conversations_over_both_environments_become_gated_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = SolverBackend(list_replies())
    outputs = run_stages(monkeypatch, tmp_path, backend, list_stages())
    assert not any(outputs.refused.values()), outputs.refused
    first, second = (Task.model_validate(row) for row in outputs.of("gated").values())
    assert list_call_names(first) == [["pay_fine", "lend_book"], ["book_machine"]]
    assert list_call_names(second) == [["book_machine"], ["cancel_booking", "studio_get_member", "renew_loan"]]
    assert first.tags == ["multi_turn", "library", "studio"]
    assert second.extra == {"environments": outputs.of("compositions")[KEY]["tables"], "calls": 7}
    # The note was left to the agent, and the id depends on the number of calls: both are masked. The time of booking is no part of the task.
    assert first.goals[1].calls[0].mask == ["note"]
    assert second.goals[1].calls[0].mask == ["booking_id"]
    assert [part.model_dump(exclude_defaults=True) for part in first.goals[1].parts] == [
        {"policies": {"bookings.*.booked_at": "exempt", "bookings.*.note": "exempt"}}
    ]
    assert [part.kind for part in second.goals[1].parts] == ["state", "trace"]
    assert first.goals[0].query.startswith("Tomas Weber here")
    notes = outputs.notes["solved"]
    assert notes[f"{KEY}/0"]["passed"] == [1, 1]
    assert notes[f"{KEY}/1"]["passed"] == [2, 2]
    assert notes[f"{KEY}/0"]["pass_at_k"] == {"pass@1": [0.5, 0.5], "pass@2": [1.0, 1.0]}
    assert outputs.notes["queries"][f"{KEY}/0"]["words_before"] > 0
    floors = outputs.notes["verdicts"][KEY]["floors"]
    assert all(floors[name] == 0.0 for name in ("nothing", "canned", "echo", "policy"))
    ids = [
        message["call_id"]
        for turn in outputs.of("solved")[f"{KEY}/1"]["turns"]
        for message in turn["messages"]
        if "call_id" in message
    ]
    assert ids == [f"call_{n}" for n in range(1, 8)]
    assert backend.prompts[f"queries/{KEY}/0.refined"].count("Implicit reference") == 1
    assert len([draw for draw in backend.asked if draw.startswith(("plans", "queries"))]) == 6

    quote = {"name": "manual.md", "quotes": ["A day on a machine costs 5."]}
    outputs.made["proposals"] = {key: {"sources": [quote]} for key in load_both()}
    recipe = EnvFactoryRecipe(EnvFactoryConfig())
    assert recipe.write(outputs, tmp_path / "pack") == [tmp_path / "pack"]
    assert len(Pack.load(tmp_path / "pack").file.provenance.sources) == 2  # type: ignore[union-attr]
    check_pack(tmp_path)
    outputs.made["gated"] = {}  # without tasks each environment is a pack of its own
    alone = [tmp_path / "alone" / key for key in load_both()]
    assert recipe.write(outputs, tmp_path / "alone") == alone
    assert [Pack.load(folder).tasks for folder in alone] == [[], []]


def test_pass_at_k_of_four_solvers_has_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replies = list_replies()
    for solver, same_as in (("solver3", "solver1"), ("solver4", "solver2")):
        replies |= {draw.replace(same_as, solver): text for draw, text in replies.items() if same_as in draw}
    stages = list_stages(1, solving={"solvers": 4})[:-2]
    notes = run_stages(monkeypatch, tmp_path, SolverBackend(replies), stages).notes["solved"][f"{KEY}/0"]
    assert notes["passed"] == [2, 2]
    assert notes["pass_at_k"]["pass@2"] == [0.833333] * 2
    assert notes["intervals"]["pass@1"] == [pytest.approx(compute_wilson_interval(2, 4))] * 2
    assert notes["intervals"]["pass@4"] == [pytest.approx((0.478, 0.9995), abs=0.001)] * 2


def check_pack(folder: Path) -> None:
    """The written pack: its conversations are exported, and the reward for training is full for them and nothing for idleness."""
    pack = Pack.load(folder / "pack")
    assert {(edge.source, edge.target) for edge in pack.graph} >= {("library_get_member", "pay_fine")} or pack.graph
    report = export(folder / "pack", folder / "rows", to="trl")
    assert (report.rows, report.refused) == (2, {})

    async def play_all() -> list[list[Any]]:
        settings = {"reward": "trace_state", "trace_state": {"tau": 0.9, "final_tau": 0.1, "steps": 4}}
        environment = await open_built(folder / "pack", user="none", **settings)
        try:
            found = []
            for step in (0, 4):
                environment.note_training_step(step)
                for task, seed in zip(pack.tasks, pack.seeds, strict=True):
                    agents = [
                        ContinuingAgent(seed.messages, NothingAgent(task)),
                        ReferenceAgent(task),
                        NothingAgent(task),
                    ]
                    rewards = [(await play(await environment.reset(task), agent)).reward for agent in agents]
                    found.append([reward.value if reward else None for reward in rewards])
            return found
        finally:
            await environment.close()

    assert asyncio.run(play_all()) == [[1.0, 1.0, 0.0]] * 4


def test_without_refinements_queries_stay_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = SolverBackend(list_replies())
    outputs = run_stages(monkeypatch, tmp_path, backend, list_stages(1, queries={"refinements": []})[:-3])
    assert f"queries/{KEY}/0.refined" not in backend.asked
    made = outputs.of("queries")[f"{KEY}/0"]
    assert made["turns"] == made["drafts"]
    one = list_stages(1, queries={"refinements": ["ambiguity"]})[:-3]
    backend = SolverBackend(list_replies())
    run_stages(monkeypatch, tmp_path / "one", backend, one)
    prompt = backend.prompts[f"queries/{KEY}/0.refined"]
    assert "- Ambiguity and difficulty" in prompt
    assert "- Implicit reference" not in prompt


@pytest.mark.parametrize("name", list(read_replies("bad")))
def test_bad_replies_are_refused_or_asked_for_again(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = read_replies("bad")[name]
    replies = list_replies() | {f"{case['item']}.{label}": text.strip() for label, text in case["replies"].items()}
    backend = SolverBackend(replies)
    outputs = run_stages(monkeypatch, tmp_path, backend, list_stages(case.get("number", 1)))
    stage, _, key = case["item"].partition("/")
    if "reason" in case:
        refusal = outputs.refused[stage][key]
        assert (refusal.reason, case["detail"] in refusal.detail) == (case["reason"], True), refusal
        assert not outputs.of("gated")
    if "again" in case:
        assert case["detail"] in backend.prompts[f"{case['item']}.{case['again']}"]
    if "unsolved" in case:
        solved = outputs.of("solved")[key]
        assert case["unsolved"] in solved["unsolved"]
        task = Task.model_validate(outputs.of("gated")[key])
        assert (task.tags[0], len(task.goals)) == ("single_turn", 1)
        assert task.measured["solver"].model_dump() == {"n": 2, "solved": 1}


def test_equal_replies_in_another_order_give_equal_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class SlowBackend(SolverBackend):
        async def complete(self, request: Request, *, draw: str) -> Reply:
            await asyncio.sleep(0.02 * (len(draw) * 7 % 5 + draw.count("solver1")))
            return await super().complete(request, draw=draw)

    found = [
        run_stages(monkeypatch, tmp_path / kind.__name__, kind(list_replies()), list_stages())
        for kind in (SolverBackend, SlowBackend)
    ]
    assert orjson.dumps(found[0].made) == orjson.dumps(found[1].made)
    assert found[0].notes == found[1].notes


def test_a_turn_that_only_reads_is_judged_by_its_look_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    item = f"solved/{KEY}/0"
    member = '{"name": "library_get_member", "arguments": {"member_id": "MB-02"}}'
    book = '{"name": "search_books", "arguments": {"word": "Maren"}}'
    pay = '{"name": "pay_fine", "arguments": {"member_id": "MB-02"}}'
    turn = '{"subgoals": ["tell what MB-02 owes"], "query": "Tomas Weber, card MB-02: do I owe the library anything?"}'
    replies = list_replies() | {
        f"queries/{KEY}/0.queries": f"```json\n[{turn}]\n```",
        f"{item}.turn1-solver1/0": f"<tool_call>{member}</tool_call><tool_call>{book}</tool_call>",
        f"{item}.turn1-solver1/1": "You owe 4.50.",
        f"{item}.turn1-solver2/0": f"<tool_call>{member}</tool_call><tool_call>{pay}</tool_call>",
        f"{item}.turn1-solver2/1": "You owed 4.50, and I have recorded that you paid.",
        f"{item}.turn1-select": '{"right": [1], "best": 1, "essential": [1]}',
    }
    stages = list_stages(1, queries={"refinements": []}, plans={"number": 1, "turns": 1, "tools": 1})
    outputs = run_stages(monkeypatch, tmp_path, SolverBackend(replies), stages)
    assert not any(outputs.refused.values()), outputs.refused
    (row,) = outputs.of("gated").values()
    task = Task.model_validate(row)
    assert list_call_names(task) == [["library_get_member"]]
    assert [part.kind for part in task.goals[0].parts] == ["state", "trace"]
    assert task.measured["solver"].model_dump() == {"n": 2, "solved": 1}


def test_whole_conversations_are_measured_by_the_named_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replies = list_replies()
    turns = [
        ("turn1-solver1/0", "turn1-solver1/1", "turn1-solver1/2", "turn1-solver1/3"),
        ("turn2-solver1/0", "turn2-solver1/1", "turn2-solver1/2"),
    ]
    labels = [label for turn in turns for label in turn]
    played = {f"gated/{KEY}/0.try1/{n}": replies[f"solved/{KEY}/0.{label}"] for n, label in enumerate(labels)}
    idle = {f"gated/{KEY}/0.try2/{n}": "I cannot do that." for n in (0, 1)}
    agent = {"agent": "small", "tries": 2, "sampling": {"calls": "hermes"}}
    outputs = run_stages(
        monkeypatch, tmp_path, SolverBackend(replies | played | idle), list_stages(1, difficulty=agent)
    )
    assert outputs.of("gated")[f"{KEY}/0"]["measured"] == {"small": {"n": 2, "solved": 1}}


def test_a_measuring_agent_needs_a_model() -> None:
    given = {"conversations": {"difficulty": {"agent": "small"}}}
    with pytest.raises(UserError, match="no role is named 'small'"):
        parse_config(EnvFactoryConfig, given, where="the test")


def test_configs_with_the_retired_selector_load() -> None:
    old = {"conversations": {"solving": {"selector": True}}}
    assert parse_config(EnvFactoryConfig, old, where="test") == EnvFactoryConfig()
    old["conversations"]["solving"]["selector"] = False
    with pytest.warns(FutureWarning, match=r"solving\.selector had no effect"):
        assert parse_config(EnvFactoryConfig, old, where="test") == EnvFactoryConfig()
