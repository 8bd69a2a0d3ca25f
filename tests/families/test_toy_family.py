"""The proof that a kernel family is one file: this one has a family that boltgen knows nothing of.

Its kernel is as naive as can be: a thread for each element of D. It goes from enumeration through
tuning to a model that is compiled and executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import boltgen
from boltgen.arch import Arch, arch_named
from boltgen.codegen.epilogue import EpilogueCode, emit_epilogue
from boltgen.errors import BoltgenError
from boltgen.families.constants import ModelConstants
from boltgen.families.family import Footprint, KernelFamily, Prediction
from boltgen.families.instructions import Instructions
from boltgen.families.registry import FAMILIES, candidates, kernel_spec
from boltgen.families.source import render_kernel
from boltgen.families.space import Knob, Space, Violation
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.kernel import KernelSpec, Launch
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.reference import compare, error_bound, run
from boltgen.problems.workload import Layer, Workload
from boltgen.tuning.database.records import from_line, to_line
from tests.tuning.samples import A100, TOOLS, record

_TEMPLATE = """\
namespace {{ symbol }}_kernel {

__global__ void product(boltgen_gemm_args args) {
  int const column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
  if (column >= args.n) return;
  auto const* a = static_cast<__half const*>(args.a) + row * args.lda;
  auto const* b = static_cast<__half const*>(args.b) + column * args.ldb;
  float acc = 0.0f;
  for (int k = 0; k < args.k; ++k) acc += __half2float(a[k]) * __half2float(b[k]);
{% for statement in epilogue.statements %}
  {{ statement }}
{% endfor %}
  static_cast<__half*>(args.d)[row * args.ldd + column] = __float2half({{ epilogue.result }});
}

extern "C" int {{ symbol }}(boltgen_gemm_args const* args, boltgen_status* status) {
  dim3 const grid((args->n + {{ threads }} - 1) / {{ threads }}, args->m);
  product<<<grid, {{ threads }}, 0, static_cast<cudaStream_t>(args->stream)>>>(*args);
  status->code = cudaGetLastError() == cudaSuccess ? BOLTGEN_OK : BOLTGEN_CUDA_ERROR;
  return status->code;
}

extern "C" size_t {{ workspace_symbol }}(boltgen_gemm_args const*) { return 0; }

}  // namespace {{ symbol }}_kernel
"""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ToyConfig:
    """How many threads a threadblock has."""

    family: ClassVar[str] = "toy"

    threads: int

    @property
    def tile(self) -> str:
        return f"1x{self.threads}"

    def __str__(self) -> str:
        return f"{self.threads} threads"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyTraits:
    """The kernel depends on nothing but what is done to the product."""

    epilogue: ElementwiseGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyView:
    """The variables of the template."""

    TEMPLATE: ClassVar[str] = _TEMPLATE

    symbol: str
    workspace_symbol: str
    epilogue: EpilogueCode
    threads: int


def rejects(workload: Workload, arch: Arch) -> str | None:
    problem = workload.first.problem
    if workload.is_fused or problem.batch > 1 or not isinstance(problem, Gemm):
        return "it computes one plain product"
    if problem.b_layout is not Layout.COLUMN or problem.out_dtype is not DType.F16:
        return "it reads a column-major B and writes float16"
    if workload.single.epilogue.loads or not workload.single.prologue.is_identity:
        return "it loads nothing but A and B"
    return None


def space(workload: Workload, arch: Arch) -> Space[ToyConfig]:
    counts = (32, 64, 128)
    return Space(
        family=ToyConfig.family,
        knobs=(Knob("threads", counts, 64),),
        config_at=lambda point: ToyConfig(threads=point["threads"]),
        point_of=lambda config: {"threads": config.threads},
        listed=lambda: (ToyConfig(threads=count) for count in counts),
        tried=lambda: (ToyConfig(threads=count) for count in counts),
        broken=lambda config: violations(workload, config, arch),
    )


def violations(workload: Workload, config: ToyConfig, arch: Arch) -> tuple[Violation, ...]:
    most = arch.max_threads_per_cta
    if config.threads <= most:
        return ()
    message = f"{config.threads} threads, at most {most}"
    return (Violation(name="threads", message=message, reason="the hardware's limit"),)


def footprint(workload: Workload, config: ToyConfig) -> Footprint:
    return Footprint(registers=32, shared_memory_bytes=0, warps=config.threads // 32)


def predict(
    workload: Workload,
    config: ToyConfig,
    arch: Arch,
    constants: ModelConstants | None = None,
) -> Prediction:
    return Prediction(
        time_us=workload.flops / config.threads, bound_by="its naivety", details="no tensor core"
    )


def instructions(workload: Workload, config: ToyConfig, arch: Arch) -> Instructions:
    gemm = workload.single.problem.gemm
    return Instructions(
        threadblocks=gemm.m * -(-gemm.n // config.threads),
        steps=gemm.k,
        products=0.0,
        shared_loads=0.0,
        copies=2 * gemm.k,
        copy_bytes=2,
        outputs=1.0,
        arithmetic=gemm.k,
    )


def traits(workload: Workload) -> ToyTraits:
    return ToyTraits(epilogue=workload.single.epilogue)


def launch(workload: Workload, config: ToyConfig) -> Launch:
    return Launch(struct="boltgen_gemm_args", sizes=workload.single.problem.sizes)


def boundaries(workload: Workload, config: ToyConfig, arch: Arch) -> tuple[Workload, ...]:
    layer = workload.single
    sizes = ((3, config.threads + 1, 5), (1, 1, 1))
    problems = (replace(layer.problem, m=m, n=n, k=k) for m, n, k in sizes)
    return tuple(Workload.of(problem, layer.epilogue) for problem in problems)


def ranking(workload: Workload) -> Workload | None:
    return workload.plain


def stem(spec: KernelSpec) -> str:
    return f"toy_{spec.config.threads}"


def describe(spec: KernelSpec) -> Mapping[str, str]:
    return {"Problem": "a plain product", "Epilogue": spec.traits.epilogue.describe()}


def includes(spec: KernelSpec) -> tuple[str, ...]:
    return ("cuda_fp16.h", "boltgen/abi.h", "boltgen/activations.h")


def view(spec: KernelSpec, symbol: str, workspace_symbol: str) -> ToyView:
    return ToyView(
        symbol=symbol,
        workspace_symbol=workspace_symbol,
        epilogue=emit_epilogue(spec.traits.epilogue),
        threads=spec.config.threads,
    )


# A family outside of boltgen.
TOY = KernelFamily(
    config_type=ToyConfig,
    rejects=rejects,
    space=space,
    violations=violations,
    footprint=footprint,
    predict=predict,
    instructions=instructions,
    traits=traits,
    launch=launch,
    boundaries=boundaries,
    ranking=ranking,
    stem=stem,
    describe=describe,
    includes=includes,
    view=view,
)

M, N, K = 40, 50, 24


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The toy is the only family of products; nothing was measured."""
    monkeypatch.setenv("BOLTGEN_DATA_DIR", str(tmp_path / "data"))
    known = list(FAMILIES)
    for name in ("cutlass2", "b2b"):
        FAMILIES.remove(name)
    FAMILIES.register(TOY)
    yield
    for family in FAMILIES:
        FAMILIES.remove(family.name)
    for family in known:
        FAMILIES.register(family)


