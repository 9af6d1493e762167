"""A simulated world that holds the state: it ends as the executable one does, refuses changes that do not fit, forks, and shows little."""

from __future__ import annotations

import copy
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from eval.simulator.code_simulator import CodeSimulator, Corruption, cut_section
from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.envs.play.agent_kinds import AGENTS
from simia.envs.play.baseline_agents import ReferenceAgent
from simia.envs.play.player import play
from simia.envs.users import ScriptedUser
from simia.envs.worlds.simulated import SimulatedBackend
from simia.envs.worlds.simulated.backend import make_initial_state
from simia.envs.worlds.simulated.stateful_world import StatefulWorld
from simia.errors import Code, UserError
from simia.keyed_changes import apply_keyed_changes
from simia.llm.engine import Engine, EngineLimits
from simia.llm.journals import MemoryJournal
from simia.llm.types import LLMFault, Reply, Request
from simia.pack import Pack
from simia.state import apply_changes, are_equal
from simia.task import Task
from simia.trajectory import ToolCall, Trajectory
from tests.packs.small import small

SHOP = "customer_service"


@asynccontextmanager
async def simulated(
    pack: str | Pack = SHOP, *, corrupt: Corruption | None = None, **settings: Any
) -> AsyncIterator[tuple[Environment, CodeSimulator]]:
    loaded = pack if isinstance(pack, Pack) else Pack.load(pack)
    model = CodeSimulator(loaded, corrupt=corrupt)
    async with Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine:
        how = {"knowledge": "state", "reward": "rules", **settings}
        environment = await open_environment(loaded, backend="simulated", user=ScriptedUser, engine=engine, **how)
        async with environment:
            yield environment, model


async def play_solution(environment: Environment, task: Task) -> Trajectory:
    return await play(await environment.reset(task), ReferenceAgent(task))


def corrupt_writes(change: dict[str, Any], times: int) -> Corruption:
    """Name another change in the first so many answers that change anything."""
    left = [times]

    def corrupt(answer: dict[str, Any], request: Request) -> dict[str, Any]:
        if answer["changes"] and left[0]:
            left[0] -= 1
            return {**answer, "changes": [*answer["changes"], change]}
        return answer

    return corrupt


def list_results(trajectory: Trajectory) -> list[str]:
    return [message.text for message in trajectory.messages if message.role == "tool"]


def find_write(environment: Environment) -> Task:
    """A task whose first call cancels an order."""
    return next(task for task in environment.tasks if any(action.name == "cancel_order" for action in task.actions))


@pytest.mark.parametrize("pack", [SHOP, "hotel_front_desk", "job_seeking"])
@pytest.mark.parametrize("settings", [{"knowledge": "state"}, {"knowledge": "code", "compute": "reads"}])
async def test_the_rules_judge_simulated_episodes_as_they_judge_executed_ones(
    pack: str, settings: dict[str, Any]
) -> None:
    """The simulator is right wherever its prompt is, so the reward shows that the prompt had every row that was needed."""
    async with simulated(pack, **settings) as (environment, model):
        reads = {tool.name for tool in environment.pack.tools if tool.writes == []}
        chosen = [task for task in environment.tasks if any(action.name not in reads for action in task.actions)][:5]
        async with await open_environment(pack, user=ScriptedUser) as executable:
            for task in chosen:
                own, real = await play_solution(environment, task), await play_solution(executable, task)
                assert own.reward
                assert real.reward
                assert own.reward.value == real.reward.value == 1.0, task.id
                assert own.reward.parts == real.reward.parts
                assert list_results(own) == list_results(real)
        lines = [cut_section(str(request.messages[1]["content"]), "Calls to answer now") for request in model.asked]
        asked = {line.split()[2] for line in lines}
        assert asked - reads
        assert bool(asked & reads) is (settings.get("compute") != "reads")


@pytest.mark.parametrize("agent", ["nothing", "echo"])
async def test_doing_nothing_earns_nothing(agent: str) -> None:
    assert agent in AGENTS
    async with simulated() as (environment, model):
        for task in environment.tasks[:6]:
            trajectory = await play(await environment.reset(task), AGENTS[agent](task, 0))
            assert trajectory.reward
            assert trajectory.reward.value == 0.0
        assert model.asked == []


