"""Train a small model on the rows of a simulator, and let it answer held-out rows greedily. Runs in TRL's environment.

    python simulator_student.py learn MODEL DATA.jsonl KEEP --steps 100 --batch 4 --rate 5e-4 --seed 0
    python simulator_student.py answer MODEL ROWS.jsonl REPLIES.jsonl

Training is that of eval/loop/student.py: the common prefix of all rows goes through the model once per step, and only the answer is
trained on.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from transformers import AutoModelForCausalLM, AutoTokenizer  # type: ignore[import-not-found,unused-ignore]

sys.path.append(str(Path(__file__).parents[1] / "loop"))
from student import device, examples, learn, render

ANSWER_TOKENS = 400
AT_ONCE = 8
LONGEST = 1024


def answer(model: Any, tokenizer: Any, rows: list[dict[str, Any]], out: Path) -> None:
    """Write the reply to each row's prompt as a JSON line, in order. Rows that `out` has already are not asked again."""
    model.eval()
    tokenizer.padding_side = "left"
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    done = len(out.read_text().splitlines()) if out.exists() else 0
    began = time.monotonic()
    with out.open("a") as file:
        for start in range(done, len(rows), AT_ONCE):
            texts = [render(tokenizer, row["messages"][:2], [], ask=True) for row in rows[start : start + AT_ONCE]]
            asked = tokenizer(texts, add_special_tokens=False, return_tensors="pt", padding=True).to(model.device)
            with torch.inference_mode():
                ids = model.generate(
                    **asked,
                    max_new_tokens=ANSWER_TOKENS,
                    do_sample=False,
                    eos_token_id=end,
                    pad_token_id=tokenizer.pad_token_id,
                )
            for reply in ids[:, asked["input_ids"].shape[1] :]:
                text = tokenizer.decode(reply, skip_special_tokens=True)
                file.write(json.dumps({"reply": text}) + "\n")
            file.flush()
            print(f"{start + len(texts)} of {len(rows)} answered, {time.monotonic() - began:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a simulator, or let it answer.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    given = verbs.add_parser("learn")
    given.add_argument("model", type=Path)
    given.add_argument("data", type=Path)
    given.add_argument("keep", type=Path)
    given.add_argument("--steps", type=int, default=100)
    given.add_argument("--batch", type=int, default=4)
    given.add_argument("--rate", type=float, default=5e-4)
    given.add_argument("--seed", type=int, default=0)
    given = verbs.add_parser("answer")
    given.add_argument("model", type=Path)
    given.add_argument("rows", type=Path)
    given.add_argument("out", type=Path)
    options = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    if options.verb == "answer":
        dtype = torch.float32 if device() == "cpu" else torch.bfloat16  # most processors only emulate bfloat16
        model = AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype).to(device())
        answer(model, tokenizer, [json.loads(line) for line in options.rows.read_text().splitlines()], options.out)
        return
    torch.manual_seed(options.seed)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).to(device())
    rows = examples(options.data, tokenizer, [])
    lengths = [len(ids) for ids, _ in rows]
    print(f"{len(rows)} rows, {sum(lengths) / len(lengths):.0f} tokens each, at most {max(lengths)}", flush=True)
    if max(lengths) > LONGEST:
        raise SystemExit(f"{options.data}: a row has {max(lengths)} tokens, more than {LONGEST}")
    checkpoint = options.keep.with_name(f"{options.keep.name}.pt")
    learn(
        model,
        rows,
        steps=options.steps,
        batch=options.batch,
        rate=options.rate,
        seed=options.seed,
        checkpoint=checkpoint,
    )
    draft = options.keep.with_name(f".{options.keep.name}")
    model.save_pretrained(draft)
    tokenizer.save_pretrained(draft)
    draft.rename(options.keep)
    checkpoint.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
