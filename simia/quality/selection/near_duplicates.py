"""Find near-duplicates: MinHash signatures over pairs of words, looked up by bands of the signature.

Words are parted by spaces; in scripts without spaces, overlapping pieces of a word's average length take their place
(`quality.text_units`), at the same threshold. Signatures of other texts have not changed since 0.1.0; those of Chinese,
Japanese, Korean and Thai conversations that were stored before are computed again by `simia runs recheck`.

Texts of user and assistant and calls count; results and call ids do not, since they make conversations about the same
shop look alike. Shingles of one to five words (and eight to sixteen characters) separate copies from new stories equally
well on simia's seeds and on Glaive's calls; a pair of words is the longest that fits a 64-bit token in one pass.
`THRESHOLD` follows from `eval/bench/near.py`: with one word in twenty changed, a conversation keeps a similarity of 0.77
to 0.88, at any length; the same story with other names, dates and amounts has 0.59, and 95 % of such are below 0.69 at
500 words. At a hundred words some reach 0.81.

Available packages keep a hash table of objects for each band. Here all bands of all signatures are flat arrays, about
half a kilobyte per trajectory. The results depend only on the order of `add`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import Any
from zlib import crc32

from simia.errors import UserError
from simia.quality.text_units import divide_dense_bytes
from simia.quality.trajectory_view import encode_arguments
from simia.trajectory import Trajectory

THRESHOLD = 0.75
LANES = 128
SIZE = 2 * LANES  # bytes of a signature
SEED = 20_417  # of the permutations: part of what a stored signature means
BUCKETS = 1 << 16  # for each band; at a million signatures a chain has fifteen
SURE = 0.9  # how probable a candidate is at the threshold itself
# Lower letters and digits stay, and all bytes of other scripts; the rest parts words.
WORDS = bytes(ord(chr(c).lower()) if chr(c).isalnum() else 32 for c in range(128)) + bytes(range(128, 256))
HIGH = int.from_bytes(b"\x00\x80" * LANES, "little")
LOW = int.from_bytes(b"\xff\x7f" * LANES, "little")


def compute_signature(t: Trajectory) -> bytes:
    """Compute 256 bytes: the lower halves of 128 minima, equal in every process of a little-endian machine."""
    hashes = array("I", [0])
    hashes.extend(map(crc32, divide_dense_bytes(join_texts(t)).translate(WORDS).split()))
    hashes.append(0)  # an edge at either end, so that even an empty conversation has a pair
    edge = memoryview(hashes).cast("B")
    pairs = array("Q")
    for start in (0, 4):
        pairs.frombytes(edge[start : start + (len(edge) - start) // 8 * 8])
    row = load_sketcher()(pairs, array("Q", [0, len(pairs)]), LANES, SEED).to_rows()[0]
    return memoryview(array("I", row)).cast("B").cast("H")[::2].tobytes()


def join_texts(t: Trajectory) -> bytes:
    """Join the texts of user and assistant and the names and arguments of the calls."""
    parts: list[bytes] = []
    for message in t.messages:
        if message.role == "user" or message.role == "assistant":
            content = message.content
            if content:
                parts.append((content if type(content) is str else message.text).encode("utf-8", "replace"))
            for call in message.calls:
                parts.append(call.name.encode("utf-8", "replace"))
                parts.append(encode_arguments(call))
    return b"\n".join(parts)


@cache
def load_sketcher() -> Callable[..., Any]:
    try:
        rensa = import_module("rensa")
    except ImportError:
        raise UserError("near-duplicates need the package rensa: pip install rensa") from None
    found: Callable[..., Any] = rensa.RMinHash.digest_matrix_from_flat_token_hashes
    return found


def estimate_similarity(one: bytes, other: bytes) -> float:
    """Estimate the Jaccard similarity of two sets of word pairs; the standard error is at most 0.045."""
    return count_equal_lanes(int.from_bytes(one, "little"), int.from_bytes(other, "little")) / LANES


def count_equal_lanes(one: int, other: int) -> int:
    """Count equal 16-bit lanes, all at once: adding 0x7fff carries into a lane's top bit unless the lane is 0."""
    apart = one ^ other
    return LANES - ((((apart & LOW) + LOW) | apart) & HIGH).bit_count()


def choose_band_size(threshold: float) -> int:
    """Choose lanes a band: as many as leave a pair at the threshold a candidate with probability `SURE`."""
    fit = [rows for rows in range(1, 17) if 1 - (1 - threshold**rows) ** (LANES // rows) >= SURE]
    return max(fit, default=1)


class NearDuplicateIndex:
    """Signatures by name. Put the seeds in first: then what is near to one is found as well as what is near to an earlier one.

    Two signatures are compared if they agree in a whole band; bands that are equal by chance cost a comparison, nothing else.
    """

    def __init__(self, threshold: float = THRESHOLD) -> None:
        if not 0 < threshold <= 1:
            raise UserError(f"the threshold of near-duplicates must be above 0 and at most 1, got {threshold}")
        self.threshold = threshold
        self._least = threshold * LANES
        rows = choose_band_size(threshold)
        self._bands = [(2 * rows * i, 2 * rows * (i + 1)) for i in range(LANES // rows)]
        # The latest entry of each bucket, and the one before each entry; numbered from 1, since 0 ends a chain.
        self._latest = [array("I", bytes(4 * BUCKETS)) for _ in self._bands]
        self._before = [array("I", [0]) for _ in self._bands]
        self._signatures = bytearray(SIZE)
        self._names: list[str] = [""]

    def __len__(self) -> int:
        return len(self._names) - 1

    def add(self, name: str, signature: bytes) -> None:
        if len(signature) != SIZE:
            raise ValueError(f"a signature has {SIZE} bytes, not {len(signature)}")
        number = len(self._names)
        self._names.append(name)
        self._signatures += signature
        for (start, end), latest, before in zip(self._bands, self._latest, self._before, strict=True):
            bucket = crc32(signature[start:end]) % BUCKETS
            before.append(latest[bucket])
            latest[bucket] = number

    def find(self, signature: bytes) -> str | None:
        """Return the name of the nearest signature at or above the threshold; of equally near ones the first added."""
        asked = int.from_bytes(signature, "little")
        best, name = 0, None
        for number in sorted(set(self._candidates(signature))):
            at = number * SIZE
            agree = count_equal_lanes(asked, int.from_bytes(self._signatures[at : at + SIZE], "little"))
            if agree >= self._least and agree > best:
                best, name = agree, self._names[number]
        return name

    def _candidates(self, signature: bytes) -> Iterator[int]:
        signatures = self._signatures
        for (start, end), latest, before in zip(self._bands, self._latest, self._before, strict=True):
            key = signature[start:end]
            number = latest[crc32(key) % BUCKETS]
            while number:
                at = number * SIZE
                if signatures[at + start : at + end] == key:
                    yield number
                number = before[number]
