"""Runs inside a trainer's environment: TRL's SFTTrainer over our rows, two steps on a CPU, and what it trains on.

python trl_probe.py DATA.jsonl TABLE.parquet MODEL OUT.json
"""

import json
import os
import sys
from pathlib import Path

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

data, table, model, out = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(model)
rows = load_dataset("json", data_files=data, split="train")
arguments = SFTConfig(
    output_dir=out + ".d",
    max_steps=2,
    per_device_train_batch_size=2,
    max_length=None,
    use_cpu=True,
    report_to=[],
    save_strategy="no",
    gradient_checkpointing=False,
    bf16=False,
)
trainer = SFTTrainer(
    model=AutoModelForCausalLM.from_pretrained(model), args=arguments, train_dataset=rows, processing_class=tokenizer
)
batch = trainer.data_collator([trainer.train_dataset[i] for i in range(len(rows))])
trained = [
    tokenizer.decode([t for t, label in zip(ids, labels, strict=True) if label != -100])
    for ids, labels in zip(batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True)
]
loss = trainer.train().training_loss
parquet = load_dataset("parquet", data_files=table, split="train")
told = {"rows": len(rows), "trained": trained, "loss": loss, "parquet": [parquet.num_rows, parquet[0]["messages"]]}
Path(out).write_text(json.dumps(told))
os._exit(0)  # at once: threads of libraries can abort the interpreter at its exit under load, after all work is done
