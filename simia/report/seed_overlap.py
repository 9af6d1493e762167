"""Measure the overlap with the seeds: words of the user, order of the tools, identifiers in calls.

A model that is given a seed and asked for a new conversation tends to return the seed with other names. These figures do not
reject anything; they tell a reviewer where to look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from simia.amplification.seeds import group_by_pack, infer_identifiers_by_pack
from simia.quality.grounding import iterate_scalars_at
from simia.quality.mentions import decode_strings
from simia.quality.text_units import divide_dense_bytes
from simia.trajectory import Trajectory

# Words are letters, digits and underscores; all bytes beyond ASCII count as letters.
WORDS = bytes(code if code > 127 or chr(code).isalnum() or code == ord("_") else ord(" ") for code in range(256))


class SeedIndex:
    """The seeds' word 5-grams (as hashes), tool sequences, and per pack their values and identifying arguments."""

    def __init__(self, seeds: Mapping[str, Trajectory]) -> None:
        packs = group_by_pack(seeds.values())
        self.sequences = {id_: tuple(call.name for _, _, call in seed.calls()) for id_, seed in seeds.items()}
        self.values = {
            pack: {value for seed in group for value in iterate_values(seed)} for pack, group in packs.items()
        }
        self._grams = hash_word_grams(
            message.text for seed in seeds.values() for message in seed.messages if message.role == "user"
        )
        self._identifiers = {pack: ids.paths for pack, ids in infer_identifiers_by_pack(seeds.values()).items()}

    def count_known_grams(self, texts: Sequence[str]) -> tuple[int, int]:
        """Return the number of word 5-grams in the texts, and how many of them occur in seeds."""
        own = hash_word_grams(texts)
        return len(own), len(own & self._grams)

    def find_identifiers(self, calls: Sequence[Mapping[str, Any]], pack: str, system: str) -> set[str]:
        """Return the identifiers in calls, without those in the system text, such as the signed-in user's address."""
        paths = self._identifiers.get(pack, {})
        found: set[str] = set()
        for call in calls:
            arguments = call.get("arguments") or {}
            for path in paths.get(call["name"], ()):
                value = arguments.get(path[0])
                if type(value) is str and len(path) == 1:  # the common case
                    found.add(normalize_value(value))
                elif value is not None:
                    found.update(normalize_value(each) for _, each in iterate_scalars_at(arguments, path, ""))
        return {value for value in found if value not in system}


def hash_word_grams(texts: Iterable[str]) -> set[int]:
    """Return the hashes of the word 5-grams of each text."""
    found: set[int] = set()
    for text in texts:
        words = divide_dense_bytes(text.lower().encode(errors="replace")).translate(WORDS).split()
        found.update(map(hash, zip(words, words[1:], words[2:], words[3:], words[4:], strict=False)))
    return found


def iterate_values(seed: Trajectory) -> Iterator[str]:
    """Iterate over every value in a seed's calls and results."""
    for message in seed.messages:
        values: list[Any] = decode_strings(message.text) if message.role == "tool" else []
        for call in message.calls:
            values += [value for _, value in iterate_scalars_at(call.arguments, None, "")]
        yield from map(normalize_value, values)


def normalize_value(value: Any) -> str:
    return str(value).strip().lower()
