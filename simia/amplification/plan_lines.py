"""Read the lines of `prompts/scenario/personas.txt` and `twists.txt` with the conditions under which they fit a plan.

A line is `TEXT | needs: WORD WORD | forbids: WORD | adds: MESSAGES`, each part after the text optional; `#` begins a comment line.
A line without conditions fits every plan.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

from simia.errors import UserError
from simia.prompts import read_lines

PERSONAS, TWISTS, WORDING = "scenario/personas.txt", "scenario/twists.txt", "scenario/plan.j2"
WORDS = (
    "dialogue policy change no_change confirmed done refused missing withdrawn error goals calls steps parallel repeated look_up search values codes"
    " cased target fixed os officebench webshop mind2web"
)
CONDITIONS = frozenset(WORDS.split())


@dataclass(frozen=True, slots=True)
class PlanLine:
    """A persona or a twist. `adds`: number of messages by which it lengthens the conversation; negative: shortens it."""

    text: str
    needs: frozenset[str] = frozenset()
    forbids: frozenset[str] = frozenset()
    adds: int = 0

    def fits(self, features: Collection[str]) -> bool:
        return self.needs <= set(features) and self.forbids.isdisjoint(features)


@cache
def read_plan_lines(name: str) -> tuple[PlanLine, ...]:
    """Return the lines of a file under prompts/. Raises `UserError` for a condition that is unknown."""
    return tuple(parse_plan_line(line, name) for line in read_lines(name) if not line.startswith("#"))


@cache
def list_fitting(name: str, features: frozenset[str]) -> tuple[PlanLine, ...]:
    """List the lines of a file that fit a plan with these features."""
    return tuple(line for line in read_plan_lines(name) if line.fits(features))


def parse_plan_line(line: str, name: str) -> PlanLine:
    text, *parts = (part.strip() for part in line.split("|"))
    found: dict[str, frozenset[str]] = {}
    adds = 0
    for part in parts:
        key, _, value = part.partition(":")
        words = value.split()
        if key == "adds" and value.strip().removeprefix("-").isdigit():
            adds = int(value)
        elif key in ("needs", "forbids") and words and CONDITIONS.issuperset(words):
            found[key] = frozenset(words)
        else:
            raise UserError(
                f"prompts/{name}: cannot read {part!r} of the line {text[:40]!r}; write needs: or forbids: with words of"
                f" {', '.join(sorted(CONDITIONS))}, or adds: NUMBER"
            )
    return PlanLine(text, found.get("needs", frozenset()), found.get("forbids", frozenset()), adds)
