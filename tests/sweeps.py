"""What the sweeps share: kernels compiled and judged a few at a time, whatever goes wrong told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from benchmarks.cases.chains import ChainCase
from benchmarks.cases.kernels import KernelCase
from benchmarks.harness.kernel_launch import Cuda, KernelLibrary
from benchmarks.harness.libraries import build_libraries
from boltgen.errors import CompileError
from boltgen.ir.kernel import KernelSpec
from boltgen.problems.reference import Agreement

AnyCase = TypeVar("AnyCase", KernelCase, ChainCase)
Libraries = Mapping[KernelSpec, KernelLibrary]


def findings(
    cases: Sequence[AnyCase],
    cuda: Cuda,
    folder: Path,
    judge: Callable[[AnyCase, Libraries], Agreement],
    text: Callable[[AnyCase], str],
) -> Iterator[str]:
    """Compile and judge a few kernels; what is wrong with them, each named by `text`."""
    folder.mkdir(exist_ok=True)
    try:
        libraries = build_libraries([case.spec for case in cases], folder)
    except CompileError as error:
        if len(cases) == 1:
            yield f"{text(cases[0])}: does not compile: {error}"
            return
        middle = len(cases) // 2  # to find out which
        yield from findings(cases[:middle], cuda, folder / "a", judge, text)
        yield from findings(cases[middle:], cuda, folder / "b", judge, text)
        return
    for case in cases:
        try:
            agreement = judge(case, libraries)
        except Exception as error:  # whatever it is, it is a finding
            yield f"{text(case)}: {type(error).__name__}: {error}"
            cuda.recover()
            continue
        if not agreement.within:
            yield f"{text(case)}: {agreement}"
