"""Hotel Front Desk.

The front desk of a small hotel. Receptionists book stays, assign rooms, check guests in and out, keep the account of
each stay, and hand rooms over to housekeeping and maintenance. Every action that depends on a day is given its date;
amounts are whole cents.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from simia.kit import ToolError, Tools, read, write


class TableRow(BaseModel):
    """Base of all rows: unknown columns and values of another type are refused."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)


class RoomType(TableRow):
    """A row of `room_types`; its key is the row's id."""

    name: str
    rate_cents: int
    max_guests: int


class Room(TableRow):
    """A row of `rooms`; its key is the row's id."""

    number: str
    room_type_id: str
    status: Literal["clean", "dirty", "occupied", "out_of_order"]


class Guest(TableRow):
    """A row of `guests`; its key is the row's id."""

    name: str
    email: str
    phone: str | None = None
    do_not_host: bool = False


class Staff(TableRow):
    """A row of `staff`; its key is the row's id."""

    name: str
    role: Literal["receptionist", "housekeeper", "technician"]
    active: bool = True


class Reservation(TableRow):
    """A row of `reservations`; its key is the row's id."""

    guest_id: str
    room_type_id: str
    status: Literal["booked", "checked_in", "checked_out", "cancelled", "no_show"]
    guest_count: int
    nightly_cents: int
    booked_on: str
    check_in_on: str
    check_out_on: str
    room_id: str | None = None
    arrived_on: str | None = None
    closed_on: str | None = None
    note: str | None = None


class Charge(TableRow):
    """A row of `charges`; its key is the row's id."""

    reservation_id: str
    kind: Literal["room", "minibar", "restaurant", "laundry", "cancellation_fee", "no_show_fee"]
    amount_cents: int
    charged_on: str


class Payment(TableRow):
    """A row of `payments`; its key is the row's id."""

    reservation_id: str
    staff_id: str
    method: Literal["cash", "card", "voucher"]
    amount_cents: int
    paid_on: str
    taken_at: str | None = None


class Task(TableRow):
    """A row of `tasks`; its key is the row's id."""

    room_id: str
    kind: Literal["cleaning", "maintenance"]
    status: Literal["open", "done"]
    opened_on: str
    staff_id: str | None = None
    done_on: str | None = None
    note: str | None = None


class State(BaseModel):
    """All tables: row id → row."""

    room_types: dict[str, RoomType] = {}
    rooms: dict[str, Room] = {}
    guests: dict[str, Guest] = {}
    staff: dict[str, Staff] = {}
    reservations: dict[str, Reservation] = {}
    charges: dict[str, Charge] = {}
    payments: dict[str, Payment] = {}
    tasks: dict[str, Task] = {}


