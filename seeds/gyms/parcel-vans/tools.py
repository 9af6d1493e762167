from pydantic import BaseModel

from simia.kit import ToolError, Tools, read, write


class State(BaseModel):
    parcels: list[list[int]]
    zones: list[int]
    capacities: list[int]
    fares: list[int]
    held: dict[str, int] = {}
    trips: dict[str, int] = {}
    loaded: list[int] = []
    set_aside: list[int] = []
    answer: dict[str, int] | None = None


class Gym(Tools[State]):
    State = State

    @read
    def observe(self) -> dict:
        """Show how many parcels, towns and zones there are, and how many parcels were loaded or set aside so far."""
        return {
            "parcels": len(self.state.parcels),
            "towns": len(self.state.zones),
            "zones": len(self.state.capacities),
            "loaded": len(self.state.loaded),
            "set_aside": len(self.state.set_aside),
        }

    @read
    def look_at_parcel(self, parcel: int) -> dict:
        """Show the town and the weight of a parcel.

        Args:
            parcel: The number of the parcel in the order in which they come, counted from 0.
        """
        self._check_parcel(parcel)
        town, weight = self.state.parcels[parcel]
        return {"parcel": parcel, "town": town, "weight": weight}

    @read
    def find_zone(self, town: int) -> dict:
        """Show the zone that a town belongs to.

        Args:
            town: The number of the town, counted from 0.
        """
        if not 0 <= town < len(self.state.zones):
            raise ToolError(f"there is no town {town}: towns are 0 to {len(self.state.zones) - 1}")
        return {"town": town, "zone": self.state.zones[town]}

    @read
    def look_at_van(self, zone: int) -> dict:
        """Show what the van of a zone can carry and what a trip of it costs.

        Args:
            zone: The number of the zone, counted from 0.
        """
        self._check_zone(zone)
        return {"zone": zone, "capacity": self.state.capacities[zone], "fare": self.state.fares[zone]}

    @read
    def inspect_load(self, zone: int) -> dict:
        """Show the weight that the van of a zone holds now, and how many trips it has made so far.

        Args:
            zone: The number of the zone, counted from 0.
        """
        self._check_zone(zone)
        return {"zone": zone, "held": self.state.held.get(str(zone), 0), "trips": self.state.trips.get(str(zone), 0)}

    @read
    def check_space(self, zone: int, weight: int) -> bool:
        """Say whether the van of a zone can take a weight on top of what it holds now.

        Args:
            zone: The number of the zone, counted from 0.
            weight: The weight to be added, at least 1.
        """
        self._check_zone(zone)
        if weight < 1:
            raise ToolError(f"the weight {weight} is too small: a weight is at least 1")
        return self.state.held.get(str(zone), 0) + weight <= self.state.capacities[zone]

    @write
    def load_parcel(self, parcel: int, zone: int) -> dict:
        """Put a parcel into the van of a zone, on top of what the van holds now. Whether it is the right van is not checked.

        Args:
            parcel: The number of the parcel, counted from 0. It must not have been loaded or set aside before.
            zone: The number of the zone of the van, counted from 0.
        """
        self._check_waiting(parcel)
        self._check_zone(zone)
        held = self.state.held.get(str(zone), 0) + self.state.parcels[parcel][1]
        if held > self.state.capacities[zone]:
            raise ToolError(f"van {zone} cannot take parcel {parcel} now: the weight in a van must not exceed its capacity")
        self.state.held[str(zone)] = held
        self.state.loaded.append(parcel)
        return {"zone": zone, "held": held}

    @write
    def drive_van(self, zone: int) -> dict:
        """Send the van of a zone on a trip, from which it comes back empty.

        Args:
            zone: The number of the zone, counted from 0. Its van must hold something.
        """
        self._check_zone(zone)
        if not self.state.held.get(str(zone), 0):
            raise ToolError(f"van {zone} is empty: only a van that holds a parcel can drive")
        self.state.held[str(zone)] = 0
        self.state.trips[str(zone)] = self.state.trips.get(str(zone), 0) + 1
        return {"zone": zone, "trips": self.state.trips[str(zone)]}

    @write
    def set_parcel_aside(self, parcel: int) -> dict:
        """Note that a parcel stays in the depot. Whether this is right is not checked.

        Args:
            parcel: The number of the parcel, counted from 0. It must not have been loaded or set aside before.
        """
        self._check_waiting(parcel)
        self.state.set_aside.append(parcel)
        return {"set_aside": len(self.state.set_aside)}

    @write
    def start_over(self) -> dict:
        """Empty all vans, forget all trips and bring all parcels back, as at the beginning."""
        self.state.held = {}
        self.state.trips = {}
        self.state.loaded = []
        self.state.set_aside = []
        return {"loaded": 0, "set_aside": 0}

    @write
    def done(self, answer: dict[str, int]) -> dict:
        """Submit the answer, which ends the task.

        Args:
            answer: An object with "fares", the fares of all trips together, and "left", the number of parcels that stay in the depot.
        """
        self.state.answer = answer
        self.finish()
        return {"submitted": True}

    def _check_parcel(self, parcel: int) -> None:
        if not 0 <= parcel < len(self.state.parcels):
            raise ToolError(f"there is no parcel {parcel}: parcels are 0 to {len(self.state.parcels) - 1}")

    def _check_zone(self, zone: int) -> None:
        if not 0 <= zone < len(self.state.capacities):
            raise ToolError(f"there is no zone {zone}: zones are 0 to {len(self.state.capacities) - 1}")

    def _check_waiting(self, parcel: int) -> None:
        self._check_parcel(parcel)
        if parcel in self.state.loaded or parcel in self.state.set_aside:
            raise ToolError(f"parcel {parcel} was loaded or set aside before: only a parcel that still waits is allowed")
