"""KServe's own server with a model that answers at once, as a baseline for `benchmarks.serving`.

python -m benchmarks.kserve_null HTTP_PORT GRPC_PORT
"""

from __future__ import annotations

import argparse

if __name__ == "__main__":
    # KServe reads the command line, too, when it is imported, and passes over these.
    _PARSER = argparse.ArgumentParser(description=__doc__)
    _PARSER.add_argument("http_port", type=int)
    _PARSER.add_argument("grpc_port", type=int)
    _PORTS = _PARSER.parse_args()

from kserve import (
    InferOutput,
    InferRequest,
    InferResponse,
    Model,
    ModelServer,
)


class Null(Model):  # type: ignore[misc]
    """Gives its input back."""

    def __init__(self) -> None:
        super().__init__("null")
        self.ready = True

    async def predict(
        self,
        payload: InferRequest,
        headers: dict[str, str] | None = None,
        response_headers: dict[str, str] | None = None,
    ) -> InferResponse:
        """The answer to a request."""
        del headers, response_headers
        x = payload.inputs[0].as_numpy()
        y = InferOutput("y", list(x.shape), "FP32")
        y.set_data_from_numpy(x, binary_data=True)
        return InferResponse(
            payload.id,
            self.name,
            [y],
            use_binary_outputs=payload.use_binary_outputs,
            requested_outputs=payload.request_outputs,
        )


if __name__ == "__main__":
    ModelServer(http_port=_PORTS.http_port, grpc_port=_PORTS.grpc_port).start([Null()])
