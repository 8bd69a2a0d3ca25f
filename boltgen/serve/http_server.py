"""The protocol over REST: KServe's server, with boltgen's routes where KServe's fall short.

KServe's route for inference is not used (see `boltgen.serve.rest`), and its routes for versions are
not implemented. KServe would also bind to every address of the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import fastapi
from fastapi.exceptions import RequestValidationError
from kserve.protocol.dataplane import DataPlane
from kserve.protocol.model_repository_extension import ModelRepositoryExtension
from kserve.protocol.rest.server import RESTServer, metrics_handler
from kserve.protocol.rest.v2_endpoints import register_v2_endpoints
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from boltgen.errors import BoltgenError, InputError, TooLargeError
from boltgen.serve.answering import CANCELLED, answered, outcome_of, refused, said_of
from boltgen.serve.connection import Connection
from boltgen.serve.model import metadata_of
from boltgen.serve.repository import Repository
from boltgen.serve.rest import JSON_LENGTH, InferRequest, check_load, decoded, encoded
from boltgen.serve.tensors import Array

Handler = Callable[[Request], Awaitable[Response]]

_APPLICATION = "kserve.model_server:app"
_MODEL = "/v2/models/{model}"
_VERSION = "/v2/models/{model}/versions/{version}"
_INFERENCE = re.compile("/v2/models/(?P<model>[^/]+)(/versions/(?P<version>[^/]+))?/infer")
# Seconds before the server starts to check whether a request's client is still connected.
_UNWATCHED_S = 0.01
# Limits on reading and dropping the rest of a body that is too large, in bytes and seconds.
_MOST_DRAINED_BYTES, _DRAIN_S = 1 << 26, 5.0


class HttpServer(RESTServer):  # type: ignore[misc]
    """A server on one socket, which answers until `stop`."""

    def __init__(
        self,
        repository: Repository,
        dataplane: DataPlane,
        extension: ModelRepositoryExtension,
        *,
        host: str,
        port: int,
        most_body_bytes: int,
        grace_s: int,
    ) -> None:
        super().__init__(_APPLICATION, dataplane, extension, port, grace_period=grace_s)
        self._repository = repository
        self._most_body_bytes = most_body_bytes
        self._host, self._asked_port = host, port
        # Access lines cost more than the request; `answering` logs and counts instead.
        self.config.access_log = False
        self.config.http = Connection
        self.config.proxy_headers = False  # the client's address is not used
        # The whole server handles signals, not this part.
        self._server.capture_signals = contextlib.nullcontext

    def bind(self) -> int:
        """Bind the port (any free port for 0) and return it.

        Raises:
            OSError: the port is in use, or this machine does not have the host address.
        """
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._socket = socket.create_server((self._host, self._asked_port), family=family)
        # Without it, an answer's body waits 40 ms until the client acknowledges the head. Accepted
        # sockets inherit the option; asyncio sets it only on sockets created as TCP by name.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        port: int = self._socket.getsockname()[1]
        return port

    async def serve(self) -> None:
        """Answer until `stop`."""
        self.create_application()
        await self._server.serve(sockets=[self._socket])

    def stop(self) -> None:
        """Reject new connections; `serve` ends when all requests are answered."""
        self._server.should_exit = True

    def _add_middlewares(self, app: fastapi.FastAPI) -> None:
        del app  # KServe's middlewares log every request's time; boltgen has figures for it

    def _register_endpoints(self, app: fastapi.FastAPI) -> None:
        self.config.app = self._in_front_of(app)
        for path in (_MODEL, _VERSION):
            app.add_route(f"{path}/ready", self._guarded(self._ready), methods=["GET"])
            app.add_route(path, self._guarded(self._metadata), methods=["GET"])
        app.add_route("/v2/health/ready", self._guarded(self._server_ready), methods=["GET"])
        for action, handler in (("load", self._load), ("unload", self._unload)):
            path = f"/v2/repository/models/{{model}}/{action}"
            app.add_route(path, self._guarded(handler), methods=["POST"])
        app.add_route("/v2/repository/index", self._guarded(self._index), methods=["POST"])
        app.add_api_route("/metrics", metrics_handler, methods=["GET"])
        register_v2_endpoints(app, self.dataplane, self.model_repository_extension)

    def _add_exception_handlers(self, app: fastapi.FastAPI) -> None:
        super()._add_exception_handlers(app)
        for kind in (BoltgenError, HTTPException, RequestValidationError):
            app.add_exception_handler(kind, _refusal)

    def _in_front_of(self, app: fastapi.FastAPI) -> ASGIApp:
        """Wrap `app`: inference bypasses its routes and middlewares, which are too slow."""
        infer = self._guarded(self._infer)

        async def application(scope: Scope, receive: Receive, send: Send) -> None:
            is_post = scope["type"] == "http" and scope["method"] == "POST"
            found = _INFERENCE.fullmatch(scope["path"]) if is_post else None
            if found is None:
                await app(scope, receive, send)
                return
            try:
                answer = await infer(Request(scope | {"path_params": found.groupdict()}, receive))
            except asyncio.CancelledError:
                # The grace period of the server is over, and this task ends.
                answer = JSONResponse({"error": "the server ends"}, status_code=503)
            await answer(scope, receive, send)

        return application

    def _guarded(self, handler: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            try:
                return await handler(request)
            except Exception as error:
                return await _refusal(request, error)

        return guarded

    async def _infer(self, request: Request) -> Response:
        name, version = request.path_params["model"], request.path_params["version"]
        try:
            body = await _body(request, self._most_body_bytes)
        except TooLargeError as error:
            refused("rest", name, error)
            raise
        except ClientDisconnect:
            return Response(status_code=CANCELLED.http)  # the client has gone

        def decode() -> InferRequest:
            if request.headers.get("content-encoding", "identity").lower() != "identity":
                raise InputError("header content-encoding: compressed bodies are not taken")
            return decoded(body, request.headers.get(JSON_LENGTH))

        def encode(
            version: str, asked: InferRequest, outputs: dict[str, Array]
        ) -> tuple[bytes, int | None]:
            return encoded(name, version, asked, outputs)

        try:
            with _watched(request):
                content, json_length = await answered(
                    self._repository,
                    "rest",
                    name,
                    version,
                    carrier=lambda: request.headers,
                    decode=decode,
                    encode=encode,
                )
        except ClientDisconnect:
            return Response(status_code=CANCELLED.http)  # the client has gone
        if json_length is None:
            return Response(content, media_type="application/json")
        headers = {JSON_LENGTH: str(json_length)}
        return Response(content, headers=headers, media_type="application/octet-stream")

    async def _metadata(self, request: Request) -> Response:
        name = request.path_params["model"]
        model = self._repository.model(name, request.path_params.get("version"))
        return JSONResponse(dict(metadata_of(model, self._repository.versions(name))))

    async def _ready(self, request: Request) -> Response:
        name = request.path_params["model"]
        self._repository.require_ready(name, request.path_params.get("version"))
        return JSONResponse({"name": name, "ready": True})

    async def _server_ready(self, request: Request) -> Response:
        del request
        is_ready = await self.dataplane.ready()
        return JSONResponse({"ready": is_ready}, status_code=200 if is_ready else 503)

    async def _load(self, request: Request) -> Response:
        name = request.path_params["model"]
        check_load(name, await _body(request, self._most_body_bytes))
        return JSONResponse(await self.model_repository_extension.load(name))

    async def _unload(self, request: Request) -> Response:
        name = request.path_params["model"]
        # No request depends on another; Triton's client sends this parameter anyway.
        check_load(name, await _body(request, self._most_body_bytes), ("unload_dependents",))
        return JSONResponse(await self.model_repository_extension.unload(name))

    async def _index(self, request: Request) -> Response:
        del request
        return JSONResponse(self._repository.index())


async def _body(request: Request, most_bytes: int) -> bytes:
    """Read the body of a request; reject one that exceeds the limit."""
    said = request.headers.get("content-length", "")
    size = int(said) if said.isascii() and said.isdigit() else 0
    parts: list[bytes] = []
    body = request.stream()
    if size <= most_bytes:
        size = 0
        async for part in body:
            parts.append(part)
            size += len(part)
            if size > most_bytes:
                break
    if size > most_bytes:
        with contextlib.suppress(asyncio.TimeoutError, ClientDisconnect):
            await asyncio.wait_for(_drained(body), _DRAIN_S)
        raise TooLargeError(
            f"the body has more than {most_bytes} bytes, the most that this server takes "
            "(`boltgen serve --max-body`)"
        )
    return b"".join(parts)


async def _drained(body: AsyncIterator[bytes]) -> None:
    """Read and drop the rest of a body, up to a limit.

    A client loses the answer if the connection closes before its request is sent.
    """
    size = 0
    async for part in body:
        size += len(part)
        if size > _MOST_DRAINED_BYTES:
            return


@contextlib.contextmanager
def _watched(request: Request) -> Iterator[None]:
    """Cancel the block if the client of `request`, whose body is complete, disconnects.

    Raises:
        ClientDisconnect: the client has disconnected.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    watches: list[asyncio.Task[None]] = []
    has_gone = False

    async def watch() -> None:
        nonlocal has_gone
        while (await request.receive())["type"] != "http.disconnect":
            pass
        has_gone = True
        task.cancel()

    timer = loop.call_later(_UNWATCHED_S, lambda: watches.append(loop.create_task(watch())))
    try:
        yield
    except asyncio.CancelledError:
        if has_gone:
            raise ClientDisconnect from None
        raise  # the server is ending
    finally:
        timer.cancel()
        for each in watches:
            each.cancel()


async def _refusal(request: Request, error: Exception) -> Response:
    del request
    match error:
        case HTTPException():
            status, said = error.status_code, str(error.detail)
        case RequestValidationError():
            status, said = 400, "; ".join(str(each.get("msg")) for each in error.errors())
        case _:
            status, said = outcome_of(error).http, said_of(error)
    return JSONResponse({"error": said}, status_code=status)
