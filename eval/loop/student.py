"""Prepare a small model (the student), train it on exported trajectories, and play tasks with it. Runs in TRL's environment.

    python student.py prepare GGUF OUT
    python student.py learn MODEL PACK [--data DATA] --steps 40 --seed 0 [--keep OUT] --play SPLIT=RESULT.json ...

Every row of the data and every episode begins with the same system text and tools. These tokens go through the model once per step,
and the rows attend to their keys and values (with gradients), which gives the same loss at half the cost. Only the assistant's
tokens are trained on. Playing keeps each episode's keys and values from turn to turn, so no token is computed twice.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from bfloat16 import multiply_in_bfloat16
from row_gradients import add_gradients
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache  # type: ignore[import-not-found,unused-ignore]

from simia import event_loop
from simia.envs.environment import Environment, EpisodeLimits
from simia.envs.opening import open_environment
from simia.pack import Pack
from simia.trainers.tokens import ChatText, TokenRow

sys.path.append(str(Path(__file__).parents[2] / "tests" / "trainers"))
import tiny_model

TURNS, ERRORS, TURN_TOKENS = 8, 3, 64
OPENING = r"""
{%- if messages[0].role == 'system' -%}
    {%- set said = namespace(text=messages[0].content.split('\n\n# Tools\n')[0]) -%}
    {%- if tools -%}
        {%- set said.text = said.text ~ '\nTools:' -%}
        {%- for tool in tools -%}
            {%- set given = namespace(text='') -%}
            {%- for name, kind in tool.function.parameters.properties.items() -%}
                {%- set given.text = given.text ~ (', ' if given.text else '') ~ name ~ ': '
                    ~ (kind.enum | join('|') if kind.enum else kind.type) -%}
            {%- endfor -%}
            {%- set said.text = said.text ~ '\n' ~ tool.function.name ~ '(' ~ given.text ~ '): ' ~ tool.function.description -%}
        {%- endfor -%}
        {%- set said.text = said.text ~ '\nA call is <tool_call>\n{"name": …, "arguments": {…}}\n</tool_call>' -%}
    {%- endif -%}
    {{- turn('system', said.text) -}}
{%- endif -%}
""".strip()
TEMPLATE = "\n".join([tiny_model.TURN, OPENING, tiny_model.TURNS])
"""Turns as in Qwen2.5's template and in `simia export --to trl`, but with one line per tool: the JSON Schemas of five tools would be
three times as long as a whole episode."""


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def prepare(weights: Path, out: Path) -> None:
    """De-quantise a GGUF file into a folder that trainers read, with our chat template."""
    tokenizer = AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name)
    model = AutoModelForCausalLM.from_pretrained(weights.parent, gguf_file=weights.name, dtype=torch.float32)
    plain = AutoModelForCausalLM.from_config(type(model.config)(**without_quantisation(model.config.to_dict())))
    plain.load_state_dict(model.state_dict())
    tokenizer.chat_template = TEMPLATE
    draft = out.with_name(f".{out.name}.{os.getpid()}")
    plain.save_pretrained(draft)
    tokenizer.save_pretrained(draft)
    draft.rename(out)


def without_quantisation(config: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in config.items() if k not in ("quantization_config", "_name_or_path", "_model_name_or_path")}


def examples(data: Path, tokenizer: Any, tools: list[dict[str, Any]]) -> list[tuple[list[int], list[int]]]:
    """Return (ids, mask) of each conversation of an export for TRL; mask is 1 for the assistant's tokens, its end token included."""
    found = []
    for line in data.read_text().splitlines():
        messages = json.loads(line)["messages"]
        ids, mask, known = list[int](), list[int](), ""
        for end, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            before = render(tokenizer, messages[:end], tools, ask=True)
            after = render(tokenizer, messages[: end + 1], tools).removesuffix("\n")  # not generated
            if not (before.startswith(known) and after.startswith(before)):
                raise SystemExit(f"the chat template rewrites earlier turns: {data}")
            for text, trained in ((before[len(known) :], 0), (after[len(before) :], 1)):
                piece = tokenizer(text, add_special_tokens=False)["input_ids"]
                ids += piece
                mask += [trained] * len(piece)
            known = after
        found.append((ids, mask))
    return found


def render(tokenizer: Any, messages: list[dict[str, Any]], tools: list[dict[str, Any]], *, ask: bool = False) -> str:
    return str(tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=ask, tokenize=False))


def common(rows: Sequence[Sequence[int]]) -> int:
    """Return the length of the common prefix of all rows, at least one token shorter than each row."""
    first, last = min(rows), max(rows)
    most = min(map(len, rows)) - 1
    return next((i for i in range(most) if first[i] != last[i]), most)


