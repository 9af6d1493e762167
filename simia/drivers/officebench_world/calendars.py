"""The app calendar: one iCalendar file per user, `calendar/USER.ics`."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from .testbed import ActionError, Testbed, register_action

FORM = "%Y-%m-%d %H:%M:%S"
LINE = "-" * 50


def open_calendar(path: Path) -> Any:
    return import_module("icalendar").Calendar.from_ical(path.read_bytes())


def list_calendar_events(calendar: Any) -> list[Any]:
    return [part for part in calendar.walk() if part.name == "VEVENT"]


def require_single_user(user: Any, refusal: str) -> None:
    """Raise `ActionError` with these words for a list of several users."""
    if not isinstance(user, str):
        raise ActionError(refusal)


@register_action("calendar.create_event", "Failed to create a new event to {user}'s calendar.", writes=True)
def create_event(testbed: Testbed, user: Any, summary: str, time_start: str, time_end: str) -> str:
    """Put an event into one user's calendar; times are YYYY-MM-DD HH:MM:SS."""
    require_single_user(user, "Failed to create a new event to Multiple users. Only support one user.")
    path = testbed.own("calendar", user, ".ics")
    start, end = datetime.strptime(time_start, FORM), datetime.strptime(time_end, FORM)
    library = import_module("icalendar")
    if path.exists():
        calendar = open_calendar(path)
    else:
        calendar = library.Calendar()
        calendar.add("prodid", "-//simia//officebench//EN")
        calendar.add("version", "2.0")
    event = library.Event()
    event.add("summary", summary)
    event.add("dtstart", start)
    event.add("dtend", end)
    event.add("dtstamp", testbed.now.replace(tzinfo=UTC))
    event.add("uid", testbed.new_id("event-", 9))
    event.add("description", "This is a test event")
    event.add("location", "Online")
    calendar.add_component(event)
    path.parent.mkdir(exist_ok=True)
    testbed.save(path, calendar.to_ical())
    return f"Successfully create a new event to {user}'s calendar."


@register_action(
    "calendar.delete_event", "Failed to delete an event named {summary} from {user}'s calendar.", writes=True
)
def delete_event(testbed: Testbed, user: Any, summary: str) -> str:
    """Remove the event of that name from one user's calendar."""
    require_single_user(user, f"Failed to delete an event named {summary} from Multiple users's calendar.")
    path = testbed.own("calendar", user, ".ics")
    calendar = open_calendar(path)
    event = next((part for part in list_calendar_events(calendar) if part.get("summary") == summary), None)
    if event is None:
        raise ValueError("there is no such event")
    calendar.subcomponents.remove(event)
    testbed.save(path, calendar.to_ical())
    return f"Successfully delete an event named {summary} from {user}'s calendar."


@register_action("calendar.list_events", "Failed to list events for {username}.", why=False)
def list_events(testbed: Testbed, username: Any) -> str:
    """List the events in one user's calendar."""
    require_single_user(username, "Failed to list events for Multiple users. Only support one user.")
    path = testbed.own("calendar", username, ".ics")
    events = list_calendar_events(open_calendar(path)) if path.exists() else []
    listed = "".join(
        f"Summary: {event.get('summary')}\n"
        f"Start Time: {format_moment(event.get('dtstart'))}\n"
        f"End Time: {format_moment(event.get('dtend'))}\n"
        f"Description: {event.get('description')}\n"
        f"Location: {event.get('location')}\n"
        f"{LINE}\n"
        for event in events
    ).strip()
    return f"Successfully list events for {username}:\n{listed}" if listed else f"No events found for {username}."


def format_moment(held: Any) -> str:
    return held.dt.strftime(FORM) if held else "None"


def compute_span(event: Any) -> tuple[datetime, datetime]:
    """Return start and end in UTC. Times without a zone count as UTC; an event without an end lasts its day, or no time."""
    start = event.get("dtstart").dt
    duration = event.get("duration")
    if event.get("dtend") is not None:
        end = event.get("dtend").dt
    elif duration is not None:
        end = start + duration.dt
    else:
        end = start if isinstance(start, datetime) else start + timedelta(days=1)
    return normalize_time(start), normalize_time(end)


def normalize_time(value: date) -> datetime:
    held = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
    return held if held.tzinfo else held.replace(tzinfo=UTC)
