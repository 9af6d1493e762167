"""Replies for load tests: long conversations (10 to 16 KB) made from our seeds with other words, some of them malformed.

Our checks accept each reply, except malformed ones: these have errors of real models that are repaired (trailing comma, code fence,
missing closing bracket, raw newline) or that cannot be repaired and are refused (cut, unknown tool).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator

import orjson

from simia.amplification.prompt import to_json_turn, to_tagged_turn
from simia.amplification.seeds import load_seed_packs
from simia.amplification.settings import AmplifyConfig
from simia.prompts import decode_result
from simia.trajectory import Message, Trajectory

LEAST, MOST = 10_000, 16_000
TURNS = 36  # messages of a reply, as in APIGen-MT's dialogues; the rest of its size is in the results
BROKEN = ("comma", "fence", "closer", "newline", "cut", "tool")
WORD = re.compile(r"(?<![\w@.'-])[a-z]{5,}(?![\w@'-]|\.\w)")  # not a piece of an address or a code
VOCABULARY = [
    "".join(random.Random(i).choices("aeioulnrstmdcp", k=random.Random(-i).randint(5, 10))) for i in range(4000)
]


def record(rng: random.Random) -> dict[str, object]:
    """Make a record as in the database of a shop or an airline."""
    return {
        "item_id": str(rng.randrange(10**9)),
        "name": " ".join(rng.choices(VOCABULARY, k=3)).title(),
        "options": {"size": rng.choice("SML"), "colour": rng.choice(VOCABULARY)},
        "price": round(rng.uniform(5, 900), 2),
        "available": rng.random() < 0.7,
    }


def turns(
    seeds: list[Trajectory], rng: random.Random, form: str, said: Callable[[re.Match[str]], str] | None = None
) -> list[str]:
    """Join whole stories of one pack, with other words in messages and larger results."""
    chosen = list[Message]()
    for seed in rng.sample(seeds, len(seeds)):
        chosen += [message for message in seed.messages if message.role != "system"]
        if len(chosen) >= TURNS - 6:
            break
    results = sum(message.role == "tool" for message in chosen) or 1
    each = max(1, round((rng.uniform(LEAST, MOST) - 160 * len(chosen)) / results / 160))
    parts = []
    for message in chosen:
        if message.role == "tool":
            value = {"result": decode_result(message.text), "related": [record(rng) for _ in range(each)]}
            message = message.model_copy(update={"content": orjson.dumps(value).decode()})
        elif message.text:
            message = message.model_copy(
                update={"content": WORD.sub(said or (lambda _: rng.choice(VOCABULARY)), message.text)}
            )
        parts.append(orjson.dumps(to_json_turn(message)).decode() if form == "json" else to_tagged_turn(message))
    return parts


def replies(
    n: int, *, seed: int = 0, form: str = "json", malformed: float = 0.05, pack: str | None = None
) -> Iterator[str]:
    groups = load_seed_packs(AmplifyConfig().seeds, AmplifyConfig().checks).groups
    for i in range(n):
        rng = random.Random(f"{seed}/{i}")
        parts = turns(groups[pack or rng.choice(sorted(groups))], rng, form)
        text = '{"messages":[' + ",".join(parts) + "]}" if form == "json" else "\n".join(parts)
        yield broken(text, rng) if rng.random() < malformed else text


def templates(pack: str, n: int, variants: int = 40) -> Iterator[list[str | list[str]]]:
    """Make replies in pieces, for an endpoint that must never repeat a reply: each word of a message is chosen from many."""
    group = load_seed_packs(AmplifyConfig().seeds, AmplifyConfig().checks).groups[pack]
    for i in range(n):
        rng = random.Random(f"template/{pack}/{i}")
        text = '{"messages":[' + ",".join(turns(group, rng, "json", said=lambda found: f"\x00{found[0]}\x00")) + "]}"
        pieces: list[str | list[str]] = []
        for at, piece in enumerate(text.split("\\u0000")):
            pieces.append(rng.sample(VOCABULARY, variants) if at % 2 else piece)
        yield pieces


def broken(text: str, rng: random.Random) -> str:
    slip = rng.choice(BROKEN)
    if slip == "cut":
        return text[: rng.randrange(len(text) // 2, len(text) - 100)]
    if slip == "fence":
        return f"```json\n{text}\n```"
    if slip == "tool":
        return text.replace('"name":"', '"name":"no_such_', 1)
    if not text.startswith("{"):
        return text + "\n```"
    if slip == "comma":
        return text.removesuffix("]}") + ",]}"
    if slip == "closer":
        return text.removesuffix("}")
    return text.replace(". ", ".\n", 1)
