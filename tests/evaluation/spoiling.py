"""Ways to change a solved episode a little, so that only a careful judge tells right from wrong: edits of a task's script.

What an edit makes of an episode is not written down but played: the label is the reward that the rules of the world give.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from simia.envs.environment import Environment
from simia.envs.play.agent import Agent
from simia.envs.play.baseline_agents import CannedAgent, EchoAgent, NothingAgent, ReferenceAgent
from simia.envs.play.player import play
from simia.envs.users import NoUser, ScriptedUser, User
from simia.task import Action, ScriptTurn, Task
from simia.trajectory import Trajectory

READS = ("get", "find", "list", "search", "track", "check", "read", "calculate")
IDLE = {"nothing": NothingAgent, "echo": EchoAgent, "canned": CannedAgent}
AMOUNT, DAY = re.compile(r"\d+\.\d\d(?!\d)"), re.compile(r"\b(\d\d?)(?= (?:May|June|April) )")
Case = tuple[str, Task, Trajectory]
Make = Callable[[Sequence[ScriptTurn], str], Iterator[Sequence[ScriptTurn]]]


@dataclass
class Stage:
    """The world in which the cases are played, and the cases so far. `only`: keep a case whose reward is this, drop others."""

    environment: Environment
    cases: list[Case]

    async def add(self, kind: str, task: Task, script: Sequence[ScriptTurn], *, only: float | None = None) -> bool:
        """Play the script in the task's world. False, and no case, where the reward is not the one that was asked for."""
        shown = scripted(task, script)
        trajectory = await self.played(task, ReferenceAgent(shown), ScriptedUser(shown))
        if only is not None and value(trajectory) != only:
            return False
        self.cases.append((kind, task, trajectory))
        return True

    async def idle(self, tasks: Sequence[Task]) -> None:
        for kind, agent in IDLE.items():
            self.cases += [(kind, task, await self.played(task, agent(task), NoUser(task))) for task in tasks]

    async def played(self, task: Task, agent: Agent, user: User) -> Trajectory:
        own = self.environment
        arena = Environment(own.pack, own.backend, backend_name="executable", user=lambda _: user)
        return await play(await arena.reset(task), agent)

    async def first(self, kind: str, task: Task, script: Sequence[ScriptTurn], make: Make) -> bool:
        """The first script that `make` yields (of the right one and all words of its episode) that the rules call wrong, and in
        which no call fails that went well before."""
        right = scripted(task, script)
        solved = await self.played(task, ReferenceAgent(right), ScriptedUser(right))
        scripts, before = make(script, seen_in(solved)), failures(solved)
        for script in scripts:
            shown = scripted(task, script)
            trajectory = await self.played(task, ReferenceAgent(shown), ScriptedUser(shown))
            if value(trajectory) == 0.0 and failures(trajectory) <= before:
                self.cases.append((kind, task, trajectory))
                return True
        return False


def scripted(task: Task, script: Sequence[ScriptTurn]) -> Task:
    return task.model_copy(update={"script": list(script), "reference": []})


def value(trajectory: Trajectory) -> float | None:
    return trajectory.reward.value if trajectory.reward else None


def failures(trajectory: Trajectory) -> int:
    return sum(message.error is not None for message in trajectory.messages)


def changes(action: Action) -> bool:
    return action.by == "agent" and action.name.rpartition(".")[2].split("_")[0] not in READS


def changing(script: Sequence[ScriptTurn]) -> list[int]:
    """The places of turns in which the agent changes something."""
    return [at for at, turn in enumerate(script) if any(map(changes, turn.calls or []))]


