"""The profiler's C++ interface (`profiler/profiler.h`) in Python, for use inside a worker."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from boltgen.ir.dtypes import DType
from boltgen.measure.epilogue_nodes import Node


class _Status(ctypes.Structure):
    """`profiler_status`."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("cuda_error", ctypes.c_int32),
        ("message", ctypes.c_char * 512),
    )


class _Device(ctypes.Structure):
    """`profiler_device`."""

    _fields_ = (
        ("name", ctypes.c_char * 256),
        ("driver", ctypes.c_char * 64),
        ("uuid", ctypes.c_char * 64),
        *((name, ctypes.c_int32) for name in ("major", "minor", "sm_count")),
        *((name, ctypes.c_int32) for name in ("clock_mhz", "memory_clock_mhz", "has_nvml")),
        ("memory_bytes", ctypes.c_uint64),
        ("l2_bytes", ctypes.c_uint64),
        ("stream", ctypes.c_void_p),
    )


class Rounding(ctypes.Structure):
    """`profiler_rounding`."""

    _fields_ = tuple((name, ctypes.c_double) for name in ("relative", "absolute", "overflow"))


class SoftmaxRounding(ctypes.Structure):
    """`profiler_softmax_rounding`."""

    _fields_ = tuple(
        (name, ctypes.c_double)
        for name in ("fixed", "of_difference", "flushed", "relative", "absolute")
    )


class GemmExtents(ctypes.Structure):
    """`profiler_gemm`."""

    reference: ClassVar[str] = "profiler_enclose_gemm"
    _fields_ = tuple(
        (name, ctypes.c_int32)
        for name in ("batch", "m", "n", "k", "b_is_column", "a_batched", "b_batched", "run")
    )


class ConvExtents(ctypes.Structure):
    """`profiler_conv`."""

    reference: ClassVar[str] = "profiler_enclose_conv"
    _fields_ = tuple(
        (name, ctypes.c_int32)
        for name in (
            *("n", "depth", *"hwcktrszpq"),
            *(f"{name}_{axis}" for name in ("pad", "stride", "dilation") for axis in "dhw"),
            "groups",
            "with_input",
        )
    )


class DepthwiseExtents(ConvExtents):
    """`profiler_conv` of as many groups as channels."""

    reference: ClassVar[str] = "profiler_enclose_depthwise"


Extents: TypeAlias = GemmExtents | ConvExtents
# By the kind of problem; `reference` is the function that takes it.
EXTENTS: dict[str, type[Extents]] = {
    "gemm": GemmExtents,
    "conv2d": ConvExtents,
    "conv3d": ConvExtents,
    "depthwise": DepthwiseExtents,
}


class _Reference(ctypes.Structure):
    """`profiler_reference`."""

    _fields_ = (
        ("nodes", ctypes.POINTER(Node)),
        *((name, ctypes.c_int32) for name in ("node_count", "in_dtype", "out_dtype")),
        ("rounding", Rounding),
        *((name, ctypes.c_void_p) for name in ("a", "b", "a_error", "low", "high")),
    )


class _Verdict(ctypes.Structure):
    """`profiler_verdict`."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("wrong", "not_finite", "first_wrong")),
        *((name, ctypes.c_float) for name in ("got", "low", "high")),
    )


class _Launches(ctypes.Structure):
    """`profiler_launches`."""

    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
        ("count", ctypes.c_int32),
        ("in_graph", ctypes.c_int32),
        ("scratch", ctypes.c_void_p),
        ("scratch_bytes", ctypes.c_uint64),
    )


_REFUSED = 1


class RefusedError(Exception):
    """The kernel's entry rejected its arguments, or could not launch."""


