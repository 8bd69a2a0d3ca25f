"""Traces of requests for OpenTelemetry, if its standard variables name a receiver.

OTEL_EXPORTER_OTLP_ENDPOINT, or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, turns them on; the SDK reads the
rest of its variables. A request is one span, in the trace that its `traceparent` names, and each of
its phases a child. Spans are made when all is over: a request that nobody traces costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import propagate, trace
from opentelemetry.trace import SpanKind, Status, StatusCode

from boltgen.errors import ServingError
from boltgen.settings import settings_from

_PROTOCOL = "http/protobuf"
_NS = 1e9
_is_on = False


@contextmanager
def tracing() -> Iterator[None]:
    """Send traces while the block runs, if the environment says where; the last ones at its end.

    Raises:
        ServingError: they are asked for by a protocol that is not spoken here.
    """
    global _is_on  # noqa: PLW0603 (OpenTelemetry's provider is the process's, too)
    protocol = settings_from().trace_protocol
    if protocol is None:
        yield
        return
    if protocol != _PROTOCOL:
        raise ServingError(
            f"traces are sent by {_PROTOCOL}, not by {protocol!r}: set OTEL_EXPORTER_OTLP_PROTOCOL"
        )
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    resource = Resource.create()
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": "boltgen"}))
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    _is_on = True
    try:
        yield
    finally:
        _is_on = False
        provider.shutdown()


def traced(
    carrier: Callable[[], Mapping[str, str]],
    attributes: Mapping[str, str | int],
    *,
    began_ns: int,
    seconds: float,
    phases: Mapping[str, tuple[float, float]],
    error: BaseException | None = None,
) -> None:
    """Note a request that began at `began_ns`, since the epoch, and took so many `seconds`.

    `carrier` gives the names and values that its client sent, `phases` when each one began after
    the request did, and when it ended, in seconds.
    """
    if not _is_on:
        return
    tracer = trace.get_tracer("boltgen.serve")
    # FastAPI has a span of its own for a request, in newer releases, that is in the client's trace.
    is_within = trace.get_current_span().get_span_context().is_valid
    span = tracer.start_span(
        "inference",
        context=None if is_within else propagate.extract(carrier()),
        kind=SpanKind.SERVER,
        attributes=dict(attributes),
        start_time=began_ns,
    )
    inside = trace.set_span_in_context(span)
    for name, (begin, end) in phases.items():
        child = tracer.start_span(name, context=inside, start_time=began_ns + round(begin * _NS))
        child.end(began_ns + round(end * _NS))
    if error is not None:
        span.set_status(Status(StatusCode.ERROR, str(error)))
    span.end(began_ns + round(seconds * _NS))
