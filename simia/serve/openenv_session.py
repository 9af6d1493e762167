"""One WebSocket of a server: OpenEnv's messages in, observations out."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect

from simia.config import parse_config
from simia.config_errors import explain_validation_error
from simia.envs.remote.wire import (
    DRAINING,
    NO_EPISODE,
    USER_ERROR,
    read_frame,
    record_beginning,
    record_outcome,
    write_frame,
)
from simia.errors import UserError
from simia.serve.http_server import IDLE_CODE
from simia.serve.openenv_messages import EpisodeState, Reset, Stop, ToolAction, observe
from simia.serve.session_table import RETRY_SECONDS, Session, SessionTable
from simia.terminal import write_count
from simia.trajectory import Message, ToolCall

log = logging.getLogger(__name__)
TAKEN_OVER, ENDED = 4000, 1012  # close codes: a newer connection has the session; the server ends


class RecordAction(BaseModel):
    """A step of simia's own client: a whole message, the end of the episode, or a request for its score."""

    model_config = ConfigDict(extra="forbid")

    record: Message | None = None
    stop: Stop | None = None
    score: bool = False


class Refused(Exception):  # noqa: N818 - an answer
    """A message that is answered with an error."""

    def __init__(self, code: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.data = {"message": message, "code": code, **more}


@dataclass(slots=True)
class Timers:
    """Functions that record the seconds of resets and steps, and the codes of errors."""

    reset: Callable[[float], None]
    step: Callable[[float], None]
    error: Callable[[str], None]


@dataclass(slots=True, eq=False)
class SessionConnection:
    """A WebSocket that plays a session's episodes, one message after the other."""

    socket: WebSocket
    session: Session
    table: SessionTable
    timers: Timers
    _closing: bool = field(default=False)

    async def detach(self) -> None:
        """Close the WebSocket, for a newer connection or because the session has ended."""
        if not self._closing:
            self._closing = True
            try:
                await self.socket.close(ENDED if self.table.draining else TAKEN_OVER)
            except (RuntimeError, WebSocketDisconnect):
                pass

    async def run(self) -> None:
        """Answer messages until the connection ends. A lost connection starts the session's lease."""
        resumable, reason = True, "closed"
        detach = self.detach
        before = self.table.attach(self.session, detach)
        closing = asyncio.ensure_future(before()) if before is not None else None
        try:
            await self.socket.accept()
            while True:
                message = await self.socket.receive()
                if message["type"] == "websocket.disconnect":
                    if message.get("code") == IDLE_CODE:
                        resumable, reason = False, "idle"
                    return
                answer = await self._answer(message.get("text") or message.get("bytes") or "")
                if answer is None:
                    resumable = False
                    self._closing = True
                    self.table.release(self.session, detach, resumable=False, reason=reason)
                    await self.socket.close()
                    return
                await self.socket.send({"type": "websocket.send", "text": answer})
        except (WebSocketDisconnect, RuntimeError):
            return  # Starlette raises these for a closed socket
        finally:
            self.table.release(self.session, detach, resumable=resumable, reason=reason)
            if closing is not None:
                closing.cancel()

    async def _answer(self, raw: str | bytes) -> str | None:
        """Return the answer to a message; None if it closes the session. A repeated serial number gets the first answer again."""
        session, serial = self.session, None
        try:
            try:
                message = read_frame(raw)
            except ValueError as error:
                raise Refused("INVALID_JSON", f"Invalid JSON: {error}") from None
            if not isinstance(message, dict):
                raise Refused("VALIDATION_ERROR", "a message is an object with a type")
            kind, data, serial = message.get("type"), message.get("data", {}), message.get("serial")
            if kind == "close":
                return None
            if not isinstance(data, dict):
                raise Refused("VALIDATION_ERROR", "data is not an object")
            if not isinstance(serial, int) or session.id is None:
                return pack_answer(await self._do(kind, data), serial)
        except Refused as error:
            self.timers.error(error.data["code"])
            return pack_answer({"type": "error", "data": error.data}, serial)
        if serial == session.serial and session.answer is not None:
            return await asyncio.shield(session.answer)
        session.serial = serial
        session.answer = answered = asyncio.get_running_loop().create_future()
        try:
            found = await self._do(kind, data)
        except Refused as error:
            self.timers.error(error.data["code"])
            found = {"type": "error", "data": error.data}
        except BaseException:
            session.serial = session.answer = None
            answered.cancel()
            raise
        answer = pack_answer(found, serial)
        answered.set_result(answer)
        return answer

    async def _do(self, kind: Any, data: dict[str, Any]) -> dict[str, Any]:
        """Process a message. Raises `Refused`."""
        try:
            if kind == "step":
                return {"type": "observation", "data": await self._step(data)}
            if kind == "reset":
                return {"type": "observation", "data": await self._reset(data)}
            if kind == "state":
                return {"type": "state", "data": self._describe_state().model_dump()}
        except (UserError, IndexError) as error:
            raise Refused(USER_ERROR, str(error)) from None
        except Refused:
            raise
        except Exception:
            log.exception("a message of type %s failed", kind)
            raise Refused("EXECUTION_ERROR", "the server failed on this message; its log says why") from None
        words = f"Unknown message type: {kind}" if isinstance(kind, str) else "a message has a type"
        raise Refused("UNKNOWN_TYPE", words[:200])

    async def _reset(self, data: dict[str, Any]) -> dict[str, Any]:
        if self.table.draining:
            raise Refused(DRAINING, "the server is about to end: connect again", retry_after=RETRY_SECONDS)
        start = time.perf_counter()
        session = self.session
        how = parse_config(Reset, data, where="reset")
        task = how.task
        if task is None and (how.split is not None or how.index is not None):
            task = find_task(session, how.split, how.index or 0)
        if how.record:
            episode = await session.episodes.begin(task, seed=how.seed, group=how.group, name=how.name)
            record = record_beginning(episode, session.served.pack)
            found: dict[str, Any] = {"observation": {"record": record}, "reward": None, "done": episode.end is not None}
            ended: str | None = episode.end.kind if episode.end is not None else None
        else:
            heard = await session.episodes.reset(task, seed=how.seed, group=how.group, name=how.name)
            begun = session.episodes.episode
            assert begun is not None
            ended = heard.ended
            found = observe(heard, begun.task.id, [tool.flat() for tool in begun.tools])
        session.record, session.episode_id, session.ended = how.record, how.episode_id, ended
        self.timers.reset(time.perf_counter() - start)
        return found

    async def _step(self, data: dict[str, Any]) -> dict[str, Any]:
        start = time.perf_counter()
        session = self.session
        try:
            if session.record or data.keys() & {"record", "stop", "score"}:
                found = await self._step_record(RecordAction.model_validate(data))
            else:
                found = await self._step_text(ToolAction.model_validate(data))
        except ValidationError as error:
            model = RecordAction if session.record else ToolAction
            raise Refused("VALIDATION_ERROR", explain_validation_error(model, error, data)[1][:500]) from None
        self.timers.step(time.perf_counter() - start)
        return found

    async def _step_text(self, action: ToolAction) -> dict[str, Any]:
        session = self.session
        said: str | Message = action.message
        if action.calls:
            calls = [ToolCall(id=str(i), name=c.name, arguments=c.arguments) for i, c in enumerate(action.calls)]
            said = Message(role="assistant", content=action.message or None, calls=calls)
        heard = await session.episodes.act(said)
        episode = session.episodes.episode
        assert episode is not None
        session.ended = heard.ended
        return observe(heard, episode.task.id, [])

    async def _step_record(self, action: RecordAction) -> dict[str, Any]:
        session = self.session
        episode = session.episodes.episode
        if episode is None:
            raise Refused(NO_EPISODE, "there is no episode to act in: reset first")
        if action.score:
            reward = await session.episodes.score()
            return {
                "observation": {"record": {"reward": reward.model_dump(mode="json")}},
                "reward": None,
                "done": False,
            }
        try:
            if action.stop is not None:
                stop = action.stop
                step = await session.episodes.end(
                    stop.code, aborted=stop.aborted, detail=stop.detail, message=action.record
                )
            elif action.record is not None:
                step = await session.episodes.take(action.record)
            else:
                raise Refused("VALIDATION_ERROR", "a step has a record, a stop or a score")
        except ValueError as error:
            raise Refused(USER_ERROR, str(error)) from None
        session.ended = step.end.kind if step.end is not None else None
        reward_value = step.reward.total if step.reward is not None else None
        record = record_outcome(episode, step.messages)
        return {"observation": {"record": record}, "reward": reward_value, "done": step.end is not None}

    def _describe_state(self) -> EpisodeState:
        session = self.session
        episode = session.episodes.episode
        return EpisodeState(
            episode_id=session.episode_id,
            step_count=session.episodes.turns,
            task=episode.task.id if episode is not None else None,
            end=session.ended,
        )


def find_task(session: Session, split: str | None, index: int) -> str:
    """Return the id of a task by its index in the split. Raises `IndexError`."""
    tasks = session.served.list_tasks(split)
    if not 0 <= index < len(tasks):
        where = "the pack" if split is None else f"split {split!r}"
        raise IndexError(f"{where} has {write_count(len(tasks), 'task')}, and none of number {index}")
    return str(tasks[index]["id"])


def pack_answer(answer: dict[str, Any], serial: Any) -> str:
    if isinstance(serial, int):
        answer["serial"] = serial
    return write_frame(answer)
