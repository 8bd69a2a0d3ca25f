"""A model of odd channel counts: padded, one library, on the virtual GPU under its checks."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest
import torch

import boltgen
from boltgen.running.artifact import LIBRARY, Artifact
from tests.conformance.odd_channels import SHAPE, Odd

# Five layers of values up to about 2, each rounded to FP16.
ATOL = 5 * 2 * 2.0**-11


@pytest.fixture(scope="module")
def network() -> tuple[Odd, torch.Tensor]:
    torch.manual_seed(0)
    return Odd().eval(), torch.randn(SHAPE)


@pytest.fixture(scope="module")
def artifact(network: tuple[Odd, torch.Tensor]) -> Iterator[Artifact]:
    net, x = network
    yield boltgen.compile(torch.export.export(net, (x,)))


def test_the_numbers_are_right_and_the_checks_find_nothing(
    artifact: Artifact, network: tuple[Odd, torch.Tensor]
) -> None:
    net, x = network
    with torch.no_grad():
        wanted = net(x)
    vgpu = boltgen.activate("vgpu").vgpu
    assert vgpu is not None
    vgpu.set_option("check", "memcheck,initcheck")
    try:
        vgpu.clear_launches()
        name = artifact.metadata.inputs[0].name
        found = list(artifact.run({name: x.numpy()}).values())
        assert [finding.message for finding in vgpu.findings()] == []
    finally:
        vgpu.set_option("check", "none")
    for actual, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(actual, expected.numpy(), rtol=0, atol=ATOL)
    kernels = [launch.kernel for launch in vgpu.launches()]
    assert "Interleave" in kernels[0], "one pass over the image: cast, transposed and padded"
    assert "permute" not in " ".join(kernels)
    assert sum("move_kernel" in kernel for kernel in kernels) == 3, "the image, and two results"


def test_an_inference_is_captured_whole_and_replayed(
    artifact: Artifact, network: tuple[Odd, torch.Tensor]
) -> None:
    """Ours and TVM's kernels, moves, workspaces: into one CUDA graph, run with other inputs."""
    net, x = network
    vgpu = boltgen.activate("vgpu").vgpu
    assert vgpu is not None
    import tvm
    from tvm import relax

    gpu = tvm.cuda(0)
    library = tvm.runtime.load_module(str(artifact.folder / LIBRARY))
    main = relax.VirtualMachine(library, gpu)["main"]
    tensor = tvm.runtime.tensor(x.numpy(), gpu)
    runtime = ctypes.CDLL("libcudart.so.13")
    raw = gpu.create_raw_stream()
    stream, graph, instance = ctypes.c_void_p(raw), ctypes.c_void_p(), ctypes.c_void_p()
    gpu.set_raw_stream(raw)
    try:
        # TVM keeps a call's results until the next one has its own: its pool of memory is complete
        # after two.
        for _ in range(2):
            main(tensor)
        vgpu.clear_launches()
        said = vgpu.last_error()  # by another test in this process
        # 0: whatever a capture forbids in any thread is an error, allocations and waits among it.
        assert runtime.cudaStreamBeginCapture(stream, 0) == 0
        outputs = main(tensor)
        assert runtime.cudaStreamEndCapture(stream, ctypes.byref(graph)) == 0
    finally:
        gpu.set_raw_stream(0)
    assert vgpu.launches() == [], "recorded, not run"
    assert runtime.cudaGraphInstantiate(ctypes.byref(instance), graph, ctypes.c_ulonglong(0)) == 0
    for seed in (1, 2):
        other = torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed))
        tensor.copyfrom(other.numpy())
        assert runtime.cudaGraphLaunch(instance, stream) == 0
        assert runtime.cudaStreamSynchronize(stream) == 0
        with torch.no_grad():
            wanted = net(other)
        for actual, expected in zip(outputs, wanted, strict=True):
            np.testing.assert_allclose(actual.numpy(), expected.numpy(), rtol=0, atol=ATOL)
    assert vgpu.last_error() == said


def test_inspect_says_what_is_moved_and_padded(artifact: Artifact) -> None:
    first = artifact.metadata.regions[0]
    (said,) = first.moves
    pixels = 2 * 9 * 11
    assert said == (
        f"moves A from nchw_f32 of 3 channels to nhwc_f16 of 4: {pixels * (3 * 4 + 4 * 2)} bytes"
    )
    assert first.workspace_bytes >= pixels * 4 * 2
    said = artifact.metadata.padding
    assert sum(line.startswith("conv2d: reads 13 channels as 16") for line in said) == 4
    assert any("reads 19 channels and writes 3, as the model says" in line for line in said)
    assert all(line.endswith("predicted by the analytical model") for line in said)
