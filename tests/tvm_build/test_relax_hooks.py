"""What TVM compiles and links by boltgen's tools, and what it goes on doing itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import boltgen

boltgen.activate("vgpu")

import tvm  # noqa: E402
import tvm_ffi  # noqa: E402
from tvm.support import cc  # noqa: E402

from boltgen.tvm_build import relax_hooks  # noqa: E402
from boltgen.tvm_build.cuda_compiler import CALLBACK  # noqa: E402

KERNEL = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }\n'


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    callback, create_shared = tvm_ffi.get_global_func(CALLBACK), cc.create_shared
    yield
    tvm_ffi.register_global_func(CALLBACK, callback, override=True)
    cc.create_shared = create_shared


def compile_for(arch: str) -> bytes:
    with tvm.target.Target({"kind": "cuda", "arch": arch}, host="llvm"):
        return bytes(tvm_ffi.get_global_func(CALLBACK)(KERNEL))


def test_machine_code_and_ptx_for_the_targets_architecture(machine_code: None) -> None:
    relax_hooks.install_cuda_compiler()
    compiled = compile_for("sm_86")
    assert b".target sm_86" in compiled
    assert b"\x7fELF" in compiled


def test_an_architecture_that_boltgen_does_not_know_is_left_to_tvm() -> None:
    tvm_ffi.register_global_func(CALLBACK, lambda code: b"TVM's own", override=True)
    relax_hooks.install_cuda_compiler()
    assert compile_for("sm_61") == b"TVM's own"


def test_without_a_target_the_remedy_is_named() -> None:
    relax_hooks.install_cuda_compiler()
    with pytest.raises(Exception, match=r"names an architecture.*inside `with target:`"):
        tvm_ffi.get_global_func(CALLBACK)(KERNEL)


# A file, what is in it, the user's options and compiler, and who links.
LINKS: list[tuple[str, bytes, list[str] | None, str | None, str]] = [
    ("a.o", b"plain code", None, None, "TVM"),
    ("a.o", b"calls __cudaRegisterFatBinary", None, None, "boltgen"),
    ("a.o", b"plain code", None, "nvcc", "boltgen"),
    ("a.o", b"calls __cudaRegisterFatBinary", ["-O3"], "nvcc", "TVM"),
    ("a.cu", b"__global__ void f() {}", None, "nvcc", "TVM"),
    ("a.o", b"calls __cudaRegisterFatBinary", None, "clang++", "TVM"),
]


@pytest.mark.parametrize("case", LINKS)
def test_who_links(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    case: tuple[str, bytes, list[str] | None, str | None, str],
) -> None:
    name, content, options, compiler, who = case
    linked: list[str] = []
    monkeypatch.setattr(relax_hooks, "link_shared", lambda *_: linked.append("boltgen"))
    cc.create_shared = lambda *_, **__: linked.append("TVM")
    relax_hooks.install_linker()
    (tmp_path / name).write_bytes(content)
    cc.create_shared(str(tmp_path / "out.so"), [str(tmp_path / name)], options, compiler)
    assert linked == [who]
