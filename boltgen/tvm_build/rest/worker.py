"""The process that checks and times candidate schedules of TVM's kernels.

`boltgen.tvm_build.rest.bench` starts it as a TVM worker, which calls functions by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from boltgen.device.choose import activate
from boltgen.tvm_build.rest.schedule import ENTRY

_Arrays = list[npt.NDArray[Any]]
# Sums in another order than the built-in schedule's are rounded differently; a wrong result differs
# far more. A choice.
_TOLERANCE = 2.0**-6


def begin(device: str, arch: str) -> None:
    """Make `device` the device of this process.

    Raises:
        DeviceError: the process already has another device, or there is no GPU.
    """
    activate(device, arch=arch)


def times_us(
    library: str,
    reference: str,
    tensors: Sequence[tuple[tuple[int, ...], str]],
    device: tuple[str, int],
    repeats: tuple[int, int],
) -> list[float]:
    """Return the times of a library's kernel with arguments `tensors` on a device, in microseconds.

    Its results must agree with the results of the library `reference`. `repeats` is the number of
    samples and the milliseconds of launches in each; 0 means one launch.

    Raises:
        ArithmeticError: the results differ.
    """
    import tvm  # noqa: PLC0415 (after `begin` has chosen the CUDA driver)

    module, place = tvm.runtime.load_module(library), tvm.runtime.device(*device)
    made = tuple((tuple(shape), dtype) for shape, dtype in tensors)
    arguments = [tvm.runtime.tensor(each, place) for each in _operands(made)]
    module[ENTRY](*arguments)
    place.sync()
    _require_equal([each.numpy() for each in arguments], _wanted(reference, made, device))
    samples, least_ms = repeats
    timer = module.time_evaluator(ENTRY, place, number=1, repeat=samples, min_repeat_ms=least_ms)
    return [1e6 * seconds for seconds in timer(*arguments).results]


@lru_cache(maxsize=1)
def _wanted(
    reference: str, tensors: tuple[tuple[tuple[int, ...], str], ...], device: tuple[str, int]
) -> _Arrays:
    import tvm  # noqa: PLC0415

    module, place = tvm.runtime.load_module(reference), tvm.runtime.device(*device)
    arguments = [tvm.runtime.tensor(each, place) for each in _operands(tensors)]
    module[ENTRY](*arguments)
    place.sync()
    return [each.numpy() for each in arguments]


def _operands(tensors: Sequence[tuple[tuple[int, ...], str]]) -> _Arrays:
    """Return arrays of these shapes and types for operands.

    Reals are between 1 and 2, so that logarithms and roots exist. Integers are 0, which is always a
    valid index.
    """
    rng = np.random.default_rng(0)
    made = []
    for shape, dtype in tensors:
        kind = np.dtype(dtype)
        is_real = kind.kind not in "iub"
        made.append(rng.uniform(1.0, 2.0, shape).astype(kind) if is_real else np.zeros(shape, kind))
    return made


def _require_equal(found: _Arrays, wanted: _Arrays) -> None:
    for index, (got, right) in enumerate(zip(found, wanted, strict=True)):
        a, b = got.astype(np.float64), right.astype(np.float64)
        least = _TOLERANCE * float(np.nan_to_num(np.abs(b)).max(initial=0.0))
        if not np.allclose(a, b, rtol=_TOLERANCE, atol=least, equal_nan=True):
            raise ArithmeticError(
                f"argument {index} is off the built-in schedule's by up to "
                f"{np.abs(a - b).max(initial=0.0):.3g}"
            )
