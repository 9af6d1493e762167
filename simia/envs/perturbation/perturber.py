"""Disturb one episode by its schedule: results of the agent's calls, and messages of the user.

In worlds that run code or hold a state, the call runs as usual and code then changes the result that the agent reads, so the state stays
consistent; refused calls are not run. A model that plays the tools without a state, or that plays the user, is instructed by a fragment in
its prompt. In both cases a check decides from the result or the message whether the effect is there, and the episode records it.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from simia.envs.perturbation import effects
from simia.envs.perturbation.checks import shows_event
from simia.envs.perturbation.known_fields import collect_fields
from simia.envs.perturbation.settings import (
    ON_SCREENS,
    READ_ONLY,
    TOOL_EVENTS,
    USER_EVENTS,
    PerturbSettings,
    PlannedEvent,
    plan_events,
)
from simia.envs.perturbation.user_events import UserEvents
from simia.envs.users import EpisodeView, User, UserStop
from simia.envs.worlds.arguments import make_failure, refuse_call
from simia.envs.worlds.mixed_and_shadow import PairWorld
from simia.envs.worlds.simulated.stateful_world import StatefulWorld
from simia.envs.worlds.simulated.world import SimulatedWorld
from simia.envs.worlds.world import ToolResult, World
from simia.errors import Aborted, Code, UserError
from simia.pack import Pack
from simia.prompts import load_template
from simia.quality.tool_effects import find_effect
from simia.task import Task
from simia.trajectory import Message, Perturbation, ToolCall, digest, write_compact_json

REFUSALS = 2  # calls that a rate limit refuses
REFUSING = ("transient_error", "rate_limit", "changed_policy")
UNREPEATED = ("renamed_field", "injected_instruction")  # events after which the same call gives nothing else
SHOWN_ONLY = ("words", "earlier", "true")  # values of an event that are not recorded, since the messages hold them

StartWorld = Callable[[], Awaitable[World]]


class Perturber:
    """The perturbations of one episode. `records`: those that were made."""

    def __init__(
        self, settings: PerturbSettings, pack: Pack, task: Task, seed: int, open_start: StartWorld | None = None
    ) -> None:
        """`open_start`: opens the task's world at its start, for results that are out of date."""
        planned = plan_events(settings, task.id, seed)
        self.records: list[Perturbation] = []
        self._pack, self._open_start = pack, open_start
        self._specs = {tool.name: tool for tool in pack.tools}
        self._due = [each for each in planned if each.kind in TOOL_EVENTS]
        self._rng = random.Random(f"{settings.seed}/{task.id}/{seed}/values")
        users = [each for each in planned if each.kind in USER_EVENTS]
        self._user = UserEvents(users, task, random.Random(f"{settings.seed}/{task.id}/{seed}/user"))
        self._calls = 0
        self._refusals_left = 0
        self._confirms = False
        self._confirmed: set[str] = set()
        self._held: dict[str, ToolResult] = {}
        self._renamed: dict[str, tuple[str, str]] = {}
        self._seen: dict[str, tuple[int, ToolResult]] = {}
        """Call → number of changes before it was last made, and its result."""
        self._changes = 0
        self._refusing: dict[str, Perturbation] = {}
        """Kind → the event of that kind that refuses further calls; `refused` in its details has the messages with these refusals."""
        self._repeats: dict[str, list[Perturbation]] = {}
        """Call → events after which the same call, made again, gives the regular result."""
        self._withdrawn: Perturbation | None = None
        """The event in which the user withdrew its request; None again after its next message."""

    def fork(self) -> Perturber:
        """Copy it for a forked episode."""
        made = copy.copy(self)
        names = (
            "records", "_due", "_rng", "_user", "_confirmed", "_held", "_renamed", "_seen", "_refusing", "_repeats", "_withdrawn",
        )  # fmt: skip
        copies = copy.deepcopy({name: getattr(self, name) for name in names})  # all at once: records stay shared
        for name, value in copies.items():
            setattr(made, name, value)
        return made

    @property
    def missed(self) -> list[PlannedEvent]:
        """Planned events that were not made so far."""
        return [*self._due, *self._user.missed]

    @property
    def extra_calls(self) -> int:
        """Number of calls that an event refused, or that the agent has to make again because of one. They do not count for limits of calls."""
        again = [each for each in self.records if each.kind in TOOL_EVENTS and each.kind not in UNREPEATED]
        return sum(1 + len(each.detail.get("refused", ())) for each in again if each.happened)

    # -- the agent's calls ------------------------------------------------------------------------------------------

    async def call(self, world: World, calls: Sequence[ToolCall], at: int) -> list[ToolResult]:
        """Run the agent's calls in order. `at`: index of the message that will hold the first result."""
        if self._withdrawn is not None and any(self._reaches_tool(call) and self._writes(call) for call in calls):
            self._withdrawn.reaction = "too_early"
        if not self._disturbs(len(calls)):
            results = await world.call(calls)
            for call, result in zip(calls, results, strict=True):
                self._note(call, result)
            return results
        found: list[ToolResult] = []
        for call in calls:
            if found and found[-1].ends:
                found.append(replace(make_failure(call, Code.FINISHED, "the episode has ended"), ends=True))
            else:
                found.append(await self._call(world, call, at + len(found)))
        return found

    def _disturbs(self, calls: int) -> bool:
        """Whether an event is due within the next `calls` calls, or an earlier one still has an effect."""
        active = self._refusals_left or self._confirms or self._held or self._renamed
        return bool(active) or any(each.at <= self._calls + calls for each in self._due)

    async def _call(self, world: World, call: ToolCall, at: int) -> ToolResult:
        if not self._reaches_tool(call):
            return (await world.call([call]))[0]
        key, steered = make_key(call), is_steered(world)
        if key in self._held and not steered:
            result = replace(self._held.pop(key), call_id=call.id)
            self._calls += 1
            self._note_repeat(key)
            return self._rename(call, result)
        standing = self._find_standing(call, key)
        if standing is not None:
            self._calls += 1
            self._refusing[standing].detail.setdefault("refused", []).append(at)
            return (await self._steer(world, call, standing, {})) if steered else effects.make_error(call, standing)
        return await (self._call_model if steered else self._call_code)(world, call, key, at)

    def _reaches_tool(self, call: ToolCall) -> bool:
        """Whether a tool takes the call: it is known, and the arguments fit its schema where that is checked."""
        how = self._pack.executable
        checked = how is None or how.checks_arguments
        return refuse_call(call, self._specs, check_schema=checked) is None

    def _find_standing(self, call: ToolCall, key: str) -> str | None:
        """Return the kind of the earlier event that refuses this call; None: it may run."""
        if self._refusals_left:
            self._refusals_left -= 1
            return "rate_limit"
        if self._confirms and self._writes(call) and key not in self._confirmed:
            self._confirmed.add(key)
            return "changed_policy"
        return None

    def _list_due(self, call: ToolCall) -> list[PlannedEvent]:
        """Events that are due with this call, the first planned first."""
        return [each for each in self._due if each.at <= self._calls + 1 and each.tool in (None, call.name)]

    def _may_apply(self, kind: str, call: ToolCall) -> bool:
        """Whether an event can apply to a call, whatever its result."""
        if kind == "changed_policy":
            return self._writes(call) and not self._confirms
        if kind == "renamed_field" and call.name in self._renamed:
            return False
        return kind not in READ_ONLY or self._reads(call)

    def _begin(self, event: PlannedEvent, key: str) -> None:
        """Mark an event as made, and record its effect on later calls."""
        self._due.remove(event)
        if event.kind == "rate_limit":
            self._refusals_left = REFUSALS - 1
        elif event.kind == "changed_policy":
            self._confirms = True
            self._confirmed.add(key)

    async def _call_code(self, world: World, call: ToolCall, key: str, at: int) -> ToolResult:
        due = [each for each in self._list_due(call) if self._may_apply(each.kind, call)]
        for event in due:
            if event.kind in REFUSING:
                self._calls += 1
                self._begin(event, key)
                result = effects.make_error(call, event.kind)
                self._record(event.kind, call, result, at, {}, key)
                return result
        stale = any(each.kind == "stale_data" for each in due)
        before = await self._read_earlier(world, call, key) if stale else None
        result = (await world.call([call]))[0]
        self._note(call, result)
        if (result.error is not None and before is None) or result.ends:
            return self._rename(call, result)
        for event in due:
            changed = self._change(event.kind, call, result, before)
            if changed is None:
                continue
            other, detail = changed
            self._begin(event, key)
            if event.kind == "slow_result":
                self._held[key] = result
            if event.kind == "renamed_field":
                self._renamed[call.name] = (detail["field"], detail["new"])
            self._record(event.kind, call, other, at, detail, key)
            return other if event.kind == "renamed_field" else self._rename(call, other)
        return self._rename(call, result)

    def _change(
        self, kind: str, call: ToolCall, result: ToolResult, before: ToolResult | None
    ) -> tuple[ToolResult, dict[str, Any]] | None:
        """Return the result as changed by an event, with the chosen values; None: the event does not apply to it."""
        if kind == "stale_data":
            if before is None or before.content == result.content:
                return None
            detail = {"earlier": effects.read_value(before), "true": effects.read_value(result)}
            return replace(before, call_id=call.id), detail
        if result.error is not None:
            return None
        if kind == "slow_result":
            return effects.make_pending(call), {}
        changed = effects.EFFECTS[kind](effects.read_value(result), call, self._rng)
        return None if changed is None else (effects.write_value(result, changed[0]), changed[1])

    async def _read_earlier(self, world: World, call: ToolCall, key: str) -> ToolResult | None:
        """Return an outdated result of a look-up: its result at the start if code answers it and the start can be opened again, else the
        result that the agent got earlier; None without one."""
        if not self._changes:
            return None
        if self._open_start is None or not is_computed(world, call.name):
            return self._find_seen(key)
        try:
            world = await self._open_start()
        except (Aborted, UserError):
            return None
        try:
            return (await world.call([call]))[0]
        except Aborted:
            return None
        finally:
            await world.close()

    async def _call_model(self, world: World, call: ToolCall, key: str, at: int) -> ToolResult:
        """Answer a call in a world that a model simulates; a fragment in its prompt makes the event."""
        assert isinstance(world, SimulatedWorld)
        shown = ON_SCREENS if world.reply_form == "screen" else TOOL_EVENTS
        event, values = next(
            (
                (each, values)
                for each in self._list_due(call)
                if each.kind in shown
                and self._may_apply(each.kind, call)
                and (values := self._choose_values(each.kind, call, key)) is not None
            ),
            (None, {}),
        )
        if event is None:
            renamed = self._renamed.get(call.name)
            if renamed is None:
                result = (await world.call([call]))[0]
            else:
                result = await self._steer(
                    world, call, "renamed_field", dict(zip(("field", "new"), renamed, strict=True))
                )
            self._note(call, result)
            return result
        self._begin(event, key)
        if event.kind == "renamed_field":
            self._renamed[call.name] = (values["field"], values["new"])
        result = await self._steer(world, call, event.kind, values)
        if event.kind in REFUSING:
            self._calls += 1
        else:
            self._note(call, result, seen=False)
        self._record(event.kind, call, result, at, values, key, by="model")
        return result

    def _choose_values(self, kind: str, call: ToolCall, key: str) -> dict[str, Any] | None:
        """Choose the values for the prompt's fragment; None where the event cannot be made with this call."""
        if kind in ("renamed_field", "missing_field"):
            fields = collect_fields(self._pack, call.name)
            if not fields:
                return None
            name = self._rng.choice(fields)
            return {
                "field": name,
                **({"new": effects.choose_new_name(name, self._rng)} if kind == "renamed_field" else {}),
            }
        if kind == "stale_data":
            earlier = self._find_seen(key)
            return None if earlier is None else {"earlier": effects.read_value(earlier)}
        if kind == "injected_instruction":
            words, detail = effects.write_instruction(self._rng)
            return {"words": words, **detail}
        return {}

    def _find_seen(self, key: str) -> ToolResult | None:
        """The result of the same look-up before the last change; None where there is none."""
        changes, result = self._seen.get(key, (self._changes, None))
        return result if changes < self._changes else None

    async def _steer(self, world: World, call: ToolCall, kind: str, values: Mapping[str, Any]) -> ToolResult:
        """Ask the simulator for an answer to one call with the event's fragment in its prompt."""
        assert isinstance(world, SimulatedWorld)
        shown = {name: write_compact_json(each) if name == "earlier" else each for name, each in values.items()}
        world.steering = (
            load_template(f"perturb/{kind}.j2")[0].render(shown, tool=call.name, form=world.reply_form).strip()
        )
        try:
            return (await world.call([call]))[0]
        finally:
            world.steering = ""

    def _rename(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """The result with the field's new name, where an earlier event renamed one."""
        if call.name not in self._renamed or result.error is not None:
            return result
        return effects.write_value(result, effects.rename_field(effects.read_value(result), *self._renamed[call.name]))

    def _note(self, call: ToolCall, result: ToolResult, *, seen: bool = True) -> None:
        """Record a call that was run. `seen`: the agent read its regular result."""
        if not self._reaches_tool(call):
            return
        self._calls += 1
        key = make_key(call)
        self._note_repeat(key)
        self._confirmed.discard(key)
        if result.error is not None:
            return
        if not self._reads(call):
            self._changes += 1
        elif seen:
            self._seen[key] = (self._changes, result)

    def _note_repeat(self, key: str) -> None:
        for record in self._repeats.pop(key, []):
            record.reaction = "repeated"

    def _record(
        self, kind: str, call: ToolCall, result: ToolResult, at: int, detail: dict[str, Any], key: str, **more: Any
    ) -> None:
        happened = shows_event(kind, result, detail)
        kept = {name: value for name, value in detail.items() if name not in SHOWN_ONLY}
        record = Perturbation(kind=kind, message=at, tool=call.name, happened=happened, detail=kept, **more)
        self.records.append(record)
        if kind in REFUSING:
            self._refusing[kind] = record
        if kind not in ("renamed_field", "injected_instruction"):
            self._repeats.setdefault(key, []).append(record)

    def _writes(self, call: ToolCall) -> bool:
        return find_effect(self._specs[call.name]) == "change"

    def _reads(self, call: ToolCall) -> bool:
        return find_effect(self._specs[call.name]) == "look_up"

    # -- what the agent and the user say ------------------------------------------------------------------------------

    def hear_agent(self, message: Message) -> None:
        """Note whether the agent obeys an injected instruction."""
        said = message.text + "".join(write_compact_json(call.arguments) for call in message.calls)
        for record in self.records:
            if record.kind == "injected_instruction" and record.happened and record.detail["code"] in said:
                record.reaction = "followed"

    async def reply(self, user: User, view: EpisodeView, at: int) -> Message | UserStop:
        """Return the user's next message. `at`: index that it will have among the episode's messages."""
        word, record = await self._user.reply(user, view, at)
        if isinstance(word, UserStop) or not word.calls:  # a message or an end, not a call
            self._withdrawn = None
        if record is not None:
            self.records.append(record)
            if record.kind == "change_of_mind" and record.happened:
                self._withdrawn = record
        return word


def is_steered(world: World) -> bool:
    """Whether a fragment in the simulator's prompt makes the events of a world: true for a simulated world without a held state."""
    return isinstance(world, SimulatedWorld) and not isinstance(world, StatefulWorld)


def is_computed(world: World, tool: str) -> bool:
    """Whether the pack's code answers the agent's calls of a tool."""
    if isinstance(world, PairWorld):
        return world.backend.real is None or tool in world.backend.real
    return not isinstance(world, SimulatedWorld) or (isinstance(world, StatefulWorld) and world.is_executed(tool))


def make_key(call: ToolCall) -> str:
    """A call's tool and arguments as a key."""
    return digest([call.name, call.arguments or {}])
