"""Calls of the driver that are refused, by CUDA's numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import pytest

from benchmarks.harness.driver import CudaError


class Code(IntEnum):
    """CUDA's numbers of the errors that tests provoke."""

    INVALID_VALUE = 1
    INVALID_IMAGE = 200
    INVALID_CONTEXT = 201
    NO_BINARY_FOR_DEVICE = 209
    UNSUPPORTED_LIMIT = 215
    INVALID_PTX = 218
    UNSUPPORTED_PTX_VERSION = 222
    INVALID_HANDLE = 400
    NOT_FOUND = 500
    ILLEGAL_ADDRESS = 700
    ASSERT = 710
    MISALIGNED_ADDRESS = 716
    LAUNCH_FAILED = 719
    COOPERATIVE_TOO_LARGE = 720
    NOT_SUPPORTED = 801
    INVALID_CLUSTER_SIZE = 912


@contextmanager
def refused(code: Code, *words: str) -> Iterator[None]:
    """Expect CUDA's error `code`, with these names and numbers in its message."""
    with pytest.raises(CudaError) as caught:
        yield
    assert caught.value.code == code, caught.value
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"
