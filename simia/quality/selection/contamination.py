"""Find contamination: words of a benchmark's task in user messages, or the calls that solve it.

Words count as eight in a row. In 337 conversations (Glaive's and simia's seeds), tau2's tasks match ten by chance at five
words, two at six ("tell me how much it will cost"), none at eight. Longer grams miss reworded tasks: of OfficeBench's
tasks with a tenth of their words changed, eight words find 82 %, ten 65 %, and thirteen, the usual choice for web text,
37 %, because tasks are short. A task of one shorter text matches a whole message. "You" and "I" are one word here, since
benchmarks instruct the user as "you" and the user then speaks as "I".

A character of a script without spaces is a share of a word (`LETTERS`): as much of a sentence must be equal in Chinese as
in English, thirteen characters for eight words.

Calls count as two or more in a row, equal in names and values. Names alone prove nothing: with the same tools everyone
looks up the order before cancelling it. Nor does one call, which may be equal by chance.

The index holds hashes and names of tasks, no texts: a finding quotes the trajectory.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path

from simia.errors import Code, Issue, UserError
from simia.quality import text_units
from simia.quality.exact_duplicates import normalize_arguments
from simia.quality.selection.benchmark_tasks import BenchmarkTask, iterate_tasks
from simia.trajectory import ToolCall, Trajectory

GRAM = 8
LEAST = 4  # words of a whole message: less is a greeting
QUOTED = 200
WORD = re.compile(r"\w+")
FOLDED = {
    "you": "i",
    "me": "i",
    "your": "my",
    "yours": "mine",
    "yourself": "myself",
    "are": "am",
    "m": "am",  # of "I'm", whose apostrophe parts the word
    "re": "am",
    "were": "was",
    "你": "我",
    "您": "我",
}
# Of scripts without spaces each character is a token; so many make an English word of a translation.
TOKEN = re.compile(rf"{text_units.DENSE.pattern}|(?:(?!{text_units.DENSE.pattern})\w)+")
LETTERS = (
    (re.compile(f"[{text_units.HAN}]"), 1.6),
    (re.compile(f"[{text_units.KANA}]"), 2.2),
    (re.compile(f"[{text_units.HANGUL}]"), 1.6),
    (re.compile(f"[{text_units.LONG_WORDS}]"), 5.0),
)


class BenchmarkIndex:
    """An index of one benchmark's texts and calls."""

    def __init__(self, name: str, tasks: Iterable[BenchmarkTask], *, n: int = GRAM) -> None:
        if n < LEAST:
            raise UserError(f"benchmark {name}: n-grams of {n} words match by chance; set n to {LEAST} or more")
        self.name, self.n = name, n
        self.tasks: list[str] = []
        # From a hash to the first task that has it.
        self._grams: dict[int, int] = {}
        self._whole: dict[int, int] = {}
        self._pairs: dict[int, int] = {}
        for task in tasks:
            self._add(task)

    @classmethod
    def load(cls, name: str, paths: Sequence[str | Path], *, n: int = GRAM) -> BenchmarkIndex:
        """Load files of trajectories or tasks, folders of OfficeBench tasks, and patterns (`officebench/[23]-*`)."""
        files = [file for path in paths for file in find_files(name, Path(path))]
        benchmark = cls(name, (task for file in files for task in iterate_tasks(file)), n=n)
        if not (benchmark._grams or benchmark._whole or benchmark._pairs):
            raise UserError(f"benchmark {name}: no task's words or calls were found in {', '.join(map(str, paths))}")
        return benchmark

    def _add(self, task: BenchmarkTask) -> None:
        number = len(self.tasks)
        self.tasks.append(task.name)
        for text in task.texts:
            said = split_text(text)
            grams, _ = hash_word_rows(said, self.n)
            for gram in grams:
                self._grams.setdefault(gram, number)
            if not grams and len(task.texts) == 1 and count_words(said) >= LEAST:
                # of a longer task it is a piece that anybody may say
                self._whole.setdefault(hash(tuple(said)), number)
        for pair in hash_grams([normalize_call(call) for call in task.calls if call.arguments], 2):
            self._pairs.setdefault(pair, number)

    def findings(self, t: Trajectory) -> list[Issue]:
        """Report one issue for each task and kind, with the longest piece in common."""
        return [*self._said(t), *self._find_calls(t)]

    def _said(self, t: Trajectory) -> Iterator[Issue]:
        found: dict[int, tuple[int, int, str]] = {}  # by task: words, message, piece
        for i, message in enumerate(t.messages):
            if message.role != "user":
                continue
            said = split_text(message.text)
            own, ends = hash_word_rows(said, self.n)
            if not own:
                number = self._whole.get(hash(tuple(said)))
                if number is not None:
                    keep_longest(found, number, (len(said), i, quote(said)))
                continue
            if self._grams.keys().isdisjoint(own):
                continue
            said = split_text(message.text, fold=False)
            for number, start, last in self._spans(own):
                keep_longest(found, number, (ends[last] - start, i, quote(said[start : ends[last]])))
        for number, (length, i, piece) in found.items():
            yield self._issue(
                number,
                f"messages[{i}]",
                f"{length} words{' or characters' if text_units.DENSE.search(piece) else ''}, “{piece[:QUOTED]}”",
            )

    def _spans(self, own: list[int]) -> Iterator[tuple[int, int, int]]:
        """Yield (task, first gram, last gram) of each run of grams of one task."""
        start, current = 0, self._grams.get(own[0])
        for at in range(1, len(own) + 1):
            number = self._grams.get(own[at]) if at < len(own) else None
            if number != current:
                if current is not None:
                    yield current, start, at - 1
                start, current = at, number

    def _find_calls(self, t: Trajectory) -> Iterator[Issue]:
        calls = [(i, j, call) for i, j, call in t.calls() if call.arguments]
        own = hash_grams([normalize_call(call) for _, _, call in calls], 2)
        if self._pairs.keys().isdisjoint(own):
            return
        seen: set[int] = set()
        for at, pair in enumerate(own):
            number = self._pairs.get(pair)
            if number is not None and number not in seen:
                seen.add(number)
                i, j, _ = calls[at]
                piece = " → ".join(
                    f"{call.name}({normalize_arguments(call.arguments)})" for _, _, call in calls[at : at + 2]
                )
                yield self._issue(number, f"messages[{i}].calls[{j}]", f"calls {piece[:QUOTED]}")

    def _issue(self, number: int, where: str, piece: str) -> Issue:
        return Issue(code=Code.CONTAMINATED, where=where, detail=f"{self.name}, task {self.tasks[number]}: {piece}")


