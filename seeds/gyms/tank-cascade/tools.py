from pydantic import BaseModel

from simia.kit import ToolError, Tools, read, write


class State(BaseModel):
    capacities: list[int]
    pours: list[list[int]]
    every: int
    levels: list[int] = []
    noted: int = 0
    answer: dict[str, int] | None = None


class Gym(Tools[State]):
    State = State

    @read
    def observe(self) -> dict:
        """Show the number of tanks, the number of pours, after how many pours the taps run, and the litres noted as lost so far."""
        return {
            "tanks": len(self.state.capacities),
            "pours": len(self.state.pours),
            "every": self.state.every,
            "noted_lost": self.state.noted,
        }

    @read
    def look_at_pour(self, number: int) -> dict:
        """Show into which tank a pour goes and how many litres it has. It does not carry the pour out.

        Args:
            number: The number of the pour, counted from 1.
        """
        if not 1 <= number <= len(self.state.pours):
            raise ToolError(f"there is no pour {number}: pours are 1 to {len(self.state.pours)}")
        tank, litres = self.state.pours[number - 1]
        return {"number": number, "tank": tank, "litres": litres}

    @read
    def look_at_capacity(self, tank: int) -> dict:
        """Show how many litres a tank can hold.

        Args:
            tank: The tank, counted from 0 at the top.
        """
        self._check_tank(tank)
        return {"tank": tank, "capacity": self.state.capacities[tank]}

    @read
    def look_at_level(self, tank: int) -> dict:
        """Show how many litres are in a tank now, after what you have done so far.

        Args:
            tank: The tank, counted from 0 at the top.
        """
        self._check_tank(tank)
        return {"tank": tank, "level": self._current_levels()[tank]}

    @write
    def fill_tank(self, tank: int, litres: int) -> dict:
        """Let litres into one tank, as many as it can still hold, and show how many it took and how many are over. Those go nowhere yet.

        Args:
            tank: The tank, counted from 0 at the top.
            litres: The litres that come to the tank, 0 to 1000.
        """
        self._check_tank(tank)
        self._check_litres(litres)
        levels = self._current_levels()
        held = min(litres, self.state.capacities[tank] - levels[tank])
        levels[tank] += held
        self.state.levels = levels
        return {"tank": tank, "held": held, "over": litres - held}

    @write
    def open_taps(self) -> dict:
        """Let one litre out of each tank that has any, once, and show how many litres ran out."""
        levels = self._current_levels()
        gone = sum(1 for level in levels if level > 0)
        self.state.levels = [max(0, level - 1) for level in levels]
        return {"ran_out": gone}

    @write
    def note_lost(self, litres: int) -> dict:
        """Add litres to your note of the lost litres and show the sum noted so far.

        Args:
            litres: The litres to add, 0 to 1000.
        """
        self._check_litres(litres)
        self.state.noted += litres
        return {"noted_lost": self.state.noted}

    @write
    def start_over(self) -> dict:
        """Empty all tanks and set the note of the lost litres to 0."""
        self.state.levels = [0] * len(self.state.capacities)
        self.state.noted = 0
        return {"noted_lost": 0}

    @write
    def done(self, answer: dict[str, int]) -> dict:
        """Submit the answer, which ends the task.

        Args:
            answer: An object with the integers "lost" (litres lost over the last tank) and "left" (litres left in all tanks).
        """
        self.state.answer = answer
        self.finish()
        return {"submitted": True}

    def _current_levels(self) -> list[int]:
        return list(self.state.levels) or [0] * len(self.state.capacities)

    def _check_tank(self, tank: int) -> None:
        if not 0 <= tank < len(self.state.capacities):
            raise ToolError(f"there is no tank {tank}: tanks are 0 to {len(self.state.capacities) - 1}")

    def _check_litres(self, litres: int) -> None:
        if not 0 <= litres <= 1000:
            raise ToolError(f"{litres} litres are not possible: litres are 0 to 1000")
