"""Programs that nobody here wrote: examples of CUTLASS, unmodified, on the virtual GPU.

Each is compiled as its authors would, for PTX only, and run by `boltgen vgpu run`'s machinery with
a small problem where its command line can ask for one. It passes where its own verification does.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from boltgen.build.cache import Cache
from boltgen.build.pool import compile_all, objects_or_raise
from boltgen.build.toolchain import Toolchain, find_toolchain
from boltgen.build.unit import DeviceCode, TranslationUnit, device_code_flag
from boltgen.build.vgpu import vgpu_libraries
from boltgen.runtime.vgpu_program import run_program
from boltgen.settings import settings_from


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A program of CUTLASS's `examples`, the GPU it asks for, and arguments for a small problem.

    `says` is what it prints when its verification passes, where its exit status is not enough.
    `reads_fresh_memory` marks one whose own reference multiplies memory that nothing wrote by zero:
    right where it holds zeros, as in a new process on a GPU.
    """

    source: str
    arch: str
    arguments: tuple[str, ...] = ()
    says: str = ""
    reads_fresh_memory: bool = False

    @property
    def name(self) -> str:
        """The program's name."""
        return Path(self.source).stem


def _fused(name: str, arch: str) -> Example:
    return Example(source=f"13_two_tensor_op_fusion/fused_two_{name}.cu", arch=arch, says="Pass")


_CONVOLUTION = ("--n=2", "--h=14", "--w=14", "--c=64", "--k=64", "--r=3", "--s=3", "--ref-check")

EXAMPLES = (
    Example(
        source="00_basic_gemm/basic_gemm.cu",
        arch="sm_75",
        arguments=("200", "152", "72", "1.5", "0.5"),
        says="Passed.",
    ),
    Example(source="05_batched_gemm/batched_gemm.cu", arch="sm_75", says="array gemm\nPassed."),
    Example(
        source="09_turing_tensorop_conv2dfprop/turing_tensorop_conv2dfprop.cu",
        arch="sm_75",
        arguments=_CONVOLUTION,
        says="Passed",
    ),
    Example(
        source="14_ampere_tf32_tensorop_gemm/ampere_tf32_tensorop_gemm.cu",
        arch="sm_80",
        arguments=("--m=512", "--n=256", "--k=128", "--iterations=1"),
        says="Passed",
    ),
    Example(
        source="16_ampere_tensorop_conv2dfprop/ampere_tensorop_conv2dfprop.cu",
        arch="sm_80",
        arguments=_CONVOLUTION,
        says="Passed",
    ),
    Example(
        source="47_ampere_gemm_universal_streamk/ampere_gemm_universal_streamk.cu",
        arch="sm_80",
        arguments=("--m=256", "--n=256", "--k=512", "--iterations=1"),
        says="Passed",
    ),
    Example(
        source="47_ampere_gemm_universal_streamk/ampere_gemm_universal_streamk_broadcast.cu",
        arch="sm_80",
        arguments=("--m=256", "--n=256", "--k=512", "--iterations=1"),
        says="Passed",
    ),
    Example(
        source="13_two_tensor_op_fusion/fused_two_gemms_grouped_f16_sm80_rf.cu",
        arch="sm_80",
        arguments=("--problems=3", "--m=256", "--k=128"),
        says="Pass",
        reads_fresh_memory=True,
    ),
    # From here on problems are of the sizes that the sources fix.
    Example(source="08_turing_tensorop_gemm/turing_tensorop_gemm.cu", arch="sm_75", says="Passed"),
    Example(source="12_gemm_bias_relu/gemm_bias_relu.cu", arch="sm_75", says="Passed"),
    Example(source="06_splitK_gemm/splitk_gemm.cu", arch="sm_75", says="Passed"),
    *(
        _fused(f"{operation}_{dtype}_{arch.replace('_', '')}_{where}", arch)
        for dtype in ("f16", "s8")
        for operation in ("gemms", "convs")
        for arch in ("sm_75", "sm_80")
        for where in ("rf", "shmem")
    ),
)