def batches(rows: list[Any], size: int, steps: int, source: random.Random) -> Iterator[list[Any]]:
    """Yield `steps` batches from epochs in which the rows are shuffled anew; a batch may reach into the next epoch."""
    queue: list[Any] = []
    for _ in range(steps):
        while len(queue) < size:
            queue += source.sample(rows, len(rows))
        yield queue[:size]
        queue = queue[size:]


def learn(
    model: Any,
    rows: list[tuple[list[int], list[int]]],
    *,
    steps: int,
    batch: int,
    rate: float,
    seed: int,
    checkpoint: Path | None = None,
) -> list[float]:
    """Train with AdamW, a short warm-up and a linear decay to 0. Returns the loss of each step, a mean over trained tokens. With
    `checkpoint`, the state is written there every tenth step, and a later call resumes from it."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.0)
    warm = max(1, steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, (steps - step) / max(1, steps - warm))
    )
    where = next(model.parameters()).device
    shared = common([ids for ids, _ in rows])
    losses = list[float]()
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule}
    if checkpoint is not None and checkpoint.exists():
        saved = torch.load(checkpoint, map_location=where)
        losses = saved["losses"]
        for name, part in parts.items():
            part.load_state_dict(saved[name])
    began, done = time.monotonic(), len(losses)
    for step, chosen in enumerate(batches(rows, batch, steps, random.Random(seed))):
        if step < done:
            continue
        with multiply_in_bfloat16(model):
            loss = add_gradients(model, chosen, shared)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss)
        if step % 5 == 0 or step == steps - 1:
            print(f"step {step + 1}/{steps} loss {losses[-1]:.3f} {time.monotonic() - began:.0f} s", flush=True)
        if checkpoint is not None and (step + 1) % 10 == 0:
            draft = checkpoint.with_name(f"{checkpoint.name}.{os.getpid()}")
            torch.save({"losses": losses, **{name: part.state_dict() for name, part in parts.items()}}, draft)
            draft.replace(checkpoint)
    return losses


class Players:
    """Plays episodes together by one model, greedily, with the cached keys and values of each."""

    def __init__(self, model: Any, text: ChatText, environment: Environment, seed: int = 0) -> None:
        self._model, self._text, self._environment, self._seed = model, text, environment, seed
        self._device = next(model.parameters()).device

    def run(self, tasks: list[Any]) -> list[TokenRow]:
        episodes = event_loop.run(self._together([self._environment.reset(task, seed=self._seed) for task in tasks]))
        rows = [TokenRow(e, self._text.opening(e.view.system, e.view.messages, e.view.tools)) for e in episodes]
        live = [row for row in rows if row.episode.end is None]
        unheard = [list(row.prompt_ids) for row in live]
        shared = common(unheard)
        with torch.inference_mode():
            head = torch.tensor([unheard[0][:shared]], device=self._device)
            cache = self._model.model(input_ids=head, use_cache=True).past_key_values
            cache.batch_repeat_interleave(len(live))
            seen = torch.ones((len(live), shared), dtype=torch.long, device=self._device)
            unheard = [ids[shared:] for ids in unheard]
            while live:
                replies, seen = self._speak(cache, seen, unheard)
                event_loop.run(
                    self._together([self._text.act(row, ids) for row, ids in zip(live, replies, strict=True)])
                )
                stay = [i for i, row in enumerate(live) if row.episode.end is None]
                unheard = [[replies[i][-1], *live[i].pending] for i in stay]
                live = [live[i] for i in stay]
                if live:
                    kept = torch.tensor(stay, device=self._device)
                    cache.batch_select_indices(kept)
                    seen = seen[kept]
        return rows

    def _speak(self, cache: DynamicCache, seen: Any, unheard: list[list[int]]) -> tuple[list[list[int]], Any]:
        """Generate one reply for each episode: process its new tokens, then sample token by token. The reply's last token is not cached."""
        width = max(map(len, unheard))
        step = torch.tensor([ids + [0] * (width - len(ids)) for ids in unheard], device=self._device)
        new = torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids in unheard], device=self._device)
        replies: list[list[int]] = [[] for _ in unheard]
        speaking = [True] * len(unheard)
        last = new.sum(1) - 1
        for _ in range(TURN_TOKENS):
            known = seen.sum(1, keepdim=True)
            seen = torch.cat([seen, new], dim=1)
            places = (known + new.cumsum(1) - 1).clamp(min=0)
            hidden = self._model.model(
                input_ids=step, attention_mask=seen, position_ids=places, past_key_values=cache, use_cache=True
            )[0]
            chosen = self._model.lm_head(hidden[torch.arange(len(unheard), device=self._device), last]).argmax(-1)
            for i, token in enumerate(chosen.tolist()):
                if speaking[i]:
                    replies[i].append(token)
                    speaking[i] = token not in self._text.end_ids
            if not any(speaking):
                break
            step, last = chosen[:, None], torch.zeros_like(last)
            new = torch.tensor([[int(s)] for s in speaking], device=self._device)
        return replies, seen

    async def _together(self, things: list[Any]) -> list[Any]:
        return list(await asyncio.gather(*things))


