"""Calendars: one .ics a person or room. An event lies in the calendar of everybody here who takes part, and in the room's.

Times are local and without a zone, as all of the firm sits in one place; a day-long event blocks its days.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from typing import Any

from office_desk import CALENDAR, DOMAIN, OWNER, Desk

from simia.kit import ToolError, read, write

Event = dict[str, Any]
ROOMS = {"maple": ("Maple", 12), "cedar": ("Cedar", 8), "fern": ("Fern", 6), "attic": ("Attic", 4)}
HOURS = ((time(9), time(12, 30)), (time(13, 30), time(17, 30)))  # working hours, lunch left free
MINUTE, DAY = "%Y-%m-%dT%H:%M", timedelta(days=1)
MOST_DAYS = 31


class Calendars(Desk):
    """The tools of the calendar. A calendar is named by its person's address before the @, or by its room."""

    @read
    def list_calendars(self) -> dict[str, Any]:
        names = sorted(path.stem for path in (self.root / CALENDAR).glob("*.ics"))
        people = [name for name in names if name not in ROOMS]
        rooms = [{"calendar": name, "room": room, "seats": seats} for name, (room, seats) in ROOMS.items()]
        return {"people": people, "rooms": [row for row in rooms if row["calendar"] in names]}

    @read
    def list_events(self, calendar: str, date: str, days: int = 1) -> dict[str, Any]:
        name, first = self._calendar(calendar), day_of(date)
        last = first + timedelta(days=int(days))
        found = [row for row in self._events(name) if begins(row) < at(last) and ends(row) > at(first)]
        return {"calendar": name, "events": [brief(row) for row in found]}

    @read
    def get_event(self, event_id: str) -> dict[str, Any]:
        return self._event(event_id)

    @read
    def find_free_time(self, calendars: list[str], date: str, minutes: int, days: int = 1) -> dict[str, Any]:
        names = [self._calendar(each) for each in calendars]
        first, wanted = day_of(date), timedelta(minutes=int(minutes))
        taken = sorted((begins(row), ends(row)) for name in set(names) for row in self._events(name))
        found = []
        for offset in range(int(days)):
            day = first + timedelta(days=offset)
            for opens, closes in HOURS if day.weekday() < 5 else ():
                start, end = datetime.combine(day, opens), datetime.combine(day, closes)
                start = max(start, self.now.replace(second=0) + timedelta(minutes=1)) if start < self.now else start
                for a, b in [*(each for each in taken if each[0] < end), (end, end)]:
                    if a - start >= wanted:
                        found.append({"start": start.strftime(MINUTE), "end": a.strftime(MINUTE)})
                    start = max(start, b)
        return {"calendars": names, "minutes": int(minutes), "free": found}

    @write
    def create_event(
        self,
        title: str,
        start: str,
        end: str,
        attendees: list[str] | None = None,
        location: str | None = None,
        notes: str | None = None,
    ) -> dict[str, Any]:
        if not title.strip():
            raise ToolError("a title is needed")
        event_id = self.new_id("EVT-", 3, taken={row["event_id"] for row in self._all()})
        event = {"event_id": event_id, "title": title.strip(), "start": start, "end": end, "organizer": OWNER}
        event |= filled(attendees=addresses(attendees), location=room_name(location), notes=notes)
        return self._put(None, event)

    @write
    def update_event(
        self,
        event_id: str,
        title: str | None = None,
        location: str | None = None,
        notes: str | None = None,
        add_attendees: list[str] | None = None,
        remove_attendees: list[str] | None = None,
    ) -> dict[str, Any]:
        old = self._own(event_id, "changed")
        there = old.get("attendees", [])
        strange = [each for each in addresses(remove_attendees) if each not in there]
        if strange:
            raise ToolError(f"{strange[0]} does not take part in {event_id}: {', '.join(there) or 'nobody'} does")
        left = [each for each in there if each not in addresses(remove_attendees)]
        changes = filled(
            title=title and title.strip(),
            location=room_name(location),
            notes=notes,
            attendees=sorted({*left, *addresses(add_attendees)}),
        )
        event = {**{key: value for key, value in old.items() if key != "attendees"}, **changes}
        if event == old:
            raise ToolError("nothing would change: give a title, a location, notes or attendees")
        return self._put(old, event)

    @write
    def move_event(self, event_id: str, start: str, end: str | None = None) -> dict[str, Any]:
        old = self._own(event_id, "moved")
        length = ends(old) - begins(old)
        return self._put(old, {**old, "start": start, "end": end or (moment(start) + length).strftime(MINUTE)})

    @write
    def cancel_event(self, event_id: str) -> dict[str, Any]:
        old = self._own(event_id, "cancelled")
        self._spread_binds(old, None)
        return {"event_id": event_id, "status": "cancelled", "told": old.get("attendees", [])}

    # -- what several tools do --------------------------------------------------------------------------------------

    def _calendar(self, name: str) -> str:
        name = name.strip().casefold().removesuffix(f"@{DOMAIN}")
        if "/" in name or not self.path(f"{CALENDAR}/{name}.ics").is_file():
            raise ToolError(f"there is no calendar {name!r}: see list_calendars")
        return name

    def _events(self, name: str) -> list[Event]:
        """By their start."""
        held = self.memory["text"].get(f"{CALENDAR}/{name}.ics", {})
        if "unreadable" in held:
            raise ToolError(f"the calendar {name} cannot be read: its file is damaged")
        rows = [{"event_id": key, **row} for key, row in held.get("events", {}).items()]
        return sorted(rows, key=lambda row: (begins(row), row["event_id"]))

    def _all(self) -> list[Event]:
        names = sorted(path.stem for path in (self.root / CALENDAR).glob("*.ics"))
        return [row for name in names for row in self._events(name)]

    def _event(self, event_id: str) -> Event:
        for row in self._all():
            if row["event_id"] == event_id:
                return row
        raise ToolError(f"there is no event {event_id}: see list_events")

    def _own(self, event_id: str, what: str) -> Event:
        event = self._event(event_id)
        organizer = event.get("organizer")
        if organizer != OWNER:
            raise ToolError(f"{event_id} was made by {organizer}, who alone can have it {what}: write to them")
        if event.get("all_day"):
            raise ToolError(f"{event_id} lasts whole days and cannot be {what} here")
        return event

    def _put(self, old: Event | None, event: Event) -> Event:
        """Check an event, and write it to every calendar that it concerns."""
        start, end = moment(event["start"]), moment(event["end"])
        timed = old is None or (event["start"], event["end"]) != (old["start"], old["end"])
        if end <= start:
            raise ToolError(f"it would end at {event['end']}, which is not after {event['start']}")
        if timed and start < self.now:
            raise ToolError(f"{event['start']} has passed: it is {self.now.strftime(MINUTE)}")
        room = ROOMS.get(str(event.get("location", "")).casefold())
        people = 1 + len(event.get("attendees", []))
        if room and people > room[1]:
            fits = [name for name, seats in ROOMS.values() if seats >= people]
            hint = f"take {' or '.join(fits)}" if fits else "no room holds so many"
            raise ToolError(f"{room[0]} has {room[1]} seats and {people} people come: {hint}")
        for name in self._concerned(event):
            for row in self._events(name):
                if row["event_id"] != event["event_id"] and begins(row) < end and ends(row) > start:
                    when = f"{row['start']} to {row['end']}"
                    raise ToolError(f"{name} is taken by {row['event_id']} {row['title']}, {when}: see find_free_time")
        self._spread_binds(old, event)
        return event

    def _concerned(self, event: Event) -> list[str]:
        """The calendars that hold it."""
        people = [event.get("organizer", ""), *event.get("attendees", [])]
        names = [each.removesuffix(f"@{DOMAIN}") for each in people if each.endswith(f"@{DOMAIN}")]
        names.append(str(event.get("location", "")).casefold())
        return [name for name in dict.fromkeys(names) if name and (self.root / CALENDAR / f"{name}.ics").is_file()]

    def _spread_binds(self, old: Event | None, new: Event | None) -> None:
        from icalendar import Calendar

        stay = self._concerned(new) if new else []
        for name in sorted({*(self._concerned(old) if old else []), *stay}):
            file = f"{CALENDAR}/{name}.ics"
            calendar = Calendar.from_ical(self.load(file))
            if old:
                uid = uid_of(old["event_id"])
                calendar.subcomponents = [c for c in calendar.subcomponents if str(c.get("uid")) != uid]
            if new and name in stay:
                calendar.add_component(component(new, self.now))
            self.store(file, calendar.to_ical())


