"""Runs inside a trainer's environment: what its own loader makes of exported preference pairs.

python pairs_probe.py llamafactory|trl FOLDER MODEL OUT.json
"""

import json
import sys
from pathlib import Path

which, folder, model, out = sys.argv[1:]


def read_llamafactory() -> list[dict[str, str]]:
    import yaml
    from llamafactory.data.loader import _get_merged_dataset, _get_preprocessed_dataset
    from llamafactory.data.template import get_template_and_fix_tokenizer
    from llamafactory.extras.constants import IGNORE_INDEX
    from llamafactory.hparams import get_train_args
    from llamafactory.model import load_tokenizer
    from llamafactory_probe import CPU

    given = yaml.safe_load((Path(folder) / "train.yaml").read_text(encoding="utf-8"))
    places = {"dataset_dir": folder, "model_name_or_path": model, "output_dir": f"{folder}/unused"}
    model_args, data_args, training_args, finetuning_args, _ = get_train_args({**given, **CPU, **places})
    assert finetuning_args.stage == "dpo"
    assert finetuning_args.pref_beta == 0.1
    tokenizer = load_tokenizer(model_args)["tokenizer"]
    template = get_template_and_fix_tokenizer(tokenizer, data_args)
    aligned = _get_merged_dataset(data_args.dataset, model_args, data_args, training_args, "rm")
    rows = _get_preprocessed_dataset(aligned, data_args, training_args, "rm", template, tokenizer)
    found = []
    for row in rows:
        told = {}
        for side in ("chosen", "rejected"):
            ids, labels = row[f"{side}_input_ids"], row[f"{side}_labels"]
            told[side] = tokenizer.decode([i for i, label in zip(ids, labels, strict=True) if label != IGNORE_INDEX])
            told[f"{side}_prompt"] = tokenizer.decode(
                [i for i, label in zip(ids, labels, strict=True) if label == IGNORE_INDEX]
            )
        found.append(told)
    return found


def read_trl() -> tuple[list[dict[str, str]], float]:
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import DPOConfig, DPOTrainer

    tokenizer = AutoTokenizer.from_pretrained(model)
    rows = load_dataset("json", data_files=f"{folder}/data.jsonl", split="train")
    arguments = DPOConfig(
        output_dir=f"{out}.d", max_steps=1, per_device_train_batch_size=2, max_length=None, use_cpu=True, report_to=[],
        save_strategy="no", gradient_checkpointing=False, bf16=False,
    )  # fmt: skip
    policy = AutoModelForCausalLM.from_pretrained(model)
    trainer = DPOTrainer(model=policy, args=arguments, train_dataset=rows, processing_class=tokenizer)
    found = [
        {
            **{side: tokenizer.decode(row[f"{side}_ids"]) for side in ("chosen", "rejected")},
            **{f"{side}_prompt": tokenizer.decode(row["prompt_ids"]) for side in ("chosen", "rejected")},
        }
        for row in trainer.train_dataset
    ]
    return found, trainer.train().training_loss


if which == "llamafactory":
    told = {"rows": read_llamafactory()}
else:
    rows, loss = read_trl()
    told = {"rows": rows, "loss": loss}
Path(out).write_text(json.dumps(told))
