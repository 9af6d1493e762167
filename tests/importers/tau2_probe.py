"""Runs inside the tau2 environment: a pack's driver beside tau2's own environment and evaluators, task by task.

`tau2_probe.py PACK STEP` writes JSON to stdout: for every STEP-th task of the pack, what differed; and how fast it was.
The driver is used as the sandbox uses it: built once, an episode a fork, and once more by resetting one object.
"""

import importlib
import importlib.util
import json
import os
import re
import sys
import time
import traceback
from pathlib import Path

from loguru import logger

logger.remove()

from tau2.data_model.message import AssistantMessage, ToolCall, UserMessage  # noqa: E402
from tau2.data_model.tasks import RewardType  # noqa: E402
from tau2.evaluator.evaluator_action import ActionEvaluator  # noqa: E402
from tau2.evaluator.evaluator_communicate import CommunicateEvaluator  # noqa: E402
from tau2.evaluator.evaluator_env import EnvironmentEvaluator  # noqa: E402

REQUESTOR = {"agent": "assistant", "user": "user"}


def load(pack):
    spec = importlib.util.spec_from_file_location("pack_tools", pack / "tools.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["pack_tools"] = module
    spec.loader.exec_module(module)
    return module


def forked(work):
    """What `work()` returns in a child that shares this process's memory until it writes to it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reading)
            with os.fdopen(writing, "w") as out:
                json.dump(work(), out)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as source:
        text = source.read()
    assert os.waitpid(pid, 0)[1] == 0, "the child failed"
    return json.loads(text)


def refusal(error):
    """The words of a refusal as the driver raises it; anything else is a fault of the driver and goes on."""
    if not getattr(type(error), "__simia_refusal__", False):
        raise error
    return str(error)


def play(world, task):
    """(text or refusal of each reference call, the state after them, the checklist's values on that state restored)."""
    world.reset(task["initial"], 0)
    start = world.dump()
    texts, done = [], []
    for index, action in enumerate(task["reference"]):
        try:
            texts.append(world.call(action["by"], action["name"], dict(action["arguments"]), index))
            done.append((index, action))
        except Exception as error:
            texts.append(refusal(error))
    end = world.dump()
    seen = reread(world, task)
    calls = [call for part in task["reward"]["parts"] for call in part.get("calls", [])]
    world.reset(task["initial"], 0)
    again = world.dump()
    for index, action in done:
        world.call(action["by"], action["name"], dict(action["arguments"]), index)
    without = world.dump()
    world.reset(task["initial"], 0)
    world.restore(end)
    restored = world.dump()
    reread_same = reread(world, task) == seen
    checks = [world.check(call["name"], call["by"], call["arguments"]) == call["expect"] for call in calls]
    same = {
        "again": again == start,
        "restored": restored == end,
        "read after restoring": reread_same,
        "without what was refused": without == end,
    }
    return {"texts": texts, "end": end, "same": same, "checks": checks}


def reread(world, task):
    """What the reference's calls and the users' tools that only read say now: objects of the wrong kind would show."""
    kinds = world.tools()
    calls = [a for a in task["reference"] if not kinds[a["by"]][a["name"]]]
    calls += [{"by": "user", "name": name, "arguments": {}} for name, writes in kinds["user"].items() if not writes]
    for record in task["reference"]:
        if record["name"] == "book_reservation":  # the name that tau2 gives to the first new one
            arguments = {"reservation_id": "HATHAT"}
            calls.append({"by": "agent", "name": "get_reservation_details", "arguments": arguments})
        for key, name in (("order_id", "get_order_details"), ("reservation_id", "get_reservation_details")):
            if key in record["arguments"]:
                calls.append({"by": "agent", "name": name, "arguments": {key: record["arguments"][key]}})
        if "user_id" in record["arguments"]:
            arguments = {"user_id": record["arguments"]["user_id"]}
            calls.append({"by": "agent", "name": "get_user_details", "arguments": arguments})
    said = []
    for action in calls:
        try:
            said.append(world.call(action["by"], action["name"], dict(action["arguments"]), 0))
        except Exception as error:
            said.append(refusal(error))
    return said


def hashed(kit):
    return None if kit is None else json.dumps(kit.db.model_dump(mode="json"), sort_keys=True)


def theirs(domain, task):
    """tau2 alone: the reference called one after the other, its gold environment, and the reward of that conversation."""
    state = task.initial_state
    given = (state and state.initialization_data, state and state.initialization_actions)
    history = (state and state.message_history) or []
    played, gold = domain.get_environment(), domain.get_environment()
    for env in (played, gold):
        env.set_state(*given, history)
    messages, texts = list(history), []
    for number, action in enumerate(task.evaluation_criteria.actions or []):
        call = ToolCall(id=str(number), name=action.name, arguments=action.arguments, requestor=action.requestor)
        kind, role = (AssistantMessage, "assistant") if action.requestor == "assistant" else (UserMessage, "user")
        answer = played.get_response(call)
        texts.append(answer.content)
        messages += [kind(role=role, content=None, tool_calls=[call]), answer]
        try:
            gold.make_tool_call(action.name, requestor=action.requestor, **action.arguments)
        except Exception:
            pass
    told = ", ".join(task.evaluation_criteria.communicate_info or [])
    if told:
        messages.append(AssistantMessage(role="assistant", content=told.upper()))
    return {"texts": texts, "played": played, "gold": gold, "reward": reward(domain, task, messages)}


def reward(domain, task, messages):
    """As tau2's evaluate_simulation combines its parts; that function itself imports a client for models."""
    basis = set(task.evaluation_criteria.reward_basis)
    value = 1.0
    if basis & {RewardType.DB, RewardType.ENV_ASSERTION}:
        value *= EnvironmentEvaluator.calculate_reward(domain.get_environment, task, messages).reward
    if RewardType.ACTION in basis:
        value *= ActionEvaluator.calculate_reward(task, messages).reward
    if RewardType.COMMUNICATE in basis:
        value *= CommunicateEvaluator.calculate_reward(task, messages).reward
    return value


def compare(world, domain, task, row):
    found = {"task": row["id"], "differs": [], "refused": 0, "gold_same": True, "reward": None}
    ours = forked(lambda: play(world, row))
    tau2 = theirs(domain, task)
    found["refused"] = sum(text.startswith("Error: ") for text in ours["texts"])
    found["reward"] = tau2["reward"]
    if masked(ours["texts"]) != masked(tau2["texts"]):
        found["differs"].append("texts")
    for side, kit in (("agent", tau2["played"].tools), ("user", tau2["played"].user_tools)):
        mine = None if ours["end"][side] is None else json.dumps(ours["end"][side], sort_keys=True)
        if renamed(mine) != renamed(hashed(kit)):
            found["differs"].append(f"{side} state")
        if renamed(mine) != renamed(hashed(tau2["gold"].tools if side == "agent" else tau2["gold"].user_tools)):
            found["gold_same"] = False
    found["differs"] += [what for what, same in ours["same"].items() if not same]
    found["checks"] = ours["checks"]
    return found


def renamed(text):
    """tau2 draws the identifiers of new bills; ours come from the seed. Both have a B and eight hexadecimal digits."""
    if text is None:
        return None
    seen = {}
    return re.sub(r'"B[0-9a-f]{8}"', lambda m: seen.setdefault(m[0], f'"new {len(seen)}"'), text)


def masked(texts):
    return [renamed(text) for text in texts]


def reads_change_nothing(world, row):
    """Tools that are said to read, called as the reference calls them and the user's without arguments, leave the state."""

    def work():
        world.reset(row["initial"], 0)
        before = world.dump()
        reread(world, row)
        return world.dump() == before

    return forked(work)


def own(world):
    """What of an episode is not its own or does not survive, in words. All that tau2 draws or keeps is telecom's."""
    if world.domain == "airline":
        return unvalidated(world)
    if world.domain != "telecom":
        return []
    found = []

    def refuel(seed, index):  # C1002 has no draft of a bill, so one is made
        world.reset({}, seed)
        world.call("agent", "refuel_data", {"customer_id": "C1002", "line_id": "L1004", "gb_amount": 1.0}, index)
        return world.dump()

    first = refuel(0, 1)
    if refuel(0, 1) != first:
        found.append("the same seed and call give another identifier")
    if refuel(1, 1) == first or refuel(0, 2) == first:
        found.append("another seed or call gives the same identifier")
    broken = {"initialization_actions": [{"env_type": "user", "func_name": "break_vpn", "arguments": {}}]}
    world.reset(broken, 0)
    if world.dump()["user"]["device"]["vpn_details"]["server_performance"] != "poor":
        found.append("the VPN is not broken")
    world.reset({}, 0)
    world.call("user", "connect_vpn", {}, 0)
    if world.dump()["user"]["device"]["vpn_details"]["server_performance"] != "excellent":
        found.append("a broken VPN is broken in the next episode")
    return found


def unvalidated(world):
    """tau2 stores the text "3" where its model wants a number: so must a state that is set back, and a reset must mend it."""
    world.reset({}, 0)
    pristine = json.dumps(world.dump())
    start = json.loads(pristine)["agent"]
    number, reservation, card = next(
        (number, reservation, card)
        for number, reservation in start["reservations"].items()
        for card in start["users"][reservation["user_id"]]["payment_methods"]
        if card.startswith("credit_card")
    )
    arguments = {
        "reservation_id": number,
        "total_baggages": "3",
        "nonfree_baggages": reservation["nonfree_baggages"],
        "payment_id": card,
    }
    world.call("agent", "update_reservation_baggages", arguments, 0)
    state = json.dumps(world.dump())
    world.reset({}, 0)
    mended = json.dumps(world.dump()) == pristine
    world.restore(json.loads(state))
    kept = json.dumps(world.dump()) == state
    odd = json.loads(state)["agent"]["reservations"][number]["total_baggages"] == "3"
    return [what for what, right in (("not mended", mended), ("not kept", kept), ("not stored", odd)) if not right]


def speed(world, rows):
    """Calls a second of each read tool that references call, in one process."""

    def work():
        world.reset({}, 0)
        found = {}
        for row in rows:
            for action in row["reference"]:
                if action["by"] == "agent" and action["name"].startswith(("get_", "find_", "list_", "search_")):
                    found.setdefault(action["name"], []).append(action["arguments"])
        rates = {}
        for name, arguments in found.items():
            started, count = time.perf_counter(), 0
            while time.perf_counter() - started < 0.3:
                for each in arguments[:20]:
                    try:
                        world.call("agent", name, dict(each), count)
                    except Exception as error:
                        refusal(error)
                    count += 1
            rates[name] = round(count / (time.perf_counter() - started))
        timed = {}
        for what, act in (("dump", world.dump), ("reset", lambda: world.reset({}, 0))):
            started = time.perf_counter()
            for _ in range(5):
                act()
            timed[what] = round((time.perf_counter() - started) / 5, 4)
        return {"calls_a_second": rates, "seconds": timed}

    return forked(work)


def main(pack, step):
    name = json.loads((pack / "tau2.json").read_bytes())["domain"]
    started = time.perf_counter()
    world = load(pack).Tau2World(pack)
    built = time.perf_counter() - started
    domain = importlib.import_module(f"tau2.domains.{name}.environment")
    tasks = {task.id: task for task in domain.get_tasks(None)}
    rows = [json.loads(line) for line in (pack / "tasks.jsonl").read_bytes().splitlines()]
    chosen = rows[::step]
    return {
        "built": round(built, 2),
        "ids": sorted(tasks) == sorted(row["id"] for row in rows),
        "policy": domain.get_environment().get_policy() == (pack / "policy.md").read_text(encoding="utf-8"),
        "tasks": [compare(world, domain, tasks[row["id"]], row) for row in chosen],
        "reads": all(reads_change_nothing(world, row) for row in chosen),
        "kinds": world.tools(),
        "episode": forked(lambda: own(world)),
        "speed": speed(world, rows),
    }


if __name__ == "__main__":
    json.dump(main(Path(sys.argv[1]), int(sys.argv[2])), sys.stdout)
