"""The simulated world: what reaches the model, how its answers are read, the ledger, sharing in a group, faults."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.envs.users import NoUser
from simia.envs.worlds.simulated import SimulatedBackend
from simia.envs.worlds.simulated.feedback import UnreadableAnswer, parse_answers
from simia.envs.worlds.simulated.world import SimulatedWorld
from simia.envs.worlds.world import ToolResult
from simia.errors import Aborted, Code, UserError
from simia.llm.engine import Engine, EngineLimits
from simia.llm.journals import MemoryJournal
from simia.llm.types import LLMFault, Reply, Request
from simia.pack import Pack
from simia.quality.entity_ledger import EntityLedger, iterate_entities
from simia.task import Task
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall
from tests.packs.small import small

Answerer = Callable[[Request], str]
ID = {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]}
STATUS = {"type": "object", "properties": {"status": {"enum": ["pending", "shipped"]}}, "required": ["status"]}
PACK = Pack(
    name="shop",
    policy="Be kind.",
    tools=[
        ToolSpec(name="get_order", description="An order.", parameters=ID),
        ToolSpec(name="cancel_order", description="Cancels it.", parameters=ID, extra={"returns": STATUS}),
    ],
)
TASK = Task.model_validate(
    {"id": "t", "instruction": "Cancel ORD-1.", "reference": [{"name": "cancel_order", "arguments": {"order_id": "ORD-1"}}]}
)  # fmt: skip


class Scripted:
    """A model that says what a function makes of the request; for load and faults."""

    alias, model, structured, cut_at = "scripted", "scripted", False, 0

    def __init__(self, answer: Answerer) -> None:
        self.answer, self.asked = answer, list[Request]()

    async def start(self) -> None: ...

    async def complete(self, request: Request, *, draw: str) -> Reply:
        self.asked.append(request)
        await asyncio.sleep(0.01)
        return Reply(text=self.answer(request), finish="length" if request.max_tokens == self.cut_at else "stop")

    async def close(self) -> None: ...


def replies(*texts: Any) -> Answerer:
    left = [text if isinstance(text, str) else json.dumps({"answers": text}) for text in texts]
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


def result(content: Any, call: int = 1, changes: list[Any] | None = None, outcome: str = "result") -> dict[str, Any]:
    return {"call": call, "outcome": outcome, "content": content, "changes": changes or []}


@asynccontextmanager
async def simulated(
    answer: Answerer, pack: Pack = PACK, **settings: Any
) -> AsyncIterator[tuple[SimulatedBackend, Scripted]]:
    model = Scripted(answer)
    async with Engine(model, MemoryJournal(), EngineLimits(retries=1, backoff=0.01)) as engine:
        yield SimulatedBackend(pack, engine=engine, **settings), model


async def do(world: SimulatedWorld, name: str, /, **arguments: Any) -> ToolResult:
    return (await world.call([ToolCall(id="c", name=name, arguments=arguments)]))[0]


def asked(request: Request) -> str:
    return str(request.messages[-1]["content"])


async def test_what_is_malformed_never_reaches_the_model() -> None:
    async with simulated(replies([result("x")])) as (backend, model):
        world = await backend.open(TASK)
        calls = [
            ToolCall(id="1", name="get_orders", arguments={}),
            ToolCall(id="2", name="get_order", arguments={"order_id": 7}),
            ToolCall(id="3", name="get_order", raw="{"),
        ]
        results = await world.call(calls)
        assert [each.error for each in results] == [Code.UNKNOWN_TOOL, Code.BAD_ARGUMENTS, Code.UNPARSABLE_ARGUMENTS]
        assert model.asked == []
        mixed = await world.call([calls[0], ToolCall(id="4", name="get_order", arguments={"order_id": "ORD-1"})])
        assert (mixed[0].error, mixed[1].content, len(model.asked)) == (Code.UNKNOWN_TOOL, "x", 1)


async def test_calls_of_one_turn_are_one_request_and_answered_in_their_order() -> None:
    answers = [result({"n": 2}, call=2), result("refused", call=1, outcome="error")]
    async with simulated(replies(answers)) as (backend, model):
        world = await backend.open(TASK)
        first, second = await world.call(
            [ToolCall(id="a", name="get_order", arguments={"order_id": "A-1"}), ToolCall(id="b", name="get_order", arguments={"order_id": "B-2"})]
        )  # fmt: skip
        assert (first.call_id, first.error, first.content) == ("a", Code.TOOL_ERROR, '{"error":"refused"}')
        assert (second.call_id, second.error, second.data) == ("b", None, {"n": 2})
        assert len(model.asked) == 1


@pytest.mark.parametrize(
    ("knowledge", "holds", "lacks"),
    [
        ("reference", ["Cancel ORD-1.", 'cancel_order {"order_id":"ORD-1"}'], []),
        ("schema", [], ["Cancel ORD-1.", "# A solution"]),
    ],
)
async def test_what_the_simulator_is_given(knowledge: str, holds: list[str], lacks: list[str]) -> None:
    async with simulated(replies([result({"order_id": "ORD-1", "status": "pending"})]), knowledge=knowledge) as (
        backend,
        model,
    ):
        world = await backend.open(TASK)
        for _ in range(2):
            await do(world, "get_order", order_id="ORD-1")
        first, second = (asked(request) for request in model.asked)
        assert all(words in first for words in holds)
        assert not any(words in first for words in lacks)
        assert model.asked[0].messages[0] == model.asked[1].messages[0]  # static first: rules, tools, policy
        assert "Be kind." in str(model.asked[0].messages[0]["content"])
        assert '1. agent: get_order {"order_id":"ORD-1"}\n   result: {"order_id":"ORD-1","status":"pending"}' in second
        assert 'order ORD-1: {"order_id":"ORD-1","status":"pending"}' in second


async def test_a_contradiction_is_named_and_mended_once() -> None:
    texts = [
        [result({"order_id": "ORD-1", "status": "pending"})],
        [result({"order_id": "ORD-1", "status": "shipped"})],
        [result({"order_id": "ORD-1", "status": "pending"})],
    ]
    async with simulated(replies(*texts)) as (backend, model):
        world = await backend.open(TASK)
        await do(world, "get_order", order_id="ORD-1")
        again = await do(world, "get_order", order_id="ORD-1")
        assert again.data["status"] == "pending"
        assert again.detail == ""
        assert len(model.asked) == 3
        assert "status of 'ORD-1' was 'pending' before and is 'shipped' in this answer" in asked(model.asked[2])


async def test_one_that_stays_is_given_and_noted() -> None:
    texts = [[result({"order_id": "ORD-1", "status": status})] for status in ("pending", "shipped", "shipped")]
    async with simulated(replies(*texts)) as (backend, _):
        world = await backend.open(TASK)
        await do(world, "get_order", order_id="ORD-1")
        stays = await do(world, "get_order", order_id="ORD-1")
        assert stays.error is None
        assert "was 'pending' before" in stays.detail


async def test_an_episode_goes_on_over_one_that_stays() -> None:
    texts = [[result({"order_id": "ORD-1", "status": status})] for status in ("pending", "shipped", "shipped")]
    call = {"id": "c", "name": "get_order", "arguments": {"order_id": "ORD-1"}}
    async with simulated(replies(*texts), again=1) as (backend, _):
        environment = Environment(PACK, backend, backend_name="simulated", user=NoUser)
        episode = await environment.reset(TASK)
        for _ in range(2):
            step = await episode.step(Message.model_validate({"role": "assistant", "calls": [call]}))
            assert step.end is None
        assert [(issue.code, "was 'pending'" in issue.detail) for issue in episode.issues] == [("contradiction", True)]


async def test_a_named_change_is_none() -> None:
    change = {"table": "orders", "key": "ORD-1", "set": {"status": "shipped"}}
    texts = [
        [result({"order_id": "ORD-1", "status": "pending"})],
        [result({"status": "shipped"}, changes=[change])],
        [result({"order_id": "ORD-1", "status": "shipped"})],
    ]
    async with simulated(replies(*texts)) as (backend, model):
        world = await backend.open(TASK)
        await do(world, "get_order", order_id="ORD-1")
        await do(world, "cancel_order", order_id="ORD-1")
        await do(world, "get_order", order_id="ORD-1")
        assert len(model.asked) == 3
        assert (await world.evidence()) == {"simulated": [change]}


async def test_a_result_that_breaks_its_schema_is_asked_for_again() -> None:
    async with simulated(replies([result({"status": "gone"})], [result({"status": "shipped"})])) as (backend, model):
        world = await backend.open(TASK)
        assert (await do(world, "cancel_order", order_id="ORD-1")).data == {"status": "shipped"}
        assert "breaks its schema" in asked(model.asked[1])


async def test_a_group_shares_what_it_asks_the_same_and_pays_once() -> None:
    count = iter(range(1000))
    async with simulated(lambda _: json.dumps({"answers": [result({"n": next(count)})]})) as (backend, model):
        worlds = [await backend.open(TASK, group="g") for _ in range(8)]
        same = await asyncio.gather(*(do(world, "get_order", order_id="A-1") for world in worlds))
        assert len({each.content for each in same}) == 1
        assert len(model.asked) == 1
        await do(worlds[0], "cancel_order", order_id="A-1")  # from here on it is another world
        later = await asyncio.gather(*(do(world, "get_order", order_id="B-2") for world in worlds))
        assert len({each.content for each in later}) == 2
        apart = [await backend.open(TASK), await backend.open(TASK, group="h")]
        others = [await do(world, "get_order", order_id="A-1") for world in apart]
        assert len({each.content for each in (*others, same[0])}) == 3


async def test_an_answer_that_fails_after_its_episode_was_cancelled_logs_no_traceback() -> None:
    logged, asking, closed = list[object](), asyncio.Event(), asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))

    async def make() -> Any:
        asking.set()
        await closed.wait()
        raise RuntimeError("the back end is closed")

    async with simulated(replies([])) as (backend, _):
        episode = asyncio.create_task(backend.shared("place", make))
        await asking.wait()
        episode.cancel()
        await asyncio.gather(episode, return_exceptions=True)
        closed.set()
        await asyncio.sleep(0.01)
        backend._shared.clear()
        del episode
        gc.collect()
    assert not logged


async def test_a_tool_that_ends_the_episode_ends_it_here_too() -> None:
    pack = PACK.model_copy(update={"ends": ["cancel_order"]})
    answers = replies([result({"order_id": "A-1"}), result({"status": "shipped"}, call=2)], '{"solved": true}')
    async with simulated(answers, pack) as (backend, model):
        environment = await open_environment(pack, backend="simulated", engine=backend.engine, user="none")
        episode = await environment.reset(TASK)
        names = ["get_order", "cancel_order", "get_order"]
        calls = [ToolCall(id=str(n), name=name, arguments={"order_id": "A-1"}) for n, name in enumerate(names)]
        step = await episode.step(Message(role="assistant", calls=calls))
        assert step.end is not None
        assert (step.end.kind, step.end.code) == ("terminated", Code.FINISHED)
        assert [message.error for message in step.messages] == [None, None, Code.FINISHED]
        assert step.reward is not None
        assert step.reward.value == 1.0
        assert len(model.asked) == 2  # the last call was not asked about


def test_an_end_that_is_no_tool_is_said(tmp_path: Path) -> None:
    (tmp_path / "pack.yaml").write_text("format: 1\nname: p\nends: [no_such]\n")
    with pytest.raises(UserError, match="no tool 'no_such'"):
        Pack.load(tmp_path)


async def test_a_snapshot_goes_on_without_asking() -> None:
    async with simulated(replies([result({"order_id": "A-1", "status": "pending"})]), again=0) as (backend, model):
        world = await backend.open(TASK, group="g")
        await do(world, "get_order", order_id="A-1")
        copy = await backend.open(TASK, snapshot=await world.snapshot())
        assert await copy.state() == await world.state() == {"order": {"A-1": {"order_id": "A-1", "status": "pending"}}}
        await asyncio.gather(do(world, "get_order", order_id="B-2"), do(copy, "get_order", order_id="B-2"))
        assert len(model.asked) == 2


async def test_an_outage_is_an_aborted_episode_and_is_not_remembered() -> None:
    down = [True]

    def answer(_: Request) -> str:
        if down[0]:
            raise LLMFault(Code.SERVER_ERROR, "503", retry=True)
        return json.dumps({"answers": [result("fine")]})

    async with simulated(answer) as (backend, _):
        environment = await open_environment(PACK, backend="simulated", engine=backend.engine, user="none")
        episode = await environment.reset(TASK, group="g")
        call = Message(role="assistant", calls=[ToolCall(id="1", name="get_order", arguments={"order_id": "A-1"})])
        step = await episode.step(call)
        assert step.end is not None
        assert (step.end.kind, step.end.code) == ("aborted", Code.SERVER_ERROR)
        assert step.reward is not None
        assert step.reward.value is None
        down[0] = False
        again = await environment.reset(TASK, group="g")
        assert (await again.step(call)).messages[0].content == "fine"


@pytest.mark.parametrize("texts", [["no JSON at all"], ['{"answers": []}'], ['{"answers": [{"call": 1}]}']])
async def test_an_answer_that_cannot_be_read_is_asked_for_again_then_aborts(texts: list[str]) -> None:
    fine = json.dumps({"answers": [result("fine")]})
    async with simulated(replies(texts[0], fine)) as (backend, model):
        assert (await do(await backend.open(TASK), "get_order", order_id="A-1")).content == "fine"
        assert "could not be read" in asked(model.asked[1])
    async with simulated(replies(texts[0])) as (backend, _):
        with pytest.raises(Aborted) as caught:
            await do(await backend.open(TASK), "get_order", order_id="A-1")
        assert caught.value.code is Code.UNPARSABLE


async def test_a_reply_that_was_cut_gets_twice_the_room() -> None:
    fine = json.dumps({"answers": [result("fine")]})
    async with simulated(replies("<think> what may it be", fine), max_tokens=100) as (backend, model):
        model.cut_at = 100
        assert (await do(await backend.open(TASK), "get_order", order_id="A-1")).content == "fine"
        assert [request.max_tokens for request in model.asked] == [100, 200]


async def test_a_prompt_keeps_within_its_context() -> None:
    long = "word " * 12_000
    answer = replies([result({"order_id": "A-1", "text": long})])
    async with simulated(answer, context=60_000, again=0) as (backend, model):
        world = await backend.open(TASK)
        for number in range(12):
            await do(world, "get_order", order_id=f"A-{number}")
        sizes = [sum(len(str(message["content"])) for message in request.messages) for request in model.asked]
        assert max(sizes) / 3.6 < 60_000
        last = asked(model.asked[-1])
        assert "(shortened)" in last
        assert "A-10" in last
        assert world.history[0].answer.content["text"] == long  # private to the prompt


async def test_as_many_episodes_as_the_endpoint_takes_run_at_once_over_one_copy_of_the_pack() -> None:
    """The authors' environment ran 16 of 128 at a time, each with a data set of its own."""
    model = Counting()
    async with Engine(model, MemoryJournal(), EngineLimits(concurrency=128, start=128)) as engine:
        backend = SimulatedBackend(PACK, engine=engine)
        worlds = [await backend.open(TASK, seed=seed) for seed in range(128)]
        await asyncio.gather(*(do(world, "get_order", order_id="A-1") for world in worlds))
        assert model.most == 128
        assert all(world.tools["agent"] is PACK.tools for world in worlds)
        assert len({id(world._backend) for world in worlds}) == 1


