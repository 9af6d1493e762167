"""Replies for load: long conversations (10 to 16 KB) put together from our seeds with other identifiers, some of them malformed.

Each reply is a trajectory that our checks accept, unless it is one of the malformed share: those have the slips of real models
(trailing comma, code fence, missing closer, raw newline: repaired), or are beyond repair (cut, unknown tool: refused).
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import orjson

from simia.amplify.prompt import as_json, as_tagged
from simia.amplify.seeds import load
from simia.amplify.settings import AmplifyConfig
from simia.trajectory import Trajectory

LEAST, MOST = 10_000, 16_000
CODE = re.compile(r"\b([A-Z]{2,5}-)(\d{3,})\b")
BROKEN = ("comma", "fence", "closer", "newline", "cut", "tool")


def turns(seeds: list[Trajectory], rng: random.Random, form: str) -> list[str]:
    """Whole stories of one pack, one after the other, until it is long enough."""
    size, wanted, out = 0, rng.uniform(LEAST, MOST - 2500), list[str]()
    for seed in rng.sample(seeds, len(seeds)) + rng.sample(seeds, len(seeds)):
        for message in seed.messages:
            if message.role != "system":
                out.append(orjson.dumps(as_json(message)).decode() if form == "json" else as_tagged(message))
                size += len(out[-1])
        if size > wanted:
            break
    return out


def replies(
    n: int, *, seed: int = 0, form: str = "json", malformed: float = 0.05, pack: str | None = None
) -> Iterator[str]:
    groups = load(AmplifyConfig().seeds, AmplifyConfig().checks).groups
    for i in range(n):
        rng = random.Random(f"{seed}/{i}")
        group = groups[pack or rng.choice(sorted(groups))]
        digits = list("123456789")
        rng.shuffle(digits)
        other = str.maketrans("123456789", "".join(digits))
        parts = [CODE.sub(lambda found: found[1] + found[2].translate(other), part) for part in turns(group, rng, form)]
        opening = f"(Ticket {rng.randrange(10**9)}) "  # what makes each one its own
        if form == "json":
            parts[0] = parts[0].replace('"content":"', '"content":"' + opening, 1)
            text = '{"messages":[' + ",".join(parts) + "]}"
        else:
            parts[0] = parts[0].replace("<user>\n", "<user>\n" + opening, 1)
            text = "\n".join(parts)
        yield broken(text, rng) if rng.random() < malformed else text


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