async def test_a_wrong_change_is_a_wrong_end() -> None:
    """The simulator answers well and forgets to change the order's status: the rules see it."""

    def forget(answer: dict[str, Any], request: Request) -> dict[str, Any]:
        return {**answer, "changes": [each for each in answer["changes"] if each["table"] != "orders"]}

    async with simulated(corrupt=forget) as (environment, _):
        trajectory = await play_solution(environment, find_write(environment))
        assert trajectory.reward
        assert trajectory.reward.value == 0.0
        assert "crashed" not in (trajectory.evidence or {})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"table": "order", "key": "ORD-1", "set": {"status": "cancelled"}}, "no table 'order'; did you mean orders?"),
        ({"table": "tickets", "key": "T-1", "set": {"summary": "x"}}, "so it cannot change tickets"),
        (
            {"table": "refunds", "key": "REF-0000", "set": {"order_id": "ORD-0"}},
            "refers to 'ORD-0', which is not in orders",
        ),
        ({"table": "products", "key": "P-NEW", "set": {"stock": -1}}, "products.stock: row P-NEW"),
        (
            {"table": "refunds", "key": "REF-0000", "set": {"order_id": "ORD-20417", "amount": 1}},
            "the system does not load this state",
        ),
        (
            {"table": "orders", "key": "ORD-20417", "set": {"state": "cancelled"}},
            "orders.ORD-20417.state Extra inputs are not permitted",
        ),
        ({"key": "ORD-20417"}, 'a change is an object with "table"'),
    ],
)
async def test_changes_that_do_not_fit_are_refused_with_the_reason_and_asked_for_again(
    change: dict[str, Any], reason: str
) -> None:
    async with simulated(corrupt=corrupt_writes(change, 1)) as (environment, model):
        trajectory = await play_solution(environment, find_write(environment))
        assert trajectory.reward
        assert trajectory.reward.value == 1.0
        again = [request for request in model.asked if len(request.messages) > 2]
        assert len(again) == 1
        assert reason in str(again[0].messages[-1]["content"])


async def test_a_call_whose_changes_never_stand_fails_and_changes_nothing() -> None:
    bad = {"table": "orders", "key": "ORD-0", "set": None}
    async with simulated(corrupt=corrupt_writes(bad, 3), again=2) as (environment, model):
        task = find_write(environment)
        episode = await environment.reset(task)
        world = episode.world
        assert isinstance(world, StatefulWorld)
        before = copy.deepcopy(await world.state())
        action = next(action for action in task.actions if action.name == "cancel_order")
        call = ToolCall(id="c", name=action.name, arguments=action.arguments)
        (result,) = await world.call([call])
        assert result.error is Code.TOOL_FAILED
        assert "nothing was changed" in result.content
        assert "orders ORD-0 cannot be deleted" in result.detail
        assert (len(model.asked), await world.changes()) == (3, [])
        assert await world.state() == before
        (result,) = await world.call([call])  # the next try is another request
        assert (result.error, len(model.asked)) == (None, 4)
        assert (await world.state())["orders"][action.arguments["order_id"]]["status"] == "cancelled"
        assert (await world.evidence())["crashed"] == 1
        await episode.close()


async def test_a_fork_goes_on_from_the_state_and_leaves_its_origin_as_it_was() -> None:
    async with simulated() as (environment, _):
        task = find_write(environment)
        episode = await environment.reset(task)
        action = next(action for action in task.actions if action.name == "cancel_order")
        order = action.arguments["order_id"]
        call = ToolCall(id="c", name=action.name, arguments=action.arguments)
        fork = await episode.fork()
        assert isinstance(fork.world, StatefulWorld)
        assert isinstance(episode.world, StatefulWorld)
        await fork.world.call([call])
        assert (await fork.world.state())["orders"][order]["status"] == "cancelled"
        assert (await episode.world.state())["orders"][order]["status"] == "pending"
        second = await environment.backend.open(task, snapshot=await fork.world.snapshot())
        assert await second.state() == await fork.world.state()
        assert await second.changes() == await fork.world.changes() != []
        (refused,) = await second.call([call])
        assert refused.error is Code.TOOL_ERROR
        assert "cancelled" in refused.content
        evidence, executed = await second.evidence(), await fork.world.evidence()
        assert evidence == executed
        for each in (episode, fork):
            await each.close()
        await second.close()


