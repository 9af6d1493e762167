"""Runs inside TRL's environment: a tiny model over-fitted on packs' scripts, solved well and badly, so that its samples differ in reward.

python taught.py OUT TEXT... -- PACK...
"""

import itertools
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tiny_model import make
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import get_json_schema

from simia.pack import Pack
from simia.trainers.trl.tool_methods import TrlTools, make_method

STEPS = 180


def chats(pack: Pack) -> Iterator[list[dict[str, Any]]]:
    for task, wrong in itertools.product(pack.tasks, (False, True)):
        chat: list[dict[str, Any]] = [{"role": "system", "content": pack.policy}]
        for turn in task.script:
            if turn.calls:
                action = turn.calls[0]
                arguments = {**action.arguments, "on": action.arguments["on"] != wrong}
                call = {"type": "function", "function": {"name": action.name, "arguments": arguments}}
                chat += [{"role": "assistant", "content": "", "tool_calls": [call]}]
                chat += [{"role": "tool", "content": json.dumps(arguments, separators=(",", ":"))}]
            elif turn.user is not None:
                chat.append({"role": "user", "content": turn.user})
            else:
                chat.append({"role": "assistant", "content": turn.agent})
        yield chat


def told(pack: Pack) -> list[dict[str, Any]]:
    """The tools as the trainer will list them: simia's own way where there are conversations, else as TRL reads them off methods."""
    if any(len(task.script) > 3 for task in pack.tasks):
        return [{"type": "function", "function": tool.flat()} for tool in pack.tools]
    methods = type("Methods", (TrlTools,), {tool.name: make_method(tool) for tool in pack.tools})
    return [get_json_schema(getattr(methods, tool.name)) for tool in pack.tools]


def main(out: str, texts: list[str], packs: list[str]) -> None:
    make(Path(out), [Path(text) for text in texts])
    torch.manual_seed(0)
    source = random.Random(0)
    tokenizer, model = AutoTokenizer.from_pretrained(out), AutoModelForCausalLM.from_pretrained(out)
    rows = [
        tokenizer.apply_chat_template(chat, tools=told(pack), return_dict=True)["input_ids"]
        for pack in map(Pack.load, packs)
        for chat in chats(pack)
    ]
    fit(model, rows, steps=STEPS, fill=tokenizer.pad_token_id, source=source)
    model.save_pretrained(out)


def fit(
    model: Any,
    rows: list[list[int]],
    *,
    steps: int,
    fill: int,
    source: random.Random,
    unlearned: int = 0,
    learned: int | None = None,
    enough: float = 0,
) -> None:
    """Over-fit on the rows, four at a time; their first `unlearned` ids are not trained, or only their last `learned` ones are. It ends
    before `steps` where the mean loss of the last eight steps is below `enough`."""
    width = max(map(len, rows))
    ids = torch.tensor([row + [fill] * (width - len(row)) for row in rows])
    firsts = [unlearned if learned is None else len(row) - learned for row in rows]
    labels = torch.tensor(
        [[-100] * at + row[at:] + [-100] * (width - len(row)) for at, row in zip(firsts, rows, strict=True)]
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model.train()
    losses: list[float] = []
    while len(losses) < steps and (len(losses) < 8 or sum(losses[-8:]) >= 8 * enough):
        some = source.sample(range(len(rows)), 4)
        loss = model(input_ids=ids[some], labels=labels[some]).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())


if __name__ == "__main__":
    at = sys.argv.index("--")
    main(sys.argv[1], sys.argv[2:at], sys.argv[at + 1 :])