def play(model: Any, tokenizer: Any, pack: Path, split: str, out: Path, *, at_once: int = 50) -> float:
    """Play a split's tasks in the executable world, and write each task's reward and ending. Returns the mean reward."""
    model.eval()
    limits = EpisodeLimits(turns=TURNS, errors=ERRORS)
    environment = event_loop.run(open_environment(str(pack), backend="executable", user="scripted", episode=limits))
    told: dict[str, Any] = {}
    began = time.monotonic()
    with contextlib.closing(Closing(environment)):
        tasks = [task for task in environment.tasks if task.split == split]
        players = Players(model, ChatText(tokenizer), environment)
        for start in range(0, len(tasks), at_once):
            for row in players.run(tasks[start : start + at_once]):
                t = row.episode.trajectory
                value = t.reward.value if t.reward else None
                calls = [[c.name, c.arguments] for _, _, c in t.calls()]
                told[row.episode.task.id] = {
                    "reward": value, "kind": row.episode.task.tags[0], "end": [t.end.kind, t.end.code], "calls": calls,
                    "errors": sum(m.error is not None for m in t.messages), "last": t.messages[-1].text[:200],
                }  # fmt: skip
    known = [row["reward"] for row in told.values() if row["reward"] is not None]
    if len(known) < len(
        told
    ):  # an outage is not a failure of the student: no result is written, and the next start plays again
        raise SystemExit(f"{len(told) - len(known)} of {len(told)} episodes were aborted: start again")
    mean = sum(known) / max(1, len(known))
    seconds = time.monotonic() - began
    write(out, {"mean": mean, "scored": len(known), "tasks": told, "seconds": round(seconds, 1)})
    print(f"{out.name}: {mean:.3f} of {len(known)} scored, {seconds:.0f} s", flush=True)
    return mean


class Closing:
    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def close(self) -> None:
        event_loop.run(self._environment.close())


def write(path: Path, value: Any) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(value, indent=1))
    draft.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Prepare, train and play a small model.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    given = verbs.add_parser("prepare")
    given.add_argument("weights", type=Path)
    given.add_argument("out", type=Path)
    given = verbs.add_parser("learn")
    given.add_argument("model", type=Path)
    given.add_argument("pack", type=Path, help="whose tools and tasks are used")
    given.add_argument("--data", type=Path, help="an export for TRL; none: the model is played as it is")
    given.add_argument("--steps", type=int, default=40)
    given.add_argument("--batch", type=int, default=8)
    given.add_argument("--rate", type=float, default=5e-4)
    given.add_argument("--seed", type=int, default=0)
    given.add_argument("--keep", type=Path, help="where the trained weights are kept")
    given.add_argument("--checkpoint", type=Path, help="where a training that is killed goes on from")
    given.add_argument("--play", action="append", default=[], help="SPLIT=RESULT.json")
    options = parser.parse_args()
    if options.verb == "prepare":
        prepare(options.weights, options.out)
        return
    torch.manual_seed(options.seed)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).to(device())
    if options.data is not None:
        tools = [{"type": "function", "function": tool.flat()} for tool in Pack.load(options.pack).tools]
        rows = examples(options.data, tokenizer, tools)
        losses = learn(
            model,
            rows,
            steps=options.steps,
            batch=options.batch,
            rate=options.rate,
            seed=options.seed,
            checkpoint=options.checkpoint,
        )
        print(
            f"{len(rows)} rows, {sum(len(i) for i, _ in rows) / len(rows):.0f} tokens each, last loss {losses[-1]:.3f}"
        )
    if options.keep is not None:
        draft = options.keep.with_name(f".{options.keep.name}.{os.getpid()}")
        model.save_pretrained(draft)
        tokenizer.save_pretrained(draft)
        shutil.rmtree(options.keep, ignore_errors=True)  # from a run that was killed before it played
        draft.rename(options.keep)
        if options.checkpoint is not None:
            options.checkpoint.unlink(missing_ok=True)
    if options.data is not None:
        model = model.to(torch.bfloat16)  # as it would be served; what is only played is played as it was kept
    for wish in options.play:
        split, _, out = wish.partition("=")
        play(model, tokenizer, options.pack, split, Path(out))


if __name__ == "__main__":
    main()