async def test_a_group_that_makes_the_same_calls_pays_once_and_ends_alike() -> None:
    async with simulated() as (environment, model):
        task = find_write(environment)
        ends = []
        for _ in range(2):
            trajectory = await play(await environment.reset(task, group="g"), ReferenceAgent(task))
            assert trajectory.reward
            assert trajectory.reward.value == 1.0
            ends.append((trajectory.evidence or {})["changes"])
        assert ends[0] == ends[1]
        assert len(model.asked) == len(task.actions)


async def test_a_judge_is_asked_beside_the_rules() -> None:
    """The rules make the value; the model's verdict is a part, and says the opposite here."""

    class Model(CodeSimulator):
        async def complete(self, request: Request, *, draw: str) -> Any:
            if "Calls to answer now" in str(request.messages[1]["content"]):
                return await super().complete(request, draw=draw)
            return Reply(text='{"why": "it was not asked for", "solved": false}')

    pack = Pack.load(SHOP)
    async with Engine(Model(pack), MemoryJournal(), EngineLimits(retries=0)) as engine:
        settings: dict[str, Any] = {"knowledge": "state", "reward": "both", "engine": engine}
        async with await open_environment(pack, backend="simulated", user=ScriptedUser, **settings) as environment:
            trajectory = await play_solution(environment, find_write(environment))
    assert trajectory.reward
    assert (trajectory.reward.value, trajectory.reward.parts["state"], trajectory.reward.parts["oracle"]) == (
        1.0,
        1.0,
        0.0,
    )
    assert "judge: oracle, 0 of 1 vote for: it was not asked for" in trajectory.reward.rationale


async def test_a_verdict_that_waits_leaves_no_reward() -> None:
    """As in a batch: the run asks again when it goes on. A judge that cannot be reached leaves the rules' value."""

    class Model(CodeSimulator):
        code = Code.PENDING

        async def complete(self, request: Request, *, draw: str) -> Any:
            if "Calls to answer now" in str(request.messages[1]["content"]):
                return await super().complete(request, draw=draw)
            raise LLMFault(self.code, "later", retry=False)

    pack = Pack.load(SHOP)
    found = []
    for code in (Code.PENDING, Code.CONNECTION):
        model = Model(pack)
        model.code = code
        async with Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine:
            settings: dict[str, Any] = {"knowledge": "state", "reward": "both", "engine": engine}
            async with await open_environment(pack, backend="simulated", user=ScriptedUser, **settings) as environment:
                trajectory = await play_solution(environment, find_write(environment))
        assert trajectory.reward
        found.append((trajectory.reward.value, trajectory.reward.error))
    assert found == [(None, Code.PENDING), (1.0, None)]


async def test_the_prompt_shows_the_state_as_it_is_now_the_source_and_the_time() -> None:
    async with simulated(knowledge="code") as (environment, model):
        task = find_write(environment)
        await play_solution(environment, task)
        order = next(a.arguments["order_id"] for a in task.actions if a.name == "cancel_order")
        prompts = [str(request.messages[1]["content"]) for request in model.asked]
        (writing,) = [text for text in prompts if "agent: cancel_order" in cut_section(text, "Calls to answer now")]
        assert '"status":"pending"' in next(
            line for line in writing.splitlines() if line.startswith(f"orders {order}:")
        )
        source = cut_section(writing, "Source of the called tool and its helpers")
        assert "def cancel_order(self, order_id: str, reason: str)" in source
        assert "def _pending(" in source
        assert "class Refund(Row):" in source
        assert "def find_customer" not in source
        assert cut_section(prompts[0], "Time of the system") == "2025-05-14T10:30:00"
        assert all(request.messages[0] == model.asked[0].messages[0] for request in model.asked)
        world = await environment.backend.open(task)
        for action in [*task.actions, task.actions[0]]:
            await world.call([ToolCall(id="c", name=action.name, arguments=action.arguments)])
        later = str(model.asked[-1].messages[1]["content"])
        shown = [line for line in later.splitlines() if line.startswith(f"orders {order}:")]
        assert all('"status":"cancelled"' in line for line in shown)
        await world.close()


