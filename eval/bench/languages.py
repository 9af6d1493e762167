"""Test the checks in ten languages: the same changes to the same twenty stories, and the found share compared with English.

    python eval/bench/languages.py             # three variants of each story (a minute)
    python eval/bench/languages.py --variants 1

The stories are in eval/bench/language_texts, one file for each language, with the same requests, values and phrases. Each
is a conversation of two requests with one call. A change is applied alike everywhere: a filler at the start of each turn,
three characters changed, one word in twenty changed (of scripts without spaces: as many pieces of a word's length), other
names and values, a made-up identifier, an identifier within running text, the request of a benchmark copied with one word in
fifteen changed, an ending as "as an AI, I cannot", a leak, another language.

Prints a table of the found shares; its last rows are changes that must not be found. Then it prints the cost of signatures and of
the language check on English conversations. The last line is one JSON object; the exit code is 1 if a language has less than .95
of English's share, or a share of false findings more than .05 above English's.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from simia.errors import Code
from simia.quality import text_units
from simia.quality.check import Checks, check_trajectory
from simia.quality.grounding import infer_identifiers
from simia.quality.refusals import says_declined
from simia.quality.selection.benchmark_tasks import BenchmarkTask
from simia.quality.selection.contamination import BenchmarkIndex
from simia.quality.selection.near_duplicates import NearDuplicateIndex, compute_signature
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall, Trajectory

FOLDER = Path(__file__).parent / "language_texts"
LANGUAGES = ("en", "zh", "ja", "ko", "th", "ar", "es", "fr", "de", "vi")
RATIO, MARGIN = 0.95, 0.05  # a share of 60 samples has a standard error of .05
TOOLS = [
    ToolSpec(
        name="handle_request",
        description="Handle a request about an order, a booking or an account.",
        parameters={
            "type": "object",
            "properties": {"reference_id": {"type": "string"}, "count": {"type": "integer"}},
            "required": ["reference_id"],
        },
    )
]
WORD = re.compile(r"\w+")
FEW = 3
Change = Callable[[Trajectory, random.Random], Trajectory]


@dataclass
class Texts:
    """The stories and phrases of one language."""

    language: str
    names: list[str]
    cities: list[str]
    fillers: list[str]
    words: list[str]
    saying: list[str]
    stories: list[list[str]]
    more: list[list[str]]
    refusals: list[str]
    declines: list[str]
    leaks: list[str]

    @classmethod
    def load(cls, language: str) -> Texts:
        rows = yaml.safe_load((FOLDER / f"{language}.yaml").read_text(encoding="utf-8"))
        return cls(language, **rows)

    def tell(self, number: int, rng: random.Random) -> Trajectory:
        """Make the conversation of a story with random values."""
        values = {
            "name": rng.choice(self.names),
            "city": rng.choice(self.cities),
            "id": make_identifier(rng),
            "n": rng.randrange(2, 10),
        }
        asked, answered = (text.format(**values) for text in self.stories[number])
        again, closed = rng.choice(self.more)
        call = ToolCall(id="c1", name="handle_request", arguments={"reference_id": values["id"], "count": values["n"]})
        messages = [
            Message(role="user", content=asked),
            Message(role="assistant", calls=[call]),
            Message(role="tool", call_id="c1", name="handle_request", content='{"status": "done"}'),
            Message(role="assistant", content=answered),
            Message(role="user", content=again),
            Message(role="assistant", content=closed),
        ]
        return Trajectory(tools=TOOLS, messages=messages)


def make_identifier(rng: random.Random) -> str:
    prefix = rng.choice(["ORD-", "#W", "BK", "C-"])
    return f"{prefix}{rng.randrange(10**5, 10**7)}"


def edit(t: Trajectory, change: Callable[[str], str]) -> Trajectory:
    """Return the trajectory with the texts of user and assistant changed."""
    changed = [
        m.model_copy(update={"content": change(m.text)}) if m.role != "tool" and m.text else m for m in t.messages
    ]
    return t.model_copy(update={"messages": changed})


def list_words(text: str) -> list[tuple[int, int]]:
    """Return where words start and end; in scripts without spaces, pieces as long as a word."""
    found: list[tuple[int, int]] = []
    for run in re.finditer(rf"{text_units.RUN.pattern}|(?:(?!{text_units.DENSE.pattern})\w)+", text):
        start, end = run.span()
        if text_units.DENSE.match(run[0]):
            size = text_units.LONG if text_units.LONG_LETTER.match(run[0]) else text_units.SHORT
            found += [(at, min(at + size, end)) for at in range(start, end, size)]
        else:
            found.append((start, end))
    return found


def change_words(text: str, share: float, words: Sequence[str], rng: random.Random) -> str:
    """Replace the given share of the words by others."""
    spans = list_words(text)
    chosen = sorted(rng.sample(spans, max(1, round(share * len(spans)))), reverse=True)
    for start, end in chosen:
        text = text[:start] + rng.choice(words) + text[end:]
    return text


def change_characters(t: Trajectory, texts: Texts, rng: random.Random) -> Trajectory:
    """Exchange three letters of the conversation for other letters of its language."""
    letters = [char for word in texts.words for char in word if char.isalpha()]
    places = [
        (i, at)
        for i, m in enumerate(t.messages)
        if m.role != "tool"
        for at, char in enumerate(m.text)
        if char.isalpha()
    ]
    chosen = rng.sample(places, FEW)
    changed = [list(m.text) for m in t.messages]
    for i, at in chosen:
        changed[i][at] = rng.choice(letters)
    messages = [
        m.model_copy(update={"content": "".join(changed[i])}) if m.text and m.role != "tool" else m
        for i, m in enumerate(t.messages)
    ]
    return t.model_copy(update={"messages": messages})


def is_found_as_copy(original: Trajectory, copy: Trajectory) -> bool:
    index = NearDuplicateIndex()
    index.add("seed", compute_signature(original))
    if index.find(compute_signature(copy)) is not None:
        return True
    return any(issue.code is Code.SEED_COPY for issue in check_trajectory(copy, Checks(), seed=original))


def end_with(t: Trajectory, text: str) -> Trajectory:
    return t.model_copy(update={"messages": [*t.messages[:-1], Message(role="assistant", content=text)]})


def with_identifier(t: Trajectory, value: str) -> Trajectory:
    call = t.messages[1].calls[0].model_copy(update={"arguments": {"reference_id": value}})
    return t.model_copy(update={"messages": [t.messages[0], Message(role="assistant", calls=[call]), *t.messages[2:]]})


def says_identifier(texts: Texts, value: str, rng: random.Random) -> Trajectory:
    """Make a short conversation whose user says an identifier within running text."""
    said = rng.choice(texts.saying).format(id=value)
    t = with_identifier(texts.tell(0, rng), value)
    return t.model_copy(update={"messages": [Message(role="user", content=said), *t.messages[1:]]})


def is_ungrounded(t: Trajectory, seeds: Sequence[Trajectory]) -> bool:
    ids = infer_identifiers(TOOLS, seeds)
    return any(issue.code is Code.UNGROUNDED_ID for issue in check_trajectory(t, Checks(), ids=ids))


def copies_request(texts: Texts, number: int, rng: random.Random) -> bool:
    """Index one request as a benchmark's task; look for it in a message that copies it with a few words changed."""
    task = texts.tell(number, rng).messages[0].text
    index = BenchmarkIndex("b", [BenchmarkTask("t", [task])])
    said = f"{rng.choice(texts.fillers)}{change_words(task, 1 / 15, texts.words, rng)} {rng.choice(texts.more)[0]}"
    return bool(index.findings(Trajectory(messages=[Message(role="user", content=said)])))


