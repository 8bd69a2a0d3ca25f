"""How requests end, without a server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from boltgen.errors import BusyError, DeviceError, InputError, NotReadyError
from boltgen.serve.answering import answered, outcome_of, said_of
from boltgen.serve.batching import Timing
from boltgen.serve.rest import InferRequest


class Model:
    name, version = "m", "1"

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def infer(self, request: InferRequest) -> Any:
        if self.error:
            raise self.error
        return {}, Timing(queued_s=0.0, run_s=0.0, rows=1)


class Models:
    """What is looked up first, then what took its place."""

    def __init__(self, *models: Model) -> None:
        self._models = iter(models)

    def model(self, name: str, version: str | None) -> Model:
        return next(self._models)


def ask(*models: Model) -> str:
    asked: Any = Models(*models)
    answer = answered(
        asked,
        "rest",
        "m",
        None,
        carrier=dict,
        decode=lambda: InferRequest(inputs={}),
        encode=lambda version, *_: version,
    )
    return asyncio.run(answer)


def test_a_model_that_was_replaced_meanwhile_is_no_failure() -> None:
    assert ask(Model(NotReadyError("unloaded")), Model()) == "1"


def test_a_model_that_has_failed_is_one() -> None:
    failed = Model(NotReadyError("a fault"))
    with pytest.raises(NotReadyError, match="a fault"):
        ask(failed, failed)


@pytest.mark.parametrize(
    ("error", "http", "grpc", "said"),
    [
        (InputError("'x'"), 400, "INVALID_ARGUMENT", "'x'"),
        (BusyError("full"), 503, "RESOURCE_EXHAUSTED", "full"),
        (DeviceError("a fault"), 500, "INTERNAL", "a fault"),
        (KeyError("/secret/path"), 500, "INTERNAL", "internal error"),
    ],
)
def test_what_a_client_is_told(error: Exception, http: int, grpc: str, said: str) -> None:
    outcome = outcome_of(error)
    assert (outcome.http, outcome.grpc) == (http, grpc)
    assert said in said_of(error)
    assert "secret" not in said_of(error)
