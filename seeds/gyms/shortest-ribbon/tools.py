from collections import Counter

from pydantic import BaseModel

from simia.kit import ToolError, Tools, read, write


class State(BaseModel):
    ribbon: str
    wish: str
    start: int = 0
    end: int = 0
    answer: int | None = None


class Gym(Tools[State]):
    State = State

    @read
    def observe(self) -> dict:
        """Show the lengths of the ribbon and of the wish, and the window: its first place and the place after its last one."""
        return {
            "ribbon_length": len(self.state.ribbon),
            "wish_length": len(self.state.wish),
            "start": self.state.start,
            "end": self.state.end,
        }

    @read
    def look_at_ribbon(self, place: int) -> dict:
        """Show the letter at a place of the ribbon.

        Args:
            place: The place, counted from 0.
        """
        self._check(place)
        return {"place": place, "letter": self.state.ribbon[place]}

    @read
    def look_at_wish(self, place: int) -> dict:
        """Show the letter at a place of the wish.

        Args:
            place: The place, counted from 0.
        """
        if not 0 <= place < len(self.state.wish):
            raise ToolError(f"the wish has no place {place}: places are 0 to {len(self.state.wish) - 1}")
        return {"place": place, "letter": self.state.wish[place]}

    @read
    def count_in_wish(self, letter: str) -> int:
        """Count how often the wish has a letter.

        Args:
            letter: One lower-case letter from a to z.
        """
        self._check_letter(letter)
        return self.state.wish.count(letter)

    @read
    def find_letter(self, letter: str, place: int) -> dict:
        """Find the first place of the ribbon with a letter, at a given place or after it.

        Args:
            letter: One lower-case letter from a to z.
            place: The place where the search begins, counted from 0.
        """
        self._check_letter(letter)
        self._check(place)
        found = self.state.ribbon.find(letter, place)
        return {"found": True, "place": found} if found >= 0 else {"found": False}

    @write
    def place_window(self, place: int) -> dict:
        """Make the window empty and put it before a place of the ribbon.

        Args:
            place: The place, counted from 0.
        """
        self._check(place)
        self.state.start = self.state.end = place
        return self._window()

    @write
    def extend_window(self) -> dict:
        """Take the next letter of the ribbon into the window, and show how many letters of the wish the window still lacks."""
        if self.state.end >= len(self.state.ribbon):
            raise ToolError("the window cannot be extended: it reaches the end of the ribbon")
        self.state.end += 1
        return {"letter": self.state.ribbon[self.state.end - 1], **self._window()}

    @write
    def shrink_window(self) -> dict:
        """Drop the first letter of the window, and show how many letters of the wish the window then lacks."""
        if self.state.start >= self.state.end:
            raise ToolError("the window cannot be shrunk: it is empty, extend it first")
        self.state.start += 1
        return {"letter": self.state.ribbon[self.state.start - 1], **self._window()}

    @write
    def done(self, answer: int) -> dict:
        """Submit the answer, which ends the task.

        Args:
            answer: The length of the shortest piece that holds the wish, or -1 if there is none.
        """
        self.state.answer = answer
        self.finish()
        return {"submitted": True}

    def _window(self) -> dict:
        inside = Counter(self.state.ribbon[self.state.start : self.state.end])
        lacking = Counter(self.state.wish) - inside
        return {"start": self.state.start, "end": self.state.end, "lacking": sum(lacking.values())}

    def _check(self, place: int) -> None:
        if not 0 <= place < len(self.state.ribbon):
            raise ToolError(f"the ribbon has no place {place}: places are 0 to {len(self.state.ribbon) - 1}")

    def _check_letter(self, letter: str) -> None:
        if len(letter) != 1 or not "a" <= letter <= "z":
            raise ToolError("this is not a letter of a ribbon: allowed is one lower-case letter from a to z")
