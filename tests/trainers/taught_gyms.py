"""Runs inside TRL's environment: a tiny model over-fitted on submitting right and wrong answers in gyms, so that its samples differ in reward.

python taught_gyms.py OUT TEXT... -- PACK...
"""

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from taught import fit
from tiny_model import make
from transformers import AutoModelForCausalLM, AutoTokenizer

from simia.pack import Pack

TASKS, STEPS = 3, 120  # at most
LEARNED = 60  # tokens at the end of each row: about those of the call
ENOUGH = 0.02  # loss of a token: two answers that are equally likely cost 0.012


def chats(pack: Pack) -> Iterator[tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    """The first tasks, each with its answer and with another one, and the tools that it shows."""
    for task in pack.tasks[:TASKS]:
        answer = task.actions[-1].arguments["answer"]
        tools = [{"type": "function", "function": tool.flat()} for tool in pack.tools if task.shows_tool(tool.name, 1)]
        for given in (answer, answer + 1):
            call = {"type": "function", "function": {"name": "done", "arguments": {"answer": given}}}
            chat = [
                {"role": "system", "content": pack.policy},
                {"role": "user", "content": task.instruction},
                {"role": "assistant", "content": "", "tool_calls": [call]},
            ]
            yield chat, tools


def main(out: str, texts: list[str], packs: list[str]) -> None:
    make(Path(out), [Path(text) for text in texts])
    torch.manual_seed(0)
    tokenizer, model = AutoTokenizer.from_pretrained(out), AutoModelForCausalLM.from_pretrained(out)
    rows = [
        tokenizer.apply_chat_template(chat, tools=tools, return_dict=True)["input_ids"]
        for pack in map(Pack.load, packs)
        for chat, tools in chats(pack)
    ]
    fill, source = tokenizer.pad_token_id, random.Random(0)
    fit(model, rows, steps=STEPS, fill=fill, source=source, learned=LEARNED, enough=ENOUGH)
    model.save_pretrained(out)


if __name__ == "__main__":
    at = sys.argv.index("--")
    main(sys.argv[1], sys.argv[2:at], sys.argv[at + 1 :])