class Counting(Scripted):
    """How many requests are in flight at most; each waits until nobody else comes."""

    def __init__(self) -> None:
        super().__init__(replies([result("x")]))
        self.now = self.most = 0

    async def complete(self, request: Request, *, draw: str) -> Reply:
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(20):
            await asyncio.sleep(0.01)
        self.now -= 1
        return Reply(text=self.answer(request))


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ('```json\n{"answers": [{"call": 1, "outcome": "result", "content": {"a": 1},}]}\n```', {"a": 1}),
        ('{"answers": [{"call": 1, "outcome": "result", "content": "{\\"a\\": 1}"}]}', {"a": 1}),
        ('[{"call": 1, "outcome": "ok", "content": null}]', None),
        ('{"call": 1, "outcome": "result", "content": [1]}', [1]),
        ('{"answers": [{"call": 1, "outcome": "error", "content": "no"}]}', {"error": "no"}),
        ('[{"call": 1, "outcome": "result", "content": 1}, {"call": 2, "outcome": "result", "content": 2}]', 1),
        ('say {"content": 7}?\n</think>\n\n{"call": 1, "outcome": "result", "content": 8}', 8),
    ],
)
def test_slips_of_form_are_read(text: str, content: Any) -> None:
    assert parse_answers(text, 1)[0].content == content


