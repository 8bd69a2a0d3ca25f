"""A client's connection: uvicorn's, with limits on a request's head and on stalling.

uvicorn itself stores a head of any size, and waits for the rest of a request without limit.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class Connection(HttpToolsProtocol):  # type: ignore[misc]
    """A connection that is closed if a client stalls within a request or sends too long a head."""

    # Choices: common proxies limit the head to half of this, and wait as long.
    most_head_bytes: ClassVar[int] = 1 << 16
    stalled_s: ClassVar[float] = 60.0

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Start to watch the connection."""
        super().connection_made(transport)
        self._is_in_head = False
        self._head_bytes = 0
        self._heard = self.loop.time()
        self._watch = self.loop.call_later(self.stalled_s, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching the connection."""
        self._watch.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Receive data; too long a head ends the connection."""
        self._heard = self.loop.time()
        super().data_received(data)
        # The last piece of the head may include some of the body.
        self._head_bytes = self._head_bytes + len(data) if self._is_in_head else 0
        if self._head_bytes > self.most_head_bytes and not self.transport.is_closing():
            if self._is_answering():
                self.transport.close()  # a refusal would look like a part of the running answer
            else:
                self.send_400_response(
                    f"the head of the request has more than {self.most_head_bytes} bytes"
                )

    def on_message_begin(self) -> None:
        """Note that a head begins."""
        self._is_in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Note that the head is complete."""
        self._is_in_head = False
        super().on_headers_complete()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _is_owed_more(self) -> bool:
        """Return whether the client must send more; between requests uvicorn has its own timer."""
        if self.cycle is None or self._is_in_head:
            return True
        return self._is_answering() and self.cycle.more_body

    def _look(self) -> None:
        left_s = self.stalled_s - (self.loop.time() - self._heard)
        if left_s > 0 or not self._is_owed_more():
            self._watch = self.loop.call_later(left_s if left_s > 0 else self.stalled_s, self._look)
        else:
            self.transport.close()
