"""A client's connection: uvicorn's, with limits on a request's head and on stalling.

uvicorn keeps all that comes of a head, and waits for the rest of a request as long as it takes.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class Connection(HttpToolsProtocol):  # type: ignore[misc]
    """A connection that is closed if its client owes more of a request and sends nothing for a
    while.
    """

    # Choices: common proxies send half as much at most, and wait as long.
    most_head_bytes: ClassVar[int] = 1 << 16
    stalled_s: ClassVar[float] = 60.0

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin to watch it."""
        super().connection_made(transport)
        self._is_in_head = False
        self._head_bytes = 0
        self._heard = self.loop.time()
        self._watch = self.loop.call_later(self.stalled_s, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Watch it no more."""
        self._watch.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what comes; a head that is too long ends the connection."""
        self._heard = self.loop.time()
        super().data_received(data)
        # A piece in which the head ends has some of the body.
        self._head_bytes = self._head_bytes + len(data) if self._is_in_head else 0
        if self._head_bytes > self.most_head_bytes and not self.transport.is_closing():
            if self._is_answering():
                self.transport.close()  # a refusal would be taken for part of the answer
            else:
                self.send_400_response(
                    f"the head of the request has more than {self.most_head_bytes} bytes"
                )

    def on_message_begin(self) -> None:
        """Note that a head begins."""
        self._is_in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Note that it has ended."""
        self._is_in_head = False
        super().on_headers_complete()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _is_owed_more(self) -> bool:
        """Return whether the client still has to send; between requests uvicorn has a timer."""
        if self.cycle is None or self._is_in_head:
            return True
        return self._is_answering() and self.cycle.more_body

    def _look(self) -> None:
        left_s = self.stalled_s - (self.loop.time() - self._heard)
        if left_s > 0 or not self._is_owed_more():
            self._watch = self.loop.call_later(left_s if left_s > 0 else self.stalled_s, self._look)
        else:
            self.transport.close()