async def test_a_large_state_is_shown_in_part() -> None:
    """The row that is asked for, and what it is linked to, out of 2,000 orders."""
    pack = Pack.load(SHOP)
    path = pack.path_of("state")
    assert path is not None
    tables = orjson.loads(path.read_bytes())
    order = tables["orders"]["ORD-20417"]
    many = {f"ORD-9{n:04}": {**order, "note": f"order {n}"} for n in range(2_000)}
    task = pack.tasks[0].model_copy(update={"initial": {"patch": {"orders": many}}})
    email = tables["customers"][order["customer_id"]]["email"]
    async with simulated(pack) as (environment, model):
        world = await environment.backend.open(task)
        call = ToolCall(id="c", name="get_order", arguments={"order_id": "ORD-91234", "email": email})
        (result,) = await world.call([call])
        assert isinstance(result.data, dict)
        assert (result.error, result.data["note"]) == (None, "order 1234")
        data = cut_section(str(model.asked[0].messages[1]["content"]), "The system's data now")
        assert len(data) < 6_000 * 2.4 + 500
        assert "more rows of orders are not shown)" in data
        assert "(the call touches no other tables: returns, exchanges, refunds, vouchers, tickets)" in data
        assert f"customers {order['customer_id']}:" in data
        assert "products " in data
        await world.close()


async def test_a_tool_without_a_contract_is_shown_the_tables_that_its_source_names() -> None:
    pack = Pack.load(SHOP)
    bare = [tool.model_copy(update={"reads": None, "writes": None}) for tool in pack.tools]
    async with simulated(pack.model_copy(update={"tools": bare})) as (environment, _):
        trajectory = await play_solution(environment, find_write(environment))
        assert trajectory.reward
        assert trajectory.reward.value == 1.0
        backend = environment.backend
        assert isinstance(backend, SimulatedBackend)
        state = await (world := await backend.open(environment.tasks[0])).state()
        for tool in pack.tools:
            assert {*(tool.writes or [])} <= (backend.find_tables(tool.name, "agent", state) or set()), tool.name
        assert backend.find_tables("get_product", "agent", state) == {"products"}
        await world.close()


async def test_a_tool_that_declares_only_its_writes_may_read_other_tables() -> None:
    pack = Pack.load(SHOP)
    tools = [tool.model_copy(update={"reads": None}) for tool in pack.tools]
    async with simulated(pack.model_copy(update={"tools": tools})) as (environment, _):
        backend = environment.backend
        assert isinstance(backend, SimulatedBackend)
        state = await (world := await backend.open(environment.tasks[0])).state()
        assert backend.find_tables("cancel_order", "agent", state) == {"orders", "products", "refunds", "vouchers"}
        backend.sources = None
        assert backend.find_tables("cancel_order", "agent", state) is None
        await world.close()


@pytest.mark.parametrize(
    ("initial", "expected"),
    [
        ({}, {"orders": {"O-1": {}}}),
        ({"state": {}}, {}),
        ({"patch": {"orders": {"O-2": {}}}}, {"orders": {"O-1": {}, "O-2": {}}}),
        ({"state": {"orders": {"O-3": {}}}, "patch": {"orders": {"O-2": {}}}}, {"orders": {"O-3": {}, "O-2": {}}}),
    ],
)
def test_a_task_without_code_begins_as_its_code_would(initial: dict[str, Any], expected: dict[str, Any]) -> None:
    assert make_initial_state(Task(id="t", initial=initial), {"orders": {"O-1": {}}}) == expected


async def test_constraints_of_the_schema_are_checked(tmp_path: Path) -> None:
    """A constraint over two tables that no key and no type can say."""
    pack = Pack.load(SHOP)
    assert pack.root is not None
    shutil.copytree(pack.root, tmp_path / "shop")
    head = yaml.safe_load((tmp_path / "shop" / "pack.yaml").read_text(encoding="utf-8"))
    head["schema"]["constraints"] = ["stock_is_counted"]
    head["checks"] = "checks.py"
    (tmp_path / "shop" / "pack.yaml").write_text(yaml.safe_dump(head), encoding="utf-8")
    (tmp_path / "shop" / "checks.py").write_text(
        "def stock_is_counted(final, initial):\n    return all(row['stock'] < 10_000 for row in final['products'].values())\n"
    )
    product = next(iter(orjson.loads((tmp_path / "shop" / "state.json").read_bytes())["products"]))
    bad = {"table": "products", "key": product, "set": {"stock": 10_000}}
    async with simulated(Pack.load(tmp_path / "shop"), corrupt=corrupt_writes(bad, 1)) as (environment, model):
        trajectory = await play_solution(environment, find_write(environment))
        assert trajectory.reward
        assert trajectory.reward.value == 1.0
        assert any(
            "the constraint stock_is_counted does not hold" in str(request.messages[-1]["content"])
            for request in model.asked
        )