def other_ids(script: Sequence[ScriptTurn], seen: str, pattern: str) -> Iterator[Sequence[ScriptTurn]]:
    """One identifier of one change is another one of its kind that stands in the episode (`seen`), the last change first."""
    known = list(dict.fromkeys(re.findall(pattern, seen)))
    for at in reversed(changing(script)):
        calls = script[at].calls or []
        for index, call in enumerate(calls):
            if not changes(call):
                continue
            text = call.model_dump_json()
            for old in dict.fromkeys(re.findall(pattern, text)):
                for new in known:
                    if new != old and kind_of(new) == kind_of(old) and new not in text:
                        changed = Action.model_validate_json(text.replace(old, new, 1))
                        yield replaced(script, at, [*calls[:index], changed, *calls[index + 1 :]])


def kind_of(name: str) -> str:
    if re.fullmatch(r"[A-Z0-9]{6}", name):  # a reservation of tau2
        return "reservation"
    return re.sub(r"\d+", "0", name)


def replaced(script: Sequence[ScriptTurn], at: int, calls: list[Action]) -> list[ScriptTurn]:
    return [*script[:at], *([ScriptTurn(calls=calls)] if calls else []), *script[at + 1 :]]


def told_otherwise(script: Sequence[ScriptTurn], expected: Sequence[str]) -> Iterator[Sequence[ScriptTurn]]:
    """All is done right, and a sum or a day that was asked for is told wrong wherever it is told."""
    said = " ".join(turn.agent or "" for turn in script)
    for old in dict.fromkeys([*(each for each in expected if each in said), *AMOUNT.findall(said)]):
        if re.fullmatch(r"\d+(\.\d+)?", old):
            digit = str((int(old[-1]) + 5) % 10) if "." not in old else old[-1]
            new = old[:-1] + digit if "." not in old else f"{float(old) + 4:.2f}"
            yield [reworded(turn, old, new) for turn in script]
    for day in dict.fromkeys(DAY.findall(said)):
        later = re.compile(rf"\b{day}(?= (?:May|June|April) )")
        yield [
            turn if turn.agent is None else ScriptTurn(agent=later.sub(str((int(day) + 1) % 29 + 1), turn.agent))
            for turn in script
        ]


def reworded(turn: ScriptTurn, old: str, new: str) -> ScriptTurn:
    return (
        turn
        if turn.agent is None
        else ScriptTurn(agent=re.sub(rf"(?<![\d.]){re.escape(old)}(?![\d])", new, turn.agent))
    )


def left_out(script: Sequence[ScriptTurn]) -> Sequence[ScriptTurn]:
    """The last change is not made, and the words claim it all the same."""
    at = changing(script)[-1]
    kept = [call for call in script[at].calls or [] if not changes(call)]
    return replaced(script, at, kept)


def ended_early(script: Sequence[ScriptTurn], words: str = "Thank you. I'll see to that.") -> Sequence[ScriptTurn]:
    """The agent takes its leave where the last change should have been made."""
    return [*script[: changing(script)[-1]], ScriptTurn(agent=words)]


def refused(script: Sequence[ScriptTurn], words: str) -> Sequence[ScriptTurn]:
    """The first change is refused, for a reason that sounds like a rule."""
    at = changing(script)[0]
    said = max((n for n in range(at) if script[n].agent is not None), default=None)
    before = at if said is None else said
    return [*script[:before], ScriptTurn(agent=words)]


def with_calls(script: Sequence[ScriptTurn], calls: Sequence[Action]) -> Sequence[ScriptTurn]:
    """More calls before the last words, each in a turn of its own."""
    end = len(script) - 1 if script and script[-1].agent is not None else len(script)
    return [*script[:end], *(ScriptTurn(calls=[call]) for call in calls), *script[end:]]


def turned(script: Sequence[ScriptTurn]) -> Sequence[ScriptTurn] | None:
    """Calls of one turn in the reverse order; None where no turn holds two."""
    if not any(len(turn.calls or []) > 1 for turn in script):
        return None
    return [turn if turn.calls is None else ScriptTurn(calls=turn.calls[::-1]) for turn in script]


def seen_in(trajectory: Trajectory) -> str:
    """All words of calls and results."""
    return "\n".join(f"{m.text} {[call.arguments for call in m.calls]}" for m in trajectory.messages)
