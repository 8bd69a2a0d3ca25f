"""Traces of requests for OpenTelemetry, if its standard variables name a receiver.

OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT turns traces on; the SDK reads its
other variables. A request is one span, in the trace of its `traceparent`, and each of its phases is
a child span. Spans are made after the request, so without a receiver they cost nothing.
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
    """Send traces while the block runs, if the environment names a receiver; flush them at its end.

    Raises:
        ServingError: the environment asks for another protocol than the supported one.
    """
    global _is_on  # noqa: PLW0603 (OpenTelemetry's provider is global, too)
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
    """Record a request that began at `began_ns` (since the epoch) and took `seconds`.

    `carrier` returns the names and values that the client sent. `phases` has the begin and end of
    each phase, in seconds after the request's begin.
    """
    if not _is_on:
        return
    tracer = trace.get_tracer("boltgen.serve")
    # Newer releases of FastAPI make a span for a request, in the client's trace.
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
