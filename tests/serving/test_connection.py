"""Connections whose clients send too long a head, or nothing more, and those that do neither."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import uvicorn

from boltgen.serve.connection import Connection

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"
BODY = b"Content-Length: 4\r\n\r\n"


class Application:
    """Says how many bytes a body has, when the test lets it."""

    def __init__(self) -> None:
        self.answering = asyncio.Event()
        self.go = asyncio.Event()
        self.ended: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.ended.append("disconnect")
                return
            size, more = size + len(message["body"]), message["more_body"]
        self.answering.set()
        await self.go.wait()
        head = [(b"content-length", b"%d" % len(str(size)))]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": str(size).encode()})


Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def served(application: Application, stalled_s: float) -> AsyncIterator[Any]:
    """A function that connects."""

    class Impatient(Connection):
        pass

    Impatient.stalled_s = stalled_s
    config = uvicorn.Config(application, http=Impatient, lifespan="off", log_level="critical")
    config.load()
    server = uvicorn.Server(config)
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(
        lambda: Impatient(config, server.server_state, {}), "127.0.0.1", 0
    )
    try:
        yield lambda: asyncio.open_connection(*listening.sockets[0].getsockname())
    finally:
        listening.close()


def run(stalled_s: float, client: Callable[[Application, Any], Awaitable[None]]) -> None:
    async def whole() -> None:
        application = Application()
        async with served(application, stalled_s) as connect:
            await asyncio.wait_for(client(application, connect), 60)

    asyncio.run(whole())


@pytest.mark.parametrize("head", [b"X: " + b"a" * (1 << 20), b"X: a\r\n" * (1 << 17), b"G" * 99])
def test_a_head_without_an_end_is_refused(head: bytes) -> None:
    async def client(application: Application, connect: Any) -> None:
        reader, writer = await connect()
        writer.write((HEAD if b":" in head else b"") + head)
        with contextlib.suppress(ConnectionError):
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 400")
        writer.close()
        assert not application.ended

    run(600, client)


@pytest.mark.parametrize("sent", [b"", HEAD, HEAD + BODY, HEAD + BODY + b"123"])
def test_a_client_that_owes_more_is_left(sent: bytes) -> None:
    async def client(application: Application, connect: Any) -> None:
        reader, writer = await connect()
        writer.write(sent)
        assert await reader.read() == b""
        writer.close()
        assert application.ended == (["disconnect"] if BODY in sent else [])

    run(0.05, client)


def test_a_client_that_waits_for_its_answer_is_not() -> None:
    async def client(application: Application, connect: Any) -> None:
        reader, writer = await connect()
        writer.write(HEAD + BODY + b"1234")
        await application.answering.wait()
        # Many times as long as a client may owe something.
        await asyncio.sleep(0.5)
        application.go.set()
        assert await reader.readuntil(b"\r\n\r\n4")
        writer.close()

    run(0.05, client)


def test_a_long_body_is_no_long_head() -> None:
    async def client(application: Application, connect: Any) -> None:
        application.go.set()
        reader, writer = await connect()
        for _ in range(2):  # of one connection
            writer.write(HEAD + b"Content-Length: 1000000\r\n\r\n")
            writer.write(bytes(1_000_000))
            assert await reader.readuntil(b"\r\n\r\n1000000")
        writer.close()

    run(600, client)
