"""Lockers of a street: who has which parcel in which locker, how long it stays, and whether it goes back."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from simia.kit import ToolError, Tools, read, write

MOST_DAYS = 7


class Parcel(BaseModel):
    owner: str
    size: str
    locker: str
    days: int = 3
    returning: bool = False


class Locker(BaseModel):
    size: str
    works: bool = True


class State(BaseModel):
    parcels: dict[str, Parcel]
    lockers: dict[str, Locker]


class Lockers(Tools[State]):
    """The tools of the agent."""

    State = State

    @read
    def find_parcel(self, name: str) -> dict[str, Any]:
        for number, parcel in sorted(self.state.parcels.items()):
            if parcel.owner.casefold() == name.strip().casefold():
                return {"parcel": number, "size": parcel.size, "locker": parcel.locker}
        raise ToolError(f"no parcel for {name}: give the whole name")

    @read
    def free_locker(self, size: str) -> dict[str, Any]:
        taken = {parcel.locker for parcel in self.state.parcels.values()}
        for number, locker in sorted(self.state.lockers.items()):
            if locker.size == size and number not in taken:
                return {"locker": number}
        raise ToolError(f"no {size} locker is free")

    @write
    def move_parcel(self, parcel: str, locker: str) -> dict[str, Any]:
        row = self._parcel(parcel)
        place = self.state.lockers.get(locker)
        if place is None:
            raise ToolError(f"there is no locker {locker}")
        if place.size != row.size:
            raise ToolError(f"locker {locker} is {place.size}, the parcel is {row.size}")
        if any(other.locker == locker for other in self.state.parcels.values()):
            raise ToolError(f"locker {locker} is taken")
        row.locker = locker
        return {"parcel": parcel, "locker": locker}

    @write
    def hold_parcel(self, parcel: str, days: int) -> dict[str, Any]:
        row = self._parcel(parcel)
        if not 1 <= days <= MOST_DAYS:
            raise ToolError(f"a parcel is held for 1 to {MOST_DAYS} days")
        row.days = days
        return {"parcel": parcel, "days": days}

    @write
    def return_parcel(self, parcel: str) -> dict[str, Any]:
        self._parcel(parcel).returning = True
        return {"parcel": parcel, "status": "returning"}

    def _parcel(self, number: str) -> Parcel:
        if number not in self.state.parcels:
            raise ToolError(f"there is no parcel {number}")
        return self.state.parcels[number]