@pytest.mark.parametrize(
    "text",
    ['{"answers": [{"outcome": "maybe", "content": 1}]}', '{"answers": 3}', "null", '[{"call": 1, "outcome": "result", "content": 1}, {"call": 1, "outcome": "result", "content": 2}]', '{"answers": [{"outcome": "result", "content": 1, "changes": [{"set": 3}]}]}'],
)  # fmt: skip
def test_what_has_two_readings_is_not(text: str) -> None:
    with pytest.raises(UnreadableAnswer):
        parse_answers(text, 1)


def test_entities_of_a_result() -> None:
    value = {
        "customer_id": "C-1",
        "orders": [{"order_id": "O-1", "total": 3.5, "items": [{"sku": "x"}]}],
        "lines": [{"order_id": "O-1", "item_id": "I-9", "count": 2}],
        "accounts": {"ACC-1": {"balance": 4}},
    }
    assert sorted(each[:3] for each in iterate_entities(value)) == [
        ("account", "ACC-1", {"balance": 4}),
        ("customer", "C-1", {"customer_id": "C-1"}),
        ("item_id+order_id", "I-9|O-1", {"count": 2, "item_id": "I-9", "order_id": "O-1"}),
        ("order", "O-1", {"order_id": "O-1", "total": 3.5, "items": [{"sku": "x"}]}),
    ]


