"""Runs inside TRL's environment: a copy of a model with an output layer of its own in place of the input's embeddings.

python untie.py MODEL OUT
"""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

source, out = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(source)
model.config.tie_word_embeddings = False
model.lm_head.weight = torch.nn.Parameter(model.get_input_embeddings().weight.detach().clone())
model.save_pretrained(out)
AutoTokenizer.from_pretrained(source).save_pretrained(out)
