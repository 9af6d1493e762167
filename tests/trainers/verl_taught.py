"""Runs inside verl's environment: a tiny model over-fitted on a pack's scripts as simia's agent loop puts them, two right for one wrong.

python verl_taught.py OUT TEXT... -- PACK
"""

import random
import sys
from pathlib import Path

import torch
from taught import chats, fit
from tiny_model import make
from transformers import AutoModelForCausalLM, AutoTokenizer

from simia.pack import Pack

STEPS = 400


def main(out: str, texts: list[str], pack_path: str) -> None:
    make(Path(out), [Path(text) for text in texts])
    torch.manual_seed(0)
    source, pack = random.Random(0), Pack.load(pack_path)
    tokenizer, model = AutoTokenizer.from_pretrained(out), AutoModelForCausalLM.from_pretrained(out)
    tools = [{"type": "function", "function": tool.flat()} for tool in pack.tools]
    right, wrong = list(chats(pack))[::2], list(chats(pack))[1::2]
    rows = [
        tokenizer.apply_chat_template(chat, tools=tools, return_dict=True)["input_ids"]
        for chat in (*right, *right, *wrong)
    ]
    shared = next(i for i, column in enumerate(zip(*rows, strict=False)) if len(set(column)) > 1)  # rules and tools
    fit(model, rows, steps=STEPS, fill=tokenizer.pad_token_id, source=source, unlearned=shared)
    model.save_pretrained(out)


if __name__ == "__main__":
    at = sys.argv.index("--")
    main(sys.argv[1], sys.argv[2:at], sys.argv[at + 1])