class HotelFrontDesk(Tools[State]):
    """The tools of the agent."""

    State = State

    @read
    def find_guests(self, text: str | None = None) -> list[dict[str, Any]]:
        """Find guests by a part of their name, email or phone.

        Args:
            text: Text contained in the name, email or phone, upper and lower case alike; without it, all guests.

        Returns:
            A list of guest_id, name, email, phone and do_not_host in the order of the ids.
        """
        wanted = None if text is None else text.casefold()
        found = []
        for guest_id in sorted(self.state.guests):
            guest = self.state.guests[guest_id]
            if wanted is not None:
                values = [guest.name, guest.email]
                if guest.phone is not None:
                    values.append(guest.phone)
                if not any(wanted in value.casefold() for value in values):
                    continue
            found.append(
                {
                    "guest_id": guest_id,
                    "name": guest.name,
                    "email": guest.email,
                    "phone": guest.phone,
                    "do_not_host": guest.do_not_host,
                }
            )
        return found

    @read
    def list_room_types(self) -> list[dict[str, Any]]:
        """List the room types with their rates.

        Returns:
            A list of room_type_id, name, rate_cents and max_guests in the order of the ids.
        """
        found = []
        for room_type_id in sorted(self.state.room_types):
            room_type = self.state.room_types[room_type_id]
            found.append(
                {
                    "room_type_id": room_type_id,
                    "name": room_type.name,
                    "rate_cents": room_type.rate_cents,
                    "max_guests": room_type.max_guests,
                }
            )
        return found

    @read
    def list_rooms(
        self,
        room_type_id: str | None = None,
        status: Literal["clean", "dirty", "occupied", "out_of_order"] | None = None,
        number: str | None = None,
    ) -> list[dict[str, Any]]:
        """List the rooms, optionally of one type, status or number.

        Args:
            room_type_id: Only rooms of this room type.
            status: Only rooms with this status.
            number: Only the room with this number.

        Returns:
            A list of room_id, number, room_type_id and status in the order of the ids.
        """
        if room_type_id is not None and room_type_id not in self.state.room_types:
            raise ToolError(f"there is no room type {room_type_id}; list_room_types shows the room types")
        found = []
        for room_id in sorted(self.state.rooms):
            room = self.state.rooms[room_id]
            if room_type_id is not None and room.room_type_id != room_type_id:
                continue
            if status is not None and room.status != status:
                continue
            if number is not None and room.number != number:
                continue
            found.append(
                {
                    "room_id": room_id,
                    "number": room.number,
                    "room_type_id": room.room_type_id,
                    "status": room.status,
                }
            )
        return found

    @read
    def check_availability(
        self, check_in_on: str, check_out_on: str, room_type_id: str | None = None
    ) -> list[dict[str, Any]]:
        """Show how many rooms of each type can still be booked for a stay.

        Args:
            check_in_on: First night of the stay, YYYY-MM-DD.
            check_out_on: Day of departure, YYYY-MM-DD.
            room_type_id: Only this room type.

        Returns:
            A list of room_type_id, name, rate_cents, max_guests and free_rooms in the order of the ids.
        """
        days = {}
        for label, text in (("check_in_on", check_in_on), ("check_out_on", check_out_on)):
            if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
                raise ToolError(f"{label} {text!r} is not a valid date; give it as YYYY-MM-DD")
            try:
                days[label] = date.fromisoformat(text)
            except ValueError:
                raise ToolError(f"{label} {text!r} is not a valid date; give a day that exists")
        first = days["check_in_on"]
        end = days["check_out_on"]
        if end <= first:
            raise ToolError("check_out_on is not later than check_in_on; give a later check_out_on")
        if room_type_id is not None and room_type_id not in self.state.room_types:
            raise ToolError(f"there is no room type {room_type_id}; list_room_types shows the room types")

        found = []
        for type_id in sorted(self.state.room_types):
            if room_type_id is not None and type_id != room_type_id:
                continue
            room_type = self.state.room_types[type_id]
            usable = sum(
                1
                for room in self.state.rooms.values()
                if room.room_type_id == type_id and room.status != "out_of_order"
            )
            stays = []
            for reservation in self.state.reservations.values():
                if reservation.room_type_id != type_id or reservation.status not in ("booked", "checked_in"):
                    continue
                begin = date.fromisoformat(reservation.check_in_on)
                stop = date.fromisoformat(reservation.check_out_on)
                if begin < end and first < stop:
                    stays.append((max(begin, first), stop))
            # The largest number is reached on a night on which one of the stays begins.
            most = 0
            for night, _ in stays:
                most = max(most, sum(1 for begin, stop in stays if begin <= night < stop))
            found.append(
                {
                    "room_type_id": type_id,
                    "name": room_type.name,
                    "rate_cents": room_type.rate_cents,
                    "max_guests": room_type.max_guests,
                    "free_rooms": usable - most,
                }
            )
        return found

    @read
    def list_assignable_rooms(self, reservation_id: str) -> list[dict[str, Any]]:
        """List the rooms that can be assigned to a booked reservation.

        Args:
            reservation_id: The reservation.

        Returns:
            A list of room_id, number and status in the order of the ids.
        """
        reservation = self.state.reservations.get(reservation_id)
        if reservation is None:
            raise ToolError(f"there is no reservation {reservation_id}; list_reservations shows the reservations")
        if reservation.status != "booked":
            raise ToolError(
                f"{reservation_id} is {reservation.status}; rooms are assigned only to booked reservations"
            )
        first = date.fromisoformat(reservation.check_in_on)
        end = date.fromisoformat(reservation.check_out_on)
        taken = set()
        for other_id, other in self.state.reservations.items():
            if other_id == reservation_id or other.room_id is None:
                continue
            if other.status not in ("booked", "checked_in"):
                continue
            if date.fromisoformat(other.check_in_on) < end and first < date.fromisoformat(other.check_out_on):
                taken.add(other.room_id)
        found = []
        for room_id in sorted(self.state.rooms):
            room = self.state.rooms[room_id]
            if room.room_type_id != reservation.room_type_id:
                continue
            if room.status == "out_of_order" or room_id in taken:
                continue
            found.append({"room_id": room_id, "number": room.number, "status": room.status})
        return found

    @read
    def list_reservations(
        self,
        guest_id: str | None = None,
        room_type_id: str | None = None,
        room_id: str | None = None,
        status: Literal["booked", "checked_in", "checked_out", "cancelled", "no_show"] | None = None,
        check_in_on: str | None = None,
        check_out_on: str | None = None,
    ) -> list[dict[str, Any]]:
        """List reservations that meet all the given filters.

        Args:
            guest_id: Only reservations of this guest.
            room_type_id: Only reservations of this room type.
            room_id: Only reservations with this room.
            status: Only reservations with this status.
            check_in_on: Only reservations that begin on this day, YYYY-MM-DD.
            check_out_on: Only reservations that end on this day, YYYY-MM-DD.

        Returns:
            A list of reservation_id, guest_id, room_type_id, room_id, status, guest_count, nightly_cents, booked_on,
            check_in_on, check_out_on, arrived_on, closed_on and note in the order of the ids.
        """
        if guest_id is not None and guest_id not in self.state.guests:
            raise ToolError(f"there is no guest {guest_id}; find_guests shows the guests")
        if room_type_id is not None and room_type_id not in self.state.room_types:
            raise ToolError(f"there is no room type {room_type_id}; list_room_types shows the room types")
        if room_id is not None and room_id not in self.state.rooms:
            raise ToolError(f"there is no room {room_id}; list_rooms shows the rooms")
        for label, text in (("check_in_on", check_in_on), ("check_out_on", check_out_on)):
            if text is None:
                continue
            if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
                raise ToolError(f"{label} {text!r} is not a valid date; give it as YYYY-MM-DD")
            try:
                date.fromisoformat(text)
            except ValueError:
                raise ToolError(f"{label} {text!r} is not a valid date; give a day that exists")

        found = []
        for reservation_id in sorted(self.state.reservations):
            reservation = self.state.reservations[reservation_id]
            if guest_id is not None and reservation.guest_id != guest_id:
                continue
            if room_type_id is not None and reservation.room_type_id != room_type_id:
                continue
            if room_id is not None and reservation.room_id != room_id:
                continue
            if status is not None and reservation.status != status:
                continue
            if check_in_on is not None and reservation.check_in_on != check_in_on:
                continue
            if check_out_on is not None and reservation.check_out_on != check_out_on:
                continue
            found.append(
                {
                    "reservation_id": reservation_id,
                    "guest_id": reservation.guest_id,
                    "room_type_id": reservation.room_type_id,
                    "room_id": reservation.room_id,
                    "status": reservation.status,
                    "guest_count": reservation.guest_count,
                    "nightly_cents": reservation.nightly_cents,
                    "booked_on": reservation.booked_on,
                    "check_in_on": reservation.check_in_on,
                    "check_out_on": reservation.check_out_on,
                    "arrived_on": reservation.arrived_on,
                    "closed_on": reservation.closed_on,
                    "note": reservation.note,
                }
            )
        return found

    @read
    def get_reservation(self, reservation_id: str) -> dict[str, Any]:
        """Show one reservation.

        Args:
            reservation_id: The reservation.

        Returns:
            reservation_id, guest_id, room_type_id, room_id, status, guest_count, nightly_cents, booked_on,
            check_in_on, check_out_on, arrived_on, closed_on and note.
        """
        reservation = self.state.reservations.get(reservation_id)
        if reservation is None:
            raise ToolError(f"there is no reservation {reservation_id}; list_reservations shows the reservations")
        return {
            "reservation_id": reservation_id,
            "guest_id": reservation.guest_id,
            "room_type_id": reservation.room_type_id,
            "room_id": reservation.room_id,
            "status": reservation.status,
            "guest_count": reservation.guest_count,
            "nightly_cents": reservation.nightly_cents,
            "booked_on": reservation.booked_on,
            "check_in_on": reservation.check_in_on,
            "check_out_on": reservation.check_out_on,
            "arrived_on": reservation.arrived_on,
            "closed_on": reservation.closed_on,
            "note": reservation.note,
        }

    @read
    def get_account(self, reservation_id: str) -> dict[str, Any]:
        """Show the charges, payments and balance of a reservation.

        Args:
            reservation_id: The reservation.

        Returns:
            reservation_id, charges, payments, charges_cents, payments_cents and balance_cents.
        """
        if reservation_id not in self.state.reservations:
            raise ToolError(f"there is no reservation {reservation_id}; list_reservations shows the reservations")
        charges = []
        charges_cents = 0
        for charge_id in sorted(self.state.charges):
            charge = self.state.charges[charge_id]
            if charge.reservation_id != reservation_id:
                continue
            charges_cents += charge.amount_cents
            charges.append(
                {
                    "charge_id": charge_id,
                    "kind": charge.kind,
                    "amount_cents": charge.amount_cents,
                    "charged_on": charge.charged_on,
                }
            )
        payments = []
        payments_cents = 0
        for payment_id in sorted(self.state.payments):
            payment = self.state.payments[payment_id]
            if payment.reservation_id != reservation_id:
                continue
            payments_cents += payment.amount_cents
            payments.append(
                {
                    "payment_id": payment_id,
                    "staff_id": payment.staff_id,
                    "method": payment.method,
                    "amount_cents": payment.amount_cents,
                    "paid_on": payment.paid_on,
                    "taken_at": payment.taken_at,
                }
            )
        return {
            "reservation_id": reservation_id,
            "charges": charges,
            "payments": payments,
            "charges_cents": charges_cents,
            "payments_cents": payments_cents,
            "balance_cents": charges_cents - payments_cents,
        }

    @read
    def list_staff(
        self,
        role: Literal["receptionist", "housekeeper", "technician"] | None = None,
        active: bool | None = None,
    ) -> list[dict[str, Any]]:
        """List the staff with the number of their open tasks.

        Args:
            role: Only staff with this role.
            active: Only active (true) or only inactive (false) staff.

        Returns:
            A list of staff_id, name, role, active and open_tasks in the order of the ids.
        """
        found = []
        for staff_id in sorted(self.state.staff):
            person = self.state.staff[staff_id]
            if role is not None and person.role != role:
                continue
            if active is not None and person.active != active:
                continue
            open_tasks = sum(
                1
                for task in self.state.tasks.values()
                if task.staff_id == staff_id and task.status == "open"
            )
            found.append(
                {
                    "staff_id": staff_id,
                    "name": person.name,
                    "role": person.role,
                    "active": person.active,
                    "open_tasks": open_tasks,
                }
            )
        return found

    @read
    def list_tasks(
        self,
        room_id: str | None = None,
        kind: Literal["cleaning", "maintenance"] | None = None,
        status: Literal["open", "done"] | None = None,
        staff_id: str | None = None,
        assigned: bool | None = None,
    ) -> list[dict[str, Any]]:
        """List cleaning and maintenance tasks that meet all the given filters.

        Args:
            room_id: Only tasks of this room.
            kind: Only tasks of this kind.
            status: Only tasks with this status.
            staff_id: Only tasks assigned to this staff member.
            assigned: Only assigned (true) or only unassigned (false) tasks.

        Returns:
            A list of task_id, room_id, kind, status, staff_id, opened_on, done_on and note in the order of the ids.
        """
        if room_id is not None and room_id not in self.state.rooms:
            raise ToolError(f"there is no room {room_id}; list_rooms shows the rooms")
        if staff_id is not None and staff_id not in self.state.staff:
            raise ToolError(f"there is no staff member {staff_id}; list_staff shows the staff")
        found = []
        for task_id in sorted(self.state.tasks):
            task = self.state.tasks[task_id]
            if room_id is not None and task.room_id != room_id:
                continue
            if kind is not None and task.kind != kind:
                continue
            if status is not None and task.status != status:
                continue
            if staff_id is not None and task.staff_id != staff_id:
                continue
            if assigned is not None and (task.staff_id is not None) != assigned:
                continue
            found.append(
                {
                    "task_id": task_id,
                    "room_id": task.room_id,
                    "kind": task.kind,
                    "status": task.status,
                    "staff_id": task.staff_id,
                    "opened_on": task.opened_on,
                    "done_on": task.done_on,
                    "note": task.note,
                }
            )
        return found

    @write
    def register_guest(self, name: str, email: str, phone: str | None = None) -> dict[str, Any]:
        """Register a new guest.

        Args:
            name: Name of the guest.
            email: Email of the guest.
            phone: Phone of the guest.

        Returns:
            guest_id, name, email, phone and do_not_host.
        """
        if name == "":
            raise ToolError("the name is empty; give the name of the guest")
        if len(email) < 3:
            raise ToolError("the email has fewer than 3 characters; give the full email")
        for other_id in sorted(self.state.guests):
            if self.state.guests[other_id].email == email:
                raise ToolError(f"guest {other_id} has the email {email} already; use that guest or another email")
        guest_id = self.new_id("GU-", 4, taken=self.state.guests)
        guest = Guest(name=name, email=email, phone=phone, do_not_host=False)
        self.state.guests[guest_id] = guest
        return {
            "guest_id": guest_id,
            "name": guest.name,
            "email": guest.email,
            "phone": guest.phone,
            "do_not_host": guest.do_not_host,
        }

    @write
    def update_guest_contact(
        self,
        guest_id: str,
        name: str | None = None,
        email: str | None = None,
        phone: str | None = None,
    ) -> dict[str, Any]:
        """Change the name, email or phone of a guest.

        Args:
            guest_id: The guest.
            name: New name.
            email: New email.
            phone: New phone; an empty text removes the phone.

        Returns:
            guest_id, name, email and phone.
        """
        guest = self.state.guests.get(guest_id)
        if guest is None:
            raise ToolError(f"there is no guest {guest_id}; find_guests shows the guests")
        if name is None and email is None and phone is None:
            raise ToolError("none of name, email and phone is given; give at least one of them")
        if name is not None and name == "":
            raise ToolError("the name is empty; give a name or leave it out")
        if email is not None:
            if len(email) < 3:
                raise ToolError("the email has fewer than 3 characters; give the full email or leave it out")
            for other_id in sorted(self.state.guests):
                if other_id != guest_id and self.state.guests[other_id].email == email:
                    raise ToolError(f"guest {other_id} has the email {email} already; give another email")
        if name is not None:
            guest.name = name
        if email is not None:
            guest.email = email
        if phone is not None:
            guest.phone = None if phone == "" else phone
        return {"guest_id": guest_id, "name": guest.name, "email": guest.email, "phone": guest.phone}

    @write
    def set_guest_do_not_host(self, guest_id: str, do_not_host: bool) -> dict[str, Any]:
        """Set or lift the do-not-host mark of a guest.

        Args:
            guest_id: The guest.
            do_not_host: True to set the mark, false to lift it.

        Returns:
            guest_id and do_not_host.
        """
        guest = self.state.guests.get(guest_id)
        if guest is None:
            raise ToolError(f"there is no guest {guest_id}; find_guests shows the guests")
        if guest.do_not_host == do_not_host:
            value = "true" if do_not_host else "false"
            raise ToolError(f"do_not_host of {guest_id} is {value} already; nothing needs to change")
        guest.do_not_host = do_not_host
        return {"guest_id": guest_id, "do_not_host": guest.do_not_host}

    @write
    def add_room_type(self, name: str, rate_cents: int, max_guests: int) -> dict[str, Any]:
        """Add a room type.

        Args:
            name: Name of the room type.
            rate_cents: Rate for a night in cents, 1000 to 500000.
            max_guests: Most guests in a room, 1 to 6.

        Returns:
            room_type_id, name, rate_cents and max_guests.
        """
        if name == "":
            raise ToolError("the name is empty; give the name of the room type")
        for other_id in sorted(self.state.room_types):
            if self.state.room_types[other_id].name == name:
                raise ToolError(f"room type {other_id} has the name {name} already; give another name")
        if rate_cents < 1000 or rate_cents > 500000:
            raise ToolError(f"rate_cents is {rate_cents}; give a rate from 1000 to 500000")
        if max_guests < 1 or max_guests > 6:
            raise ToolError(f"max_guests is {max_guests}; give a number from 1 to 6")
        room_type_id = self.new_id("RT-", 2, taken=self.state.room_types)
        room_type = RoomType(name=name, rate_cents=rate_cents, max_guests=max_guests)
        self.state.room_types[room_type_id] = room_type
        return {
            "room_type_id": room_type_id,
            "name": room_type.name,
            "rate_cents": room_type.rate_cents,
            "max_guests": room_type.max_guests,
        }

    @write
    def set_room_type_rate(self, room_type_id: str, rate_cents: int) -> dict[str, Any]:
        """Change the nightly rate of a room type for later bookings.

        Args:
            room_type_id: The room type.
            rate_cents: New rate for a night in cents, 1000 to 500000.

        Returns:
            room_type_id and rate_cents.
        """
        room_type = self.state.room_types.get(room_type_id)
        if room_type is None:
            raise ToolError(f"there is no room type {room_type_id}; list_room_types shows the room types")
        if rate_cents < 1000 or rate_cents > 500000:
            raise ToolError(f"rate_cents is {rate_cents}; give a rate from 1000 to 500000")
        room_type.rate_cents = rate_cents
        return {"room_type_id": room_type_id, "rate_cents": room_type.rate_cents}

    @write
    def add_room(self, number: str, room_type_id: str) -> dict[str, Any]:
        """Add a room.

        Args:
            number: Room number: three digits, the first not 0.
            room_type_id: The room type.

        Returns:
            room_id, number, room_type_id and status.
        """
        if room_type_id not in self.state.room_types:
            raise ToolError(f"there is no room type {room_type_id}; list_room_types shows the room types")
        if not re.fullmatch(r"[1-9][0-9]{2}", number):
            raise ToolError(f"the number {number!r} is not three digits with the first from 1 to 9; give one like 204")
        for other_id in sorted(self.state.rooms):
            if self.state.rooms[other_id].number == number:
                raise ToolError(f"room {other_id} has the number {number} already; give another number")
        room_id = self.new_id("RM-", 3, taken=self.state.rooms)
        room = Room(number=number, room_type_id=room_type_id, status="clean")
        self.state.rooms[room_id] = room
        return {
            "room_id": room_id,
            "number": room.number,
            "room_type_id": room.room_type_id,
            "status": room.status,
        }

    @write
    def book_reservation(
        self,
        guest_id: str,
        room_type_id: str,
        guest_count: int,
        booked_on: str,
        check_in_on: str,
        check_out_on: str,
        note: str | None = None,
    ) -> dict[str, Any]:
        """Book a stay in a room type for a guest.

        Args:
            guest_id: The guest.
            room_type_id: The room type.
            guest_count: Number of guests who stay.
            booked_on: Date of the booking, YYYY-MM-DD.
            check_in_on: First night of the stay, YYYY-MM-DD.
            check_out_on: Day of departure, YYYY-MM-DD.
            note: Note on the reservation.

        Returns:
            reservation_id, guest_id, room_type_id, status, guest_count, nightly_cents, booked_on, check_in_on,
            check_out_on and note.
        """
        guest = self.state.guests.get(guest_id)
        if guest is None:
            raise ToolError(f"there is no guest {guest_id}; find_guests shows the guests")
        room_type = self.state.room_types.get(room_type_id)
        if room_type is None:
            raise ToolError(f"there is no room type {room_type_id}; list_room_types shows the room types")
        days = {}
        for label, text in (
            ("booked_on", booked_on),
            ("check_in_on", check_in_on),
            ("check_out_on", check_out_on),
        ):
            if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
                raise ToolError(f"{label} {text!r} is not a valid date; give it as YYYY-MM-DD")
            try:
                days[label] = date.fromisoformat(text)
            except ValueError:
                raise ToolError(f"{label} {text!r} is not a valid date; give a day that exists")
        booked = days["booked_on"]
        first = days["check_in_on"]
        end = days["check_out_on"]
        if booked > first:
            raise ToolError("booked_on is later than check_in_on; give a later check_in_on")
        if (first - booked).days > 365:
            raise ToolError("booked_on is more than 365 days before check_in_on; give an earlier check_in_on")
        nights = (end - first).days
        if nights < 1:
            raise ToolError("check_out_on is less than 1 day after check_in_on; give a later check_out_on")
        if nights > 28:
            raise ToolError("check_out_on is more than 28 days after check_in_on; give an earlier check_out_on")
        if guest_count < 1:
            raise ToolError("guest_count is less than 1; give at least 1 guest")
        if guest_count > room_type.max_guests:
            raise ToolError(
                f"guest_count is {guest_count}, but {room_type_id} is for at most {room_type.max_guests} guests; "
                "choose a larger room type or fewer guests"
            )
        if guest.do_not_host:
            raise ToolError(f"{guest_id} has the do-not-host mark and cannot book")

        active = 0
        completed = 0
        stays = []
        for reservation in self.state.reservations.values():
            current = reservation.status in ("booked", "checked_in")
            if reservation.guest_id == guest_id:
                if current:
                    active += 1
                elif reservation.status == "checked_out":
                    completed += 1
            if current and reservation.room_type_id == room_type_id:
                stays.append(
                    (date.fromisoformat(reservation.check_in_on), date.fromisoformat(reservation.check_out_on))
                )
        if active >= 3:
            raise ToolError(f"{guest_id} has {active} reservations that are booked or checked_in already; at most 3 are allowed")
        usable = sum(
            1
            for room in self.state.rooms.values()
            if room.room_type_id == room_type_id and room.status != "out_of_order"
        )
        for offset in range(nights):
            night = first + timedelta(days=offset)
            used = sum(1 for begin, stop in stays if begin <= night < stop)
            if used + 1 > usable:
                raise ToolError(
                    f"no room of {room_type_id} is free on the night of {night.isoformat()}; "
                    "choose other dates or another room type"
                )

        nightly_cents = room_type.rate_cents
        if completed >= 5:
            nightly_cents = room_type.rate_cents * 90 // 100
        reservation_id = self.new_id("RS-", 4, taken=self.state.reservations)
        self.state.reservations[reservation_id] = Reservation(
            guest_id=guest_id,
            room_type_id=room_type_id,
            status="booked",
            guest_count=guest_count,
            nightly_cents=nightly_cents,
            booked_on=booked_on,
            check_in_on=check_in_on,
            check_out_on=check_out_on,
            room_id=None,
            arrived_on=None,
            closed_on=None,
            note=note,
        )
        return {
            "reservation_id": reservation_id,
            "guest_id": guest_id,
            "room_type_id": room_type_id,
            "status": "booked",
            "guest_count": guest_count,
            "nightly_cents": nightly_cents,
            "booked_on": booked_on,
            "check_in_on": check_in_on,
            "check_out_on": check_out_on,
            "note": note,
        }

    @write
    def set_reservation_note(self, reservation_id: str, note: str) -> dict[str, Any]:
        """Write, replace or remove the note on a reservation.

        Args:
            reservation_id: The reservation.
            note: The new note; an empty text removes the note.

        Returns:
            reservation_id and note.
        """
        reservation = self.state.reservations.get(reservation_id)
        if reservation is None:
            raise ToolError(f"there is no reservation {reservation_id}; check the id")
        reservation.note = note if note != "" else None
        return {"reservation_id": reservation_id, "note": reservation.note}

    @write
    def assign_room(self, reservation_id: str, room_id: str) -> dict[str, Any]:
        """Assign a room to a booked reservation, or replace its room.

        Args:
            reservation_id: The reservation.
            room_id: The room.

        Returns:
            reservation_id and room_id.
        """
        reservation = self.state.reservations.get(reservation_id)
        if reservation is None:
            raise ToolError(f"there is no reservation {reservation_id}; check the id")
        room = self.state.rooms.get(room_id)
        if room is None:
            raise ToolError(f"there is no room {room_id}; check the id")
        if reservation.status != "booked":
            raise ToolError(f"{reservation_id} is {reservation.status}; a room is assigned only to a booked reservation")
        if reservation.room_id == room_id:
            raise ToolError(f"{reservation_id} has the room {room_id} already; nothing needs to be done")
        if room.room_type_id != reservation.room_type_id:
            raise ToolError(
                f"{room_id} is of the room type {room.room_type_id}, but {reservation_id} is for "
                f"{reservation.room_type_id}; choose a room of that type"
            )
        if room.status == "out_of_order":
            raise ToolError(f"{room_id} is out_of_order; choose another room")
        for other_id, other in sorted(self.state.reservations.items()):
            if other_id == reservation_id or other.room_id != room_id:
                continue
            if other.status not in ("booked", "checked_in"):
                continue
            if other.check_in_on < reservation.check_out_on and reservation.check_in_on < other.check_out_on:
                raise ToolError(
                    f"{room_id} is taken by {other_id} from {other.check_in_on} to {other.check_out_on}; "
                    "choose another room"
                )
        reservation.room_id = room_id
        return {"reservation_id": reservation_id, "room_id": room_id}

    @write
    def check_in_reservation(self, reservation_id: str, date: str) -> dict[str, Any]:
        """Check in the guest of a booked reservation.

        Args:
            reservation_id: The reservation.
            date: Date of the check-in, YYYY-MM-DD.

        Returns:
            reservation_id, room_id, status, arrived_on, charge_ids and balance_cents.
        """
        reservation = self.state.reservations.get(reservation_id)
        if reservation is None:
            raise ToolError(f"there is no reservation {reservation_id}; check the id")
        if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", date):
            raise ToolError(f"date {date} is not a valid date; give it as YYYY-MM-DD")
        try:
            datetime.fromisoformat(date)
        except ValueError:
            raise ToolError(f"date {date} is not a valid date; give it as YYYY-MM-DD")
        if reservation.status != "booked":
            raise ToolError(f"{reservation_id} is {reservation.status}; only a booked reservation is checked in")
        room = None
        if reservation.room_id is not None:
            room = self.state.rooms.get(reservation.room_id)
        if room is None:
            raise ToolError(f"{reservation_id} has no room; assign a room first")
        if room.status != "clean":
            raise ToolError(
                f"the room {reservation.room_id} is {room.status}, not clean; have it cleaned or assign another room"
            )
        if date < reservation.check_in_on:
            raise ToolError(f"date {date} is before check_in_on {reservation.check_in_on}; check in on that day or later")
        if date >= reservation.check_out_on:
            raise ToolError(
                f"date {date} is not before check_out_on {reservation.check_out_on}; check in before that day"
            )
        guest = self.state.guests.get(reservation.guest_id)
        if guest is not None and guest.do_not_host:
            raise ToolError(f"do_not_host of the guest {reservation.guest_id} is true; the guest cannot check in")

        reservation.status = "checked_in"
        reservation.arrived_on = date
        room.status = "occupied"
        first = datetime.fromisoformat(reservation.check_in_on).date()
        end = datetime.fromisoformat(reservation.check_out_on).date()
        charge_ids = []
        for offset in range((end - first).days):
            night = first + timedelta(days=offset)
            charge_id = self.new_id("CH-", 5, taken=self.state.charges)
            self.state.charges[charge_id] = Charge(
                reservation_id=reservation_id,
                kind="room",
                amount_cents=reservation.nightly_cents,
                charged_on=night.isoformat(),
            )
            charge_ids.append(charge_id)
        balance = sum(c.amount_cents for _, c in sorted(self.state.charges.items()) if c.reservation_id == reservation_id)
        balance -= sum(p.amount_cents for _, p in sorted(self.state.payments.items()) if p.reservation_id == reservation_id)
        return {
            "reservation_id": reservation_id,
            "room_id": reservation.room_id,
            "status": reservation.status,
            "arrived_on": reservation.arrived_on,
            "charge_ids": charge_ids,
            "balance_cents": balance,
        }

    @write
    def post_extra_charge(
        self,
        reservation_id: str,
        kind: Literal["minibar", "restaurant", "laundry"],
        amount_cents: int,
        charged_on: str,
    ) -> dict[str, Any]:
        """Post a minibar, restaurant or laundry charge to a checked-in reservation.

        Args:
            reservation_id: The reservation.
            kind: What is charged.
            amount_cents: Amount in cents, 100 to 50000.
            charged_on: Date of the charge, YYYY-MM-DD.

        Returns:
            charge_id, reservation_id, kind, amount_cents, charged_on and balance_cents.
        """
        reservation = self.state.reservations.get(reservation_id)
        if reservation is None:
            raise ToolError(f"there is no reservation {reservation_id}; check the id")
        if kind not in ("minibar", "restaurant", "laundry"):
            raise ToolError(f"kind {kind} is not possible; give minibar, restaurant or laundry")
        if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", charged_on):
            raise ToolError(f"charged_on {charged_on} is not a valid date; give it as YYYY-MM-DD")
        try:
            datetime.fromisoformat(charged_on)
        except ValueError:
            raise ToolError(f"charged_on {charged_on} is not a valid date; give it as YYYY-MM-DD")
        if reservation.status != "checked_in":
            raise ToolError(
                f"{reservation_id} is {reservation.status}; charges are posted only to a checked_in reservation"
            )
        if amount_cents < 100 or amount_cents > 50000:
            raise ToolError(f"amount_cents {amount_cents} is not from 100 to 50000; give an amount in that range")
        if reservation.arrived_on is not None and charged_on < reservation.arrived_on:
            raise ToolError(
                f"charged_on {charged_on} is before arrived_on {reservation.arrived_on}; give that day or a later one"
            )
        if charged_on > reservation.check_out_on:
            raise ToolError(
                f"charged_on {charged_on} is later than check_out_on {reservation.check_out_on}; "
                "give that day or an earlier one"
            )
        charge_id = self.new_id("CH-", 5, taken=self.state.charges)
        self.state.charges[charge_id] = Charge(
            reservation_id=reservation_id,
            kind=kind,
            amount_cents=amount_cents,
            charged_on=charged_on,
        )
        balance = sum(c.amount_cents for _, c in sorted(self.state.charges.items()) if c.reservation_id == reservation_id)
        balance -= sum(p.amount_cents for _, p in sorted(self.state.payments.items()) if p.reservation_id == reservation_id)
        return {
            "charge_id": charge_id,
            "reservation_id": reservation_id,
            "kind": kind,
            "amount_cents": amount_cents,
            "charged_on": charged_on,
            "balance_cents": balance,
        }

    @write
    def record_payment(
        self,
        reservation_id: str,
        staff_id: str,
        method: Literal["cash", "card", "voucher"],
        amount_cents: int,
        paid_on: str,
        taken_at: str | None = None,
    ) -> dict[str, Any]:
        """Record a payment towards the balance of a reservation.

        Args:
            reservation_id: The reservation.
            staff_id: The receptionist who takes the payment.
            method: How it is paid.
            amount_cents: Amount in cents, at least 1 and at most the balance.
            paid_on: Date of the payment, YYYY-MM-DD.
            taken_at: Time at which the payment was taken, if known.

        Returns:
            payment_id, reservation_id, staff_id, method, amount_cents, paid_on and balance_cents.
        """
        reservation = self.state.reservations.get(reservation_id)
        if reservation is None:
            raise ToolError(f"there is no reservation {reservation_id}; check the id")
        member = self.state.staff.get(staff_id)
        if member is None:
            raise ToolError(f"there is no staff member {staff_id}; check the id")
        if method not in ("cash", "card", "voucher"):
            raise ToolError(f"method {method} is not possible; give cash, card or voucher")
        if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", paid_on):
            raise ToolError(f"paid_on {paid_on} is not a valid date; give it as YYYY-MM-DD")
        try:
            datetime.fromisoformat(paid_on)
        except ValueError:
            raise ToolError(f"paid_on {paid_on} is not a valid date; give it as YYYY-MM-DD")
        if member.role != "receptionist":
            raise ToolError(f"{staff_id} is a {member.role}; a payment is taken by a receptionist")
        if not member.active:
            raise ToolError(f"{staff_id} is not active; a payment is taken by an active receptionist")
        if amount_cents < 1:
            raise ToolError(f"amount_cents {amount_cents} is less than 1; give at least 1")
        balance = sum(c.amount_cents for _, c in sorted(self.state.charges.items()) if c.reservation_id == reservation_id)
        balance -= sum(p.amount_cents for _, p in sorted(self.state.payments.items()) if p.reservation_id == reservation_id)
        if amount_cents > balance:
            raise ToolError(
                f"amount_cents {amount_cents} is more than the balance {balance} of {reservation_id}; "
                "give at most the balance"
            )
        if paid_on < reservation.booked_on:
            raise ToolError(
                f"paid_on {paid_on} is before booked_on {reservation.booked_on}; give that day or a later one"
            )
        payment_id = self.new_id("PY-", 5, taken=self.state.payments)
        self.state.payments[payment_id] = Payment(
            reservation_id=reservation_id,
            staff_id=staff_id,
            method=method,
            amount_cents=amount_cents,
            paid_on=paid_on,
            taken_at=taken_at,
        )
        return {
            "payment_id": payment_id,
            "reservation_id": reservation_id,
            "staff_id": staff_id,
            "method": method,
            "amount_cents": amount_cents,
            "paid_on": paid_on,
            "balance_cents": balance - amount_cents,
        }

    @write
    def extend_stay(self, reservation_id: str, new_check_out_on: str) -> dict[str, Any]:
        """Move the departure of a checked-in reservation to a later day.

        Args:
            reservation_id: The reservation.
            new_check_out_on: New day of departure, YYYY-MM-DD.

        Returns:
            reservation_id, check_out_on, charge_ids and balance_cents.
        """
        reservation = self.state.reservations.get(reservation_id)
        if reservation is None:
            raise ToolError(f"there is no reservation {reservation_id}; check the id")
        if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", new_check_out_on):
            raise ToolError(f"new_check_out_on {new_check_out_on} is not a valid date; give it as YYYY-MM-DD")
        try:
            new_end = date.fromisoformat(new_check_out_on)
        except ValueError:
            raise ToolError(f"new_check_out_on {new_check_out_on} is not a valid date; give it as YYYY-MM-DD")
        if reservation.status != "checked_in":
            raise ToolError(f"{reservation_id} is {reservation.status}; only a checked_in reservation is extended")
        old_end = date.fromisoformat(reservation.check_out_on)
        if new_end <= old_end:
            raise ToolError(
                f"new_check_out_on {new_check_out_on} is not later than check_out_on {reservation.check_out_on}; "
                "give a later day"
            )
        if (new_end - date.fromisoformat(reservation.check_in_on)).days > 28:
            raise ToolError(
                f"new_check_out_on {new_check_out_on} is more than 28 days after check_in_on "
                f"{reservation.check_in_on}; give an earlier day"
            )
        others = [
            (other_id, other)
            for other_id, other in sorted(self.state.reservations.items())
            if other_id != reservation_id and other.status in ("booked", "checked_in")
        ]
        for other_id, other in others:
            if other.room_id is None or other.room_id != reservation.room_id:
                continue
            if other.check_in_on < new_check_out_on and reservation.check_out_on < other.check_out_on:
                raise ToolError(
                    f"{other_id} has the room {reservation.room_id} from {other.check_in_on} to {other.check_out_on}; "
                    "give an earlier day or assign another room to that reservation"
                )
        nights = [(old_end + timedelta(days=offset)).isoformat() for offset in range((new_end - old_end).days)]
        usable = sum(
            1
            for _, room in sorted(self.state.rooms.items())
            if room.room_type_id == reservation.room_type_id and room.status != "out_of_order"
        )
        for night in nights:
            taken = sum(
                1
                for _, other in others
                if other.room_type_id == reservation.room_type_id and other.check_in_on <= night < other.check_out_on
            )
            if taken + 1 > usable:
                raise ToolError(
                    f"no room of the type {reservation.room_type_id} is left on the night of {night}; give an earlier day"
                )

        reservation.check_out_on = new_check_out_on
        charge_ids = []
        for night in nights:
            charge_id = self.new_id("CH-", 5, taken=self.state.charges)
            self.state.charges[charge_id] = Charge(
                reservation_id=reservation_id,
                kind="room",
                amount_cents=reservation.nightly_cents,
                charged_on=night,
            )
            charge_ids.append(charge_id)
        balance = sum(c.amount_cents for _, c in sorted(self.state.charges.items()) if c.reservation_id == reservation_id)
        balance -= sum(p.amount_cents for _, p in sorted(self.state.payments.items()) if p.reservation_id == reservation_id)
        return {
            "reservation_id": reservation_id,
            "check_out_on": reservation.check_out_on,
            "charge_ids": charge_ids,
            "balance_cents": balance,
        }

    @write
    def check_out_reservation(self, reservation_id: str, date: str) -> dict[str, Any]:
        """Check out a checked-in reservation whose account is settled.

        Args:
            reservation_id: The reservation.
            date: Date of the check-out, YYYY-MM-DD.

        Returns:
            reservation_id, status, closed_on, room_id and task_id.
        """
        reservation = self.state.reservations.get(reservation_id)
        if reservation is None:
            raise ToolError(f"there is no reservation {reservation_id}; check the id")
        if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", date):
            raise ToolError(f"date {date} is not a valid date; give it as YYYY-MM-DD")
        try:
            datetime.fromisoformat(date)
        except ValueError:
            raise ToolError(f"date {date} is not a valid date; give it as YYYY-MM-DD")
        if reservation.status != "checked_in":
            raise ToolError(f"{reservation_id} is {reservation.status}; only a checked_in reservation is checked out")
        balance = sum(c.amount_cents for _, c in sorted(self.state.charges.items()) if c.reservation_id == reservation_id)
        balance -= sum(p.amount_cents for _, p in sorted(self.state.payments.items()) if p.reservation_id == reservation_id)
        if balance != 0:
            raise ToolError(f"the balance of {reservation_id} is {balance} cents, not 0; record a payment first")
        if reservation.arrived_on is not None and date < reservation.arrived_on:
            raise ToolError(
                f"date {date} is before arrived_on {reservation.arrived_on}; give that day or a later one"
            )
        if date > reservation.check_out_on:
            raise ToolError(
                f"date {date} is later than check_out_on {reservation.check_out_on}; "
                "give that day or an earlier one, or extend the stay first"
            )
        room = None
        if reservation.room_id is not None:
            room = self.state.rooms.get(reservation.room_id)
        if room is None:
            raise ToolError(f"{reservation_id} has no room; it cannot be checked out")

        reservation.status = "checked_out"
        reservation.closed_on = date
        room.status = "dirty"
        task_id = self.new_id("TK-", 4, taken=self.state.tasks)
        self.state.tasks[task_id] = Task(
            room_id=reservation.room_id,
            kind="cleaning",
            status="open",
            opened_on=date,
            staff_id=None,
            done_on=None,
            note=None,
        )
        return {
            "reservation_id": reservation_id,
            "status": reservation.status,
            "closed_on": reservation.closed_on,
            "room_id": reservation.room_id,
            "task_id": task_id,
        }

    @write
    def cancel_reservation(self, reservation_id: str, date: str) -> dict[str, Any]:
        """Cancel a booked reservation.

        Args:
            reservation_id: The reservation.
            date: Date of the cancellation, YYYY-MM-DD.

        Returns:
            reservation_id, status, closed_on, charge_id and fee_cents; charge_id is null and fee_cents 0 if nothing is
            charged.
        """
        reservation = self.state.reservations.get(reservation_id)
        if reservation is None:
            raise ToolError(f"there is no reservation {reservation_id}; check the id")
        if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", date):
            raise ToolError(f"date {date} is not a valid date; give it as YYYY-MM-DD")
        try:
            day = datetime.fromisoformat(date)
        except ValueError:
            raise ToolError(f"date {date} is not a valid date; give it as YYYY-MM-DD")
        if reservation.status != "booked":
            raise ToolError(f"{reservation_id} is {reservation.status}; only a booked reservation is cancelled")
        if date < reservation.booked_on:
            raise ToolError(f"date {date} is before booked_on {reservation.booked_on}; give that day or a later one")
        if date > reservation.check_in_on:
            raise ToolError(
                f"date {date} is later than check_in_on {reservation.check_in_on}; "
                "give that day or an earlier one, or mark the reservation as no-show"
            )
        days_before = (datetime.fromisoformat(reservation.check_in_on) - day).days

        reservation.status = "cancelled"
        reservation.closed_on = date
        reservation.room_id = None
        charge_id = None
        fee_cents = 0
        if days_before < 2:
            fee_cents = reservation.nightly_cents
            charge_id = self.new_id("CH-", 5, taken=self.state.charges)
            self.state.charges[charge_id] = Charge(
                reservation_id=reservation_id,
                kind="cancellation_fee",
                amount_cents=fee_cents,
                charged_on=date,
            )
        return {
            "reservation_id": reservation_id,
            "status": reservation.status,
            "closed_on": reservation.closed_on,
            "charge_id": charge_id,
            "fee_cents": fee_cents,
        }

    @write
    def mark_no_show(self, reservation_id: str, date: str) -> dict[str, Any]:
        """Mark a booked reservation whose guest did not come as no-show.

        Args:
            reservation_id: The reservation.
            date: Date of the marking, YYYY-MM-DD.

        Returns:
            reservation_id, status, closed_on, charge_id and fee_cents.
        """
        reservation = self.state.reservations.get(reservation_id)
        if reservation is None:
            raise ToolError(f"there is no reservation {reservation_id}; check the id")
        if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", date):
            raise ToolError(f"date {date} is not a valid date; give it as YYYY-MM-DD")
        try:
            datetime.fromisoformat(date)
        except ValueError:
            raise ToolError(f"date {date} is not a valid date; give it as YYYY-MM-DD")
        if reservation.status != "booked":
            raise ToolError(f"{reservation_id} is {reservation.status}; only a booked reservation is marked as no-show")
        if date <= reservation.check_in_on:
            raise ToolError(f"date {date} is not later than check_in_on {reservation.check_in_on}; give a later day")

        reservation.status = "no_show"
        reservation.closed_on = date
        reservation.room_id = None
        fee_cents = reservation.nightly_cents
        charge_id = self.new_id("CH-", 5, taken=self.state.charges)
        self.state.charges[charge_id] = Charge(
            reservation_id=reservation_id,
            kind="no_show_fee",
            amount_cents=fee_cents,
            charged_on=date,
        )
        return {
            "reservation_id": reservation_id,
            "status": reservation.status,
            "closed_on": reservation.closed_on,
            "charge_id": charge_id,
            "fee_cents": fee_cents,
        }

    @write
    def put_room_out_of_order(self, room_id: str, date: str, note: str | None = None) -> dict[str, Any]:
        """Take a room out of use for maintenance.

        Args:
            room_id: The room.
            date: Date on which the room goes out of order, YYYY-MM-DD.
            note: What is to be repaired, as the note on the maintenance task.

        Returns:
            room_id, status and task_id.
        """
        room = self.state.rooms.get(room_id)
        if room is None:
            raise ToolError(f"there is no room {room_id}; check the id")
        if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", date):
            raise ToolError(f"date {date} is not a valid date; give it as YYYY-MM-DD")
        try:
            datetime.fromisoformat(date)
        except ValueError:
            raise ToolError(f"date {date} is not a valid date; give it as YYYY-MM-DD")
        if room.status == "occupied":
            raise ToolError(f"{room_id} is occupied; wait until the guest has checked out")
        if room.status == "out_of_order":
            raise ToolError(f"{room_id} is out_of_order already; nothing needs to be done")
        for reservation_id, reservation in sorted(self.state.reservations.items()):
            if reservation.status == "booked" and reservation.room_id == room_id:
                raise ToolError(
                    f"the booked reservation {reservation_id} is assigned to {room_id}; assign it another room first"
                )
        usable = sum(
            1
            for other_id, other in sorted(self.state.rooms.items())
            if other_id != room_id and other.room_type_id == room.room_type_id and other.status != "out_of_order"
        )
        active = [
            reservation
            for _, reservation in sorted(self.state.reservations.items())
            if reservation.room_type_id == room.room_type_id and reservation.status in ("booked", "checked_in")
        ]
        # The number of reservations rises only on a night on which one of them begins.
        for night in sorted({reservation.check_in_on for reservation in active}):
            needed = sum(1 for reservation in active if reservation.check_in_on <= night < reservation.check_out_on)
            if needed > usable:
                raise ToolError(
                    f"on the night of {night} {needed} rooms of the type {room.room_type_id} are reserved, but only "
                    f"{usable} would be left; {room_id} must stay in use"
                )

        room.status = "out_of_order"
        task_id = self.new_id("TK-", 4, taken=self.state.tasks)
        self.state.tasks[task_id] = Task(
            room_id=room_id,
            kind="maintenance",
            status="open",
            opened_on=date,
            staff_id=None,
            done_on=None,
            note=note,
        )
        return {"room_id": room_id, "status": room.status, "task_id": task_id}

    @write
    def assign_task(self, task_id: str, staff_id: str) -> dict[str, Any]:
        """Assign an open task to a staff member, or hand it to another.

        Args:
            task_id: The task.
            staff_id: The staff member: a housekeeper for cleaning, a technician for maintenance.

        Returns:
            task_id, kind, room_id and staff_id.
        """
        task = self.state.tasks.get(task_id)
        if task is None:
            raise ToolError(f"there is no task {task_id}; check the id")
        member = self.state.staff.get(staff_id)
        if member is None:
            raise ToolError(f"there is no staff member {staff_id}; check the id")
        if task.status != "open":
            raise ToolError(f"{task_id} is {task.status}; only an open task is assigned")
        if task.staff_id == staff_id:
            raise ToolError(f"{task_id} is assigned to {staff_id} already; nothing needs to be done")
        if not member.active:
            raise ToolError(f"{staff_id} is not active; choose an active staff member")
        if task.kind == "cleaning" and member.role != "housekeeper":
            raise ToolError(f"{task_id} is a cleaning task and {staff_id} is a {member.role}; choose a housekeeper")
        if task.kind == "maintenance" and member.role != "technician":
            raise ToolError(f"{task_id} is a maintenance task and {staff_id} is a {member.role}; choose a technician")
        open_tasks = sum(
            1
            for _, other in sorted(self.state.tasks.items())
            if other.status == "open" and other.staff_id == staff_id
        )
        if open_tasks >= 8:
            raise ToolError(f"{staff_id} has {open_tasks} open tasks already, and 8 is the most; choose someone else")
        task.staff_id = staff_id
        return {"task_id": task_id, "kind": task.kind, "room_id": task.room_id, "staff_id": staff_id}

    @write
    def complete_cleaning_task(self, task_id: str, date: str) -> dict[str, Any]:
        """Complete an assigned cleaning task.

        Args:
            task_id: The cleaning task.
            date: Date of completion, YYYY-MM-DD.

        Returns:
            task_id, status, done_on, room_id and room_status.
        """
        task = self.state.tasks.get(task_id)
        if task is None:
            raise ToolError(f"there is no task {task_id}; check the id")
        if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", date):
            raise ToolError(f"date {date} is not a valid date; give it as YYYY-MM-DD")
        try:
            datetime.fromisoformat(date)
        except ValueError:
            raise ToolError(f"date {date} is not a valid date; give it as YYYY-MM-DD")
        if task.kind != "cleaning":
            raise ToolError(f"{task_id} is a {task.kind} task, not a cleaning task; give a cleaning task")
        if task.status != "open":
            raise ToolError(f"{task_id} is {task.status}; only an open task is completed")
        if task.staff_id is None:
            raise ToolError(f"{task_id} is not assigned to anyone; assign it first")
        if date < task.opened_on:
            raise ToolError(f"date {date} is before opened_on {task.opened_on}; give that day or a later one")
        room = self.state.rooms.get(task.room_id)
        if room is None or room.status != "dirty":
            raise ToolError(f"the room {task.room_id} is not dirty; its cleaning can be completed only when it is")

        task.status = "done"
        task.done_on = date
        room.status = "clean"
        return {
            "task_id": task_id,
            "status": task.status,
            "done_on": task.done_on,
            "room_id": task.room_id,
            "room_status": room.status,
        }

    @write
    def complete_maintenance_task(self, task_id: str, date: str) -> dict[str, Any]:
        """Complete an assigned maintenance task and bring the room back into use.

        Args:
            task_id: The maintenance task.
            date: Date of completion, YYYY-MM-DD.

        Returns:
            task_id, status, done_on, room_id, room_status and cleaning_task_id; cleaning_task_id is the open cleaning
            task of the room, new or old.
        """
        task = self.state.tasks.get(task_id)
        if task is None:
            raise ToolError(f"there is no task {task_id}; check the id")
        if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", date):
            raise ToolError(f"date {date} is not a valid date; give it as YYYY-MM-DD")
        try:
            datetime.fromisoformat(date)
        except ValueError:
            raise ToolError(f"date {date} is not a valid date; give it as YYYY-MM-DD")
        if task.kind != "maintenance":
            raise ToolError(f"{task_id} is a {task.kind} task, not a maintenance task; give a maintenance task")
        if task.status != "open":
            raise ToolError(f"{task_id} is {task.status}; only an open task is completed")
        if task.staff_id is None:
            raise ToolError(f"{task_id} is not assigned to anyone; assign it first")
        if date < task.opened_on:
            raise ToolError(f"date {date} is before opened_on {task.opened_on}; give that day or a later one")
        room = self.state.rooms.get(task.room_id)
        if room is None:
            raise ToolError(f"there is no room {task.room_id}; the task cannot be completed")
        cleaning_task_id = None
        for other_id, other in sorted(self.state.tasks.items()):
            if other.room_id == task.room_id and other.kind == "cleaning" and other.status == "open":
                cleaning_task_id = other_id
                break

        task.status = "done"
        task.done_on = date
        room.status = "dirty"
        if cleaning_task_id is None:
            cleaning_task_id = self.new_id("TK-", 4, taken=self.state.tasks)
            self.state.tasks[cleaning_task_id] = Task(
                room_id=task.room_id,
                kind="cleaning",
                status="open",
                opened_on=date,
                staff_id=None,
                done_on=None,
                note=None,
            )
        return {
            "task_id": task_id,
            "status": task.status,
            "done_on": task.done_on,
            "room_id": task.room_id,
            "room_status": room.status,
            "cleaning_task_id": cleaning_task_id,
        }

    @write
    def add_staff_member(
        self, name: str, role: Literal["receptionist", "housekeeper", "technician"]
    ) -> dict[str, Any]:
        """Add a staff member.

        Args:
            name: Name of the staff member.
            role: Role, which never changes.

        Returns:
            staff_id, name, role and active.
        """
        if not name.strip():
            raise ToolError("the name is empty; give the name of the staff member")
        if role not in ("receptionist", "housekeeper", "technician"):
            raise ToolError(f"role {role} is not possible; give receptionist, housekeeper or technician")
        staff_id = self.new_id("ST-", 2, taken=self.state.staff)
        self.state.staff[staff_id] = Staff(name=name, role=role, active=True)
        return {"staff_id": staff_id, "name": name, "role": role, "active": True}

    @write
    def deactivate_staff_member(self, staff_id: str) -> dict[str, Any]:
        """Make a staff member inactive.

        Args:
            staff_id: The staff member.

        Returns:
            staff_id and active.
        """
        member = self.state.staff.get(staff_id)
        if member is None:
            raise ToolError(f"there is no staff member {staff_id}; check the id")
        if not member.active:
            raise ToolError(f"{staff_id} is inactive already; nothing needs to be done")
        open_tasks = [
            task_id
            for task_id, task in sorted(self.state.tasks.items())
            if task.status == "open" and task.staff_id == staff_id
        ]
        if open_tasks:
            raise ToolError(
                f"{staff_id} has open tasks ({', '.join(open_tasks)}); complete them or assign them to others first"
            )
        member.active = False
        return {"staff_id": staff_id, "active": member.active}

    @write
    def reactivate_staff_member(self, staff_id: str) -> dict[str, Any]:
        """Make an inactive staff member active again.

        Args:
            staff_id: The staff member.

        Returns:
            staff_id and active.
        """
        member = self.state.staff.get(staff_id)
        if member is None:
            raise ToolError(f"there is no staff member {staff_id}; check the id")
        if member.active:
            raise ToolError(f"{staff_id} is active already; nothing needs to be done")
        member.active = True
        return {"staff_id": staff_id, "active": member.active}