def keep_longest(found: dict[int, tuple[int, int, str]], number: int, piece: tuple[int, int, str]) -> None:
    if number not in found or piece[0] > found[number][0]:
        found[number] = piece


def split_text(text: str, *, fold: bool = True) -> list[str]:
    low = text.lower()
    if low.isascii() or not text_units.DENSE.search(low):
        said = WORD.findall(low)
    else:
        said = TOKEN.findall(unicodedata.normalize("NFKC", low))
    return list(map(FOLDED.get, said, said)) if fold else said


def weigh_word(word: str) -> float:
    """Return how many words of English a token stands for."""
    return next((1 / letters for pattern, letters in LETTERS if pattern.match(word)), 1.0)


def count_words(said: Sequence[str]) -> float:
    return sum(map(weigh_word, said))


def hash_word_rows(said: Sequence[str], n: int) -> tuple[list[int], Sequence[int]]:
    """Return a hash of each row of n words, and where each row ends."""
    if all(map(str.isascii, said)) or not any(map(text_units.DENSE.match, said)):
        grams = hash_grams(said, n) if len(said) >= n else []
        return grams, range(n, n + len(grams))
    weights = list(map(weigh_word, said))
    grams, ends, end, held = [], [], 0, 0.0
    for start, weight in enumerate(weights):
        while held < n - 1e-6 and end < len(said):
            held += weights[end]
            end += 1
        if held < n - 1e-6:
            break
        grams.append(hash(tuple(said[start:end])))
        ends.append(end)
        held -= weight
    return grams, ends


def quote(said: Sequence[str]) -> str:
    """Join words by spaces, and characters of scripts without spaces by nothing."""
    return text_units.JOINED.sub("", " ".join(said))


def hash_grams(items: Sequence[Hashable], n: int) -> list[int]:
    """Return a hash of each n items in a row."""
    return list(map(hash, zip(*(items[start:] for start in range(n)), strict=False)))


def normalize_call(call: ToolCall) -> tuple[str, str]:
    return call.name, normalize_arguments(call.arguments)


def find_files(name: str, path: Path) -> list[Path]:
    """Return the files of a path: the file itself, a folder's tasks, or the matches of a pattern."""
    if path.is_file():
        return [path]
    if path.is_dir():
        found = sorted(path.rglob("subtasks/*.json")) or sorted([*path.glob("*.json"), *path.glob("*.jsonl")])
    else:
        root = Path(path.anchor or ".")
        pattern = str(path.relative_to(path.anchor))
        matches = sorted(root.glob(pattern)) if any(char in pattern for char in "*?[") else []
        found = [file for match in matches for file in find_files(name, match)]
    if not found:
        raise UserError(f"benchmark {name}: there is no file of tasks at {path}")
    return found
