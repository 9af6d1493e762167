from pydantic import BaseModel

from simia.kit import ToolError, Tools, read, write


class State(BaseModel):
    islands: int
    lines: list[list[int]]
    wait: int
    start: int
    goal: int
    times: dict[str, int] = {}
    settled: list[int] = []
    answer: int | None = None


class Gym(Tools[State]):
    State = State

    @read
    def observe(self) -> dict:
        """Show the numbers of islands and lines, the waiting time, the start, the goal and how much was noted and settled."""
        return {
            "islands": self.state.islands,
            "lines": len(self.state.lines),
            "wait": self.state.wait,
            "start": self.state.start,
            "goal": self.state.goal,
            "noted_islands": len(self.state.times),
            "settled_islands": len(self.state.settled),
        }

    @read
    def count_departures(self, island: int) -> int:
        """Count the lines that leave an island.

        Args:
            island: The island, counted from 0.
        """
        self._check(island)
        return len(self._departures(island))

    @read
    def look_at_line(self, island: int, number: int) -> dict:
        """Show one of the lines that leave an island: where it goes and how many minutes it takes.

        Args:
            island: The island that the line leaves, counted from 0.
            number: The number of the line among those that leave the island, counted from 0.
        """
        target, minutes = self._line(island, number)
        return {"from": island, "to": target, "minutes": minutes}

    @read
    def compute_arrival(self, island: int, number: int, spent: int) -> dict:
        """Compute when a traveller arrives who takes a line, with the waiting time unless the line leaves the start island.

        Args:
            island: The island that the line leaves, counted from 0.
            number: The number of the line among those that leave the island, counted from 0.
            spent: The minutes that the traveller has spent until he came to the island, 0 or more.
        """
        target, minutes = self._line(island, number)
        if spent < 0:
            raise ToolError(f"{spent} minutes cannot be spent: allowed are 0 and more")
        change = 0 if island == self.state.start else self.state.wait
        return {"to": target, "arrival": spent + change + minutes}

    @write
    def note_time(self, island: int, minutes: int) -> dict:
        """Write down the minutes to an island; minutes noted earlier for the island are replaced. The minutes are not checked.

        Args:
            island: The island, counted from 0.
            minutes: The minutes to write down, 0 or more.
        """
        self._check(island)
        if minutes < 0:
            raise ToolError(f"{minutes} minutes cannot be noted: allowed are 0 and more")
        self.state.times[str(island)] = minutes
        return {"noted_islands": len(self.state.times)}

    @read
    def read_time(self, island: int) -> dict:
        """Show the minutes that were written down for an island, if any, and whether the island is settled.

        Args:
            island: The island, counted from 0.
        """
        self._check(island)
        result: dict = {"island": island, "noted": str(island) in self.state.times, "settled": island in self.state.settled}
        if result["noted"]:
            result["minutes"] = self.state.times[str(island)]
        return result

    @write
    def settle_next(self) -> dict:
        """Settle, of the islands that have noted minutes and are not settled, the one with the fewest; of equal ones the lower number."""
        open_islands = [(minutes, int(island)) for island, minutes in self.state.times.items() if int(island) not in self.state.settled]
        if not open_islands:
            raise ToolError("no island can be settled: only islands with noted minutes that are not settled yet can be")
        minutes, island = min(open_islands)
        self.state.settled.append(island)
        return {"island": island, "minutes": minutes}

    @write
    def done(self, answer: int) -> dict:
        """Submit the answer, which ends the task.

        Args:
            answer: The fewest minutes from the start island to the goal island, or -1 if there is no way.
        """
        self.state.answer = answer
        self.finish()
        return {"submitted": True}

    def _check(self, island: int) -> None:
        if not 0 <= island < self.state.islands:
            raise ToolError(f"there is no island {island}: islands are 0 to {self.state.islands - 1}")

    def _departures(self, island: int) -> list[list[int]]:
        return [[target, minutes] for source, target, minutes in self.state.lines if source == island]

    def _line(self, island: int, number: int) -> list[int]:
        self._check(island)
        departures = self._departures(island)
        if not 0 <= number < len(departures):
            allowed = f"lines are 0 to {len(departures) - 1}" if departures else "no line leaves it"
            raise ToolError(f"island {island} has no line {number}: {allowed}")
        return departures[number]
