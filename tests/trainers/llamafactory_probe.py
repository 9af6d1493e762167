"""Runs inside LLaMA-Factory's environment: what its own loader, converter and processors make of exported folders.

Reads a list of jobs `{"folder", "expected"}` and writes, for each, what the trainer would see and train. The arguments
are those of the exported train.yaml except for what needs a GPU; packing is looked at apart, since it hides the rows.
"""

import json
import sys
from pathlib import Path

import yaml
from llamafactory.data.loader import _get_merged_dataset, _get_preprocessed_dataset
from llamafactory.data.template import get_template_and_fix_tokenizer
from llamafactory.extras.constants import IGNORE_INDEX
from llamafactory.hparams import get_train_args
from llamafactory.model import load_tokenizer

CPU = {
    "deepspeed": None,
    "bf16": False,
    "flash_attn": "disabled",
    "use_cpu": True,
    "preprocessing_num_workers": None,
    "dataloader_num_workers": 0,
}


def arguments(folder: Path, model: Path, neat_packing: bool):
    given = yaml.safe_load((folder / "train.yaml").read_text(encoding="utf-8"))
    places = {"dataset_dir": str(folder), "model_name_or_path": str(model), "output_dir": str(folder / "unused")}
    model_args, data_args, training_args, _, _ = get_train_args(
        {**given, **CPU, **places, "neat_packing": neat_packing}
    )
    return model_args, data_args, training_args


def tokenized(folder: Path, model: Path, neat_packing: bool):
    """(rows as converted, rows as tokenized, tokenizer), by the calls that a training run makes."""
    model_args, data_args, training_args = arguments(folder, model, neat_packing)
    tokenizer = load_tokenizer(model_args)["tokenizer"]
    template = get_template_and_fix_tokenizer(tokenizer, data_args)
    aligned = _get_merged_dataset(data_args.dataset, model_args, data_args, training_args, "sft")
    processed = _get_preprocessed_dataset(aligned, data_args, training_args, "sft", template, tokenizer)
    return aligned, processed, tokenizer


def spans(ids, labels):
    """The runs of tokens with a loss. Two turns are always parted by a prompt."""
    runs, open_run = [], False
    for token, label in zip(ids, labels, strict=True):
        if label == IGNORE_INDEX:
            open_run = False
            continue
        assert label == token
        if not open_run:
            runs.append([])
            open_run = True
        runs[-1].append(token)
    return runs


def probe(folder: Path, model: Path):
    aligned, processed, tokenizer = tokenized(folder, model, neat_packing=False)
    chats = [json.loads(line) for line in (folder / "expected").read_text(encoding="utf-8").splitlines()]
    rows = []
    for row, tokens, chat in zip(aligned, processed, chats, strict=True):
        ids, labels = tokens["input_ids"], tokens["labels"]
        reference = tokenizer.apply_chat_template(chat["messages"], tools=chat["tools"], tokenize=False)
        runs = spans(ids, labels)
        as_written = [tokenizer.encode(text, add_special_tokens=False) for text in chat["trained"]]
        rows.append(
            {
                "turns": row["_prompt"] + row["_response"],
                "system": row["_system"],
                "tools": row["_tools"],
                "tokens": len(ids),
                "text": tokenizer.decode(ids)[-2000:],
                "trained": [tokenizer.decode(run) for run in runs],
                "trained_as_written": runs == as_written,
                "as_chat_template": ids == tokenizer.encode(reference, add_special_tokens=False),
            }
        )
    _, packed, _ = tokenized(folder, model, neat_packing=True)
    return {"rows": rows, "trained_tokens": trained(processed), "trained_tokens_packed": trained(packed)}


def trained(processed):
    return sum(label != IGNORE_INDEX for tokens in processed for label in tokens["labels"])


def fate(folder: Path, model: Path):
    """What becomes of the first of two rows: it is dropped, kills the run, or comes out other than it went in."""
    given = json.loads((folder / "data.jsonl").read_text(encoding="utf-8").splitlines()[0])
    try:
        _, processed, tokenizer = tokenized(folder, model, neat_packing=False)
    except (RuntimeError, KeyError, TypeError):
        return "dies"
    if len(processed) < 2:
        return "dropped"
    text = tokenizer.decode(processed[0]["input_ids"])
    said = [given["system"], *(turn["value"] for turn in given["conversations"] if turn["from"] != "function_call")]
    parts = text.split("<|im_start|>")[1:]
    shown = [part.split("\n", 1)[1].removesuffix("\n").removesuffix("<|im_end|>") for part in parts]
    calls = [turn["value"] for turn in given["conversations"] if turn["from"] == "function_call"]
    shown_calls = [part for part in shown if part.startswith("<tool_call>")]
    responses = "<tool_response>\n{}\n</tool_response>"
    kept = all(value in shown or responses.format(value) in shown for value in said)
    same_calls = [json.loads(part.split("\n")[1]) for part in shown_calls] == [json.loads(call) for call in calls]
    once = text.count("<|im_end|>") == len(parts)
    return "kept" if kept and same_calls and once else "changed"


def main():
    jobs, model, answer = (Path(argument) for argument in sys.argv[1:])
    results = {}
    for job in json.loads(jobs.read_text(encoding="utf-8")):
        folder = Path(job["folder"])
        results[job["name"]] = {"fate": fate(folder, model)} if job.get("broken") else probe(folder, model)
    answer.write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main()
