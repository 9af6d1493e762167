"""Measure the overlap with the seeds: words of the user, order of the tools, identifiers in calls.

A model that gets a seed and is asked for something new tends to return the seed with other names. These figures reject
nothing; they tell a reviewer where to look.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from simia.quality.grounding import infer_identifiers, iterate_scalars_at
from simia.quality.mentions import decode_strings
from simia.report.stored_rows import ConversationFacts, TrajectoryHead, summarize_conversation
from simia.trajectory import Trajectory

GRAM = 5
# Words are letters, digits and underscores; all bytes beyond ASCII count as letters.
WORDS = bytes(code if code > 127 or chr(code).isalnum() or code == ord("_") else ord(" ") for code in range(256))


@dataclass(slots=True)
class SeedSimilarity:
    """Overlap of one trajectory with the seeds."""

    grams: int
    known: int
    same_sequence: bool
    identifiers: set[str]
    copied: int

    @property
    def tenth(self) -> int:
        """Tenths of the grams that occur in seeds: 0 only for none, 10 for all."""
        return -(-10 * self.known // self.grams) if self.grams else 0


class SeedIndex:
    """An index of the seeds' grams, values, tool sequences and identifiers. Grams are stored as hashes."""

    def __init__(self, seeds: dict[str, Trajectory]) -> None:
        groups: dict[str, list[Trajectory]] = defaultdict(list)
        for seed in seeds.values():
            groups[seed.pack or ""].append(seed)
        stories = {seed_id: summarize_conversation(seed.to_row()) for seed_id, seed in seeds.items()}
        self._grams = {gram for story in stories.values() for gram in hash_grams(story.users)}
        self._sequences = {seed_id: story.sequence for seed_id, story in stories.items()}
        self._values = {
            pack: {value for seed in group for value in iterate_values(seed)} for pack, group in groups.items()
        }
        self._identifiers = {
            pack: infer_identifiers([tool for seed in group for tool in seed.tools], group).paths
            for pack, group in groups.items()
        }

    def compare(self, story: ConversationFacts, head: TrajectoryHead, seed_id: str) -> SeedSimilarity:
        own = hash_grams(story.users)
        identifiers = self._identifiers_of(story, head)
        return SeedSimilarity(
            grams=len(own),
            known=len(own & self._grams),
            same_sequence=self._sequences.get(seed_id) == story.sequence,
            identifiers=identifiers,
            copied=len(identifiers & self._values.get(head.pack, set())),
        )

    def _identifiers_of(self, story: ConversationFacts, head: TrajectoryHead) -> set[str]:
        """Return the identifiers in calls, without those in the system text, such as the signed-in user's address."""
        paths = self._identifiers.get(head.pack, {})
        found: set[str] = set()
        for call in story.calls:
            arguments = call.get("arguments")
            if not arguments:
                continue
            for path in paths.get(call["name"], ()):
                value = arguments.get(path[0])
                if type(value) is str and len(path) == 1:  # the common case
                    found.add(value.strip().lower())
                elif value is not None:
                    found.update(normalize_value(each) for _, each in iterate_scalars_at(arguments, path, ""))
        return {value for value in found if value not in head.system}


def hash_grams(users: list[str]) -> set[int]:
    """Return the hashes of the word 5-grams of each message."""
    found: set[int] = set()
    for text in users:
        words = text.lower().encode(errors="replace").translate(WORDS).split()
        if len(words) >= GRAM:
            found.update(map(hash, zip(words, words[1:], words[2:], words[3:], words[4:], strict=False)))
    return found


def iterate_values(seed: Trajectory) -> Iterator[str]:
    """Iterate over every value in a seed's calls and results."""
    for message in seed.messages:
        found: Sequence[Any] = decode_strings(message.text) if message.role == "tool" else []
        for value in (
            *found,
            *(value for call in message.calls for _, value in iterate_scalars_at(call.arguments, None, "")),
        ):
            yield normalize_value(value)


def normalize_value(value: Any) -> str:
    return str(value).strip().lower()