def test_what_names_another_entity_is_not_that_one() -> None:
    """A refund has its order's id and a status of its own; what was done to it may have changed the order."""
    fine: dict[str, Any] = {"failed": False, "changes": []}
    ledger, order = EntityLedger(), {"order_id": "O-1", "status": "cancelled", "total": 5}
    ledger.take("get_order", {"order_id": "O-1"}, order, **fine)
    refund = {"order_id": "O-1", "status": "on_its_way"}
    assert ledger.find_contradictions("get_refund", {"order_id": "O-1"}, refund, **fine) == []
    ledger.take("get_refund", {"order_id": "O-1"}, refund, **fine)
    assert "status of 'O-1'" in ledger.find_contradictions("get_order", {}, {**order, "status": "pending"}, **fine)[0]
    assert ledger.find_contradictions("get_refund", {}, {**refund, "status": "paid"}, **fine)
    ledger.take("apply_voucher", {"order_id": "O-1"}, {"order_id": "O-1", "total": 4}, **fine)
    assert ledger.find_contradictions("get_order", {}, {**order, "total": 4}, **fine) == []
    assert ledger.find_contradictions("get_order_details", {}, {**order, "status": "pending"}, **fine)
    ledger.take("get_order", {"order_id": "O-1"}, {**order, "total": 4}, **fine)
    ledger.take("remove_item", {}, {"order_id": "O-1", "item_id": "I-1", "total": 3}, **fine)
    assert ledger.find_contradictions("get_order", {}, {**order, "total": 3}, **fine) == []
    assert ledger.find_contradictions("get_order", {}, {**order, "total": 2}, **fine)


