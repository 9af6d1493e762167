from typing import Literal

from pydantic import BaseModel

from simia.kit import ToolError, Tools, read, write


class State(BaseModel):
    formula: str
    notes: dict[str, int] = {}
    answer: int | None = None


class Gym(Tools[State]):
    State = State

    @read
    def observe(self) -> dict:
        """Show the number of characters of the formula and the number of places with a note."""
        return {"length": len(self.state.formula), "notes": len(self.state.notes)}

    @read
    def look_at_character(self, place: int) -> dict:
        """Show the character at a place of the formula.

        Args:
            place: The place, counted from 0.
        """
        self._check(place)
        return {"place": place, "character": self.state.formula[place]}

    @read
    def find_separator(self, place: int) -> dict:
        """Find the first bracket or comma of the formula, at a given place or after it, and show which it is.

        Args:
            place: The place where the search begins, counted from 0.
        """
        self._check(place)
        for found in range(place, len(self.state.formula)):
            if self.state.formula[found] in "(),":
                return {"found": True, "place": found, "character": self.state.formula[found]}
        return {"found": False}

    @read
    def find_partner(self, place: int) -> dict:
        """Find the place of the bracket that belongs to a bracket.

        Args:
            place: The place of an opening or closing bracket, counted from 0.
        """
        self._check(place)
        if self.state.formula[place] not in "()":
            raise ToolError(f"place {place} has no bracket: allowed are places of brackets")
        step = 1 if self.state.formula[place] == "(" else -1
        depth, partner = 0, place
        while 0 <= partner < len(self.state.formula):
            depth += {"(": 1, ")": -1}.get(self.state.formula[partner], 0)
            if depth == 0:
                return {"place": place, "partner": partner}
            partner += step
        raise ToolError(f"the bracket at place {place} has no partner: allowed are brackets of a pair")

    @read
    def combine(self, name: Literal["min", "max", "sum", "mid"], values: list[int]) -> int:
        """Compute min, max, sum or mid of some numbers.

        Args:
            name: What to compute: "min", "max", "sum" or "mid".
            values: The numbers, 1 to 8 of them, in any order.
        """
        if not 1 <= len(values) <= 8:
            raise ToolError(f"cannot combine {len(values)} numbers: allowed are 1 to 8")
        ordered = sorted(values)
        if name == "min":
            return ordered[0]
        if name == "max":
            return ordered[-1]
        if name == "sum":
            return sum(ordered)
        if name == "mid":
            return ordered[(len(ordered) - 1) // 2]
        raise ToolError("this cannot be computed: allowed are min, max, sum and mid")

    @write
    def note_value(self, place: int, value: int) -> dict:
        """Write down a value for the part of the formula that begins at a place; an earlier note is replaced. The value is not checked.

        Args:
            place: The place, counted from 0.
            value: The value to write down, 0 or more.
        """
        self._check(place)
        if value < 0:
            raise ToolError(f"cannot note {value}: allowed are 0 and more")
        self.state.notes[str(place)] = value
        return {"notes": len(self.state.notes)}

    @read
    def read_note(self, place: int) -> dict:
        """Show the value that was written down for a place, if any.

        Args:
            place: The place, counted from 0.
        """
        self._check(place)
        if str(place) not in self.state.notes:
            return {"place": place, "noted": False}
        return {"place": place, "noted": True, "value": self.state.notes[str(place)]}

    @write
    def done(self, answer: int) -> dict:
        """Submit the answer, which ends the task.

        Args:
            answer: The value of the formula.
        """
        self.state.answer = answer
        self.finish()
        return {"submitted": True}

    def _check(self, place: int) -> None:
        if not 0 <= place < len(self.state.formula):
            raise ToolError(f"there is no place {place}: places are 0 to {len(self.state.formula) - 1}")
