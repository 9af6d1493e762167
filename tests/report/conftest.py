"""A run of nine items whose every figure can be counted by hand; what became of each stands beside it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from simia.amplification.seeds import RefusedSeed, Seeds
from simia.amplification.session import store_seeds
from simia.amplification.settings import AmplifyConfig
from simia.config import load_config
from simia.errors import Code, Issue
from simia.jobs import FAILED, OPEN, PASSED, REJECTED, Item, Run
from simia.jobs.database import Packed
from simia.jobs.tables import KEEP
from simia.llm.types import LLMFault, Reply, Request
from simia.tool import ToolSpec
from simia.trajectory import Message, Provenance, ToolCall, Trajectory, Usage

TOOLS = [
    ToolSpec(name="find_order", identifiers=["order_id"]),
    ToolSpec(name="cancel", identifiers=["order_id"]),
    ToolSpec(name="never"),
]
HOSTILE = 'fly" onmouseover="alert(2)'  # a tool that a model invented
SCRIPT = "<script>alert(1)</script>"


def story(task: str, user: str, *turns: list[tuple[str, str, bool]], answer: str = "Done.") -> Trajectory:
    """Each turn is a list of calls made at once: (tool, order, whether the tool answered well)."""
    messages = [Message(role="user", content=user)]
    for turn, called in enumerate(turns):
        calls = [
            ToolCall(id=f"c{turn}-{i}", name=name, arguments={"order_id": o}) for i, (name, o, _) in enumerate(called)
        ]
        messages.append(Message(role="assistant", reasoning="Look.", calls=calls))
        for call, (name, order, well) in zip(calls, called, strict=True):
            content = orjson.dumps({"order_id": order} if well else {"error": "no such order"}).decode()
            error = None if well else Code.TOOL_ERROR
            messages.append(Message(role="tool", call_id=call.id, name=name, content=content, error=error))
    messages.append(Message(role="assistant", content=answer))
    return Trajectory(
        pack="shop",
        task_id=task,
        system="You serve the house, whose own order is ORD-900.",
        tools=TOOLS,
        messages=messages,
        provenance=Provenance(seed_ids=[task], model="m", licence="CC0-1.0", reply_keys=[f"key-{task}"]),
    )


SEEDS = [
    story("s1", "please tell me where my order ORD-100 is now", [("find_order", "ORD-100", True)]),
    story("s2", "cancel it", [("find_order", "ORD-200", True)], [("cancel", "ORD-200", True)]),
]
# Six runs of five words, three of them in the first seed; an order of its own; the seed's sequence of tools.
LIKE_ITS_SEED = story(
    "a", "please tell me where my order ORD-555 is now", [("find_order", "ORD-555", True)], answer=f"{SCRIPT} sent"
)
# Five runs, none in a seed; the seed's order; two calls at once, one fails; a later one succeeds.
PARALLEL = story(
    "b",
    "good morning what happened to ORD-100 since yesterday",
    [("find_order", "ORD-100", False), ("find_order", "ORD-777", True)],
    [("cancel", "ORD-777", True)],
)
# No run; an order that the policy gives, which is nobody's copy; an error with which it ends.
GIVES_UP = story("c", "cancel it", [("find_order", "ORD-900", True)], [("cancel", "ORD-900", False)])
INVENTS = story("d", "no", [("find_order", "ORD-1", True), (HOSTILE, "ORD-1", True)])

ITEMS: list[tuple[int, str, Code | None, Trajectory | None, list[str]]] = [
    (0, PASSED, None, LIKE_ITS_SEED, []),
    (0, PASSED, None, PARALLEL, ["code_fence"]),
    (1, PASSED, None, GIVES_UP, []),
    (1, REJECTED, Code.UNKNOWN_TOOL, INVENTS, []),
    (0, REJECTED, Code.DUPLICATE, LIKE_ITS_SEED, []),
    (1, REJECTED, Code.UNPARSABLE, None, ["trailing_comma", "code_fence"]),
    (0, FAILED, Code.TIMEOUT, None, []),
    (0, OPEN, None, None, []),
    (0, PASSED, None, INVENTS, []),  # more than n: passed, not accepted
]


@pytest.fixture
async def run(tmp_path: Path) -> Any:
    config = load_config(AmplifyConfig, "amplify/default", ["n=3"])
    run = Run.create(
        tmp_path, config, name="r", facts={"model": "m", "alias": "here", "prompts": {"p.j2": "0123456789"}}
    )
    refused = [RefusedSeed("s3", [Issue(code=Code.BAD_ARGUMENTS, where="messages[1].calls[0]", detail="no order")])]
    store_seeds(run, Seeds(order=SEEDS, refused=refused, read=4))
    run.ledger.set_meta("stopped", {"kind": "complete", "detail": ""})
    for ord_, (seed, status, reason, made, repairs) in enumerate(ITEMS):
        spec = {"seed": SEEDS[seed].id, "task": SEEDS[seed].task_id, "pack": "shop", "pass": 0}
        item = Item(f"i{ord_}", ord_, spec, status, str(reason) if reason else None)
        run.ledger.plan(item)
        await asked(run, item)
        if status not in (OPEN, FAILED):
            issues = [Issue(code=reason, where="messages[1].calls[1]")] if reason and reason != Code.DUPLICATE else []
            body = {
                "trajectory": made.to_row() if made else None,
                "issues": [issue.model_dump(mode="json") for issue in issues],
                "repairs": repairs,
            }
            run.ledger.conclude(item, f"h{ord_}" if not issues else None, body)
        else:
            run.ledger.set_status(item)
        if status == PASSED and ord_ < 3:
            run.ledger.accept(item, f"h{ord_}")
    run.ledger.flush()
    yield run
    run.close()


async def asked(run: Run, item: Item) -> None:
    """Six answered, one of them after a process died on it and one of unknown price; one failed, two without an answer."""
    key, draw, request = f"key-{item.ord}", f"{item.id}.0", Request(messages=[{"role": "user", "content": item.id}])
    await run.ledger.asked(key, item.id, draw, request)
    match item.ord:
        case 6:
            await run.ledger.failed(key, item.id, LLMFault(Code.TIMEOUT, retry=True))
            return
        case 7:
            return
        case 8:  # the process died after the reply was stored and before the attempt was marked
            body = Packed(Reply(text="stored").model_dump_json().encode())
            values = (key, draw, Packed(b'{"messages":[]}'), body, time.time())
            run.ledger.db.write("replies", KEEP["replies", "reply"], values).result()
            return
        case 1:
            await run.ledger.asked(key, item.id, draw, request)
    usage = Usage(prompt=100, completion=10, cached=40, cost=None if item.ord == 5 else 0.25)
    await run.ledger.answered(key, item.id, Reply(text="not a <b>trajectory</b>", usage=usage))