def test_what_is_nested_is_kept_and_compared() -> None:
    fine: dict[str, Any] = {"failed": False, "changes": []}
    ledger = EntityLedger()
    order = {"order_id": "O-1", "address": {"street": "Elm 1", "city": "Graz"}, "date": "2025-09-15", "tags": ["a"]}
    ledger.take("get_order", {}, order, **fine)
    assert "Elm 1" in ledger.render()
    assert '"a"' in ledger.render()
    assert ledger.find_contradictions("get_order", {}, {**order, "date": "2025-09-15T10:00:00"}, **fine) == []
    moved = {**order, "address": {"street": "Oak 2", "city": "Graz"}}
    assert ledger.find_contradictions("get_order", {}, moved, **fine) == [
        "address.street of 'O-1' was 'Elm 1' before and is 'Oak 2' in this answer"
    ]
    named = [{"table": "orders", "key": "O-1", "set": {"address": moved["address"]}}]
    assert ledger.find_contradictions("change_address", {}, moved, failed=False, changes=named) == []
    assert ledger.find_contradictions("change_address", {"street": "Oak 2"}, moved, **fine) == [], "it was asked for"
    ledger.take("change_address", {}, "done", failed=False, changes=named)
    assert ledger.find_contradictions("get_order", {}, moved, **fine) == []