def events_of(data: bytes) -> dict[str, Event]:
    """Identifier → event, as a calendar's bytes say it."""
    from icalendar import Calendar

    found = {}
    for each in Calendar.from_ical(data).walk("VEVENT"):
        start, end = each.get("dtstart").dt, each.get("dtend").dt
        all_day = not isinstance(start, datetime)
        people = each.get("attendee") or []
        people = people if isinstance(people, list) else [people]
        event: Event = {"title": str(each.get("summary", ""))}
        event["start"] = start.isoformat() if all_day else start.strftime(MINUTE)
        event["end"] = (end - DAY).isoformat() if all_day else end.strftime(MINUTE)
        event |= filled(
            organizer=bare(each.get("organizer", "")),
            attendees=sorted(bare(person) for person in people),
            location=str(each.get("location", "")),
            notes=str(each.get("description", "")),
            all_day=all_day,
        )
        found[str(each.get("uid")).split("@")[0]] = event
    return found


def component(event: Event, stamp: datetime) -> Any:
    """The event as an iCalendar component."""
    from icalendar import Event as Component

    made = Component()
    made.add("uid", uid_of(event["event_id"]))
    made.add("dtstamp", stamp)
    if event.get("all_day"):
        made.add("dtstart", date.fromisoformat(event["start"]))
        made.add("dtend", date.fromisoformat(event["end"]) + DAY)
    else:
        made.add("dtstart", moment(event["start"]))
        made.add("dtend", moment(event["end"]))
    made.add("summary", event["title"])
    made.add("organizer", f"mailto:{event['organizer']}")
    for person in event.get("attendees", []):
        made.add("attendee", f"mailto:{person}")
    for key, name in (("location", "location"), ("notes", "description")):
        if event.get(key):
            made.add(name, event[key])
    return made