def _workload() -> Workload:
    builder = ElementwiseBuilder()
    builder.unary(UnaryOp.RELU, 0)
    problem = Gemm(m=M, n=N, k=K, b_layout=Layout.COLUMN)
    return Workload.of(problem, builder.build())


def _model(weight: np.ndarray) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((M, K), "float16"))
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(op.matmul(x, relax.const(weight)))
            output = builder.emit_output(op.nn.relu(product))
        builder.emit_func_output(output)
    return builder.get()


def test_a_family_of_ones_own_is_enumerated_rendered_and_recorded(toy: None) -> None:
    arch = arch_named("sm_80")
    found = candidates(_workload(), arch)
    assert [config.threads for config in found] == [32, 64, 128]
    source = render_kernel(kernel_spec(_workload(), found[0], "sm_80"))
    assert source.symbol.startswith("boltgen_toy_32_")
    assert "relu" in source.text
    written: Any = record(20.0, workload=_workload(), config=found[0], device=A100, toolchain=TOOLS)
    assert from_line(to_line(written)) == written


def test_where_no_family_computes_a_workload_each_says_why(toy: None) -> None:
    layer = Layer(problem=Gemm(m=8, n=8, k=8))
    with pytest.raises(BoltgenError) as raised:
        candidates(Workload(layers=(layer, layer)), arch_named("sm_80"))
    assert "toy: it computes one plain product" in str(raised.value)
    assert "move: it only changes layout" in str(raised.value)


def test_a_family_of_ones_own_is_tuned_compiled_and_executed(toy: None) -> None:
    rng = np.random.default_rng(0)
    weight = rng.uniform(-1, 1, (K, N)).astype(np.float16)
    tuned = boltgen.tune(_model(weight), arch="sm_80", budget="8trials", device="vgpu", rest="off")
    (result,) = tuned.results
    assert tuned.measured == 6  # three kernels, with the epilogue and without
    assert not result.failures
    assert isinstance(result.best.config, ToyConfig)

    artifact = boltgen.compile(_model(weight), arch="sm_80")
    (region,) = artifact.metadata.regions
    assert region.kernel.startswith(f"boltgen_toy_{result.best.config.threads}_")
    assert "modelled by the virtual GPU" in region.why
    check = artifact.metadata.check
    assert check is not None
    (checked,) = check.kernels
    assert checked.symbol == region.kernel
    assert len(checked.launches) == 2
    assert checked.passed
    x = rng.uniform(-1, 1, (M, K)).astype(np.float16)
    (actual,) = artifact.run({"x": x}, device="vgpu").values()
    layer = _workload().single
    case = (layer.problem, layer.epilogue, x, np.ascontiguousarray(weight.T), [])
    agreement = compare(actual, run(*case), error_bound(*case))
    assert agreement.within, str(agreement)
