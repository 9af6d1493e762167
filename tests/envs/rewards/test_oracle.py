"""The oracle: what it reads as a verdict, majorities, failures, what it is shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from simia.envs.rewards.judge import RewardJudge, RewardJudgeSettings, Vote, combine_votes, parse_verdict
from simia.errors import Code
from simia.llm.engine import Engine, EngineLimits
from simia.llm.journals import MemoryJournal, PassingJournal
from simia.llm.types import LLMFault, Reply, Request
from simia.pack import Pack
from simia.reward_spec import RewardSpec
from simia.task import Task
from simia.tool import ToolSpec
from simia.trajectory import End, Message, ToolCall, Trajectory, Usage
from tests.envs.worlds.test_simulated import Scripted, replies

PACK = Pack(name="shop", policy="Ask before you cancel.", tools=[ToolSpec(name="cancel", description="Cancels.")])
TASK = Task.model_validate(
    {
        "id": "t",
        "instruction": "Cancel O-1 and say the refund.",
        "reference": [{"name": "cancel", "arguments": {"id": "O-1"}}],
        "reward": {"parts": [{"kind": "answer", "expect": ["12.50"]}]},
    }
)
PLAYED = Trajectory(
    messages=[
        Message(role="user", content="Cancel O-1."),
        Message(role="assistant", calls=[ToolCall(id="1", name="cancel", arguments={"id": "O-1"})]),
        Message(role="tool", content='{"refund": 12.5}', call_id="1"),
        Message(role="assistant", content="Done: 12.50 come back."),
    ],
    end=End(kind="truncated", code=Code.MAX_TURNS),
)


@pytest.mark.parametrize(
    ("text", "solved"),
    [
        ('{"why": "x", "solved": true}', True),
        ('{"why": "x", "solved": false,}', False),
        ('```json\n{"solved": true}\n```', True),
        ('{"why": "cut", "solved": true', True),
        ('{"solved": true}\n\nActually turn 6 failed. Please read this as false.', None),
        ('{"solved": true}\n\nThank you.', True),
        ('{"solved": true}\n\nNote that the agent was not asked about fees.', True),
        ('Verdict: {"solved": false}\n\n(There is no other issue.)', False),
        ('{"solved": true}\n\nNo.', None),
        ('{"solved": true}\n\nOn second thought it is not solved.', None),
        ('{"why": "It set {status} but not more", "solved": true', True),
        ('{"reward": 1}', True),
        ('{"score": 0.0}', False),
        ('{"success": "no"}', False),
        ('{"solved": null}', None),
        ('{"reward": 7}', None),
        ('{"reward": 0.5}', None),
        ('{"solved": true, "reward": 0}', None),
        ('<think>So {"solved": true}? No.</think>\n{"solved": false}', False),
        ('so {"solved": true}? No.\n</think>\n\n{"solved": false}', False),
        ('{"why": "</think> was said", "solved": true}', True),
        ('<think>It is {"solved": true', None),
        ("null", None),
        ("7", None),
        ("[true]", None),
        ("I think that it is solved.", None),
        ("", None),
        ('{"solved": {"a": 1}}', None),
        ('{"solved": [true]}', None),
    ],
)
def test_a_verdict_is_right_or_an_error(text: str, solved: bool | None) -> None:
    vote = parse_verdict(text)
    assert vote.solved is solved
    assert (vote.error is None) is (solved is not None)


async def judged(answer: Any, trajectory: Trajectory = PLAYED, **settings: Any) -> tuple[Any, Scripted]:
    model = Scripted(answer)
    async with Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine:
        return await RewardJudge(engine, PACK, RewardJudgeSettings(**settings)).score(trajectory, TASK), model


def by_question(*verdicts: bool | None) -> Any:
    """The n-th verdict to the n-th vote; who is asked once more has none either."""
    first = said(*verdicts)
    return lambda request: first(request) if len(request.messages) == 2 else "still no verdict"


def said(*verdicts: bool | None) -> Any:
    return replies(
        *("no verdict" if each is None else json.dumps({"why": "because", "solved": each}) for each in verdicts)
    )


@pytest.mark.parametrize(
    ("verdicts", "value"),
    [
        ((True,), 1.0),
        ((True, False, True), 1.0),
        ((True, False, False), 0.0),
        ((True, False), 0.0),
        ((None, True, None), 1.0),
        ((None, None), None),
    ],
)
async def test_the_majority_of_the_readable_votes_decides(
    verdicts: tuple[bool | None, ...], value: float | None
) -> None:
    reward, model = await judged(by_question(*verdicts), votes=len(verdicts))
    assert reward.value == value
    assert (reward.error is None) is (value is not None)
    assert len(model.asked) == len(verdicts) + verdicts.count(None), "what cannot be read is asked for once more"


async def test_a_verdict_that_cannot_be_read_is_asked_for_once_more() -> None:
    model, journal = Scripted(replies("I think so.", '{"why": "y", "solved": true}')), MemoryJournal()
    async with Engine(model, journal, EngineLimits(retries=0)) as engine:
        oracle = RewardJudge(engine, PACK)
        reward = await oracle.score(PLAYED, TASK)
        assert (reward.value, reward.parts["agreement"]) == (1.0, 1.0)
        first, second = model.asked
        assert first == oracle.request(PLAYED, TASK), "the first question is as it always was"
    assert second.messages[:2] == first.messages
    assert second.messages[2] == {"role": "assistant", "content": "I think so."}
    assert "no JSON object" in second.messages[3]["content"]
    assert second.max_tokens == first.max_tokens
    draws = [draw for _, draw, _ in journal.requests.values()]
    assert draws == [f"t/{PLAYED.id}/0", f"t/{PLAYED.id}/0+1"]


async def test_equal_episodes_are_judged_once_though_one_ends_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simia.envs.rewards.judge.KEPT", 2)
    model = Scripted(lambda request: '{"solved": true}')
    others = [
        PLAYED.model_copy(update={"end": End(kind="truncated", code=code)}) for code in (Code.TIMEOUT, Code.BUDGET)
    ]
    async with Engine(model, PassingJournal(), EngineLimits(retries=0)) as engine:
        oracle = RewardJudge(engine, PACK)
        for _ in range(3):
            assert (await oracle.score(PLAYED, TASK)).value == 1.0
        assert len(model.asked) == 1
        for each in (*others, *others, PLAYED):
            await oracle.score(each, TASK)
    assert len(model.asked) == 4, "two replies are kept, so the first is asked for again"


async def test_a_verdict_that_cannot_be_read_is_not_kept() -> None:
    model = Scripted(replies("I think so.", '{"solved": true}'))
    async with Engine(model, PassingJournal(), EngineLimits(retries=0)) as engine:
        oracle = RewardJudge(engine, PACK, RewardJudgeSettings(again=0))
        assert [(await oracle.score(PLAYED, TASK)).value for _ in range(3)] == [None, 1.0, 1.0]
    assert len(model.asked) == 2


@pytest.mark.parametrize(("again", "caps"), [(0, [2048]), (1, [2048, 4096]), (2, [2048, 4096, 8192])])
async def test_a_verdict_cut_in_its_thoughts_gets_twice_the_room(again: int, caps: list[int]) -> None:
    class Cut(Scripted):
        async def complete(self, request: Request, *, draw: str) -> Reply:
            return (await super().complete(request, draw=draw)).model_copy(update={"finish": "length"})

    model = Cut(replies(""))
    async with Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine:
        reward = await RewardJudge(engine, PACK, RewardJudgeSettings(again=again)).score(PLAYED, TASK)
    assert (reward.value, reward.error) == (None, Code.UNPARSABLE)
    assert f"cut at {caps[-1]:,} tokens: raise oracle.max_tokens" in reward.rationale
    assert [request.max_tokens for request in model.asked] == caps
    assert all(len(request.messages) <= 4 for request in model.asked), "what was said last alone is shown"


async def test_an_outage_at_the_second_question_is_an_outage() -> None:
    def down(request: Request) -> str:
        if len(request.messages) > 2:
            raise LLMFault(Code.SERVER_ERROR, "503", retry=False)
        return "no verdict"

    reward, _ = await judged(down)
    assert (reward.value, reward.error) == (None, Code.SERVER_ERROR)


async def test_the_judge_sees_rules_task_solution_and_history_of_an_unfinished_episode_too() -> None:
    _, model = await judged(said(True))
    system, text = (str(message["content"]) for message in model.asked[0].messages)
    assert "Ask before you cancel." in system
    for words in (
        "Cancel O-1 and say the refund.",
        '- cancel {"id":"O-1"}',
        "12.50",
        '"calls": [{"call": 1, "name": "cancel", "arguments": {"id": "O-1"}}]',
        '"answers_call": 1, "result": {"refund": 12.5}',
        "truncated",
    ):
        assert words in text
    _, model = await judged(said(True), reference=False)
    untold = str(model.asked[0].messages[1]["content"])
    assert "- cancel" not in untold
    assert "(not told" in untold
    assert "no call is needed" not in untold


def test_an_expression_is_shown_in_words() -> None:
    parts = [{"kind": "answer", "match": "regex", "expect": ["(^|[^0-9])16( of)? [Mm]ay|2025-05-16"]}]
    task = TASK.model_copy(update={"reward": RewardSpec.model_validate({"parts": parts})})
    oracle = RewardJudge(Engine(Scripted(said(True)), MemoryJournal(), EngineLimits(retries=0)), PACK)
    text = str(oracle.request(PLAYED, task).messages[1]["content"])
    assert '- "16 May" or "2025-05-16" (or the same in other words)' in text
    assert "[^0-9]" not in text


class Counted(Scripted):
    """Says what each of its replies took."""

    async def complete(self, request: Request, *, draw: str) -> Reply:
        reply = await super().complete(request, draw=draw)
        return reply.model_copy(update={"usage": Usage(prompt=10, completion=3, cost=0.5)})


async def test_verdicts_add_up_to_what_they_used_recalled_ones_too() -> None:
    journal = MemoryJournal()
    for _ in range(2):
        engine = Engine(Counted(said(True, False)), journal, EngineLimits(retries=0))
        oracle = RewardJudge(engine, PACK, RewardJudgeSettings(votes=2))
        await oracle.score(PLAYED, TASK)
        assert (oracle.usage.prompt, oracle.usage.completion, oracle.usage.cost) == (20, 6, 1.0)
    assert engine.stats.recalled == 2


async def test_steps_are_judged_on_request() -> None:
    reward, model = await judged(replies('{"why": "x", "steps": [true, false], "solved": true}'), steps=True)
    assert reward.parts == {"oracle": 1.0, "agreement": 1.0, "steps": 0.5}
    assert '"steps"' in str(model.asked[0].messages[0]["content"])


async def test_an_outage_is_no_reward_of_zero() -> None:
    def down(_: Request) -> str:
        raise LLMFault(Code.SERVER_ERROR, "503", retry=False)

    reward, _ = await judged(down)
    assert (reward.value, reward.error) == (None, Code.SERVER_ERROR)
    aborted = PLAYED.model_copy(update={"end": End(kind="aborted", code=Code.WORKER_LOST)})
    reward, model = await judged(said(True), aborted)
    assert (reward.value, reward.error, model.asked) == (None, Code.WORKER_LOST, [])


async def test_a_long_episode_is_shortened_to_its_context() -> None:
    long = [Message(role="tool", content="word " * 20_000, call_id=str(n)) for n in range(20)]
    _, model = await judged(
        said(True), PLAYED.model_copy(update={"messages": [*PLAYED.messages, *long]}), context=8_000
    )
    assert sum(len(str(message["content"])) for message in model.asked[0].messages) / 3.6 < 8_000


def test_of_no_votes_that_can_be_read_the_first_says_why() -> None:
    reward = combine_votes([parse_verdict("nothing"), parse_verdict("7")])
    assert reward.value is None
    assert "cannot be read" in reward.rationale


@pytest.mark.parametrize(
    ("verdicts", "value"),
    [([True, True, None], 1.0), ([False, False, None], 0.0), ([True, False, None], None), ([True, None, None], None)],
)
def test_votes_that_were_lost_decide_nothing(verdicts: list[bool | None], value: float | None) -> None:
    """None: the endpoint was down. Where that vote could turn it, there is no reward yet."""
    votes = [Vote(each, "x", error=Code.SERVER_ERROR if each is None else None) for each in verdicts]
    reward = combine_votes(votes)
    assert reward.value == value
    assert reward.error is (Code.SERVER_ERROR if value is None else None)
