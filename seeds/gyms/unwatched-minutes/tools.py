from pydantic import BaseModel

from simia.kit import ToolError, Tools, read, write


class State(BaseModel):
    shifts: list[list[int]]
    closing: int
    needed: int
    entered: list[int] = []
    changes: dict[str, int] = {}
    tally: int = 0
    answer: int | None = None


class Gym(Tools[State]):
    State = State

    @read
    def observe(self) -> dict:
        """Show the number of shifts, the closing minute, the needed guards, the number of entered shifts and the tally."""
        return {
            "shifts": len(self.state.shifts),
            "closing": self.state.closing,
            "needed": self.state.needed,
            "entered_shifts": len(self.state.entered),
            "tally": self.state.tally,
        }

    @read
    def look_at_shift(self, number: int) -> dict:
        """Show the start and the end of a shift.

        Args:
            number: The number of the shift, counted from 0.
        """
        self._check(number)
        start, end = self.state.shifts[number]
        return {"number": number, "start": start, "end": end}

    @read
    def is_on_duty(self, number: int, minute: int) -> bool:
        """Say whether the guard of a shift is on duty in a minute.

        Args:
            number: The number of the shift, counted from 0.
            minute: The minute of the opening time, from 0 to the one before the closing.
        """
        self._check(number)
        if not 0 <= minute < self.state.closing:
            raise ToolError(f"minute {minute} is not in the opening time: minutes are 0 to {self.state.closing - 1}")
        start, end = self.state.shifts[number]
        return start <= minute < end

    @read
    def compare_starts(self, first: int, second: int) -> str:
        """Say which of two shifts starts earlier: "first", "second" or "equal".

        Args:
            first: The number of one shift, counted from 0.
            second: The number of the other shift, counted from 0.
        """
        self._check(first)
        self._check(second)
        one, other = self.state.shifts[first][0], self.state.shifts[second][0]
        return "equal" if one == other else "first" if one < other else "second"

    @write
    def enter_shift(self, number: int) -> dict:
        """Enter a shift in the table of changes: one guard more at its start, one less at its end; what is after the closing counts there.

        Args:
            number: The number of the shift, counted from 0. Each shift can be entered once.
        """
        self._check(number)
        if number in self.state.entered:
            raise ToolError(f"shift {number} is in the table already: each shift can be entered once")
        for minute, change in zip(self.state.shifts[number], (1, -1)):
            place = str(min(minute, self.state.closing))
            self.state.changes[place] = self.state.changes.get(place, 0) + change
        self.state.entered.append(number)
        return {"entered_shifts": len(self.state.entered)}

    @read
    def next_change(self, after: int) -> dict:
        """Show the first minute after a given one that is in the table of changes, and by how many guards their number changes there.

        Args:
            after: The minute after which to look, from -1 to the closing; -1 finds the first of all.
        """
        if not -1 <= after <= self.state.closing:
            raise ToolError(f"cannot look after minute {after}: allowed are -1 to {self.state.closing}")
        later = [int(minute) for minute in self.state.changes if int(minute) > after]
        if not later:
            return {"found": False}
        minute = min(later)
        return {"found": True, "minute": minute, "change": self.state.changes[str(minute)]}

    @write
    def add_to_tally(self, minutes: int) -> dict:
        """Add minutes to a tally, which is 0 at first. The minutes are not checked.

        Args:
            minutes: The minutes to add, from 0 to the closing.
        """
        if not 0 <= minutes <= self.state.closing:
            raise ToolError(f"cannot add {minutes} minutes: allowed are 0 to {self.state.closing}")
        self.state.tally += minutes
        return {"tally": self.state.tally}

    @write
    def done(self, answer: int) -> dict:
        """Submit the answer, which ends the task.

        Args:
            answer: The number of minutes in which fewer guards are on duty than are needed.
        """
        self.state.answer = answer
        self.finish()
        return {"submitted": True}

    def _check(self, number: int) -> None:
        if not 0 <= number < len(self.state.shifts):
            raise ToolError(f"there is no shift {number}: shifts are 0 to {len(self.state.shifts) - 1}")
