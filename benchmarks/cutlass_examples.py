"""Programs that nobody here wrote: examples of CUTLASS, unmodified, on the virtual GPU.

Each is compiled as its authors would, for PTX only, and run by `boltgen vgpu run`'s machinery with
a small problem where its command line can ask for one. It passes where it says as often as it has
verdicts to give that its own verification passed: one that finds the device not to its liking ends
with status 0 and says nothing of the kind.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.cuda_programs import build_programs, program_unit
from boltgen.arch import device_for
from boltgen.build.toolchain import Toolchain, find_toolchain
from boltgen.build.unit import TranslationUnit
from boltgen.build.vgpu import vgpu_libraries
from boltgen.device.vgpu_program import run_program
from boltgen.settings import settings_from


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """An example's mistake that a GPU tolerates: options of the virtual GPU, and why."""

    options: Mapping[str, str]
    because: str


_NOTHING = Allowance(options={}, because="")
# In the fused runs of b2b_gemm_run.h and b2b_grouped_gemm_run.h, and of them only.
_UNWRITTEN_Z = Allowance(
    options={"fresh": "zero"},
    because="the example's own reference computes Z = 1 * (A0 B0) + 0 * Z from a Z that nothing "
    "wrote (b2b_gemm_run.h: reference_Z0; b2b_grouped_gemm_run.h: host_tensor_Z, never copied to "
    "the device), and 0 * NaN is NaN: right only where fresh memory holds no NaN",
)
# 81,920 rows of 32 bytes.
_INTERLEAVED_BIAS = Allowance(
    options={"slack": str(4 << 20)},
    because="the example passes a bias of N bytes as an interleaved matrix of stride 0 "
    "(b2b_interleaved_gemm_run.h: tensor_Bias0, tensor_Bias1). Rows of an interleaved layout are "
    "32 bytes apart whatever its stride is, so the kernel and the reference both read 2.6 MB past "
    "the end of it, the same bytes on a GPU whose pages reach that far",
)
_UNWRITTEN_P = Allowance(
    options={"fresh": "zero"},
    because="the example's own reference computes P = Q K + 0 * P and O = P V + 0 * O from a P and "
    "an O that nothing wrote (block_Ref_P, block_Ref_O), and 0 * NaN is NaN",
)
_GAMMA_BEYOND_K = Allowance(
    options={"slack": "4096"},
    because="PredicatedScaleBiasVectorAccessIterator::add_tile_offset sets the guard again that "
    "clear_mask took away (predicated_scale_bias_vector_access_iterator.h), so that the last "
    "stages read gamma and beta one and two tiles past their ends; nothing uses what they read",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A program of CUTLASS's `examples`, the GPU it asks for, and arguments for a small problem.

    `verdicts` is how many lines it prints that say that a verification passed; `verdict` is what
    such a line has.
    """

    source: str
    arch: str
    arguments: tuple[str, ...] = ()
    verdicts: int = 1
    verdict: str = "pass"
    allowance: Allowance = field(default=_NOTHING)

    @property
    def name(self) -> str:
        """The program's name."""
        return Path(self.source).stem

    @property
    def device(self) -> str:
        """The device that it runs on."""
        return device_for(self.arch)


def _fused(operation: str, dtype: str, arch: str, where: str) -> Example:
    gemms = operation == "gemms"
    return Example(
        source=f"13_two_tensor_op_fusion/fused_two_{operation}_{dtype}_{arch.replace('_', '')}_"
        f"{where}.cu",
        arch=arch,
        # Unfused and fused; one has a batched run as well.
        verdicts=3 if (operation, dtype, arch, where) == ("gemms", "s8", "sm_80", "rf") else 2,
        allowance=_NOTHING if not gemms else _UNWRITTEN_Z if dtype == "f16" else _INTERLEAVED_BIAS,
    )


_CONVOLUTION = ("--n=2", "--h=14", "--w=14", "--c=64", "--k=64", "--r=3", "--s=3", "--ref-check")
_SMALL = ("--m=256", "--n=256", "--k=128", "--iterations=1")
_PROBLEMS = ("--groups=4", "--m=128", "--n=128", "--k=64", "--iterations=1")
_HEADS = ("--head_number=2", "--batch_size=2", "--seq_length=128", "--seq_length_kv=128")
# Small programs for an sm_80: the source, its arguments, and how often it says that it passed.
_AMPERE: tuple[tuple[str, tuple[str, ...], int], ...] = (
    ("04_tile_iterator/tile_iterator.cu", (), 1),
    ("15_ampere_sparse_tensorop_gemm/ampere_sparse_tensorop_gemm.cu", (), 1),
    ("15_ampere_sparse_tensorop_gemm/ampere_sparse_tensorop_gemm_universal.cu", (), 1),
    ("15_ampere_sparse_tensorop_gemm/ampere_sparse_tensorop_gemm_with_visitor.cu", (), 1),
    ("17_fprop_per_channel_bias/fprop_per_channel_bias.cu", (), 1),
    ("18_ampere_fp64_tensorop_affine2_gemm/ampere_fp64_tensorop_affine2_gemm.cu", (), 1),
    ("20_simt_canonical/simt_canonical.cu", (), 1),
    ("21_quaternion_gemm/quaternion_gemm.cu", ("--m=64", "--n=64", "--k=32", "--iterations=1"), 1),
    ("22_quaternion_conv/quaternion_conv.cu", (*_CONVOLUTION, "--iterations=1"), 1),
    (
        "23_ampere_gemm_operand_reduction_fusion/ampere_gemm_operand_reduction_fusion.cu",
        (*_SMALL, "--ref-check"),
        1,
    ),
    ("24_gemm_grouped/gemm_grouped.cu", _PROBLEMS, 1),
    (
        "25_ampere_fprop_mainloop_fusion/ampere_3d_fprop_mainloop_fusion.cu",
        (*_CONVOLUTION, "--d=4", "--t=3"),
        1,
    ),
    ("25_ampere_fprop_mainloop_fusion/ampere_fprop_mainloop_fusion.cu", _CONVOLUTION, 1),
    ("26_ampere_wgrad_mainloop_fusion/ampere_wgrad_mainloop_fusion.cu", _CONVOLUTION, 1),
    ("30_wgrad_split_k/30_wgrad_split_k.cu", (*_CONVOLUTION, "--split-k-slices=2"), 1),
    ("31_basic_syrk/basic_syrk.cu", (), 1),
    ("32_basic_trmm/basic_trmm.cu", (), 1),
    ("34_transposed_conv2d/34_transposed_conv2d.cu", _CONVOLUTION, 1),
    ("35_gemm_softmax/gemm_softmax.cu", (*_SMALL, "--batch_count=2"), 1),
    (
        "36_gather_scatter_fusion/gather_scatter_fusion.cu",
        (*_SMALL, "--index_size=128"),
        1,
    ),
    ("38_syr2k_grouped/syr2k_grouped.cu", ("--groups=4", "--n=128", "--k=64", "--iterations=1"), 1),
    (
        "42_ampere_tensorop_group_conv/ampere_tensorop_group_conv.cu",
        ("--n=2", "--h=14", "--w=14", "--c=128", "--k=128", "--g=2", "--ref-check"),
        1,
    ),
    (
        "43_ell_block_sparse_gemm/ell_block_sparse_gemm.cu",
        ("--a_rows=256", "--n=128", "--a_cols=256", "--a_ell_num_columns=128", "--iterations=1"),
        1,
    ),
    (
        "46_depthwise_simt_conv2dfprop/depthwise_simt_conv2dfprop.cu",
        ("--n=2", "--h=14", "--w=14", "--c=32", "--k=32", "--g=32", "--ref-check"),
        1,
    ),
)
_HOPPER = ("--m=512", "--n=512", "--k=256", "--iterations=1")
_GROUPS = ("--m=256", "--n=256", "--k=128", "--groups=3", "--iterations=0")
# The tutorials verify nothing: they print a speed, and the virtual GPU must have no complaint.
_TUTORIAL = ("512", "256", "128")
_STREAM_K = ("--m=256", "--n=256", "--k=512", "--iterations=1")

EXAMPLES = (
    Example(
        source="00_basic_gemm/basic_gemm.cu",
        arch="sm_75",
        arguments=("200", "152", "72", "1.5", "0.5"),
    ),
    Example(source="05_batched_gemm/batched_gemm.cu", arch="sm_75", verdicts=2),
    Example(
        source="09_turing_tensorop_conv2dfprop/turing_tensorop_conv2dfprop.cu",
        arch="sm_75",
        arguments=_CONVOLUTION,
    ),
    Example(
        source="14_ampere_tf32_tensorop_gemm/ampere_tf32_tensorop_gemm.cu",
        arch="sm_80",
        arguments=("--m=512", "--n=256", "--k=128", "--iterations=1"),
    ),
    Example(
        source="16_ampere_tensorop_conv2dfprop/ampere_tensorop_conv2dfprop.cu",
        arch="sm_80",
        arguments=_CONVOLUTION,
    ),
    Example(
        source="47_ampere_gemm_universal_streamk/ampere_gemm_universal_streamk.cu",
        arch="sm_80",
        arguments=_STREAM_K,
        verdicts=5,
    ),
    Example(
        source="47_ampere_gemm_universal_streamk/ampere_gemm_universal_streamk_broadcast.cu",
        arch="sm_80",
        arguments=_STREAM_K,
        verdicts=4,
    ),
    Example(
        source="13_two_tensor_op_fusion/fused_two_gemms_grouped_f16_sm80_rf.cu",
        arch="sm_80",
        arguments=("--problems=3", "--m=256", "--k=128"),
        allowance=_UNWRITTEN_Z,
    ),
    *(
        Example(source=source, arch="sm_80", arguments=arguments, verdicts=verdicts)
        for source, arguments, verdicts in _AMPERE
    ),
    *(
        Example(
            source=f"41_fused_multi_head_attention/fused_multihead_attention_{kind}_seqlen.cu",
            arch="sm_80",
            arguments=(*_HEADS, "--iterations=1"),
            allowance=_UNWRITTEN_P,
        )
        for kind in ("fixed", "variable")
    ),
    Example(
        source="37_gemm_layernorm_gemm_fusion/gemm_layernorm.cu",
        arch="sm_80",
        arguments=("--hidden_dim=256", "--valid_word_num=256", "--iterations=1"),
        allowance=_GAMMA_BEYOND_K,
    ),
    Example(
        source="28_ampere_3xtf32_fast_accurate_tensorop_fprop/"
        "ampere_3xtf32_fast_accurate_tensorop_fprop.cu",
        arch="sm_80",
        arguments=(*_CONVOLUTION, "--iterations=1"),
        verdict="e-07,",  # the relative error of three products of TF32; of one it is 2e-04
    ),
    *(
        Example(
            source=f"{name}/{name.partition('_')[2]}.cu",
            arch="sm_89",
            arguments=arguments,
            verdicts=verdicts,
        )
        for name, arguments, verdicts in (
            ("58_ada_fp8_gemm", (*_SMALL, "--warmup_iterations=0"), 2),
            ("64_ada_fp8_gemm_grouped", _PROBLEMS, 1),
        )
    ),
    # Its status is its verdict; this is the last line.
    Example(
        source="59_ampere_gather_scatter_conv/ampere_gather_scatter_conv.cu",
        arch="sm_80",
        arguments=("--n=8",),
        verdict="gather/scatter perf",
    ),
    *(
        Example(
            source=f"cute/tutorial/{name}.cu",
            arch="sm_80",
            # The last one has no kernel for other orders than T and N.
            arguments=("256", "128", "64", "T", "N") if "gemm" in name else (),
            verdict="cute_gemm" if "gemm" in name else "success",
            verdicts=2 if name == "tiled_copy_if" else 1,
        )
        for name in (
            "sgemm_1",
            "sgemm_2",
            "sgemm_sm70",
            "sgemm_sm80",
            "tiled_copy",
            "tiled_copy_if",
        )
    ),
    Example(
        source="48_hopper_warp_specialized_gemm/48_hopper_warp_specialized_gemm.cu",
        arch="sm_90a",
        arguments=_HOPPER,
    ),
    Example(
        source="49_hopper_gemm_with_collective_builder/49_collective_builder.cu",
        arch="sm_90a",
        arguments=("--m=512", "--n=512", "--k=256", "--l=2"),
        verdicts=7,
    ),
    Example(
        source="50_hopper_gemm_with_epilogue_swizzle/50_hopper_gemm_with_epilogue_swizzle.cu",
        arch="sm_90a",
        arguments=("--m=512", "--n=512", "--k=256"),
    ),
    Example(
        source="51_hopper_gett/51_hopper_gett.cu",
        arch="sm_90a",
        arguments=(
            "--modeC=m,n,l",
            "--modeA=m,k,l",
            "--modeB=k,n,l",
            "--extents=m:256,n:256,k:128,l:2",
        ),
    ),
    Example(
        source="52_hopper_gather_scatter_fusion/52_hopper_gather_scatter_fusion.cu",
        arch="sm_90a",
        arguments=("--m=512", "--n=512", "--k=256", "--index_size=256", "--iterations=1"),
    ),
    Example(
        source="53_hopper_gemm_permute/53_hopper_gemm_permute.cu",
        arch="sm_90a",
        arguments=("--m=512", "--n=512", "--k=512", "--batch_size=16", "--iterations=1"),
        verdicts=7,
    ),
    Example(
        source="54_hopper_fp8_warp_specialized_gemm/54_hopper_fp8_warp_specialized_gemm.cu",
        arch="sm_90a",
        arguments=_HOPPER,
    ),
    *(
        Example(
            source=f"55_hopper_mixed_dtype_gemm/55_hopper_{kind}_gemm.cu",
            arch="sm_90a",
            arguments=("--m=512", "--n=512", "--k=256", "--iterations=1", "--warmup=0"),
        )
        for kind in ("int4_bf16", "int4_fp8", "mixed_dtype")
    ),
    Example(
        source="56_hopper_ptr_array_batched_gemm/56_hopper_ptr_array_batched_gemm.cu",
        arch="sm_90a",
        arguments=("--m=256", "--n=384", "--k=256", "--l=3", "--iterations=0"),
        verdicts=2,
    ),
    Example(
        source="57_hopper_grouped_gemm/57_hopper_grouped_gemm.cu",
        arch="sm_90a",
        arguments=_GROUPS,
        verdicts=4,
    ),
    Example(
        source="61_hopper_gemm_with_topk_and_softmax/61_hopper_gemm_with_topk_and_softmax.cu",
        arch="sm_90a",
        arguments=("--m=16", "--n=8", "--k=64", "--l=1", "--iterations=0"),
    ),
    Example(
        source="62_hopper_sparse_gemm/62_hopper_sparse_gemm.cu",
        arch="sm_90a",
        arguments=("--m=512", "--n=512", "--k=256", "--l=1", "--iterations=0"),
        verdicts=1,
    ),
    Example(
        source="63_hopper_gemm_with_weight_prefetch/63_hopper_gemm_with_weight_prefetch.cu",
        arch="sm_90a",
        arguments=("--m=512", "--n=128", "--k=256", "--l=1", "--iterations=0"),
    ),
    *(
        Example(
            source="67_hopper_fp8_warp_specialized_gemm_with_blockwise_scaling/67_hopper_fp8_"
            f"warp_specialized_gemm_with_{kind}_scaling.cu",
            arch="sm_90a",
            arguments=_HOPPER,
        )
        for kind in ("blockwise", "groupwise")
    ),
    *(
        Example(
            source="68_hopper_fp8_warp_specialized_grouped_gemm_with_blockwise_scaling/68_hopper_"
            f"fp8_warp_specialized_grouped_gemm_with_blockwise_scaling{kind}.cu",
            arch="sm_90a",
            arguments=_GROUPS,
            verdicts=2,
        )
        for kind in ("", "_with_sparse_groups")
    ),
    *(
        Example(
            source=f"69_hopper_mixed_dtype_grouped_gemm/69_hopper_{kind}_grouped_gemm.cu",
            arch="sm_90a",
            # With a K of 128 the shuffled weights are written past their end: a chunk is 256 long.
            arguments=("--m=256", "--n=256", "--k=256", *_GROUPS[3:], "--warmup=0"),
            verdicts=2,
        )
        for kind in ("int4_bf16", "int4_fp8", "mixed_dtype")
    ),
    *(
        Example(
            source=f"cute/tutorial/hopper/{name}_sm90.cu",
            arch="sm_90a",
            arguments=_TUTORIAL,
            verdict="cute_gemm",
        )
        for name in ("wgmma", "wgmma_tma")
    ),
    # From here on problems are of the sizes that the sources fix, and example 13 repeats each
    # kernel 101 times: hundreds of GFLOP.
    Example(source="08_turing_tensorop_gemm/turing_tensorop_gemm.cu", arch="sm_75"),
    Example(source="12_gemm_bias_relu/gemm_bias_relu.cu", arch="sm_75"),
    Example(source="06_splitK_gemm/splitk_gemm.cu", arch="sm_75"),
    *(
        _fused(operation, dtype, arch, where)
        for dtype in ("f16", "s8")
        for operation in ("gemms", "convs")
        for arch in ("sm_75", "sm_80")
        for where in ("rf", "shmem")
    ),
)


def curand_headers() -> Path | None:
    """The folder of cuRAND's headers, which most examples fill their tensors with; None where the
    extra `bench` is not installed."""
    wheels = importlib.util.find_spec("nvidia.cu13")
    for folder in (wheels.submodule_search_locations or []) if wheels else []:
        include = Path(folder) / "include"
        if (include / "curand_kernel.h").is_file():
            return include
    return None


def example_unit(example: Example, tools: Toolchain, libraries: Path) -> TranslationUnit:
    """The example's own source, to a program that loads CUDA's runtime when it starts.

    `libraries` has the driver that some call by name.
    """
    root = tools.cutlass.include.parent
    source = root / "examples" / example.source
    curand = curand_headers()
    return program_unit(
        example.name,
        source.read_text(encoding="utf-8"),
        tools,
        arch=example.arch,
        flags=("--expt-relaxed-constexpr", "-w"),
        include=(
            source.parent,
            tools.cutlass.include,
            root / "tools" / "util" / "include",
            root / "examples" / "common",
            *([curand] if curand else []),
        ),
        libraries=(libraries / "libcuda.so.1",),
    )


def build(examples: Sequence[Example], jobs: int, libraries: Path) -> list[Path]:
    """The programs, through the user's cache, in the order of `examples`.

    Raises:
        CompileError: one does not compile.
    """
    tools = find_toolchain(settings_from())
    return build_programs([example_unit(example, tools, libraries) for example in examples], jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of an example: its fault, empty if it passed, and its output."""

    example: Example
    fault: str
    output: str
    seconds: float


def verify(
    example: Example,
    program: Path,
    *,
    libraries: Path,
    folder: Path,
    timeout_s: float,
    options: Mapping[str, str] | None = None,
) -> Verdict:
    """Run a built example in `folder`, where it may write, and let it verify itself.

    `options` are more of the virtual GPU's.
    """
    started = time.monotonic()
    try:
        done = run_program(
            [str(program), *example.arguments],
            libraries=libraries,
            options={"device": example.device, **example.allowance.options, **(options or {})},
            settings=settings_from(),
            folder=folder,
            timeout_s=timeout_s,
            capture=True,
        )
    except subprocess.TimeoutExpired:
        fault, output = f"no end in {timeout_s:.0f} s", ""
    else:
        fault = fault_of(example, done)
        output = done.stdout + done.stderr
    return Verdict(example=example, fault=fault, output=output, seconds=time.monotonic() - started)


def fault_of(example: Example, done: subprocess.CompletedProcess[str]) -> str:
    """Return an example's fault from how it ended; empty if it passed."""
    said = sum(example.verdict in line.lower() for line in done.stdout.splitlines())
    if done.returncode:
        return f"ends with status {done.returncode}"
    if not said:
        return "waived: it ends well without a word of its verification"
    if said != example.verdicts:
        return f"says {said} times that it passed, not {example.verdicts}"
    if "vgpu: " in done.stderr:
        return "the virtual GPU complains"
    return ""


def figures_of(verdict: Verdict) -> dict[str, Any]:
    """Return the figures to record of an example."""
    example = verdict.example
    allowance = example.allowance
    return {
        "verdict": f"FAILED: {verdict.fault}" if verdict.fault else "passed",
        "seconds": round(verdict.seconds, 1),
        "device": example.device,
        "arguments": " ".join(example.arguments),
        "options": dict(allowance.options),
        "because": allowance.because,
    }


def keep(name: str, figures: dict[str, Any]) -> None:
    """Record one example's figures beside the figures of earlier runs."""
    path = record.RESULTS / "cutlass_examples.json"
    earlier = json.loads(path.read_text())["figures"] if path.is_file() else {}
    known = {example.name for example in EXAMPLES}
    merged = {**{k: v for k, v in earlier.items() if k in known}, name: figures}
    record.write(
        "cutlass_examples",
        merged,
        "all pass their own verification; seconds are of a shared machine, for the order of size",
    )


def main() -> int:
    """Build and run the examples that are named, or all; the status is 1 where one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="by default all")
    parser.add_argument("--jobs", type=int, default=1, help="compilers at once")
    parser.add_argument("--timeout", type=float, default=7200, help="seconds for one of them")
    parser.add_argument("--record", action="store_true", help="keep the verdicts in results/")
    options = parser.parse_args()
    unknown = set(options.names) - {example.name for example in EXAMPLES}
    if unknown:
        parser.error(f"no example {', '.join(sorted(unknown))}")
    if curand_headers() is None:
        parser.error(
            "cuRAND's headers, which examples include, are not installed: pip install '.[bench]'"
        )
    chosen = [e for e in EXAMPLES if not options.names or e.name in options.names]
    libraries = vgpu_libraries(settings_from())
    failed = 0
    for example, program in zip(chosen, build(chosen, options.jobs, libraries), strict=True):
        with tempfile.TemporaryDirectory() as folder:
            verdict = verify(
                example,
                program,
                libraries=libraries,
                folder=Path(folder),
                timeout_s=options.timeout,
            )
        figures = figures_of(verdict)
        print(
            f"{example.arch}  {example.name:<44} {verdict.seconds:7.1f} s  {figures['verdict']}",
            flush=True,
        )
        if options.record:
            keep(example.name, figures)
        if verdict.fault:
            failed += 1
            print(*("    " + line for line in verdict.output.splitlines()[-12:]), sep="\n")
    print(f"{len(chosen) - failed} of {len(chosen)} examples passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
