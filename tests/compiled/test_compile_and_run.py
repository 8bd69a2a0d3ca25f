"""A model compiled for real and run on the virtual GPU, in the library that would be deployed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import boltgen
from boltgen import compiler
from boltgen.build.cache import Cache
from boltgen.build.toolchain import find_toolchain
from boltgen.errors import ArtifactError, CompileError, DeviceError, UnknownArchError
from boltgen.running.artifact import Artifact
from boltgen.settings import settings_from
from boltgen.tvm_build import model_key
from tests.artifact.samples import write_sample
from tests.build.fakes import FAIL, write_script

# A dense layer with its tail in one kernel, a softmax that stays with TVM, as it is one of
# columns, and a transposed product.
M, K, N, P = 24, 64, 40, 16
EPS_F16 = 2.0**-11


@pytest.fixture(scope="module")
def artifact(machine_code: None) -> Iterator[Artifact]:
    yield boltgen.compile(model(), arch="sm_80")


def model() -> object:
    boltgen.activate("vgpu")
    import tvm
    from tvm.script import relax as R  # noqa: N812

    @R.function
    def main(
        x: R.Tensor((24, 64), "float16"),
        w: R.Tensor((64, 40), "float16"),
        b: R.Tensor((40,), "float16"),
        v: R.Tensor((16, 40), "float16"),
    ) -> R.Tensor((24, 16), "float16"):
        with R.dataflow():
            dense = R.matmul(x, w)
            biased = R.add(dense, b)
            active = R.nn.relu(biased)
            weights = R.abs(R.nn.softmax(active, axis=0))
            turned = R.permute_dims(v)
            out = R.matmul(weights, turned)
            R.output(out)
        return out

    return tvm.IRModule.from_expr(main.with_attr("global_symbol", "main"))


def inputs() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float16)

    return {"x": normal(M, K) / 8, "w": normal(K, N), "b": normal(N), "v": normal(P, N)}


def weights(arrays: dict[str, np.ndarray]) -> np.ndarray:
    x, w, b = (arrays[name].astype(np.float64) for name in "xwb")
    active = np.maximum(x @ w + b, 0)
    powers = np.exp(active - active.max(axis=0))
    return powers / powers.sum(axis=0)


def expected(arrays: dict[str, np.ndarray]) -> np.ndarray:
    return weights(arrays) @ arrays["v"].astype(np.float64).T


def test_the_result_is_right(artifact: Artifact) -> None:
    arrays = inputs()
    (result,) = artifact.run(arrays).values()
    want = expected(arrays)
    assert result.dtype == np.float16
    # The softmax rounds its probabilities to FP16 (relative error EPS of each term of the sum), its
    # argument is rounded before the exponential (an error of EPS * |argument| there),
    # and the result is rounded once more.
    sums = weights(arrays) @ np.abs(arrays["v"].astype(np.float64)).T
    argument = np.abs(arrays["x"].astype(np.float64) @ arrays["w"].astype(np.float64)).max() + 4
    bound = EPS_F16 * ((2 + 2 * argument) * sums + np.abs(want))
    assert np.all(np.abs(result - want) <= bound)


def test_the_kernels_really_ran(artifact: Artifact) -> None:
    vgpu = boltgen.activate("vgpu").vgpu
    assert vgpu is not None
    vgpu.clear_launches()
    artifact.run(inputs())
    launched = " ".join(launch.kernel for launch in vgpu.launches())
    for kernel in artifact.metadata.kernels:
        assert kernel.symbol in launched
    assert "softmax" in launched


def test_the_metadata_says_what_was_made(artifact: Artifact) -> None:
    metadata = artifact.metadata
    assert [str(info) for info in metadata.inputs] == [
        "x: float16[24, 64]",
        "w: float16[64, 40]",
        "b: float16[40]",
        "v: float16[16, 40]",
    ]
    placed = {placement.operator: placement for placement in metadata.placements}
    assert placed["softmax"].region is None
    assert "along the axes 0 of 2" in placed["softmax"].reason
    assert {region.symbol for region in metadata.regions} == {
        placement.region for placement in metadata.placements if placement.region
    }
    assert len(metadata.regions) == 2
    for region in metadata.regions:
        assert region.kernel in {kernel.symbol for kernel in metadata.kernels}
        assert re.search(
            r": [\d.]+ us, predicted by the analytical model; bound by [\w ]+[:,] [\d.]+ \w+",
            region.why,
        )
    assert {"nvcc", "CUTLASS", "boltgen", "apache-tvm"} <= metadata.versions.keys()
    assert all(phase.seconds >= 0 for phase in metadata.phases)
    for path in artifact.worth_opening():
        assert path.exists()
    assert (artifact.folder / "sources" / "tvm_kernels.cu").exists()


def test_the_library_holds_machine_code_and_ptx_and_no_source(artifact: Artifact) -> None:
    library = (artifact.folder / "model.so").read_bytes()
    # Two kernels of ours, and one fat binary of TVM's kernels.
    assert library.count(b".target sm_80") == len(artifact.metadata.kernels) + 1
    assert library.count(b"\x7fELF") > 1, "SASS is an ELF file in the fat binary"
    assert b"__global__" not in library
    assert b"libcudart.so.13" in library


def test_a_new_process_runs_the_saved_file(artifact: Artifact, tmp_path: Path) -> None:
    artifact.save(tmp_path / "saved")
    np.savez(tmp_path / "x.npz", **inputs())
    command = [sys.executable, "-m", "boltgen", "run", str(tmp_path / "saved")]
    options = ["--inputs", str(tmp_path / "x.npz"), "-o", str(tmp_path / "y.npz")]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (here,) = artifact.run(inputs()).values()
    with np.load(tmp_path / "y.npz") as arrays:
        (there,) = (arrays[name] for name in arrays.files)
    np.testing.assert_array_equal(here, there)


def test_a_library_that_tvm_refuses(artifact: Artifact, tmp_path: Path) -> None:
    artifact.save(tmp_path / "saved")
    (tmp_path / "saved" / "model.so").write_bytes(b"no library")
    damaged = Artifact(tmp_path / "saved", artifact.metadata)
    with pytest.raises(ArtifactError, match=r"model\.so cannot be loaded"):
        damaged.run(inputs())


def test_a_process_with_the_virtual_gpu_has_no_other(artifact: Artifact) -> None:
    artifact.run(inputs())
    with pytest.raises(DeviceError, match=r"already uses the virtual GPU.*process of its own"):
        artifact.run(inputs(), device="cuda")


def test_an_unknown_arch_lists_the_known_ones() -> None:
    with pytest.raises(UnknownArchError, match=r"unknown arch 'sm_81'.*sm_75.*sm_90a"):
        boltgen.compile("absent.onnx", arch="sm_81")


@pytest.mark.parametrize("frontend", ["relax", "relay"])
def test_a_model_that_was_compiled_before_is_taken_whole_from_the_cache(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    frontend: str,
) -> None:
    monkeypatch.setattr(model_key, "relay_identity", lambda: "a build of TVM")
    monkeypatch.setenv("BOLTGEN_CACHE_DIR", str(tmp_path / "cache"))
    cache = Cache(tmp_path / "cache")
    compiled: list[object] = []
    (tmp_path / "m.onnx").write_bytes(b"model")
    sample = write_sample(tmp_path / "sample")

    def compile_once(model: object, *_: object, **__: object) -> Artifact:
        compiled.append(model)
        return sample

    monkeypatch.setattr(compiler, "_compile", compile_once)
    first = boltgen.compile(tmp_path / "m.onnx", frontend=frontend)
    second = boltgen.compile(tmp_path / "m.onnx", frontend=frontend)
    assert len(compiled) == 1
    assert second.folder.is_relative_to(cache.root)
    assert [phase.name for phase in second.metadata.phases] == ["look for it in the cache"]
    assert replace(second.metadata, phases=()) == replace(first.metadata, phases=())
    second.save(tmp_path / "saved")
    assert not (tmp_path / "saved" / "manifest.json").exists()
    assert boltgen.load(tmp_path / "saved").metadata == second.metadata

    (second.folder / "model.so").write_bytes(b"damaged")
    boltgen.compile(tmp_path / "m.onnx", frontend=frontend)
    assert "model.so is not what was written" in caplog.text
    boltgen.compile(tmp_path / "m.onnx", reuse=False, frontend=frontend)
    assert len(compiled) == 3


def test_what_tvm_generates_and_nvcc_refuses(tmp_path: Path) -> None:
    boltgen.activate("vgpu")
    import tvm
    from tvm.script import relax as R  # noqa: N812

    from boltgen.arch import arch_named
    from boltgen.tvm_build.relax_link import build_library

    @R.function
    def main(x: R.Tensor((8,), "float16")) -> R.Tensor((8,), "float16"):
        return R.exp(x)

    module = tvm.IRModule.from_expr(main.with_attr("global_symbol", "main"))
    tools = find_toolchain(settings_from())
    failing = write_script(tmp_path / "nvcc", FAIL)
    tools = replace(tools, nvcc=replace(tools.nvcc, path=failing))
    before = tvm.get_global_func("tvm_callback_cuda_compile")
    with pytest.raises(CompileError, match=r"nvcc failed on fatbin 'tvm_kernels'.*error: ident"):
        build_library(module, arch_named("sm_80"), tools, Cache(tmp_path / "cache"))
    after = tvm.get_global_func("tvm_callback_cuda_compile")
    assert before.same_as(after)
