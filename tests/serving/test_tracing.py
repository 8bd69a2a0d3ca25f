"""Traces of requests, as a collector of OpenTelemetry's protocol gets them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from benchmarks.harness.server import serving
from boltgen.errors import ServingError
from boltgen.serve.tracing import tracing

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
PHASES = ["decode", "queue", "run", "encode"]


@contextmanager
def collector() -> Iterator[tuple[str, list[Any]]]:
    """Its address, and the spans that it has got."""
    spans: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            body = self.rfile.read(int(self.headers["content-length"]))
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                (name,) = (
                    each.value.string_value
                    for each in resource.resource.attributes
                    if each.key == "service.name"
                )
                assert name == "boltgen"
                spans.extend(span for scope in resource.scope_spans for span in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", spans
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


def test_requests_are_spans_of_their_clients_traces(
    compiled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.zeros((4, 16), np.float16)
    with collector() as (address, spans):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        with serving([compiled / "half"]) as server:
            path = "/v2/models/half/infer"
            status, _ = server.ask(path, b'{"inputs": []}', {"traceparent": PARENT})
            assert status == 400
            tensor = grpc_client.InferInput("x", [4, 16], "FP16")
            tensor.set_data_from_numpy(x)
            server.rpc().infer("half", [tensor], headers={"traceparent": PARENT})
    # What is left is sent when the server ends.
    requests = [span for span in spans if span.name == "inference"]
    failed, answered = sorted(requests, key=lambda span: span.start_time_unix_nano)
    by_id = {span.span_id: span for span in spans}
    for span in requests:
        assert span.trace_id.hex() == TRACE
        while span.parent_span_id in by_id:  # FastAPI's, of newer releases
            span = by_id[span.parent_span_id]  # noqa: PLW2901 (up to the client's)
        assert span.parent_span_id.hex() == SPAN
    assert attributes(failed) == {"model": "half", "protocol": "rest", "outcome": "invalid"}
    assert "x" in failed.status.message
    assert attributes(answered) == {
        "model": "half",
        "version": "1",
        "protocol": "grpc",
        "outcome": "ok",
        "rows": 1,
    }
    children = [span for span in spans if span.parent_span_id == answered.span_id]
    assert [span.name for span in children] == PHASES
    assert not [span for span in spans if span.parent_span_id == failed.span_id]
    for span in children:
        assert answered.start_time_unix_nano <= span.start_time_unix_nano
        assert span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= answered.end_time_unix_nano


def test_a_protocol_that_is_not_spoken_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with pytest.raises(ServingError, match="grpc"), tracing():
        pass