def uid_of(event_id: str) -> str:
    return f"{event_id}@{DOMAIN}"


def bare(person: Any) -> str:
    return str(person).removeprefix("mailto:").removeprefix("MAILTO:").casefold()


def addresses(given: list[str] | None) -> list[str]:
    """Each once, in order of the alphabet, without Maeve, who is always there."""
    return sorted({each.strip().casefold() for each in given or []} - {OWNER})


def room_name(location: str | None) -> str | None:
    """A room by its proper name, another place as given."""
    return None if location is None else ROOMS.get(location.strip().casefold(), (location.strip(), 0))[0]


def filled(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value}


def brief(event: Event) -> Event:
    return {key: value for key, value in event.items() if key not in ("organizer", "notes")}


def begins(event: Event) -> datetime:
    return at(date.fromisoformat(event["start"])) if event.get("all_day") else moment(event["start"])


def ends(event: Event) -> datetime:
    return at(date.fromisoformat(event["end"]) + DAY) if event.get("all_day") else moment(event["end"])


def at(day: date) -> datetime:
    return datetime.combine(day, time())


def moment(text: str) -> datetime:
    try:
        return datetime.strptime(text, MINUTE)
    except ValueError:
        raise ToolError(f"{text!r} is no time: give one like 2025-09-17T14:00") from None


def day_of(text: str) -> date:
    try:
        found = date.fromisoformat(text)
    except ValueError:
        found = date.min
    if not 2000 <= found.year <= 2100:
        raise ToolError(f"{text!r} is no day: give one like 2025-09-17")
    return found