async def test_a_pack_without_code_holds_its_tables_too(tmp_path: Path) -> None:
    """The schema alone checks, and the changes are the evidence."""
    small(tmp_path)
    (tmp_path / "state.json").write_text('{"orders": {"O-1": {"status": "open"}}}')
    pack = Pack.load(tmp_path).model_copy(update={"executable": None})
    backend = SimulatedBackend(pack, knowledge="state")
    await backend.start()
    task = pack.tasks[0] if pack.tasks else Task(id="t")
    world = await backend.open(
        task.model_copy(update={"initial": {"patch": {"orders": {"O-9": {"status": "packed"}}}}})
    )
    assert isinstance(world, StatefulWorld)
    assert await world.state() == {"orders": {"O-1": {"status": "open"}, "O-9": {"status": "packed"}}}
    assert (await world.evidence())["changes"] == []
    with pytest.raises(UserError, match="no source code of its tools"):
        SimulatedBackend(pack, knowledge="code")
    with pytest.raises(UserError, match="no code that answers look-ups"):
        SimulatedBackend(pack, knowledge="state", compute="reads")


def test_settings_that_need_a_state_are_refused_without_one() -> None:
    pack = Pack.load(SHOP)
    for settings, words in (
        ({"compute": "reads"}, "needs a world that holds the state"),
        ({"knowledge": "code", "stateful": False}, "leave out stateful"),
        ({"knowledge": "state", "replay": True}, "replay gives recorded results"),
        ({"isolation": "process"}, "it has no setting isolation"),
    ):
        with pytest.raises(UserError, match=words):
            SimulatedBackend(pack, **settings)


@pytest.mark.parametrize("forced", [True, False])
async def test_in_the_shadow_the_held_state_follows_the_real_one(forced: bool) -> None:
    """The simulator is right, so both states agree after each call, whichever of them it goes on from."""
    pack = Pack.load(SHOP)
    async with Engine(CodeSimulator(pack), MemoryJournal(), EngineLimits(retries=0)) as engine:
        settings: dict[str, Any] = {"knowledge": "state", "forced": forced, "engine": engine}
        async with await open_environment(pack, backend="shadow", user=ScriptedUser, **settings) as environment:
            task = find_write(environment)
            episode = await environment.reset(task)
            world: Any = episode.world
            before = await world.simulated.state()
            for action in task.actions:
                await world.call([ToolCall(id="c", name=action.name, arguments=action.arguments)])
            assert are_equal(await world.simulated.state(), await world.real.state())
            assert await world.simulated.changes() == await world.changes() != []
            rows = (await world.evidence())["differences"]
            assert all(row["real"]["content"] == row["simulated"]["content"] for row in rows)
            told = apply_keyed_changes(
                before, [each for row in rows for each in row["simulated"]["changes"]], pack.state_schema
            )
            assert are_equal(told, apply_changes(before, await world.changes()))
            if not forced:
                assert [row["distance"] for row in rows] == [0.0] * len(rows)
            await episode.close()


async def test_mixed_worlds_see_the_changes_of_both() -> None:
    """Look-ups of customers are executed, orders are simulated: the rules judge the whole."""
    pack = Pack.load(SHOP)
    routes = {"*": "simulated", "update_email": "executable"}
    async with Engine(CodeSimulator(pack), MemoryJournal(), EngineLimits(retries=0)) as engine:
        settings: dict[str, Any] = {"knowledge": "state", "engine": engine, "reward": "rules", "split_state": True}
        async with await open_environment(pack, backend=routes, user=ScriptedUser, **settings) as environment:
            chosen = [task for task in environment.tasks if any(a.name == "update_email" for a in task.actions)][:2]
            assert chosen
            for task in [*chosen, find_write(environment)]:
                trajectory = await play_solution(environment, task)
                assert trajectory.reward
                assert trajectory.reward.value == 1.0
