"""Embeddings of texts by a model, and similarity of texts without one.

A request for embeddings is a `Request` with `input`. Like every other, it uses the engine's concurrency limit, retries and budget, and its
reply is stored before it is used. The reply's text is a JSON list of vectors, so recordings can hold it. `make_lexical_vectors` describes
texts by their words and by runs of characters; it needs no embedding model and no package.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from operator import mul

import orjson

from simia.errors import Code
from simia.llm.http_response import parse_body, read_usage
from simia.llm.types import LLMFault, Reply, Request
from simia.terminal import write_count

SparseVector = dict[str, float]
"""Feature → value; features that a text does not have are left out."""
TEXTS = 64  # of one request
WORD = re.compile(r"\w+")
GRAMS = range(3, 6)  # lengths of runs of characters, within a word and its edges
COMMON = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "by",
        "can",
        "each",
        "for",
        "from",
        "has",
        "have",
        "in",
        "into",
        "is",
        "it",
        "its",
        "of",
        "on",
        "or",
        "such",
        "that",
        "the",
        "their",
        "them",
        "these",
        "they",
        "this",
        "to",
        "use",
        "used",
        "uses",
        "using",
        "was",
        "which",
        "who",
        "whose",
        "with",
        "within",
        "you",
        "your",
    ]
)


async def embed_texts(
    ask: Callable[[Request, str], Awaitable[Reply]], texts: Sequence[str], *, draw: str
) -> list[list[float]]:
    """Return the vectors of these texts, of length 1, in the order of the texts.

    Args:
        ask: sends a request through an engine, or finds its stored reply; its second argument is the draw.
        texts: they are sent in groups of `TEXTS`.
        draw: names the samples; each request adds its number.

    Raises:
        LLMFault: a recorded reply does not hold the vectors, or what `ask` raises.
    """
    vectors: list[list[float]] = []
    for start in range(0, len(texts), TEXTS):
        group = list(texts[start : start + TEXTS])
        reply = await ask(Request(messages=[], input=group), f"{draw}-{start // TEXTS}")
        for values in load_vectors(reply, len(group)):
            length = math.hypot(*values) or 1.0
            vectors.append([value / length for value in values])
    return vectors


def read_vectors(raw: bytes, count: int) -> Reply | None:
    """Read the body of a reply to a request with `count` texts; None if it does not hold a vector for each."""
    try:
        body = parse_body(raw)
        rows = sorted(body["data"], key=lambda row: row["index"])
        vectors = [[float(value) for value in row["embedding"]] for row in rows]
        usage = read_usage(body.get("usage"))
        reply = Reply(text=orjson.dumps(vectors).decode(), usage=usage, model=body.get("model"))
    except (ValueError, KeyError, TypeError, AttributeError):  # pydantic's refusals are ValueErrors too
        return None
    in_order = [row["index"] for row in rows] == list(range(count))
    lengths = {len(vector) for vector in vectors}
    finite = all(math.isfinite(value) for vector in vectors for value in vector)
    return reply if in_order and len(lengths) == 1 and lengths != {0} and finite else None


def load_vectors(reply: Reply, count: int) -> list[list[float]]:
    """The vectors of a reply. Raises `LLMFault` for a recorded one that does not hold `count` vectors, such as one written by hand."""
    try:
        vectors = [[float(value) for value in vector] for vector in orjson.loads(reply.text)]
    except (ValueError, TypeError):
        vectors = []
    if len(vectors) != count:
        detail = f"expected a JSON list of {write_count(count, 'vector')} as the reply's text"
        raise LLMFault(Code.BAD_REPLY_BODY, detail, retry=False)
    return vectors


def make_lexical_vectors(texts: Sequence[str]) -> list[SparseVector]:
    """Return vectors of length 1 of words and of character runs, weighted by how few of these texts have them (tf-idf)."""
    counts = [count_features(text) for text in texts]
    having = Counter(feature for count in counts for feature in count)
    rarity = {feature: 1.0 + math.log((1 + len(texts)) / (1 + number)) for feature, number in having.items()}
    vectors = []
    for count in counts:
        vector = {feature: (1 + math.log(n)) * rarity[feature] for feature, n in count.items()}
        length = math.hypot(*vector.values())
        vectors.append({feature: value / length for feature, value in vector.items()})
    return vectors


def count_features(text: str) -> Counter[str]:
    """Count words, without the most common English ones, and runs of three to five characters of a word and its edges."""
    words = [word for word in WORD.findall(unicodedata.normalize("NFKC", text).casefold()) if word not in COMMON]
    found: Counter[str] = Counter(f"={word}" for word in words)
    for word in words:
        edged = f"<{word}>"
        found.update(edged[i : i + n] for n in GRAMS for i in range(len(edged) - n + 1))
    return found


def compute_cosine(one: Sequence[float] | SparseVector, other: Sequence[float] | SparseVector) -> float:
    """The cosine of two vectors of length 1 and of the same kind; rounded, so that equal texts are equal on every machine."""
    if isinstance(one, dict) and isinstance(other, dict):
        small, large = (one, other) if len(one) <= len(other) else (other, one)
        cosine = sum(value * large[feature] for feature, value in small.items() if feature in large)
    else:
        cosine = sum(map(mul, one, other), 0.0)
    return float(round(cosine, 9))
