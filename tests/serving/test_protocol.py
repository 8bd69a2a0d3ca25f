"""The server against the protocol's own OpenAPI document, by requests that Schemathesis makes.

The document comes with MLServer, of which nothing else is used.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from benchmarks.harness.server import PATIENCE_S, Server, serving
from tests.serving.models import MODELS, WIDTH

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

# MLServer's own, beyond the protocol: what is generated piece by piece.
_BEYOND = ("infer_stream", "generate", "generate_stream")
_VERSIONS = ("1", "2", "3")
_INDEX = "/v2/repository/index"


@pytest.fixture(scope="module")
def server(compiled: Path) -> Iterator[Server]:
    with serving([compiled]) as found:
        yield found


def document() -> dict[str, Any]:
    """The document, whose names of models are ours and one more."""
    found, repository = map(_part, ("dataplane.json", "model_repository.json"))
    # Loading is of other tests: it takes seconds.
    found["paths"] |= {_INDEX: repository["paths"][_INDEX]}
    found["components"]["schemas"] |= repository["components"]["schemas"]
    found["paths"] = {
        path: operations
        for path, operations in found["paths"].items()
        if not path.endswith(_BEYOND)
    }
    names = {"model_name": [*MODELS, "none"], "model_version": list(_VERSIONS)}
    for path, operations in found["paths"].items():
        for parameter in operations.get("parameters", ()):
            parameter["schema"]["enum"] = names[parameter["name"]]
        if path.endswith("/ready") and "{" in path:
            # The document forgets that a model may be unknown.
            operations["get"]["responses"]["404"] = {"description": "Not Found"}
    # JSON has no bytes; BF16 is of Triton's extension of the protocol.
    del found["components"]["schemas"]["TensorData"]["oneOf"][1]
    found["components"]["enums"]["Datatype"]["enum"].append("BF16")
    return found


def _part(name: str) -> dict[str, Any]:
    files = importlib.metadata.files("mlserver") or []
    (path,) = (each for each in files if each.name == name)
    part: dict[str, Any] = json.loads(path.read_text())
    return part


SCHEMA = schemathesis.openapi.from_dict(document())
OPERATIONS = [
    (path, method)
    for path, operations in document()["paths"].items()
    for method in operations
    if method in ("get", "post")
]


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_answers_are_as_described(server: Server, path: str, method: str) -> None:
    @settings(max_examples=50, deadline=None, derandomize=True)
    @given(SCHEMA[path][method].as_strategy())
    def answers(case: Any) -> None:
        _validate(server, case)

    answers()


@pytest.mark.parametrize("path", [path for path, _ in OPERATIONS if path.endswith("/infer")])
def test_an_inference_is_as_described(server: Server, path: str) -> None:
    tensor = {"name": "x", "shape": [4, WIDTH], "datatype": "FP16", "data": [1.0] * 4 * WIDTH}
    case = SCHEMA[path]["post"].Case(
        path_parameters={"model_name": "half", "model_version": "1"},
        body={"id": "7", "inputs": [tensor], "outputs": [{"name": "y"}]},
        media_type="application/json",
    )
    assert _validate(server, case).status_code == 200


def _validate(server: Server, case: Any) -> Any:
    # The document does not know what a model takes, so that much of what it allows is refused.
    return case.call_and_validate(
        base_url=f"http://{server.http}",
        timeout=PATIENCE_S,
        excluded_checks=[positive_data_acceptance],
    )