def test_the_ledger_refuses_what_does_not_exist_or_was_taken_away() -> None:
    ledger = EntityLedger.from_state({"orders": {"O-1": {"status": "pending"}}, "flags": {"open": True}})
    good = {"order_id": "O-1", "status": "pending"}
    fine: dict[str, Any] = {"failed": False, "changes": []}
    assert ledger.find_contradictions("get_order", {"order_id": "O-1"}, good, **fine) == []
    assert (
        "there is none such"
        in ledger.find_contradictions("get_order", {"order_id": "O-9"}, {"order_id": "O-9"}, **fine)[0]
    )
    assert ledger.find_contradictions("get_order", {"order_id": "O-9"}, "no such order", failed=True, changes=[]) == []
    other = ledger.find_contradictions("get_order", {"order_id": "O-1"}, {"order_id": "O-7"}, **fine)
    assert other == ["get_order was asked about order_id 'O-1', and the answer is about 'O-7'"]
    ledger.take("get_customer", {"customer_id": "C-7"}, {"error": "C-7 not found"}, failed=True, changes=[])
    for name in ("get", "delete_customer"):
        assert "does not exist" in ledger.find_contradictions(name, {"customer_id": "C-7"}, {"id": "C-7"}, **fine)[0]
    assert ledger.find_contradictions("save_customer", {"customer_id": "C-7"}, {"id": "C-7"}, **fine) == []
    ledger.take("delete_order", {}, "ok", failed=False, changes=[{"table": "orders", "key": "O-1", "set": None}])
    assert "taken away" in ledger.find_contradictions("get_order", {"order_id": "O-1"}, good, **fine)[0]
    made = [{"table": "orders", "key": "O-2", "set": {"status": "pending"}}]
    assert (
        ledger.find_contradictions("create_order", {"order_id": "O-2"}, {"order_id": "O-2"}, failed=False, changes=made)
        == []
    )
    assert EntityLedger.load(json.loads(json.dumps(ledger.dump()))) == ledger


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"email": "bob42@example.com"}, "no user found with bob42@example.com"),
        ({"origin": "HAM", "date": "2026-05-04"}, "no flights found on 2026-05-04"),
        ({"slot_id": "2026-05-04"}, "2026-05-04 not found"),
        ({"amount": "12.50"}, "unknown amount 12.50"),
        ({"branch_id": "20417"}, "20417 not found"),
        ({"query": "lamp2"}, "no item found for lamp2"),
    ],
)
def test_only_keys_do_not_exist_for_the_ledger(arguments: dict[str, str], why: str) -> None:
    ledger = EntityLedger()
    ledger.take("find_it", arguments, {"error": why}, failed=True, changes=[])
    assert ledger.render() == ""
    found = ledger.find_contradictions("search_others", arguments, [{"train_id": "ICE-1"}], failed=False, changes=[])
    assert [each for each in found if "does not exist" in each] == []


def test_a_key_exists_for_the_ledger_once_a_change_or_a_result_holds_it() -> None:
    fine: dict[str, Any] = {"failed": False, "changes": []}
    known = {"user_ids": ["U-77"]}
    made = [{"table": "accounts", "key": "A-1", "set": {"user_id": "U-77"}}]
    for name, content, changes in (
        ("create_account", "done", made),
        ("create_user", {"user_id": "U-77"}, []),
        ("list_users", ["U-77"], []),
    ):
        ledger = EntityLedger()
        ledger.take("get_user", known, "U-77 does not exist", failed=True, changes=[])
        assert ledger.render() == "does not exist: U-77"
        assert ledger.find_contradictions("get_user", known, {"name": "Bob"}, **fine)
        assert ledger.find_contradictions("create_user", known, content, failed=False, changes=changes) == []
        ledger.take(name, {}, content, failed=False, changes=changes)
        assert ledger.missing == set()


async def test_known_tables_are_those_that_the_task_begins_with(tmp_path: Path) -> None:
    """A task's patch is in the prompt and in the ledger; without it what the patch adds would be refused."""
    small(tmp_path)
    (tmp_path / "state.json").write_text('{"orders": {"O-1": {"status": "open"}}}')
    pack = Pack.load(tmp_path)
    task = TASK.model_copy(update={"initial": {"patch": {"orders": {"O-9": {"status": "packed"}}}}})
    async with simulated(replies([result({"order_id": "O-9"})]), pack, knowledge="state", stateful=False) as (
        backend,
        model,
    ):
        world = await backend.open(task)
        assert world.ledger.tables["order"].keys() == {"O-1", "O-9"}
        again = await backend.open(task, snapshot=await world.snapshot())
        assert again.ledger == world.ledger
        await world.call(
            [
                ToolCall(
                    id="c",
                    name=pack.tools[0].name,
                    arguments=dict.fromkeys(pack.tools[0].parameters.get("required", []), "x"),
                )
            ]
        )
        assert 'orders O-9: {"status":"packed"}' in asked(model.asked[0])
        assert (await backend.open(TASK)).ledger.tables["order"].keys() == {"O-1"}


def test_knowledge_that_a_pack_does_not_have_is_said() -> None:
    with pytest.raises(UserError, match="no JSON file of its state"):
        SimulatedBackend(PACK, knowledge="state")
    with pytest.raises(UserError, match="knowledge"):
        SimulatedBackend(PACK, knowledge="all")
    with pytest.raises(UserError, match="no tools"):
        SimulatedBackend(Pack(name="empty"))
