"""Find the planned events that cannot be made in an environment, before it is played."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from simia.envs.episode_limits import EpisodeLimits, combine_limits
from simia.envs.perturbation.known_fields import collect_fields
from simia.envs.perturbation.settings import ON_SCREENS, READ_ONLY, USER_EVENTS, PerturbSettings, PlannedEvent
from simia.envs.perturbation.user_events import TWO_MESSAGES, has_fixed_messages
from simia.envs.worlds.simulated import SimulatedBackend
from simia.envs.worlds.world import Backend
from simia.errors import UserError
from simia.pack import Pack
from simia.quality.tool_effects import find_effect
from simia.task import Task
from simia.tool import ToolSpec

FIELD_EVENTS = ("renamed_field", "missing_field")


def check_tool_names(settings: PerturbSettings, packs: Sequence[Pack]) -> None:
    """Raise `UserError` for an event of a tool that none of the packs has."""
    known = list(dict.fromkeys(tool.name for pack in packs for tool in pack.tools))
    for event in settings.schedule or ():
        if event.tool is not None and event.tool not in known:
            near = difflib.get_close_matches(event.tool, known, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(known)}"
            where = f"pack {packs[0].name}" if len(packs) == 1 else "the packs"
            raise UserError(f"perturb.schedule: no tool named {event.tool!r} in {where}; {hint}")


def list_obstacles(
    settings: PerturbSettings, pack: Pack, tasks: Sequence[Task], backend: Backend, limits: EpisodeLimits
) -> list[str]:
    """Return a line for each planned event, or sampled kind, that cannot be made in some or all tasks; and one if there are no events.

    Events that come too late, or concern a tool that is never called, are not found here: reports count them after the run.
    """
    if settings.schedule is not None and not settings.schedule:
        return ["perturb: nothing is disturbed: schedule is empty"]
    if settings.schedule is None and settings.share == 0:
        return ["perturb: nothing is disturbed: share is 0"]
    planned = settings.schedule or [PlannedEvent(kind=kind) for kind in dict.fromkeys(settings.kinds)]
    steered = isinstance(backend, SimulatedBackend) and not backend.settings.holds_state
    screens = isinstance(backend, SimulatedBackend) and backend.feedback.reply_form == "screen"
    most = combine_limits(limits, pack.limits)
    found = []
    for event in planned:
        why = next(find_obstacles(event, pack, tasks, most, steered=steered, screens=screens), None)
        if why is not None:
            of = f" of {event.tool}" if event.tool else ""
            found.append(f"perturb: pack {pack.name}: {event.kind}{of} cannot happen {why}")
    return list(dict.fromkeys(found))


def find_obstacles(
    event: PlannedEvent, pack: Pack, tasks: Sequence[Task], most: EpisodeLimits, *, steered: bool, screens: bool
) -> Iterator[str]:
    """Yield where and why an event cannot be made. `steered`: a fragment in a simulator's prompt makes it. `screens`: the simulator's replies
    are screens of a terminal."""
    if event.kind in USER_EVENTS:
        if event.at > most.turns + 1:
            yield f"at message {event.at}: the user has at most {most.turns + 1} messages"
        fixed = sum(map(has_fixed_messages, tasks)) if event.kind in TWO_MESSAGES else 0
        if fixed:
            yield f"in {fixed} of {len(tasks)} tasks: they have goals, tools that are revealed later, or withheld facts"
        return
    if most.calls_per_message is not None and event.at > most.turns * most.calls_per_message:
        yield f"at call {event.at}: an episode has at most {most.turns * most.calls_per_message} calls"
    if screens and event.kind not in ON_SCREENS:
        yield "here: the simulator answers with a terminal's screen, which has neither errors nor fields"
    tools = [tool for tool in pack.tools if event.tool in (None, tool.name)]
    who = "no tool is" if event.tool is None else "it is not"
    if not tools:
        yield "here: the pack has no such tool"
    elif event.kind == "changed_policy":
        if not any(find_effect(tool) == "change" for tool in tools):
            yield f"here: {who} known to change anything"
    elif event.kind in READ_ONLY:
        looks_up = [tool for tool in tools if find_effect(tool) == "look_up"]
        if not looks_up:
            yield f"here: {who} known to be a look-up"
        elif event.kind == "ambiguous_match" and not any(map(takes_arguments, looks_up)):
            yield f"here: {who} a look-up with arguments"
        elif event.kind == "stale_data" and all(find_effect(tool) == "look_up" for tool in pack.tools):
            yield "here: no tool changes anything"
    elif event.kind in FIELD_EVENTS and steered and not any(collect_fields(pack, tool.name) for tool in tools):
        yield "here: neither a schema of results nor a recorded result tells the simulator's prompt the fields"


def takes_arguments(tool: ToolSpec) -> bool:
    return bool(tool.parameters.get("properties"))
