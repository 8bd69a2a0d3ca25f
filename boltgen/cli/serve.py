"""The command `boltgen serve`."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from boltgen.cli.terminal.console import errors_for_people, say
from boltgen.cli.terminal.flags import Debug
from boltgen.device.choose import device_kind

_MOST_PORT = 65535
_MIB = 1 << 20


def serve_command(
    folders: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR...",
            help="Folders of compiled models, or of several; NAME=DIR gives a name.",
        ),
    ],
    *,
    device: Annotated[str, typer.Option(metavar="DEVICE", help="vgpu or cuda.")] = "vgpu",
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Listen here; the default is this machine only.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=_MOST_PORT, metavar="N", help="REST port; 0 is any.")
    ] = 8080,
    grpc_port: Annotated[
        int, typer.Option(min=0, max=_MOST_PORT, metavar="N", help="gRPC port; 0 is any.")
    ] = 8081,
    workers: Annotated[
        int,
        typer.Option(min=1, max=64, metavar="N", help="Sessions per model, each with weights."),
    ] = 1,
    max_batch: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="ROWS", help="Most rows of a run; default: what the model takes."
        ),
    ] = None,
    max_delay_us: Annotated[
        int,
        typer.Option(min=0, max=60_000_000, metavar="N", help="Longest wait for other requests."),
    ] = 0,
    queue: Annotated[
        int,
        typer.Option(min=1, max=1_000_000, metavar="N", help="Most waiting requests per model."),
    ] = 256,
    graphs: Annotated[
        int,
        typer.Option(min=0, max=1024, metavar="N", help="CUDA graphs per worker; 0 is none."),
    ] = 8,
    max_body: Annotated[
        int, typer.Option(min=1, max=2047, metavar="MIB", help="Largest request, in MiB.")
    ] = 64,
    grace: Annotated[
        int, typer.Option(min=0, max=3600, metavar="S", help="Seconds to answer after SIGTERM.")
    ] = 30,
    log_requests: Annotated[
        bool, typer.Option("--log-requests", help="Log every request, not only failures.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Serve compiled models over REST and gRPC.

    The protocol is the Open Inference Protocol v2. The server is ready (/v2/health/ready) after a
    first inference of every model. Requests to a model with a dynamic first dimension may share a
    run. On SIGTERM the server answers pending requests, then ends.

    \b
    Examples:
      boltgen serve digits.boltgen --device vgpu
      boltgen serve resnet=build/resnet50 models/ --port 9000 --grpc-port 9001
    """
    with errors_for_people(debug, "all requests were answered"):
        device_kind(device)
        from boltgen.serve.extra import require_server  # noqa: PLC0415

        require_server()
        from boltgen.serve.model import ModelOptions  # noqa: PLC0415
        from boltgen.serve.repository import source_of  # noqa: PLC0415
        from boltgen.serve.server import Addresses, ServerOptions, serve  # noqa: PLC0415
        from boltgen.serve.telemetry import log_as_json  # noqa: PLC0415

        log_as_json(logging.DEBUG if log_requests else logging.INFO)

        def listening(where: Addresses) -> None:
            shown = f"[{where.host}]" if ":" in where.host else where.host
            say(f"REST on http://{shown}:{where.port}, gRPC on {shown}:{where.grpc_port}")

        def ready(models: list[str]) -> None:
            say(f"ready: {', '.join(models)}")

        options = ServerOptions(
            host=host,
            port=port,
            grpc_port=grpc_port,
            most_body_bytes=max_body * _MIB,
            grace_s=grace,
            model=ModelOptions(
                device=device,
                workers=workers,
                max_batch=max_batch,
                max_delay_us=max_delay_us,
                queue=queue,
                graphs=graphs,
            ),
        )
        serve([source_of(text) for text in folders], options, listening, ready)
