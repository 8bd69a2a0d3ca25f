"""The architectures: one frozen row per sm, with the source of each figure.

Limits are the architecture's; throughputs are of the reference device that the row names, dense,
at boost clock. The virtual GPU imitates these devices: `boltgen.build.vgpu` gives it the rows.

Sources:
    CC: CUDA C++ Programming Guide 13.0, "Technical Specifications per Compute Capability", and
        the tuning guides of each architecture (occupancy, shared memory, register file); the
        allocation unit of registers is `cudaOccRegAllocationGranularity` of cuda_occupancy.h.
    T4, A100, A10, L40S, H200: NVIDIA's datasheets of these products.
    WP: NVIDIA's white papers of the Turing, Ampere (GA100, GA102), Ada and Hopper architectures
        (SM counts, L2 sizes, boost clocks); of GA100: Table 4, p. 36 f., and Table 5, p. 43; of
        GH100: Table 3, which gives one boost clock for tensor-core operations of TF32 and narrower
        types and a higher one for all else.
    BP: CUDA C++ Best Practices Guide 13.0, "Throughput of Native Arithmetic Instructions"; special
        functions are its reciprocals, exponentials and conversions.
    LUO: Luo et al., Benchmarking and Dissecting the Nvidia Hopper GPU Architecture, 2024
        (arXiv 2402.13499): latencies in Table IV, L2 throughput in Table V.
    BW: NVIDIA's data sheets of HGX B200 and B300, and the Blackwell architecture's technical brief.
    PTX: PTX ISA, release notes: the versions that brought each target, and the CUDA they are of.
    RTX: NVIDIA's white paper of the RTX Blackwell architecture, Appendix A.
    DGX: NVIDIA's data sheet of DGX Spark.
    EST: nobody has published the figure; an estimate after the neighbouring rows.
    CUTLASS: `cutlass/arch/mma_sm75.h` and `mma_sm80.h` (instruction shapes), and
        `cutlass/gemm/device/default_gemm_configuration.h` (stages).
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace

from boltgen.errors import UnknownArchError

_KIB = 1024
_MIB = 1024 * _KIB
_GIB = 1024 * _MIB
# By how much a data sheet's figure may be off from what its clocks and units give.
_ROUNDED = 0.025


@dataclass(frozen=True, slots=True, kw_only=True)
class Arch:
    """One architecture and its reference device.

    `mma_shapes` are the FP16 tensor-core instructions (M, N, K) that CUTLASS 2.x kernels use, the
    preferred one first, `integer_mma_shapes` the ones of 8-bit integers; `narrow_rate` is how many
    products of 8-bit operands the tensor cores make in the time of one of FP16. `min_stages`
    and `max_stages` bound the software pipeline; without asynchronous copies it is always 2.
    `mma_sync_fraction` is the share of the tensor cores' peak that `mma.sync` can reach.
    `l2_bytes_per_clock` is what L2 delivers to all SMs together, `memory_latency_clocks` a round
    trip to DRAM. `first_nvcc` is the first release that compiles for it; older than what boltgen
    takes at all says nothing. `least_sm_count` is the SM count of the smallest product with tensor
    cores: kernels whose threadblocks wait for each other run there too.

    `boost_mhz` is the clock at which the tensor cores' figures hold, `max_mhz` the highest, which
    the driver tells and `fp32_tflops` holds at. GeForce devices sum in FP32 at half the rate of
    FP16 or less. The last four figures are for the virtual GPU's model of time only: results of an
    SM each clock, and PCIe's bandwidth one way.

    Raises:
        ValueError: figures that contradict each other.
    """

    name: str
    device: str
    sm_count: int
    least_sm_count: int
    max_threads_per_sm: int
    max_ctas_per_sm: int
    registers_per_sm: int
    shared_memory_per_sm_bytes: int
    shared_memory_per_cta_bytes: int
    reserved_shared_memory_bytes: int
    l2_bytes: int
    l2_bytes_per_clock: int
    dram_gb_per_s: float
    memory_latency_clocks: int
    tensor_f32_acc_tflops: float
    tensor_f16_acc_tflops: float
    fp32_tflops: float
    boost_mhz: int
    max_mhz: int
    dram_bytes: int
    dram_bus_bits: int
    mma_shapes: tuple[tuple[int, int, int], ...]
    min_stages: int
    max_stages: int
    half_per_clock: int
    fp64_per_clock: int
    special_per_clock: int
    pcie_gb_per_s: float
    cutlass_api: int = 2
    integer_mma_shapes: tuple[tuple[int, int, int], ...] = ()
    narrow_rate: float = 2.0  # T4, A10, A100, L40S, H200, RTX
    mma_sync_fraction: float = 1.0
    first_nvcc: tuple[int, int] = (11, 8)
    max_threads_per_cta: int = 1024
    max_registers_per_thread: int = 255
    register_allocation_unit: int = 256

    def __post_init__(self) -> None:
        if not re.fullmatch(r"sm_\d+a?", self.name):
            raise ValueError(f"Arch: name {self.name!r} is not like 'sm_80'")
        carve_out = self.shared_memory_per_cta_bytes + self.reserved_shared_memory_bytes
        # The FLOP that an SM's tensor cores retire each clock: 512 on a GeForce that sums in FP32,
        # 8192 on a B200. Data sheets round their figures.
        slowest, fastest = (
            tflops * 1e6 / self.boost_mhz / self.sm_count
            for tflops in (self.tensor_f32_acc_tflops, self.tensor_f16_acc_tflops)
        )
        checks = {
            "max_threads_per_sm is no multiple of a warp": self.max_threads_per_sm % 32 == 0,
            "a threadblock's shared memory exceeds the SM's": carve_out
            <= self.shared_memory_per_sm_bytes,
            "registers_per_sm is no multiple of the allocation unit": self.registers_per_sm
            % self.register_allocation_unit
            == 0,
            "stages are not 2 <= min <= max": 2 <= self.min_stages <= self.max_stages,
            "more than two stages without asynchronous copies": self.has_async_copies
            or self.max_stages == 2,
            "no tensor-core instruction": bool(self.mma_shapes),
            f"{slowest:.0f} FLOP per clock and SM, summed in FP32, are implausible": slowest
            >= 512 * (1 - _ROUNDED),
            f"{fastest:.0f} FLOP per clock and SM, summed in FP16, are implausible": fastest
            <= 8192 * (1 + _ROUNDED),
            "tensor cores sum faster in FP32 than in FP16": slowest <= fastest,
            "max_mhz is below boost_mhz": self.boost_mhz <= self.max_mhz,
            "mma_sync_fraction is not in (0, 1]": 0.0 < self.mma_sync_fraction <= 1.0,
            "CUTLASS API generation is not 2 or 3": self.cutlass_api in (2, 3),
        }
        for complaint, holds in checks.items():
            if not holds:
                raise ValueError(f"Arch {self.name}: {complaint}")

    def __hash__(self) -> int:
        # Selection looks rows up a hundred thousand times; equal rows have equal names.
        return hash(self.name)

    @property
    def max_warps_per_sm(self) -> int:
        """Warps that an SM can hold."""
        return self.max_threads_per_sm // 32

    @property
    def compute(self) -> str:
        """The virtual architecture that nvcc calls `compute_80`."""
        return self.name.replace("sm_", "compute_")

    @property
    def compute_capability(self) -> tuple[int, int]:
        """Major and minor version: (8, 0)."""
        digits = self.name.removeprefix("sm_").rstrip("a")
        return int(digits[:-1]), int(digits[-1])

    @property
    def has_async_copies(self) -> bool:
        """Whether it has cp.async. Source: PTX ISA, cp.async: sm_80 or higher."""
        return self.compute_capability >= (8, 0)

    @property
    def fp32_per_clock(self) -> int:
        """FP32 results of an SM each clock; a fused multiply-add is one."""
        return round(self.fp32_tflops * 1e6 / 2 / self.max_mhz / self.sm_count)

    @staticmethod
    def named(name: str) -> Arch:
        """The row called `name` ("sm_80"); see `arch_named`."""
        return arch_named(name)


_SM75 = Arch(
    name="sm_75",
    device="T4",
    sm_count=40,  # WP
    least_sm_count=30,  # RTX 2060
    max_threads_per_sm=1024,  # CC
    max_ctas_per_sm=16,  # CC
    registers_per_sm=65536,  # CC
    shared_memory_per_sm_bytes=64 * _KIB,  # CC
    shared_memory_per_cta_bytes=64 * _KIB,  # CC
    reserved_shared_memory_bytes=0,  # CC: reserved from 8.0 on
    l2_bytes=4 * _MIB,  # WP
    l2_bytes_per_clock=20 * 40,  # EST: per SM
    dram_gb_per_s=320,  # T4
    memory_latency_clocks=480,  # EST
    tensor_f32_acc_tflops=65,  # T4: both accumulators at full rate
    tensor_f16_acc_tflops=65,
    fp32_tflops=8.1,  # T4
    boost_mhz=1590,  # WP
    max_mhz=1590,
    dram_bytes=15 * _GIB,  # T4: 16 GB, of which ECC takes a part
    dram_bus_bits=256,  # T4
    mma_shapes=((16, 8, 8),),  # CUTLASS
    integer_mma_shapes=((8, 8, 16),),  # CUTLASS
    min_stages=2,  # no cp.async: register-staged double buffering
    max_stages=2,
    half_per_clock=128,  # BP
    fp64_per_clock=2,  # BP
    special_per_clock=16,  # BP
    pcie_gb_per_s=16,  # T4: 3.0, 16 lanes
)

_SM80 = Arch(
    name="sm_80",
    device="A100 SXM 40 GB",
    sm_count=108,  # WP
    least_sm_count=56,  # A30
    max_threads_per_sm=2048,  # CC
    max_ctas_per_sm=32,  # CC
    registers_per_sm=65536,  # CC
    shared_memory_per_sm_bytes=164 * _KIB,  # CC
    shared_memory_per_cta_bytes=163 * _KIB,  # CC
    reserved_shared_memory_bytes=_KIB,  # CC
    l2_bytes=40 * _MIB,  # WP
    l2_bytes_per_clock=5120,  # WP, p. 35
    dram_gb_per_s=1555,  # A100
    memory_latency_clocks=466,  # LUO: A100 PCIe
    tensor_f32_acc_tflops=312,  # A100
    tensor_f16_acc_tflops=312,
    fp32_tflops=19.5,  # A100
    boost_mhz=1410,  # WP
    max_mhz=1410,
    dram_bytes=40 * _GIB,  # A100
    dram_bus_bits=5120,  # WP
    mma_shapes=((16, 8, 16), (16, 8, 8)),  # CUTLASS
    integer_mma_shapes=((16, 8, 32),),  # CUTLASS
    min_stages=2,
    max_stages=5,
    half_per_clock=256,  # BP
    fp64_per_clock=32,  # BP
    special_per_clock=16,  # BP
    pcie_gb_per_s=32,  # A100: 4.0, 16 lanes
)

_SM86 = replace(
    _SM80,
    name="sm_86",
    device="A10",
    sm_count=72,  # A10
    least_sm_count=10,  # A2
    max_threads_per_sm=1536,  # CC
    max_ctas_per_sm=16,  # CC
    shared_memory_per_sm_bytes=100 * _KIB,  # CC
    shared_memory_per_cta_bytes=99 * _KIB,  # CC
    l2_bytes=6 * _MIB,  # WP
    l2_bytes_per_clock=20 * 72,  # EST: per SM
    dram_gb_per_s=600,  # A10
    memory_latency_clocks=480,  # EST
    tensor_f32_acc_tflops=125,  # A10
    tensor_f16_acc_tflops=125,
    fp32_tflops=31.2,  # A10
    boost_mhz=1695,  # WP
    max_mhz=1695,
    dram_bytes=24 * _GIB,  # A10
    dram_bus_bits=384,  # A10
    half_per_clock=128,  # WP: as many as of FP32
    fp64_per_clock=2,  # BP
)

_SM89 = replace(
    _SM86,
    name="sm_89",
    device="L40S",
    sm_count=142,  # WP
    least_sm_count=20,  # RTX 4050
    max_ctas_per_sm=24,  # CC
    l2_bytes=96 * _MIB,  # WP
    l2_bytes_per_clock=20 * 142,  # EST: per SM
    dram_gb_per_s=864,  # L40S
    memory_latency_clocks=540,  # EST
    tensor_f32_acc_tflops=362,  # L40S
    tensor_f16_acc_tflops=362,
    fp32_tflops=91.6,  # L40S
    boost_mhz=2520,  # WP
    max_mhz=2520,
    dram_bytes=48 * _GIB,  # L40S
)

_SM90 = replace(
    _SM80,
    name="sm_90",
    device="H200 SXM",
    sm_count=132,  # WP
    least_sm_count=78,  # H20
    shared_memory_per_sm_bytes=228 * _KIB,  # CC
    shared_memory_per_cta_bytes=227 * _KIB,  # CC
    l2_bytes=50 * _MIB,  # WP
    l2_bytes_per_clock=4472,  # LUO: H800
    dram_gb_per_s=4800,  # H200
    memory_latency_clocks=479,  # LUO: H800 PCIe
    tensor_f32_acc_tflops=989,  # H200
    tensor_f16_acc_tflops=989,
    fp32_tflops=67,  # H200
    boost_mhz=1830,  # WP: of tensor-core operations
    max_mhz=1980,  # WP: of FP32 and FP64; what the driver tells
    dram_bytes=141 * _GIB,  # H200
    dram_bus_bits=6144,  # H200: six stacks of 1024
    fp64_per_clock=64,  # BP
    pcie_gb_per_s=64,  # H200: 5.0, 16 lanes
    mma_sync_fraction=0.629,  # LUO: of the peak that wgmma reaches
)

# It has sm_90's instructions except wgmma. tcgen05.mma is faster than mma.sync, but only sm_100a
# has that instruction, and this table has no row for sm_100a.
_SM100 = replace(
    _SM90,
    name="sm_100",
    device="B200",
    sm_count=148,  # BW
    least_sm_count=148,  # B200
    l2_bytes=126 * _MIB,  # BW
    l2_bytes_per_clock=40 * 148,  # EST: per SM
    dram_gb_per_s=8000,  # BW
    memory_latency_clocks=600,  # EST
    tensor_f32_acc_tflops=2250,  # BW: dense
    tensor_f16_acc_tflops=2250,
    fp32_tflops=74.4,  # BW: 75, rounded
    boost_mhz=1850,  # EST: what the tensor cores' figure gives
    max_mhz=1965,  # EST: what the driver of such devices tells
    dram_bytes=180 * _GIB,  # BW
    dram_bus_bits=8192,  # BW: eight stacks of 1024
    mma_sync_fraction=0.25,  # EST: of the peak that tcgen05.mma reaches
    first_nvcc=(12, 8),  # PTX: 8.6
)

_SM103 = replace(
    _SM100,
    name="sm_103",
    device="B300",
    dram_bytes=270 * _GIB,  # BW
    fp64_per_clock=2,  # BW: 1.2 TFLOP/s
    pcie_gb_per_s=128,  # BW: 6.0, 16 lanes
    first_nvcc=(12, 9),  # PTX: 8.8
)

_SM120 = replace(
    _SM89,
    name="sm_120",
    device="RTX 5090",
    sm_count=170,  # RTX
    least_sm_count=20,  # RTX 5050
    l2_bytes=96 * _MIB,  # RTX
    l2_bytes_per_clock=20 * 170,  # EST: per SM
    dram_gb_per_s=1792,  # RTX
    memory_latency_clocks=600,  # EST
    tensor_f32_acc_tflops=209.5,  # RTX: dense
    tensor_f16_acc_tflops=419,  # RTX: dense
    fp32_tflops=104.8,  # RTX
    boost_mhz=2407,  # RTX
    max_mhz=2407,
    dram_bytes=32 * _GIB,  # RTX
    dram_bus_bits=512,  # RTX
    pcie_gb_per_s=64,  # RTX: 5.0, 16 lanes
    first_nvcc=(12, 8),  # PTX: 8.7
)

_SM121 = replace(
    _SM120,
    name="sm_121",
    device="GB10",
    sm_count=48,  # DGX
    least_sm_count=48,  # DGX
    l2_bytes=24 * _MIB,  # DGX
    l2_bytes_per_clock=20 * 48,  # EST: per SM
    dram_gb_per_s=273,  # DGX: LPDDR5X, shared with the CPU
    tensor_f32_acc_tflops=59.4,  # EST: an SM like sm_120's
    tensor_f16_acc_tflops=118.8,  # EST
    fp32_tflops=29.7,  # EST
    boost_mhz=2418,  # EST: what the driver of such devices tells
    max_mhz=2418,
    dram_bytes=119 * _GIB,  # DGX: 128 GB
    dram_bus_bits=256,  # DGX
    first_nvcc=(12, 9),  # PTX: 8.8
)

ARCHES: dict[str, Arch] = {
    arch.name: arch
    for arch in (
        _SM75,
        _SM80,
        _SM86,
        _SM89,
        _SM90,
        # `a` is for instructions of this one architecture: wgmma, setmaxnreg.
        replace(_SM90, name="sm_90a", cutlass_api=3),
        _SM100,
        _SM103,
        _SM120,
        _SM121,
    )
}


def device_for(arch: str) -> str:
    """Return the virtual GPU's device that runs code for `arch`: an sm_90 for sm_90a."""
    return arch.removesuffix("a")


