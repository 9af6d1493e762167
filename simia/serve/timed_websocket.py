"""The WebSocket protocol of servers: uvicorn's, with an end to the wait for a peer that does not read."""

from __future__ import annotations

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from simia.serve.write_deadline import WriteDeadline


class TimedWebSocket(WriteDeadline, WebSocketsSansIOProtocol):
    """WebSocket that is closed if its peer does not read, or does not answer pings."""

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()  # a peer that answers no ping would not read a closing frame either