def example_unit(example: Example, tools: Toolchain) -> TranslationUnit:
    """The example's own source, to a program that loads CUDA's runtime when it starts."""
    root = tools.cutlass.include.parent
    source = root / "examples" / example.source
    return TranslationUnit(
        kind="example",
        name=example.name,
        text=source.read_text(encoding="utf-8"),
        suffix=".cu",
        output="program",
        compiler=tools.nvcc.path,
        flags=(
            *("-std=c++17", "-O2", "--no-compress", "--expt-relaxed-constexpr", "-w"),
            *device_code_flag(example.arch, DeviceCode.PTX),
            "-cudart=none",
        ),
        include=(
            source.parent,
            tools.cutlass.include,
            root / "tools" / "util" / "include",
            root / "examples" / "common",
        ),
        machine_flags=("-ccbin", str(tools.cxx.path), "-Xlinker", str(tools.nvcc.runtime)),
        identity=tools.cuda_identity,
        environment=tools.environment,
    )


def build(examples: Sequence[Example], jobs: int) -> list[Path]:
    """The programs, through the user's cache, in the order of `examples`.

    Raises:
        CompileError: one does not compile.
    """
    settings = settings_from()
    tools = find_toolchain(settings)
    units = [example_unit(example, tools) for example in examples]
    done = objects_or_raise(compile_all(units, Cache(settings.cache_dir), jobs=jobs))
    return [built.path for built in done]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How an example ended: what is wrong with it, empty where it passed, and all that it said."""

    example: Example
    fault: str
    output: str
    seconds: float


def verify(
    example: Example, program: Path, *, libraries: Path, folder: Path, timeout_s: float
) -> Verdict:
    """Run a built example in `folder`, where it may write, and let it verify itself."""
    started = time.monotonic()
    done = run_program(
        [str(program), *example.arguments],
        libraries=libraries,
        options={
            "device": example.arch,
            "fresh": "zero" if example.reads_fresh_memory else "nan",
        },
        settings=settings_from(),
        folder=folder,
        timeout_s=timeout_s,
        capture=True,
    )
    output = done.stdout + done.stderr
    fault = ""
    if done.returncode:
        fault = f"ends with status {done.returncode}"
    elif example.says not in done.stdout:
        fault = f"does not say {example.says!r}"
    elif "vgpu: " in done.stderr:
        fault = "the virtual GPU complains"
    return Verdict(example=example, fault=fault, output=output, seconds=time.monotonic() - started)


def main() -> int:
    """Build and run the examples that are named, or all; the status is 1 where one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="by default all")
    parser.add_argument("--jobs", type=int, default=settings_from().jobs)
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for one of them")
    options = parser.parse_args()
    unknown = set(options.names) - {example.name for example in EXAMPLES}
    if unknown:
        parser.error(f"no example {', '.join(sorted(unknown))}")
    chosen = [e for e in EXAMPLES if not options.names or e.name in options.names]
    libraries = vgpu_libraries(settings_from())
    failed = 0
    for example, program in zip(chosen, build(chosen, options.jobs), strict=True):
        try:
            with tempfile.TemporaryDirectory() as folder:
                verdict = verify(
                    example,
                    program,
                    libraries=libraries,
                    folder=Path(folder),
                    timeout_s=options.timeout,
                )
        except subprocess.TimeoutExpired:
            verdict = Verdict(
                example=example,
                fault=f"no end in {options.timeout:.0f} s",
                output="",
                seconds=options.timeout,
            )
        word = f"FAILED: {verdict.fault}" if verdict.fault else "passed"
        print(f"{example.arch}  {example.name:<44} {verdict.seconds:7.1f} s  {word}", flush=True)
        if verdict.fault:
            failed += 1
            print(*("    " + line for line in verdict.output.splitlines()[-12:]), sep="\n")
    print(f"{len(chosen) - failed} of {len(chosen)} examples passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
