"""The WebSocket protocol of servers: uvicorn's, with an end to the wait for a peer that does not read."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


class TimedWebSocket(WebSocketsSansIOProtocol):
    """WebSocket that is closed if its peer does not read for `seconds`, since unread data would stay in memory."""

    seconds = 30.0
    _stuck: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stuck is None:
            self._stuck = self.loop.call_later(self.seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._forget()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()  # a peer that answers no ping would not read a closing frame either

    def _forget(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None
