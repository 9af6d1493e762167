from pydantic import BaseModel

from simia.kit import ToolError, Tools, read, write


class State(BaseModel):
    apprentices: list[list[int]]
    masters: list[list[int]]
    asked: dict[str, int] = {}
    taken: dict[str, int] = {}
    answer: list[int] | None = None


class Gym(Tools[State]):
    State = State

    @read
    def observe(self) -> dict:
        """Show the numbers of apprentices and masters, and how many masters have an apprentice."""
        return {
            "apprentices": len(self.state.apprentices),
            "masters": len(self.state.masters),
            "masters_with_apprentice": len(self.state.taken),
        }

    @read
    def look_at_wish(self, apprentice: int, place: int) -> dict:
        """Show the master at a place of an apprentice's list.

        Args:
            apprentice: The number of the apprentice, counted from 0.
            place: The place of the list, counted from 0 for the best.
        """
        self._check_apprentice(apprentice)
        if not 0 <= place < len(self.state.apprentices[apprentice]):
            raise ToolError(f"the list has no place {place}: places are 0 to {len(self.state.apprentices[apprentice]) - 1}")
        return {"apprentice": apprentice, "place": place, "master": self.state.apprentices[apprentice][place]}

    @read
    def find_rank(self, master: int, apprentice: int) -> dict:
        """Show at which place of a master's list an apprentice is, counted from 0 for the best.

        Args:
            master: The number of the master, counted from 0.
            apprentice: The number of the apprentice, counted from 0.
        """
        self._check_master(master)
        self._check_apprentice(apprentice)
        return {"master": master, "apprentice": apprentice, "place": self.state.masters[master].index(apprentice)}

    @read
    def compare_apprentices(self, master: int, first: int, second: int) -> str:
        """Say which of two apprentices a master ranks better: "first", "second" or, if they are the same one, "equal".

        Args:
            master: The number of the master, counted from 0.
            first: The number of one apprentice, counted from 0.
            second: The number of the other apprentice, counted from 0.
        """
        self._check_master(master)
        self._check_apprentice(first)
        self._check_apprentice(second)
        one, other = self.state.masters[master].index(first), self.state.masters[master].index(second)
        return "equal" if one == other else "first" if one < other else "second"

    @read
    def check_master(self, master: int) -> dict:
        """Show whether a master has an apprentice now, and which one.

        Args:
            master: The number of the master, counted from 0.
        """
        self._check_master(master)
        present = self.state.taken.get(str(master))
        return {"master": master, "free": True} if present is None else {"master": master, "free": False, "apprentice": present}

    @write
    def ask(self, apprentice: int) -> dict:
        """Let a free apprentice ask the best master on his list whom he has not asked yet, and show what comes of it.

        Args:
            apprentice: The number of the apprentice, counted from 0. He must be free.
        """
        self._check_apprentice(apprentice)
        if apprentice in self.state.taken.values():
            raise ToolError(f"apprentice {apprentice} has a place: only a free apprentice can ask")
        place = self.state.asked.get(str(apprentice), 0)
        if place >= len(self.state.apprentices[apprentice]):
            raise ToolError(f"apprentice {apprentice} has asked all masters: each can be asked once")
        master = self.state.apprentices[apprentice][place]
        self.state.asked[str(apprentice)] = place + 1
        present = self.state.taken.get(str(master))
        ranking = self.state.masters[master]
        if present is not None and ranking.index(present) < ranking.index(apprentice):
            return {"master": master, "accepted": False}
        self.state.taken[str(master)] = apprentice
        result: dict = {"master": master, "accepted": True}
        if present is not None:
            result["freed"] = present
        return result

    @write
    def done(self, answer: list[int]) -> dict:
        """Submit the answer, which ends the task.

        Args:
            answer: The numbers of the masters, in the apprentices' order.
        """
        self.state.answer = answer
        self.finish()
        return {"submitted": True}

    def _check_apprentice(self, apprentice: int) -> None:
        if not 0 <= apprentice < len(self.state.apprentices):
            raise ToolError(f"there is no apprentice {apprentice}: apprentices are 0 to {len(self.state.apprentices) - 1}")

    def _check_master(self, master: int) -> None:
        if not 0 <= master < len(self.state.masters):
            raise ToolError(f"there is no master {master}: masters are 0 to {len(self.state.masters) - 1}")
