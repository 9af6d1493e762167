"""An environment on another machine: the same `Environment` and `Episode`, played by a server.

The server runs the tools, the user, the limits and the reward; each step is one message there and back. What the agent sees and the
rewards are the same as in the server's process. Not available here: the state (`world` is None), `fork`, the evidence of a trajectory and
the user's own calls. The last two are in the server's file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from pydantic import ValidationError

from simia import event_loop
from simia.envs.environment import Environment
from simia.envs.episode import Episode
from simia.envs.episode_step import Sample, Step
from simia.envs.remote.remote_pack import RemotePack
from simia.envs.remote.session import RemoteServer, RemoteSession
from simia.envs.users import EpisodeView, NoUser
from simia.envs.worlds.arguments import make_recordable
from simia.envs.worlds.world import World
from simia.errors import Aborted, Code, Issue, UserError
from simia.reward import Reward
from simia.task import Task
from simia.tool import ToolSpec
from simia.trajectory import End, Message, Trajectory


class RemoteBackend:
    """The back end of a remote environment, whose worlds run on the server. `server`: the connections."""

    def __init__(self, server: RemoteServer) -> None:
        self.server = server

    async def start(self) -> None: ...

    async def open(self, task: Task, *, seed: int, group: str | None, snapshot: bytes | None = None) -> World:
        raise UserError(f"{self.server.url} plays whole episodes on the server: a world cannot be opened here")

    async def close(self) -> None:
        await self.server.close()


class RemoteEnvironment(Environment):
    """Start episodes on a server. Any number at once, each with a connection of its own."""

    def __init__(
        self,
        pack: RemotePack,
        *,
        name: str | None = None,
        tasks: Sequence[Task] | None = None,
        close: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """`name`: of the pack among several, whose tasks are then `NAME/ID`. `tasks` and `close`: see `Environment`."""
        said = pack.server_description
        super().__init__(
            pack, RemoteBackend(pack.server), backend_name=said.backend, user=NoUser, limits=said.limits,
            tasks=tasks, close=close,
        )  # fmt: skip
        self.server = pack.server
        self._prefix = "" if name is None else f"{name}/"

    async def reset(
        self, task: Task | str, *, seed: int = 0, group: str | None = None, name: str | None = None
    ) -> Episode:
        """Start an episode of one of the server's tasks; see `Environment.reset`. Waits for a full server; a server that
        cannot be reached gives an aborted episode."""
        self.check_reset(task, seed)
        asked = task.id if isinstance(task, Task) else task
        known = self.pack.task(asked.removeprefix(self._prefix))
        played = known if known.id == asked else known.model_copy(update={"id": asked})
        if isinstance(task, Task) and task != played:
            raise UserError(f"task {task.id} is not the server's: a remote environment plays the server's own tasks")
        await event_loop.share_loop()
        session = self.server.take_session()
        try:
            said = await session.request(
                "reset", {"task": known.id, "seed": seed, "group": group, "name": name, "record": True}
            )
            return RemoteEpisode.begin_record(self, played, session, said, seed=seed, group=group)
        except Aborted as error:
            return self.abort(played, seed, error)
        except UserError:
            self.server.free_session(session)
            raise

    def note_training_step(self, step: int) -> None:
        """Do nothing: a reward with a schedule stays where the server's settings put it."""