def arch_named(name: str) -> Arch:
    """Return the row called `name`, such as "sm_80".

    Raises:
        UnknownArchError: the table has none of that name; the message lists the known ones.
    """
    if name in ARCHES:
        return ARCHES[name]
    nearest = _nearest(name)
    hint = f"; did you mean '{nearest}'?" if nearest else "."
    raise UnknownArchError(f"unknown arch {name!r}{hint} Known: {', '.join(ARCHES)}")


def arch_of_device(name: str) -> Arch:
    """Return the row that makes the most of devices of `name`: "sm_90a" for sm_90 devices.

    Raises:
        UnknownArchError: the table has no row of such devices.
    """
    row = arch_named(name)
    same = (a for a in ARCHES.values() if a.compute_capability == row.compute_capability)
    return max(same, key=lambda arch: arch.cutlass_api)


def best_name(device: str) -> str:
    """Name the row that makes the most of a device; without a row it is the device's own name."""
    return arch_of_device(device).name if device in ARCHES else device


def what_is_lost(arch: Arch) -> str | None:
    """Say which instructions kernels for `arch` lack, compared with another row of the same
    devices.
    """
    most = arch_of_device(arch.name)
    if most.cutlass_api == arch.cutlass_api:
        return None
    return (
        f"kernels for {arch.name} lack wgmma and TMA, which kernels of the family "
        f"cutlass{most.cutlass_api} have: the same GPUs run them with arch {most.name}"
    )


def _nearest(name: str) -> str | None:
    digits = re.search(r"(\d{1,2})\.?(\d)(a?)", name.lower())
    if digits and (guess := "sm_" + "".join(digits.groups())) in ARCHES:
        return guess
    close = difflib.get_close_matches(name.lower(), ARCHES, n=1)
    # "cuda" says no architecture at all: every user's guess is as good as ours.
    return close[0] if close else None