def has(code: Code, t: Trajectory, seed: Trajectory | None = None) -> bool:
    return any(issue.code is code for issue in check_trajectory(t, Checks(), seed=seed))


def measure(texts: Texts, others: Sequence[Texts], number: int, rng: random.Random) -> Iterator[tuple[str, bool]]:
    """Yield (change, whether it is found) for one variant of a story. A name that starts with "no: " must not be found."""
    t = texts.tell(number, rng)
    strangers = [texts.tell(other, rng) for other in rng.sample(range(len(texts.stories)), 5) if other != number][:4]
    filled = edit(t, lambda text: rng.choice(texts.fillers) + text)
    yield "filler in each turn", is_found_as_copy(t, filled)
    yield "three characters changed", is_found_as_copy(t, change_characters(t, texts, rng))
    yield "1 word in 20 changed", is_found_as_copy(t, edit(t, lambda text: change_words(text, 0.05, texts.words, rng)))
    for few in (2, 4):
        seeds = strangers[:few]
        made_up = with_identifier(t, make_identifier(rng))
        yield f"made-up identifier, {few} seeds", is_ungrounded(made_up, seeds)
        near_miss = with_identifier(t, f"{t.messages[1].calls[0].arguments['reference_id']}7")  # type: ignore[index]
        yield f"a digit too many, {few} seeds", is_ungrounded(near_miss, seeds)
        yield f"no: identifier as said, {few} seeds", is_ungrounded(t, seeds)
    yield "no: said in running text", is_ungrounded(says_identifier(texts, make_identifier(rng), rng), ())
    yield "request of a benchmark", copies_request(texts, number, rng)
    yield "ends as an AI", has(Code.REFUSAL, end_with(t, texts.refusals[number % len(texts.refusals)]))
    yield "declines", says_declined(texts.declines[number % len(texts.declines)])
    yield "leak", has(Code.LEAK, end_with(t, texts.leaks[number % len(texts.leaks)]))
    other = rng.choice([each for each in others if each.language != texts.language])
    yield "another language", has(Code.LANGUAGE, other.tell(number, rng), seed=t)
    mixed = t.model_copy(update={"messages": [*t.messages[:3], *other.tell(number, rng).messages[3:]]})
    yield "answers in another language", has(Code.LANGUAGE, mixed, seed=t)
    stranger = strangers[0]
    index = NearDuplicateIndex()
    index.add("seed", compute_signature(t))
    yield "no: same story, other values", index.find(compute_signature(texts.tell(number, rng))) is not None
    yield "no: another story", index.find(compute_signature(stranger)) is not None
    yield "no: any issue of a sound one", bool(check_trajectory(stranger, Checks(), seed=t))
    yield (
        "no: another request in a benchmark",
        bool(BenchmarkIndex("b", [BenchmarkTask("t", [t.messages[0].text])]).findings(stranger)),
    )
    yield "no: a sound one declines", any(says_declined(m.text) for m in t.messages if m.role == "assistant")
    yield "no: mixed with its seed's language", has(Code.LANGUAGE, t, seed=mixed)


