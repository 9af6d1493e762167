from pydantic import BaseModel

from simia.kit import ToolError, Tools, read, write


class State(BaseModel):
    deliveries: list[list[int]]
    demand: list[int]
    shelf: dict[str, int] = {}
    unpacked: list[int] = []
    answer: dict[str, int] | None = None


class Gym(Tools[State]):
    State = State

    @read
    def observe(self) -> dict:
        """Show the numbers of deliveries, of days with a demand and of unpacked deliveries, and the loaves on the shelf."""
        return {
            "deliveries": len(self.state.deliveries),
            "days": len(self.state.demand),
            "unpacked": len(self.state.unpacked),
            "on_shelf": sum(self.state.shelf.values()),
        }

    @read
    def look_at_delivery(self, number: int) -> dict:
        """Show the day, the loaves and the days of sale of a delivery.

        Args:
            number: The number of the delivery, counted from 0. Deliveries may be in any order.
        """
        self._check_delivery(number)
        day, loaves, days = self.state.deliveries[number]
        return {"number": number, "day": day, "loaves": loaves, "days": days}

    @read
    def look_at_demand(self, day: int) -> dict:
        """Show how many loaves are asked for on a day.

        Args:
            day: The day, counted from 0.
        """
        if not 0 <= day < len(self.state.demand):
            raise ToolError(f"day {day} has no demand: days are 0 to {len(self.state.demand) - 1}")
        return {"day": day, "demand": self.state.demand[day]}

    @write
    def unpack(self, number: int) -> dict:
        """Put the loaves of a delivery on the shelf, under the last day on which they may be sold. The time for it is not checked.

        Args:
            number: The number of the delivery, counted from 0. Each delivery can be unpacked once.
        """
        self._check_delivery(number)
        if number in self.state.unpacked:
            raise ToolError(f"delivery {number} was unpacked already: each delivery can be unpacked once")
        day, loaves, days = self.state.deliveries[number]
        last = str(day + days - 1)
        self.state.shelf[last] = self.state.shelf.get(last, 0) + loaves
        self.state.unpacked.append(number)
        return {"last_day": int(last), "loaves": loaves}

    @read
    def count_on_shelf(self, last_day: int) -> int:
        """Count the loaves on the shelf that have a certain last day.

        Args:
            last_day: The last day on which the loaves may be sold, 0 or later.
        """
        if last_day < 0:
            raise ToolError(f"there is no day {last_day}: days are 0 and later")
        return self.state.shelf.get(str(last_day), 0)

    @write
    def sell_nearest(self, loaves: int) -> dict:
        """Sell loaves of the nearest last day on the shelf, as many as are asked for or, if they are fewer, all of that last day.

        Args:
            loaves: The loaves that are asked for, from 1 to 100.
        """
        if not 1 <= loaves <= 100:
            raise ToolError(f"cannot ask for {loaves} loaves: allowed are 1 to 100")
        if not self.state.shelf:
            raise ToolError("the shelf is empty: loaves can be sold only when there are some on it")
        last = min(self.state.shelf, key=int)
        sold = min(loaves, self.state.shelf[last])
        self.state.shelf[last] -= sold
        if self.state.shelf[last] == 0:
            del self.state.shelf[last]
        return {"last_day": int(last), "sold": sold, "still_wanted": loaves - sold}

    @write
    def throw_away(self, last_day: int) -> dict:
        """Take all loaves that have a certain last day from the shelf, and show how many they were.

        Args:
            last_day: The last day of the loaves, 0 or later.
        """
        if last_day < 0:
            raise ToolError(f"there is no day {last_day}: days are 0 and later")
        return {"last_day": last_day, "loaves": self.state.shelf.pop(str(last_day), 0)}

    @write
    def start_over(self) -> dict:
        """Empty the shelf and bring all deliveries back as not unpacked."""
        self.state.shelf = {}
        self.state.unpacked = []
        return {"unpacked": 0, "on_shelf": 0}

    @write
    def done(self, answer: dict[str, int]) -> dict:
        """Submit the answer, which ends the task.

        Args:
            answer: An object with "wasted", the loaves that were thrown away, and "unmet", the loaves that could not be sold for lack of stock.
        """
        self.state.answer = answer
        self.finish()
        return {"submitted": True}

    def _check_delivery(self, number: int) -> None:
        if not 0 <= number < len(self.state.deliveries):
            raise ToolError(f"there is no delivery {number}: deliveries are 0 to {len(self.state.deliveries) - 1}")
