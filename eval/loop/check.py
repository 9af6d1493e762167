"""Check the optimized training and playing of the student by three equalities, on any prepared model. Runs in TRL's environment.

    python check.py MODEL PACK DATA OUT.json

1. Loss and gradients with a shared prefix equal those of whole rows.
2. An exported conversation has the same ids and mask as the same conversation when it is played.
3. Episodes played together, with keys and values kept from turn to turn, give the same replies as each alone from its whole context.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from row_gradients import add_gradients
from student import TEMPLATE, TURN_TOKENS, Players, common, examples, write
from transformers import AutoModelForCausalLM, AutoTokenizer  # type: ignore[import-not-found,unused-ignore]

from simia import event_loop
from simia.envs.environment import Environment, EpisodeLimits
from simia.envs.opening import open_environment
from simia.pack import Pack
from simia.trainers.tokens import ChatText, TokenRow


def losses(model: Any, rows: list[tuple[list[int], list[int]]]) -> dict[str, float]:
    """Return the gap between the loss of whole rows and that with a shared prefix, and the largest gap between gradients."""
    total, count = torch.tensor(0.0), 0
    for ids, mask in rows:
        logits = model(input_ids=torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
        trained = torch.tensor(mask[1:]).bool()
        total = total - logits[trained].gather(1, torch.tensor(ids[1:])[trained][:, None]).sum()
        count += int(trained.sum())
    model.zero_grad()
    (total / count).backward()
    plain = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    shared = add_gradients(model, rows, common([ids for ids, _ in rows]))
    gaps = [float((p.grad - plain[name]).abs().max()) for name, p in model.named_parameters()]
    scale = max(float(g.abs().max()) for g in plain.values())
    return {"loss": abs(shared - float(total / count)), "gradient": max(gaps), "largest_gradient": scale}


async def played(environment: Environment, text: ChatText, tokenizer: Any, task: Any, said: list[str]) -> TokenRow:
    """Play an episode whose agent sends these messages, and return its ids."""
    episode = await environment.reset(task)
    row = TokenRow(episode, text.opening(episode.view.system, episode.view.messages, episode.view.tools))
    for words in said:
        await text.act(row, tokenizer(words, add_special_tokens=False)["input_ids"] + text.end_ids)
    await episode.close()
    return row


def same_ids(pack: Path, data: Path, tokenizer: Any) -> dict[str, int]:
    """Count the rows of an export whose ids and mask equal those of an episode with the same messages."""
    loaded = Pack.load(pack)
    tools = [{"type": "function", "function": tool.flat()} for tool in loaded.tools]
    environment = event_loop.run(open_environment(str(pack), user="scripted"))
    text, same, solved = ChatText(tokenizer), 0, 0
    opened = {task.instruction: task for task in environment.tasks}
    lines = data.read_text().splitlines()
    for line, (ids, mask) in zip(lines, examples(data, tokenizer, tools), strict=True):
        messages = json.loads(line)["messages"]
        said = [m["content"] for m in messages if m["role"] == "assistant"]
        row = event_loop.run(played(environment, text, tokenizer, opened[messages[1]["content"]], said))
        whole = [*row.prompt_ids, *row.completion_ids]
        same += whole == ids and [0] * len(row.prompt_ids) + row.mask == mask
        solved += row.episode.reward is not None and row.episode.reward.value == 1.0
    event_loop.run(environment.close())
    return {"rows": len(lines), "same": same, "solved": solved}


def alone(model: Any, row: TokenRow, ends: list[int]) -> bool:
    """Whether each reply is the model's greedy reply to its whole context. Of equally likely tokens, either is accepted."""
    ids, at = [*row.prompt_ids, *row.completion_ids], len(row.prompt_ids)
    logits = model(input_ids=torch.tensor([ids])).logits[0].float()
    for place, trained in enumerate(row.mask):
        best = logits[at + place - 1]
        if trained and float(best.max() - best[ids[at + place]]) > 1e-3:
            return False
    turns = [len(turn) for turn in "".join(map(str, row.mask)).split("0") if turn]
    return all(length <= TURN_TOKENS for length in turns) and (row.episode.end is not None)


def main() -> None:
    parser = argparse.ArgumentParser(description="Three equalities.")
    for name in ("model", "pack", "data", "out"):
        parser.add_argument(name, type=Path)
    given = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    tokenizer.chat_template = TEMPLATE
    model = AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32)
    tools = [{"type": "function", "function": tool.flat()} for tool in Pack.load(given.pack).tools]
    rows = examples(given.data, tokenizer, tools)
    told: dict[str, Any] = {"losses": losses(model, rows[:5]), "ids": same_ids(given.pack, given.data, tokenizer)}
    limits = EpisodeLimits(turns=3, errors=2)
    environment = event_loop.run(open_environment(str(given.pack), user="scripted", episode=limits))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(250):  # so that the model makes calls and episodes have several turns
        optimizer.zero_grad()
        add_gradients(model, rows[:6], common([ids for ids, _ in rows[:6]]))
        optimizer.step()
    model.eval()
    found = Players(model, ChatText(tokenizer), environment).run(environment.tasks[:6])
    with torch.inference_mode():
        told["alone"] = [alone(model, row, [tokenizer.eos_token_id]) for row in found]
    told["turns"] = [row.turns for row in found]
    event_loop.run(environment.close())
    write(given.out, told)


if __name__ == "__main__":
    main()
