"""A Qwen2 model of half a million parameters with a tokenizer made on the spot: real trainers, real code paths, no hub.

Runs inside a trainer's environment, not simia's: it needs torch, tokenizers and transformers and nothing of ours, so
that `python tests/trainers/tiny_model.py OUT TEXT...` works there. The tokenizer is byte-level BPE with Qwen's splitting
rule and Qwen's chat tokens and a chat template that renders as Qwen2.5's does; merges are learned from the TEXT files.
Keep "qwen" in the folder's name: RAGEN looks for it. `head_dim` is 64 because vLLM on CPU dies on smaller ones.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
FORMAT_TOKENS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
LEARNED_TOKENS = 1024
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

TURN = r"""
{%- macro turn(role, body) -%}
{{- '<|im_start|>' ~ role ~ '\n' ~ body ~ '<|im_end|>\n' -}}
{%- endmacro -%}
""".strip()
OPENING = r"""
{%- set opening = messages[0].content if messages[0].role == 'system'
    else 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' -%}
{%- if tools -%}
    {%- set listed = namespace(text='') -%}
    {%- for tool in tools -%}{%- set listed.text = listed.text ~ '\n' ~ (tool | tojson) -%}{%- endfor -%}
    {%- set opening = opening ~ '\n\n# Tools\n\nYou may call one or more functions to assist with the user query.'
        ~ '\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>' ~ listed.text
        ~ '\n</tools>\n\nFor each function call, return a json object with function name and arguments within '
        ~ '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}'
        ~ '\n</tool_call>' -%}
{%- endif -%}
{{- turn('system', opening) -}}
""".strip()
TURNS = r"""
{%- for message in messages -%}
    {%- if message.role == 'tool' -%}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}
        {{- '\n<tool_response>\n' ~ message.content ~ '\n</tool_response>' -}}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{- '<|im_end|>\n' -}}{%- endif -%}
    {%- elif message.role == 'assistant' and message.tool_calls -%}
        {%- set said = namespace(parts=[message.content] if message.content else []) -%}
        {%- for call in message.tool_calls -%}
            {%- set said.parts = said.parts + ['<tool_call>\n{"name": "' ~ call.function.name ~ '", "arguments": '
                ~ (call.function.arguments | tojson) ~ '}\n</tool_call>'] -%}
        {%- endfor -%}
        {{- turn('assistant', said.parts | join('\n')) -}}
    {%- elif not (loop.first and message.role == 'system') -%}
        {{- turn(message.role, message.content) -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
""".strip()
"""Every message after the system text, as Qwen2.5's template writes it; `TURN` must stand before it."""
CHAT_TEMPLATE = "\n".join([TURN, OPENING, TURNS])


def make(out: Path, texts: Sequence[Path] = (), *, seed: int = 0) -> Path:
    """Write model and tokenizer to `out`. The same texts and seed give the same bytes."""
    import torch  # type: ignore[import-not-found] # there in the trainers' environments, not in ours
    from transformers import Qwen2Config, Qwen2ForCausalLM  # type: ignore[import-not-found]

    tokenizer = make_tokenizer(texts)
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=32768,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    Qwen2ForCausalLM(config).save_pretrained(out)
    tokenizer.save_pretrained(out)
    return out


def make_tokenizer(texts: Sequence[Path]) -> Any:
    """Byte-level BPE: any text has tokens and decodes to itself (in Unicode's NFC form, as with Qwen's)."""
    from tokenizers import (  # type: ignore[import-not-found]
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        trainers,
    )
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=LEARNED_TOKENS, initial_alphabet=alphabet, show_progress=False)
    bpe.train_from_iterator(lines(texts), trainer)
    bpe.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in CONTROL_TOKENS])
    bpe.add_tokens([AddedToken(token, special=False, normalized=False) for token in FORMAT_TOKENS])
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
        clean_up_tokenization_spaces=False,
        model_max_length=32768,
        chat_template=CHAT_TEMPLATE,
    )


def lines(texts: Sequence[Path]) -> Iterator[str]:
    for path in texts:
        with path.open(encoding="utf-8") as handle:
            yield from handle


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a tiny Qwen2 model and its tokenizer.")
    parser.add_argument("out", type=Path)
    parser.add_argument("texts", type=Path, nargs="*", help="text files to learn the tokenizer's merges from")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(make(given.out, given.texts, seed=given.seed))


if __name__ == "__main__":
    main()
