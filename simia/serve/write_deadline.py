"""An end to the wait for a peer that does not read, for HTTP and WebSockets."""

from __future__ import annotations

import asyncio

LEAST_READ = 64 << 10  # bytes that a client must read in `write_seconds` while the send buffer is full


class WriteDeadline:
    """Mixin of a connection that is cut if its peer reads less than `LEAST_READ` bytes in `write_seconds`, since unread data would stay in
    memory. It begins when the send buffer is full."""

    write_seconds = 30.0
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    _stuck: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        super().pause_writing()  # type: ignore[misc]
        self._watch_reader()

    def resume_writing(self) -> None:
        self._forget_reader()
        super().resume_writing()  # type: ignore[misc]

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_reader()
        super().connection_lost(exc)  # type: ignore[misc]

    def _watch_reader(self) -> None:
        unread = self.transport.get_write_buffer_size()
        self._stuck = self.loop.call_later(self.write_seconds, self._cut_unless_read, unread)

    def _cut_unless_read(self, before: int) -> None:
        if before - self.transport.get_write_buffer_size() < LEAST_READ:
            self.transport.abort()
        else:
            self._watch_reader()

    def _forget_reader(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None
