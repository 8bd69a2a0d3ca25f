"""The life of a server: load models, answer over REST and gRPC, end on SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import importlib.metadata
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop
from kserve import ModelRepository
from kserve.protocol.dataplane import DataPlane
from kserve.protocol.model_repository_extension import ModelRepositoryExtension

from boltgen.artifact.metadata import read_metadata
from boltgen.device.choose import activate
from boltgen.errors import ServingError
from boltgen.running.loaded import device_bytes_in_use
from boltgen.serve import telemetry
from boltgen.serve.grpc_server import GrpcServer, Servicer
from boltgen.serve.http_server import HttpServer
from boltgen.serve.model import ModelOptions, ServedModel, metadata_of
from boltgen.serve.repository import Repository, Source, one_arch
from boltgen.serve.tracing import tracing

_log = logging.getLogger("boltgen.serve")
_SWITCH_S = 2e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The addresses, limits and model options of a server; port 0 means any free port.

    `grace_s` is the time in seconds for pending requests after the signal to stop.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    grpc_port: int = 8081
    most_body_bytes: int = 64 << 20
    grace_s: int = 30
    model: ModelOptions = field(default_factory=ModelOptions)


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses at which a server listens."""

    host: str
    port: int
    grpc_port: int


def serve(
    sources: Sequence[Source],
    options: ServerOptions,
    listening: Callable[[Addresses], None],
    ready: Callable[[list[str]], None],
) -> None:
    """Answer until SIGTERM or SIGINT.

    `listening` is called with the addresses before a model is loaded, and `ready` with the models'
    names once all of them answer. Health can be queried from `listening` on.

    Raises:
        BoltgenError: a model cannot be loaded.
        ServingError: a port is in use.
    """
    # The longest time that a worker waits for the interpreter while other requests are decoded.
    sys.setswitchinterval(_SWITCH_S)
    with tracing():
        uvloop.run(_Server(sources, options).run(listening, ready))


class _Server:
    def __init__(self, sources: Sequence[Source], options: ServerOptions) -> None:
        self._options = options
        self._stopping = False
        self._repository = Repository(sources, self._load)
        dataplane = _DataPlane(self._repository, lambda: self._loaded and not self._stopping)
        extension = _Extension(self._repository)
        self._loaded = False
        self._http = HttpServer(
            self._repository,
            dataplane,
            extension,
            host=options.host,
            port=options.port,
            most_body_bytes=options.most_body_bytes,
            grace_s=options.grace_s,
        )
        self._servicer = Servicer(self._repository, dataplane, extension)

    async def run(
        self, listening: Callable[[Addresses], None], ready: Callable[[list[str]], None]
    ) -> None:
        options = self._options
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        rpc = GrpcServer(
            self._servicer,
            host=options.host,
            port=options.grpc_port,
            most_body_bytes=options.most_body_bytes,
        )
        try:
            addresses = Addresses(options.host, self._http.bind(), await rpc.start())
        except OSError as error:
            raise ServingError(
                f"cannot listen on {options.host}, ports {options.port} and {options.grpc_port} "
                f"({error}): give others with --port and --grpc-port"
            ) from error
        answering = asyncio.create_task(self._http.serve())
        listening(addresses)
        loading = asyncio.create_task(asyncio.to_thread(self._load_all))
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({loading, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if loading.done():
                loading.result()
                ready(list(self._repository.models()))
                await asyncio.wait({stopped, answering}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            _log.info("stopping", extra={"event": "stop"})
            self._stopping = True
            stopped.cancel()
            self._http.stop()
            self._repository.hurry()
            await asyncio.gather(answering, rpc.stop(options.grace_s))
            await asyncio.gather(loading, return_exceptions=True)
            await asyncio.to_thread(self._repository.close)
            _log.info("stopped", extra={"event": "stopped"})

    def _load_all(self) -> None:
        self._repository.load_all()
        # Exempt half a million objects of TVM, FastAPI and the models from garbage collection,
        # which would sometimes delay a request.
        gc.collect()
        gc.freeze()
        self._loaded = True

    def _load(self, name: str, version: str, folder: Path) -> ServedModel:
        options = self._options.model
        arch = read_metadata(folder).arch
        vgpu = activate(options.device, arch=arch).vgpu if options.device == "vgpu" else None
        if vgpu is not None:
            one_arch(self._repository.models(), name, arch)
            telemetry.count_device_bytes(lambda: sum(each.size_bytes for each in vgpu.leaks()))
        else:
            telemetry.count_device_bytes(device_bytes_in_use)
        figures = telemetry.QueueFigures(name, version)
        return ServedModel(name, version, folder, options, figures)


class _DataPlane(DataPlane):  # type: ignore[misc]
    """Answer KServe's routes from boltgen's models instead of KServe's registry."""

    def __init__(self, repository: Repository, is_up: Callable[[], bool]) -> None:
        super().__init__(_Registry(repository))
        self._repository = repository
        self._is_up = is_up

    def metadata(self) -> dict[str, Any]:
        told: dict[str, Any] = super().metadata()
        return told | {
            "name": "boltgen",
            "version": importlib.metadata.version("boltgen"),
            "extensions": ["model_repository", "binary_tensor_data"],
        }

    async def ready(self) -> bool:
        return self._is_up() and self._repository.is_ready()

    async def model_ready(self, model_name: str, *_: object) -> bool:
        return self._repository.model(model_name).is_ready

    async def model_metadata(self, model_name: str) -> dict[str, Any]:
        model = self._repository.model(model_name)
        return dict(metadata_of(model, self._repository.versions(model_name)))


class _Registry(ModelRepository):  # type: ignore[misc]
    """The names of models for KServe's list."""

    def __init__(self, repository: Repository) -> None:
        super().__init__()
        self._repository = repository

    def get_models(self) -> dict[str, Any]:
        return dict(self._repository.models())


class _Extension(ModelRepositoryExtension):  # type: ignore[misc]
    """Load and unload models while requests to other models are answered."""

    def __init__(self, repository: Repository) -> None:
        super().__init__(_Registry(repository))
        self._repository = repository

    async def load(self, model_name: str) -> dict[str, Any]:
        await asyncio.to_thread(self._repository.load, model_name)
        return {"name": model_name, "load": True}

    async def unload(self, model_name: str) -> dict[str, Any]:
        await asyncio.to_thread(self._repository.unload, model_name)
        return {"name": model_name, "unload": True}