class CudaError(Exception):
    """A call of the CUDA runtime failed; `number` is the error code."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(f"{message} ({number})")
        self.number = number


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProperties:
    """The runtime's description of the device; launches go to `stream`."""

    name: str
    driver: str
    uuid: str
    compute_capability: tuple[int, int]
    sm_count: int
    clock_mhz: int
    memory_clock_mhz: int
    memory_bytes: int
    l2_bytes: int
    stream: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The comparison of an output with the reference.

    The last four fields describe the first wrong element.
    """

    wrong: int
    not_finite: int
    first_wrong: int
    got: float
    low: float
    high: float


class Plan:
    """Launches that are ready for timing."""

    def __init__(self, profiler: Profiler, handle: ctypes.c_void_p, kept: object) -> None:
        self._profiler, self._handle, self._kept = profiler, handle, kept

    def sample_us(self, samples: int) -> list[float]:
        """Return the time of one launch for each sample, in microseconds."""
        out = (ctypes.c_double * samples)()
        self._profiler.call("profiler_plan_sample", self._handle, ctypes.c_int32(samples), out)
        return list(out)

    def close(self) -> None:
        """Free the events and the graph."""
        self._profiler.library.profiler_plan_free(self._handle)


class Profiler:
    """The device of this process; every method raises CudaError if the device fails.

    Raises:
        CudaError: the device cannot be used; so does every method.
        OSError: the library cannot be loaded.
    """

    def __init__(self, library: Path, ordinal: int, *, with_nvml: bool) -> None:
        self.library = ctypes.CDLL(str(library))
        self.library.profiler_plan_free.argtypes = (ctypes.c_void_p,)
        self.library.profiler_plan_free.restype = None
        found = _Device()
        self.call("profiler_open", ordinal, int(with_nvml), ctypes.byref(found))
        self.device = DeviceProperties(
            name=found.name.decode(),
            driver=found.driver.decode(),
            uuid=found.uuid.decode(),
            compute_capability=(found.major, found.minor),
            sm_count=found.sm_count,
            clock_mhz=found.clock_mhz,
            memory_clock_mhz=found.memory_clock_mhz,
            memory_bytes=found.memory_bytes,
            l2_bytes=found.l2_bytes,
            stream=found.stream or 0,
        )

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the library that returns a status."""
        status = _Status()
        if self.library[name](*arguments, ctypes.byref(status)):
            message = status.message.decode(errors="replace")
            if status.kind == _REFUSED:
                raise RefusedError(message)
            raise CudaError(status.cuda_error, message)

    def clock_mhz(self) -> float | None:
        """Return the SM clock now, or None if it cannot be read."""
        return float(self.library.profiler_clock_mhz()) or None

    def free_bytes(self) -> int:
        """Return the free device memory, in bytes."""
        out = ctypes.c_uint64()
        self.call("profiler_free_bytes", ctypes.byref(out))
        return out.value

    def allocate(self, size_bytes: int) -> int:
        """Return the address of new device memory."""
        out = ctypes.c_void_p()
        self.call("profiler_allocate", ctypes.c_uint64(size_bytes), ctypes.byref(out))
        return int(out.value or 0)

    def release(self, address: int) -> None:
        """Free device memory."""
        self.call("profiler_release", ctypes.c_void_p(address))

    def copy(self, to: int, source: int, size_bytes: int) -> None:
        """Copy between any addresses of device and host, and wait."""
        size = ctypes.c_uint64(size_bytes)
        self.call("profiler_copy", ctypes.c_void_p(to), ctypes.c_void_p(source), size)

    def poison(self, address: int, size_bytes: int) -> None:
        """Set all bits, which is NaN in every floating-point type."""
        self.call("profiler_poison", ctypes.c_void_p(address), ctypes.c_uint64(size_bytes))

    def fill(
        self, address: int, dtype: DType, count: int, *, seed: int, low: float, high: float
    ) -> None:
        """Fill with uniform random numbers in [low, high), the same for equal seeds."""
        self.call(
            "profiler_fill",
            ctypes.c_void_p(address),
            dtype.profiler,
            ctypes.c_uint64(count),
            ctypes.c_uint64(seed),
            ctypes.c_float(low),
            ctypes.c_float(high),
        )

    def enclose(
        self,
        extents: Extents,
        nodes: Sequence[Node],
        rounding: Rounding,
        out_dtype: DType,
        *,
        in_dtype: DType,
        a: int,
        b: int,
        low: int,
        high: int,
        a_error: int = 0,
    ) -> None:
        """Write the bounds of each element of a correct output, in FP32.

        `a_error` is the address of the error of each element of A; 0 if A is exact.
        """
        reference = _Reference(
            nodes=(Node * len(nodes))(*nodes),
            node_count=len(nodes),
            in_dtype=in_dtype.profiler,
            out_dtype=out_dtype.profiler,
            rounding=rounding,
            a=a,
            b=b,
            a_error=a_error,
            low=low,
            high=high,
        )
        self.call(extents.reference, ctypes.byref(extents), ctypes.byref(reference))

    def softmax(
        self,
        low: int,
        high: int,
        rows: int,
        columns: int,
        rounding: SoftmaxRounding,
        *,
        sequence: int = 0,
        window: int = 0,
    ) -> None:
        """Replace the bounds of `rows` by the bounds of their softmax.

        With `sequence`, rows of a sequence are causal, over at most `window` columns.
        """
        ends = [ctypes.c_void_p(address) for address in (low, high)]
        extents = [ctypes.c_uint64(extent) for extent in (rows, columns, sequence, window)]
        self.call("profiler_softmax", *ends, *extents, ctypes.byref(rounding))

    def middle(
        self, low: int, high: int, dtype: DType, count: int, *, out: int, error: int
    ) -> None:
        """Write the middle of a result's bounds in `dtype`, and the largest error of the middle."""
        ends = [ctypes.c_void_p(address) for address in (low, high)]
        written = [ctypes.c_void_p(address) for address in (out, error)]
        self.call("profiler_middle", *ends, dtype.profiler, ctypes.c_uint64(count), *written)

    def compare(self, output: int, dtype: DType, count: int, *, low: int, high: int) -> Verdict:
        """Compare `count` elements of an output with their bounds."""
        out = _Verdict()
        self.call(
            "profiler_compare",
            ctypes.c_void_p(output),
            dtype.profiler,
            ctypes.c_void_p(low),
            ctypes.c_void_p(high),
            ctypes.c_uint64(count),
            ctypes.byref(out),
        )
        return Verdict(**{field.name: getattr(out, field.name) for field in fields(Verdict)})

    def plan(
        self,
        kernel: int,
        arguments: Sequence[ctypes.Structure | ctypes.c_int64],
        *,
        in_graph: bool,
        scratch: tuple[int, int],
    ) -> Plan:
        """Prepare launches of the entry at address `kernel`; `scratch` is an address and a size.

        The entry of a caller's own kernel may take plain integers.
        """
        addresses = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        launches = _Launches(
            kernel=kernel,
            arguments=addresses,
            count=len(arguments),
            in_graph=in_graph,
            scratch=scratch[0],
            scratch_bytes=scratch[1],
        )
        handle = ctypes.c_void_p()
        self.call("profiler_plan_make", ctypes.byref(launches), ctypes.byref(handle))
        return Plan(self, handle, (addresses, list(arguments)))