def measure_language(
    texts: Texts, others: Sequence[Texts], variants: int, *, stories: int = 20
) -> dict[str, tuple[int, int]]:
    """Return for each change how many were found, and of how many."""
    found: dict[str, tuple[int, int]] = {}
    for number in range(stories):
        for variant in range(variants):
            rng = random.Random(f"{number} {variant}")
            for change, hit in measure(texts, others, number, rng):
                hits, of = found.get(change, (0, 0))
                found[change] = hits + hit, of + 1
    return found


def find_failures(table: dict[str, dict[str, tuple[int, int]]]) -> list[str]:
    """Return the cells that fall short of English."""
    short = []
    for change, (hits, of) in table["en"].items():
        for language, row in table.items():
            share, english = row[change][0] / row[change][1], hits / of
            if share > english + MARGIN if change.startswith("no: ") else share < RATIO * english:
                short.append(f"{language}: {change} {share:.2f}, English {english:.2f}")
    return short


def time_each(run: Callable[[Trajectory], Any], given: Sequence[Trajectory], rounds: int = 7) -> float:
    """Return microseconds for one trajectory, the best of several rounds."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        for t in given:
            run(t)
        times.append(time.process_time() - start)
    return min(times) / len(given) * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", type=int, default=3)
    variants = parser.parse_args().variants
    all_texts = [Texts.load(language) for language in LANGUAGES]
    table = {texts.language: measure_language(texts, all_texts, variants) for texts in all_texts}
    print(f"{'':38}" + "".join(f"{language:>6}" for language in table))
    for change in sorted(table["en"], key=lambda name: name.startswith("no: ")):
        cells = (f"{row[change][0] / row[change][1]:6.2f}" for row in table.values())
        print(f"{change:38}{''.join(cells)}")
    costs: dict[str, dict[str, float]] = {}
    for texts in all_texts:
        rng = random.Random(0)
        given = [texts.tell(number, rng) for number in range(20)]
        seed = given[0]
        ids = infer_identifiers(TOOLS)
        without = Checks(language=False)
        costs[texts.language] = {
            "check": time_each(lambda t, s=seed, i=ids: check_trajectory(t, Checks(), ids=i, seed=s), given),  # type: ignore[misc]
            "check_without_language": time_each(
                lambda t, s=seed, i=ids, c=without: check_trajectory(t, c, ids=i, seed=s), given
            ),  # type: ignore[misc]
            "signature": time_each(compute_signature, given),
        }
    print(f"\n{'microseconds':38}" + "".join(f"{language:>6}" for language in costs))
    for name in costs["en"]:
        print(f"{name:38}" + "".join(f"{row[name]:6.0f}" for row in costs.values()))
    short = find_failures(table)
    for line in short:
        print("falls short:", line)
    shares = {language: {change: round(a / b, 3) for change, (a, b) in row.items()} for language, row in table.items()}
    print(json.dumps({"shares": shares, "microseconds": costs, "falls_short": short}))
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
