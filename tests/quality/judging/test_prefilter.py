"""The pre-filter by a model: order, draws, retries, the journal; and a judge that fails never drops a seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from simia.config import Config, parse_config
from simia.errors import Code, UserError
from simia.jobs import Run
from simia.llm.engine import BudgetReached, Engine, EngineLimits
from simia.llm.types import LLMFault, Reply, Request
from simia.quality.judging.panel import judge_seeds_by_llm
from simia.quality.judging.rubric import Rubric, render_turns
from simia.quality.judging.settings import PrefilterSettings
from simia.trajectory import End, Message, ToolCall, Trajectory
from tests.quality.judging.cases import seed
from tests.quality.judging.fakes import FakeJudge, said

GOOD = said(completeness=True, logic=True, format=True)
BAD = said(completeness=True, logic=False, format=True)
NAMES = ("cs-001", "cs-002", "cs-003", "cs-004")


def about(request: Request, name: str) -> bool:
    return seed(name).messages[0].text in request.messages[1]["content"]


async def test_verdicts_stand_in_the_order_of_the_seeds() -> None:
    backend = FakeJudge(lambda request, _: BAD if about(request, "cs-002") else GOOD)
    seeds = [seed(name) for name in NAMES]
    verdicts = await judge_seeds_by_llm(seeds, PrefilterSettings(), Engine(backend))
    assert [verdict.passed for verdict in verdicts] == [True, False, True, True]
    assert [[issue.where for issue in verdict.issues] for verdict in verdicts] == [[], ["logic"], [], []]


async def test_an_unreadable_reply_is_asked_for_again_with_its_fault_named() -> None:
    backend = FakeJudge(lambda _, draw: GOOD if draw == "prefilter.1" else "All fine, I think.")
    (verdict,) = await judge_seeds_by_llm([seed("cs-001")], PrefilterSettings(), Engine(backend))
    assert verdict.passed is True
    (first, _), (second, draw) = backend.asked
    assert draw == "prefilter.1"
    assert second.messages[: len(first.messages)] == first.messages
    assert second.messages[-2] == {"role": "assistant", "content": "All fine, I think."}
    assert "no JSON object" in second.messages[-1]["content"]


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("no idea", Code.UNPARSABLE),
        ("", Code.EMPTY_REPLY),
        (Reply(text=GOOD, finish="length"), Code.TRUNCATED),
        (LLMFault(Code.SERVER_ERROR, "down", retry=False), Code.SERVER_ERROR),
    ],
)
async def test_a_judge_that_fails_keeps_the_seed_and_says_so(reply: str | Reply | LLMFault, code: Code) -> None:
    seeds = [seed("cs-001")]
    verdicts = await judge_seeds_by_llm(seeds, PrefilterSettings(), Engine(FakeJudge(lambda *_: reply)))
    assert [(verdict.passed, verdict.error) for verdict in verdicts] == [(None, code)]
    assert verdicts[0].issues == []


async def test_votes_are_draws_of_their_own() -> None:
    backend = FakeJudge(lambda _, draw: {"prefilter.0": BAD, "prefilter.1": GOOD, "prefilter.2": BAD}[draw])
    settings = PrefilterSettings(votes=3)
    (verdict,) = await judge_seeds_by_llm([seed("cs-001")], settings, Engine(backend))
    assert (verdict.passed, len(verdict.votes), len({vote.reply_key for vote in verdict.votes})) == (False, 3, 3)
    with pytest.raises(UserError, match="odd"):
        parse_config(PrefilterSettings, {"votes": 2}, where="x")


async def test_a_resume_pays_nothing_again(tmp_path: Path) -> None:
    run = Run.create(tmp_path, Config(), name="r", facts={})
    seeds = [seed(name) for name in NAMES]
    backend = FakeJudge(lambda request, _: BAD if about(request, "cs-003") else GOOD)
    with pytest.raises(BudgetReached):
        await judge_seeds_by_llm(seeds, PrefilterSettings(), Engine(backend, run.ledger, EngineLimits(max_requests=2)))
    run.close()
    run = Run.open(tmp_path, "r")
    verdicts = await judge_seeds_by_llm(seeds, PrefilterSettings(), Engine(backend, run.ledger))
    assert [verdict.passed for verdict in verdicts] == [True, True, False, True]
    assert len(backend.asked) == 4
    assert run.ledger.reply_keys(f"prefilter-{seeds[2].id}") == [verdicts[2].reply_key]
    assert run.ledger.counts() == {}
    run.close()


def test_the_prompt_is_static_first_and_shows_every_turn() -> None:
    rubric = Rubric(PrefilterSettings())
    first, second = (rubric.messages(seed(name)) for name in ("cs-001", "cs-009"))
    assert first[0] == second[0]
    for wanted in (
        "## completeness",
        "## logic",
        "## format",
        '"name":"cancel_order"',
        "Pebbleford",
        '"pass": true or false',
    ):
        assert wanted in first[0]["content"]
    assert second[1]["content"].count('{"turn": ') == len(seed("cs-009").messages)
    assert rubric.request(seed("cs-001"), structured=False).response_format is None


def test_turns_name_the_call_that_a_result_answers() -> None:
    call = ToolCall(id="c", name="get", arguments={"n": 2**70})
    shown = render_turns(
        [
            Message(role="user", content='Hi\n{"turn": 9, "role": "tool"}'),
            Message(role="assistant", calls=[call, ToolCall(id="d", name="put", raw="{oops")]),
            Message(role="tool", call_id="d", content="[1]"),
            Message(role="tool", call_id="x", content="late", error=Code.TOOL_ERROR),
            Message(role="assistant", calls=[ToolCall(id="c", name="end", arguments={})]),
            Message(role="tool", call_id="c", content=""),
        ]
    )
    assert len(shown) == 6
    assert all("\n" not in line for line in shown)
    assert '"answers": "put, call 2 of turn 1", "content": [1]' in shown[2]
    assert '"answers": "no call", "content": "late", "error"' in shown[3]
    assert '"answers": "end, call 1 of turn 4", "content": ""' in shown[5]
    assert str(2**70) in shown[1]
    assert '"arguments": "{oops"' in shown[1]


def test_a_cut_trajectory_is_said_to_be_cut() -> None:
    assert list(Rubric(PrefilterSettings()).dimensions) == ["completeness", "logic", "format"]
    cut = Trajectory(messages=[Message(role="user", content="Hi")], end=End(kind="truncated", code=Code.TRUNCATED))
    assert "cut off here" in Rubric(PrefilterSettings()).messages(cut)[1]["content"]


def test_rubrics_of_ones_own(tmp_path: Path) -> None:
    own = tmp_path / "own.md"
    own.write_text("What for.\n\n## brief\nThe answer is short.\n\n## kind\nIt is kind.\n")
    assert list(Rubric(PrefilterSettings(rubric=str(own))).dimensions) == ["brief", "kind"]
    rubric = Rubric(PrefilterSettings(rubric=str(own), dimensions=["kind"]))
    assert rubric.schema()["json_schema"]["schema"]["required"] == ["kind"]
    assert str(own) in rubric.files
    with pytest.raises(UserError, match=r"no dimension 'logic'; it has: brief, kind"):
        Rubric(PrefilterSettings(rubric=str(own), dimensions=["kind", "logic"]))
    for heading in ("Brief", "overall", "kind"):
        bad = tmp_path / f"{heading}.md"
        bad.write_text(f"## kind\nx\n## {heading}\ny")
        with pytest.raises(UserError, match="cannot name a dimension"):
            Rubric(PrefilterSettings(rubric=str(bad)))
    broken = tmp_path / "broken.j2"
    broken.write_text("{{ nothing_of_that_name }}")
    with pytest.raises(UserError, match="nothing_of_that_name"):
        Rubric(PrefilterSettings(request=str(broken))).messages(seed("cs-001"))
