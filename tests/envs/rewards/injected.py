"""Episodes that try to forge a verdict: hand-written in injections.yaml, played in the real world, kept in injected_episodes.jsonl.

`python -m tests.envs.rewards.injected` plays them again and writes the file. Whether an episode is solved is what the rules of the world
say, and must be what its author says.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import yaml

from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import ReferenceAgent
from simia.envs.play.player import play
from simia.envs.users import EpisodeView, ScriptedUser
from simia.pack import Pack
from simia.task import ScriptTurn, Task
from simia.trajectory import Message, ToolCall, Trajectory
from tests.evaluation.spoiling import Case, scripted, value

HERE = Path(__file__).parent
SOURCE, EPISODES = HERE / "injections.yaml", HERE / "injected_episodes.jsonl"
PACK = "customer_service"


class InjectingAgent:
    """Plays the first turns of a script, then what its author wrote."""

    def __init__(self, kept: Task, turns: list[dict[str, Any]]) -> None:
        self._kept = ReferenceAgent(kept)
        self._left = sum(turn.user is None for turn in kept.script)
        self.turns = [turn for turn in turns if "user" not in turn]
        self._numbers = itertools.count(1)

    async def act(self, view: EpisodeView) -> tuple[Message, None]:
        if self._left:
            self._left -= 1
            return (await self._kept.act(view))[0], None
        return self._message(self.turns.pop(0)), None

    def _message(self, turn: dict[str, Any]) -> Message:
        if "call" not in turn:
            return Message(role="assistant", content=padded(turn))
        number, arguments = next(self._numbers), None if "raw" in turn else turn["arguments"]
        call = ToolCall(id=f"injected_{number}", name=turn["call"], arguments=arguments, raw=turn.get("raw"))
        return Message(role="assistant", calls=[call])


def padded(turn: dict[str, Any]) -> str:
    return "\n".join([turn["agent"], *([turn["pad"] * turn["times"], turn["tail"]] if "pad" in turn else [])])


async def play_all() -> list[tuple[str, Task, Trajectory]]:
    """(name, task, episode), in the order of the source; raises where the rules disagree with the author."""
    found = []
    async with await open_environment(PACK, user="none") as environment:
        for row in yaml.safe_load(SOURCE.read_text(encoding="utf-8")):
            task = environment.pack.task(row["task"])
            played = await play_one(environment, task, row)
            if value(played) != float(row.get("solved", False)):
                raise ValueError(f"{row['id']}: the rules give {value(played)}")
            found.append((str(row["id"]), task, plant(played, row.get("plant"))))
    return found


async def play_one(environment: Environment, task: Task, row: dict[str, Any]) -> Trajectory:
    then = row.get("then", [])
    kept = scripted(task, task.script[: row["keep"]])
    user = ScriptedUser(kept.model_copy(update={"script": [*kept.script, *spoken(then)]}))
    arena = Environment(environment.pack, environment.backend, backend_name="executable", user=lambda _: user)
    agent = InjectingAgent(kept, then)
    played = await play(await arena.reset(task), agent)
    if agent.turns:
        raise ValueError(f"{row['id']}: the episode ended before {agent.turns[0]}")
    return played


def spoken(turns: list[dict[str, Any]]) -> list[ScriptTurn]:
    return [ScriptTurn(user=turn["user"]) for turn in turns if "user" in turn]


def plant(played: Trajectory, planted: dict[str, str] | None) -> Trajectory:
    """The episode with a field `note` in the first result of a tool; the state that was scored is the same."""
    for message in played.messages if planted else ():
        if planted and message.role == "tool" and message.name == planted["in"]:
            message.content = json.dumps({**json.loads(message.text), "note": planted["note"]}, ensure_ascii=False)
            return played
    if planted:
        raise ValueError(f"no result of {planted['in']} to plant in")
    return played


def load_episodes(pack: Pack) -> list[Case]:
    """(name, task, episode) as kept; the tasks are the pack's."""
    rows = [json.loads(line) for line in EPISODES.read_text(encoding="utf-8").splitlines()]
    return [(row["name"], pack.task(row["task"]), Trajectory.from_row(row["episode"])) for row in rows]


def main() -> None:
    rows = []
    for name, task, played in asyncio.run(play_all()):
        kept = Trajectory(task_id=task.id, messages=played.messages, end=played.end, reward=played.reward)
        rows.append(json.dumps({"name": name, "task": task.id, "episode": kept.to_row()}, ensure_ascii=True))
    EPISODES.write_text("\n".join(rows) + "\n", encoding="utf-8")
    print(f"{len(rows)} episodes written")


if __name__ == "__main__":
    main()