@dataclass(slots=True)
class RemoteEpisode(Episode):
    """An episode that a server plays. Steps are answered by its messages."""

    session: RemoteSession | None = None
    head: dict[str, Any] = field(default_factory=dict)
    """Fields of the trajectory that no step changes."""
    system: str | None = None
    all_tools: list[ToolSpec] = field(default_factory=list)
    user_tools: list[ToolSpec] = field(default_factory=list)
    first: set[str] | None = None
    """Names of the tools that are visible from the start; None: all."""
    visible: set[str] | None = None
    """Names of the tools that are visible now; None: all."""

    @classmethod
    def begin_record(
        cls, environment: RemoteEnvironment, task: Task, session: RemoteSession, said: dict[str, Any], *,
        seed: int, group: str | None,
    ) -> RemoteEpisode:  # fmt: skip
        """Make the episode that the server began. Raises `Aborted` where its answer cannot be read."""
        pack = environment.pack
        episode = cls(environment, task, None, NoUser(task), seed=seed, group=group, session=session)
        try:
            record = read_record(said)
            episode.head = {**record["head"], "task_id": task.id}
            own = "tools" in record
            episode.system = record["system"] if own else pack.policy
            episode.all_tools = [ToolSpec(**row) for row in record["tools"]] if own else pack.tools
            episode.user_tools = [ToolSpec(**row) for row in record["user_tools"]] if own else pack.user_tools
            episode.hear(record)
            _ = episode.trajectory  # its head is read only here
        except (ValidationError, LookupError, TypeError, ValueError):
            environment.server.end_session(session)
            raise Aborted(Code.BAD_REPLY_BODY, "the server's first message cannot be read") from None
        episode.first = episode.visible
        return episode

    @property
    def tools(self) -> list[ToolSpec]:
        """The tools that the agent sees now."""
        return self._pick(self.visible)

    def _pick(self, names: set[str] | None) -> list[ToolSpec]:
        return list(self.all_tools) if names is None else [tool for tool in self.all_tools if tool.name in names]

    @property
    def view(self) -> EpisodeView:
        """The episode as the agent sees it."""
        if self.first is None or self.visible is None:
            return EpisodeView(self.system, tuple(self.messages), self.tools)
        first, revealed = self._pick(self.visible & self.first), self._pick(self.visible - self.first)
        return EpisodeView(self.system, tuple(self.messages), first, revealed)

    def hear(self, record: dict[str, Any]) -> tuple[Message, ...]:
        """Append the messages of a server's answer and store its end, if it has one. Returns the messages."""
        heard = tuple(Message.model_validate(row) for row in record["messages"])
        self.messages += heard
        if record.get("visible") is not None:
            self.visible = set(record["visible"])
        if record.get("end") is not None:
            self.issues = [Issue.model_validate(row) for row in record.get("issues", ())]
            self.reward = Reward.model_validate(record["reward"]) if record.get("reward") else None
            self.end = End.model_validate(record["end"])
            self._free()
        return heard

    async def _take(self, action: Message, sample: Sample | None) -> Step:
        self.messages.append(action)
        self.samples.append(sample)
        self._turns += 1
        return await self._ask({"record": dump_message(action)})

    async def _ask(self, data: dict[str, Any]) -> Step:
        """Send a step. If the server is lost, the episode is aborted."""
        if self.session is None:
            self._lose(Aborted(Code.CONNECTION, "the episode was closed"))
            return Step((), self.end, self.reward)
        try:
            heard = self.hear(read_record(await self.session.request("step", data)))
        except (ValidationError, LookupError, TypeError, ValueError):
            self._lose(Aborted(Code.BAD_REPLY_BODY, "the server's answer cannot be read"))
        except UserError as error:
            self._lose(Aborted(Code.SERVER_ERROR, str(error)))
        except Aborted as error:
            self._lose(error)
        else:
            return Step(heard, self.end, self.reward)
        return Step((), self.end, self.reward)

    def _lose(self, error: Aborted) -> None:
        self.end = End(kind="aborted", code=error.code)
        self.issues.append(Issue(code=error.code, where=f"messages[{len(self.messages) - 1}]", detail=error.detail))
        self.reward = Reward(error=error.code, rationale=error.detail)
        self._free(broken=True)

    async def stop(
        self,
        code: Code,
        *,
        aborted: bool = False,
        detail: str = "",
        message: Message | None = None,
        sample: Sample | None = None,
    ) -> Step:
        """End it from outside; see `Episode.stop`."""
        if self.end is not None:
            return Step((), self.end, self.reward)
        data: dict[str, Any] = {"stop": {"code": code, "aborted": aborted, "detail": detail}}
        if message is not None:
            kept = make_recordable(message)
            self.messages.append(kept)
            self.samples.append(sample)
            data["record"] = dump_message(kept)
        return await self._ask(data)

    async def score(self) -> Reward:
        """Compute the reward of the episode as if it ended now; see `Episode.score`."""
        if self.reward is not None:
            return self.reward
        if self.session is None:
            return Reward(error=Code.CONNECTION, rationale="the episode was closed")
        try:
            said = read_record(await self.session.request("step", {"score": True}))
            return Reward.model_validate(said["reward"])
        except Aborted as error:
            self._lose(error)
        except (UserError, ValidationError, LookupError, TypeError, ValueError) as error:
            self._lose(Aborted(Code.BAD_REPLY_BODY, str(error).splitlines()[0]))
        return self.reward or Reward(error=Code.CONNECTION)

    async def fork(self) -> NoReturn:
        """Raise `UserError`: an episode of a server is not copied."""
        raise UserError("an episode of a remote environment cannot be forked: open the pack on this machine")

    async def close(self) -> None:
        """Release the connection. The server truncates an episode that is still running, and keeps it."""
        self._free(broken=self.end is None)

    def _free(self, *, broken: bool = False) -> None:
        session, self.session = self.session, None
        if session is not None and broken:
            session.server.end_session(session)
        elif session is not None:
            session.server.free_session(session)

    @property
    def trajectory(self) -> Trajectory:
        """The episode so far as a trajectory, without evidence and without the user's own calls."""
        return Trajectory(
            **self.head,
            system=self.system,
            tools=[tool.public for tool in self._pick(self.first)],
            user_tools=self.user_tools,
            messages=list(self.messages),
            end=self.end or End(kind="truncated"),
            reward=self.reward,
            issues=list(self.issues),
        )


def read_record(said: dict[str, Any]) -> dict[str, Any]:
    """Return the record of an answer. Raises `ValueError` where there is none."""
    observation = said.get("observation")
    record = observation.get("record") if isinstance(observation, dict) else None
    if isinstance(record, dict):
        return record
    raise ValueError("no record")


def dump_message(message: Message) -> dict[str, Any]:
    return message.model_dump(mode="json", exclude_defaults=True)
