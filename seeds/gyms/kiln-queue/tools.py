from pydantic import BaseModel

from simia.kit import ToolError, Tools, read, write


class State(BaseModel):
    pots: list[list[int]]
    time: int = 0
    fired: list[int] = []
    answer: int | None = None


class Gym(Tools[State]):
    State = State

    @read
    def observe(self) -> dict:
        """Show the number of pots, the time on the clock of the kiln and the number of pots that were fired."""
        return {"pots": len(self.state.pots), "time": self.state.time, "fired": len(self.state.fired)}

    @read
    def look_at_pot(self, number: int) -> dict:
        """Show the arrival, the minutes in the kiln and the due time of a pot.

        Args:
            number: The number of the pot, counted from 0.
        """
        self._check(number)
        arrival, minutes, due = self.state.pots[number]
        return {"number": number, "arrival": arrival, "minutes": minutes, "due": due}

    @read
    def is_waiting(self, number: int) -> bool:
        """Say whether a pot has arrived by the time on the clock and has not been fired yet.

        Args:
            number: The number of the pot, counted from 0.
        """
        self._check(number)
        return self.state.pots[number][0] <= self.state.time and number not in self.state.fired

    @read
    def compare_due(self, first: int, second: int) -> str:
        """Say which of two pots has the earlier due time: "first", "second" or "equal".

        Args:
            first: The number of one pot, counted from 0.
            second: The number of the other pot, counted from 0.
        """
        self._check(first)
        self._check(second)
        one, other = self.state.pots[first][2], self.state.pots[second][2]
        return "equal" if one == other else "first" if one < other else "second"

    @write
    def fire(self, number: int) -> dict:
        """Fire a pot that has arrived, which moves the clock on to the time when it leaves the kiln. The choice of the pot is not checked.

        Args:
            number: The number of the pot, counted from 0. Each pot can be fired once.
        """
        self._check(number)
        if number in self.state.fired:
            raise ToolError(f"pot {number} was fired already: each pot can be fired once")
        arrival, minutes, due = self.state.pots[number]
        if arrival > self.state.time:
            raise ToolError(f"pot {number} has not arrived at time {self.state.time}: only pots that have arrived can be fired")
        self.state.time += minutes
        self.state.fired.append(number)
        return {"number": number, "time": self.state.time, "late": self.state.time > due}

    @write
    def wait_until(self, time: int) -> dict:
        """Let the kiln stand empty until a later time.

        Args:
            time: The time to which the clock moves on, later than the time that it shows.
        """
        if time <= self.state.time:
            raise ToolError(f"cannot wait until {time}: allowed are times after {self.state.time}")
        self.state.time = time
        return {"time": self.state.time}

    @write
    def start_over(self) -> dict:
        """Set the clock back to 0 and bring all pots back as not fired."""
        self.state.time = 0
        self.state.fired = []
        return {"time": 0, "fired": 0}

    @write
    def done(self, answer: int) -> dict:
        """Submit the answer, which ends the task.

        Args:
            answer: The number of pots that leave the kiln after their due time.
        """
        self.state.answer = answer
        self.finish()
        return {"submitted": True}

    def _check(self, number: int) -> None:
        if not 0 <= number < len(self.state.pots):
            raise ToolError(f"there is no pot {number}: pots are 0 to {len(self.state.pots) - 1}")
